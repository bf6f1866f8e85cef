/** Schedules through the whole gateway, at two instances that tick all the time (VCP-18, MQ-2, VCP-24). */
import { openDatabase } from "@toolyard/db/client";
import type { Database, SqlValue } from "@toolyard/db/database";
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { connectSocket } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 25_000, interval: 50 };
const day = 86_400_000;

let first: Gateway;
let second: Gateway;
let backEnd: HttpStub;
let llm: LlmStub;
let database: Database;
let tenant: TestTenant;
beforeAll(async () => {
  backEnd = await startHttpStub();
  llm = await startLlmStub();
  first = await startGateway({ tickEveryMs: 250 });
  second = await startGateway({ sharedWith: first, tickEveryMs: 250 });
  database = await openDatabase({ url: first.databaseUrl });
}, 60_000);
afterAll(async () => {
  await database.close();
  await second.close();
  await first.close();
  await llm.close();
  await backEnd.close();
});
beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}', headers: { "content-type": "application/json" } });
  tenant = await first.newTenant({ time_zone: "Europe/Berlin" });
  await tenant.addPlugin(writingTool(backEnd));
});

const path = "/v1/schedule_task";
const task = { uri: "plugin://create_order", arguments: { sku: "S1" } };
const make = (body: Json, client: Client = tenant.client): Promise<Json> => client.post(path, { task, ...body });
const read = (id: string, client: Client = tenant.client): Promise<Json> => client.get(`${path}/${id}`);
const firings = async (id: string): Promise<Json[]> => (await tenant.client.get(`/v1/calls?parent_id=${id}`)).data;
const run = (sql: string, ...args: SqlValue[]): Promise<unknown> => database.batch([{ sql, args }]);
/** As if the clock of the database had gone on. */
const dueIn = (id: string, ms: number): Promise<unknown> =>
  run("UPDATE schedules SET next_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2 WHERE id = ?1", id, ms);
const ended = async (id: string, count = 1): Promise<Json[]> =>
  vi.waitFor(async () => {
    const calls = await firings(id);
    expect(calls.filter(({ finished_at: at }) => at !== null)).toHaveLength(count);
    return calls;
  }, within);
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

