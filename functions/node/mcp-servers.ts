/**
 * MCP servers over stdio that a node holds for services of the tenant (MCP-1): one process for each service and
 * owner, started with the first request, greeted once, asked many things at once, started again when it dies. A
 * request with a newer configuration, or other credentials, ends the process of the older one; the gateway says
 * which services are no more.
 */
import { answerRequest } from "@toolyard/core/mcp/server-requests";
import { Correlator } from "@toolyard/core/mcp/correlator";
import {
  decodeMessages,
  deepestMessage,
  encodeNotice,
  encodeRequest,
  type RpcNotice,
  type RpcResponse,
} from "@toolyard/core/mcp/json-rpc";
import { mcpRunSchema, tenantsOwn, type HeldServer, type McpRun } from "@toolyard/core/mcp/node-messages";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import { mcpAnswerType } from "@toolyard/core/nodes/node";
import type { Log } from "@toolyard/core/ports/log";
import { startHeldProcess, type HeldProcess } from "@toolyard/platform/local/held-process";
import type { McpProgram } from "./config.ts";
import { ended, type Executed, type Execution } from "./executor.ts";
import { nodeIsOlder } from "./frames.ts";
import { messageOf } from "./message-of.ts";

export interface McpServersOptions {
  readonly directory: string;
  /** On which programs are found. */
  readonly path: string;
  readonly log: Log;
  /** A server says that its tools are others now. */
  readonly onToolsChanged: (service: string) => void;
}

/** Processes on this node. */
const mostHeld = 64;
const greetingMs = 15_000;

export class McpServers {
  readonly #options: McpServersOptions;
  /** By service and owner. */
  readonly #held = new Map<string, Held>();
  /** Those that end as soon as nobody asks them any more. */
  readonly #ending = new Set<Promise<void>>();

  constructor(options: McpServersOptions) {
    this.#options = options;
  }

