/**
 * Programs that plugins are started with, found once: `python` is `python3` where only that is there, and what
 * a version manager puts on the PATH is a script that looks for the real one at every start, which takes a tenth
 * of a second and cannot be done behind a wall.
 */
import { execFile } from "node:child_process";
import { open, realpath } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { findProgram } from "./plugin-wall.ts";

export interface Interpreter {
  readonly program: string;
  /** Where its own files lie, for walls. */
  readonly readOnly: readonly string[];
}

export interface Interpreters {
  /** Undefined for a name that is no interpreter of these, or is not on the PATH. */
  find(name: string): Promise<Interpreter | undefined>;
}

const names: Readonly<Record<string, { readonly candidates: readonly string[]; readonly ask: readonly string[] }>> = {
  python: {
    candidates: ["python", "python3"],
    ask: ["-c", "import sys; print(sys.executable); print(sys.base_prefix)"],
  },
  python3: {
    candidates: ["python3", "python"],
    ask: ["-c", "import sys; print(sys.executable); print(sys.base_prefix)"],
  },
  node: { candidates: ["node"], ask: ["-p", "process.execPath + '\\n' + require('path').dirname(process.execPath)"] },
};

export function createInterpreters(path: string): Interpreters {
  const found = new Map<string, Promise<Interpreter | undefined>>();
  return {
    find(name) {
      if (!Object.hasOwn(names, name)) return Promise.resolve(undefined);
      let known = found.get(name);
      if (known === undefined) found.set(name, (known = look(name, path)));
      return known;
    },
  };
}

async function look(name: string, path: string): Promise<Interpreter | undefined> {
  const { candidates = [], ask = [] } = names[name] ?? {};
  for (const candidate of candidates) {
    const program = findProgram(candidate, path, "/");
    if (program === undefined) continue;
    const direct = { program, readOnly: await placesOf(program) };
    if (!(await isScript(program))) return direct;
    const asked = await askProgram(program, ask, path);
    if (asked !== undefined) return asked;
  }
  return undefined;
}

async function placesOf(program: string): Promise<readonly string[]> {
  const real = await realpath(program);
  return real === program ? [] : [real, dirname(real)];
}

/** What may be run but not read is no script: somebody would have to read it. */
async function isScript(program: string): Promise<boolean> {
  const file = await open(program).catch(() => undefined);
  if (file === undefined) return false;
  try {
    const { buffer } = await file.read({ buffer: Buffer.alloc(2), length: 2 });
    return buffer.toString("latin1") === "#!";
  } finally {
    await file.close();
  }
}

const askMs = 10_000;

async function askProgram(program: string, ask: readonly string[], path: string): Promise<Interpreter | undefined> {
  try {
    const env = { PATH: path, HOME: homedir() };
    const { stdout } = await promisify(execFile)(program, [...ask], { timeout: askMs, env });
    const [real = "", prefix = ""] = stdout.trim().split("\n");
    return real === "" ? undefined : { program: real, readOnly: prefix === "" ? [] : [prefix] };
  } catch {
    return undefined;
  }
}
