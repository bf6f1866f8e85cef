/** `Range` of RFC 9110: one range of bytes. What cannot be read, or asks for several, counts as absent. */

export interface ByteRange {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

/** `undefined`: send everything. `unsatisfiable`: nothing of the body is in the range. */
export function parseByteRange(header: string | undefined, size: number): ByteRange | "unsatisfiable" | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? "");
  if (match === null) return undefined;
  const [, first = "", last = ""] = match;
  if (first === "") {
    if (last === "") return undefined;
    const length = Math.min(Number(last), size);
    return length === 0 ? "unsatisfiable" : { start: size - length, end: size };
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return undefined;
  if (start >= size) return "unsatisfiable";
  return { start, end: last === "" ? size : Math.min(Number(last) + 1, size) };
}
