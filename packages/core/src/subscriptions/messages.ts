/**
 * What nodes that hold subscriptions say on their connection (docs/nodes.md); needs the scope `consume`. What it
 * takes is read when somebody asks: most processes never meet such a node.
 */
import * as z from "zod";
import { hasScope } from "../callers/caller.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { nodeNameSchema } from "../nodes/node.ts";
import type { Connection } from "../realtime/connection.ts";
import { defineMessage, type MessageKind } from "../realtime/message-kind.ts";
import { broughtFieldsSchema, broughtMessageSchema, readBrought } from "./message.ts";

const id = z.string().regex(/^[A-Za-z0-9][\w.:-]{0,63}$/, "must have 1 to 64 letters, digits, '_', '-', '.' or ':'");
const instance = z.string().regex(/^[\w-]{16,64}$/, "must have 16 to 64 letters, digits, '_' or '-'");
const subscription = z.string().max(64);
const count = z.int().min(0).max(1_000_000_000);
const uploadLifetimeMs = 900_000;

const reportSchema = z
  .strictObject({
    subscription,
    state: z.enum(["starting", "consuming", "failing"]),
    error: z.strictObject({ code: z.string().max(64), message: z.string().max(2_000) }).nullable(),
    waiting: count.nullable(),
    in_hand: count,
    accepted: count,
    duplicates: count,
    refused: count,
    dead: count,
    dropped: count,
    last_message_at: z.number().nullable(),
  })
  .transform(
    ({ subscription: of, in_hand: inHand, last_message_at: lastMessageAt, state, error, waiting, ...counts }) => ({
      id: of,
      state,
      error,
      waiting,
      inHand,
      counts,
      lastMessageAt,
    }),
  );

/** Only for connections that may consume. */
function defineConsumerMessage<Message>(kind: MessageKind<Message>): MessageKind<Message> {
  return defineMessage({
    schema: kind.schema,
    answer(deps, connection, message) {
      requireConsume(connection);
      return kind.answer(deps, connection, message);
    },
  });
}

function requireConsume({ caller }: Connection): void {
  if (hasScope(caller, "consume")) return;
  throw new GatewayError(
    "permission_denied",
    "This key lacks the scope 'consume', which holding subscriptions takes; make one with POST /v1/api-keys.",
    { param: "consume" },
  );
}

export const subscriptionMessages = {
  "subscription.hold": defineConsumerMessage({
    schema: z.strictObject({
      type: z.literal("subscription.hold"),
      id: id.optional(),
      node: nodeNameSchema,
      instance,
      reports: z.array(reportSchema).max(250),
    }),
    async answer(deps, connection, { node, instance: own, reports }) {
      const { assignSubscriptions } = await import("./assign.ts");
      const assigned = await assignSubscriptions(deps, connection, { node, instance: own, reports });
      return {
        type: "subscription.held",
        subscriptions: assigned.map((each) => ({ ...each })),
        beat_ms: deps.timing.heartbeatMs,
        lease_ms: deps.timing.leaseMs,
      };
    },
  }),
  "subscription.open": defineConsumerMessage({
    schema: z.strictObject({ type: z.literal("subscription.open"), id: id.optional(), subscription, instance }),
    async answer(deps, { tenant }, { subscription: of, instance: own }) {
      const { openSubscription } = await import("./assign.ts");
      const { toWire } = await import("./account-wire.ts");
      return {
        type: "subscription.opened",
        ...toWire(await openSubscription(deps, tenant, { id: of, instance: own })),
      };
    },
  }),
  "subscription.upload": defineConsumerMessage({
    schema: z.strictObject({
      type: z.literal("subscription.upload"),
      id: id.optional(),
      subscription,
      instance,
      delivery: broughtMessageSchema.shape.delivery,
      bytes: z.int().min(1),
    }),
    async answer(deps, { tenant }, { subscription: of, instance: own, delivery, bytes }) {
      const [{ openSubscription }, { bodyKey }] = await Promise.all([import("./assign.ts"), import("./take.ts")]);
      const { maxMessageBytes } = await openSubscription(deps, tenant, { id: of, instance: own });
      if (bytes > maxMessageBytes) {
        throw new GatewayError("payload_too_large", `The message has ${bytes} bytes; ${maxMessageBytes} are allowed.`);
      }
      const link = await deps.blobs.presign(bodyKey(tenant, of, delivery), {
        method: "PUT",
        expiresInMs: uploadLifetimeMs,
        bytes,
        mediaType: "application/octet-stream",
      });
      return { type: "subscription.upload", url: link.url, headers: { ...link.headers } };
    },
  }),
  "subscription.message": defineConsumerMessage({
    schema: z.strictObject({
      type: z.literal("subscription.message"),
      id: id.optional(),
      subscription,
      fingerprint: z.string().max(64),
      instance,
      message: broughtFieldsSchema,
    }),
    async answer(deps, { tenant }, { subscription: of, fingerprint, instance: own, message }) {
      const { takeMessage } = await import("./take.ts");
      const place = { subscription: of, fingerprint, instance: own };
      const taken = await takeMessage(deps, tenant, { ...place, ...readBrought(message) });
      switch (taken.kind) {
        case "accepted":
        case "duplicate":
          return { type: "subscription.taken", outcome: taken.kind, call_id: taken.callId };
        case "dead":
          return { type: "subscription.taken", outcome: taken.kind, code: taken.code, message: taken.message };
        case "refused":
        case "later": {
          const { kind: outcome, code, message: said, retryAfterMs } = taken;
          return { type: "subscription.taken", outcome, code, message: said, retry_after_ms: retryAfterMs };
        }
        case "withdrawn":
          return { type: "subscription.taken", outcome: taken.kind };
        default:
          return taken satisfies never;
      }
    },
  }),
  "subscription.release": defineConsumerMessage({
    schema: z.strictObject({ type: z.literal("subscription.release"), id: id.optional(), instance }),
    async answer(deps, { tenant }, { instance: own }) {
      await deps.repos.subscriptions.release(tenant, own);
      return { type: "subscription.released" };
    },
  }),
} as const;
