/** The record of calls and what people do with it: read, decide, cancel, replay (CHAT-13, CHAT-11). */
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;
/** A member who may chat and use tools, and no more. */
let member: Client;
let memberId: string;

const page = "<script>alert(document.domain)</script>";
const long = Array.from({ length: 5_000 }, (_unused, line) => `line ${line}`).join("\n");

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub(({ target }) => {
    if (target.startsWith("/page")) return { headers: { "content-type": "text/html" }, body: page };
    if (target.startsWith("/long")) return { headers: { "content-type": "text/plain" }, body: long };
    if (target.startsWith("/broken")) return { status: 500, body: '{"why":"broken"}' };
    if (target.startsWith("/slow")) return { delayMs: 5_000, body: "{}" };
    return { body: '{"ok":true}' };
  });
  tenant = await gateway.newTenant();
  const key = await tenant.newKey();
  member = key.client;
  memberId = key.id;
  const tool = (name: string, execution: Json, more: Json = {}): Promise<string> =>
    tenant.addPlugin({
      name,
      parameters: { type: "object", properties: { note: { type: "string" } } },
      execution: { method: "GET", base_url: `${backEnd.url}/${name}`, param_placement: "query", ...execution },
      ...more,
    });
  await tool("lookup", {});
  await tool("page", {});
  await tool("long", {});
  await tool("broken", {});
  await tool("slow", {});
  await tool("add_note", { method: "POST", param_placement: "body" });
  await tool("set_note", { method: "PUT", param_placement: "body" });
  await tool("send_money", { method: "POST", param_placement: "body" }, { sensitive: true });
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});

async function invoke(client: Client, name: string, args: Json = {}, more: Json = {}): Promise<string> {
  const reply = await client.send("post", "/v1/tools/invoke", { name, arguments: args, ...more });
  return reply.json.id ?? reply.json.error.call_id;
}

/** As an archive takes it. */
async function remove(id: string): Promise<void> {
  const database = await openDatabase({ url: gateway.databaseUrl });
  try {
    await database.batch([{ sql: "DELETE FROM calls WHERE id = ?1", args: [id] }]);
  } finally {
    await database.close();
  }
}

/** The call once it has ended. */
async function ended(client: Client, id: string): Promise<Json> {
  for (;;) {
    const call = await client.get(`/v1/calls/${id}`);
    if (!["queued", "running", "input_required"].includes(call.state as string)) return call;
    await new Promise((done) => setTimeout(done, 20));
  }
}

const sentTo = (path: string): readonly unknown[] => backEnd.requests.filter(({ target }) => target.startsWith(path));

