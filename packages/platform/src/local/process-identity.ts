/** Which process one is, so that it can be told from a later one that the system gives the same number. */
import { readFile, readlink } from "node:fs/promises";
import { hostname } from "node:os";

export interface ProcessIdentity {
  readonly pid: number;
  /** When the process started, as the system counts; tells it from a later one with its number. */
  readonly started: string;
  /** Host and process id space; only within one does a process id say anything. */
  readonly space: string;
}

export async function thisProcess(): Promise<ProcessIdentity> {
  const space = await readlink("/proc/self/ns/pid").catch(() => "");
  return { pid: process.pid, started: (await startOf(process.pid)) ?? "", space: `${hostname()}${space}` };
}

/** `undefined`: there is no such process. Boot and time within it, with a slash between; empty: it cannot be read. */
export async function startOf(pid: number): Promise<string | undefined> {
  try {
    process.kill(pid, 0);
  } catch (cause) {
    const exists = cause instanceof Error && "code" in cause && cause.code === "EPERM";
    if (!exists) return undefined;
  }
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "");
  const line = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // The program's name, in brackets, may hold spaces; after it the state is field 3 and the start field 22.
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z") return undefined;
  return `${boot.trim()}/${fields[19] ?? ""}`;
}

/** What one of the two could not read, in a sandbox or for want of descriptors, does not make them others. */
export function isSameStart(one: string, other: string): boolean {
  const theirs = other.split("/");
  return one.split("/").every((part, at) => part === "" || part === (theirs[at] || part));
}
