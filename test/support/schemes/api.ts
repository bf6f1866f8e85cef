/** An HTTP API for the suite over all schemes. */
import { startHttpStub } from "../http-stub.ts";
import type { Mood, SchemeFixture } from "./fixture.ts";

const listing = {
  description: "Lists customers.",
  endpoint: "/customers",
  parameters: { type: "object", properties: { page: { type: "integer" } }, additionalProperties: false },
};

export const apiFixture: SchemeFixture = {
  tool: "customer_list",
  arguments: { page: 2 },
  badArguments: { page: "two" },
  effect: "read",
  async start() {
    let mood: Mood = "well";
    let calls = 0;
    const stub = await startHttpStub(({ target }, response) => {
      if (!target.startsWith("/v1/customers")) return { status: 404 };
      calls += 1;
      if (mood === "silent") return { delayMs: 60_000 };
      if (mood === "huge") return { body: JSON.stringify("x".repeat(10_000_000)) };
      if (mood === "well") return { body: '{"customers":[]}' };
      mood = "well";
      response.destroy();
      return undefined;
    });
    const secret = "sentinel-of-the-api";
    const auth = { auth_type: "bearer", auth_config: { token: secret }, tools: { customer_list: listing } };
    return {
      config: { base_url: `${stub.url}/v1`, ...auth },
      deadConfig: { base_url: "http://127.0.0.1:9/v1", ...auth },
      secrets: [secret],
      calls: () => calls,
      behave: (next) => {
        mood = next;
      },
      close: () => stub.close(),
    };
  },
};
