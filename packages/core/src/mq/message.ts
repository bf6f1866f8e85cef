/** From a call's arguments to the message that leaves (MQ-1, MQ-2, SVCERR-1). */
import { createHash } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { BrokerMessage } from "../ports/message-broker.ts";
import { withDelivery } from "../errors/delivery.ts";
import { embedSchema } from "../tools/json-schema/embed.ts";
import { brokerKinds, tagPattern, type MqConfig, type MqTopic } from "./config.ts";

/** JSON Schema of a call's arguments. */
export function parametersOf(config: MqConfig, topic: MqTopic): JsonObject {
  const { hasHeaders } = brokerKinds[config.broker];
  const isJson = isJsonType(topic.content_type);
  const { schema, definitions } = embedSchema(isJson ? (topic.message ?? {}) : {}, "#/properties/message");
  const message: JsonObject = isJson
    ? { description: "The message, sent as JSON.", ...schema }
    : { type: "string", description: `The message, sent as ${topic.content_type}.` };
  const key = keyField(config, topic);
  return {
    type: "object",
    properties: {
      message,
      ...(key === undefined ? {} : { key: key.schema }),
      ...(config.broker === "rocketmq" ? rocketMqFields(topic) : {}),
      ...(hasHeaders && topic.free_headers ? { headers: freeHeaders } : {}),
      ...(config.max_delay_ms === 0
        ? {}
        : {
            delay: {
              type: "integer",
              minimum: 0,
              maximum: config.max_delay_ms,
              description: "Milliseconds before the message may be consumed.",
            },
          }),
    },
    required: ["message", ...(key?.isRequired === true ? ["key"] : [])],
    additionalProperties: false,
    ...definitions,
  };
}

const rocketMqKey: JsonObject = {
  type: "string",
  description: "Topics of the type FIFO keep messages of one key in order and need one; others are searched by it.",
  minLength: 1,
  maxLength: 63,
  pattern: "^[^\\s\\p{C}]+$",
};

