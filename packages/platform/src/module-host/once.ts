/**
 * One run of several modules, one after the other (VCP-6): each in a thread of its own with its own environment,
 * memory and time, and with its files there only while it is its turn. What one does is no other's matter: a module
 * that fails, loops or ends its thread leaves the messages as they were for the next.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { environmentFor } from "./environment.ts";
import { messageOf, ModuleError, toFault } from "./faults.ts";
import { parseText } from "./plain.ts";
import type { JsonValue } from "@toolyard/core/json";
import {
  writeAnswer,
  type CarriedModule,
  type Fault,
  type OnceAnswer,
  type OnceQuestion,
  type Stage,
  type Told,
} from "@toolyard/core/vcp/modules/wire";

/** What a thread is given. */
export interface Task {
  readonly plugin: CarriedModule;
  readonly directory: string;
  readonly projectDirectory: string;
  readonly maxBytes: number;
  readonly ask: OnceQuestion["ask"];
}

/** What it says; `text` is JSON. */
export type TaskAnswer =
  | { readonly kind: "told"; readonly told: Told }
  | { readonly kind: "done"; readonly text: string; readonly open: readonly string[] }
  | { readonly kind: "failed"; readonly failed: Fault; readonly open: readonly string[] };

/** A thread that is told to end and does not is left behind with the process. */
const endingMs = 1_000;

/** Writes all answers. */
export async function runOnce({ word, plugins, maxBytes, ask }: OnceQuestion): Promise<void> {
  const send = (answer: OnceAnswer): Promise<void> => write(writeAnswer(word, answer));
  let messages: readonly JsonValue[] = ask.kind === "messages" ? ask.messages : [];
  let result: JsonValue | undefined;
  for (const plugin of plugins) {
    await send({ kind: "turn", plugin: plugin.name });
    const own = ask.kind === "messages" ? { ...ask, messages } : ask;
    const { stage, given } = await takeTurn(
      plugin,
      { maxBytes, ask: own },
      (told) => void send({ kind: "told", told }),
    );
    if (ask.kind === "messages" && Array.isArray(given)) messages = given;
    if (ask.kind === "tool") result = given;
    await send({ kind: "stage", stage });
  }
  await send({ kind: "done", ...(ask.kind === "messages" ? { messages } : result === undefined ? {} : { result }) });
}

function write(text: string): Promise<void> {
  return new Promise((done) => void process.stdout.write(text, () => done()));
}

async function takeTurn(
  plugin: CarriedModule,
  rest: Pick<Task, "maxBytes" | "ask">,
  tell: (told: Told) => void,
): Promise<{ readonly stage: Stage; readonly given?: JsonValue }> {
  const since = performance.now();
  const projectDirectory = resolve("project");
  const directory = join(projectDirectory, "Plugin", plugin.name);
  const stage = (about: Partial<Stage>): Stage => ({
    plugin: plugin.name,
    durationMs: Math.round(performance.now() - since),
    ...about,
  });
  try {
    layFiles(directory, plugin.files);
    const answer = await inThread({ plugin, directory, projectDirectory, ...rest }, tell);
    const open = answer.open.length === 0 ? {} : { open: answer.open };
    if (answer.kind === "failed") return { stage: stage({ failed: answer.failed, ...open }) };
    return { stage: stage(open), given: parseText(answer.text) };
  } catch (thrown) {
    return { stage: stage({ failed: toFault(thrown) }) };
  } finally {
    rmSync(projectDirectory, { recursive: true, force: true });
  }
}

/** Paths were checked by whoever sent them; what would leave the folder is refused once more. */
function layFiles(directory: string, files: CarriedModule["files"]): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const { path, base64 } of files) {
    const target = join(directory, path);
    if (!target.startsWith(`${directory}/`))
      throw new ModuleError("load", `its file '${path}' lies outside of its folder`);
    mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
    writeFileSync(target, Buffer.from(base64, "base64"), { mode: 0o700 });
  }
}

type Ended = Exclude<TaskAnswer, { kind: "told" }>;

function inThread(task: Task, tell: (told: Told) => void): Promise<Ended> {
  const { plugin } = task;
  return new Promise((resolveWith) => {
    const worker = new Worker(__filename, {
      workerData: { ...task, plugin: { ...plugin, files: [] } },
      env: environmentFor(plugin.environment, task.directory),
      // What it prints stays in the thread.
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: plugin.memoryMb },
    });
    let isOver = false;
    const end = (ended: Ended): void => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      const gone = worker.terminate().then(
        () => undefined,
        () => undefined,
      );
      const late = new Promise<void>((done) => setTimeout(done, endingMs));
      void Promise.race([gone, late]).then(() => resolveWith(ended));
    };
    const fail = (failed: Fault): void => end({ kind: "failed", failed, open: [] });
    const timer = setTimeout(
      () => fail({ fault: "timeout", message: `it took more than ${plugin.timeoutMs} ms ('communication.timeout')` }),
      plugin.timeoutMs,
    );
    worker.on("message", (said: TaskAnswer) => {
      if (said.kind === "told") tell(said.told);
      else end(said);
    });
    worker.on("error", (thrown: unknown) => {
      const isMemory = thrown instanceof Error && "code" in thrown && thrown.code === "ERR_WORKER_OUT_OF_MEMORY";
      fail(
        isMemory
          ? { fault: "memory", message: `it needs more than ${plugin.memoryMb} MB of memory` }
          : { fault: "threw", message: messageOf(thrown) },
      );
    });
    worker.on("exit", (code) => {
      const how = code === 0 ? "before it had answered" : `itself with exit code ${code}`;
      fail({ fault: "ended", message: `it ended ${how}` });
    });
    for (const stream of [worker.stdout, worker.stderr]) stream.resume();
  });
}
