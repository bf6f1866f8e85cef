/**
 * The `openai` provider: `POST {base_url}/chat/completions` at any server that speaks OpenAI's format.
 * Streamed and whole answers come out of one generator, and what the server really sends decides, not
 * what it was asked for or calls it.
 */
import { isUtf8 } from "node:buffer";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { deepestJson, isJsonObject, isTooDeep, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { Egress, EgressBody, EgressResponse } from "../../ports/egress.ts";
import { redactedText } from "../../secrets/redactor.ts";
import { ChunkForm } from "./chunk-form.ts";
import { leaveOutReasoning } from "./conversation-form.ts";
import { forwardableBody } from "./forwardable-body.ts";
import { AnswerReader, type WholeBody } from "./openai-answer.ts";
import { chatEndpoint, isRealKey, proofOf, sensitiveHeaders } from "./openai-endpoint.ts";
import {
  failureInAnswer,
  maximumErrorBytes,
  readFailure,
  redactFor,
  toProviderError,
  type UpstreamFailure,
} from "./openai-error.ts";
import { listModels } from "./openai-models.ts";
import { relay } from "./openai-relay.ts";
import type { ChatProvider, ProviderEvent, ProviderRequest } from "./provider.ts";
import { readText } from "./read-text.ts";
import { SseEventTooLarge, SseScanner, type SseEvent } from "./sse-frames.ts";
import { mostToolCalls, TooManyToolCalls } from "./tool-call-assembly.ts";

export interface OpenAiProviderDeps {
  readonly egress: Egress;
  /** Milliseconds for which usage and `[DONE]` are awaited after every choice has finished. Default 5,000. */
  readonly afterFinishMs?: number;
}

/** Bytes of an answer, whole or as a stream. */
const maximumBodyBytes = 64 * 1024 * 1024;

/** How long the end of the body is awaited after `[DONE]`, so that the connection can be used again. */
const trailerMs = 250;

/** Back ends remembered for refusing `stream_options`. */
const rememberedBackEnds = 1_000;

export function createOpenAiProvider(deps: OpenAiProviderDeps): ChatProvider {
  const memory: Memory = {
    withoutUsage: new Set(),
    withoutReasoning: new Set(),
    afterFinishMs: deps.afterFinishMs ?? 5_000,
  };
  return {
    stream: (request) => answer(new ModelExchange(deps.egress, request, memory)),
    relay: (request) => relay(deps.egress, request),
    listModels: (request) => listModels(deps.egress, request),
  };
}

async function* answer(exchange: ModelExchange): AsyncGenerator<readonly ProviderEvent[], void, void> {
  const source = await exchange.open();
  const body = source[Symbol.asyncIterator]();
  const reader = new AnswerReader(exchange.model, exchange.choices);
  let form: "events" | "whole" | undefined;
  let scanner: SseScanner | undefined;
  const whole: Uint8Array[] = [];
  let isDone = false;
  try {
    while (!isDone) {
      const read = await exchange.read(body, reader.isFinished);
      if (read === undefined) break;
      exchange.countBody(read);
      let bytes = read;
      if (scanner === undefined) {
        whole.push(read);
        form ??= formOf(read);
        if (form !== "events") continue;
        bytes = joined(whole);
        scanner = new SseScanner();
      }
      const events: ProviderEvent[] = [];
      try {
        isDone = exchange.readEvents(bytes, { scanner, reader, events });
      } catch (thrown) {
        if (events.length > 0) yield events;
        throw thrown;
      }
      if (events.length > 0) yield events;
      if (isDone || reader.isFinished) continue;
      const rest = await exchange.follow(source, { scanner, reader });
      isDone = rest.isDone;
      if (rest.events.length > 0) yield rest.events;
      if (rest.failure !== undefined) throw rest.failure;
    }
    const last: ProviderEvent[] = [];
    const response = form === "whole" ? exchange.parseBody(joined(whole)) : undefined;
    if (response !== undefined) exchange.readBody(response, reader, last);
    exchange.requireEnd(reader, isDone);
    exchange.hasYielded = true;
    reader.finish(last, response);
    yield last;
    if (isDone) await nextWithin(body, trailerMs).catch(() => undefined);
  } finally {
    // Not awaited: a read may be under way, and the answer is over for us.
    body.return?.().catch(() => undefined);
  }
}

type Body = AsyncIterator<Uint8Array>;

/** Where following has stopped. */
interface Rest {
  /** Not given away. */
  events: ProviderEvent[];
  isDone: boolean;
  failure: GatewayError | undefined;
}

interface Reading {
  readonly scanner: SseScanner;
  readonly reader: AnswerReader;
  readonly events: ProviderEvent[];
}

/** Passes over a byte order mark, and over what is no UTF-8. */
const lenientText = new TextDecoder();
const openingBrace = 0x7b;

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
}