const freeHeaders: JsonObject = {
  type: "object",
  description: "Headers of the message.",
  maxProperties: 32,
  propertyNames: { pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$" },
  additionalProperties: { type: "string", maxLength: 8_192, pattern: "^[^\\u0000-\\u001f\\u007f]*$" },
};

function rocketMqFields({ tag }: MqTopic): JsonObject {
  return {
    keys: {
      type: "array",
      description: "By what the message can be searched for at the broker.",
      maxItems: 16,
      items: { type: "string", minLength: 1, maxLength: 255, pattern: "^[^\\s\\p{C}]+$" },
    },
    ...(tag === undefined
      ? { tag: { type: "string", description: "By what consumers choose.", pattern: tagPattern } }
      : {}),
  };
}

function keyField(
  { broker }: MqConfig,
  { exchange, routing_key: routingKey }: MqTopic,
): { readonly schema: JsonObject; readonly isRequired: boolean } | undefined {
  const schema: JsonObject = { type: "string", minLength: 1, maxLength: 255 };
  if (broker === "kafka")
    return { schema: { ...schema, description: "Messages of one key keep their order." }, isRequired: false };
  if (broker === "rocketmq") return { schema: rocketMqKey, isRequired: false };
  if (exchange === undefined || routingKey !== undefined) return undefined;
  return { schema: { ...schema, description: "Routing key: who gets the message." }, isRequired: true };
}

/** Milliseconds; of the argument and the option of the URI, which must not contradict each other. */
export function delayOf(config: MqConfig, args: JsonObject, option: number | undefined): number {
  const given = typeof args["delay"] === "number" ? args["delay"] : undefined;
  if (given !== undefined && option !== undefined && given !== option) {
    throw refused(
      "invalid_arguments",
      `'delay' is ${given} among the arguments and ${option} in the URI; say it once.`,
    );
  }
  const delay = given ?? option ?? 0;
  if (delay > config.max_delay_ms) {
    throw refused(
      "invalid_uri",
      `Option 'delay' must be ${config.max_delay_ms} milliseconds at most ('max_delay_ms' of the service); got ${delay}.`,
    );
  }
  return delay;
}

/** Of the call, so that it is the same however often the message is sent; in the form that the broker's clients use. */
export function messageIdOf({ broker }: MqConfig, callId: string): string {
  if (broker !== "rocketmq") return callId;
  return `01${createHash("sha256").update(callId).digest("hex").slice(0, 32).toUpperCase()}`;
}

export interface MessageOptions {
  readonly callId: string;
  readonly at: Date;
  readonly delayMs: number;
}

/** @throws GatewayError `payload_too_large`, `invalid_arguments`; `not_sent` */
export function toMessage(
  config: MqConfig,
  { topicId, topic, args }: { readonly topicId: string; readonly topic: MqTopic; readonly args: JsonObject },
  { callId, at, delayMs }: MessageOptions,
): BrokerMessage {
  const body = Buffer.from(textOf(args["message"] ?? null, topic.content_type), "utf8");
  if (body.byteLength > config.max_message_bytes) {
    throw refused(
      "payload_too_large",
      `The message has ${body.byteLength} bytes; ${config.max_message_bytes} are allowed ('max_message_bytes' of the service).`,
    );
  }
  const { exchange, routing_key: routingKey } = topic;
  const key = typeof args["key"] === "string" ? args["key"] : undefined;
  const name = topic.name ?? topicId;
  const isRabbit = config.broker === "rabbitmq";
  const message: BrokerMessage = {
    id: messageIdOf(config, callId),
    destination: isRabbit ? (exchange ?? "") : name,
    key: isRabbit ? (exchange === undefined ? name : (routingKey ?? key ?? "")) : key,
    keys: stringsIn(args["keys"]),
    tag: topic.tag ?? stringsIn([args["tag"] ?? null])[0],
    body,
    contentType: topic.content_type,
    headers: { ...headersIn(args["headers"]), ...topic.headers },
    isPersistent: topic.persistent,
    at,
    ...(delayMs === 0 ? {} : { delayMs }),
  };
  if (isRabbit) refuseUnwritable(message);
  return message;
}

/** Names and keys of AMQP: bytes of UTF-8. */
const longestName = 255;
/** They go in one frame with all else that is said of a message; RabbitMQ's is of 128 KiB as it is delivered. */
const largestHeaders = 122_880;
/** Of a header: type, and lengths of name and value. */
const headerOverhead = 6;

/** @throws GatewayError `invalid_arguments` for what has no place in the protocol; `not_sent` */
function refuseUnwritable({ destination, key = "", headers, contentType }: BrokerMessage): void {
  const names = [
    [destination === "" ? "name" : "key", key],
    ["exchange", destination],
    ["content_type", contentType],
  ] as const;
  for (const [field, text] of names) {
    const bytes = Buffer.byteLength(text);
    if (bytes <= longestName) continue;
    const what = `'${field}' has ${bytes} bytes as UTF-8; RabbitMQ takes ${longestName}.`;
    throw refused("invalid_arguments", what, field);
  }
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) bytes += name.length + Buffer.byteLength(value) + headerOverhead;
  if (bytes <= largestHeaders) return;
  const what = `'headers' have ${bytes} bytes together; RabbitMQ takes ${largestHeaders}.`;
  throw refused("invalid_arguments", what, "headers");
}

/** Where a message went, in the broker's words. */
export function placeOf(config: MqConfig, { destination, key = "" }: BrokerMessage): JsonObject {
  if (config.broker === "kafka" || config.broker === "rocketmq") return { topic: destination };
  if (config.broker === "redis") return { channel: destination };
  return destination === "" ? { queue: key } : { exchange: destination, routing_key: key };
}

function textOf(message: JsonValue, contentType: string): string {
  return typeof message === "string" && !isJsonType(contentType) ? message : JSON.stringify(message);
}

function isJsonType(contentType: string): boolean {
  return /^[^;]*[/+]json(?:;|$)/.test(contentType);
}

function stringsIn(given: JsonValue | undefined): readonly string[] {
  return Array.isArray(given) ? given.filter((each) => typeof each === "string") : [];
}

function headersIn(given: JsonValue | undefined): Record<string, string> {
  if (!isJsonObject(given)) return {};
  return Object.fromEntries(
    Object.entries(given).flatMap(([name, value]) => (typeof value === "string" ? [[name, value]] : [])),
  );
}

function refused(
  code: "invalid_arguments" | "invalid_uri" | "payload_too_large",
  message: string,
  param: string = code === "payload_too_large" ? "message" : "delay",
): GatewayError {
  return withDelivery(new GatewayError(code, message, { param }), "not_sent");
}
