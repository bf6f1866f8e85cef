/**
 * A question to a model in the course of another chat: a chat of its own, admitted, limited, billed and recorded like
 * all others, below the one that needs it.
 */
import { ChatCollector } from "../../chat/collect.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import { textOf } from "../message-text.ts";

export interface Question {
  /** Absent: the one that the tenant means where a request names none. */
  readonly model?: string | undefined;
  readonly messages: readonly JsonObject[];
  /** The chat that needs the answer. */
  readonly within: string;
  readonly signal: AbortSignal;
  /** Where it is asked from; default: the pipeline. */
  readonly route?: string;
}

export interface ModelAnswer {
  readonly text: string;
  /** Of question and answer, where the back end says it. */
  readonly tokens: number | undefined;
}

/** The text of the answer. @throws GatewayError whatever refuses or ends a chat */
export async function askModel(deps: CoreDeps, context: CallContext, question: Question): Promise<string> {
  return (await askModelWithUsage(deps, context, question)).text;
}

/** @throws GatewayError whatever refuses or ends a chat */
export async function askModelWithUsage(
  deps: CoreDeps,
  { tenant, caller, requestId, traceId, span }: CallContext,
  { model, messages, within, signal, route = "pipeline" }: Question,
): Promise<ModelAnswer> {
  const [{ openChat }, { runChat }] = await Promise.all([
    import("../../chat/open-chat.ts"),
    import("../../chat/run-chat.ts"),
  ]);
  const body = {
    ...(model === undefined ? {} : { model }),
    messages: [...messages],
    tool_execution: "manual",
    tool_protocol: "openai",
  };
  const stop = new AbortController();
  const end = (): void => stop.abort(signal.reason);
  if (signal.aborted) end();
  else signal.addEventListener("abort", end, { once: true });
  try {
    const opening = await openChat(deps, {
      tenant,
      principal: { kind: "known", caller },
      requestId,
      traceId,
      span,
      route,
      within,
      body,
      rawBody: Buffer.from(JSON.stringify(body)),
      isSdkRetry: false,
      stop,
    });
    if (opening.kind === "replay") return answerOf(opening.body);
    const collector = new ChatCollector();
    for await (const batch of runChat(deps, opening.chat)) {
      for (const event of batch) {
        if (event.type === "error") throw event.error;
        collector.add(event);
      }
    }
    return answerOf(collector.body());
  } finally {
    signal.removeEventListener("abort", end);
  }
}

function answerOf({ choices, usage }: JsonObject): ModelAnswer {
  const [first] = Array.isArray(choices) ? choices : [];
  const message = isJsonObject(first) && isJsonObject(first["message"]) ? first["message"] : {};
  const text = textOf(message).trim();
  if (text === "") throw new GatewayError("provider_failed", "The model answered without a text.");
  const tokens = isJsonObject(usage) ? usage["total_tokens"] : undefined;
  return { text, tokens: typeof tokens === "number" ? tokens : undefined };
}