/** What one provider keeps for all its requests. */
interface Memory {
  /** Back ends that refuse `stream_options`. */
  readonly withoutUsage: Set<string>;
  /** Models of back ends that refuse what was thought before, theirs or another one's. */
  readonly withoutReasoning: Set<string>;
  readonly afterFinishMs: number;
}

/** One request and what is known of its fate; makes the errors. */
class ModelExchange {
  readonly model: string;
  readonly choices: number;
  /** Something of the answer has left: a repetition would show it twice. */
  hasYielded = false;
  readonly #egress: Egress;
  readonly #request: ProviderRequest;
  readonly #memory: Memory;
  readonly #form = new ChunkForm();
  #bodyBytes = 0;

  constructor(egress: Egress, request: ProviderRequest, memory: Memory) {
    const { model, n } = request.body;
    this.model = typeof model === "string" ? model : "";
    this.choices = typeof n === "number" ? n : 1;
    this.#egress = egress;
    this.#request = request;
    this.#memory = memory;
  }

  /** Sends and gives the body of a good answer. @param triesWithout what was thought, which may be what is refused */
  async open(triesWithout = false): Promise<EgressBody> {
    const { provider, stream } = this.#request;
    const { withoutUsage, withoutReasoning } = this.#memory;
    const key = `${provider.id} ${provider.baseUrl}`;
    const asksUsage = stream && !withoutUsage.has(key);
    const modelKey = `${key} ${this.model}`;
    const messages = triesWithout || withoutReasoning.has(modelKey) ? this.#thoughtless() : undefined;
    const response = await this.#send(asksUsage, messages);
    if (response.status >= 200 && response.status < 300) {
      // Others want to see it again: a complaint alone, which may be about something else, is not remembered.
      if (triesWithout) remember(withoutReasoning, modelKey);
      return response.body;
    }
    const failure = await this.#readFailure(response);
    if (asksUsage && refusesStreamOptions(failure)) {
      remember(withoutUsage, key);
      return this.open(triesWithout);
    }
    const mayTry = messages === undefined && refusesReasoning(failure) && this.#thoughtless() !== undefined;
    if (!mayTry) throw this.#error(failure);
    return this.open(true);
  }

