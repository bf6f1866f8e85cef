/**
 * A model's answer that passes as it comes, byte by byte: vectors, pictures, and chats with models that make
 * them (VCP-17). The gateway reads along for the bill only.
 */
import { ChatMeter, type MeteredRound } from "../budgets/chat-meter.ts";
import { tokensOfPrompt } from "../budgets/estimate.ts";
import { answerTokens } from "../budgets/reservation.ts";
import type { StoredOutcome } from "../calls/call.ts";
import { type Usage, countOf, usageOf } from "../calls/usage.ts";
import { storeAnswer } from "../calls/kept-answer.ts";
import { holdLease, type Lease } from "../calls/lease.ts";
import { leaveOut } from "../chat/late-results.ts";
import type { OpenedChat } from "../chat/opened-chat.ts";
import { takePicturesOut } from "../chat/pictures.ts";
import { outsideReason } from "../chat/stop-signal.ts";
import { isRefusal, mayRefusePictures, relayWithFallback, type Route } from "../chat/providers/route.ts";
import { SseEventTooLarge, SseScanner } from "../chat/providers/sse-frames.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { exchangePaths, largestKept, type ModelExchange } from "./special.ts";
import { readWithin } from "../read-body.ts";

export interface RelayedAnswer {
  readonly contentType: string;
  /** Settles the call when it ends, however it ends. */
  readonly body: AsyncGenerator<Uint8Array, void, void>;
}

/** Bytes of an answer that is read whole. */
const largestWhole = 67_108_864;

/** @throws GatewayError of the back end; the call is settled then */
export async function relay(
  deps: CoreDeps,
  chat: OpenedChat,
  exchange: ModelExchange | "chat",
): Promise<RelayedAnswer> {
  const run = new Relay(deps, chat, exchange);
  try {
    const response = await run.ask();
    chat.original?.letGo();
    const type = response.headers["content-type"];
    const contentType = typeof type === "string" ? type : "application/json";
    run.called(contentType);
    const isEvents = contentType.startsWith("text/event-stream");
    // Only whole answers of chats are looked into: those of some back ends hold their pictures elsewhere.
    const isWhole = exchange === "chat" && !isEvents;
    return { contentType, body: isWhole ? run.whole(response) : run.pieces(response, isEvents) };
  } catch (thrown) {
    throw await run.fail(thrown);
  }
}

class Relay {
  readonly #deps: CoreDeps;
  readonly #chat: OpenedChat;
  readonly #exchange: ModelExchange | "chat";
  readonly #meter: ChatMeter;
  readonly #round: MeteredRound;
  readonly #messages: JsonObject[];
  readonly #lease: Lease;
  readonly #timer: NodeJS.Timeout;
  #reason: GatewayError | undefined;
  /** For whoever asks again with the same key; undefined: nobody can, or it is too much. */
  #kept: Uint8Array[] | undefined;
  #keptBytes = 0;
  #contentType = "";

