/** The server form as processes: two on one data directory are one gateway; they end as they should. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGatewayProcess, type GatewayProcess } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

let first: GatewayProcess;
let second: GatewayProcess;
let tenant: TestTenant;

beforeAll(async () => {
  first = await startGatewayProcess();
  second = await startGatewayProcess({ sharedWith: first });
  tenant = await first.newTenant();
});
afterAll(async () => {
  await second.close();
  await first.close();
});

describe(`two processes on one data directory ${verifies("BLIND-1", "CHAT-11", "BLIND-5")}`, () => {
  test("a tool registered at one is offered by the other with the next request", async () => {
    const there = second.client(tenant.key);
    expect((await there.get("/v1/tools")).data).not.toContainEqual(expect.objectContaining({ name: "fresh_tool" }));
    const id = await tenant.addPlugin({
      name: "fresh_tool",
      execution: { method: "GET", base_url: "https://api.example.com/x", param_placement: "query" },
    });
    expect((await there.get("/v1/tools")).data).toContainEqual(expect.objectContaining({ name: "fresh_tool" }));
    await tenant.client.expect("patch", `/v1/plugins/${id}`, { status: "1" });
    expect((await there.get("/v1/tools")).data).not.toContainEqual(expect.objectContaining({ name: "fresh_tool" }));
  });

  test("a key revoked at one is refused by the other with the next request", async () => {
    const key = await tenant.newKey();
    const there = second.client(key.key);
    await there.get("/v1/tools");
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    expect((await there.send("get", "/v1/tools")).status).toBe(401);
  });

  test.each(["first", "second"])(
    "a key revoked while a body of it is on its way to the %s makes nothing",
    async (at) => {
      const key = await tenant.newKey({ scopes: ["manage"] });
      const body = JSON.stringify({ name: "kept for later", scopes: ["manage"] });
      const { promise: told, resolve: tell } = Promise.withResolvers<void>();
      const raw = new ReadableStream<Uint8Array>({
        async start(stream) {
          stream.enqueue(Buffer.from(body.slice(0, 5)));
          await told;
          stream.enqueue(Buffer.from(body.slice(5)));
          stream.close();
        },
      });
      const there = at === "first" ? first : second;
      const headers = { "content-type": "application/json" };
      const answer = there.client(key.key).send("post", "/v1/api-keys", undefined, { raw, headers });
      const lastUsed = async (): Promise<unknown> =>
        (await tenant.client.get("/v1/api-keys?limit=100")).data.find(({ id }: Json) => id === key.id).last_used_at;
      await expect.poll(lastUsed, { timeout: 5_000 }).not.toBeNull();
      await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
      await sleep(1_100);
      tell();
      expect((await answer).json).toMatchObject({ error: { code: "invalid_api_key" } });
      const names = (await tenant.client.get("/v1/api-keys?limit=100")).data.map(({ name }: Json) => name);
      expect(names).not.toContain("kept for later");
    },
  );

  test("settings changed at both at once both count", async () => {
    const there = second.client(tenant.key);
    const changes = [
      { rounds: 3 },
      { calls_per_round: 4 },
      { tool_timeout_ms: 5_000 },
      { result_bytes: 1_000 },
      { identical_calls: 7 },
      { session_idle_ms: 60_000 },
    ];
    await Promise.all(
      changes.map((change, index) => (index % 2 === 0 ? tenant.client : there).expect("patch", "/v1/settings", change)),
    );
    expect(await there.get("/v1/settings")).toMatchObject(Object.assign({}, ...changes) as object);
  });

  test("both end cleanly when they are told to", async () => {
    expect(await second.stop("SIGTERM")).toEqual({ code: 0, signal: null });
    await tenant.client.get("/v1/tools");
    expect(await first.stop("SIGTERM")).toEqual({ code: 0, signal: null });
  });
});
