/**
 * Ends every process of our user but ourselves and those we descend from. For the plugin box alone, which
 * has its machine to itself (design "AWS"): elsewhere it would end what is none of ours.
 */
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

/** How long ended processes may take to be gone. */
const goneWithinMs = 5_000;
/** The list of processes is read piece by piece: one that starts meanwhile may be missing from it once. */
const quietLooks = 2;

/** @throws Error where one is still there after five seconds, or where we are root */
export async function endOtherProcesses(): Promise<void> {
  // Root could end everything there is; the box never is root, so whoever calls this as root is mistaken.
  if (process.getuid?.() === 0) throw new Error("The plugin box must not run as root.");
  const giveUpAt = Date.now() + goneWithinMs;
  for (let quiet = 0; quiet < quietLooks;) {
    const { others, spared } = look();
    if (others.length === 0) {
      quiet += 1;
      continue;
    }
    if (Date.now() > giveUpAt) throw new Error(`${others.length} processes of a plugin could not be ended.`);
    quiet = 0;
    endAll(others, spared);
    await pause(2);
  }
}

interface Look {
  readonly others: readonly number[];
  /** Those we descend from, where they are our user's and not the first process, which no signal reaches. */
  readonly spared: readonly number[];
}

function endAll(others: readonly number[], spared: readonly number[]): void {
  // All at once where nobody is to be spared: the system lets no process start another one meanwhile.
  if (spared.length === 0) {
    signal(-1, "SIGKILL");
    return;
  }
  // Stopped first: a process that is killed leaves room below the limit for another one to start a third.
  for (const pid of others) signal(pid, "SIGSTOP");
  for (const pid of others) signal(pid, "SIGKILL");
}

/** Reads without waiting, so that little changes meanwhile. */
function look(): Look {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const parent = Number.isInteger(pid) ? parentOf(pid) : undefined;
    if (parent !== undefined) parents.set(pid, parent);
  }
  const line = new Set<number>([1]);
  for (let pid = process.pid; pid > 1 && !line.has(pid); pid = parents.get(pid) ?? 0) line.add(pid);
  const spared = [...line].filter((pid) => pid !== 1 && pid !== process.pid && signal(pid, 0));
  const others = [...parents.keys()].filter((pid) => !line.has(pid) && signal(pid, 0));
  return { others, spared };
}

/** `undefined` for a process that is gone, or has ended and only waits to be buried. */
function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // A name may hold spaces and brackets: what follows is behind the last one.
    const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state === "Z" || state === "X" ? undefined : Number(parent);
  } catch {
    return undefined;
  }
}

/** Whether it was ours to signal. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}
