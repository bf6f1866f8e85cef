/**
 * What a plugin process wrote, kept within a bound: the beginning of stdout (the answer), the end of
 * stderr (where crashes say why). No character is cut in two by the size of a read.
 */

export interface BoundedOutput {
  readonly add: (part: Buffer) => void;
  readonly text: () => string;
}

/**
 * Keeps the first `limit` bytes; `onFull` is called when more come. `onText` gets the text as it comes,
 * all of it together being what `text` gives in the end.
 */
export function keepHead(limit: number, onFull: () => void, onText?: (text: string) => void): BoundedOutput {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const texts: string[] = [];
  let room = limit;
  let full = false;
  let finished = false;
  const keep = (text: string): void => {
    if (text === "") return;
    texts.push(text);
    onText?.(text);
  };
  return {
    add(part) {
      if (full) return;
      // In stream mode the decoder holds back a character whose rest is still to come.
      keep(decoder.decode(part.subarray(0, room), { stream: true }));
      full = part.byteLength > room;
      room -= Math.min(room, part.byteLength);
      if (full) onFull();
    },
    text() {
      // A character whose rest was cut off by the limit is left out.
      if (!full && !finished) keep(decoder.decode());
      finished = true;
      return texts.join("");
    },
  };
}

/** Keeps the last `limit` bytes. */
export function keepTail(limit: number): BoundedOutput {
  let parts: Buffer[] = [];
  let kept = 0;
  let cut = false;
  return {
    add(part) {
      parts.push(part);
      kept += part.byteLength;
      // Joined now and then only: a process that floods stderr must not cost a copy for each read.
      if (kept < 2 * limit) return;
      parts = [Buffer.concat(parts).subarray(-limit)];
      kept = limit;
      cut = true;
    },
    text() {
      const all = Buffer.concat(parts);
      const tail = all.subarray(-limit);
      const start = cut || tail.byteLength < all.byteLength ? firstCharacter(tail) : 0;
      return tail.subarray(start).toString("utf8");
    },
  };
}

/** Where the first whole character of cut-off UTF-8 begins. */
function firstCharacter(bytes: Buffer): number {
  let at = 0;
  while (at < 3 && at < bytes.byteLength && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}