describe(`a call for later ${verifies("VCP-18", "MQ-2")}`, () => {
  test("runs once, not before its time and little after, as a call of whoever made it", async () => {
    const { id: keyId, client } = await tenant.newKey();
    const made = await make({ name: "Reminder", delay_ms: 1_500 }, client);
    const dueAt = Date.parse(made.next[0]);
    expect(made).toMatchObject({
      object: "schedule",
      name: "Reminder",
      state: "active",
      given: { field: "delay_ms", value: "1500" },
      time_zone: "Europe/Berlin",
      misfire: "once",
      target: "plugin://create_order",
      task,
      fired: 1,
      last_firing: null,
      caller_id: keyId,
    });
    const [call] = await ended(made.id);
    expect(backEnd.requests).toHaveLength(1);
    const lateMs = (backEnd.requests[0]?.at ?? 0) - dueAt;
    expect(lateMs).toBeGreaterThanOrEqual(0);
    expect(call).toMatchObject({
      state: "completed",
      parent_id: made.id,
      idempotency_key: `${made.id}/${made.next[0]}`,
      caller: {
        id: keyId,
        chain: [
          { kind: "key", id: keyId },
          { kind: "schedule", id: made.id },
        ],
      },
    });
    expect(await read(made.id, client)).toMatchObject({
      state: "ended",
      next: [],
      fired: 1,
      last_firing: { call_id: call?.id, state: "completed" },
      last_error: null,
    });
  });

  test("is kept for years without a timer, and told in the clock of its zone", async () => {
    const far = await make({ at: "2031-07-01T09:00:00" });
    expect(far).toMatchObject({
      next: ["2031-07-01T07:00:00.000Z"],
      fired: 0,
      expressions: ["at(2031-07-01T07:00:00)"],
    });
    const monthly = await make({ rate: "30 days" });
    const cron = await make({ cron: "0 0 1 * *", time_zone: "Asia/Shanghai" });
    expect(cron).toMatchObject({ expressions: ["cron(0 0 1 * ? *)"], time_zone: "Asia/Shanghai" });
    expect(cron.next).toHaveLength(5);
    for (const time of cron.next) expect(time).toMatch(/T16:00:00.000Z$/);
    await pause(1_000);
    for (const { id } of [far, monthly, cron]) expect(await firings(id)).toEqual([]);
    expect(backEnd.requests).toHaveLength(0);
    const soon = "CAST(unixepoch('subsec') * 1000 AS INTEGER) + 500";
    await run(
      `UPDATE schedules SET timing = json_set(timing, '$.at', ${soon}), next_at = ${soon} WHERE id = ?1`,
      far.id,
    );
    await ended(far.id);
    expect(await read(far.id)).toMatchObject({ state: "ended", fired: 1 });
  });

  test("fires once for each time, however many instances and ticks find it due", async () => {
    const { id } = await make({ rate: "1 hour" });
    const soon = "CAST(unixepoch('subsec') * 1000 AS INTEGER) + 800";
    await run(
      `UPDATE schedules SET timing = json_set(timing, '$.first', ${soon}, '$.every_ms', 60000), next_at = ${soon} WHERE id = ?1`,
      id,
    );
    await Promise.all(Array.from({ length: 12 }, (_none, at) => (at % 2 === 0 ? first : second).tick()));
    await vi.waitFor(async () => expect((await read(id)).last_firing).not.toBeNull(), within);
    const calls = await firings(id);
    expect(new Set(calls.map(({ idempotency_key: key }) => key)).size).toBe(calls.length);
    // That time, and those a minute apart that a tick looks ahead to.
    expect(calls.length).toBeGreaterThanOrEqual(2);
    expect(calls.filter(({ state }) => state === "completed")).toHaveLength(1);
    expect(backEnd.requests).toHaveLength(1);
    expect((await read(id)).fired).toBe(calls.length);
    await tenant.client.expect("delete", `${path}/${id}`);
  });
});

describe(`what was missed ${verifies("VCP-18")}`, () => {
  test.for<readonly [string, number]>([
    ["skip", 0],
    ["once", 1],
    ["all", 3],
  ])("with '%s' is %i calls", async ([misfire, count]) => {
    const { id } = await make({ rate: "1 day", misfire });
    // Three times have passed, the last of them half a day ago.
    const first = "CAST(unixepoch('subsec') * 1000 AS INTEGER) - 216000000";
    await run(
      `UPDATE schedules SET timing = json_set(timing, '$.first', ${first}), next_at = ${first} WHERE id = ?1`,
      id,
    );
    await vi.waitFor(async () => expect((await read(id)).last_missed_at).not.toBeNull(), within);
    await ended(id, count);
    expect(await firings(id)).toHaveLength(count);
    const seen = await read(id);
    expect(seen).toMatchObject({ state: "active", fired: count });
    const untilNext = Date.parse(seen.next[0]) - Date.now();
    expect(Math.abs(untilNext - day / 2)).toBeLessThan(60_000);
  });
});

