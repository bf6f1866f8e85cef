/** Whose session it is, asked of work that no request of now begins: schedules, replays, calls that were queued (CHAT-8, CHAT-9). */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { publishFlow } from "../support/flows.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 20_000, interval: 50 };

let gateway: Gateway;
let other: Gateway;
let tenant: TestTenant;
let anna: Client;
let boris: Client;
beforeAll(async () => {
  gateway = await startGateway();
  other = await startGateway({ sharedWith: gateway });
});
afterAll(async () => {
  await other.close();
  await gateway.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
  anna = (await tenant.newKey({ scopes: ["tools", "chat"] })).client;
  boris = (await tenant.newKey({ scopes: ["tools", "calls"] })).client;
  session = `session-${Math.random().toString(36).slice(2)}`;
});

let session: string;
const write = (client: Client, path: string): Promise<Json> =>
  client.post("/v1/tools/invoke", {
    name: "write_file",
    arguments: { path, content: "private" },
    session_id: session,
  });
const filesOf = async (client: Client): Promise<string[]> =>
  (await client.get(`/v1/sessions/${session}/files`)).data.map(({ path }: Json) => path);
const plant = { uri: "native://write_file", arguments: { path: "planted.txt", content: "by boris" } };
const schedule = (body: Json): Promise<Json> =>
  boris.post("/v1/schedule_task", { task: plant, deliver: { session_id: session }, ...body });
const ended = (id: string): Promise<Json> =>
  vi.waitFor(async () => {
    const call = await boris.get(`/v1/calls/${id}`);
    expect(call.finished_at).not.toBeNull();
    return call;
  }, within);
const foreign = { status: 404, json: { error: { code: "session_not_found" } } };

