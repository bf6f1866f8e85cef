/**
 * Plugins of tenants on this machine, started by a helper (plugin-helper.ts) behind bubblewrap where it is there
 * and works. The helper is one for the whole process, forked when a run is to be expected and again should it end.
 */
import { fork, type ChildProcess } from "node:child_process";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { endAbandoned, limitedProcess, type StartedPlace } from "./process-plugin-runner.ts";
import type { FromHelper, HelperOptions, SentFile, ToHelper } from "./plugin-helper-messages.ts";

export interface LocalPluginsOptions extends Partial<HelperOptions> {
  readonly path: string;
  readonly log?: Log;
}

export function createLocalPlugins(options: LocalPluginsOptions): PluginRunner {
  const { log, ...rest } = options;
  const helper = helperFor({ wall: "where-possible", ...rest });
  if (log !== undefined) helper.logs.add(log);
  return { run: (run) => helper.run(run), warm: () => helper.warm() };
}

const helpers = new Map<string, HelperClient>();

function helperFor(options: HelperOptions): HelperClient {
  const key = JSON.stringify(options);
  let known = helpers.get(key);
  if (known === undefined) helpers.set(key, (known = new HelperClient(options)));
  return known;
}

interface Waiting {
  readonly run: PluginRun;
  readonly resolve: (exit: PluginExit) => void;
  readonly reject: (error: GatewayError) => void;
  /** Once something has been started for it. */
  place?: StartedPlace;
}

class HelperClient {
  /** Of the gateways in this process. */
  readonly logs = new Set<Log>();
  readonly #options: HelperOptions;
  readonly #waiting = new Map<number, Waiting>();
  #child: ChildProcess | undefined;
  #files = new SentFiles();
  #lastId = 0;

  constructor(options: HelperOptions) {
    this.#options = options;
  }

  warm(): void {
    this.#child ??= this.#fork();
  }

  async run(run: PluginRun): Promise<PluginExit> {
    const { signal } = run;
    if (signal?.aborted === true) return { stdout: "", stderr: "", exitCode: null, ended: "aborted", durationMs: 0 };
    this.warm();
    const id = (this.#lastId += 1);
    const abort = (): void => this.#send({ type: "abort", id });
    const exit = new Promise<PluginExit>((resolve, reject) => this.#waiting.set(id, { run, resolve, reject }));
    signal?.addEventListener("abort", abort);
    try {
      this.#child?.ref();
      this.#start(id, run);
      return await exit;
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#waiting.delete(id);
      if (this.#waiting.size === 0) this.#rest();
    }
  }

  #start(id: number, { signal: _signal, onStdout, onExit, files = [], ...run }: PluginRun): void {
    if (this.#files.isFull) {
      this.#files = new SentFiles();
      this.#send({ type: "forget" });
    }
    const sent = files.map((file) => this.#files.toSent(file));
    this.#send({
      type: "run",
      id,
      run: { ...run, files: sent, wantsStdout: onStdout !== undefined, wantsExit: onExit !== undefined },
    });
  }

  #fork(): ChildProcess {
    const program = import.meta.url.endsWith(".ts") ? "./plugin-helper.ts" : "./plugin-helper.mjs";
    const [execPath, ...execArgv] = limitedProcess(this.#options.path);
    const child = fork(fileURLToPath(new URL(program, import.meta.url)), [], {
      execPath,
      execArgv: [...execArgv, process.execPath, "--max-semi-space-size=1"],
      serialization: "advanced",
      // What plugins see is made for each run; the helper itself needs of ours where temporary files go.
      env: { PATH: this.#options.path, TMPDIR: tmpdir() },
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    child.on("message", (message) => this.#receive(message as FromHelper));
    child.on("error", () => this.#lose(child));
    // What it said last is read before the channel closes, and may be read after it has ended.
    child.on("exit", () => {
      if (!child.connected) this.#lose(child);
    });
    child.on("disconnect", () => this.#lose(child));
    this.#files = new SentFiles();
    this.#child = child;
    this.#send({ type: "options", options: this.#options });
    this.#rest();
    return child;
  }

  /** A helper that has nothing to do keeps no process alive. */
  #rest(): void {
    this.#child?.unref();
    this.#child?.channel?.unref();
  }

  #send(message: ToHelper): void {
    this.#child?.channel?.ref();
    this.#child?.send(message, () => undefined);
  }

  #receive(message: FromHelper): void {
    switch (message.type) {
      case "stdout":
        this.#waiting.get(message.id)?.run.onStdout?.(message.part);
        return;
      case "started": {
        const waiting = this.#waiting.get(message.id);
        if (waiting !== undefined) waiting.place = message.place;
        return;
      }
      case "ended":
        this.#waiting.get(message.id)?.run.onExit?.(message.exit);
        return;
      case "exit":
        this.#waiting.get(message.id)?.resolve(message.exit);
        return;
      case "failed": {
        const { id, code, message: text, param } = message;
        this.#waiting.get(id)?.reject(new GatewayError(code, text, param === undefined ? {} : { param }));
        return;
      }
      case "log":
        for (const log of this.logs) log.log(message.level, message.message, message.fields);
        return;
      default:
        message satisfies never;
    }
  }

  #lose(child: ChildProcess): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    for (const { reject, place } of this.#waiting.values()) {
      const message = "The helper that runs plugins was lost while the plugin ran; what it did is not known.";
      reject(new GatewayError("outcome_unknown", message));
      if (place !== undefined) void endAbandoned(place).catch(() => undefined);
    }
    this.#waiting.clear();
  }
}

/** Files smaller than this cost less to send than to remember. */
const rememberedBytes = 16_384;
const mostRememberedBytes = 134_217_728;

/** Which files the helper has; the folders of plugins are the same objects for every run. */
class SentFiles {
  readonly #numbers = new WeakMap<Uint8Array, number>();
  #last = 0;
  #bytes = 0;

  get isFull(): boolean {
    return this.#bytes > mostRememberedBytes;
  }

  toSent({ path, body }: NonNullable<PluginRun["files"]>[number]): SentFile {
    if (body.byteLength < rememberedBytes) return { path, body };
    const known = this.#numbers.get(body);
    if (known !== undefined) return { path, number: known };
    this.#last += 1;
    this.#bytes += body.byteLength;
    this.#numbers.set(body, this.#last);
    return { path, body, number: this.#last };
  }
}