describe(`pause, resume, deletion and a run by hand ${verifies("VCP-18")}`, () => {
  test("a firing that waits is called off, and comes back with its time", async () => {
    const { id } = await make({ delay_ms: 2_500 });
    const paused = await tenant.client.post(`${path}/${id}/pause`);
    expect(paused).toMatchObject({ state: "paused", next: [] });
    expect(await firings(id)).toMatchObject([{ state: "cancelled", error: { code: "call_cancelled" } }]);
    expect(await tenant.client.post(`${path}/${id}/resume`)).toMatchObject({ state: "active" });
    await vi.waitFor(async () => expect((await read(id)).state).toBe("ended"), within);
    await vi.waitFor(() => expect(backEnd.requests).toHaveLength(1), within);
    expect(await tenant.client.post(`${path}/${id}/pause`), "nothing is left to pause").toMatchObject({
      state: "ended",
    });
    expect((await firings(id)).map(({ state }) => state).toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      "cancelled",
      "completed",
    ]);
  });

  test("what passed while it was paused is not made up for; what fires once is over", async () => {
    const once = await make({ delay_ms: 600, paused: true });
    const again = await make({ cron: "*/5 * * * *", paused: true });
    expect(once).toMatchObject({ state: "paused", fired: 0 });
    await dueIn(again.id, -day);
    await pause(900);
    expect((await tenant.client.post(`${path}/${again.id}/resume`)).next).toHaveLength(5);
    const refused = await tenant.client.send("post", `${path}/${once.id}/resume`, {});
    expect(refused.status).toBe(409);
    expect(refused.json.error.message).toMatch(/no time left.*\/run/);
    expect(backEnd.requests).toHaveLength(0);
    const key = { "idempotency-key": "k1" };
    const ran = await tenant.client.post(`${path}/${once.id}/run`, {}, key);
    const repeated = await tenant.client.send("post", `${path}/${once.id}/run`, {}, { headers: key });
    expect(repeated.json.call_id).toBe(ran.call_id);
    expect(repeated.headers.get("idempotent-replayed")).toBe("true");
    await ended(once.id);
    expect(backEnd.requests).toHaveLength(1);
    expect(await read(once.id)).toMatchObject({ last_firing: { call_id: ran.call_id, state: "completed" } });
  });

  test("what is deleted fires no more, also not what was queued", async () => {
    // Long enough for a busy machine to come to the deletion first.
    const { id } = await make({ delay_ms: 4_000 });
    expect((await tenant.client.send("delete", `${path}/${id}`)).status).toBe(204);
    await pause(4_500);
    expect(backEnd.requests).toHaveLength(0);
    expect(await firings(id)).toMatchObject([{ state: "cancelled" }]);
    for (const verb of ["pause", "resume", "run"])
      expect((await tenant.client.send("post", `${path}/${id}/${verb}`, {})).status).toBe(404);
  });
});

describe(`permissions of then ${verifies("VCP-18", "BLIND-9")}`, () => {
  test("a key that was revoked fires nothing, and the schedule says so", async () => {
    const { id: keyId, client } = await tenant.newKey();
    const { id } = await make({ rate: "1 hour" }, client);
    await tenant.client.expect("delete", `/v1/api-keys/${keyId}`);
    await dueIn(id, 0);
    const [call] = await ended(id);
    expect(call).toMatchObject({ state: "rejected", error: { code: "permission_denied" } });
    expect(await read(id)).toMatchObject({ state: "active", last_error: { code: "permission_denied" } });
    expect(backEnd.requests).toHaveLength(0);
  });

  test("a tool that went, and came back, is an error and a success", async () => {
    const { id } = await make({ rate: "1 hour" });
    const [plugin] = (await tenant.client.get("/v1/plugins")).data.filter(({ name }: Json) => name === "create_order");
    await tenant.client.expect("delete", `/v1/plugins/${plugin.id}`);
    await dueIn(id, 0);
    await ended(id);
    expect((await read(id)).last_error).toMatchObject({ code: "tool_not_found" });
    await tenant.addPlugin(writingTool(backEnd));
    await tenant.client.post(`${path}/${id}/run`);
    await ended(id, 2);
    expect(await read(id)).toMatchObject({ last_error: null, last_firing: { state: "completed" } });
  });

  test("what needs approval waits for it, and is called off with its schedule", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd, "refund"), sensitive: true });
    const sensitive = { task: { uri: "plugin://refund", arguments: { sku: "S1" } } };
    const { id } = await make({ ...sensitive, delay_ms: 0 });
    const waiting = await vi.waitFor(async () => {
      const [call] = await firings(id);
      expect(call).toMatchObject({ state: "input_required" });
      return call;
    }, within);
    await tenant.client.post(`/v1/calls/${waiting.id}/approve`);
    await ended(id);
    expect(backEnd.requests).toHaveLength(1);
    const next = await make({ ...sensitive, delay_ms: 0 });
    await vi.waitFor(async () => expect(await firings(next.id)).toMatchObject([{ state: "input_required" }]), within);
    await tenant.client.expect("delete", `${path}/${next.id}`);
    expect(await firings(next.id)).toMatchObject([{ state: "cancelled" }]);
  });

  test("one sees one's own, who manages sees all", async () => {
    const { client: one } = await tenant.newKey();
    const { client: other } = await tenant.newKey();
    const { id } = await make({ rate: "1 day" }, one);
    expect((await other.get(path)).data).toEqual([]);
    for (const method of ["get", "delete"]) expect((await other.send(method, `${path}/${id}`)).status).toBe(404);
    expect((await one.get(path)).data).toMatchObject([{ id }]);
    expect((await tenant.client.get(path)).data).toMatchObject([{ id }]);
  });
});

