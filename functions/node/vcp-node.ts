/**
 * A node of VCP behind a socket, as a node of ours (VCP-15): its manifests become tools, its calls `execute_tool`,
 * what it answers results. The same where the gateway itself holds the socket and where a bridge does; only the
 * link to the gateway differs.
 */
import { randomBytes } from "node:crypto";
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { vcpAnswerType, type NodeTool } from "@toolyard/core/nodes/node";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { isWithin } from "@toolyard/core/vcp/files/file-url";
import { vcpId } from "@toolyard/core/vcp/log/frames";
import { malformed, typeOf } from "@toolyard/core/vcp/nodes/frame-context";
import { readRegistration, requestFileTool, type ReadRegistration } from "@toolyard/core/vcp/nodes/register-tools";
import { framesOf, type VcpSession, type VcpSocket } from "@toolyard/core/vcp/nodes/session";
import { ended, type Executed, type Execution, type Executor } from "./executor.ts";
import { filesOffer } from "./files.ts";
import { NodeRefused, type LinkHandlers, type NodeLink } from "./link.ts";
import { messageOf } from "./message-of.ts";
import { Node, type Offering } from "./node.ts";

/** Frames that wait until the node has registered, or the gateway has answered, beside one that was there first. */
const mostWaiting = 64;
const mostWaitingBytes = 1_048_576;
const graceMs = 1_000;
/** What frames that are no message of the gateway's have in their `data`. */
const ownForms: ReadonlyMap<string, string> = new Map([
  ["register_tools", "'serverName', a text, and 'tools', a list"],
  ["tool_result", "'requestId' and 'status', which is 'success' or 'error'"],
]);

export interface VcpNodeOptions {
  readonly socket: VcpSocket;
  readonly createLink: (handlers: LinkHandlers) => NodeLink;
  readonly egress: Egress;
  readonly runner: PluginRunner;
  readonly log: Log;
  /** Of the gateway, for what is logged. */
  readonly url: string;
  /** Files of these directories of the node may be asked for; none: no file at all. */
  readonly directories: () => Promise<readonly string[]>;
  /** May this file be asked for? Where the bridge is on the node's own machine it follows links. */
  readonly mayRead?: (url: JsonValue | undefined) => Promise<boolean>;
  /** What is left out of a registration, and why, beside the log. */
  readonly onProblem?: (problem: string, serverId: string) => void;
}

interface Pending {
  readonly settle: (executed: Executed) => void;
  /** Argument `maid`: who asked. */
  readonly maid: JsonValue | undefined;
  /** It is no tool that is called, but a file that is asked for. */
  readonly isFile: boolean;
}

export class VcpNodeSession implements VcpSession {
  readonly #options: VcpNodeOptions;
  readonly serverId = `dist-${vcpId()}`;
  readonly #pending = new Map<string, Pending>();
  #link: NodeLink | undefined;
  #node: Node | undefined;
  #running: Promise<void> | undefined;
  #serverName: string;
  #cancelsTools = false;
  /** Until it has registered, which tells under what name it is known. */
  #early: (readonly [frame: JsonObject, bytes: number])[] = [];
  /** Registrations one after the other; never rejects. */
  #registering: Promise<void> = Promise.resolve();
  #waiting = 0;
  #waitingBytes = 0;
  #hasEnded = false;

  constructor(options: VcpNodeOptions) {
    this.#options = options;
    this.#serverName = this.serverId;
  }

