import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { deliveryOf } from "../errors/delivery.ts";
import type { JsonObject } from "../json.ts";
import type { BrokerMessage } from "../ports/message-broker.ts";
import { mqConfigSchema } from "./config.ts";
import { toMessage } from "./message.ts";

const config = mqConfigSchema.parse({
  broker: "rabbitmq",
  servers: ["mq.example.com"],
  topics: {
    events: { exchange: "events", free_headers: true },
    owned: { exchange: "events", free_headers: true, headers: { source: "shop" } },
  },
});

function messageOf(topicId: string, args: JsonObject): BrokerMessage {
  const topic = config.topics[topicId];
  if (topic === undefined) throw new Error("no such topic");
  return toMessage(config, { topicId, topic, args }, { callId: "call_1", at: new Date(0), delayMs: 0 });
}

function failure(args: JsonObject): unknown {
  try {
    messageOf("events", args);
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}

test(`a topic's own headers are not for calls to change ${verifies("MQ-1")}`, () => {
  const headers = { source: "elsewhere", trace: "t1" };
  expect(messageOf("owned", { message: {}, key: "a", headers }).headers).toEqual({ source: "shop", trace: "t1" });
});

describe(`what RabbitMQ's protocol has no place for ${verifies("MQ-1", "SVCERR-1")}`, () => {
  test("is refused before anything is sent: a key, by its bytes", () => {
    expect(failure({ message: {}, key: "键".repeat(85) })).toBeUndefined();
    const refused = failure({ message: {}, key: "键".repeat(86) });
    expect(refused).toMatchObject({ code: "invalid_arguments", details: { param: "key" } });
    expect(refused).toMatchObject({ message: "'key' has 258 bytes as UTF-8; RabbitMQ takes 255." });
    expect(deliveryOf(refused)).toBe("not_sent");
  });

  test("is refused before anything is sent: headers, together", () => {
    const headers = (count: number): JsonObject =>
      Object.fromEntries(Array.from({ length: count }, (_none, at) => [`h${at}`, "x".repeat(8_000)]));
    expect(failure({ message: {}, key: "a", headers: headers(15) })).toBeUndefined();
    const refused = failure({ message: {}, key: "a", headers: headers(16) });
    expect(refused).toMatchObject({ code: "invalid_arguments", details: { param: "headers" } });
    expect(deliveryOf(refused)).toBe("not_sent");
  });
});
