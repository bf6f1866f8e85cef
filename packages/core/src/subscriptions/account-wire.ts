/** What a node is told to consume with, as JSON; what one side writes the other reads, here. */
import * as z from "zod";
import type { JsonObject } from "../json.ts";
import type { OpenSubscription } from "./assign.ts";

const text = z.string();

const wireSchema = z.looseObject({
  fingerprint: text,
  prefetch: z.int().min(1),
  max_message_bytes: z.int().min(1),
  in_order: z.boolean(),
  account: z.looseObject({
    kind: z.enum(["rabbitmq", "kafka", "redis", "rocketmq"]),
    servers: z.array(z.looseObject({ host: text, port: z.int() })).min(1),
    tls: z
      .looseObject({
        ca: z.array(text).exactOptional(),
        cert: text.exactOptional(),
        key: text.exactOptional(),
        serverName: text.exactOptional(),
      })
      .exactOptional(),
    login: z
      .looseObject({ username: text.nullable(), password: text, credential: text })
      .transform(({ username, ...login }) => ({ ...login, username: username ?? undefined }))
      .exactOptional(),
    virtualHost: text,
    mechanism: z.enum(["plain", "scram-sha-256", "scram-sha-512"]),
    namespace: text.exactOptional(),
  }),
  source: z.looseObject({
    name: text,
    group: text,
    from: z.enum(["latest", "earliest"]),
    since: z.number().exactOptional(),
    declare: z
      .looseObject({
        exchange: text.exactOptional(),
        bindingKeys: z.array(text),
        deadLetterExchange: text.exactOptional(),
      })
      .exactOptional(),
    deadLetterTopic: text.exactOptional(),
  }),
});

export function toWire({
  account,
  source,
  fingerprint,
  prefetch,
  maxMessageBytes,
  inOrder,
}: OpenSubscription): JsonObject {
  const { login } = account;
  const plain = {
    fingerprint,
    prefetch,
    max_message_bytes: maxMessageBytes,
    in_order: inOrder,
    source,
    account: {
      ...account,
      ...(login === undefined ? {} : { login: { ...login, username: login.username ?? null } }),
    },
  };
  // Fields that are undefined are left out.
  return JSON.parse(JSON.stringify(plain)) as JsonObject;
}

/** @throws ZodError for what this program does not understand, such as a broker that only newer ones know */
export function fromWire(answer: JsonObject): OpenSubscription {
  const { max_message_bytes: maxMessageBytes, in_order: inOrder, ...rest } = wireSchema.parse(answer);
  return { ...rest, maxMessageBytes, inOrder };
}
