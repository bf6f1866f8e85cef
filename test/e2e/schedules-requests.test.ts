/** What becomes a schedule and what is refused, with which words (VCP-18, VCP-24, CFG-4). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { writingTool } from "../support/http-tools.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;
beforeAll(async () => {
  backEnd = await startHttpStub();
  gateway = await startGateway();
}, 60_000);
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant({ time_zone: "Europe/Berlin" });
  await tenant.addPlugin(writingTool(backEnd));
});

const path = "/v1/schedule_task";
const task = { uri: "plugin://create_order", arguments: { sku: "S1" } };
const block = (sku: string): string =>
  `please\n<<<[TOOL_REQUEST]>>>\ntool_name:「始」create_order「末」,\nsku:「始」${sku}「末」\n<<<[END_TOOL_REQUEST]>>>`;

describe(`VCP's body ${verifies("VCP-18", "VCP-24")}`, () => {
  test.for<readonly [string, Json, number, RegExp]>([
    ["no task id", { schedule_time: "2031-01-01" }, 400, /请求无效/],
    ["no tool", { schedule_time: "2031-01-01", task_id: "a", tool_call: {} }, 400, /请求无效/],
    ["no time", { schedule_time: "soon", task_id: "a", tool_call: { tool_name: "create_order" } }, 400, /时间格式/],
    ["the past", { schedule_time: "2020-01-01", task_id: "a", tool_call: { tool_name: "create_order" } }, 400, /过去/],
    ["no such tool", { schedule_time: "2031-01-01", task_id: "a", tool_call: { tool_name: "none" } }, 404, /none/],
  ])("upstream's body with %s", async ([, body, status, why]) => {
    const answer = await tenant.client.send("post", path, body);
    expect(answer.status).toBe(status);
    expect(answer.json).toEqual({ status: "error", error: expect.stringMatching(why) });
    expect((await tenant.client.get(path)).data).toEqual([]);
  });
});

describe(`a schedule that would not do what it says ${verifies("VCP-18", "VCP-24")}`, () => {
  test.for<readonly [string, Json, string, RegExp]>([
    ["no time", {}, "at", /Exactly one of/],
    ["two times", { at: "2031-01-01T00:00:00", cron: "* * * * *" }, "cron", /'at' and 'cron' are there/],
    ["the past", { at: "2020-01-01T00:00:00Z" }, "at", /past.*'misfire'.*\/v1\/tools\/invoke/],
    ["no time at all", { at: "tomorrow" }, "at", /2026-12-24T18:00:00/],
    ["a time that no clock shows", { at: "2031-03-30T02:30:00" }, "at", /no clock in Europe\/Berlin/],
    ["a day that is none", { at: "2031-02-29T00:00:00" }, "at", /exists/],
    ["a zone that is none", { rate: "1 day", time_zone: "Mars/Base" }, "time_zone", /no time zone/],
    ["six fields without a word", { cron: "0 12 * * ? *" }, "cron", /written 'cron\(…\)'/],
    ["what never comes", { cron: "0 0 30 2 *" }, "cron", /never comes/],
    ["a rate as cron", { cron: "rate(5 minutes)" }, "cron", /belongs into 'rate'/],
    ["seconds as rate", { rate: "30 seconds" }, "rate", /minute\(s\), hour\(s\) or day\(s\)/],
    [
      "an end before the start",
      { rate: "1 day", start: "2031-01-02T00:00:00", end: "2031-01-01T00:00:00" },
      "end",
      /before 'start'/,
    ],
    ["an end of what fires once", { at: "2031-01-01T00:00:00", end: "2031-01-01T00:00:00" }, "end", /fires once/],
    ["no such tool", { rate: "1 day", task: { uri: "plugin://none" } }, "task", /'task': .*none/],
    ["arguments that do not fit", { rate: "1 day", task: { uri: "plugin://create_order" } }, "task", /sku/],
    ["no block", { rate: "1 day", task: { tool_request: "hello" } }, "task.tool_request", /Missing TOOL_REQUEST/],
    ["two blocks", { rate: "1 day", task: { tool_request: block("a") + block("b") } }, "task.tool_request", /several/],
    ["no such webhook", { rate: "1 day", deliver: { webhook: "whk_none" } }, "deliver.webhook", /no webhook/],
    ["an unknown field", { rate: "1 day", timezone: "UTC" }, "timezone", /is not a known field/],
  ])("%s", async ([, body, param, why]) => {
    const { status, json } = await tenant.client.send("post", path, { task, ...body });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(500);
    expect(json.error.param).toBe(param);
    expect(json.error.message).toMatch(why);
    expect((await tenant.client.get(path)).data).toEqual([]);
  });

  test("a session of somebody else's gets nothing", async () => {
    const { client } = await tenant.newKey();
    await tenant.client.expect("put", "/v1/sessions/private/files/a.json", {});
    const refused = await client.send("post", path, { task, rate: "1 day", deliver: { session_id: "private" } });
    expect(refused.status).toBe(404);
    expect(refused.json.error).toMatchObject({ code: "session_not_found", param: "deliver.session_id" });
  });
});

describe(`a service that a schedule calls ${verifies("CFG-4")}`, () => {
  test("names the schedule as its reference", async () => {
    const tools = { ping: { description: "Is it there?", endpoint: "/ping", method: "GET" } };
    const config = { base_url: `${backEnd.url}/api`, tools };
    const service = await tenant.client.post("/v1/tool-services", { scheme: "api", service_id: "crm", config });
    const { id } = await tenant.client.post(path, {
      name: "Nightly",
      rate: "1 day",
      task: { uri: "api://crm/ping" },
    });
    const { data } = await tenant.client.get(`/v1/tool-services/${service.id}/references`);
    expect(data).toMatchObject([{ kind: "schedule", id, name: "Nightly", field: "task", value: "api://crm/ping" }]);
    expect((await tenant.client.send("delete", `/v1/tool-services/${service.id}`)).status).toBe(409);
  });
});
