/** Redacts bytes while they pass (BLIND-6): a secret that was cut in two is found as a whole one is. */
import type { Redactor } from "./redactor.ts";

/**
 * Of each piece, as much is held back as could be the beginning of a secret whose rest is in the next one; none of a
 * whole event, so that no event waits for another.
 * @param isEvents an event stream
 */
export async function* redactPieces(
  pieces: AsyncIterable<Uint8Array>,
  { redactor, isEvents }: { readonly redactor: Redactor; readonly isEvents: boolean },
): AsyncGenerator<Uint8Array, void, void> {
  let held: Uint8Array = new Uint8Array();
  try {
    for await (const piece of pieces) {
      const bytes = redactor.redactBytes(held.byteLength === 0 ? piece : Buffer.concat([held, piece]));
      const end =
        isEvents && endsEvent(bytes) ? bytes.byteLength : Math.max(0, bytes.byteLength - redactor.longestForm);
      // A copy: the reader's buffer may be used again.
      held = Uint8Array.from(bytes.subarray(end));
      if (end > 0) yield bytes.subarray(0, end);
    }
  } catch (thrown) {
    const rest = redactor.redactEnd(Buffer.from(held).toString("latin1"));
    if (rest !== "") yield Buffer.from(rest, "latin1");
    throw thrown;
  }
  if (held.byteLength > 0) yield held;
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/** By an empty line. */
function endsEvent(bytes: Uint8Array): boolean {
  if (bytes.at(-1) !== lineFeed) return bytes.at(-1) === carriageReturn && bytes.at(-2) === carriageReturn;
  return bytes.at(-2) === lineFeed || (bytes.at(-2) === carriageReturn && bytes.at(-3) === lineFeed);
}
