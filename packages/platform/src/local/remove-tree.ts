/**
 * Removes what a plugin wrote, whatever it made of it: directories it took its own rights away from, and
 * trees so deep that their paths are longer than the system takes.
 */
import { execFile } from "node:child_process";
import { readdirSync, rmdirSync, unlinkSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** @throws where something is left */
export async function removeTree(path: string): Promise<void> {
  if (removeFew(path)) return;
  try {
    await rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 50 });
  } catch {
    // These two walk from directory to directory, so no path gets too long; links are not followed.
    await run("/bin/chmod", ["-R", "u+rwx", "--", path], { env: {} }).catch(() => undefined);
    await run("/bin/rm", ["-rf", "--", path], { env: {} });
  }
}

/** So many files go at once: a way through the threads takes ten times as long. */
const fewFiles = 16;

/** A directory with a few files in it and no other directories; false: it is more, or something is in the way. */
function removeFew(path: string): boolean {
  try {
    const entries = readdirSync(path, { withFileTypes: true });
    if (entries.length > fewFiles || entries.some((entry) => entry.isDirectory())) return false;
    for (const { name } of entries) unlinkSync(join(path, name));
    rmdirSync(path);
    return true;
  } catch {
    return false;
  }
}
