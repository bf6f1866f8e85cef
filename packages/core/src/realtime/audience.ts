/**
 * For whom an event is. A caller hears of the calls that it may read, by the rule of `GET /v1/calls`
 * (calls/view.ts), whatever it has subscribed to.
 */
import { hasScope, type Caller } from "../callers/caller.ts";
import type { Connection, RealtimeEvent, Subscription } from "./connection.ts";

/** Names of the subscriptions that an event fits; `undefined`: it is not for this connection. */
export function namesFor(connection: Connection, event: RealtimeEvent): readonly string[] | undefined {
  if (connection.tenant !== event.tenant) return undefined;
  const { audience } = event;
  switch (audience.kind) {
    case "calls":
    case "logs":
      return namesOfFitting(connection, event);
    case "tenant":
      return isAbout(connection, event) ? [] : undefined;
    case "connection":
      return audience.value === connection.id ? [] : undefined;
    case "user":
      return audience.value === connection.caller.userId ? [] : undefined;
    case "client_type":
      return audience.value === connection.clientType && isAbout(connection, event) ? [] : undefined;
    case "session": {
      const isOf = Object.values(connection.subscriptions).some(
        (subscription) => "session_id" in subscription && subscription.session_id === audience.value,
      );
      return isOf && maySee(connection.caller, event) ? [] : undefined;
    }
    case "group_chat":
      return namesOfRoom(connection, audience.value);
  }
}

/** Who may not see the room any more has no subscription to it (`GroupChatRepo`). */
function namesOfRoom({ subscriptions }: Connection, room: string): readonly string[] | undefined {
  const names = Object.entries(subscriptions).flatMap(([name, subscription]) =>
    subscription.topic === "group_chat" && subscription.group_chat_id === room ? [name] : [],
  );
  return names.length === 0 ? undefined : names;
}

/** What is about somebody's call is for those who may see the call; what is about none is for all. */
function isAbout({ caller }: Connection, event: RealtimeEvent): boolean {
  return event.callerId === null || maySee(caller, event);
}

function namesOfFitting({ caller, subscriptions }: Connection, event: RealtimeEvent): readonly string[] | undefined {
  if (!maySee(caller, event)) return undefined;
  const fitting = Object.entries(subscriptions).filter(([, subscription]) => fits(subscription, event));
  return fitting.length === 0 ? undefined : fitting.map(([name]) => name);
}

function fits(subscription: Subscription, { audience, type, callId, sessionId }: RealtimeEvent): boolean {
  if (subscription.topic !== "calls" && subscription.topic !== "logs") return false;
  if (subscription.topic !== audience.kind) return false;
  if (subscription.call_id !== undefined && subscription.call_id !== callId) return false;
  if (subscription.session_id !== undefined && subscription.session_id !== sessionId) return false;
  return subscription.topic === "logs" || (subscription.events?.some((event) => event === type) ?? true);
}

function maySee(caller: Caller, { callerId, decided }: RealtimeEvent): boolean {
  return callerId === caller.id || hasScope(caller, "calls") || (decided && hasScope(caller, "approve"));
}