  /** The conversation without what was thought in it; undefined where nothing was. */
  #thoughtless(): JsonValue | undefined {
    const { messages } = this.#request.body;
    const without = leaveOutReasoning(messages);
    return without === messages ? undefined : without;
  }

  /** The next bytes; undefined at the end. @param isFinished a connection that breaks now takes nothing away */
  async read(body: Body, isFinished: boolean): Promise<Uint8Array | undefined> {
    try {
      const result = isFinished ? await nextWithin(body, this.#memory.afterFinishMs) : await body.next();
      return result?.done === false ? result.value : undefined;
    } catch (thrown) {
      if (isFinished && !this.#request.signal.aborted) return undefined;
      throw this.#toLost(thrown);
    }
  }

  /** Gives events away as they come, up to those that end the answer. */
  async follow(body: EgressBody, { scanner, reader }: Omit<Reading, "events">): Promise<Rest> {
    const rest: Rest = { events: [], isDone: false, failure: undefined };
    const { take } = this.#request;
    if (take === undefined || body.follow === undefined) return rest;
    let room: Promise<void> | undefined;
    const takePiece = (piece: Uint8Array): boolean => {
      const events: ProviderEvent[] = [];
      try {
        this.countBody(piece);
        rest.isDone = this.readEvents(piece, { scanner, reader, events });
        if (!rest.isDone && !reader.isFinished) {
          room = events.length === 0 ? undefined : take(events);
          return room === undefined;
        }
      } catch (thrown) {
        rest.failure = toGatewayError(thrown);
      }
      rest.events = events;
      return false;
    };
    try {
      do {
        await room;
        room = undefined;
        await body.follow(takePiece);
      } while (room !== undefined);
    } catch (thrown) {
      rest.failure = this.#toLost(thrown);
    }
    return rest;
  }

  /** Adds to `events` what these bytes complete. True where the stream says that it is over. */
  readEvents(bytes: Uint8Array, { scanner, reader, events }: Reading): boolean {
    for (const event of this.#scan(scanner, bytes)) {
      // As OpenAI's own clients read it: whatever stands behind it is nothing.
      if (event.data.startsWith("[DONE]")) return true;
      this.#readEvent(event, reader, events);
      if (events.length > 0) this.hasYielded = true;
    }
    return false;
  }

  #readEvent(read: SseEvent, reader: AnswerReader, events: ProviderEvent[]): void {
    const event = this.#tellsKey(read.data) ? { ...read, data: this.#withoutKey(read.data), isPlain: false } : read;
    const { data, frame, isPlain } = event;
    const text = isPlain ? this.#form.textOf(data) : undefined;
    if (text !== undefined) {
      reader.text(text, { choice: this.#form.choice, frame }, events);
      return;
    }
    const chunk = this.#parseChunk(event);
    if (chunk === undefined) return;
    const before = events.length;
    try {
      reader.chunk(chunk, isPlain ? frame : undefined, events);
    } catch (thrown) {
      throw this.#toUnread(thrown);
    }
    const said = events[before];
    const isAlone = events.length === before + 1;
    if (isAlone && said?.type === "text-delta" && said.frame !== undefined) this.#form.learn(data, said);
  }

  /** A back end that says what it was asked, as those for trying things do, must not tell the key to the client. */
  #tellsKey(text: string): boolean {
    const { apiKey } = this.#request;
    return apiKey !== undefined && text.includes(apiKey) && isRealKey(apiKey);
  }

  #withoutKey(text: string): string {
    return text.replaceAll(this.#request.apiKey ?? "", () => redactedText);
  }

  readBody({ body }: WholeBody, reader: AnswerReader, events: ProviderEvent[]): void {
    try {
      reader.body(body, events);
    } catch (thrown) {
      throw this.#toUnread(thrown);
    }
  }

  #scan(scanner: SseScanner, read: Uint8Array): SseEvent[] {
    try {
      return scanner.feed(read);
    } catch (thrown) {
      if (thrown instanceof SseEventTooLarge)
        throw this.#fail("provider_failed", `sent too much at once: ${thrown.message}`);
      throw thrown;
    }
  }

  /** Undefined for an event that says nothing. */
  #parseChunk(event: SseEvent): JsonObject | undefined {
    if (event.data.trim() === "") return undefined;
    const parsed = parseJson(event.data);
    if (parsed === undefined && event.name !== "error") {
      throw this.#fail("provider_failed", `sent an event that is not JSON: ${this.#quote(event.data)}`);
    }
    this.#requireDepth(parsed, event.data);
    const failure = failureInAnswer(parsed ?? event.data, event.name === "error");
    if (failure !== undefined) throw this.#error(failure);
    return isJsonObject(parsed) ? parsed : undefined;
  }

  /** What is nested deeper could not be written to anybody; of a usage only so much is read. */
  #requireDepth(parsed: JsonValue | undefined, text: string): void {
    if (!isTooDeep(parsed, text)) return;
    if (!isJsonObject(parsed) || isTooDeep({ ...parsed, usage: null }, text))
      throw this.#fail("provider_failed", `sent JSON that is nested deeper than ${deepestJson} levels.`);
  }

  countBody(read: Uint8Array): void {
    this.#bodyBytes += read.byteLength;
    if (this.#bodyBytes > maximumBodyBytes)
      throw this.#fail("provider_failed", `answered more than ${maximumBodyBytes} bytes.`);
  }

  parseBody(bytes: Uint8Array): WholeBody {
    const read = lenientText.decode(bytes);
    const tellsKey = this.#tellsKey(read);
    const text = tellsKey ? this.#withoutKey(read) : read;
    const parsed = parseJson(text);
    if (parsed === undefined && /^\s*[{[]/.test(text)) {
      throw this.#fail("provider_stream_incomplete", "broke off in the middle of its answer.");
    }
    this.#requireDepth(parsed, text);
    const failure = parsed === undefined ? undefined : failureInAnswer(parsed);
    if (failure !== undefined) throw this.#error(failure);
    if (isJsonObject(parsed) && Array.isArray(parsed["choices"])) {
      return bytes[0] === openingBrace && !tellsKey && isUtf8(bytes) ? { body: parsed, bytes } : { body: parsed };
    }
    throw this.#fail(
      "provider_failed",
      "did not answer with a chat completion; check its base_url, which usually ends in /v1.",
    );
  }

  /** @throws GatewayError `provider_stream_incomplete` where the answer cannot be known to be complete */
  requireEnd(reader: AnswerReader, isDone: boolean): void {
    const { givenUpAs } = reader;
    if (givenUpAs !== undefined) {
      throw this.#fail(
        "provider_stream_incomplete",
        `gave up in the middle of its answer (finish_reason '${givenUpAs}').`,
      );
    }
    if (reader.hasChoices && (isDone || reader.isFinished)) return;
    const how = reader.hasChoices
      ? "ended its stream without a finish_reason, so the answer is incomplete."
      : "ended its answer without any choice.";
    throw this.#fail("provider_stream_incomplete", how);
  }

  async #send(asksUsage: boolean, messages: JsonValue | undefined): Promise<EgressResponse> {
    const { provider, apiKey, stream, signal, span } = this.#request;
    const headers: [string, string][] = [
      ["content-type", "application/json"],
      ["accept", stream ? "text/event-stream, application/json" : "application/json"],
    ];
    if (apiKey !== undefined) headers.push(...proofOf(apiKey, provider));
    try {
      return await this.#egress.request({
        method: "POST",
        url: chatEndpoint(provider),
        headers,
        body: toBytes(this.#request, { asksUsage, messages }),
        signal,
        timeoutMs: provider.timeoutMs,
        sensitiveHeaders,
        span,
      });
    } catch (thrown) {
      throw this.#toUnsent(thrown);
    }
  }

  async #readFailure(response: EgressResponse): Promise<UpstreamFailure> {
    let text = "";
    try {
      text = await readText(response.body, maximumErrorBytes);
    } catch (thrown) {
      // The status alone tells what matters, unless it was our side that gave up.
      if (this.#request.signal.aborted) throw this.#toLost(thrown);
    }
    return readFailure(response.status, response.headers, text);
  }

  #error(failure: UpstreamFailure): GatewayError {
    const { provider, apiKey } = this.#request;
    return toProviderError(failure, { provider, apiKey, model: this.model, beforeFirstByte: !this.hasYielded });
  }

  /** The request did not get an answer's head. */
  #toUnsent(thrown: unknown): GatewayError {
    const given = this.#toGivenUp(thrown);
    if (given !== undefined) return given;
    if (!(thrown instanceof GatewayError)) return this.#fail("provider_unavailable", "cannot be reached.", thrown);
    if (thrown.code === "egress_denied")
      return this.#fail("provider_failed", `is out of bounds: ${thrown.message}`, thrown);
    if (thrown.code !== "tool_unreachable") return thrown;
    return this.#fail("provider_unavailable", `cannot be reached: ${thrown.message}`, thrown);
  }

  /** The answer's body broke. */
  #toLost(thrown: unknown): GatewayError {
    const given = this.#toGivenUp(thrown);
    if (given !== undefined) return given;
    if (thrown instanceof GatewayError && thrown.code !== "tool_unreachable") return thrown;
    return this.#fail("provider_stream_incomplete", "broke off in the middle of its answer.", thrown);
  }

  /** What came is more than an answer may be. */
  #toUnread(thrown: unknown): unknown {
    if (!(thrown instanceof TooManyToolCalls)) return thrown;
    return this.#fail("provider_failed", `asked for more than ${mostToolCalls} tool calls in one turn.`, thrown);
  }

  /** Our caller left, or the time was up. */
  #toGivenUp(thrown: unknown): GatewayError | undefined {
    const { signal, provider } = this.#request;
    if (signal.aborted) {
      if (signal.reason instanceof GatewayError) return signal.reason;
      return new GatewayError("request_cancelled", "The request was cancelled.", { cause: thrown });
    }
    if (!(thrown instanceof GatewayError) || thrown.code !== "tool_timeout") return undefined;
    return this.#fail(
      "provider_unavailable",
      `did not finish within its timeout_ms of ${provider.timeoutMs}.`,
      thrown,
      {
        timed_out: true,
      },
    );
  }

  #fail(
    code: "provider_failed" | "provider_unavailable" | "provider_stream_incomplete",
    what: string,
    cause?: unknown,
    more: Readonly<Record<string, JsonValue>> = {},
  ): GatewayError {
    const { name } = this.#request.provider;
    return new GatewayError(code, `Provider '${name}' ${what}`, {
      extra: { provider: name, before_first_byte: !this.hasYielded, ...more },
      ...(cause === undefined ? {} : { cause }),
    });
  }

  #quote(text: string): string {
    return JSON.stringify(redactFor(this.#request, text).slice(0, 200));
  }
}

