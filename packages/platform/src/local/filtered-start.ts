/**
 * A program that starts under a filter of system calls where there is no bubblewrap to set it: Python sets it on itself
 * and becomes the program. Node has no way to, and a module in C would be one for each machine.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

// What Python ignores is put back first: a program would inherit it. 38: no new rights; 22, 2: the filter.
const setAndRun = `
import base64, ctypes, os, signal, sys
steps = base64.b64decode(sys.argv[1])
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
call = ctypes.CDLL(None, use_errno=True).prctl
for name in (signal.SIGPIPE, signal.SIGXFSZ): signal.signal(name, signal.SIG_DFL)
if call(38, 1, 0, 0, 0) or call(22, 2, ctypes.byref(Filter(len(steps) // 8, steps)), 0, 0):
    sys.exit("the filter was not taken: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
`;

/** What stands before a program, which follows with its path. */
export function filteredStart(python: string, filter: Uint8Array): readonly string[] {
  return [python, "-I", "-S", "-c", setAndRun, Buffer.from(filter).toString("base64")];
}

/** @returns why this machine takes no filter, or `undefined` */
export async function whyNotFiltered(words: readonly string[]): Promise<string | undefined> {
  const [first = "", ...rest] = words;
  try {
    await promisify(execFile)(first, [...rest, "/bin/true"], { env: {}, timeout: 60_000 });
    return undefined;
  } catch (cause) {
    return cause instanceof Error ? (cause.message.trim().split("\n").at(-1) ?? "") : "unknown reason";
  }
}