  /** What is held, for the gateway to say what is no more. */
  get services(): readonly { readonly service: string; readonly version: number }[] {
    return [...this.#held.values()].map(({ server: { service, version } }) => ({ service, version }));
  }

  async execute(program: McpProgram, { arguments: args, ...execution }: Execution): Promise<Executed> {
    const parsed = mcpRunSchema.safeParse(args);
    if (!parsed.success) return ended("declined", nodeIsOlder);
    const { server } = parsed.data;
    const refused = Object.keys(server.environment).find((name) => !program.variables.includes(name));
    if (refused !== undefined) return ended("declined", `it may not be given the variable '${refused}' ('variables')`);
    const key = `${server.service} ${server.owner}`;
    const now = this.#held.get(key);
    if (now !== undefined && now.server.version > server.version)
      return ended("declined", "its service has been changed meanwhile; try again");
    const held = now?.isFor(server) === true ? now : this.#replace(key, program, server);
    if (held === undefined) return ended("declined", `this node holds ${mostHeld} servers already`);
    return held.ask(parsed.data, execution);
  }

  /** The gateway says that they are no more, or configured otherwise. */
  stopServices(services: readonly string[]): void {
    for (const [key, { server }] of this.#held) if (services.includes(server.service)) this.#release(key);
  }

  async stop(): Promise<void> {
    for (const key of this.#held.keys()) this.#release(key, { atOnce: true });
    await Promise.all(this.#ending);
  }

  #replace(key: string, program: McpProgram, server: HeldServer): Held | undefined {
    this.#release(key);
    // Others of the service that belong to an older configuration will not be asked for again.
    for (const [other, { server: older }] of this.#held) {
      if (older.service === server.service && older.version < server.version) this.#release(other);
    }
    if (this.#held.size >= mostHeld) return undefined;
    const held = new Held(program, server, this.#options);
    this.#held.set(key, held);
    return held;
  }

  #release(key: string, { atOnce = false }: { readonly atOnce?: boolean } = {}): void {
    const held = this.#held.get(key);
    if (held === undefined) return;
    this.#held.delete(key);
    const ending = (atOnce ? held.stop() : held.retire()).finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }
}

/** One run of the process, from its start to its end. */
interface Life {
  readonly correlator: Correlator;
  /** Undefined: it has not been greeted yet. */
  greeting: Promise<RpcResponse> | undefined;
  nextId: number;
  /** To news, where those have to be asked for. */
  isSubscribed: boolean;
}

class Held {
  readonly server: HeldServer;
  readonly #options: McpServersOptions;
  readonly #process: HeldProcess;
  #life: Life | undefined;
  #hasLived = false;
  #inHand = 0;
  #whenIdle: (() => void) | undefined;

  constructor(program: McpProgram, server: HeldServer, options: McpServersOptions) {
    this.server = server;
    this.#options = options;
    this.#process = startHeldProcess({
      name: program.name,
      command: program.command,
      directory: options.directory,
      path: options.path,
      environment: { ...program.environment, ...server.environment },
      hasHome: true,
      maxLineBytes: program.max_message_bytes,
      log: options.log,
      // What is no message is noise, which some servers make.
      onLine: (line) => this.#life?.correlator.receive(decodeMessages(line)),
      onStart: () => this.#begin(program.name),
      onGone: () => this.#life?.correlator.end(),
    });
  }

  /** The same configuration, and the same values of its credentials. */
  isFor({ version, generation }: HeldServer): boolean {
    return this.server.version === version && this.server.generation === generation;
  }

  async ask(asked: McpRun, execution: Omit<Execution, "arguments">): Promise<Executed> {
    this.#inHand += 1;
    try {
      const problem = await this.#process.problem();
      const life = this.#life;
      if (problem !== undefined || life === undefined || life.correlator.isOver)
        return ended("declined", `it is not running: ${problem ?? "it has just ended"}`);
      return await this.#askIn(life, asked, execution);
    } finally {
      this.#inHand -= 1;
      if (this.#inHand === 0) this.#whenIdle?.();
    }
  }

  async stop(): Promise<void> {
    await this.#process.stop();
  }

  /** Ends when what it has in hand is done. */
  async retire(): Promise<void> {
    if (this.#inHand > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve));
    await this.stop();
  }

  #begin(name: string): void {
    const correlator = new Correlator({ name, reply: (line) => this.#process.write(line) });
    correlator.serve((request) => answerRequest(request, this.server.elicitation));
    void correlator.listen(({ method }) => {
      if (method === "notifications/tools/list_changed") this.#options.onToolsChanged(this.server.service);
    });
    this.#life = { correlator, greeting: undefined, nextId: 1, isSubscribed: false };
    // Another run of the program need not be the same as the one before, which may have been held by another node
    // process; a user's own says nothing of what all are shown.
    if (this.#hasLived || this.server.owner === tenantsOwn) this.#options.onToolsChanged(this.server.service);
    this.#hasLived = true;
  }

  async #askIn(
    life: Life,
    { request, server, timeout_ms: timeoutMs, max_bytes: maxBytes }: McpRun,
    { signal, onProgress }: Omit<Execution, "arguments">,
  ): Promise<Executed> {
    try {
      if (server.initialize !== undefined) {
        const greeting = await this.#greet(life, server.initialize);
        if (request.method === "initialize" || greeting.kind !== "result") return toAnswer(greeting);
      }
      if (server.initialize === undefined) this.#subscribe(life, request.params);
      const onNotice = ({ method, params }: RpcNotice): void => {
        const isOurs = method === "notifications/progress" && params["progressToken"] === tokenOf(request.params);
        if (isOurs) onProgress?.(params);
      };
      const response = await this.#send(life, request, { timeoutMs, signal, onNotice });
      const executed = toAnswer(response);
      if (Buffer.byteLength(executed.output) <= maxBytes) return executed;
      return ended("failed", `Its answer has more than ${maxBytes} bytes; ask for less.`);
    } catch (thrown) {
      if (signal.aborted) return ended("cancelled", "it was stopped");
      const message = messageOf(thrown);
      return ended(life.correlator.isOver ? "lost" : "timed_out", message);
    }
  }

  /** Once in each run of the process, whoever comes first. */
  #greet(life: Life, params: JsonObject): Promise<RpcResponse> {
    life.greeting ??= this.#send(
      life,
      { method: "initialize", params },
      // Others wait for it, too, whatever becomes of the one that is first.
      { timeoutMs: greetingMs, signal: new AbortController().signal, onNotice: undefined },
    ).then((greeting) => {
      if (greeting.kind === "result") {
        this.#process.write(encodeNotice({ method: "notifications/initialized", params: {} }));
      } else {
        life.greeting = undefined;
      }
      return greeting;
    });
    life.greeting.catch(() => (life.greeting = undefined));
    return life.greeting;
  }

  /** A server of the stateless era tells what is new to who has asked for it; one that does not know that refuses. */
  #subscribe(life: Life, { _meta: meta = {} }: JsonObject): void {
    if (life.isSubscribed) return;
    life.isSubscribed = true;
    const { progressToken: _token, ...about } = isJsonObject(meta) ? meta : {};
    const params = { notifications: { toolsListChanged: true }, _meta: about };
    this.#process.write(encodeRequest({ id: "news", method: "subscriptions/listen", params }));
  }

  async #send(
    life: Life,
    { method, params }: McpRun["request"],
    options: Parameters<Correlator["request"]>[1],
  ): Promise<RpcResponse> {
    const id = life.nextId;
    life.nextId += 1;
    try {
      return await life.correlator.request({ id, method, params }, options, () => {
        this.#process.write(encodeRequest({ id, method, params }));
        return Promise.resolve();
      });
    } catch (thrown) {
      const cancelled = { requestId: id, reason: "Nobody waits any more." };
      if (!life.correlator.isOver)
        this.#process.write(encodeNotice({ method: "notifications/cancelled", params: cancelled }));
      throw thrown;
    }
  }
}

function tokenOf({ _meta: meta }: JsonObject): unknown {
  return isJsonObject(meta) ? meta["progressToken"] : undefined;
}

function toAnswer(response: RpcResponse): Executed {
  if (response.kind === "too-deep")
    return ended("failed", `Its answer is nested more than ${deepestMessage} levels deep.`);
  return answer(response.kind === "result" ? { result: response.result } : { error: errorOf(response.error) });
}

function errorOf({ code, message, data }: Extract<RpcResponse, { kind: "error" }>["error"]): JsonObject {
  return { code, message, data };
}

function answer(content: JsonObject): Executed {
  return { status: "completed", mediaType: mcpAnswerType, output: JSON.stringify(content) };
}