describe(`where results go ${verifies("VCP-18")}`, () => {
  test("to a session's next request, to clients of a type, and to a webhook", async () => {
    await tenant.addProvider(llm.url);
    const socket = await connectSocket(`${second.url.replace("http", "ws")}/ws?client_type=desk`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    const receiver = await startHttpStub(() => ({ status: 204 }));
    try {
      const hook = { name: "ours", url: `${receiver.url}/hooks`, events: ["call.failed"] };
      const { id: webhook } = await tenant.client.post("/v1/webhooks", hook);
      const session = "desk-session";
      const deliver = { session_id: session, push: "desk", webhook };
      const { id } = await make({ name: "Orders", delay_ms: 300, deliver });
      const [call] = await ended(id);
      await vi.waitFor(() => {
        const frame = socket.frames.find(({ type }) => type === "schedule.fired");
        expect(frame).toMatchObject({
          data: {
            schedule_id: id,
            name: "Orders",
            call_id: call?.id,
            state: "completed",
            truncated: false,
            error: null,
          },
        });
        expect(frame?.data.result).toContain('"ok"');
      }, within);
      await vi.waitFor(async () => {
        await deliverWebhooks(first.core);
        expect(receiver.requests.map(({ body }) => JSON.parse(body.toString()))).toMatchObject([
          { type: "call.completed", data: { id: call?.id, parent_id: id } },
        ]);
      }, within);
      llm.script(text("seen"));
      const messages = [{ role: "user", content: "anything new?" }];
      await tenant.client.post("/v1/chat/completions", { model: "stub-1", session_id: session, messages });
      expect(JSON.stringify(llm.requests.at(-1))).toContain("ok");
      expect(await tenant.client.get(`/v1/calls/${call?.id}`)).toMatchObject({ session_id: session });
    } finally {
      socket.socket.close();
      await receiver.close();
    }
  });
});

const block = (sku: string): string =>
  `please\n<<<[TOOL_REQUEST]>>>\ntool_name:「始」create_order「末」,\nsku:「始」${sku}「末」\n<<<[END_TOOL_REQUEST]>>>`;

describe(`tasks of VCP ${verifies("VCP-18", "VCP-24")}`, () => {
  test("a TOOL_REQUEST is called at its time", async () => {
    const { id } = await make({ task: { tool_request: block("S7") }, delay_ms: 200 });
    await ended(id);
    expect(JSON.parse(backEnd.requests[0]?.body.toString() ?? "")).toEqual({ sku: "S7" });
    expect(await read(id)).toMatchObject({ target: "plugin://create_order", task: { tool_request: block("S7") } });
  });

  test("upstream's body has upstream's answers", async () => {
    const soon = new Date(Date.now() + 1_000).toISOString();
    const body = {
      schedule_time: soon,
      task_id: "task-1",
      tool_call: { tool_name: "create_order", arguments: { sku: "S9", timely_contact: "2030-01-01-00:00" } },
    };
    const made = await tenant.client.send("post", path, body);
    expect(made.status).toBe(200);
    expect(made.json).toMatchObject({
      status: "success",
      message: "任务已成功调度。",
      details: { taskId: "task-1", scheduledTime: soon },
    });
    const again = await tenant.client.send("post", path, body);
    expect(again.status).toBe(409);
    expect(again.json).toMatchObject({ status: "error", error: expect.stringContaining("task-1") });
    await ended(made.json.details.scheduleId);
    expect(JSON.parse(backEnd.requests[0]?.body.toString() ?? "")).toEqual({ sku: "S9" });
  });
});
