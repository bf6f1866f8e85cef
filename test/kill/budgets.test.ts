/**
 * Budgets when a process is killed: what it had reserved comes back with its leases, what it is known to
 * have used is charged once, by whoever finds its calls (CHAT-12).
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";
import { eventually, pause, type Instance } from "./instance.ts";
import { startLane, type Lane } from "./lane.ts";

const withinMs = 20_000;
const messages = [{ role: "user", content: "hello" }];

let lane: Lane;
let llm: LlmStub;
let backEnd: HttpStub;

beforeAll(async () => {
  [lane, llm, backEnd] = await Promise.all([startLane(), startLlmStub(), startHttpStub()]);
});
afterAll(async () => {
  await lane.close();
  await Promise.all([llm.close(), backEnd.close()]);
});

async function newTenant(prices: readonly object[]): Promise<TestTenant> {
  const tenant = await lane.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.client.expect("put", "/v1/prices", { prices });
  return tenant;
}

async function addBudget({ client }: TestTenant, limits: object): Promise<() => Promise<Json>> {
  const { id } = await client.post("/v1/budgets", { period: "total", ...limits });
  return () => client.get(`/v1/budgets/${id}`);
}

/** Nothing of the tenant runs any more. */
async function allEnded({ client }: TestTenant): Promise<readonly Json[]> {
  return eventually("The end of all calls", withinMs, async () => {
    const { data } = await client.get("/v1/calls?limit=100");
    return data.every(({ finished_at: at }: Json) => at !== null) ? (data as readonly Json[]) : undefined;
  });
}

/** Kills the process when so many requests of it hang, and waits for its end. */
async function killOnce(victim: Instance, isTime: () => boolean): Promise<void> {
  await eventually("The moment to die", withinMs, () => isTime() || undefined);
  victim.kill();
  await victim.ended;
}

describe(`a process that is killed ${verifies("CHAT-12")}`, () => {
  test("in the second round of a chat leaves a bill of the first, and of the tool that it ran", async () => {
    const model = { kind: "model", pattern: "*", prompt_per_mtok: 1_000_000, completion_per_mtok: 2_000_000 };
    const tenant = await newTenant([model, { kind: "tool", pattern: "order", per_call: 1_000 }]);
    await tenant.addPlugin(writingTool(backEnd, "order"));
    const budget = await addBudget(tenant, { limit_micros: 1_000_000 });
    const victim = await lane.startInstance();
    llm.respond((body) =>
      (body["messages"] as readonly unknown[]).length === 1
        ? calls({ name: "order", arguments: { sku: "x" } })
        : { json: {}, delayMs: 60_000 },
    );
    const asked = victim.driver.client(tenant.key).send("post", "/v1/chat/completions", { messages });
    await Promise.all([
      killOnce(victim, () => llm.requests.length === 2),
      expect(asked).rejects.toThrow(/fetch failed|terminated/),
    ]);
    // The tool's own row has ended; the chat's reservation stands until its lease runs out.
    expect(await budget()).toMatchObject({ used: { micros: 1_000 } });
    expect((await budget()).reserved.micros).toBeGreaterThan(0);

    const [chat] = (await allEnded(tenant)).filter(({ kind }) => kind === "chat");
    const firstRound = 20 + 2 * 8;
    expect(chat).toMatchObject({
      state: "failed",
      error: { code: "chat_interrupted" },
      usage: { prompt_tokens: 20, completion_tokens: 8, total_tokens: 28 },
      cost: { micros: firstRound, tokens: 28, total_micros: firstRound + 1_000 },
    });
    const bill = { used: { tokens: 28, micros: firstRound + 1_000 }, reserved: { tokens: 0, micros: 0 } };
    expect(await budget()).toMatchObject(bill);
    // Later ticks find nothing to charge again.
    await pause(1_000);
    expect(await budget()).toMatchObject(bill);
    expect((await tenant.client.get("/v1/usage")).data).toMatchObject([{ calls: 2, micros: firstRound + 1_000 }]);
  });

  test("gives back all that it held: the next ones are exactly as many as before", async () => {
    const tenant = await newTenant([{ kind: "tool", pattern: "look", per_call: 1 }]);
    await tenant.addPlugin(readingTool(backEnd, "look"));
    const budget = await addBudget(tenant, { limit_micros: 5 });
    const victim = await lane.startInstance();
    const look = { name: "look", arguments: { q: "x" } };
    let hanging = 0;
    backEnd.answer = async () => {
      hanging += 1;
      await pause(60_000);
      return undefined;
    };
    const doomed = Array.from({ length: 5 }, () =>
      victim.driver.client(tenant.key).send("post", "/v1/tools/invoke", look),
    );
    await eventually("Five calls", withinMs, () => hanging === 5 || undefined);
    const refused = await tenant.client.send("post", "/v1/tools/invoke", look);
    expect(refused.json.error).toMatchObject({ code: "budget_exceeded", used: 0, reserved: 5, retry_after_ms: 1_000 });
    await Promise.all([
      killOnce(victim, () => true),
      expect(Promise.all(doomed)).rejects.toThrow(/fetch failed|terminated/),
    ]);

    backEnd.answer = () => ({ body: "{}" });
    await allEnded(tenant);
    expect(await budget()).toMatchObject({ used: { micros: 0 }, reserved: { micros: 0 } });
    const replies = await Promise.all(
      Array.from({ length: 12 }, () => tenant.client.send("post", "/v1/tools/invoke", look)),
    );
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(replies.filter(({ json }) => json.error?.code === "budget_exceeded")).toHaveLength(7);
    expect(await budget()).toMatchObject({ used: { micros: 5 }, reserved: { micros: 0 } });
  });

  test("in the middle of a long answer leaves a bill of what had come by its last beat", async () => {
    const tenant = await newTenant([]);
    const budget = await addBudget(tenant, { limit_tokens: 1_000_000 });
    const victim = await lane.startInstance();
    const answer = text("forty letters and blanks are ten tokens ".repeat(40));
    llm.respond(() => ({ writes: answer.writes, gapMs: 20 }));
    llm.requests.length = 0;
    const asked = victim.driver.client(tenant.key).send("post", "/v1/chat/completions", { messages, stream: true });
    const beats = async (): Promise<true | undefined> =>
      (await tenant.client.get("/v1/calls")).data[0]?.cost?.tokens > 50 || undefined;
    const killed = eventually("A beat", withinMs, beats).then(() => killOnce(victim, () => true));
    await Promise.all([killed, expect(asked).rejects.toThrow(/fetch failed|terminated/)]);
    const [chat] = await allEnded(tenant);
    expect(chat).toMatchObject({ state: "failed", error: { code: "chat_interrupted" }, cost: { estimated: true } });
    expect(chat?.usage).toMatchObject({ estimated: true, completion_tokens: expect.any(Number) });
    expect(chat?.usage.completion_tokens).toBeLessThan(400);
    expect(await budget()).toMatchObject({ used: { tokens: chat?.cost.tokens }, reserved: { tokens: 0 } });
  });
});
