/**
 * Streamable HTTP (MCP-1, MCP-4): one POST a message, answered as JSON or as a stream of events. In the
 * session era streams that break are taken up again where they ended, so the request is not sent twice.
 */
import { parseContentType } from "../blind/charset.ts";
import { decodeReply, leave } from "../blind/reply.ts";
import { SseEventTooLarge } from "../chat/providers/sse-frames.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import { EventStream } from "./event-stream.ts";
import type { HttpMessage, HttpPeer, SendOptions } from "./http-peer.ts";
import {
  decodeMessages,
  encodeNotice,
  encodeRequest,
  isAnswerTo,
  type RpcId,
  type RpcMessage,
  type RpcNotice,
  type RpcRequest,
  type RpcResponse,
} from "./json-rpc.ts";
import { rpcCodes, statelessRevision } from "./revisions.ts";
import { AsksTooMuch, ServerAnswers } from "./server-answers.ts";
import {
  refuseRequests,
  SessionLost,
  toCutOff,
  toNoAnswer,
  type ExchangeOptions,
  type McpTransport,
  type RequestAnswerer,
} from "./transport.ts";

type Headers = HttpMessage["headers"];

const accept = ["accept", "application/json, text/event-stream"] as const;
const json = ["content-type", "application/json"] as const;

/** Times that a broken stream is taken up again. */
const mostResumptions = 5;
/** Wait before that where the server does not say, twice as long while it is away; and the longest. */
const resumeAfterMs = 200;
const longestResumeMs = 10_000;
/** Of a server that begins anew, or of what stands before it meanwhile. */
const awayStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);
/** Milliseconds for what is sent beside calls: cancellations, answers to pings, the end of a session. */
const besideMs = 2_000;

/** What a server may send beside its answers. */
const smallBytes = 1_048_576;

export class StreamableHttp implements McpTransport {
  readonly tellsNews = true;
  readonly #peer: HttpPeer;
  #revision: string | undefined;
  #sessionId: string | undefined;
  /** Whose session it is; ends it. */
  #opener: SendOptions["context"] | undefined;
  #answerRequest = refuseRequests;

  constructor(peer: HttpPeer) {
    this.#peer = peer;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  speak(revision: string): void {
    this.#revision = revision;
  }

  serve(answer: RequestAnswerer): void {
    this.#answerRequest = answer;
  }

  /** The next request begins one. */
  beginSession(): void {
    this.#sessionId = undefined;
    this.#revision = undefined;
  }

  isAlive(): boolean {
    return true;
  }

