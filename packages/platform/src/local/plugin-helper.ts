/**
 * The helper: a small process that starts plugins for a large one. Starting a process copies the page tables of
 * whoever starts it, which stops the event loop of a server of 1 GB for tens of milliseconds; here it stops nobody.
 * It ends with the process that forked it, and what it has started with it.
 */
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginExit } from "@toolyard/core/ports/plugin-runner";
import { createCodeBox, type CodeBoxOptions } from "./code-box.ts";
import { createInterpreters } from "./interpreters.ts";
import type { FromHelper, HelperOptions, SentFile, SentRun, ToHelper } from "./plugin-helper-messages.ts";
import { findBubblewrap, type PluginWall } from "./plugin-wall.ts";
import {
  createProcessPluginRunner,
  type ProcessPluginRunnerOptions,
  type StartedPlace,
} from "./process-plugin-runner.ts";

/** Runs that are under way when the other side goes may clean up after themselves for so long. */
const farewellMs = 3_000;

class Helper {
  readonly #running = new Map<number, AbortController>();
  readonly #files = new Map<number, Uint8Array>();
  #options: Promise<Runners> | undefined;

  receive(message: ToHelper): void {
    switch (message.type) {
      case "options":
        this.#options = readOptions(message.options);
        return;
      case "run":
        void this.#run(message.id, message.run);
        return;
      case "abort":
        this.#running.get(message.id)?.abort();
        return;
      case "forget":
        this.#files.clear();
        return;
      default:
        message satisfies never;
    }
  }

  async #run(id: number, { files, wantsStdout, wantsExit, ...run }: SentRun): Promise<void> {
    const controller = new AbortController();
    this.#running.set(id, controller);
    try {
      const options = await this.#options;
      if (options === undefined) throw new Error("a run came before the options");
      const onStart = (place: StartedPlace): void => send({ type: "started", id, place });
      const runner =
        run.confined === undefined
          ? createProcessPluginRunner({ ...options.processes, onStart })
          : createCodeBox({ ...options.boxes, onStart });
      const exit = await runner.run({
        ...run,
        files: files.map((file) => this.#take(file)),
        signal: controller.signal,
        ...(wantsExit ? { onExit: (exit: PluginExit) => send({ type: "ended", id, exit }) } : {}),
        ...(wantsStdout ? { onStdout: (part: string) => send({ type: "stdout", id, part }) } : {}),
      });
      send({ type: "exit", id, exit });
    } catch (thrown) {
      const { code, message, details } = toGatewayError(thrown);
      send({ type: "failed", id, code, message, param: details.param });
    } finally {
      this.#running.delete(id);
    }
  }

  #take({ path, body, number }: SentFile): { readonly path: string; readonly body: Uint8Array } {
    if (number === undefined) return { path, body: body ?? new Uint8Array() };
    if (body !== undefined) this.#files.set(number, body);
    const known = this.#files.get(number);
    if (known === undefined) throw new Error("a file was named that never came");
    return { path, body: known };
  }

  /** Nobody wants an answer any more. */
  leave(): void {
    for (const controller of this.#running.values()) controller.abort();
    const until = performance.now() + farewellMs;
    setInterval(() => {
      if (this.#running.size === 0 || performance.now() > until) process.exit(0);
    }, 10);
  }
}

interface Runners {
  readonly processes: ProcessPluginRunnerOptions;
  readonly boxes: CodeBoxOptions;
}

async function readOptions({ path, temporaryDirectory, wall: wish }: HelperOptions): Promise<Runners> {
  const log: Log = {
    log: (level, message, fields = {}) => {
      const told = Object.entries(fields).map(
        ([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)] as const,
      );
      send({ type: "log", level, message, fields: Object.fromEntries(told) });
    },
  };
  const bubblewrap = await findBubblewrap(path);
  const program = wish === "never" ? undefined : bubblewrap.program;
  if (bubblewrap.missing !== undefined && wish !== "never") {
    log.log("warn", `plugins run without a wall: ${bubblewrap.missing}`);
  }
  const wall: PluginWall | undefined = program === undefined ? undefined : { program, network: true };
  const interpreters = createInterpreters(path);
  return {
    processes: {
      path,
      log,
      isLimited: true,
      interpreters,
      ...(temporaryDirectory === undefined ? {} : { temporaryDirectory }),
      ...(wall === undefined ? {} : { wall }),
    },
    boxes: { path, interpreters, bubblewrap },
  };
}

function send(message: FromHelper): void {
  if (process.connected) process.send?.(message, () => undefined);
}

const helper = new Helper();
process.on("message", (message) => helper.receive(message as ToHelper));
process.on("disconnect", () => helper.leave());
// Signals of a terminal reach the whole group; when to end is said by the process that forked us.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => undefined);