  constructor(deps: CoreDeps, chat: OpenedChat, exchange: ModelExchange | "chat") {
    this.#deps = deps;
    this.#chat = chat;
    this.#exchange = exchange;
    this.#kept = exchange === "chat" || chat.idempotencyKey === undefined ? undefined : [];
    this.#messages = [...chat.messages];
    const { tenant, config } = chat.context;
    this.#meter = new ChatMeter({
      prices: config.prices,
      clock: deps.clock,
      routes: chat.routes,
      reserved: chat.reserved,
      answerTokens: answerTokens(chat.request, config),
      reserve: (amount, spent) => deps.repos.calls.reserve(tenant, chat.callId, 1, { amount, spent }),
    });
    this.#round = this.#meter.startRound(() => tokensOfPrompt(this.#messages));
    this.#lease = holdLease(deps, {
      tenant,
      id: chat.callId,
      attempt: 1,
      pollCancel: true,
      spent: () => this.#meter.spent,
      onEnd: () => this.#stop(new GatewayError("request_cancelled", "The request was cancelled.")),
    });
    const { wallClockMs } = chat;
    this.#timer = setTimeout(() => {
      this.#stop(new GatewayError("wall_clock_exceeded", `The request took longer than ${wallClockMs} ms.`));
    }, wallClockMs);
  }

  ask(): Promise<EgressResponse> {
    const { egress, clock, log, defaultProvider } = this.#deps;
    const { routes, credential, stop, request, context, late } = this.#chat;
    const provider = defaultProvider === undefined ? {} : { defaultProvider };
    return relayWithFallback(
      { egress, clock, log, credential, span: context.span, ...provider },
      {
        routes,
        signal: stop.signal,
        path: this.#exchange === "chat" ? "/chat/completions" : exchangePaths[this.#exchange],
        accept: request.stream ? "text/event-stream, application/json" : "application/json",
        bytesFor: (model) => this.#bytesFor(model),
        onRoute: (route: Route) => this.#round.answeredBy(route),
        sayLess: (failure) =>
          (mayRefusePictures(failure) && takePicturesOut(this.#messages).length > 0) ||
          (isRefusal(failure) && leaveOut(this.#messages, late) !== undefined),
      },
    );
  }

  /** The client's own bytes, unless the back end knows the model under another name. */
  #bytesFor(model: string): Uint8Array | string {
    const { original, request } = this.#chat;
    if (this.#exchange === "chat") {
      const stream = request.stream ? { stream: true } : {};
      return JSON.stringify({ ...request.passthrough, model, messages: this.#messages, ...stream });
    }
    if (original === undefined) return JSON.stringify({ ...request.passthrough, model });
    const own = original.body["model"] === model ? original.bytes : undefined;
    return own ?? JSON.stringify({ ...original.body, model });
  }

  async *pieces(response: EgressResponse, isEvents: boolean): AsyncGenerator<Uint8Array, void, void> {
    const reader = isEvents ? new EventUsage() : new WholeUsage();
    const keep = (piece: Uint8Array): void => this.#keep(piece);
    yield* this.#settled(async function* () {
      for await (const piece of response.body) {
        reader.read(piece);
        keep(piece);
        yield piece;
      }
      return reader.usage;
    });
  }

  called(contentType: string): void {
    this.#contentType = contentType;
  }

  #keep(piece: Uint8Array): void {
    this.#keptBytes += piece.byteLength;
    if (this.#keptBytes > largestKept) this.#kept = undefined;
    // The reader's buffer may be used again.
    else this.#kept?.push(Buffer.from(piece));
  }

  /** Not kept, it is the answer all the same. */
  async #outcome(): Promise<{ readonly outcome?: StoredOutcome }> {
    if (this.#kept === undefined) return {};
    const { context, callId } = this.#chat;
    try {
      const answer = { contentType: this.#contentType, body: Buffer.concat(this.#kept) };
      return { outcome: await storeAnswer(this.#deps, { tenant: context.tenant, callId }, answer) };
    } catch (thrown) {
      const fields = { call_id: callId, error: toGatewayError(thrown).code };
      this.#deps.log.log("error", "an answer is not kept for who asks again", fields);
      return {};
    }
  }

  /** An answer whose pictures are in `candidates` is that list alone, as upstream gives it. */
  async *whole(response: EgressResponse): AsyncGenerator<Uint8Array, void, void> {
    const name = this.#chat.routes[0]?.provider.name ?? "";
    yield* this.#settled(async function* () {
      const message = `Provider '${name}' answered more than ${largestWhole} bytes.`;
      const tooLarge = (): GatewayError => new GatewayError("provider_failed", message);
      const bytes = await readWithin(response.body, largestWhole, tooLarge);
      const answer = parseJson(bytes.toString("utf8"));
      if (!isJsonObject(answer))
        throw new GatewayError("provider_failed", `Provider '${name}' did not answer with JSON.`);
      const { candidates } = answer;
      yield candidates === undefined ? bytes : Buffer.from(JSON.stringify(candidates));
      return toUsage(answer);
    });
  }

  /** Whatever happens to the answer, its call is settled once. */
  async *#settled(
    read: () => AsyncGenerator<Uint8Array, Usage | undefined, void>,
  ): AsyncGenerator<Uint8Array, void, void> {
    let end: "completed" | GatewayError | undefined;
    try {
      const usage = yield* read();
      if (usage !== undefined) this.#round.see({ type: "usage", usage });
      end = "completed";
    } catch (thrown) {
      const error = this.#toError(thrown);
      end = error;
      throw error;
    } finally {
      // Undefined: whoever reads has left.
      await this.#settle(end === "completed" ? undefined : (end ?? this.#toError(undefined)));
    }
  }

  /** Settles a call whose back end gave no answer. */
  async fail(thrown: unknown): Promise<GatewayError> {
    const error = this.#toError(thrown);
    await this.#settle(error);
    return error;
  }

  #toError(thrown: unknown): GatewayError {
    if (this.#reason !== undefined) return this.#reason;
    if (thrown === undefined || this.#chat.stop.signal.aborted) {
      return outsideReason(this.#chat.stop.signal);
    }
    const error = toGatewayError(thrown);
    const isLost = error.code === "tool_unreachable" || error.code === "tool_timeout";
    return isLost
      ? new GatewayError("provider_stream_incomplete", "The back end broke off in the middle of its answer.", {
          cause: thrown,
        })
      : error;
  }

  #stop(reason: GatewayError): void {
    this.#reason ??= reason;
    this.#chat.stop.abort();
  }

  async #settle(error: GatewayError | undefined): Promise<void> {
    clearTimeout(this.#timer);
    this.#round.end();
    const { context, callId, late } = this.#chat;
    const state = error === undefined ? "completed" : error.code === "request_cancelled" ? "cancelled" : "failed";
    try {
      await this.#deps.repos.calls.settle(context.tenant, {
        callId,
        attempt: 1,
        finish: {
          state,
          ...(error === undefined ? await this.#outcome() : {}),
          ...(error === undefined ? {} : { error: { code: error.code, message: error.message } }),
          cost: this.#meter.cost,
          ...(this.#meter.usage === undefined ? {} : { usage: this.#meter.usage }),
        },
        calls: [],
        finished: [],
        // Whoever got no answer is told again.
        delivered: error === undefined ? late.ids : [],
      });
    } catch (thrown) {
      const fields = { call_id: callId, error: toGatewayError(thrown).code };
      this.#deps.log.log("error", "call of a model not settled", fields);
    } finally {
      this.#lease.stop();
    }
  }
}

/** Reads the usage of an answer while it passes. */
interface UsageReader {
  read(piece: Uint8Array): void;
  readonly usage: Usage | undefined;
}

class WholeUsage implements UsageReader {
  readonly #parts: Uint8Array[] = [];
  #length = 0;

  read(piece: Uint8Array): void {
    this.#length += piece.length;
    if (this.#length > largestWhole) this.#parts.length = 0;
    else this.#parts.push(piece);
  }

  get usage(): Usage | undefined {
    // Vectors are long: their numbers are not parsed for the few bytes that follow them.
    const text = Buffer.concat(this.#parts).toString("utf8");
    const at = text.lastIndexOf('"usage"');
    return at < 0 ? undefined : toUsage(parseJson(text));
  }
}

class EventUsage implements UsageReader {
  /** Undefined: an event was too large to be read, and no more are. */
  #scanner: SseScanner | undefined = new SseScanner();
  #usage: Usage | undefined;

  read(piece: Uint8Array): void {
    try {
      for (const { data } of this.#scanner?.feed(piece) ?? []) {
        if (data.includes('"usage"')) this.#usage = toUsage(parseJson(data)) ?? this.#usage;
      }
    } catch (thrown) {
      if (!(thrown instanceof SseEventTooLarge)) throw thrown;
      this.#scanner = undefined;
    }
  }

  get usage(): Usage | undefined {
    return this.#usage;
  }
}

/** In the words of chats, of pictures or of vectors, which have no answer to count. */
function toUsage(answer: JsonValue | undefined): Usage | undefined {
  const usage = isJsonObject(answer) ? answer["usage"] : undefined;
  if (!isJsonObject(usage)) return undefined;
  const prompt = countOf(usage["prompt_tokens"] ?? usage["input_tokens"]);
  const completion = countOf(usage["completion_tokens"] ?? usage["output_tokens"]) ?? 0;
  const total = countOf(usage["total_tokens"]);
  const asked = prompt ?? total;
  if (asked === undefined) return undefined;
  return usageOf(usage, { prompt: asked, completion, total: total ?? asked + completion });
}
