/**
 * Names of files in a session's workspace (CHAT-9). A path only ever selects a row of that session's
 * files: it is normalised text, never a path of any disk. A leading `/` means the workspace root, so
 * `/tmp/data.txt` is the file `tmp/data.txt` of the workspace.
 */
import { GatewayError } from "../errors/gateway-error.ts";

const longestPath = 1_024;
const longestName = 255;
const deepestPath = 32;

/**
 * The one spelling of a file's path: NFC, `/` between names, no leading slash.
 * @throws GatewayError `invalid_arguments` (param `path`) for a path that leaves the workspace or names no file
 */
export function filePath(text: string): string {
  const names = namesOf(text);
  if (names.length === 0) throw refused(text, "names the workspace itself, not a file");
  if (/[/\\]\.?$/.test(text)) throw refused(text, "ends as a directory does; name a file");
  return names.join("/");
}

/**
 * The prefix that the files of a directory share: empty for the root, else ending in `/`.
 * @throws GatewayError `invalid_arguments` (param `path`) for a path that leaves the workspace
 */
export function directoryPrefix(text: string): string {
  return namesOf(text)
    .map((name) => `${name}/`)
    .join("");
}

function namesOf(text: string): string[] {
  // Before anything is compared: one name must not have two spellings.
  const path = text.normalize("NFC");
  if (!path.isWellFormed()) throw refused(text, "holds half of a surrogate pair");
  if (/[\p{Cc}\u2028\u2029]/u.test(path)) throw refused(text, "holds a control character");
  if (Buffer.byteLength(path) > longestPath) throw refused(text, `has more than ${longestPath} bytes`);
  const names: string[] = [];
  // Models that think of Windows write `\`; as a character of a name it would only hide a `..`.
  for (const name of path.split(/[/\\]/)) {
    if (name === "" || name === ".") continue;
    if (name !== "..") names.push(name);
    else if (names.pop() === undefined) throw refused(text, "leaves the workspace");
  }
  const long = names.find((name) => Buffer.byteLength(name) > longestName);
  if (long !== undefined) throw refused(text, `has a name of more than ${longestName} bytes`);
  if (names.length > deepestPath) throw refused(text, `is more than ${deepestPath} levels deep`);
  return names;
}

function refused(text: string, why: string): GatewayError {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
  return new GatewayError(
    "invalid_arguments",
    `The path ${shown} ${why}. Paths are relative to the workspace root '/'.`,
    {
      param: "path",
    },
  );
}
