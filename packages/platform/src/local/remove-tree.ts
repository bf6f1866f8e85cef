/**
 * Removes what a plugin wrote, whatever it made of it: directories it took its own rights away from, and
 * trees so deep that their paths are longer than the system takes.
 */
import { execFile } from "node:child_process";
import { readdir, rm, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** @throws where something is left */
export async function removeTree(path: string): Promise<void> {
  try {
    // Most are empty, and what is empty needs no walk.
    await rmdir(path);
    return;
  } catch {
    // Not empty, or not there.
  }
  if (await removeFew(path)) return;
  try {
    await rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 50 });
  } catch {
    // These two walk from directory to directory, so no path gets too long; links are not followed.
    await run("/bin/chmod", ["-R", "u+rwx", "--", path], { env: {} }).catch(() => undefined);
    await run("/bin/rm", ["-rf", "--", path], { env: {} });
  }
}

/** So many files by hand take a tenth of the time of a general walk. */
const fewFiles = 16;

/** A directory with a few files in it and no other directories; false: it is more, or something is in the way. */
async function removeFew(path: string): Promise<boolean> {
  try {
    const entries = await readdir(path, { withFileTypes: true });
    if (entries.length > fewFiles || entries.some((entry) => entry.isDirectory())) return false;
    await Promise.all(entries.map(({ name }) => unlink(join(path, name))));
    await rmdir(path);
    return true;
  } catch {
    return false;
  }
}
