/**
 * From a request to a turn: the call that it is, made by the dispatcher like every other, and what a person says kept
 * at once, so that the others read it also where the turn has to wait.
 */
import { invokeTool, type Invoked, type InvokeRequest } from "../calls/invoke.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { isJsonObject, parseJson } from "../json.ts";
import { formatToolUri } from "../tools/uri.ts";
import { turnReasons, type GroupChatEvent, type TurnReason } from "./events.ts";
import type { GroupChatMessage } from "./group-chat.ts";
import { authorOf, findGroupChat } from "./members.ts";

export type TurnRequest = Pick<
  InvokeRequest,
  "tenant" | "principal" | "requestId" | "traceId" | "span" | "idempotencyKey" | "signal"
> & {
  readonly groupChat: string;
  /** `redo`: what was said last is answered anew. */
  readonly asked: { readonly content: string; readonly name?: string | undefined } | "redo";
  /** By a worker; else while the caller waits. */
  readonly later: boolean;
  readonly onEvent?: (event: GroupChatEvent) => void;
};

export interface StartedTurn extends Pick<Invoked, "callId" | "callerId" | "rate" | "replayed"> {
  /** Of the turn, as far as it has come. */
  readonly messages: readonly GroupChatMessage[];
  /** Undefined: a worker has it. */
  readonly reason: TurnReason | undefined;
}

/** @throws GatewayError `not_found`, `conflict`, and whatever keeps a call from being accepted or a turn from its end */
export async function startTurn(core: CoreDeps, request: TurnRequest): Promise<StartedTurn> {
  const { groupChat: id, asked, later, onEvent, ...who } = request;
  let reason: TurnReason | undefined;
  const invoked = await invokeTool(core, {
    ...who,
    scope: "chat",
    route: "group_chats.turn",
    target: async (context) => {
      await checkRoom(core, context, { id, isRedo: asked === "redo" });
      return { target: formatToolUri("group", id), isUri: true };
    },
    arguments: asked === "redo" ? { redo: true } : { content: asked.content, ...named(asked.name) },
    async: later,
    via: [{ kind: "group_chat", id }],
    onEvent: (event) => {
      if (event.type === "chat:end") ({ reason } = event);
      onEvent?.(event);
    },
  });
  if (invoked.outcome.kind === "pending" && asked !== "redo") await keepSaying(core, invoked, { id, asked });
  const { callId, callerId, rate, replayed } = invoked;
  reason ??= reasonOf(invoked);
  const messages = await core.repos.groupChats.turn(request.tenant, id, callId);
  return { callId, callerId, rate, replayed, messages, reason };
}

function named(name: string | undefined): { readonly name?: string } {
  return name === undefined ? {} : { name };
}

async function checkRoom(
  core: CoreDeps,
  context: CallContext,
  { id, isRedo }: { readonly id: string; readonly isRedo: boolean },
): Promise<void> {
  const room = await findGroupChat(core, context, id);
  if (!isRedo || room.currentTurn === null) return;
  throw new GatewayError(
    "conflict",
    "A turn of this group chat is under way; stop it with POST /v1/group_chats/{id}/stop, or wait for its end.",
    { extra: { turn_id: room.currentTurn } },
  );
}

/** The worker may have done it already, and does it where this process dies before. */
async function keepSaying(
  { repos }: CoreDeps,
  { callId, context }: Invoked,
  said: { readonly id: string; readonly asked: Exclude<TurnRequest["asked"], "redo"> },
): Promise<void> {
  const { tenant, caller } = context;
  const room = await repos.groupChats.get(tenant, said.id);
  if (room === undefined) return;
  const { content, name } = said.asked;
  const author = authorOf(room, caller, name);
  await repos.groupChats.say(tenant, said.id, { id: newId("message"), turn: callId, author, content });
}

/** @throws GatewayError what the turn came to that has not said so itself */
function reasonOf({ callId, outcome }: Invoked): TurnReason | undefined {
  switch (outcome.kind) {
    case "pending":
      return undefined;
    case "completed": {
      const summary = parseJson(outcome.text);
      const said = isJsonObject(summary) ? summary["reason"] : undefined;
      return turnReasons.find((reason) => reason === said) ?? "completed";
    }
    case "failed":
    case "rejected":
      if (outcome.code === "call_cancelled") return "stopped";
      throw new GatewayError(outcome.code, outcome.message, { extra: { ...outcome.details, call_id: callId } });
    default:
      return outcome satisfies never;
  }
}
