/** The call record seen from outside: late calls, cancelling, repeating, and what a repetition gets. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  const timing = { cancelPollMs: 50 };
  [gateway, llm, backEnd] = await Promise.all([startGateway({ timing }), startLlmStub(), startHttpStub()]);
  other = await startGateway({ timing, sharedWith: gateway });
});

afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  llm.aborted.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(orders("order"));
});

const orders = (name: string, change: Json = {}): Json => ({
  name,
  parameters: { type: "object", properties: { sku: { type: "string" } }, required: ["sku"] },
  execution: {
    method: "POST",
    base_url: `${backEnd.url}/${name}`,
    content_type: "application/json",
    param_placement: "body",
    ...change,
  },
});
const chatBody = { messages: [{ role: "user", content: "order S1" }] };

function call(client: Client, id: string): Promise<Json> {
  return client.get(`/v1/calls/${id}`);
}

async function ended(id: string): Promise<Json> {
  await expect
    .poll(async () => (await call(tenant.client, id)).state, { timeout: 10_000 })
    .not.toMatch(/queued|running/);
  return call(tenant.client, id);
}

describe(`calls that run later ${verifies("CHAT-13")}`, () => {
  test("202 with the call's address; a worker runs it; row and result can be read", async () => {
    const reply = await tenant.client.send("post", "/v1/tools/invoke", {
      uri: "plugin://order",
      arguments: { sku: "S1" },
      async: true,
    });
    expect([reply.status, reply.json.status]).toEqual([202, "queued"]);
    const row = await ended(reply.json.id);
    expect(row).toMatchObject({
      state: "completed",
      tool: "order",
      effect: "write",
      async: true,
      attempt: 1,
      input: { sku: "S1" },
    });
    expect(row.duration_ms).toBeGreaterThanOrEqual(0);
    expect(row.trace_id).toMatch(/^[0-9a-f]{32}$/);
    const result = await tenant.client.send("get", `/v1/calls/${reply.json.id}/result`);
    expect(result.text).toBe('{"ok":true}');
  });

  test("the option async=true of the URI does the same", async () => {
    const reply = await tenant.client.send("post", "/v1/tools/invoke", {
      uri: "plugin://order?async=true",
      arguments: { sku: "S1" },
    });
    expect(reply.status).toBe(202);
    expect((await ended(reply.json.id)).state).toBe("completed");
  });

  test("a key that was revoked in the meantime runs nothing", async () => {
    const key = await tenant.newKey({ scopes: ["tools"] });
    await tenant.addPlugin({ ...orders("guarded"), sensitive: true });
    const asked = await key.client.post("/v1/tools/invoke", { name: "guarded", arguments: { sku: "S1" } });
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    await tenant.client.post(`/v1/calls/${asked.id}/approve`);
    expect(await ended(asked.id)).toMatchObject({ state: "failed", error: { code: "permission_denied" } });
    expect(backEnd.requests).toHaveLength(0);
  });

  test("a write without an answer is unknown, is not sent again, and late evidence may settle it", async () => {
    await tenant.addPlugin(orders("silent", { timeout_ms: 100, max_attempts: 3 }));
    backEnd.answer = () => ({ body: "{}", delayMs: 500 });
    const reply = await tenant.client.send("post", "/v1/tools/invoke", { name: "silent", arguments: { sku: "S1" } });
    expect([reply.status, reply.json.error.code]).toEqual([502, "outcome_unknown"]);
    expect(reply.headers.get("x-should-retry")).toBe("false");
    expect((await call(tenant.client, reply.json.error.call_id)).state).toBe("unknown");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("with a key that the back end honours it is sent again, under the same key", async () => {
    await tenant.addPlugin(
      orders("keyed", { timeout_ms: 100, max_attempts: 3, idempotency_header: "Idempotency-Key" }),
    );
    let first = true;
    backEnd.answer = () => {
      const delayMs = first ? 500 : 0;
      first = false;
      return { body: '{"done":1}', delayMs };
    };
    const done = await tenant.client.post("/v1/tools/invoke", { name: "keyed", arguments: { sku: "S1" } });
    expect(done.content).toBe('{"done":1}');
    expect(backEnd.requests.map((request) => request.headers["idempotency-key"])).toEqual([done.id, done.id]);
  });
});

describe(`stopping ${verifies("CHAT-13")}`, () => {
  test("a queued call is cancelled before it runs, a running read at once", async () => {
    await tenant.addPlugin({
      name: "wait",
      parameters: { type: "object", properties: {} },
      execution: {
        method: "GET",
        base_url: `${backEnd.url}/wait`,
        content_type: "application/json",
        param_placement: "query",
      },
    });
    backEnd.answer = () => ({ body: "{}", delayMs: 3_000 });
    const reply = await tenant.client.post("/v1/tools/invoke", { name: "wait", async: true });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    await tenant.client.post(`/v1/calls/${reply.id}/cancel`);
    expect((await ended(reply.id)).state).toBe("cancelled");
  });

  test("/v1/interrupt stops a chat that runs on the other instance, by the name its client gave", async () => {
    llm.respond(() => ({
      writes: [
        chunk({ role: "assistant", content: "a" }),
        ...Array.from({ length: 50 }, () => chunk({ content: "b" })),
        chunk({}, "stop"),
        done,
      ],
      gapMs: 100,
    }));
    const streaming = other
      .client(tenant.key)
      .send("post", "/api/chat/completions", { ...chatBody, stream: true, requestId: "my-chat" });
    await expect.poll(() => llm.requests.length).toBe(1);
    await expect
      .poll(async () => (await tenant.client.send("post", "/v1/interrupt", { requestId: "my-chat" })).status)
      .toBe(200);
    const events = sseEvents((await streaming).text) as Json[];
    expect(events.slice(-2)).toMatchObject([{ type: "error", error: { code: "request_cancelled" } }, "[DONE]"]);
    await expect.poll(() => llm.aborted.length).toBe(1);
    expect((await tenant.client.send("post", "/v1/interrupt", { requestId: "my-chat" })).status).toBe(404);
  });

  test("/v1/interrupt finds a chat by its call, and all chats of one name, however many run", async () => {
    llm.respond(() => ({ json: {}, delayMs: 20_000 }));
    const ask = () => tenant.client.send("post", "/v1/chat/completions", { ...chatBody, requestId: "many" });
    const first = ask();
    await expect.poll(() => llm.requests.length).toBe(1);
    const [oldest] = (await tenant.client.get("/v1/calls?kind=chat&state=running")).data as Json[];
    // More than one page of the list of calls.
    const rest = Array.from({ length: 101 }, ask);
    await expect.poll(() => llm.requests.length, { timeout: 10_000 }).toBe(102);
    const named = await tenant.client.post("/v1/interrupt", { call_id: oldest?.["id"] });
    expect(named.call_ids).toEqual([oldest?.["id"]]);
    expect((await first).json.error.code).toBe("request_cancelled");
    expect((await tenant.client.post("/v1/interrupt", { requestId: "many" })).call_ids).toHaveLength(101);
    const codes = (await Promise.all(rest)).map(({ json }) => json.error.code as string);
    expect(new Set(codes)).toEqual(new Set(["request_cancelled"]));
  });

  test("/v1/interrupt tells nobody of chats that are another key's, or that are none", async () => {
    llm.respond(() => ({ json: {}, delayMs: 20_000 }));
    const running = tenant.client.send("post", "/v1/chat/completions", { ...chatBody, requestId: "mine" });
    await expect.poll(() => llm.requests.length).toBe(1);
    const [chat] = (await tenant.client.get("/v1/calls?kind=chat&state=running")).data as Json[];
    const id = chat?.["id"] as string;
    const [stranger, foreign] = [await tenant.newKey({ scopes: ["chat"] }), await gateway.newTenant()];
    for (const client of [stranger.client, foreign.client]) {
      for (const body of [{ call_id: id }, { requestId: "mine" }]) {
        expect((await client.send("post", "/v1/interrupt", body)).status).toBe(404);
      }
    }
    const other = { call_id: id, requestId: "another" };
    expect((await tenant.client.send("post", "/v1/interrupt", other)).status).toBe(404);
    expect((await tenant.client.post("/v1/interrupt", { call_id: id })).call_ids).toEqual([id]);
    await running;
    const again = await tenant.client.send("post", "/v1/interrupt", { call_id: id });
    expect([again.status, again.json.error.param]).toEqual([404, "call_id"]);
  });

  test("a client that leaves takes the model call with it, once, and no tool starts", async () => {
    const round = calls({ name: "order", arguments: { sku: "S1" } });
    llm.respond(() => ({
      writes: [
        chunk({ role: "assistant", content: "x" }),
        ...Array.from({ length: 20 }, () => chunk({ content: "." })),
        ...round.writes,
      ],
      gapMs: 50,
    }));
    const leaving = new AbortController();
    const streaming = tenant.client.send(
      "post",
      "/v1/chat/completions",
      { ...chatBody, stream: true },
      { signal: leaving.signal },
    );
    await expect.poll(() => llm.requests.length).toBe(1);
    await new Promise((next) => setTimeout(next, 150));
    leaving.abort();
    await expect(streaming).rejects.toThrow("aborted");
    await expect.poll(() => llm.aborted.length, { timeout: 2_000 }).toBe(1);
    await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat")).data[0].state).toBe("cancelled");
    expect(llm.requests).toHaveLength(1);
    expect(backEnd.requests).toHaveLength(0);
  });
});

describe("the same request again", () => {
  const key = { "idempotency-key": "order-1" };

  test("a key gives the first answer again, as JSON and as a stream, and nothing runs twice", async () => {
    llm.script(calls({ name: "order", arguments: { sku: "S1" } }), text("ordered"));
    const first = await tenant.client.send("post", "/v1/chat/completions", chatBody, { headers: key });
    await expect
      .poll(async () => (await tenant.client.send("post", "/v1/chat/completions", chatBody, { headers: key })).status)
      .toBe(200);
    const second = await other.client(tenant.key).send("post", "/v1/chat/completions", chatBody, { headers: key });
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect(first.json).toMatchObject({ usage: {}, tool_execution: { tools_called: ["order"] } });
    expect(second.text).toBe(first.text);
    expect([llm.requests.length, backEnd.requests.length]).toEqual([2, 1]);
    const changed = await tenant.client.send(
      "post",
      "/v1/chat/completions",
      { ...chatBody, temperature: 1 },
      { headers: key },
    );
    expect([changed.status, changed.json.error.code]).toEqual([422, "idempotency_key_reused"]);
  });

  test("a streamed answer is streamed again", async () => {
    llm.script(text("streamed once"));
    const body = { ...chatBody, stream: true, stream_options: { include_usage: true } };
    const first = await tenant.client.send("post", "/v1/chat/completions", body, { headers: key });
    let second = first;
    await expect
      .poll(
        async () =>
          (second = await other.client(tenant.key).send("post", "/v1/chat/completions", body, { headers: key })).status,
      )
      .toBe(200);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    const content = (stream: string): string =>
      (sseEvents(stream) as Json[]).map((event) => event.choices?.[0]?.delta?.content ?? "").join("");
    expect(content(second.text)).toBe(content(first.text));
    expect((sseEvents(second.text) as Json[]).at(-2).usage).toEqual((sseEvents(first.text) as Json[]).at(-2).usage);
    expect(llm.requests).toHaveLength(1);
  });

  test("while the first one runs, a second with its key is told to wait", async () => {
    llm.respond(() => ({ json: {}, status: 500, delayMs: 400 }));
    const first = tenant.client.send("post", "/v1/chat/completions", chatBody, { headers: key });
    await expect.poll(() => llm.requests.length).toBeGreaterThan(0);
    const second = await other.client(tenant.key).send("post", "/v1/chat/completions", chatBody, { headers: key });
    expect([second.status, second.json.error.code]).toEqual([409, "idempotency_in_progress"]);
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    await first;
  });

  test("an SDK's retry attaches to the chat that still runs, and gets its answer", async () => {
    llm.respond((body) =>
      (body["messages"] as Json[]).length > 1
        ? text("ordered")
        : { ...calls({ name: "order", arguments: { sku: "S1" } }) },
    );
    backEnd.answer = () => ({ body: "{}", delayMs: 300 });
    const first = tenant.client.send("post", "/v1/chat/completions", chatBody);
    await expect.poll(() => backEnd.requests.length).toBe(1);
    const retry = await other
      .client(tenant.key)
      .send("post", "/v1/chat/completions", chatBody, { headers: { "x-stainless-retry-count": "1" } });
    expect(retry.json.choices[0].message.content).toBe("ordered");
    expect((await first).status).toBe(200);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("after a client left in the middle of a write, its retry finds the write and does not repeat it", async () => {
    llm.respond((body) =>
      (body["messages"] as Json[]).length > 1 ? text("ordered") : calls({ name: "order", arguments: { sku: "S1" } }),
    );
    backEnd.answer = () => ({ body: '{"order":7}', delayMs: 300 });
    const leaving = new AbortController();
    const first = tenant.client.send("post", "/v1/chat/completions", chatBody, { signal: leaving.signal });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    leaving.abort();
    await expect(first).rejects.toThrow("aborted");
    await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat")).data[0].state).toBe("cancelled");
    const retry = await other
      .client(tenant.key)
      .send("post", "/v1/chat/completions", chatBody, { headers: { "x-stainless-retry-count": "1" } });
    expect(retry.status).toBe(200);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("direct calls too: replayed, refused for another body, and nothing sent twice", async () => {
    const body = { name: "order", arguments: { sku: "S1" } };
    const first = await tenant.client.post("/v1/tools/invoke", body, key);
    const second = await other.client(tenant.key).send("post", "/v1/tools/invoke", body, { headers: key });
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect(second.json).toEqual(first);
    const changed = await tenant.client.send(
      "post",
      "/v1/tools/invoke",
      { ...body, arguments: { sku: "S2" } },
      { headers: key },
    );
    expect(changed.status).toBe(422);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("a finished call is replayed by hand; a write only when confirmed", async () => {
    const first = await tenant.client.post("/v1/tools/invoke", { name: "order", arguments: { sku: "S1" } });
    expect((await tenant.client.send("post", `/v1/calls/${first.id}/replay`, {})).status).toBe(409);
    const again = await tenant.client.post(`/v1/calls/${first.id}/replay`, { confirm: true });
    expect((await ended(again.id)).state).toBe("completed");
    expect(backEnd.requests).toHaveLength(2);
  });
});
