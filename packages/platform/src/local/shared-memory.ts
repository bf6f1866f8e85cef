/** Shared memory, semaphores and queues of System V outlive the process that made them (Linux). */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { findProgram } from "./plugin-wall.ts";

const lists = ["shm", "sem", "msg"].map((kind) => `/proc/sysvipc/${kind}`);

/** Removes all that our user may. For the plugin box alone, which shares its system with nobody. */
export async function removeSharedMemory(path: string): Promise<void> {
  const texts = await Promise.all(lists.map((list) => readFile(list, "utf8").catch(() => "")));
  // The first line of each is its heading.
  if (texts.every((text) => text.trimEnd().split("\n").length < 2)) return;
  const program = findProgram("ipcrm", path, "/");
  if (program === undefined) return;
  // It fails where one is somebody else's, having removed the others.
  await promisify(execFile)(program, ["--all"], { env: {} }).catch(() => undefined);
}