  open(): Promise<void> {
    this.#options.socket.send({
      type: "connection_ack",
      message: "WebSocket connection successful for DistributedServer.",
      data: { serverId: this.serverId, clientId: vcpId() },
    });
    return Promise.resolve();
  }

  receive(text: string): void {
    try {
      this.#take(text);
    } catch (thrown) {
      // Such as what is nested so deeply that it cannot be written down again.
      this.#refuse(thrown);
    }
  }

  #take(text: string): void {
    const parsed = parseJson(text);
    const frame = isJsonObject(parsed) ? parsed : {};
    const { type, data } = frame;
    if (type === "tool_result" && this.#takeResult(data)) return;
    const registration = type === "register_tools" ? readRegistration(data) : undefined;
    const form = registration === undefined ? ownForms.get(typeOf(frame)) : undefined;
    // Said at once: a node that cannot register waits for nothing else.
    if (form !== undefined) return this.#report(malformed(`'data' of '${typeOf(frame)}' must have ${form}`));
    // One that nothing waits with may be as long as the socket lets it be; until it has registered only what does that.
    const isAlone = this.#waiting === 0 && (registration !== undefined || this.#link !== undefined);
    const bytes = isAlone ? 0 : text.length;
    if (!this.#hasRoom(bytes)) return;
    this.#waiting += 1;
    this.#waitingBytes += bytes;
    if (registration !== undefined) {
      this.#registering = this.#registering
        .then(() => this.#register(registration))
        .catch((thrown: unknown) => this.#refuse(thrown))
        .finally(() => this.#release(bytes));
    } else if (this.#link === undefined) this.#early.push([frame, bytes]);
    else void this.#pass(frame, bytes);
  }

  /** @returns false: the node is sent away */
  #hasRoom(bytes: number): boolean {
    const { socket } = this.#options;
    if (this.#waiting >= mostWaiting) {
      socket.close(1008, this.#link === undefined ? "register tools first" : "too many frames at once");
      return false;
    }
    if (this.#waitingBytes + bytes <= mostWaitingBytes) return true;
    socket.close(1009, `frames that wait may have ${mostWaitingBytes} bytes together`);
    return false;
  }

  #release(bytes: number): void {
    this.#waiting -= 1;
    this.#waitingBytes -= bytes;
  }

  hear(frame: JsonObject): void {
    this.#options.socket.send(frame);
  }

  async end(): Promise<void> {
    this.#hasEnded = true;
    for (const [requestId, { settle }] of this.#pending) {
      settle(
        ended("lost", `Distributed server ${this.#serverName} disconnected while executing request ${requestId}.`),
      );
    }
    await this.#registering;
    await this.#node?.stop();
    await this.#running;
  }

  async #register(registration: ReadRegistration): Promise<void> {
    const { serverName, tools, left, cancelsTools, node: name } = registration;
    if (this.#hasEnded) return;
    if (this.#node !== undefined && serverName !== this.#serverName) {
      this.#report(`The node has registered as '${this.#serverName}' and cannot become '${serverName}'.`);
      return;
    }
    this.#serverName = serverName;
    this.#cancelsTools = cancelsTools;
    for (const { name: tool, why } of left) this.#report(`Tool '${tool}' of node '${serverName}' is left out: ${why}.`);
    const offers = tools.map((offer) => ({ offer, executor: this.#executorOf(offer, offer.vcp?.name ?? offer.name) }));
    // Programs have it built in, whether they say so or not.
    const files = await this.#filesOffer(name);
    const offerings = files === undefined ? offers : [...offers, files];
    this.#node ??= this.#createNode(name);
    await this.#node.offer(offerings);
    this.#running ??= this.#run(this.#node);
  }

  #createNode(name: string): Node {
    const { createLink, ...rest } = this.#options;
    return new Node({
      ...rest,
      config: {
        name,
        directory: "/",
        programs: [],
        mcpServers: [],
        holdsSubscriptions: false,
        files: [],
        vcpModules: undefined,
      },
      key: "",
      path: "",
      graceMs,
      instance: `${this.serverId}-${randomBytes(12).toString("hex")}`,
      createLink: (handlers) => (this.#link = createLink(handlers)),
      onTaken: (tool, why) => this.#report(`Tool '${tool}' of node '${this.#serverName}' is left out: ${why}`),
      onHidden: (tool, by) =>
        this.#report(
          `Tool '${tool}' of node '${this.#serverName}' has the name of ${by}, which is the one that is called by name.`,
        ),
      onRegistered: () => this.#onRegistered(),
    });
  }

  #onRegistered(): void {
    for (const [frame, bytes] of this.#early.splice(0)) void this.#pass(frame, bytes);
  }

  async #run(node: Node): Promise<void> {
    try {
      await node.run();
    } catch (thrown) {
      this.#refuse(thrown);
    }
  }

  #refuse(thrown: unknown): void {
    const message = messageOf(thrown);
    this.#report(message);
    // It may try again later; what was wrong with it is in its own log then.
    if (!this.#hasEnded) this.#options.socket.close(thrown instanceof NodeRefused ? 1008 : 1011, message.slice(0, 100));
  }

  #report(problem: string | GatewayError): void {
    const { log, onProblem, socket } = this.#options;
    const { code, message } = typeof problem === "string" ? { code: "conflict", message: problem } : problem;
    log.log("warn", message, { node: this.#serverName });
    onProblem?.(message, this.serverId);
    if (!this.#hasEnded) socket.send({ type: "error", data: { code, message } });
  }

  /** What is no part of a call is the gateway's to understand. */
  async #pass(frame: JsonObject, bytes: number): Promise<void> {
    try {
      const answer = await this.#link?.ask({ type: "vcp.frame", frame }, asObject);
      for (const each of answer === undefined ? [] : framesOf(answer)) this.#options.socket.send(each);
    } catch (thrown) {
      this.#report(thrown instanceof Error ? thrown.message : "a frame was not taken");
    } finally {
      this.#release(bytes);
    }
  }

  async #filesOffer(node: string): Promise<Offering | undefined> {
    const directories = await this.#options.directories();
    if (directories.length === 0) return undefined;
    const offer = filesOffer(node, directories);
    const { mayRead = (url) => Promise.resolve(isWithin(url, directories)) } = this.#options;
    const asked = this.#executorOf(offer, requestFileTool);
    const guarded: Executor = {
      execute: async (execution) =>
        (await mayRead(execution.arguments["fileUrl"]))
          ? asked.execute(execution)
          : ended("failed", "The file is in none of the directories that this node gives files of."),
    };
    return { offer, executor: guarded };
  }

  #executorOf({ timeout_ms: timeoutMs }: NodeTool, toolName: string): Executor {
    return { execute: (execution) => this.#execute(execution, { toolName, timeoutMs }) };
  }

  #execute(
    { run: requestId, arguments: toolArgs, signal, traceId }: Execution,
    { toolName, timeoutMs }: { readonly toolName: string; readonly timeoutMs: number },
  ): Promise<Executed> {
    const { socket } = this.#options;
    if (this.#hasEnded) return Promise.resolve(notConnected(this.#serverName));
    return new Promise((resolve) => {
      const settle = (executed: Executed): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
        this.#pending.delete(requestId);
        resolve(executed);
      };
      const stop = (executed: Executed): void => {
        if (this.#cancelsTools) socket.send({ type: "cancel_tool", data: { requestId } });
        settle(executed);
      };
      const onAbort = (): void => stop(ended("cancelled", "it was stopped"));
      const seconds = timeoutMs / 1_000;
      const late = `Request to distributed tool ${toolName} on server ${this.#serverName} timed out after ${seconds}s.`;
      const timer = setTimeout(() => stop(ended("timed_out", late)), timeoutMs);
      if (signal.aborted) return settle(ended("cancelled", "it was stopped"));
      signal.addEventListener("abort", onAbort, { once: true });
      this.#pending.set(requestId, { settle, maid: toolArgs["maid"], isFile: toolName === requestFileTool });
      const { serverId } = this;
      const data = { requestId, toolName, toolArgs, traceId: traceId ?? "", serverId };
      if (!socket.send({ type: "execute_tool", data })) settle(notConnected(this.#serverName));
      return undefined;
    });
  }

  /** @returns false: nobody waits for it, or it is none */
  #takeResult(data: JsonValue | undefined): boolean {
    const { requestId, status, result, error } = isJsonObject(data) ? data : {};
    if (typeof requestId !== "string" || (status !== "success" && status !== "error")) return false;
    const pending = this.#pending.get(requestId);
    // One that comes too late was answered for already.
    if (pending === undefined) return true;
    pending.settle(
      answered(status === "error" ? { status, error: error ?? null } : { status, result: result ?? null }, pending),
    );
    return true;
  }
}

/** As it came: what it means is decided by the gateway, as with plugins that it runs itself. */
function answered(said: JsonObject, { maid, isFile }: Pending): Executed {
  if (isFile)
    return { status: "completed", mediaType: "application/json", output: JSON.stringify(said["result"] ?? said) };
  const output = JSON.stringify({ ...said, ...(maid === undefined ? {} : { maid }) });
  return { status: "completed", mediaType: vcpAnswerType, output };
}

function notConnected(serverName: string): Executed {
  return ended("declined", `Distributed server ${serverName} is not connected or ready.`);
}

const asObject = (answer: JsonObject): JsonObject => answer;
