/**
 * A turn as a call (`group://{id}`): what a person says to a room, or the wish to hear the last answers anew. Turns of
 * one room follow each other; one that has to wait does so without holding anything but, where its request waits with
 * it, that.
 */
import * as z from "zod";
import { wakeCall } from "../calls/wake.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import type { BegunTurn } from "../ports/group-chats.ts";
import { withDelivery } from "../errors/delivery.ts";
import { Parked, type InvocationContext, type ToolCall, type ToolReply } from "../tools/tool-call.ts";
import { waitForOutage } from "../tools/wait-for-outage.ts";
import { authorOf, displayNameSchema, findGroupChat, noSuchGroupChat } from "./members.ts";
import { Turn, type TurnCall, type TurnEnd } from "./turn.ts";

/** One of the two. */
const converseSchema = z.strictObject({
  content: z.string().min(1).max(100_000).optional().describe("What the person says."),
  name: displayNameSchema.optional().describe("As whom; absent: as the room knows the person."),
  redo: z.literal(true).optional().describe("The agents answer anew what was said last."),
});

const lookAgainMs = 250;
/** Whoever has the room wakes the next one; this is for rooms whose holder died. */
const parkedMs = 5_000;

export async function converse(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  const end = await takeTurn(deps, call, context).catch((thrown: unknown) => {
    // Of whoever has left nothing waits.
    throw (context.signal.aborted ? undefined : waitForOutage(context, thrown)) ?? thrown;
  });
  // What was stopped says so by its state; the answers that there are stay.
  if (end.reason === "stopped")
    throw withDelivery(new GatewayError("call_cancelled", "The turn was stopped."), "answered");
  if (end.reason === "failed" && end.error !== undefined) throw withDelivery(end.error, "answered");
  return { mediaType: "application/json", body: JSON.stringify(summaryOf(call.uri.service, call.id, end)) };
}

async function takeTurn(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<TurnEnd> {
  const { tenant } = context;
  const id = call.uri.service;
  const begun = await beforeTurn(deps, call, context);
  let end: TurnEnd;
  try {
    end = await new Turn(deps, context, { call, begun }).run();
  } catch (thrown) {
    // One that waits keeps the room, and goes on there behind what was said.
    if (!isOutage(toGatewayError(thrown))) await leave(deps, tenant, id, call);
    throw thrown;
  }
  // It is over, and with its call it leaves the room anyway.
  await leave(deps, tenant, id, call).catch((thrown: unknown) => {
    if (!isOutage(toGatewayError(thrown))) throw thrown;
  });
  return end;
}

/** Waits for the room. */
async function beforeTurn(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<BegunTurn> {
  try {
    const { content, name, redo = false } = converseSchema.parse(call.arguments);
    if ((content === undefined) !== redo) throw oneOfTwo();
    const id = call.uri.service;
    const room = await findGroupChat(deps, context, id);
    if (content !== undefined) {
      await deps.repos.groupChats.say(context.tenant, id, {
        id: newId("message"),
        turn: call.id,
        author: authorOf(room, context.caller, name),
        content,
      });
    }
    return await takeRoom(deps, context, { id, turn: call, redo });
  } catch (thrown) {
    throw thrown instanceof GatewayError && thrown.spec.http < 500 ? withDelivery(thrown, "not_sent") : thrown;
  }
}

function oneOfTwo(): GatewayError {
  return new GatewayError("invalid_arguments", "A turn needs either 'content' or 'redo'.", { param: "content" });
}

async function takeRoom(
  deps: CoreDeps,
  { tenant, signal, onEvent }: InvocationContext,
  { id, turn, redo }: { readonly id: string; readonly turn: TurnCall; readonly redo: boolean },
): Promise<BegunTurn> {
  for (;;) {
    const begun = await deps.repos.groupChats.begin(tenant, id, { id: turn.id, redo });
    if (begun === undefined) throw noSuchGroupChat(id);
    if (begun === "nothing_to_redo") {
      await leave(deps, tenant, id, turn);
      throw new GatewayError("conflict", "Nothing was said in this group chat yet; there is nothing to answer anew.");
    }
    if (begun !== "busy") return begun;
    // Nobody waits with it.
    if (onEvent === undefined) throw new Parked(parkedMs);
    if (signal.aborted) throw new GatewayError("call_cancelled", "The turn was stopped before it began.");
    await deps.clock.sleep(lookAgainMs, signal).catch(() => undefined);
  }
}

async function leave(deps: CoreDeps, tenant: string, id: string, turn: TurnCall): Promise<void> {
  const next = await deps.repos.groupChats.end(tenant, id, { id: turn.id, attempt: turn.attempt });
  if (next !== undefined) await wakeCall(deps, tenant, next);
}

function summaryOf(id: string, turn: string, { reason, messages }: TurnEnd): JsonObject {
  return {
    object: "group_chat.turn",
    id: turn,
    group_chat_id: id,
    reason,
    messages: messages.map((message) => ({
      id: message.id,
      agent: message.author.name,
      state: message.state,
      content: message.content,
    })),
  };
}
