/** Many writers on one database, databases that would forget, and objects of somebody else. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, startGatewayProcess, type Gateway, type GatewayProcess } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let second: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  second = await startGateway({ sharedWith: gateway });
});

afterAll(async () => {
  await second.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
});

const question = { messages: [{ role: "user", content: "order" }] };

/** A model that orders once and then says so; each chat has a number of its own. */
function orderOnce(): void {
  llm.respond((body) => {
    const messages = body["messages"] as Json[];
    if (messages.at(-1).role === "tool") return text("Ordered.");
    return calls({ name: "create_order", arguments: { sku: messages[0].content } });
  });
}

const plugin = (at: number): Json => ({
  ...readingTool(backEnd, `made_${at}`),
  schema_version: "v1",
  description: "Made under load.",
});
const times = (count: number): readonly number[] => Array.from({ length: count }, (_none, at) => at);

async function countOf(client: Client, path: string): Promise<number> {
  let count = 0;
  for (let after = ""; ;) {
    const page = await client.get(`${path}&limit=100${after}`);
    count += page.data.length;
    if (page.has_more !== true) return count;
    after = `&after=${page.last_id}`;
  }
}

describe(`fifty writers at once ${verifies("CHAT-13", "BLIND-4")}`, () => {
  interface Count {
    readonly refused: readonly string[];
    readonly chats: number;
    readonly writes: number;
    readonly sent: number;
    readonly plugins: number;
    readonly further: string;
  }

  const asItShouldBe: Count = { refused: [], chats: 25, writes: 25, sent: 25, plugins: 25, further: "made_99" };

  async function load(clientOf: (at: number) => Client, tenant: TestTenant): Promise<Count> {
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(writingTool(backEnd));
    orderOnce();
    const replies = await Promise.all(
      times(50).map((at) => {
        const client = clientOf(at);
        if (at % 2 === 0) return client.send("post", "/v1/plugins", plugin(at));
        return client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: `S${at}` }] });
      }),
    );
    const { client } = tenant;
    await expect.poll(() => countOf(client, "/v1/calls?kind=chat&state=running")).toBe(0);
    const { id } = await client.post("/v1/plugins", plugin(99));
    const names = (await client.get("/v1/plugins?limit=100")).data.map((one: Json) => one.name as string);
    return {
      refused: replies.filter((reply) => reply.status >= 300).map((reply) => reply.text),
      chats: await countOf(client, "/v1/calls?kind=chat&state=completed"),
      writes: await countOf(client, "/v1/calls?kind=tool&state=completed"),
      sent: new Set(backEnd.requests.map((request) => request.body.toString("utf8"))).size,
      plugins: names.filter((name: string) => name.startsWith("made_") && name !== "made_99").length,
      further: (await client.get(`/v1/plugins/${id}`)).name,
    };
  }

  test("through one instance: all succeed, nothing is lost or doubled", async () => {
    const tenant = await gateway.newTenant({ concurrent_tool_calls: 100 });
    expect(await load(() => tenant.client, tenant)).toEqual(asItShouldBe);
    expect(backEnd.requests).toHaveLength(25);
  });

  test("through two instances on the same file", async () => {
    const tenant = await gateway.newTenant({ concurrent_tool_calls: 100 });
    const there = second.client(tenant.key);
    expect(await load((at) => (at % 4 < 2 ? tenant.client : there), tenant)).toEqual(asItShouldBe);
    expect(backEnd.requests).toHaveLength(25);
  });

  test("through two processes on the same file", async () => {
    const first = await startGatewayProcess();
    let other: GatewayProcess | undefined;
    try {
      other = await startGatewayProcess({ sharedWith: first });
      const tenant = await first.newTenant({ concurrent_tool_calls: 100 });
      const there = other.client(tenant.key);
      expect(await load((at) => (at % 4 < 2 ? tenant.client : there), tenant)).toEqual(asItShouldBe);
      expect(backEnd.requests).toHaveLength(25);
      expect(first.output() + other.output()).not.toMatch(/SQLITE_BUSY|database is locked/);
    } finally {
      await other?.close();
      await first.close();
    }
  });
});

