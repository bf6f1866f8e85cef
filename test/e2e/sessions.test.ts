/** The life of a session: its workspace is its own, has a size and a time, and is gone afterwards (CHAT-8). */
import { openDatabase } from "@toolyard/db/client";
import type { Database, SqlValue } from "@toolyard/db/database";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let one: Gateway;
let two: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let database: Database;
let tenant: TestTenant;

const dayMs = 86_400_000;
const defaultBytes = 104_857_600;

beforeAll(async () => {
  // Sessions end when the tests say so.
  [one, llm, backEnd] = await Promise.all([startGateway({ requestsOnly: true }), startLlmStub(), startHttpStub()]);
  two = await startGateway({ sharedWith: one, requestsOnly: true });
  database = await openDatabase({ url: one.databaseUrl });
});

afterAll(async () => {
  await database.close();
  await two.close();
  await Promise.all([one.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await newTenant();
});

async function newTenant(settings: Json = {}): Promise<TestTenant> {
  const made = await one.newTenant(settings);
  await made.addProvider(llm.url);
  return made;
}

async function query(sql: string, ...args: SqlValue[]): Promise<readonly Json[]> {
  const [found] = await database.batch([{ sql, args }]);
  return found?.rows ?? [];
}

/** As if nothing had been done in the session for so long. */
async function idleFor(session: string, ms: number): Promise<void> {
  await query("UPDATE sessions SET last_used_at = last_used_at - ?2 WHERE id = ?1", session, ms);
}

/** Rows and blobs that a tenant's sessions hold. */
async function holdings(of: TestTenant): Promise<{ readonly files: number; readonly blobs: number }> {
  const [row] = await query("SELECT COUNT(*) AS files FROM workspace_files WHERE tenant = ?1", of.id);
  return { files: Number(row?.["files"]), blobs: (await one.core.blobs.list(`${of.id}/workspaces/`)).length };
}

function put(client: Client, session: string, path: string, raw: string | Uint8Array<ArrayBuffer>): Promise<Reply> {
  return client.send("put", `/v1/sessions/${session}/files/${path}`, undefined, { raw });
}

function invoke(client: Client, name: string, args: Json, session: string): Promise<Reply> {
  return client.send("post", "/v1/tools/invoke", { name, arguments: args, session_id: session });
}

/** One chat in which the model makes these calls; what it was told of each. */
async function chat(
  client: Client,
  session: string,
  ...wanted: { name: string; arguments: Json }[]
): Promise<string[]> {
  llm.script(calls(...wanted), text("done"));
  await client.post("/v1/chat/completions", { messages: [{ role: "user", content: "go" }], session_id: session });
  return toldToModel();
}

/** A chat that looks something up and then writes a file; in between, this happens. */
async function chatMeanwhile(session: string, happen: () => Promise<unknown>): Promise<void> {
  await tenant.addPlugin(readingTool(backEnd));
  backEnd.answer = async () => {
    await happen();
    return { body: "{}" };
  };
  const write = { name: "write_file", arguments: { path: "b", content: "b" } };
  llm.script(calls({ name: "lookup", arguments: { q: "x" } }), calls(write), text("done"));
  const body = { messages: [{ role: "user", content: "go" }], session_id: session };
  const answer = await tenant.client.post("/v1/chat/completions", body);
  expect(answer.choices[0].message.content).toBe("done");
}

function toldToModel(): string[] {
  const messages = llm.requests.at(-1)?.["messages"] as Json[];
  return messages.filter(({ role }) => role === "tool").map(({ content }) => content as string);
}

const errorIn = (told: string | undefined): Json => JSON.parse(told ?? "{}").error;

describe(`each session's workspace ${verifies("CHAT-8", "CHAT-9")}`, () => {
  test("is its own: what one session's model writes, another's neither reads, lists nor deletes", async () => {
    await chat(tenant.client, "mine", { name: "write_file", arguments: { path: "/plan.txt", content: "secret plan" } });
    const there = two.client(tenant.key);
    const told = await chat(
      there,
      "other",
      { name: "read_file", arguments: { path: "/plan.txt" } },
      { name: "list_files", arguments: {} },
      { name: "delete_file", arguments: { path: "plan.txt" } },
    );
    expect([errorIn(told[0]).code, JSON.parse(told[1] ?? ""), errorIn(told[2]).code]).toEqual([
      "file_not_found",
      { files: [], total: 0 },
      "file_not_found",
    ]);
    expect(JSON.stringify(llm.requests)).not.toContain("secret plan".repeat(2));
    const again = await chat(there, "mine", { name: "read_file", arguments: { path: "plan.txt" } });
    expect(again).toEqual(["secret plan"]);
  });

  test("is its caller's: for other keys of the tenant and for other tenants there is no such session", async () => {
    await put(tenant.client, "owned", "a.txt", "mine");
    const { client: colleague } = await tenant.newKey();
    const stranger = await newTenant();
    for (const client of [colleague, stranger.client]) {
      const chatted = await client.send("post", "/v1/chat/completions", {
        messages: [{ role: "user", content: "read a.txt" }],
        session_id: "owned",
      });
      const invoked = await invoke(client, "read_file", { path: "a.txt" }, "owned");
      for (const reply of [chatted, invoked]) {
        expect(reply).toMatchObject({
          status: 404,
          json: { error: { code: "session_not_found", param: "session_id" } },
        });
      }
    }
    expect(llm.requests).toHaveLength(0);
  });

  test("is named in the answer by its virtual path, and can be deleted: then the id is free and the room empty", async () => {
    llm.script(calls({ name: "write_file", arguments: { path: "a.txt", content: "A" } }), text("done"));
    const body = { messages: [{ role: "user", content: "go" }], session_id: "brief" };
    const answer = await tenant.client.post("/v1/chat/completions", body);
    expect(answer.tool_execution).toMatchObject({ session_id: "brief", workspace_path: "/mcp_workspaces/brief" });
    await expect.poll(() => holdings(tenant), { timeout: 5_000 }).toEqual({ files: 1, blobs: 1 });
    expect((await tenant.client.send("delete", "/v1/sessions/brief")).status).toBe(204);
    expect(await holdings(tenant)).toEqual({ files: 0, blobs: 0 });
    expect(await chat(two.client(tenant.key), "brief", { name: "list_files", arguments: {} })).toEqual([
      '{"files":[],"total":0}',
    ]);
    const { client: colleague } = await tenant.newKey();
    expect((await colleague.send("delete", "/v1/sessions/brief")).status).toBe(404);
  });

  test("that is deleted while its model works is told to the model as it is", async () => {
    await chatMeanwhile("pulled", () => tenant.client.send("delete", "/v1/sessions/pulled"));
    expect(errorIn(toldToModel()[1])).toMatchObject({ code: "session_not_found" });
    expect(await holdings(tenant)).toEqual({ files: 0, blobs: 0 });
  });
});

describe(`the size of a workspace ${verifies("CHAT-8", "CHAT-12")}`, () => {
  test("is 100 MB unless the tenant says otherwise: the last byte fits, one more does not", async () => {
    expect(await tenant.client.get("/v1/settings")).toMatchObject({
      workspace_bytes: defaultBytes,
      session_idle_ms: dayMs,
    });
    expect((await put(tenant.client, "full", "big", new Uint8Array(defaultBytes))).status).toBe(201);
    expect(await put(two.client(tenant.key), "full", "one", "x")).toMatchObject({
      status: 413,
      json: { error: { code: "workspace_full", limit_bytes: defaultBytes, used_bytes: defaultBytes } },
    });
    await tenant.client.expect("patch", "/v1/settings", { workspace_bytes: defaultBytes + 1 });
    expect((await put(two.client(tenant.key), "full", "one", "x")).status).toBe(201);
  });

  test("is told to the model as the tool's error, in the stream too, and to a direct caller with its status", async () => {
    const small = await newTenant({ workspace_bytes: 1_024 });
    const write = { name: "write_file", arguments: { path: "big.txt", content: "x".repeat(1_025) } };
    const [told] = await chat(small.client, "s", write);
    expect(errorIn(told)).toMatchObject({ code: "workspace_full", details: { limit_bytes: 1_024 } });
    expect(errorIn(told).message).toContain("workspace_bytes");
    llm.script(calls(write), text("done"));
    const streamed = await small.client.send("post", "/api/chat/completions", {
      messages: [{ role: "user", content: "go" }],
      session_id: "s",
      stream: true,
    });
    const result = (sseEvents(streamed.text) as Json[]).find(({ type }) => type === "tool_result").result;
    expect([result.success, errorIn(result.content).code]).toEqual([false, "workspace_full"]);
    expect(await invoke(small.client, "write_file", write.arguments, "s")).toMatchObject({
      status: 413,
      json: { error: { code: "workspace_full", type: "invalid_request_error", tool_name: "write_file" } },
    });
    expect(await holdings(small)).toEqual({ files: 0, blobs: 0 });
  });

  test("holds when both instances write at once, and nothing of the refused stays", async () => {
    const small = await newTenant({ workspace_bytes: 1_024 });
    await put(small.client, "race", "first", "x".repeat(24));
    const instances = [one.client(small.key), two.client(small.key)] as const;
    const replies = await Promise.all(
      Array.from({ length: 12 }, (_none, at) =>
        invoke(instances[at % 2 === 0 ? 0 : 1], "write_file", { path: `f${at}`, content: "x".repeat(250) }, "race"),
      ),
    );
    const statuses = replies.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(4);
    expect(statuses.filter((status) => status === 413)).toHaveLength(8);
    expect(await holdings(small)).toEqual({ files: 5, blobs: 5 });
    expect(await small.client.get("/v1/sessions/race")).toMatchObject({ bytes: 1_024 });
  });
});

describe(`the time of a session ${verifies("CHAT-8")}`, () => {
  async function openings(client: Client, session: string): Promise<[number, string | undefined][]> {
    const body = { messages: [{ role: "user", content: "go" }], session_id: session };
    const replies = [
      await client.send("post", "/v1/chat/completions", body),
      await client.send("post", "/api/chat/completions", { ...body, stream: true }),
      await invoke(client, "list_files", {}, session),
      await client.send("get", `/v1/sessions/${session}/files`),
    ];
    return replies.map(({ status, json }) => [status, json?.error?.code]);
  }

  test("is 24 hours without use, and every use begins it anew", async () => {
    llm.script(text("ok"));
    await put(tenant.client, "day", "a", "a");
    await idleFor("day", dayMs - 60_000);
    expect((await invoke(two.client(tenant.key), "read_file", { path: "a" }, "day")).json.content).toBe("a");
    await idleFor("day", dayMs - 60_000);
    expect((await openings(tenant.client, "day")).map(([status]) => status)).toEqual([200, 200, 200, 200]);
    await idleFor("day", dayMs + 1_000);
    llm.requests.length = 0;
    const expired = [410, "session_expired"];
    for (const instance of [one, two]) {
      expect(await openings(instance.client(tenant.key), "day")).toEqual([expired, expired, expired, expired]);
    }
    expect(llm.requests).toHaveLength(0);
    const { error } = (await invoke(tenant.client, "list_files", {}, "day")).json;
    expect(error).toMatchObject({ param: "session_id", type: "invalid_request_error" });
    expect(error.message).toContain("session_idle_ms");
  });

  test("is the tenant's to set, at once and on both instances", async () => {
    llm.script(text("ok"));
    await put(tenant.client, "short", "a", "a");
    await idleFor("short", 10_000);
    await tenant.client.expect("patch", "/v1/settings", { session_idle_ms: 5_000 });
    expect((await openings(two.client(tenant.key), "short")).map(([status]) => status)).toEqual([410, 410, 410, 410]);
    await tenant.client.expect("patch", "/v1/settings", { session_idle_ms: 60_000 });
    expect((await openings(two.client(tenant.key), "short")).map(([status]) => status)).toEqual([200, 200, 200, 200]);
    expect(await tenant.client.send("patch", "/v1/settings", { session_idle_ms: 0 })).toMatchObject({
      status: 400,
      json: { error: { param: "session_idle_ms" } },
    });
  });

  test("that ends while the model works is told to the model", async () => {
    await put(tenant.client, "thinking", "a", "a");
    await chatMeanwhile("thinking", () => idleFor("thinking", 2 * dayMs));
    expect(errorIn(toldToModel()[1])).toMatchObject({ code: "session_expired" });
  });

  test("is over for good: two instances whose ticks race remove rows and blobs, and touch no other session", async () => {
    const sessions = Array.from({ length: 24 }, (_none, at) => `old-${at}`);
    await Promise.all(
      sessions.flatMap((session) =>
        ["a", "b/c", "d"].map((path) => put(tenant.client, session, path, `${session} ${path}`)),
      ),
    );
    await put(tenant.client, "young", "keep.txt", "kept");
    const other = await newTenant();
    await put(other.client, "theirs", "keep.txt", "kept, too");
    expect(await holdings(tenant)).toEqual({ files: 73, blobs: 73 });
    for (const session of sessions) await idleFor(session, dayMs + 1_000);
    await Promise.all(Array.from({ length: 6 }, (_none, at) => (at % 2 === 0 ? one : two).tick()));
    await expect.poll(() => holdings(tenant), { timeout: 5_000 }).toEqual({ files: 1, blobs: 1 });
    expect((await invoke(tenant.client, "read_file", { path: "keep.txt" }, "young")).json.content).toBe("kept");
    expect((await invoke(other.client, "read_file", { path: "keep.txt" }, "theirs")).json.content).toBe("kept, too");
    const listed = (await tenant.client.get("/v1/sessions?limit=100")).data as Json[];
    expect(listed.map(({ id }) => id as string)).toEqual(["young"]);
    // What somebody still believes to be in it must not be found in another's room.
    expect(await put(two.client(tenant.key), "old-3", "a", "again")).toMatchObject({
      status: 410,
      json: { error: { code: "session_expired" } },
    });
    expect([...one.logged, ...two.logged].filter(({ message }) => message.includes("could not be removed"))).toEqual(
      [],
    );
  });

  test("ends by itself on a running server, with nobody asking", async () => {
    const brief = await newTenant({ session_idle_ms: 60_000 });
    await put(brief.client, "alone", "a", "a");
    await idleFor("alone", 61_000);
    const third = await startGateway({ sharedWith: one, tickEveryMs: 50 });
    try {
      await expect.poll(() => holdings(brief), { timeout: 5_000 }).toEqual({ files: 0, blobs: 0 });
    } finally {
      await third.close();
    }
  });
});
