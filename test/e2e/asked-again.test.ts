/** A chat that was cut short and is asked again: it goes on where the attempt before it was, in its session, too. */
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"order":"o-1"}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});

const waiting = { json: {}, delayMs: 5_000 };
const body = { model: "stub-1", messages: [{ role: "user", content: "go" }] };

type Headers = Readonly<Record<string, string>>;

/** Says the same in silence, with a key, or as OpenAI's SDKs do. */
const ways: readonly (readonly [string, Headers, Headers])[] = [
  ["in silence", {}, {}],
  ["under its key", { "idempotency-key": "k-1" }, { "idempotency-key": "k-1" }],
  ["as an SDK does", {}, { "x-stainless-retry-count": "1" }],
];

/** The client leaves once the model has been asked for the second time. */
async function leave(client: Client, headers: Headers): Promise<void> {
  const left = new AbortController();
  const asked = client.send("post", "/v1/chat/completions", body, { headers, signal: left.signal });
  asked.catch(() => undefined);
  await expect.poll(() => llm.requests.length).toBe(2);
  left.abort();
  await expect(asked).rejects.toThrow("aborted");
  await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data).toEqual([]);
}

describe(`a chat without a session that is asked again ${verifies("CHAT-8", "CHAT-11")}`, () => {
  test.each(ways)("%s finds the files that it has written", async (_way, first, again) => {
    const { client } = await tenant.newKey({ tools: ["write_file", "read_file"] });
    const write = calls({ name: "write_file", arguments: { path: "a.txt", content: "as written" } });
    llm.script(write, waiting, write, calls({ name: "read_file", arguments: { path: "a.txt" } }), text("Read."));
    await leave(client, first);
    const { json } = await client.send("post", "/v1/chat/completions", body, { headers: again });
    expect(json.choices[0].message.content).toBe("Read.");
    const { messages } = llm.requests.at(-1) as Json;
    expect(messages.at(-1)).toMatchObject({ role: "tool", content: expect.stringContaining("as written") });
  });

  test("begins another session where that one is over", async () => {
    await tenant.client.expect("patch", "/v1/settings", { session_idle_ms: 60_000 });
    const { client } = await tenant.newKey({ tools: ["write_file"] });
    const write = calls({ name: "write_file", arguments: { path: "a.txt", content: "as written" } });
    llm.script(write, waiting, write, text("Done."));
    const headers = { "idempotency-key": "k-1" };
    await leave(client, headers);
    const [{ session_id: session }] = (await tenant.client.get("/v1/calls?kind=chat")).data;
    const database = await openDatabase({ url: gateway.databaseUrl });
    await database.batch([
      { sql: "UPDATE sessions SET last_used_at = last_used_at - 3600000 WHERE id = ?1", args: [session] },
    ]);
    await database.close();
    const { status, json } = await client.send("post", "/v1/chat/completions", body, { headers });
    expect([status, json.choices[0].message.content]).toEqual([200, "Done."]);
    expect(json.tool_execution.session_id).not.toBe(session);
  });

  test.each(ways)("%s hears in the session that it names of what was to come", async (_way, first, again) => {
    await tenant.addPlugin({ ...writingTool(backEnd, "wire_money"), sensitive: true });
    await tenant.addPlugin(writingTool(backEnd));
    const both = calls(
      { name: "wire_money", arguments: { sku: "S1" } },
      { name: "create_order", arguments: { sku: "S2" } },
    );
    backEnd.answer = () => ({ body: "{}", delayMs: 5_000 });
    llm.script(both, both, text("Wired."));
    const left = new AbortController();
    const asked = tenant.client.send("post", "/v1/chat/completions", body, { headers: first, signal: left.signal });
    asked.catch(() => undefined);
    await expect.poll(() => backEnd.requests.length).toBe(1);
    left.abort();
    await expect(asked).rejects.toThrow("aborted");
    await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data).toEqual([]);
    backEnd.answer = () => ({ body: '{"order":"o-1"}' });
    const { json } = await tenant.client.send("post", "/v1/chat/completions", body, { headers: again });
    const { session_id, pending } = json.tool_execution;
    await tenant.client.post(`/v1/calls/${pending[0].call_id}/approve`);
    const state = async (): Promise<string> => (await tenant.client.get(`/v1/calls/${pending[0].call_id}`)).state;
    await expect.poll(state).toBe("completed");
    await tenant.client.post("/v1/chat/completions", { ...body, session_id });
    const { messages } = llm.requests.at(-1) as Json;
    expect(messages.map(({ role }: Json) => role)).toEqual(["assistant", "tool", "user"]);
    expect(messages[1].content).toBe('{"order":"o-1"}');
  });
});
