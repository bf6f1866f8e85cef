/** Redis for the suite over all schemes; test/e2e/mq.test.ts has the brokers themselves. */
import { startRedisStub } from "../redis-stub.ts";
import { localCertificate } from "../tls-pair.ts";
import type { SchemeFixture } from "./fixture.ts";

const password = "sentinel-of-the-broker";

export const mqFixture: SchemeFixture = {
  tool: "order_created",
  arguments: { message: { orderId: "O001", status: "created" } },
  badArguments: { message: {}, delay: -1 },
  effect: "write",
  // The client is loaded, then come encryption and login.
  reachedWithinMs: 1_000,
  // What Redis answers is how many have the message.
  hugeIs: "outcome_unknown",
  async start() {
    const stub = await startRedisStub({ user: { name: "shop", password }, tls: true });
    const config = {
      broker: "redis",
      servers: [`127.0.0.1:${stub.port}`],
      tls: { ca: localCertificate },
      username: "shop",
      password,
      topics: { order_created: { description: "An order is there." } },
    };
    return {
      config,
      deadConfig: { ...config, servers: ["127.0.0.1:9"] },
      secrets: [password],
      calls: () => stub.published.length,
      behave: (mood) => {
        stub.onPublish = mood === "broken" ? "drop" : mood === "well" ? "take" : mood;
      },
      close: () => stub.close(),
    };
  },
};
