/**
 * Bytes in base64, plain or as in addresses, padded or not, with white space anywhere. Undefined where it is none, or
 * ends within a byte: Node leaves that part out, and a file that lacks a part is worse than none.
 */
export function readBase64(text: string): Buffer | undefined {
  const [, digits] = /^([A-Za-z0-9+/_-]*)={0,2}$/.exec(text.replaceAll(/\s+/g, "")) ?? [];
  return digits === undefined || digits.length % 4 === 1 ? undefined : Buffer.from(digits, "base64");
}
