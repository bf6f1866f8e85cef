/** What nodes are told to consume (MQ-3). */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { ToolService } from "../services/service.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { findSource } from "./standing.ts";
import { subscriptionOptionsSchema } from "./subscription.ts";

test.each([
  ["kafka", {}, 1_700_000_000_000],
  ["rocketmq", {}, undefined],
  ["rocketmq", { start_from: "latest" }, 1_700_000_000_000],
  ["rabbitmq", {}, undefined],
])(`%s is told with %j what is too old for the subscription ${verifies("MQ-3")}`, (broker, options, since) => {
  const service = {
    scheme: "mq",
    serviceId: "bus",
    enabled: true,
    config: { broker, servers: ["bus.example.com"], topics: { orders: {} } },
  };
  const { source } = findSource({ services: [service as unknown as ToolService] } as unknown as TenantConfig, {
    id: "sub_1",
    name: "orders",
    serviceId: "bus",
    topic: "orders",
    target: { uri: "plugin://create_order", arguments: {} },
    options: subscriptionOptionsSchema.parse(options),
    role: "member",
    createdAt: 1_700_000_000_000,
  });
  expect(source.since).toBe(since);
});