describe(`a session that somebody else has ${verifies("CHAT-8", "CHAT-9")}`, () => {
  test("is begun with the first schedule that delivers to it, and then is nobody else's", async () => {
    await schedule({ delay_ms: 3_600_000 });
    expect(await anna.send("get", `/v1/sessions/${session}`)).toMatchObject(foreign);
    const body = { name: "list_files", arguments: {}, session_id: session };
    expect(await anna.send("post", "/v1/tools/invoke", body)).toMatchObject(foreign);
    const made = await boris.get(`/v1/sessions/${session}`);
    expect(made).toMatchObject({ id: session });
  });

  test("is delivered to by nobody else's schedule", async () => {
    await write(anna, "of-anna.txt");
    const reply = await boris.send("post", "/v1/schedule_task", {
      task: plant,
      deliver: { session_id: session },
      delay_ms: 3_600_000,
    });
    expect(reply).toMatchObject({ ...foreign, json: { error: { param: "deliver.session_id" } } });
    const body = { task: plant, deliver: { session_id: "no/name" }, delay_ms: 3_600_000 };
    expect(await boris.send("post", "/v1/schedule_task", body)).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request", param: "deliver.session_id" } },
    });
  });

  test("is not worked in by a schedule that was there before, nor told of it", async () => {
    const made = await schedule({ delay_ms: 3_600_000 });
    expect((await boris.send("delete", `/v1/sessions/${session}`)).status).toBe(204);
    await write(anna, "of-anna.txt");
    const run = await boris.post(`/v1/schedule_task/${made.id}/run`, {});
    expect(await ended(run.call_id)).toMatchObject({ state: "rejected", error: { code: "session_not_found" } });
    expect(await filesOf(anna)).toEqual(["of-anna.txt"]);
  });

  test("is not worked in by a call that was queued for one of this name before", async () => {
    const made = await schedule({ delay_ms: 1_500 });
    const [call] = (await boris.get(`/v1/calls?parent_id=${made.id}`)).data;
    expect((await boris.send("delete", `/v1/sessions/${session}`)).status).toBe(204);
    await write(anna, "of-anna.txt");
    expect(await ended(call.id)).toMatchObject({ state: "failed", error: { code: "session_not_found" } });
    expect(await filesOf(anna)).toEqual(["of-anna.txt"]);
    // What the older session was to be given is not told to this one.
    const chat = { model: "toolyard/scripted", messages: [{ role: "user", content: "hello" }], session_id: session };
    expect(JSON.stringify(await anna.post("/v1/chat/completions", chat))).not.toContain("session_not_found");
    expect(await gateway.core.repos.calls.get(tenant.id, call.id)).toMatchObject({ delivery: "due" });
  });

  test("that was deleted stays deleted, whatever was queued for it", async () => {
    await write(boris, "of-boris.txt");
    const made = await schedule({ delay_ms: 1_500 });
    const [call] = (await boris.get(`/v1/calls?parent_id=${made.id}`)).data;
    expect((await boris.send("delete", `/v1/sessions/${session}`)).status).toBe(204);
    expect(await ended(call.id)).toMatchObject({ state: "failed", error: { code: "session_not_found" } });
    expect(await boris.send("get", `/v1/sessions/${session}`)).toMatchObject(foreign);
  });

  test("that was deleted keeps nothing from running that needs none of its files", async () => {
    const made = await schedule({
      delay_ms: 1_000,
      task: { uri: "native://read_result", arguments: { call_id: "none" } },
    });
    const [call] = (await boris.get(`/v1/calls?parent_id=${made.id}`)).data;
    expect((await boris.send("delete", `/v1/sessions/${session}`)).status).toBe(204);
    expect(await ended(call.id)).toMatchObject({ state: "failed", error: { code: "not_found" } });
    expect(await boris.send("get", `/v1/sessions/${session}`)).toMatchObject(foreign);
  });

  test("does not open the results of one of this name that was deleted", async () => {
    await write(anna, "of-anna.txt");
    const read = { name: "read_file", arguments: { path: "of-anna.txt" }, session_id: session };
    const { id } = await anna.post("/v1/tools/invoke", read);
    await vi.waitFor(async () => expect(await anna.get(`/v1/calls/${id}`)).toMatchObject({ state: "completed" }));
    const open = (client: Client): Promise<Json> =>
      client.send("post", "/v1/tools/invoke", {
        name: "read_result",
        arguments: { call_id: id },
        session_id: session,
      });
    const { client: manager } = await tenant.newKey({ scopes: ["tools", "manage"] });
    expect((await open(manager)).json.content).toContain("private");
    expect((await anna.send("delete", `/v1/sessions/${session}`)).status).toBe(204);
    await write(boris, "of-boris.txt");
    expect(await open(boris)).toMatchObject({ status: 404, json: { error: { code: "not_found", param: "call_id" } } });
    expect(await open(manager)).toMatchObject({ status: 404 });
  });

  test("is not worked in by whoever replays one of its calls", async () => {
    const listing = await anna.post("/v1/tools/invoke", { name: "list_files", arguments: {}, session_id: session });
    const written = await write(anna, "of-anna.txt");
    for (const [id, body] of [
      [listing.id, {}],
      [written.id, { confirm: true }],
    ]) {
      expect(await boris.send("post", `/v1/calls/${id}/replay`, body)).toMatchObject(foreign);
    }
    const own = await anna.post(`/v1/calls/${listing.id}/replay`, {});
    await vi.waitFor(async () => expect(await anna.get(`/v1/calls/${own.id}`)).toMatchObject({ state: "completed" }));
  });

  test("is open to who manages the tenant, in all of these ways", async () => {
    await write(anna, "of-anna.txt");
    const { client: manager } = await tenant.newKey({ scopes: ["tools", "calls", "manage"] });
    const { id } = await manager.post("/v1/schedule_task", {
      task: plant,
      deliver: { session_id: session },
      delay_ms: 1,
    });
    await vi.waitFor(
      async () => expect((await filesOf(anna)).toSorted()).toEqual(["of-anna.txt", "planted.txt"]),
      within,
    );
    const [firing] = (await manager.get(`/v1/calls?parent_id=${id}`)).data;
    const again = await manager.post(`/v1/calls/${firing.id}/replay`, { confirm: true });
    expect(await ended(again.id)).toMatchObject({ state: "completed" });
  });
});