describe(`a call's record ${verifies("CHAT-13")}`, () => {
  test("says who asked for what, when, and what came of it", async () => {
    const id = await invoke(member, "lookup", { note: "hello" });
    const call = await member.get(`/v1/calls/${id}`);
    expect(call).toMatchObject({
      id,
      object: "call",
      kind: "tool",
      state: "completed",
      tool: "lookup",
      uri: "plugin://lookup",
      effect: "read",
      caller: { id: memberId, chain: [{ kind: "key", id: memberId }] },
      input: { note: "hello" },
      result: {
        preview: '{"ok":true}',
        complete: true,
        media_type: "application/json",
        bytes: 11,
        url: `/v1/calls/${id}/result`,
      },
      error: null,
      trace_id: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    expect(Date.parse(call.finished_at)).toBeGreaterThanOrEqual(Date.parse(call.created_at));
    expect(call.duration_ms).toBe(Date.parse(call.finished_at) - Date.parse(call.started_at));
  });

  test("carries the trace of the request that made it", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const id = await invoke(member.with({ traceparent }), "lookup");
    expect(await member.get(`/v1/calls/${id}`)).toMatchObject({ trace_id: "4bf92f3577b34da6a3ce929d0e0e4736" });
  });

  test("keeps failures and refusals, with their codes", async () => {
    const failed = await member.get(`/v1/calls/${await invoke(member, "broken")}`);
    expect(failed).toMatchObject({ state: "failed", result: null, error: { code: "tool_failed" } });
    const refused = await member.get(`/v1/calls/${await invoke(member, "nothing_like_it")}`);
    expect(refused).toMatchObject({ state: "rejected", error: { code: "tool_not_found" } });
  });

  test("is found by what it is about", async () => {
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    const before = new Date().toISOString();
    await invoke(client, "lookup");
    await invoke(client, "broken");
    await invoke(client, "lookup", {}, { session_id: "filtered" });
    const count = async (query: string): Promise<number> => (await client.get(`/v1/calls?${query}`)).data.length;
    expect(await count("tool=lookup")).toBe(2);
    expect(await count("state=failed")).toBe(1);
    expect(await count("session_id=filtered")).toBe(1);
    expect(await count("kind=chat")).toBe(0);
    expect(await count(`from=${before}`)).toBe(3);
    expect(await count(`to=${before}`)).toBe(0);
    for (const [query, param] of [
      ["state=done", "state"],
      ["from=yesterday", "from"],
      ["kind=agent", "kind"],
    ]) {
      expect(await client.send("get", `/v1/calls?${query}`)).toMatchObject({ status: 400, json: { error: { param } } });
    }
  });
});

describe(`an export of calls ${verifies("CHAT-13")}`, () => {
  test("has every call of the caller that fits, oldest first, one a line", async () => {
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    for (let count = 0; count < 105; count += 1) await invoke(client, count % 2 === 0 ? "lookup" : "nothing_like_it");
    const reply = await client.send("get", "/v1/calls/export");
    expect(reply.headers.get("content-type")).toBe("application/x-ndjson");
    const calls = reply.text
      .trimEnd()
      .split("\n")
      .map((line): Json => JSON.parse(line));
    expect(calls).toHaveLength(105);
    const times = calls.map(({ created_at: at }) => at as string);
    expect(times).toEqual(times.toSorted());
    expect(calls[0]).toEqual(await client.get(`/v1/calls/${calls[0].id}`));
    const rejected = await client.send("get", "/v1/calls/export?state=rejected");
    expect(rejected.text.trimEnd().split("\n")).toHaveLength(52);
  });

  test("is whole where the archive takes calls while it is read", async () => {
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    const ids: string[] = [];
    for (let count = 0; count < 102; count += 1) ids.push(await invoke(client, "lookup"));
    const { calls } = gateway.core.repos;
    const { list } = calls;
    const pages: number[] = [];
    calls.list = async (...asked) => {
      const found = await list(...asked);
      pages.push(found.data.length);
      // The last one of the page, and one that is still to come.
      const gone = pages.length === 1 ? [found.data.at(-1)?.id ?? "", ids[101] ?? ""] : [];
      for (const id of gone) await remove(id);
      return found;
    };
    try {
      const { text } = await client.send("get", "/v1/calls/export");
      const told = text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line).id);
      expect(told).toEqual(ids.slice(0, 101));
      expect(pages).toEqual([100, 1]);
    } finally {
      calls.list = list;
    }
    const after = await client.send("get", `/v1/calls?order=asc&after=${ids[99]}`);
    expect(after).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param: "after" } } });
  });

  test("is empty where nothing fits, and refuses what it does not understand", async () => {
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    expect(await client.send("get", "/v1/calls/export")).toMatchObject({ status: 200, text: "" });
    expect(await client.send("get", "/v1/calls/export?limit=5")).toMatchObject({
      status: 400,
      json: { error: { param: "limit" } },
    });
    expect(await client.send("get", `/v1/calls/export?caller_id=${memberId}`)).toMatchObject({ status: 403 });
  });
});

