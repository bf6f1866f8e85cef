/**
 * Directories of this process among the temporary ones. Their names say whose they are: what a process leaves that is
 * killed is removed by the next one that makes some there.
 */
import { createHash } from "node:crypto";
import { lstat, readdir, realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSameStart, startOf, thisProcess } from "./process-identity.ts";
import { removeTree } from "./remove-tree.ts";

const kinds = ["held", "modules", "plugin"] as const;
const named = new RegExp(`^toolyard-(?:${kinds.join("|")})-([0-9a-f]{8})_(\\d+)_([0-9a-f]{4}|)_(\\d*)_`);

/** By the directory above, whose links are resolved once. */
const prefixes = new Map<string, Promise<(kind: (typeof kinds)[number]) => string>>();

/**
 * What the path of such a directory begins with; a few characters of one's own make it whole.
 * @throws Error where the directory above is not there
 */
export async function ownDirectory(kind: (typeof kinds)[number], above = tmpdir()): Promise<string> {
  let prefix = prefixes.get(above);
  if (prefix === undefined) prefixes.set(above, (prefix = findPrefix(above)));
  prefix.catch(() => prefixes.delete(above));
  return (await prefix)(kind);
}

async function findPrefix(above: string): Promise<(kind: (typeof kinds)[number]) => string> {
  const [place, { space, pid, started }] = await Promise.all([realpath(above), thisProcess()]);
  const own = digest(space, 8);
  // Nobody waits for it.
  void removeLeft(place, own).catch(() => undefined);
  return (kind) => join(place, `toolyard-${kind}-${own}_${pid}_${shortened(started).replace("/", "_")}_`);
}

/** Of processes that cannot be seen from here nobody knows whether they live. */
async function removeLeft(place: string, space: string): Promise<void> {
  for (const name of await readdir(place)) {
    const [, itsSpace, pid, boot, time] = named.exec(name) ?? [];
    if (itsSpace !== space) continue;
    const started = await startOf(Number(pid));
    if (started !== undefined && isSameStart(shortened(started), `${boot}/${time}`)) continue;
    const path = join(place, name);
    // Others may write where temporary files are: what is theirs is not gone through.
    const found = await lstat(path).catch(() => undefined);
    if (found?.isDirectory() === true && found.uid === process.getuid?.())
      await removeTree(path).catch(() => undefined);
  }
}

/** When a process started, as names have it. */
function shortened(started: string): string {
  const [boot = "", time = ""] = started.split("/");
  return `${boot === "" ? "" : digest(boot, 4)}/${time}`;
}

function digest(text: string, length: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, length);
}
