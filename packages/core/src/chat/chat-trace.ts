/**
 * Spans of a chat, by OpenTelemetry's conventions for generative AI: `invoke_agent` for the whole, one
 * `chat {model}` for each turn of the model. What is said never becomes an attribute.
 */
import type { MeteredRound } from "../budgets/chat-meter.ts";
import type { Usage } from "../calls/usage.ts";
import type { ErrorCode } from "../errors/catalog.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import { isJsonObject } from "../json.ts";
import type { CallFinish } from "../ports/calls.ts";
import type { Attributes, Span } from "../ports/traces.ts";
import type { OpenedChat } from "./opened-chat.ts";
import type { ProviderEvent } from "./providers/provider.ts";
import type { Route } from "./providers/route.ts";

export class ChatTrace {
  readonly span: Span;
  readonly #chat: OpenedChat;
  #rounds = 0;
  #finishReasons: readonly string[] = [];

  /** Undefined where the chat's request is not traced. */
  static of(chat: OpenedChat): ChatTrace | undefined {
    const { span } = chat.context;
    return span === undefined ? undefined : new ChatTrace(chat, span);
  }

  private constructor(chat: OpenedChat, above: Span) {
    const { callId, context, request, routes } = chat;
    this.#chat = chat;
    this.span = above.child("invoke_agent", "internal", {
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.provider.name": providerNameOf(routes[0]),
      "gen_ai.request.model": routes[0]?.requestedModel,
      "gen_ai.conversation.id": request.sessionId,
      "gen_ai.request.stream": request.stream,
      "gen_ai.request.choice.count": request.choices === 1 ? undefined : request.choices,
      "toolyard.tenant": context.tenant,
      "toolyard.call.id": callId,
    });
  }

  startRound(round: MeteredRound): TracedRound {
    this.#rounds += 1;
    return new TracedRound(this.span, round, {
      chat: this.#chat,
      onReasons: (reasons) => {
        this.#finishReasons = reasons;
      },
    });
  }

  end({ state, code, usage }: ChatEnd): void {
    this.span.set({
      ...usageAttributes(usage),
      "gen_ai.response.finish_reasons": this.#finishReasons.length === 0 ? undefined : this.#finishReasons,
      "toolyard.chat.rounds": this.#rounds,
      "toolyard.call.state": state,
    });
    if (code !== undefined) this.span.fail(code);
    this.span.end();
  }
}

interface ChatEnd {
  readonly state: CallFinish["state"];
  readonly code: ErrorCode | undefined;
  /** What back ends said. */
  readonly usage: Usage | undefined;
}

interface RoundOptions {
  readonly chat: OpenedChat;
  readonly onReasons: (reasons: readonly string[]) => void;
}

/** One turn of the model, whichever back ends were asked for it. */
class TracedRound implements MeteredRound {
  readonly span: Span;
  readonly #round: MeteredRound;
  readonly #options: RoundOptions;
  readonly #startedAt = performance.now();
  readonly #reasons = new Map<number, string>();
  #hasText = false;

  constructor(above: Span, round: MeteredRound, options: RoundOptions) {
    const { request, routes } = options.chat;
    const model = routes[0]?.model;
    this.#round = round;
    this.#options = options;
    this.span = above.child(model === undefined ? "chat" : `chat ${model}`, "client", {
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": providerNameOf(routes[0]),
      "gen_ai.request.model": model,
      "gen_ai.request.stream": request.stream,
    });
  }

  answeredBy(route: Route): void {
    this.#round.answeredBy(route);
    const { model, provider } = route;
    const address = URL.parse(provider.baseUrl);
    this.span.rename(`chat ${model}`);
    this.span.set({
      "gen_ai.provider.name": providerNameOf(route),
      "gen_ai.request.model": model,
      "server.address": address?.hostname,
      "server.port": address === null ? undefined : Number(address.port) || (address.protocol === "http:" ? 80 : 443),
      "toolyard.provider": provider.name,
    });
  }

  see(event: ProviderEvent): void {
    this.#round.see(event);
    switch (event.type) {
      case "start":
        this.span.set({ "gen_ai.response.id": event.id, "gen_ai.response.model": event.model });
        return;
      case "usage":
        this.span.set(usageAttributes(event.usage));
        return;
      case "message":
        this.#reasons.set(event.choice, event.finishReason);
        return;
      case "response":
        return;
      case "text-delta":
      case "reasoning-delta":
      case "refusal-delta":
      case "other-delta":
      case "tool-call-delta":
        this.#seeText();
        return;
      default:
        event satisfies never;
    }
  }

  fail(thrown: unknown): void {
    this.span.fail(toGatewayError(thrown).code);
  }

  end(): void {
    this.#round.end();
    const reasons = [...this.#reasons.values()];
    if (reasons.length > 0) {
      this.#options.onReasons(reasons);
      this.span.set({ "gen_ai.response.finish_reasons": reasons });
    }
    this.span.end();
  }

  #seeText(): void {
    if (this.#hasText || !this.#options.chat.request.stream) return;
    this.#hasText = true;
    this.span.set({ "gen_ai.response.time_to_first_chunk": (performance.now() - this.#startedAt) / 1_000 });
  }
}

/** The dialect that is spoken, which is what the conventions mean by it. */
function providerNameOf(route: Route | undefined): string | undefined {
  if (route === undefined) return undefined;
  return route.owner === "built-in" ? "toolyard" : route.provider.kind;
}

function usageAttributes(usage: Usage | undefined): Attributes {
  if (usage === undefined) return {};
  return {
    "gen_ai.usage.input_tokens": usage.prompt_tokens,
    "gen_ai.usage.output_tokens": usage.completion_tokens,
    "gen_ai.usage.cache_read.input_tokens": detailOf(usage, "prompt_tokens_details", "cached_tokens"),
    "gen_ai.usage.reasoning.output_tokens": detailOf(usage, "completion_tokens_details", "reasoning_tokens"),
  };
}

function detailOf(usage: Usage, group: string, name: string): number | undefined {
  const details = usage[group];
  const value = isJsonObject(details) ? details[name] : undefined;
  return typeof value === "number" ? value : undefined;
}
