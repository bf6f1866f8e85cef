/**
 * Clients that are connected through `/ws`: who they are, what they listen to, and what they are told
 * (design "Public contract", realtime). The rows decide who listens, whichever process holds the socket.
 */
import * as z from "zod";
import { roleSchema, scopes, type Caller } from "../callers/caller.ts";
import { knownValues } from "../known-values.ts";

/** Of the messages. Clients say it in their `hello`; what other versions mean is decided when there are some. */
export const protocolVersion = 1;

/** The same words as webhooks have, and those that only who watches cares for. */
export const callEventSchema = z.enum([
  "call.queued",
  "call.running",
  "call.approval_required",
  "call.completed",
  "call.failed",
  "call.cancelled",
  "call.unknown",
  "call.rejected",
  "call.progress",
]);
type CallEvent = z.infer<typeof callEventSchema>;

/** For whoever holds the connection that it is for, which counts no more; never told to its client. */
export const endedEvent = "connection.ended";

const filters = {
  session_id: z.string().min(1).max(200).exactOptional(),
  call_id: z.string().min(1).max(200).exactOptional(),
};

/** What a connection wants to hear of; filters that are left out let everything through that its caller may see. */
export const subscriptionSchema = z.discriminatedUnion("topic", [
  z.strictObject({
    topic: z.literal("calls"),
    events: z.array(callEventSchema).min(1).max(callEventSchema.options.length).exactOptional(),
    ...filters,
  }),
  z.strictObject({ topic: z.literal("logs"), ...filters }),
  z.strictObject({ topic: z.literal("group_chat"), group_chat_id: z.string().min(1).max(200) }),
  /** The device of a client of the type `VCPLog`: what it misses while it is away is kept. */
  z.strictObject({ topic: z.literal("vcp_log"), device: z.string().min(1).max(128) }),
]);
export type Subscription = z.infer<typeof subscriptionSchema>;

/** A caller as it was when it connected; kept with the connection. */
export const callerSchema: z.ZodType<Caller> = z.object({
  kind: z.enum(["operator", "key", "user", "subscription", "hook"]),
  id: z.string(),
  role: roleSchema,
  scopes: knownValues(scopes),
  tools: z.array(z.string()).nullable(),
  userId: z.string().exactOptional(),
  businessUnit: z.string().exactOptional(),
});

export interface Connection {
  /** As the host names it that holds the socket. */
  readonly id: string;
  readonly tenant: string;
  /** The process that holds the socket; null: the WebSocket API of AWS does. */
  readonly holder: string | null;
  readonly caller: Caller;
  /** What kind of client it calls itself; broadcasts can be for one kind. */
  readonly clientType: string | null;
  /** By the names that the client gave them. */
  readonly subscriptions: Readonly<Record<string, Subscription>>;
  /** When it ends, however alive it is. */
  readonly closesAt: number;
}

export interface NewConnection {
  readonly id: string;
  readonly holder: string | null;
  readonly caller: Caller;
  readonly clientType: string | null;
  /** Without a sign of life it counts as gone after so long. */
  readonly lifetimeMs: number;
  /** Credentials run out then, and the connection with them. */
  readonly until: number | null;
}

/** For whom an event is. `calls` and `logs`: for those subscriptions that fit and callers that may see it. */
export type Audience =
  | { readonly kind: "calls" | "logs" | "tenant" }
  | {
      readonly kind: "connection" | "user" | "session" | "client_type" | "group_chat";
      readonly value: string;
    };

/** Something to tell that no change of a call's row says by itself. */
export interface NewEvent {
  readonly type: string;
  readonly audience: Audience;
  /** JSON of the frame's `data`. */
  readonly data: string;
  /** The whole frame, for clients that expect no envelope; absent: it is made of the rest. */
  readonly frame?: string;
  readonly callId: string | null;
  readonly callerId: string | null;
  readonly sessionId: string | null;
}

export interface RealtimeEvent {
  readonly tenant: string;
  /** Rises with every event of a tenant. */
  readonly seq: number;
  readonly type: CallEvent | (string & {});
  readonly audience: Audience;
  readonly callId: string | null;
  /** Whose call it is about. */
  readonly callerId: string | null;
  readonly sessionId: string | null;
  /** The call waits for a person, or has: those who decide may see it. */
  readonly decided: boolean;
  /** The frame, without the names of subscriptions. */
  readonly body: string;
  readonly createdAt: number;
}

export interface ClaimedConnection extends Connection {
  /** Who has said nothing yet may still be connecting: until its `$connect` has ended, API Gateway calls it gone. */
  readonly isConnecting: boolean;
}

/** An event that is sent from here, and to whom it may go. */
export interface ClaimedEvent {
  readonly event: RealtimeEvent;
  readonly attempt: number;
  readonly connections: readonly ClaimedConnection[];
}

/** Does anybody of a tenant listen? Comes with what is read anyway. */
export interface Listeners {
  readonly calls: boolean;
  readonly logs: boolean;
  /** Clients of the type `VCPLog`, those that are away for a short time, too. */
  readonly vcp?: boolean;
}
