/** Texts that come with messages, as they are given on: whole, or not at all (core/subscriptions/message.ts). */
import { createHash } from "node:crypto";

const longestHeader = 8_192;
const longestId = 1_024;

/** Without those that are too long. */
export function toHeaders(given: Iterable<readonly [name: string, value: string]>): Record<string, string> {
  return Object.fromEntries(
    [...given].flatMap(([name, value]) => (value.length > longestHeader ? [] : [[name, withoutControls(value)]])),
  );
}

/** A long one as its hash: messages of one id count as one message. Undefined: it names nothing. */
export function toMessageId(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  const id = withoutControls(given);
  if (id.trim() === "") return undefined;
  return id.length > longestId ? `sha256:${createHash("sha256").update(given, "utf8").digest("base64url")}` : id;
}

function withoutControls(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replaceAll(/[\u0000-\u001f\u007f]/g, " ");
}