  async request(request: RpcRequest, options: ExchangeOptions): Promise<RpcResponse> {
    const sessionId = this.#sessionId;
    const response = await this.#peer.send(
      {
        method: "POST",
        headers: [accept, json, ...this.#headers(sessionId), ...(options.headers ?? [])],
        body: encodeRequest(request),
      },
      options,
    );
    if (response.status < 200 || response.status > 299) return this.#refusal({ request, sessionId }, response, options);
    if (request.method === "initialize") this.#adopt(response, options);
    if (typeOf(response) === "text/event-stream") return this.#follow(request, response, options);
    const text = await readText(response, { name: this.#peer.name, options });
    const answer = pick(decodeMessages(text), request.id);
    if (answer === undefined)
      throw toNoAnswer(this.#peer.name, describeNonsense(response.status, options.context.redactor.redact(text)));
    return answer;
  }

  async notify(notice: RpcNotice, options: SendOptions): Promise<void> {
    await this.#post(encodeNotice(notice), options);
  }

  async listen(options: SendOptions, onNotice: (notice: RpcNotice) => void): Promise<void> {
    const response = await this.#peer.send({ method: "GET", headers: this.#streamHeaders("") }, options);
    if (response.status !== 200 || typeOf(response) !== "text/event-stream") {
      await leave(response.body);
      return;
    }
    const stream = new EventStream(response, smallBytes);
    const answers = this.#answersFor(options);
    try {
      for (let messages = await stream.next(); messages !== undefined; messages = await stream.next()) {
        this.#attend(messages, { onNotice, answers });
      }
    } finally {
      await stream.leave();
    }
  }

  async close(): Promise<void> {
    const context = this.#opener;
    if (this.#sessionId === undefined || context === undefined) return;
    const message: HttpMessage = { method: "DELETE", headers: [accept, ...this.#headers(this.#sessionId)] };
    this.#sessionId = undefined;
    const options = { context: beside(context), signal: AbortSignal.timeout(besideMs), timeoutMs: besideMs };
    // A server need not let clients end sessions, and may be gone.
    await this.#peer.send(message, options).then(
      ({ body }) => leave(body),
      () => undefined,
    );
  }

  #headers(sessionId: string | undefined): Headers {
    return [
      ...(this.#revision === undefined ? [] : [["mcp-protocol-version", this.#revision] as const]),
      ...(sessionId === undefined ? [] : [["mcp-session-id", sessionId] as const]),
    ];
  }

  #streamHeaders(lastEventId: string): Headers {
    return [
      ["accept", "text/event-stream"],
      ...this.#headers(this.#sessionId),
      ...(lastEventId === "" ? [] : [["last-event-id", lastEventId] as const]),
    ];
  }

  #adopt(response: EgressResponse, { context }: SendOptions): void {
    const id = response.headers["mcp-session-id"];
    this.#opener = context;
    // Visible ASCII, as the protocol says: it becomes a header of ours.
    if (typeof id === "string" && /^[\u0021-\u007e]{1,1024}$/.test(id)) this.#sessionId = id;
  }

  /** @throws GatewayError of the status, SessionLost; answers with the error where the server gives one */
  async #refusal(
    { request, sessionId }: { readonly request: RpcRequest; readonly sessionId: string | undefined },
    response: EgressResponse,
    options: ExchangeOptions,
  ): Promise<RpcResponse> {
    const { status } = response;
    const failure = await readText(response, { name: this.#peer.name, options }).then(
      () => toNoAnswer(this.#peer.name, `answered with status ${status}`),
      (error: unknown) => error,
    );
    const error = errorIn(failure, request.id);
    if (sessionId !== undefined && isAboutSession(status, error)) throw new SessionLost();
    if (error !== undefined && (status === 400 || status === 404)) {
      return { ...error, error: { ...error.error, status } };
    }
    throw failure;
  }

  async #follow(request: RpcRequest, first: EgressResponse, options: ExchangeOptions): Promise<RpcResponse> {
    const answers = this.#answersFor(options);
    let stream: EventStream | undefined = new EventStream(first, options.maxBytes);
    let lastEventId = "";
    let pauseMs = resumeAfterMs;
    let cause: unknown;
    for (let resumed = 0; ; resumed += 1) {
      if (stream !== undefined) {
        const end = await this.#readAnswer(request.id, stream, { ...options, answers });
        if (end.answer !== undefined) return end.answer;
        lastEventId = stream.lastEventId === "" ? lastEventId : stream.lastEventId;
        pauseMs = Math.min(stream.retryMs ?? resumeAfterMs, longestResumeMs);
        cause = end.error;
      } else pauseMs = Math.min(pauseMs * 2, longestResumeMs);
      const mayResume = lastEventId !== "" && this.#revision !== statelessRevision && resumed < mostResumptions;
      if (!mayResume || options.signal.aborted) throw cause instanceof Error ? cause : toCutOff(this.#peer.name);
      await pause(pauseMs, options.signal);
      stream = await this.#resume(lastEventId, options, cause);
    }
  }

  /** What the stream gave until it ended. */
  async #readAnswer(
    id: RpcId,
    stream: EventStream,
    options: ExchangeOptions & Attending,
  ): Promise<{ readonly answer?: RpcResponse; readonly error?: unknown }> {
    try {
      for (let messages = await stream.next(); messages !== undefined; messages = await stream.next()) {
        const answer = pick(messages, id);
        this.#attend(messages, options);
        if (answer === undefined) continue;
        stream.leaveSoon();
        return { answer };
      }
      return {};
    } catch (error) {
      if (error instanceof SseEventTooLarge) throw tooLarge(this.#peer.name, options.maxBytes);
      if (!(error instanceof AsksTooMuch)) return { error };
      await stream.leave();
      throw toNoAnswer(this.#peer.name, error.message);
    }
  }

  /** Undefined: the server is away for the moment, as one is that begins anew. */
  async #resume(lastEventId: string, options: ExchangeOptions, cause: unknown): Promise<EventStream | undefined> {
    // The request itself has been sent; this is not it.
    const quiet = { ...options, onSent: undefined };
    const message: HttpMessage = { method: "GET", headers: this.#streamHeaders(lastEventId) };
    const response = await this.#peer.send(message, quiet).catch((error: unknown) => {
      if (toGatewayError(error).code === "tool_unreachable") return undefined;
      throw error instanceof Error ? withDelivery(error, "uncertain") : error;
    });
    if (response === undefined) return undefined;
    if (awayStatuses.has(response.status)) {
      await leave(response.body);
      return undefined;
    }
    if (response.status === 200 && typeOf(response) === "text/event-stream") {
      return new EventStream(response, options.maxBytes);
    }
    await leave(response.body);
    throw cause instanceof Error && deliveryOf(cause) === "uncertain" ? cause : toCutOff(this.#peer.name);
  }

  #answersFor(options: SendOptions): ServerAnswers {
    const context = beside(options.context);
    return new ServerAnswers((text) =>
      this.#post(text, { context, signal: AbortSignal.timeout(besideMs), timeoutMs: besideMs }),
    );
  }

  /**
   * What comes beside the answer: news for whoever wants it, and requests of the server's own.
   * @throws AsksTooMuch
   */
  #attend(messages: readonly RpcMessage[], { onNotice, answers }: Attending): void {
    for (const message of messages) {
      if (message.kind === "notice") onNotice?.(message);
      if (message.kind === "request" && this.#revision !== statelessRevision) answers.add(this.#answerRequest(message));
    }
  }

  async #post(body: string, options: SendOptions): Promise<void> {
    const sessionId = this.#sessionId;
    const headers = [accept, json, ...this.#headers(sessionId)];
    const response = await this.#peer.send({ method: "POST", headers, body }, options);
    if (response.status >= 200 && response.status < 300) return leave(response.body);
    if (response.status === 404 && sessionId !== undefined) {
      await leave(response.body);
      throw new SessionLost();
    }
    await readText(response, { name: this.#peer.name, options: { ...options, maxBytes: smallBytes } });
  }
}

interface Attending extends Pick<ExchangeOptions, "onNotice"> {
  readonly answers: ServerAnswers;
}

/** Work beside a call is not part of what the call is traced as. */
function beside(context: SendOptions["context"]): SendOptions["context"] {
  return { ...context, span: undefined };
}

function pick(messages: readonly RpcMessage[], id: RpcId): RpcResponse | undefined {
  for (const message of messages) if (isAnswerTo(message, id)) return message;
  return undefined;
}

interface Reading {
  readonly name: string;
  readonly options: Pick<ExchangeOptions, "context" | "maxBytes">;
}

/** @throws GatewayError `tool_failed` for a status other than 2xx, `tool_output_too_large` */
async function readText(response: EgressResponse, { name, options }: Reading): Promise<string> {
  const { context, maxBytes } = options;
  const redact = (text: string): string => context.redactor.redact(text);
  const { body } = await decodeReply(response, { maxBytes, toolName: name, redact });
  return typeof body === "string" ? body : Buffer.from(body).toString("utf8");
}

function tooLarge(name: string, maxBytes: number): GatewayError {
  return withDelivery(
    new GatewayError("tool_output_too_large", `'${name}' sent a message of more than ${maxBytes} bytes; ask for less.`),
    "answered",
  );
}

function describeNonsense(status: number, text: string): string {
  const line = text.replace(/\s+/g, " ").trim().slice(0, 120);
  return `answered with status ${status} and no JSON-RPC answer to the request${line === "" ? "" : `: ${line}`}`;
}

/** The error of JSON-RPC in the body of a refusal; one that names no request is ours. */
function errorIn(failure: unknown, id: RpcId): Extract<RpcResponse, { kind: "error" }> | undefined {
  const body: JsonValue | undefined = failure instanceof GatewayError ? failure.details.extra?.["body"] : undefined;
  if (typeof body !== "string") return undefined;
  for (const message of decodeMessages(body)) {
    if (message.kind === "error" && (message.id === null || message.id === id)) return message;
  }
  return undefined;
}

/** 404 as the protocol says; 400 where the server says in words that it does not know the session. */
function isAboutSession(status: number, error: Extract<RpcResponse, { kind: "error" }> | undefined): boolean {
  if (status === 404) return error === undefined || error.error.code !== rpcCodes.methodNotFound;
  return status === 400 && error !== undefined && /session/i.test(error.error.message);
}

function typeOf(response: EgressResponse): string {
  const type = response.headers["content-type"];
  return parseContentType(typeof type === "string" ? type : type?.[0]).essence;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
