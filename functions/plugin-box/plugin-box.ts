/**
 * One plugin after the other in an environment that belongs to one tenant: clean, run, relay what the
 * plugin says as it says it, end everything that is not ours, clean again, and only then answer, since
 * the environment may be frozen with the answer. The processes themselves are the local adapter's
 * (platform/local); being alone on its machine is what the box adds.
 */
import type { Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import {
  boxSilenceMs,
  encodeBoxFrame,
  readBoxRequest,
  toFileFrames,
  type BoxFrame,
} from "@toolyard/core/boxes/box-protocol";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginExit, PluginRun } from "@toolyard/core/ports/plugin-runner";
import { emptyDirectories } from "@toolyard/platform/local/empty-directories";
import { callFilter } from "@toolyard/platform/local/call-filter";
import { filteredStart, whyNotFiltered } from "@toolyard/platform/local/filtered-start";
import { endOtherProcesses } from "@toolyard/platform/local/other-processes";
import { createInterpreters, type Interpreters } from "@toolyard/platform/local/interpreters";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { removeSharedMemory } from "@toolyard/platform/local/shared-memory";
import { describeThrown } from "../describe-thrown.ts";
import type { LambdaContext } from "../lambda-runtime.ts";

export interface PluginBoxOptions {
  /** PATH of plugins. */
  readonly path: string;
  /** What the function has; a part of it is ours. */
  readonly memoryBytes: number;
  /** Plugins have a network, code has none: neither is run where the other is. */
  readonly runs: "plugins" | "code";
  /** CIDRs of private addresses that a blob store may have. */
  readonly egressAllow: readonly string[];
  readonly log: Log;
}

export interface PluginBox {
  serve(event: unknown, stream: Writable, context: LambdaContext): Promise<void>;
}

/** Resolves when the frame has left this process, or nobody takes it any more. */
type Send = (frame: BoxFrame) => Promise<void>;

/** Where a plugin can write: the rest of a function's file system is read only. */
const writable = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];
/** What stays free for ending and cleaning up before the system's own time limit, and of that for the answer. */
const cleaningMs = 5_000;
const answeringMs = 1_000;
const tellingMs = 1_000;
const ownMemoryBytes = 256 * 1024 ** 2;
/** Lambda allows 1024 processes and threads; the rest is enough for us to end those of a plugin. */
const maxProcesses = 512;

/** Our own, and threads of the runtime: the limit is of the user, who is the same. */
const ownProcesses = 64;
/** Node reserves some 600 MB of data without using them. */
const reservedByNode = 768 * 1024 ** 2;

function memoryFor({ confined, command: [name] }: PluginRun): number {
  if (confined === undefined) return Number.POSITIVE_INFINITY;
  return confined.memoryBytes + (name === "node" ? reservedByNode : 0);
}

export function createPluginBox(options: PluginBoxOptions): PluginBox {
  return new EnvironmentBox(options);
}

class EnvironmentBox implements PluginBox {
  readonly #options: PluginBoxOptions;
  readonly #interpreters: Interpreters;
  /** The tenant of the first call; the environment has no other. */
  #owner: string | undefined;
  #filter: Promise<readonly string[]> | undefined;

  constructor(options: PluginBoxOptions) {
    this.#options = options;
    this.#interpreters = createInterpreters(options.path);
  }

  /** @throws Error where something of a plugin is left */
  async #clean(): Promise<void> {
    await endOtherProcesses();
    await emptyDirectories(writable);
    await removeSharedMemory(this.#options.path);
  }

  async serve(event: unknown, stream: Writable, context: LambdaContext): Promise<void> {
    // Whoever reads may be gone: the plugin is not, and an error that escapes ends the environment.
    stream.on("error", () => undefined);
    const send: Send = (frame) =>
      new Promise((left) => {
        stream.write(encodeBoxFrame(frame), () => left());
      });
    try {
      await this.#run(event, send, context);
    } catch (thrown) {
      const { code, message, details } = toGatewayError(thrown);
      this.#options.log.log("warn", "a plugin was not run", { ...describeThrown(thrown), code });
      void send({ type: "refused", code, message, ...(details.param !== undefined && { param: details.param }) });
    }
    stream.end();
  }

