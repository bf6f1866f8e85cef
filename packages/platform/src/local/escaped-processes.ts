/**
 * Ends processes that a plugin has detached from its process group. They carry the plugin's HOME, a
 * directory nobody else has, in their environment; Linux shows that in /proc. Elsewhere, and for a
 * process that has cleaned its environment, only the wall helps (plugin-wall.ts).
 */
import { readdir, readFile } from "node:fs/promises";

/** A process may start another one while we look; this many looks are enough for honest programs. */
const looks = 5;

export function endEscapedProcesses(home: string): Promise<void> {
  return endMarkedProcesses("HOME", home);
}

/** Those in whose environment the variable has this value. */
export async function endMarkedProcesses(variable: string, value: string): Promise<void> {
  const mark = Buffer.from(`\0${variable}=${value}\0`, "utf8");
  for (let look = 0; look < looks; look += 1) {
    const escaped = await processesWith(mark);
    if (escaped.length === 0) return;
    for (const pid of escaped) kill(pid);
  }
}

async function processesWith(mark: Buffer): Promise<readonly number[]> {
  const names = await readdir("/proc").catch(() => []);
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(
    pids.map(async (pid) => {
      // Unreadable: another user's, or gone already.
      const environment = await readFile(`/proc/${pid}/environ`).catch(() => undefined);
      if (environment === undefined || pid === process.pid) return false;
      return Buffer.concat([Buffer.of(0), environment]).includes(mark);
    }),
  );
  return pids.filter((_, at) => found[at] === true);
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Ended by itself.
  }
}
