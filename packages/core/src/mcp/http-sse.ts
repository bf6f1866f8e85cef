/**
 * HTTP with SSE, the transport of revision 2024-11-05 (MCP-1): one stream brings everything that the server
 * says, and names the address to which messages are posted.
 */
import { parseContentType } from "../blind/charset.ts";
import { decodeReply, leave } from "../blind/reply.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import { Correlator } from "./correlator.ts";
import { EventStream } from "./event-stream.ts";
import type { HttpPeer, SendOptions } from "./http-peer.ts";
import { encodeNotice, encodeRequest, type RpcNotice, type RpcRequest, type RpcResponse } from "./json-rpc.ts";
import { AsksTooMuch, ServerAnswers } from "./server-answers.ts";
import { toNoAnswer, type ExchangeOptions, type McpTransport, type RequestAnswerer } from "./transport.ts";

const longestStreamMs = 86_400_000;
const besideMs = 2_000;
const smallBytes = 1_048_576;

export class HttpSse implements McpTransport {
  readonly tellsNews = true;
  readonly #peer: HttpPeer;
  readonly #endpoint: string;
  readonly #stream: EventStream;
  readonly #end: AbortController;
  readonly #correlator: Correlator;
  #revision: string | undefined;
  /** Its stream may stay nevertheless: at another server behind the same address, or where nobody ended it. */
  #isForgotten = false;

  private constructor(
    peer: HttpPeer,
    { endpoint, stream, end, context }: Opened & { readonly end: AbortController } & Pick<SendOptions, "context">,
  ) {
    this.#peer = peer;
    this.#endpoint = endpoint;
    this.#stream = stream;
    this.#end = end;
    const answers = new ServerAnswers((text) =>
      this.#post(text, { context, signal: AbortSignal.timeout(besideMs), timeoutMs: besideMs }),
    );
    this.#correlator = new Correlator({ name: peer.name, reply: (text) => answers.add(text) });
  }

  /** @throws GatewayError `tool_failed`, `tool_unreachable`: not sent, since nothing of a call is */
  static async open(peer: HttpPeer, options: ExchangeOptions): Promise<HttpSse> {
    const end = new AbortController();
    const giveUp = (): void => end.abort(options.signal.reason);
    options.signal.addEventListener("abort", giveUp, { once: true });
    try {
      const opened = await openStream(peer, { ...options, signal: end.signal });
      const transport = new HttpSse(peer, { ...opened, end, context: { ...options.context, span: undefined } });
      void transport.#follow();
      return transport;
    } catch (error) {
      throw error instanceof Error ? withDelivery(error, "not_sent") : error;
    } finally {
      options.signal.removeEventListener("abort", giveUp);
    }
  }

  request(request: RpcRequest, options: ExchangeOptions): Promise<RpcResponse> {
    return this.#correlator.request(request, options, () => this.#post(encodeRequest(request), options));
  }

  notify(notice: RpcNotice, options: SendOptions): Promise<void> {
    return this.#post(encodeNotice(notice), options);
  }

  listen(_options: SendOptions, onNotice: (notice: RpcNotice) => void): Promise<void> {
    return this.#correlator.listen(onNotice);
  }

  serve(answer: RequestAnswerer): void {
    this.#correlator.serve(answer);
  }

  beginSession(): void {
    this.#revision = undefined;
  }

  speak(revision: string): void {
    this.#revision = revision;
  }

  isAlive(): boolean {
    return !this.#isForgotten && !this.#correlator.isOver;
  }

  async close(): Promise<void> {
    this.#end.abort();
    this.#correlator.end();
    await this.#stream.leave();
  }

  async #follow(): Promise<void> {
    try {
      for (let messages = await this.#stream.next(); messages !== undefined; messages = await this.#stream.next()) {
        this.#correlator.receive(messages);
      }
    } catch (error) {
      // How else it broke makes no difference to those who wait.
      if (error instanceof AsksTooMuch) this.#correlator.end(toNoAnswer(this.#peer.name, error.message));
    } finally {
      this.#correlator.end();
      await this.#stream.leave().catch(() => undefined);
    }
  }

  async #post(body: string, options: SendOptions): Promise<void> {
    const response = await this.#peer.send(
      {
        method: "POST",
        url: this.#endpoint,
        headers: [
          ["accept", "application/json, text/event-stream"],
          ["content-type", "application/json"],
          ...(this.#revision === undefined ? [] : [["mcp-protocol-version", this.#revision] as const]),
        ],
        body,
      },
      options,
    );
    if (response.status >= 200 && response.status < 300) return leave(response.body);
    const redact = (text: string): string => options.context.redactor.redact(text);
    try {
      await decodeReply(response, { maxBytes: smallBytes, toolName: this.#peer.name, redact });
    } catch (error) {
      if (!isAboutConnection(response.status, error)) throw error;
      this.#isForgotten = true;
      throw toForgotten(this.#peer.name);
    }
  }
}

/** The address is one of this connection, so 404 is about it; 400 where the server says so in words. */
function isAboutConnection(status: number, error: unknown): boolean {
  return status === 404 || (status === 400 && /session|transport/i.test(toGatewayError(error).message));
}

/** The message was not taken, so it may be sent over another connection. */
function toForgotten(name: string): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `'${name}' does not know this connection any more; another is begun.`),
    "not_sent",
  );
}

interface Opened {
  readonly endpoint: string;
  readonly stream: EventStream;
}

async function openStream(peer: HttpPeer, options: ExchangeOptions): Promise<Opened> {
  const quiet = { ...options, context: { ...options.context, span: undefined }, timeoutMs: longestStreamMs };
  const response = await peer.send({ method: "GET", headers: [["accept", "text/event-stream"]] }, quiet);
  const type = response.headers["content-type"];
  const isStream = parseContentType(typeof type === "string" ? type : type?.[0]).essence === "text/event-stream";
  if (response.status !== 200 || !isStream) {
    const redact = (text: string): string => options.context.redactor.redact(text);
    await decodeReply(response, { maxBytes: smallBytes, toolName: peer.name, redact });
    throw toNoAnswer(peer.name, "gives no stream of events");
  }
  const stream = new EventStream(response, options.maxBytes);
  const first = await firstEvent(stream);
  const endpoint = first?.name === "endpoint" ? peer.resolve(first.data) : undefined;
  if (endpoint !== undefined) return { endpoint, stream };
  await stream.leave();
  throw new GatewayError(
    "tool_failed",
    `'${peer.name}' must begin its stream with the address for messages, one of its own origin.`,
  );
}

async function firstEvent(stream: EventStream): Promise<{ readonly name: string; readonly data: string } | undefined> {
  for (let events = await stream.nextEvents(); events !== undefined; events = await stream.nextEvents()) {
    const [first, ...more] = events;
    if (first === undefined) continue;
    stream.putBack(more);
    return first;
  }
  return undefined;
}
