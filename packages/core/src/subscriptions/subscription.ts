/**
 * A subscription: messages of `mq://service/topic` become calls of a tool (tool management specification,
 * "消息订阅触发器"; MQ-3). The target is a tool URI and what becomes of a message in its arguments, so that whatever
 * has a URI can be one.
 */
import * as z from "zod";
import type { Role } from "../callers/caller.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { toolUriForm } from "../tools/uri.ts";

/** Of calls that were made of messages: as it stands in the record, and part of their idempotency. */
export const subscriptionRoute = "mq.subscription";

export const subscriptionNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][\w.-]{0,63}$/,
    "must have 1 to 64 letters, digits, '_', '-' or '.', and begin with one of the first two",
  );

const shortText = (description: string): z.ZodString => z.string().min(1).max(255).meta({ description });

/** What `arguments` is where nothing is said: the message itself, which then has to be an object. */
const wholeMessage: JsonObject = { $message: "/body" };

export const targetSchema = z.strictObject({
  uri: z
    .string()
    .min(1)
    .max(2_048)
    .meta({ pattern: toolUriForm, description: "Tool URI.", example: "api://oms-service/sync_order" }),
  arguments: z.custom<JsonObject>(isJsonObject, "Invalid input: expected object").default(wholeMessage).meta({
    type: "object",
    additionalProperties: true,
    description:
      'Arguments of the call. {"$message": "/body/orderId"} stands for that part of the message (a JSON pointer into body, id, headers, key, topic, place, published_at), and is left out where the message has none, or is its "default". Absent: the message\'s body.',
  }),
});
export type SubscriptionTarget = z.output<typeof targetSchema>;

export const subscriptionOptionsSchema = z.strictObject({
  format: z
    .enum(["json", "text", "base64"])
    .default("json")
    .meta({ description: "What the body is: JSON, UTF-8 text, or bytes, which are given on as base64." }),
  prefetch: z
    .int()
    .min(1)
    .max(256)
    .default(8)
    .meta({ description: "Messages that each node has in hand at once; the rest waits at the broker." }),
  max_open_calls: z
    .int()
    .min(1)
    .max(10_000)
    .default(100)
    .meta({ description: "Calls of it that have not ended; while there are so many, messages wait at the broker." }),
  max_attempts: z
    .int()
    .min(1)
    .max(20)
    .default(3)
    .meta({ description: "After so many attempts a message of which no call can be made is given up." }),
  nodes: z
    .array(shortText("Name of a node; `*` stands for any run of characters."))
    .min(1)
    .max(32)
    .optional()
    .meta({ description: "Nodes that may hold it; absent: every one that holds subscriptions." }),
  order: z
    .enum(["key", "none"])
    .optional()
    .meta({ description: "Kafka: `key` (default), a call begins when the one of the same key before it has ended." }),
  queue: shortText("RabbitMQ: the queue, where the topic is an exchange, or another one than the topic's.").optional(),
  declare_queue: z
    .boolean()
    .optional()
    .meta({ description: "RabbitMQ: make the queue, durable, where it is missing, and bind it to the exchange." }),
  binding_keys: z
    .array(z.string().max(255))
    .min(1)
    .max(32)
    .optional()
    .meta({ description: "RabbitMQ, with `declare_queue`: absent, the topic's routing key, or all (`#`)." }),
  dead_letter_exchange: shortText(
    "RabbitMQ, with `declare_queue`: gets what is given up. A queue that is there has its own.",
  ).optional(),
  group: shortText("Kafka, RocketMQ: consumer group; absent: one of the subscription's own.").optional(),
  start_from: z.enum(["latest", "earliest"]).optional().meta({
    description:
      "Kafka: where a new group begins; absent: `latest`. RocketMQ: `latest` passes over what was stored before the subscription was made; absent: the broker decides.",
  }),
  dead_letter_topic: shortText("Kafka: gets what is given up; absent: nothing does.").optional(),
});
export type SubscriptionOptions = z.output<typeof subscriptionOptionsSchema>;

export interface MessageSubscription {
  /** `sub_…`; also the caller of its calls. */
  readonly id: string;
  /** Unique within the tenant. */
  readonly name: string;
  readonly description: string | null;
  /** Of the `mq` service, as in URIs. */
  readonly serviceId: string;
  /** Tool id of the topic. */
  readonly topic: string;
  readonly target: SubscriptionTarget;
  readonly options: SubscriptionOptions;
  readonly enabled: boolean;
  /** Of whoever configured it: its calls may use what that role may. */
  readonly role: Exclude<Role, "operator">;
  readonly version: number;
  readonly totals: SubscriptionCounts;
  readonly lastMessageAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export type NewSubscription = Pick<
  MessageSubscription,
  "id" | "name" | "description" | "serviceId" | "topic" | "target" | "options" | "enabled" | "role"
>;
export type SubscriptionChange = Partial<Omit<NewSubscription, "id" | "name">>;

/** What became of messages. */
export interface SubscriptionCounts {
  /** Became calls. */
  readonly accepted: number;
  /** Were calls already. */
  readonly duplicates: number;
  /** Attempts of which no call could be made. */
  readonly refused: number;
  /** Given up. */
  readonly dead: number;
  /** Left at the door, of brokers that store none. */
  readonly dropped: number;
}

export const noCounts: SubscriptionCounts = { accepted: 0, duplicates: 0, refused: 0, dead: 0, dropped: 0 };

/** How a node stands with a subscription. */
export interface HolderState {
  readonly state: "starting" | "consuming" | "failing";
  readonly error: { readonly code: string; readonly message: string } | null;
  /** Messages that wait at the broker; null: it cannot say. */
  readonly waiting: number | null;
  /** Messages that the node has in hand. */
  readonly inHand: number;
}

/** What a node says of a subscription from time to time; counts since it said so last. */
export interface HolderReport extends HolderState {
  readonly id: string;
  readonly counts: SubscriptionCounts;
  readonly lastMessageAt: number | null;
}

export interface SubscriptionHolder extends HolderState {
  readonly node: string;
  readonly instance: string;
  readonly connected: boolean;
  readonly since: number;
  readonly seenAt: number;
  readonly lastErrorAt: number | null;
}

/** A message of which no call could be made, yet or for good. */
export interface FailedMessage {
  /** `fmsg_…` */
  readonly id: string;
  /** The broker's or the producer's id; null: it has none. */
  readonly messageId: string | null;
  readonly attempts: number;
  readonly isDead: boolean;
  readonly code: string;
  readonly message: string;
  readonly firstAt: number;
  readonly lastAt: number;
}
