/**
 * Removes what a plugin wrote, whatever it made of it: directories it took its own rights away from, and
 * trees so deep that their paths are longer than the system takes.
 */
import { execFile } from "node:child_process";
import { rm, rmdir } from "node:fs/promises";
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
  try {
    await rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 50 });
  } catch {
    // These two walk from directory to directory, so no path gets too long; links are not followed.
    await run("/bin/chmod", ["-R", "u+rwx", "--", path], { env: {} }).catch(() => undefined);
    await run("/bin/rm", ["-rf", "--", path], { env: {} });
  }
}
