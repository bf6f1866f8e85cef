/**
 * What clients may say, one entry a message type, and what they are answered: JSON text, `{type, id, …}`.
 * A type that is not known is an error for its sender and nothing else, so that newer clients can try.
 */
import * as z from "zod";
import { requireScope } from "../calls/admit.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { schemaProblem } from "../errors/schema-problems.ts";
import { toOpenAiError } from "../errors/to-openai.ts";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import { protocolVersion, subscriptionSchema, type Connection } from "./connection.ts";
import { nodeMessages } from "../nodes/messages.ts";
import { subscriptionMessages } from "../subscriptions/messages.ts";
import { moduleMessages } from "../vcp/modules/messages.ts";
import { vcpMessages } from "../vcp/nodes/messages.ts";
import { longestFrame } from "./frames.ts";
import { defineMessage, type MessageKind } from "./message-kind.ts";

/** A client is to send something at least so often: API Gateway ends what is silent for ten minutes. */
const heartbeatS = 240;
/** How long a connection that nobody holds counts as alive after a message. */
export const silentLifetimeMs = 660_000;

const name = z.string().regex(/^[A-Za-z0-9][\w.:-]{0,63}$/, "must have 1 to 64 letters, digits, '_', '-', '.' or ':'");

const kinds = {
  hello: defineMessage({
    schema: z.strictObject({ type: z.literal("hello"), id: name.optional(), version: z.literal(protocolVersion) }),
    answer: ({ clock }, { id, clientType, closesAt }) =>
      Promise.resolve({
        type: "welcome",
        version: protocolVersion,
        connection_id: id,
        client_type: clientType,
        heartbeat_s: heartbeatS,
        max_frame_bytes: longestFrame,
        closes_at: new Date(closesAt).toISOString(),
        server_time: new Date(clock.now()).toISOString(),
      }),
  }),
  ping: defineMessage({
    schema: z.strictObject({ type: z.literal("ping"), id: name.optional() }),
    answer: ({ clock }) => Promise.resolve({ type: "pong", server_time: new Date(clock.now()).toISOString() }),
  }),
  subscribe: defineMessage({
    schema: z
      .looseObject({ type: z.literal("subscribe"), id: name })
      .transform(({ type: _type, id, ...wanted }) => ({ id, wanted })),
    async answer({ repos }, { tenant, id: connection, caller }, { id, wanted }) {
      const parsed = subscriptionSchema.safeParse(wanted);
      if (!parsed.success) throw invalidMessage(parsed.error);
      if (parsed.data.topic === "group_chat") {
        requireScope(caller, "chat");
        // Code that is seldom needed.
        const { findGroupChat } = await import("../group-chats/members.ts");
        await findGroupChat({ repos }, { tenant, caller }, parsed.data.group_chat_id);
      }
      const subscribed = await repos.connections.subscribe(tenant, connection, id, parsed.data);
      if (subscribed === undefined) throw connectionGone();
      if (subscribed === "full") {
        throw new GatewayError("concurrency_limited", "A connection has at most 50 subscriptions; end one first.");
      }
      return { type: "subscribed", seq: subscribed.seq };
    },
  }),
  unsubscribe: defineMessage({
    schema: z.strictObject({ type: z.literal("unsubscribe"), id: name }),
    async answer({ repos }, { tenant, id: connection }, { id }) {
      if ((await repos.connections.unsubscribe(tenant, connection, id)) === undefined) throw connectionGone();
      return { type: "unsubscribed" };
    },
  }),
  ...nodeMessages,
  ...subscriptionMessages,
  ...vcpMessages,
  ...moduleMessages,
} as const;

const typeNames: readonly string[] = Object.keys(kinds);

function isKnown(type: unknown): type is keyof typeof kinds {
  return typeof type === "string" && Object.hasOwn(kinds, type);
}

/** The frame that answers a message. Never throws: what goes wrong is the answer. */
export async function answerMessage(deps: CoreDeps, connection: Connection, text: string): Promise<string> {
  const message = parseJson(text);
  const id = idOf(message);
  const echo = id === undefined ? {} : { id };
  try {
    if (message === undefined) throw new GatewayError("invalid_json", "The message is not JSON.");
    const { type, ...answer } = await dispatch(deps, connection, message);
    return JSON.stringify({ type, ...echo, ...answer });
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.spec.http >= 500) {
      const { tenant, caller } = connection;
      deps.log.log("warn", "a message of a client was not answered", { tenant, caller: caller.id, code: error.code });
    }
    return toErrorFrame(error, id);
  }
}

/** The frame that answers a message which is not looked at. */
export function refuseMessage(error: GatewayError, text: string): string {
  return toErrorFrame(error, idOf(parseJson(text)));
}

function idOf(message: unknown): string | undefined {
  return isJsonObject(message) && typeof message["id"] === "string" ? message["id"].slice(0, 64) : undefined;
}

function toErrorFrame(error: GatewayError, id?: string): string {
  return JSON.stringify({ type: "error", ...(id === undefined ? {} : { id }), ...toOpenAiError(error) });
}

export function connectionGone(): GatewayError {
  return new GatewayError("not_found", "This connection counts as gone; connect again.");
}

function dispatch(deps: CoreDeps, connection: Connection, message: unknown): Promise<JsonObject> {
  const type = isJsonObject(message) ? message["type"] : undefined;
  if (!isKnown(type)) {
    throw new GatewayError("invalid_request", `'type' must be one of ${typeNames.join(", ")}.`, { param: "type" });
  }
  // One entry's schema and answer belong together; the compiler sees the union of them.
  const kind = kinds[type] as MessageKind<unknown>;
  const parsed = kind.schema.safeParse(message);
  if (!parsed.success) throw invalidMessage(parsed.error);
  return kind.answer(deps, connection, parsed.data);
}

function invalidMessage(error: z.ZodError): GatewayError {
  const { path, says } = schemaProblem(error);
  const param = path.join(".");
  const where = param === "" ? "The message" : `The message's field '${param}'`;
  return new GatewayError("invalid_request", `${where} ${says}.`, param === "" ? {} : { param });
}
