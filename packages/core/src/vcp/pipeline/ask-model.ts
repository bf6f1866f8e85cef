/**
 * A question to a model in the course of another chat: a chat of its own, admitted, limited, billed and recorded like
 * all others, below the one that needs it.
 */
import { ChatCollector } from "../../chat/collect.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import { textOf } from "../message-text.ts";

export interface Question {
  readonly model: string;
  readonly messages: readonly JsonObject[];
  /** The chat that needs the answer. */
  readonly within: string;
  readonly signal: AbortSignal;
}

/** The text of the answer. @throws GatewayError whatever refuses or ends a chat */
export async function askModel(
  deps: CoreDeps,
  { tenant, caller, requestId, traceId, span }: CallContext,
  { model, messages, within, signal }: Question,
): Promise<string> {
  const [{ openChat }, { runChat }] = await Promise.all([
    import("../../chat/open-chat.ts"),
    import("../../chat/run-chat.ts"),
  ]);
  const body = { model, messages: [...messages], tool_execution: "manual", tool_protocol: "openai" };
  const stop = new AbortController();
  const end = (): void => stop.abort(signal.reason);
  signal.addEventListener("abort", end, { once: true });
  try {
    const opening = await openChat(deps, {
      tenant,
      principal: { kind: "known", caller },
      requestId,
      traceId,
      span,
      route: "pipeline",
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

function answerOf({ choices }: JsonObject): string {
  const [first] = Array.isArray(choices) ? choices : [];
  const message = isJsonObject(first) && isJsonObject(first["message"]) ? first["message"] : {};
  const text = textOf(message).trim();
  if (text === "") throw new GatewayError("provider_failed", "The model answered without a text.");
  return text;
}