describe(`waiting for somebody else ${verifies("CHAT-13")}`, () => {
  test("for a model or a tool, holds no transaction: others write meanwhile", async () => {
    const tenant = await gateway.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(writingTool(backEnd));
    const open = Promise.withResolvers<void>();
    const reached: string[] = [];
    backEnd.answer = async () => {
      reached.push("tool");
      await open.promise;
      return { body: "{}" };
    };
    llm.respond((body) => {
      reached.push("model");
      const isAnswered = (body["messages"] as Json[]).at(-1).role === "tool";
      return isAnswered ? text("Ordered.") : calls({ name: "create_order", arguments: { sku: "S" } });
    });
    const chat = tenant.client.send("post", "/v1/chat/completions", question);
    await expect.poll(() => reached).toEqual(["model", "tool"]);
    // The chat is in the middle of its only write, and waits.
    for (const at of times(10)) {
      await tenant.client.post("/v1/plugins", plugin(at));
      await second.client(tenant.key).expect("put", `/v1/credentials/KEY_${at}`, { value: "v" });
    }
    open.resolve();
    expect(await chat).toMatchObject({ status: 200, json: { choices: [{ message: { content: "Ordered." } }] } });
  });

  test("who holds the file's write lock for a moment, delays and does not fail", async () => {
    const tenant = await gateway.newTenant();
    const holder = new DatabaseSync(gateway.databaseUrl.slice("file:".length));
    holder.exec("BEGIN IMMEDIATE");
    const writing = Promise.all(times(5).map((at) => tenant.client.send("post", "/v1/plugins", plugin(at))));
    await sleep(400);
    holder.exec("ROLLBACK");
    holder.close();
    expect((await writing).map((reply) => reply.status)).toEqual([201, 201, 201, 201, 201]);
  });

  test("who holds it for too long, is told as an outage that passes, in our own words", async () => {
    const tenant = await gateway.newTenant();
    const holder = new DatabaseSync(gateway.databaseUrl.slice("file:".length));
    holder.exec("BEGIN IMMEDIATE");
    const reply = await tenant.client.send("post", "/v1/plugins", plugin(1));
    holder.exec("ROLLBACK");
    holder.close();
    expect([reply.status, reply.json.error.code, reply.json.error.retryable]).toEqual([
      503,
      "database_unavailable",
      true,
    ]);
    expect(reply.headers.get("retry-after")).not.toBeNull();
    expect(reply.text).not.toMatch(/SQLITE|locked/i);
    expect((await tenant.client.send("post", "/v1/plugins", plugin(1))).status).toBe(201);
  });
});

describe("the address of the database", () => {
  const directories: string[] = [];
  afterEach(async () => {
    for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
  });

  test.each([
    ":memory:",
    "file::memory:",
    "file::memory:?cache=shared",
    "file:test?mode=memory&cache=shared",
    "file:/tmp/x.db?mode=memory",
    "file:",
    "file:///",
    "sqlite::memory:",
    "sqlite:/tmp/test.db",
    "memory",
    "libsql://",
  ])("%s is refused at the start, naming one that works", async (url) => {
    const starting = startGateway({ env: { DATABASE_URL: url } });
    await expect(starting.then((started) => started.close())).rejects.toThrow(/DATABASE_URL.*(?:file:|libsql:)/s);
  });

  test("of a file keeps what it is told, over two chats at once and another start", async () => {
    const directory = await mkdtemp(join(tmpdir(), "toolyard-database-"));
    directories.push(directory);
    const url = `file:${join(directory, "deep", "test.db")}`;
    const own = await startGateway({ env: { DATABASE_URL: url } });
    try {
      const tenant = await own.newTenant();
      await tenant.addProvider(llm.url);
      await tenant.addPlugin(writingTool(backEnd));
      orderOnce();
      expect((await tenant.client.get("/v1/plugins")).data.map((one: Json) => one.name)).toContain("create_order");
      const chats = await Promise.all(
        times(2).map((at) =>
          tenant.client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: `S${at}` }] }),
        ),
      );
      expect(chats.map((reply) => reply.status)).toEqual([200, 200]);
      const again = await startGateway({ sharedWith: own, env: { DATABASE_URL: url } });
      expect((await again.client(tenant.key).get("/v1/plugins")).data.map((one: Json) => one.name)).toContain(
        "create_order",
      );
      await again.close();
    } finally {
      await own.close();
    }
  });
});

