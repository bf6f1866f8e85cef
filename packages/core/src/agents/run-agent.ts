/**
 * Runs an agent for whoever has a conversation for it: `agent://`, flows, group chats. It is a chat like any other,
 * admitted, limited, billed and recorded under the call that asks for it.
 */
import type { CallPlace } from "../calls/new-call.ts";
import type { ChatEvent } from "../chat/events.ts";
import { openChat } from "../chat/open-chat.ts";
import { runChat } from "../chat/run-chat.ts";
import { eventsOfBody } from "../chat/stored-chat.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { JsonObject } from "../json.ts";
import { agentModelOf } from "./agent.ts";

export type AgentEvent =
  | ChatEvent
  /** This agent has the word. */
  | { readonly type: "thinking"; readonly agent: string; readonly chatId: string };

export interface AgentRequest {
  /** Its name. */
  readonly agent: string;
  readonly messages: readonly JsonObject[];
  /** The call that asks, and the one under which the agent's writes are deduplicated. */
  readonly place: CallPlace;
  readonly signal: AbortSignal;
  /** Milliseconds. */
  readonly timeLimitMs?: number | undefined;
  /** The messages have been made of content from outside. */
  readonly readOutside?: boolean | undefined;
  /** It was tried before, and may have written. */
  readonly isRepeated?: boolean | undefined;
}

/**
 * Its last event is `finish` or `error`.
 * @param context of the caller, or of the agent that calls this one
 * @throws GatewayError whatever refuses the chat before it begins
 */
export async function* runAgent(
  core: CoreDeps,
  context: CallContext,
  request: AgentRequest,
): AsyncGenerator<AgentEvent, void, void> {
  const { agent, signal } = request;
  const stop = new AbortController();
  const end = (): void => stop.abort(signal.reason);
  if (signal.aborted) end();
  else signal.addEventListener("abort", end, { once: true });
  try {
    const opening = await openChat(core, { ...inputOf(context, request), stop });
    const chatId = opening.callId;
    yield { type: "thinking", agent, chatId };
    const batches = opening.kind === "run" ? runChat(core, opening.chat) : [[...eventsOfBody(opening.body)]];
    for await (const batch of batches) {
      for (const event of batch) {
        yield event;
        if (event.type === "handoff") yield { type: "thinking", agent: event.to, chatId };
      }
    }
  } finally {
    signal.removeEventListener("abort", end);
  }
}

function inputOf(
  { tenant, caller, requestId, traceId, span, sessionId, purse, runtimeConfig }: CallContext,
  { agent, messages, place, timeLimitMs, readOutside = false, isRepeated = false }: AgentRequest,
): Omit<Parameters<typeof openChat>[1], "stop"> {
  const body = {
    model: agentModelOf({ name: agent }),
    messages: [...messages],
    stream: true,
    ...(sessionId === undefined ? {} : { session_id: sessionId }),
  };
  return {
    tenant,
    principal: { kind: "known", caller },
    requestId,
    traceId,
    span,
    route: place.route,
    inner: {
      agent,
      parentId: place.parentId,
      rootId: place.rootId,
      via: place.via ?? [],
      sessionId,
      purse,
      runtimeConfig,
      readOutside,
      isRepeated,
    },
    body,
    rawBody: Buffer.from(JSON.stringify(body)),
    isSdkRetry: false,
    ...(timeLimitMs === undefined ? {} : { timeLimitMs }),
  };
}
