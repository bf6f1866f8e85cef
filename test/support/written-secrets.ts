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
  const parts = secrets.flatMap((secret) => [secret.slice(0, tellingLength), secret.slice(-tellingLength)]);
  // Most encodings leave a plain text as it is.
  const wanted = [...new Map(parts.flatMap(formsOf).map((form) => [form[1].toString("latin1"), form])).values()];
  return written.flatMap(({ where, bytes }) => {
    const found = wanted.find(([, form]) => bytes.includes(form));
    return found === undefined ? [] : [`${where}: ${found[0]} ${found[1].toString("utf8")}`];
  });
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