describe(`what belongs to somebody else ${verifies("CHAT-5", "CHAT-8", "CHAT-13", "BLIND-5")}`, () => {
  let mine: TestTenant;
  let theirs: TestTenant;
  let theirCall: string;

  beforeAll(async () => {
    [mine, theirs] = [await gateway.newTenant({ result_bytes: 256 }), await gateway.newTenant({ result_bytes: 256 })];
    for (const tenant of [mine, theirs]) {
      await tenant.addProvider(llm.url);
      await tenant.addPlugin(readingTool(backEnd));
    }
    backEnd.answer = () => ({ headers: { "content-type": "text/plain" }, body: `${"secret of theirs ".repeat(100)}` });
    const made = await theirs.client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
    theirCall = made.handle.call_id;
    await theirs.client.expect("put", "/v1/sessions/their-session/files/a.txt", undefined, {
      raw: "secret of theirs",
      headers: { "content-type": "text/plain" },
    });
  });

  /** What a tool tells the model of `mine`. */
  async function told(name: string, args: Json, session: Json = {}, client = mine.client): Promise<string> {
    llm.requests.length = 0;
    llm.script(calls({ name, arguments: args }), text("done"));
    const reply = await client.send("post", "/v1/chat/completions", { ...question, ...session });
    const asked: Json = llm.requests[1];
    return asked?.messages.at(-1).content ?? reply.text;
  }

  test("a result's handle reads nothing, as one that does not exist", async () => {
    const strange = await told("read_result", { call_id: theirCall }, { session_id: "mine-1" });
    const missing = await told("read_result", { call_id: "call_01jdnhz2v4x8mfkq3w7c5r9gta" }, { session_id: "mine-1" });
    expect(strange).not.toContain("secret");
    expect(JSON.parse(strange).error.code).toBe(JSON.parse(missing).error.code);
    expect(strange.replaceAll(theirCall, "ID")).toBe(missing.replaceAll("call_01jdnhz2v4x8mfkq3w7c5r9gta", "ID"));
    // Its owner reads on.
    expect(await told("read_result", { call_id: theirCall }, { session_id: "theirs-1" }, theirs.client)).toContain(
      "secret",
    );
  });

  test("a session is missing, in a chat, in a call and as files", async () => {
    for (const [method, path, body] of [
      ["post", "/v1/chat/completions", { ...question, session_id: "their-session" }],
      ["post", "/api/chat/completions", { ...question, session_id: "their-session", stream: true }],
      ["post", "/v1/tools/invoke", { name: "read_file", arguments: { path: "a.txt" }, session_id: "their-session" }],
      ["get", "/v1/sessions/their-session/files/a.txt", undefined],
      ["put", "/v1/sessions/their-session/files/b.txt", undefined],
      ["delete", "/v1/sessions/their-session", undefined],
    ] as const) {
      const raw = method === "put" ? { raw: "x", headers: { "content-type": "text/plain" } } : {};
      const reply = await mine.client.send(method, path, body, raw);
      expect([path, reply.status]).toEqual([path, 404]);
      expect(reply.text).not.toContain("secret");
    }
    expect((await theirs.client.get("/v1/sessions/their-session/files")).data).toHaveLength(1);
  });

  test("a page after an id of theirs holds what is mine", async () => {
    const [theirPlugin] = (await theirs.client.get("/v1/plugins?limit=1&order=asc")).data;
    const cursors = { calls: theirCall, plugins: theirPlugin.id, sessions: "their-session", "api-keys": theirs.keyId };
    for (const [list, id] of Object.entries(cursors)) {
      const own = (await mine.client.get(`/v1/${list}?limit=100`)).data.map((item: Json) => item.id);
      for (const order of ["asc", "desc"]) {
        const reply = await mine.client.send("get", `/v1/${list}?limit=100&order=${order}&after=${id}`);
        const listed = (reply.json.data ?? []).map((item: Json) => item.id);
        expect(listed.filter((item: string) => !own.includes(item))).toEqual([]);
        expect(reply.text).not.toContain("secret");
      }
    }
  });

  test("naming their tenant in a header changes nothing for a key that has a tenant", async () => {
    const there = mine.client.with({ "x-toolyard-tenant": theirs.id });
    const reply = await there.send("get", `/v1/calls/${theirCall}`);
    expect([reply.status, reply.json.error.code]).toEqual([401, "invalid_api_key"]);
    expect((await there.send("get", "/v1/calls")).text).not.toContain(theirCall);
  });

  test("a turn that was kept for them cannot be gone on with", async () => {
    const tools = [
      { type: "function", function: { name: "get_weather", parameters: { type: "object", properties: {} } } },
    ];
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }, { name: "get_weather", arguments: {} }));
    const first = await theirs.client.post("/v1/chat/completions", { ...question, tools });
    const { message } = first.choices[0];
    const answered = [
      ...question.messages,
      message,
      { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" },
    ];
    llm.requests.length = 0;
    const reply = await mine.client.send("post", "/v1/chat/completions", { messages: answered, tools });
    expect([reply.status, reply.json.error.code]).toEqual([410, "tool_turn_expired"]);
    expect(llm.requests).toHaveLength(0);
  });

  test("their idempotency key and their retries are not mine", async () => {
    const headers = { "idempotency-key": "shared-key" };
    llm.script(text("theirs"));
    await theirs.client.post("/v1/chat/completions", question, headers);
    llm.script(text("mine"));
    const own = await mine.client.post("/v1/chat/completions", question, headers);
    expect(own.choices[0].message.content).toBe("mine");
    const retried = await mine.client.send("post", "/v1/chat/completions", question, {
      headers: { "x-stainless-retry-count": "1" },
    });
    expect(retried.text).not.toContain("theirs");
  });

  test("their tools, models and credentials are not there", async () => {
    await theirs.addPlugin(readingTool(backEnd, "their_tool"));
    await theirs.addProvider(llm.url, { models: { "their-model": "stub-1" } });
    await theirs.putCredential("THEIR_KEY", "sk-of-theirs-123");
    const reply = await mine.client.send("post", "/v1/chat/completions", {
      ...question,
      model: "their-model",
      tools: [],
    });
    expect([reply.status, reply.json.error.code]).toEqual([404, "model_not_found"]);
    const uses = { type: "bearer", mapping: [{ source: "THEIR_KEY" }] };
    await mine.addPlugin({ ...readingTool(backEnd, "borrower"), auth_config: uses });
    const call = (body: Json): Promise<Json> =>
      mine.client
        .send("post", "/v1/tools/invoke", { arguments: { q: "x" }, ...body })
        .then((reply) => [reply.status, reply.json.error.code]);
    expect(await call({ name: "their_tool" })).toEqual([404, "tool_not_found"]);
    expect(await call({ uri: "plugin://their_tool" })).toEqual([404, "tool_not_found"]);
    expect(await call({ name: "borrower" })).toEqual([400, "credential_missing"]);
  });
});
