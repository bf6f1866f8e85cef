/**
 * Looks for secrets in whatever a gateway wrote or said: files, logs, answers. Knows the encodings in
 * use, and finds the half of a secret that a cut would leave.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/** A piece of what was written, with where it was. */
export interface Written {
  readonly where: string;
  readonly bytes: Buffer;
}

/** Characters of a secret that give it away: its beginning and its end. */
const tellingLength = 10;

/** The places that hold one of the secrets, whole or in part, with an encoding in which it is there. */
export function findSecrets(written: readonly Written[], secrets: readonly string[]): string[] {
  const find = finderOf(secrets);
  return written.flatMap(({ where, bytes }) => {
    const found = find(bytes);
    return found === undefined ? [] : [`${where}: ${found[0]} ${found[1].toString("utf8")}`];
  });
}

type Finder = (bytes: Buffer) => Form | undefined;

const finders = new Map<string, Finder>();

function finderOf(secrets: readonly string[]): Finder {
  const name = JSON.stringify(secrets);
  let finder = finders.get(name);
  if (finder === undefined) finders.set(name, (finder = createFinder(secrets)));
  return finder;
}

/** Bytes that all forms have. */
const headLength = 4;

/** Goes through the bytes once, whatever the number of forms: a database has tens of megabytes, and they are hundreds. */
function createFinder(secrets: readonly string[]): Finder {
  const parts = secrets.flatMap((secret) => [secret.slice(0, tellingLength), secret.slice(-tellingLength)]);
  const byHead = new Map<number, Form[]>();
  const heads = new Uint8Array(65_536);
  for (const form of parts.flatMap(formsOf)) {
    const head = form[1].readInt32BE(0);
    byHead.set(head, [...(byHead.get(head) ?? []), form]);
    heads[placeOf(head)] = 1;
  }
  return (bytes) => {
    let head = 0;
    for (let end = 0; end < bytes.length; end += 1) {
      head = (head << 8) | (bytes[end] ?? 0);
      if (heads[placeOf(head)] === 0 || end + 1 < headLength) continue;
      const start = end + 1 - headLength;
      const found = byHead.get(head)?.find(([, form]) => form.equals(bytes.subarray(start, start + form.length)));
      if (found !== undefined) return found;
    }
    return undefined;
  };
}

/** Spreads heads over the table. */
function placeOf(head: number): number {
  return Math.imul(head, 0x9e3779b1) >>> 16;
}

type Form = readonly [name: string, bytes: Buffer];

function formsOf(text: string): readonly Form[] {
  const utf8 = Buffer.from(text, "utf8");
  const percent = [...utf8].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  const json = JSON.stringify(text).slice(1, -1);
  const ascii = json.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const html = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
  const named: Readonly<Record<string, string>> = {
    raw: text,
    "in small letters": text.toLowerCase(),
    "percent-encoded": encodeURIComponent(text),
    "percent-encoded as a URL": encodeURI(text),
    "percent-encoded throughout": percent,
    "percent-encoded throughout in capitals": percent.toUpperCase(),
    "form-encoded": new URLSearchParams({ v: text }).toString().slice(2),
    "in JSON": json,
    "in ASCII JSON": ascii,
    "in JSON with slashes escaped": json.replaceAll("/", "\\/"),
    "in JSON within JSON": JSON.stringify(json).slice(1, -1),
    "in HTML": html,
    "as Latin-1": utf8.toString("latin1"),
    "in hexadecimal": utf8.toString("hex"),
    ...Object.fromEntries([0, 1, 2].flatMap((offset) => base64At(utf8, offset))),
  };
  const forms: Form[] = Object.entries(named).map(([name, form]) => [name, Buffer.from(form, "utf8")]);
  return [...forms, ["in UTF-16", Buffer.from(text, "utf16le")]];
}

/** The part of the base64 of a longer text that depends on this one only. */
function base64At(bytes: Buffer, offset: number): readonly (readonly [string, string])[] {
  const encode = (alphabet: "base64" | "base64url"): string =>
    Buffer.concat([Buffer.alloc(offset), bytes])
      .toString(alphabet)
      .slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  return [
    [`in base64 at ${offset}`, encode("base64")],
    [`in base64url at ${offset}`, encode("base64url")],
  ];
}

/** Every file below the directories. */
export async function filesBelow(...directories: readonly string[]): Promise<Written[]> {
  const found: Written[] = [];
  for (const directory of directories) {
    for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const where = join(entry.parentPath, entry.name);
      // A file may go between the listing and now.
      const bytes = await readFile(where).catch(() => undefined);
      if (bytes !== undefined) found.push({ where, bytes });
    }
  }
  return found;
}
