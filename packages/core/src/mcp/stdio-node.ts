/**
 * Stdio on a node (MCP-1): the process is started once on a machine of the tenant's and held there, for every
 * instance of the gateway. Requests travel as runs of the node: what was not begun was not sent, what died on the
 * way is uncertain, and a result that comes late still counts (decision 0028).
 */
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import { hashNodeTool, mcpAnswerType, type NodeTool } from "../nodes/node.ts";
import { offerRun, runOnNode } from "../nodes/run.ts";
import type { NodeDeps, NodeWork } from "../nodes/work.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import type { SendOptions } from "./http-peer.ts";
import type { RpcNotice, RpcRequest, RpcResponse } from "./json-rpc.ts";
import { readMcpAnswer, type HeldServer, type McpRun } from "./node-messages.ts";
import { statelessRevision } from "./revisions.ts";
import { toNoAnswer, type ExchangeOptions, type McpTransport, type RequestAnswerer } from "./transport.ts";

export interface NodeProgram {
  /** `mcp://memory`: what errors call the server. */
  readonly name: string;
  /** On which it is held. */
  readonly node: string;
  readonly program: string;
  /**
   * As the node offers it now; undefined: no node of the name is known, or it offers no such program.
   * @throws GatewayError `invalid_definition`, not sent
   */
  readonly offered: (context: CallContext) => NodeTool | undefined;
  /** @throws GatewayError `credential_missing` and others, not sent */
  readonly server: (context: CallContext) => Promise<Omit<HeldServer, "initialize">>;
}

export class StdioOnNode implements McpTransport {
  /** The node listens, and tells of it by itself. */
  readonly tellsNews = false;
  readonly #deps: NodeDeps;
  readonly #program: NodeProgram;
  #initialize: JsonObject | undefined;

  constructor(deps: NodeDeps, program: NodeProgram) {
    this.#deps = deps;
    this.#program = program;
  }

  async request(request: RpcRequest, options: ExchangeOptions): Promise<RpcResponse> {
    const { id, method, params } = request;
    if (method === "initialize") this.#initialize = params;
    const text = await this.#run({ method, params }, options);
    const answer = readMcpAnswer(text, this.#program.name);
    if (answer === undefined) throw toNoAnswer(this.#program.name, "gave no answer of the protocol");
    if ("result" in answer) return { kind: "result", id, result: answer.result };
    return { kind: "error", id, error: answer.error };
  }

  /** Greetings and cancellations are the node's, which has the process. */
  notify(_notice: RpcNotice, _options: SendOptions): Promise<void> {
    return Promise.resolve();
  }

  serve(_answer: RequestAnswerer): void {
    // The node answers, by the rule that goes along with each request.
  }

  beginSession(): void {
    this.#initialize = undefined;
  }

  speak(revision: string): void {
    if (revision === statelessRevision) this.#initialize = undefined;
  }

  isAlive(): boolean {
    return true;
  }

  /** The process is everybody's, and stays. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  async handOver({ method, params }: RpcRequest, options: ExchangeOptions): Promise<void> {
    const { context, signal } = options;
    await offerRun(
      this.#deps,
      await this.#toWork({ method, params }, options),
      { ...context, signal },
      { handedOver: true },
    );
  }

  async #toWork(request: McpRun["request"], options: ExchangeOptions): Promise<NodeWork> {
    const { context, timeoutMs, maxBytes } = options;
    const { node, program } = this.#program;
    const offered = this.#program.offered(context);
    if (offered === undefined) throw this.#needsNode();
    const server = await this.#program.server(context);
    const run: McpRun = {
      server: { ...server, ...(this.#initialize === undefined ? {} : { initialize: this.#initialize }) },
      request,
      timeout_ms: timeoutMs,
      max_bytes: maxBytes,
    };
    return {
      callId: options.call?.id ?? newId("call"),
      attempt: options.call?.attempt ?? 1,
      tool: program,
      toolHash: hashNodeTool(offered),
      node,
      arguments: run as unknown as JsonObject,
      notConnected: () => this.#needsNode(),
    };
  }

  async #run(request: McpRun["request"], options: ExchangeOptions): Promise<string> {
    const { context, signal, timeoutMs } = options;
    const work = await this.#toWork(request, options);
    const limit = AbortSignal.timeout(timeoutMs);
    try {
      const reply = await runOnNode(this.#deps, work, {
        ...context,
        signal: AbortSignal.any([signal, limit]),
        ...(options.onSent === undefined ? {} : { onSent: options.onSent }),
      });
      if (reply.mediaType === mcpAnswerType && typeof reply.body === "string") return reply.body;
      throw toNoAnswer(this.#program.name, "gave no answer of the protocol");
    } catch (thrown) {
      throw limit.aborted && !signal.aborted ? toTimeout(this.#program.name, timeoutMs, thrown) : thrown;
    }
  }

  #needsNode(): GatewayError {
    const { name, node, program } = this.#program;
    return withDelivery(
      new GatewayError(
        "node_required",
        `'${name}' is held on node '${node}', which is not connected or offers no MCP server '${program}' ('mcp_servers' in its node.json); start it with npm run node -- --url <this gateway> --config node.json.`,
        { extra: { node } },
      ),
      "not_sent",
    );
  }
}

function toTimeout(name: string, timeoutMs: number, cause: unknown): GatewayError {
  return withDelivery(
    new GatewayError("tool_timeout", `'${name}' did not answer within ${timeoutMs} ms.`),
    deliveryOf(cause),
  );
}