  async #run(event: unknown, send: Send, context: LambdaContext): Promise<void> {
    const run = readBoxRequest(event);
    this.#refuseStrangers(run.tenant, context.tenantId);
    this.#refuseOthers(run);
    // Also what a runtime that ended in the middle of a call has left to this one.
    await this.#clean().catch((cause: unknown) => {
      throw new GatewayError("tool_unreachable", "The plugin box holds what an earlier plugin left.", { cause });
    });
    const linked = await this.#fetch(run);
    const timeoutMs = Math.min(run.timeoutMs, Math.trunc(context.getRemainingTimeInMillis() - cleaningMs));
    if (timeoutMs <= 0) throw new GatewayError("tool_timeout", "The plugin box has no time left to run a plugin.");
    const exit = await this.#relay({ ...run, timeoutMs, files: [...(run.files ?? []), ...linked] }, send);
    await this.#cleanInTime(context);
    void send({ type: "stderr", data: exit.stderr });
    if (exit.left !== undefined) for (const frame of toFileFrames(exit.left)) void send(frame);
    void send({ type: "exit", exitCode: exit.exitCode, ended: exit.ended, durationMs: exit.durationMs });
  }

  #refuseStrangers(tenant: string, environmentTenant: string | undefined): void {
    if (environmentTenant === undefined) {
      const message = "The plugin box must be a function with tenant isolation, invoked with TenantId.";
      throw new GatewayError("permission_denied", message);
    }
    this.#owner ??= environmentTenant;
    if (tenant === environmentTenant && tenant === this.#owner) return;
    throw new GatewayError("permission_denied", "The plugin box was asked to run a plugin of another tenant.");
  }

  #refuseOthers({ confined }: PluginRun): void {
    if ((confined !== undefined) === (this.#options.runs === "code")) return;
    const message =
      confined === undefined
        ? "This box runs confined code alone, and no plugins; look at PLUGIN_BOX_FUNCTION."
        : "This box runs plugins, which reach the network, and no code; look at CODE_BOX_FUNCTION.";
    throw new GatewayError("code_box_unavailable", message);
  }

  async #fetch({ linked = [] }: PluginRun): Promise<NonNullable<PluginRun["files"]>> {
    if (linked.length === 0) return [];
    const { fetchLinkedFiles } = await import("./linked-files.ts");
    return fetchLinkedFiles(linked, { allowCidrs: this.#options.egressAllow });
  }

  /**
   * What stands before code, so that no process of it makes a socket of the network: not to what its function reaches,
   * nor to the runtime's own address. The function's network is a wall as well, so a system without filters is told of.
   */
  async #makeFilter(): Promise<readonly string[]> {
    const filter = callFilter({ refusesNetwork: true });
    const python = (await this.#interpreters.find("python3"))?.program;
    const words = filter === undefined || python === undefined ? [] : filteredStart(python, filter);
    const why = words.length === 0 ? "no Python, or an unknown processor" : await whyNotFiltered(words);
    if (why === undefined) return words;
    this.#options.log.log("warn", "code can make sockets: only the function's network keeps it in", { reason: why });
    return [];
  }

  async #relay(run: PluginRun, send: Send): Promise<PluginExit> {
    const { path, memoryBytes, log } = this.#options;
    const { confined } = run;
    const before = confined === undefined ? [] : await (this.#filter ??= this.#makeFilter());
    const runner = createProcessPluginRunner({
      path,
      interpreters: this.#interpreters,
      memoryBytes: Math.min(memoryBytes - ownMemoryBytes, memoryFor(run)),
      maxProcesses: confined === undefined ? maxProcesses : confined.maxProcesses + ownProcesses,
      ...(confined !== undefined && { before, fileBytes: confined.diskBytes }),
      temporaryDirectory: "/tmp",
      endEscaped: endOtherProcesses,
      log,
    });
    // Before anything runs: it may end this process with its first instruction, and what it did would count as nothing.
    // A runtime that never says that it has taken the words keeps no plugin waiting for longer than this.
    await Promise.race([send({ type: "started" }), sleep(tellingMs, undefined, { ref: false })]);
    const alive = setInterval(() => void send({ type: "alive" }), boxSilenceMs);
    try {
      return await runner.run({ ...run, onStdout: (data) => void send({ type: "stdout", data }) });
    } finally {
      clearInterval(alive);
    }
  }

  /** The plugin has ended, and so its answer stands; what cannot be removed in time keeps the next one out. */
  async #cleanInTime(context: LambdaContext): Promise<void> {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, Math.max(0, context.getRemainingTimeInMillis() - answeringMs));
    const cleaned = this.#clean().catch((thrown: unknown) => {
      this.#options.log.log("error", "the plugin box is not clean", { ...describeThrown(thrown) });
    });
    await Promise.race([cleaned, late.promise]);
    clearTimeout(timer);
  }
}