/**
 * Whole bodies begin with a bracket or a tag, which no event stream does. Undefined while only white
 * space has come, which some servers send to keep a connection alive.
 */
function formOf(read: Uint8Array): "events" | "whole" | undefined {
  for (const byte of read) {
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) continue;
    if (byte === 0xef || byte === 0xbb || byte === 0xbf) continue;
    return byte === 0x7b || byte === 0x5b || byte === 0x3c ? "whole" : "events";
  }
  return undefined;
}

interface Sending {
  readonly asksUsage: boolean;
  /** Instead of the request's own. */
  readonly messages: JsonValue | undefined;
}

function toBytes(request: ProviderRequest, { asksUsage, messages }: Sending): Uint8Array | string {
  const { original } = request;
  const own = toBody(request, asksUsage);
  const body = messages === undefined ? own : { ...own, messages };
  return (original === undefined ? undefined : forwardableBody(original, body)) ?? JSON.stringify(body);
}

function toBody(request: ProviderRequest, asksUsage: boolean): JsonObject {
  const given = request.body;
  if (!request.stream && given["stream"] === undefined && given["stream_options"] === undefined) return given;
  const { stream: _stream, stream_options: options, ...body } = given;
  if (!request.stream) return body;
  if (!asksUsage) return { ...body, stream: true };
  return { ...body, stream: true, stream_options: { ...(isJsonObject(options) ? options : {}), include_usage: true } };
}

function remember(backEnds: Set<string>, key: string): void {
  if (backEnds.size >= rememberedBackEnds) backEnds.clear();
  backEnds.add(key);
}

const aboutReasoning = /\breasoning(?:_content|_details)?\b/;
const isUnknown = /unsupported|not supported|not permitted|forbidden|not allowed|unknown|unrecognized|unexpected/i;

/** Groq's `property 'reasoning' is unsupported`, Mistral's `extra_forbidden`; not DeepSeek's, that it must be there. */
function refusesReasoning({ status, raw }: UpstreamFailure): boolean {
  const at = raw.search(/\bmessages\b/);
  return (status === 400 || status === 422) && at >= 0 && aboutReasoning.test(raw.slice(at)) && isUnknown.test(raw);
}

function refusesStreamOptions({ status, raw }: UpstreamFailure): boolean {
  return (status === 400 || status === 422) && /stream_options|include_usage/.test(raw);
}

/** The next read, or undefined where none comes in time. */
async function nextWithin(body: Body, ms: number): Promise<IteratorResult<Uint8Array> | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const tooLong = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined);
  });
  try {
    return await Promise.race([body.next(), tooLong]);
  } finally {
    clearTimeout(timer);
  }
}
