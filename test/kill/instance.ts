/** Instances of the kill suite: started, told where to stop, frozen, thawed and killed. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { createDriver, type GatewayDriver } from "../support/gateway-client.ts";
import type { Order } from "../support/kill-orders.ts";
import type { Notice } from "../support/killable.ts";

/** A busy machine is no fault. */
const startWithinMs = 120_000;
const root = new URL("../../", import.meta.url);
/** Most of a start is compiling, and these processes do little else. */
const compileCache = fileURLToPath(new URL("node_modules/.cache/kill", root));
/** Made by setup.ts: a bundle starts with a third of the work and of the memory that sources need. */
export const program = fileURLToPath(new URL("node_modules/.cache/killable/bin/server.mjs", root));

/** Whatever can die in the middle of its work; whatever it does, `close` ends it. */
export interface Instance {
  readonly driver: GatewayDriver;
  readonly ended: Promise<void>;
  readonly hasEnded: boolean;
  /** Everything it wrote to standard output and standard error. */
  readonly output: string;
  /** Kill points that it passed while it was reporting, each once. */
  readonly reached: readonly string[];
  order(order: Order): Promise<void>;
  kill(): void;
  freeze(): Promise<void>;
  /** It stands still in the middle of something. */
  isFrozen(): Promise<boolean>;
  thaw(): void;
  close(): Promise<void>;
}

/** Of what an instance wrote. */
export function pointsReached(output: string): readonly string[] {
  return [...new Set([...output.matchAll(/^reached (\S+)$/gm)].map(([, point]) => point ?? ""))];
}

export interface ProcessOptions {
  readonly dataDir: string;
  readonly adminKey: string;
}

/** The server form, as a process of its own. */
export class ProcessInstance implements Instance {
  readonly driver: GatewayDriver;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  readonly #output: () => string;

  private constructor(
    child: ChildProcess,
    { driver, ended, output }: { driver: GatewayDriver; ended: Promise<void>; output: () => string },
  ) {
    this.#child = child;
    this.driver = driver;
    this.ended = ended;
    this.#output = output;
  }

  static async start({ dataDir, adminKey }: ProcessOptions): Promise<ProcessInstance> {
    const child = spawn(process.execPath, [program, "--join"], {
      cwd: root,
      env: {
        PATH: process.env["PATH"] ?? "",
        HOME: process.env["HOME"] ?? "",
        PORT: "0",
        TOOLYARD_DATA_DIR: dataDir,
        TOOLYARD_ADMIN_KEY: adminKey,
        NODE_COMPILE_CACHE: compileCache,
      },
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    const output = collectOutput(child);
    // `close` and not `exit`: the last line may still be on its way when the process is gone.
    const ended = once(child, "close").then(() => undefined);
    const notice = await Promise.race([nextNotice(child), ended, pause(startWithinMs)]);
    if (notice?.kind !== "listening") {
      child.kill("SIGKILL");
      throw new Error(`A gateway did not start:\n${output()}`);
    }
    return new ProcessInstance(child, { driver: createDriver(notice.url, adminKey), ended, output });
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  get output(): string {
    return this.#output();
  }

  get reached(): readonly string[] {
    return pointsReached(this.output);
  }

  async order(order: Order): Promise<void> {
    const heard = nextNotice(this.#child);
    this.#child.send(order);
    await heard;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  async freeze(): Promise<void> {
    this.#child.kill("SIGSTOP");
    while (!(await this.isFrozen()) && !this.hasEnded) await pause(2);
  }

  async isFrozen(): Promise<boolean> {
    const line = await readFile(`/proc/${this.#child.pid}/stat`, "utf8").catch(() => "");
    // The program's name stands in brackets before the state and may hold anything.
    return line.slice(line.lastIndexOf(")") + 2).startsWith("T");
  }

  thaw(): void {
    this.#child.kill("SIGCONT");
  }

  async close(): Promise<void> {
    this.kill();
    await this.ended;
  }
}

function collectOutput(child: ChildProcess): () => string {
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (part: Buffer) => (text += part.toString("utf8")));
  return () => text;
}

async function nextNotice(child: ChildProcess): Promise<Notice> {
  const [notice] = (await once(child, "message")) as [Notice];
  return notice;
}

/** Resolves with `undefined` after so many milliseconds. */
export function pause(ms: number): Promise<undefined> {
  return new Promise((done) => setTimeout(() => done(undefined), ms));
}

/** Asks until the answer is there. @throws Error naming what was waited for */
export async function eventually<T>(
  what: string,
  withinMs: number,
  ask: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  for (const until = performance.now() + withinMs; ;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (performance.now() > until) throw new Error(`${what} did not come within ${withinMs} ms`);
    await pause(50);
  }
}
