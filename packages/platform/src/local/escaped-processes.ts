/**
 * Ends processes that a plugin has detached from its process group. They carry the plugin's HOME, a
 * directory nobody else has, in their environment; Linux shows that in /proc. Elsewhere, and for a
 * process that has cleaned its environment, only the wall helps (plugin-wall.ts).
 */
import { existsSync, readFileSync } from "node:fs";
import { open, readdir } from "node:fs/promises";

/** A process may start another one while we look; this many looks are enough for honest programs. */
const looks = 5;
/** So few processes are looked for one by one, more in the list of all. */
const fewProcesses = 100;
/** An environment is read in parts of this size; most are smaller. */
const environmentBytes = 8_192;

/** @param since process id of the plugin: what it started came later. Absent: all processes are looked at */
export function endEscapedProcesses(home: string, since?: number): Promise<void> {
  return endMarkedProcesses("HOME", home, since);
}

/** Those in whose environment the variable has this value. */
export async function endMarkedProcesses(variable: string, value: string, since?: number): Promise<void> {
  const mark = Buffer.from(`\0${variable}=${value}\0`, "utf8");
  for (let look = 0; look < looks; look += 1) {
    const escaped = await processesWith(mark, since);
    if (escaped.length === 0) return;
    for (const pid of escaped) kill(pid);
  }
}

async function processesWith(mark: Buffer, since: number | undefined): Promise<readonly number[]> {
  const pids = since === undefined ? await allProcesses() : await processesAfter(since);
  // A few are read at once, which is done before a thread would have begun.
  const isMarked = (environment: Buffer): boolean => Buffer.concat([Buffer.of(0), environment]).includes(mark);
  if (pids.length <= fewProcesses) {
    return pids.filter((pid) => pid !== process.pid && isMarked(readEnvironmentNow(pid) ?? Buffer.alloc(0)));
  }
  const found = await Promise.all(
    pids.map(async (pid) => {
      // Unreadable: another user's, or gone already.
      const environment = await readEnvironment(pid).catch(() => undefined);
      return environment !== undefined && pid !== process.pid && isMarked(environment);
    }),
  );
  return pids.filter((_, at) => found[at] === true);
}

function readEnvironmentNow(pid: number): Buffer | undefined {
  try {
    return readFileSync(`/proc/${pid}/environ`);
  } catch {
    return undefined;
  }
}

/** `readFile` would take 64 KB for each, since these files say that they are empty. */
async function readEnvironment(pid: number): Promise<Buffer> {
  const file = await open(`/proc/${pid}/environ`);
  try {
    const parts: Buffer[] = [];
    for (;;) {
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.allocUnsafe(environmentBytes) });
      if (bytesRead === 0) return Buffer.concat(parts);
      parts.push(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}

async function allProcesses(): Promise<readonly number[]> {
  const names = await readdir("/proc").catch(() => []);
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}

/** The system numbers processes one after the other, and begins anew after the last number there is. */
async function processesAfter(since: number): Promise<readonly number[]> {
  const last = lastProcess();
  if (last === undefined) return allProcesses();
  if (last >= since && last - since <= fewProcesses) {
    const pids = Array.from({ length: last - since }, (_, index) => since + 1 + index);
    return pids.filter((pid) => existsSync(`/proc/${pid}`));
  }
  const isLater = (pid: number): boolean => (last >= since ? pid > since && pid <= last : pid > since || pid <= last);
  return (await allProcesses()).filter(isLater);
}

/** The number that was given last, to a process or a thread, where the system says it. */
function lastProcess(): number | undefined {
  try {
    const last = Number(/ (\d+)\s*$/.exec(readFileSync("/proc/loadavg", "latin1"))?.[1]);
    return last > 0 ? last : undefined;
  } catch {
    return undefined;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Ended by itself.
  }
}
