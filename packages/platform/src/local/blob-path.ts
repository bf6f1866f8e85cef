/**
 * Where a blob's key lies on disk. The mapping is one to one and total: whatever a key contains, its
 * path stays inside the store's directory, no two keys share a path (on file systems that ignore
 * case too), and no name grows longer than file systems allow.
 *
 * A segment's bytes `a-z 0-9 _ - %` stand for themselves, `A` becomes `+a`, every other byte `=xx`;
 * an empty segment is `=`. A long name is cut into directories that end with `&`. Since dots are
 * never left as they are, the suffix of the file keeps the key `a` apart from the directory of `a/b`.
 */
import { join } from "node:path";

const fileSuffix = ".blob";
const longestName = 200;

export function blobPath(key: string): string {
  return `${join(...key.split("/").map(segmentPath))}${fileSuffix}`;
}

/** The key of a file, from the names on the way to it; `undefined` for a file that is no blob. */
export function keyOfPath(names: readonly string[]): string | undefined {
  const last = names.at(-1);
  if (last?.endsWith(fileSuffix) !== true) return undefined;
  const segments: string[] = [];
  let open = "";
  for (const name of [...names.slice(0, -1), last.slice(0, -fileSuffix.length)]) {
    if (name.endsWith("&")) {
      open += name.slice(0, -1);
    } else {
      segments.push(decodeSegment(open + name));
      open = "";
    }
  }
  return segments.join("/");
}

/** The directory that holds every key with this prefix. */
export function prefixDirectory(prefix: string): string {
  const whole = prefix.split("/").slice(0, -1);
  return whole.length === 0 ? "." : join(...whole.map(segmentPath));
}

function segmentPath(segment: string): string {
  const encoded = encodeSegment(segment);
  const names: string[] = [];
  for (let at = 0; at < encoded.length; at += longestName) names.push(encoded.slice(at, at + longestName));
  return names.join("&/");
}

function encodeSegment(segment: string): string {
  if (segment === "") return "=";
  let encoded = "";
  for (const byte of Buffer.from(segment, "utf8")) {
    const character = String.fromCharCode(byte);
    if (/[a-z0-9_%-]/.test(character)) encoded += character;
    else if (/[A-Z]/.test(character)) encoded += `+${character.toLowerCase()}`;
    else encoded += `=${byte.toString(16).padStart(2, "0")}`;
  }
  return encoded;
}

function decodeSegment(encoded: string): string {
  const bytes: number[] = [];
  for (const [, upper, hex, plain] of encoded.matchAll(/\+(.)|=([0-9a-f]{2})|([^=+])/g)) {
    if (upper !== undefined) bytes.push(upper.toUpperCase().charCodeAt(0));
    else if (hex !== undefined) bytes.push(Number.parseInt(hex, 16));
    else if (plain !== undefined) bytes.push(plain.charCodeAt(0));
  }
  return Buffer.from(bytes).toString("utf8");
}