describe(`a call's result ${verifies("CHAT-13", "CHAT-19")}`, () => {
  test("is given whole and by range", async () => {
    const id = await invoke(member, "long");
    expect(await member.get(`/v1/calls/${id}`)).toMatchObject({ result: { complete: false, bytes: long.length } });
    const whole = await member.send("get", `/v1/calls/${id}/result`);
    expect(whole.text).toBe(long);
    expect(whole.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    const part = await member.send("get", `/v1/calls/${id}/result`, undefined, { headers: { range: "bytes=7-13" } });
    expect(part).toMatchObject({ status: 206, text: long.slice(7, 14) });
    expect(part.headers.get("content-range")).toBe(`bytes 7-13/${long.length}`);
    const beyond = await member.send("get", `/v1/calls/${id}/result`, undefined, {
      headers: { range: "bytes=999999-" },
    });
    expect(beyond.status).toBe(416);
    expect(beyond.headers.get("content-range")).toBe(`bytes */${long.length}`);
  });

  test("that is a page of somebody else's can do nothing in a browser", async () => {
    const { text, headers } = await member.send("get", `/v1/calls/${await invoke(member, "page")}/result`);
    expect(text).toBe(page);
    expect(headers.get("content-disposition")).toMatch(/^attachment/);
    expect(headers.get("content-security-policy")).toContain("sandbox");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("is asked for again while the call runs, and is not there for one that failed", async () => {
    const waiting = await invoke(member, "send_money");
    const early = await member.send("get", `/v1/calls/${waiting}/result`);
    expect(early).toMatchObject({ status: 409, json: { error: { code: "call_not_finished", retryable: true } } });
    const failed = await member.send("get", `/v1/calls/${await invoke(member, "broken")}/result`);
    expect(failed).toMatchObject({ status: 404, json: { error: { code: "not_found" } } });
  });
});

describe(`who sees a call ${verifies("CHAT-11", "CHAT-13")}`, () => {
  test("its own caller, and holders of 'calls'", async () => {
    const id = await invoke(member, "lookup");
    const { client: other } = await tenant.newKey();
    const { client: auditor } = await tenant.newKey({ scopes: ["calls"] });
    for (const [method, action] of [
      ["get", ""],
      ["get", "/result"],
      ["post", "/cancel"],
      ["post", "/replay"],
    ] as const) {
      const hidden = await other.send(method, `/v1/calls/${id}${action}`, method === "post" ? {} : undefined);
      const missing = await other.send(
        method,
        `/v1/calls/call_01jdnhz2v4x8mfkq3w7c5r9gta${action}`,
        method === "post" ? {} : undefined,
      );
      expect({ ...hidden.json.error, message: "", request_id: "" }).toEqual({
        ...missing.json.error,
        message: "",
        request_id: "",
      });
      expect(hidden.status).toBe(404);
    }
    expect((await other.get("/v1/calls")).data).toEqual([]);
    expect((await auditor.get(`/v1/calls?caller_id=${memberId}`)).data).toContainEqual(expect.objectContaining({ id }));
    expect(await other.send("get", `/v1/calls?caller_id=${memberId}`)).toMatchObject({
      status: 403,
      json: { error: { param: "caller_id" } },
    });
  });

  test("who approves, as long as it waits", async () => {
    const id = await invoke(member, "send_money");
    const { client: approver } = await tenant.newKey({ scopes: ["approve"] });
    expect(await approver.get(`/v1/calls/${id}`)).toMatchObject({ state: "input_required" });
    expect((await approver.get("/v1/calls?state=input_required")).data).toContainEqual(expect.objectContaining({ id }));
    expect((await approver.get("/v1/calls")).data).toEqual([]);
    expect((await approver.send("get", `/v1/calls/${await invoke(member, "lookup")}`)).status).toBe(404);
  });
});

describe(`a call that waits for approval ${verifies("CHAT-11")}`, () => {
  let approver: Client;
  let approverId: string;

  beforeAll(async () => {
    const key = await tenant.newKey({ scopes: ["approve", "calls"] });
    approver = key.client;
    approverId = key.id;
  });

  test("runs once when it is approved, however often", async () => {
    const before = sentTo("/send_money").length;
    const id = await invoke(member, "send_money", { note: "to Ann" });
    expect(sentTo("/send_money")).toHaveLength(before);
    const approved = await approver.post(`/v1/calls/${id}/approve`, { reason: "checked" });
    expect(approved).toMatchObject({ approval: { decision: "approved", by: approverId, reason: "checked" } });
    await approver.post(`/v1/calls/${id}/approve`);
    expect(await ended(member, id)).toMatchObject({ state: "completed", async: true });
    await approver.post(`/v1/calls/${id}/approve`);
    await gateway.tick();
    expect(sentTo("/send_money")).toHaveLength(before + 1);
    expect(JSON.parse(String(backEnd.requests.at(-1)?.body))).toEqual({ note: "to Ann" });
  });

  test("never runs when it is rejected, and the decision stands", async () => {
    const before = sentTo("/send_money").length;
    const id = await invoke(member, "send_money");
    expect(await approver.post(`/v1/calls/${id}/reject`, { reason: "no" })).toMatchObject({
      state: "rejected",
      approval: { decision: "rejected", reason: "no" },
      error: { code: "call_rejected" },
    });
    expect(await approver.post(`/v1/calls/${id}/reject`)).toMatchObject({ state: "rejected" });
    expect(await approver.send("post", `/v1/calls/${id}/approve`, {})).toMatchObject({
      status: 409,
      json: { error: { code: "conflict", state: "rejected" } },
    });
    await gateway.tick();
    expect(sentTo("/send_money")).toHaveLength(before);
  });

  test("is decided by one of two who decide at once", async () => {
    const before = sentTo("/send_money").length;
    const id = await invoke(member, "send_money");
    const replies = await Promise.all([
      approver.send("post", `/v1/calls/${id}/approve`, {}),
      approver.send("post", `/v1/calls/${id}/reject`, {}),
    ]);
    expect(replies.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409]);
    const { state } = await ended(member, id);
    expect(sentTo("/send_money")).toHaveLength(before + (state === "completed" ? 1 : 0));
  });

  test("is not decided by its own caller without the scope", async () => {
    const id = await invoke(member, "send_money");
    for (const action of ["approve", "reject"]) {
      expect(await member.send("post", `/v1/calls/${id}/${action}`, {})).toMatchObject({
        status: 403,
        json: { error: { param: "approve" } },
      });
    }
    expect(await member.get(`/v1/calls/${id}`)).toMatchObject({ state: "input_required" });
  });

  test("does not run after its tool was changed, or its key revoked", async () => {
    const before = sentTo("/send_money").length;
    const key = await tenant.newKey();
    const byRevoked = await invoke(key.client, "send_money");
    const byMember = await invoke(member, "send_money");
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    await approver.post(`/v1/calls/${byRevoked}/approve`);
    expect(await ended(approver, byRevoked)).toMatchObject({ state: "failed", error: { code: "permission_denied" } });
    const plugins = (await tenant.client.get("/v1/plugins?limit=100")).data as Json[];
    const plugin = plugins.find(({ name }) => name === "send_money");
    await tenant.client.expect("put", `/v1/plugins/${plugin.id}`, { ...plugin.definition, description: "Changed." });
    await approver.post(`/v1/calls/${byMember}/approve`);
    expect(await ended(member, byMember)).toMatchObject({ state: "failed", error: { code: "conflict" } });
    expect(sentTo("/send_money")).toHaveLength(before);
  });

  test("is not there to be decided when it does not wait", async () => {
    const id = await invoke(member, "lookup");
    expect(await approver.send("post", `/v1/calls/${id}/approve`, {})).toMatchObject({
      status: 409,
      json: { error: { code: "conflict", state: "completed" } },
    });
    expect(await approver.send("post", `/v1/calls/${id}/approve`, { why: "x" })).toMatchObject({
      status: 400,
      json: { error: { param: "why" } },
    });
  });
});

describe(`cancelling a call ${verifies("CHAT-13")}`, () => {
  test("ends one that waits at once, for good", async () => {
    const before = sentTo("/send_money").length;
    const id = await invoke(member, "send_money");
    expect(await member.post(`/v1/calls/${id}/cancel`)).toMatchObject({
      state: "cancelled",
      error: { code: "call_cancelled" },
    });
    expect(await member.post(`/v1/calls/${id}/cancel`)).toMatchObject({ state: "cancelled" });
    expect((await tenant.client.send("post", `/v1/calls/${id}/approve`, {})).status).toBe(409);
    expect(sentTo("/send_money")).toHaveLength(before);
  });

  test("stops one that runs, wherever it runs", async () => {
    const id = await invoke(member, "slow", {}, { async: true });
    while ((await member.get(`/v1/calls/${id}`)).state !== "running") await new Promise((done) => setTimeout(done, 20));
    expect(await member.post(`/v1/calls/${id}/cancel`)).toMatchObject({ cancel_requested: true });
    expect(await ended(member, id)).toMatchObject({ state: "cancelled" });
  });

  test("is too late for one that has ended", async () => {
    const id = await invoke(member, "lookup");
    expect(await member.send("post", `/v1/calls/${id}/cancel`, {})).toMatchObject({
      status: 409,
      json: { error: { code: "conflict", state: "completed" } },
    });
  });
});

describe(`replaying a call ${verifies("CHAT-13")}`, () => {
  test("makes a new call with the same arguments and leaves the first alone", async () => {
    const id = await invoke(member, "lookup", { note: "again" });
    const first = await member.get(`/v1/calls/${id}`);
    const reply = await member.send("post", `/v1/calls/${id}/replay`, {});
    expect(reply).toMatchObject({ status: 202, json: { state: "queued", tool: "lookup" } });
    expect(reply.json.caller.chain).toContainEqual({ kind: "replay", id });
    expect(await ended(member, reply.json.id)).toMatchObject({ state: "completed", input: { note: "again" } });
    expect(backEnd.requests.at(-1)?.target).toBe("/lookup?note=again");
    expect(await member.get(`/v1/calls/${id}`)).toEqual(first);
  });

  test("asks before it writes a second time", async () => {
    const id = await invoke(member, "add_note", { note: "once" });
    expect(sentTo("/add_note")).toHaveLength(1);
    expect(await member.send("post", `/v1/calls/${id}/replay`, {})).toMatchObject({
      status: 409,
      json: { error: { code: "confirmation_required", param: "confirm", tool_name: "add_note" } },
    });
    expect(sentTo("/add_note")).toHaveLength(1);
    await ended(member, (await member.post(`/v1/calls/${id}/replay`, { confirm: true })).id as string);
    expect(sentTo("/add_note")).toHaveLength(2);
    const put = await invoke(member, "set_note", { note: "same" });
    await ended(member, (await member.post(`/v1/calls/${put}/replay`)).id as string);
    expect(sentTo("/set_note")).toHaveLength(2);
  });

  test("happens once for one idempotency key", async () => {
    const id = await invoke(member, "add_note", { note: "keyed" });
    const before = sentTo("/add_note").length;
    const replay = (): Promise<Json> =>
      member.post(`/v1/calls/${id}/replay`, { confirm: true }, { "idempotency-key": "replay-1" });
    const [one, two] = await Promise.all([replay(), replay()]);
    expect(two.id).toBe(one.id);
    await ended(member, one.id as string);
    const headers = { "idempotency-key": "replay-1" };
    const send = (of: string): Promise<Reply> =>
      member.send("post", `/v1/calls/${of}/replay`, { confirm: true }, { headers });
    const again = await send(id);
    expect(again.json).toMatchObject({ id: one.id, state: "completed" });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(sentTo("/add_note")).toHaveLength(before + 1);
    // Another call is another request, also where its arguments are the same.
    for (const note of ["other", "keyed"]) {
      const other = await send(await invoke(member, "add_note", { note }));
      expect([other.status, other.json.error.code]).toEqual([422, "idempotency_key_reused"]);
    }
  });

  test("waits for approval again where the tool does", async () => {
    const id = await invoke(member, "send_money");
    await tenant.client.post(`/v1/calls/${id}/approve`);
    await ended(member, id);
    expect(await member.post(`/v1/calls/${id}/replay`, { confirm: true })).toMatchObject({ state: "input_required" });
  });
});
