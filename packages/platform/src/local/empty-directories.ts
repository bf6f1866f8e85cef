/** Removes from these directories all that belongs to our user. For the plugin box alone. */
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "./remove-tree.ts";

/** A directory that is not there, or cannot be read, holds nothing of ours. @throws Error where something is left */
export async function emptyDirectories(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    for (const entry of await entriesOf(path)) await removeTree(entry).catch(() => undefined);
    const left = await entriesOf(path);
    if (left.length > 0) throw new Error(`${left.length} files of a plugin could not be removed from ${path}.`);
  }
}

async function entriesOf(path: string): Promise<readonly string[]> {
  const entries = (await readdir(path).catch(() => [])).map((name) => join(path, name));
  const ours = await Promise.all(
    entries.map(async (entry) => (await lstat(entry).catch(() => undefined))?.uid === process.getuid?.()),
  );
  return entries.filter((_, at) => ours[at] === true);
}
