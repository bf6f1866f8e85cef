/** Results that come after their answer: what the model was not told stays due, whatever became of the request. */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, chunk, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let session: string;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  backEnd.answer = () => ({ body: '{"order":"o-1"}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { max_attempts: 1 });
  await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
  session = newId("session");
  await orderLater();
  llm.requests.length = 0;
});

const bodyOf = (more: Json): Json => ({
  model: "stub-1",
  session_id: session,
  messages: [{ role: "user", content: "go" }],
  ...more,
});

/** A request of the session, and its settlement. */
async function ask(more: Json = {}, signal?: AbortSignal): Promise<Json> {
  const options = signal === undefined ? {} : { signal };
  const reply = await tenant.client
    .send("post", "/v1/chat/completions", bodyOf(more), options)
    .catch((thrown: unknown) => ({ status: 0, json: { thrown } }));
  await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data).toEqual([]);
  return reply;
}

/** A person approves an order after its answer. */
async function orderLater(): Promise<void> {
  llm.script(calls({ name: "create_order", arguments: { sku: "S1" } }));
  const { json } = await ask();
  const [{ call_id: id }] = json.tool_execution.pending;
  await tenant.client.post(`/v1/calls/${id}/approve`);
  await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
}

/** What the model's last request told of results. */
function toldLast(): readonly string[] {
  const messages = (llm.requests.at(-1)?.["messages"] ?? []) as Json[];
  return messages.filter(({ role }) => role === "tool").map(({ content }) => content);
}

const order = '{"order":"o-1"}';
const overloaded = { json: { error: { message: "overloaded", type: "server_error" } }, status: 503 };

describe(`a result that comes late ${verifies("CHAT-11")}`, () => {
  test("is told to the model once, by the session's next request that is answered", async () => {
    llm.script(overloaded, text("It is ordered."));
    expect((await ask()).status).toBe(503);
    expect(toldLast()).toEqual([order]);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([order]);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([]);
  });

  test("is told again where the client left before the answer was complete", async () => {
    const slow = { writes: [chunk({ content: "It" }), chunk({ content: " is" })], gapMs: 5_000 };
    for (const [stream, round] of [[false, { json: {}, delayMs: 5_000 }] as const, [true, slow] as const]) {
      const left = new AbortController();
      llm.respond(() => {
        setTimeout(() => left.abort(), 200);
        return round;
      });
      await ask({ stream }, left.signal);
      expect(toldLast()).toEqual([order]);
    }
    llm.script(text("It is ordered."));
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is told again where a later turn failed: what the model made of it is in no answer", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    llm.script(calls({ name: "lookup", arguments: { q: "o-1" } }), overloaded);
    expect((await ask()).status).toBe(503);
    llm.script(text("It is ordered."));
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is told again to a model that makes pictures, where it was not answered", async () => {
    await tenant.client.expect("patch", "/v1/settings", { whitelist_image_models: ["stub-1"] });
    llm.script(overloaded);
    expect((await ask()).status).toBe(503);
    llm.script(text("a picture"));
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([order]);
    await ask();
    expect(toldLast()).toEqual([]);
  });
});
