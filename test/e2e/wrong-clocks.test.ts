/**
 * Instances whose clock is two minutes ahead of the database's or behind it: leases and waits go by the database's. And
 * clocks of other zones than the machine's.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { callIn, invokeFlow, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

const apartMs = 120_000;

let gateway: Gateway;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
});
afterAll(async () => {
  await Promise.all([gateway.close(), llm.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});
afterEach(() => {
  vi.restoreAllMocks();
});

function setClock(aheadMs: number): void {
  const { clock } = gateway.core;
  const now = clock.now.bind(clock);
  vi.spyOn(clock, "now").mockImplementation(() => now() + aheadMs);
}

describe(`a flow that waits ${verifies("FLOW-1")}`, () => {
  test.each([
    ["ahead", apartMs],
    ["behind", -apartMs],
  ])("waits its time where the clock is %s, and is looked at once after it", async (_where, aheadMs) => {
    setClock(aheadMs);
    const nodes = { rest: { kind: "wait", duration_ms: 3_000 } };
    await publishFlow(tenant, { name: "rests", start: "rest", nodes });
    const since = performance.now();
    const { json } = await invokeFlow(tenant, "flow://rests?async=true");
    const ended = await callIn(tenant, json.id);
    expect(performance.now() - since).toBeGreaterThan(2_900);
    expect(ended).toMatchObject({ state: "completed", attempt: 2 });
  });

  test("for a time without an offset means the tenant's clock", async () => {
    const there = await gateway.newTenant({ time_zone: "Asia/Kathmandu" });
    const nodes = { rest: { kind: "wait", until: { $: "input.until" } } };
    await publishFlow(there, { name: "rests", start: "rest", nodes });
    const wakeAt = async (until: string): Promise<string> => {
      const { json } = await invokeFlow(there, "flow://rests?async=true", { until });
      const stepOf = async (): Promise<Json> => (await there.client.get(`/v1/runs/${json.id}`)).steps[0];
      await expect.poll(stepOf).toMatchObject({ state: "waiting" });
      return (await stepOf()).wake_at;
    };
    expect(await wakeAt("2099-12-24T18:00:00")).toBe("2099-12-24T12:15:00.000Z");
    expect(await wakeAt("2099-12-24")).toBe("2099-12-23T18:15:00.000Z");
    expect(await wakeAt("2099-12-24T18:00:00+01:00")).toBe("2099-12-24T17:00:00.000Z");
  });
});

describe(`a chat that is asked again while it runs ${verifies("CHAT-1", "CHAT-6")}`, () => {
  test("is known to run where the clock is ahead of its lease", async () => {
    setClock(apartMs);
    const body = { model: "stub-1", messages: [{ role: "user", content: "go" }] };
    const ask = (headers: Readonly<Record<string, string>>) =>
      tenant.client.send("post", "/v1/chat/completions", body, { headers });
    let answer = (): void => undefined;
    const held = new Promise<void>((done) => (answer = done));
    llm.respond(async () => {
      await held;
      return text("said once");
    });
    const first = ask({ "idempotency-key": "k" });
    await expect.poll(() => llm.requests.length).toBe(1);
    expect(await ask({ "idempotency-key": "k" })).toMatchObject({
      status: 409,
      json: { error: { code: "idempotency_in_progress" } },
    });
    answer();
    expect((await first).status).toBe(200);
  });
});