describe(`a session that nobody has used for longer than sessions live ${verifies("CHAT-8", "VCP-18")}`, () => {
  const idleMs = 1_000;
  const chat = (): Promise<Json> =>
    boris.send("post", "/v1/chat/completions", {
      model: "toolyard/scripted",
      messages: [{ role: "user", content: "any news?" }],
      session_id: session,
    });
  beforeEach(async () => {
    tenant = await gateway.newTenant({ session_idle_ms: idleMs });
    boris = (await tenant.newKey({ scopes: ["tools", "calls", "chat"] })).client;
  });

  test("is still there for a schedule that fires more seldom, and is told of its firings", async () => {
    const { id } = await schedule({ rate: "7 days" });
    for (const _week of [1, 2]) {
      await sleep(idleMs + 200);
      const run = await boris.post(`/v1/schedule_task/${id}/run`, {});
      expect(await ended(run.call_id)).toMatchObject({ state: "completed" });
      await sleep(idleMs + 200);
      expect(await boris.get(`/v1/sessions/${session}`)).toMatchObject({ expired: false });
      expect((await chat()).status).toBe(200);
      await vi.waitFor(async () => {
        expect(await gateway.core.repos.calls.get(tenant.id, run.call_id)).toMatchObject({ delivery: "delivered" });
      }, within);
    }
  });

  test("is still there for a call that is queued and not yet due", async () => {
    await schedule({ delay_ms: idleMs * 4 });
    await sleep(idleMs * 2);
    expect(await boris.get(`/v1/sessions/${session}`)).toMatchObject({ expired: false });
    const run = await vi.waitFor(async () => {
      const [first] = (await tenant.client.get(`/v1/calls?session_id=${session}&state=completed`)).data;
      expect(first).toBeDefined();
      return first;
    }, within);
    // The end of the call was a use of it.
    await sleep(idleMs / 2);
    expect((await chat()).status).toBe(200);
    await vi.waitFor(async () => {
      expect(await gateway.core.repos.calls.get(tenant.id, run.id)).toMatchObject({ delivery: "delivered" });
    }, within);
  });

  test("is kept by no call that waits for a person, who may never come", async () => {
    const execution = { method: "POST", base_url: "http://127.0.0.1:9/orders", param_placement: "body" };
    await tenant.addPlugin({ name: "order_it", sensitive: true, execution });
    const { json } = await boris.send("post", "/v1/chat/completions", {
      model: "toolyard/scripted",
      messages: [{ role: "user", content: "Call order_it with {}" }],
      session_id: session,
    });
    expect(json.tool_execution.pending).toHaveLength(1);
    await sleep(idleMs + 500);
    expect(await boris.get(`/v1/sessions/${session}`)).toMatchObject({ expired: true });
  });

  test("is kept by a flow until its time has come, and by none that waits for somebody", async () => {
    const call = async (flow: string, wait: Json): Promise<void> => {
      await publishFlow(tenant, { name: flow, start: "a", nodes: { a: { kind: "wait", ...wait } } });
      const { json } = await boris.send("post", "/v1/chat/completions", {
        model: "toolyard/scripted",
        messages: [{ role: "user", content: `Call ${flow} with {}` }],
        session_id: `${session}-${flow}`,
      });
      expect(json.tool_execution.pending).toHaveLength(1);
    };
    await Promise.all([call("later", { duration_ms: idleMs * 30 }), call("whenever", { signal: "paid" })]);
    await sleep(idleMs + 500);
    expect(await boris.get(`/v1/sessions/${session}-later`)).toMatchObject({ expired: false });
    expect(await boris.get(`/v1/sessions/${session}-whenever`)).toMatchObject({ expired: true });
  });

  test("is delivered to by no new schedule, and what an old one is made to fire is refused, with the reason", async () => {
    const made = await schedule({ delay_ms: 1 });
    const [first] = await vi.waitFor(async () => {
      const { data } = await boris.get(`/v1/calls?parent_id=${made.id}`);
      expect(data).toHaveLength(1);
      return data;
    }, within);
    await ended(first.id);
    await sleep(idleMs + 200);
    const refused = await boris.send("post", "/v1/schedule_task", {
      task: plant,
      deliver: { session_id: session },
      rate: "7 days",
    });
    expect(refused).toMatchObject({
      status: 410,
      json: { error: { code: "session_expired", param: "deliver.session_id" } },
    });
    const run = await boris.post(`/v1/schedule_task/${made.id}/run`, {});
    expect(await ended(run.call_id)).toMatchObject({ state: "rejected", error: { code: "session_expired" } });
    await vi.waitFor(async () => {
      const { last_error: error } = await boris.get(`/v1/schedule_task/${made.id}`);
      expect(error).toMatchObject({ code: "session_expired" });
    }, within);
  });
});
