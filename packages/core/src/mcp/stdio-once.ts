/**
 * Stdio (MCP-1), one process a request: it is started, told everything at once, and ended with its answer.
 * So nothing stays behind, and no process is ever two callers'. Servers that keep something in memory
 * between calls need to be held, which a node does.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { PluginExit, PluginRunner } from "../ports/plugin-runner.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { SendOptions } from "./http-peer.ts";
import {
  decodeMessages,
  encodeNotice,
  encodeRequest,
  isAnswerTo,
  type OwnId,
  type RpcMessage,
  type RpcNotice,
  type RpcRequest,
  type RpcResponse,
} from "./json-rpc.ts";
import { Lines } from "./lines.ts";
import { clientInfo, newestSessionRevision, statelessRevision } from "./revisions.ts";
import type { ExchangeOptions, McpTransport, RequestAnswerer } from "./transport.ts";

export interface StdioProgram {
  /** `mcp://memory`: what errors call it. */
  readonly name: string;
  readonly runner: PluginRunner;
  readonly command: readonly [string, ...string[]];
  /** @throws GatewayError `credential_missing`, `credential_unreadable`: not sent */
  readonly environment: (context: SendOptions["context"]) => Promise<Readonly<Record<string, string>>>;
}

/** Of the request that begins each process; ids of others are numbers. */
const handshakeId = "initialize";

export class StdioOnce implements McpTransport {
  readonly tellsNews = false;
  readonly #program: StdioProgram;
  #isStateless = false;

  constructor(program: StdioProgram) {
    this.#program = program;
  }

  async request(request: RpcRequest<OwnId>, options: ExchangeOptions): Promise<RpcResponse> {
    const { runner, command, environment } = this.#program;
    const variables = await environment(options.context);
    const answered = new AbortController();
    const lines = new Lines();
    let answer: RpcResponse | undefined;
    let failure: GatewayError | undefined;
    const take = (message: RpcMessage): void => {
      if (message.kind === "notice") options.onNotice?.(message);
      // Told everything at its start, it would wait for the word of somebody until its time is over.
      if (message.kind === "request" && asksSomebody(message)) throw toUnanswered(this.#program.name, message.method);
      if (answer !== undefined || !isAnswerTo(message, request.id)) return;
      answer = message;
      answered.abort();
    };
    // Never throws: nobody would catch it, and the process would end with everybody's calls.
    const read = (part: string): void => {
      try {
        for (const message of lines.feed(part).flatMap(decodeMessages)) take(message);
      } catch (error) {
        failure ??= withDelivery(toGatewayError(error), "uncertain");
        answered.abort();
      }
    };
    options.onSent?.();
    const exit = await runner.run({
      tenant: options.context.tenant,
      command,
      environment: variables,
      stdin: this.#isStateless ? `${encodeRequest(request)}\n` : toInput(request),
      answersId: request.id,
      timeoutMs: options.timeoutMs,
      maxOutputBytes: options.maxBytes,
      signal: AbortSignal.any([options.signal, answered.signal]),
      onStdout: read,
    });
    read("\n");
    if (answer !== undefined) return answer;
    throw failure ?? toFailure(this.#program.name, exit, options);
  }

  /** The process that would take it has ended. */
  notify(_notice: RpcNotice, _options: SendOptions): Promise<void> {
    return Promise.resolve();
  }

  serve(_answer: RequestAnswerer): void {
    // All that a process is told, it is told at its start.
  }

  /** Each process begins its own. */
  beginSession(): void {
    this.#isStateless = false;
  }

  speak(revision: string): void {
    this.#isStateless = revision === statelessRevision;
  }

  isAlive(): boolean {
    return true;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function toInput(request: RpcRequest): string {
  if (request.method === "initialize") return `${encodeRequest(request)}\n`;
  const params = { protocolVersion: newestSessionRevision, capabilities: {}, clientInfo };
  return [
    encodeRequest({ id: handshakeId, method: "initialize", params }),
    encodeNotice({ method: "notifications/initialized", params: {} }),
    encodeRequest(request),
    "",
  ].join("\n");
}

const questions: readonly string[] = ["elicitation/create", "sampling/createMessage"];

/** Rather than us, who need not be told what a server goes on without. */
function asksSomebody({ method }: RpcRequest): boolean {
  return questions.includes(method);
}

function toUnanswered(name: string, method: string): GatewayError {
  const hint = "hold its program on a node ('node'), where it is answered";
  return new GatewayError(
    "tool_failed",
    `'${name}' asks '${method}', which a process of one call is not told; ${hint}.`,
  );
}

/** Characters of what a server writes beside its answers. */
const longestStderr = 1_000;

function toFailure(name: string, exit: PluginExit, { context, timeoutMs, maxBytes }: ExchangeOptions): GatewayError {
  const said = context.redactor.redact(exit.stderr.trim()).slice(-longestStderr);
  const reason = said === "" ? "" : `: ${said}`;
  switch (exit.ended) {
    case "spawn":
      return withDelivery(new GatewayError("tool_unreachable", `'${name}' could not be started${reason}`), "not_sent");
    case "timeout":
      return withDelivery(
        new GatewayError("tool_timeout", `'${name}' did not answer within ${timeoutMs} ms${reason}`),
        "uncertain",
      );
    case "output":
      return withDelivery(
        new GatewayError("tool_output_too_large", `'${name}' wrote more than ${maxBytes} bytes; ask for less.`),
        "answered",
      );
    case "aborted":
      return withDelivery(new GatewayError("call_cancelled", `The call of '${name}' was given up.`), "uncertain");
    case "exit":
      return withDelivery(
        new GatewayError(
          "tool_unreachable",
          `'${name}' ended (${exit.exitCode ?? "killed"}) before it answered${reason}`,
        ),
        "uncertain",
      );
    default:
      return exit.ended satisfies never;
  }
}
