/** What two instances counted together is what the calls table holds (CHAT-15). */
import { metricCatalog } from "@toolyard/core/metrics/catalog";
import { createEmbeddedMetrics } from "@toolyard/platform/embedded-metrics";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let one: Gateway;
let two: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;

beforeAll(async () => {
  [one, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  two = await startGateway({ sharedWith: one });
});

afterAll(async () => {
  await two.close();
  await Promise.all([one.close(), llm.close(), backEnd.close()]);
});

/** Sums of a metric over both instances, by the values of some labels. */
async function sums(name: string, labels: readonly string[]): Promise<Record<string, number>> {
  const totals: Record<string, number> = {};
  for (const gateway of [one, two]) {
    const { text: body } = await gateway.operator.send("get", "/metrics");
    for (const [, given = "", value] of body.matchAll(new RegExp(`^${name}\\{([^}]*)\\} (\\S+)$`, "gm"))) {
      const found = Object.fromEntries([...given.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, text]) => [label, text]));
      const key = labels.map((label) => found[label]).join(" ");
      totals[key] = (totals[key] ?? 0) + Number(value);
    }
  }
  return totals;
}

describe(`metrics ${verifies("CHAT-15")}`, () => {
  test("totals by tool and state equal the calls table, whichever instance did the work", async () => {
    const tenant = await one.newTenant();
    await tenant.addProvider(llm.url);
    const parameters = { type: "object", properties: { q: { type: "string" } }, required: ["q"] };
    const execution = { base_url: `${backEnd.url}/x`, content_type: "application/json" };
    await tenant.addPlugin({
      name: "look",
      parameters,
      execution: { ...execution, method: "GET", param_placement: "query" },
    });
    await tenant.addPlugin({
      name: "order",
      parameters,
      execution: { ...execution, method: "POST", param_placement: "body" },
    });
    await tenant.addPlugin({
      name: "guarded",
      parameters,
      sensitive: true,
      execution: { ...execution, method: "POST", param_placement: "body" },
    });
    backEnd.answer = (request) =>
      request.target.includes("q=bad") || request.body.includes("bad") ? { status: 500 } : { body: "{}" };
    llm.respond((body) =>
      (body["messages"] as Json[]).length > 1
        ? text("ok", [7, 3])
        : calls(
            { name: "look", arguments: { q: "a" } },
            { name: "look", arguments: { q: "bad" } },
            { name: "order", arguments: { q: "b" } },
            { name: "look", arguments: {} },
          ),
    );
    const clients = [one.client(tenant.key), two.client(tenant.key)] as const;
    for (let at = 0; at < 6; at += 1) {
      const client = clients[at % 2 === 0 ? 0 : 1];
      await client.post("/v1/chat/completions", { messages: [{ role: "user", content: String(at) }] });
      await client.send("post", "/v1/tools/invoke", { name: "order", arguments: { q: at % 3 === 0 ? "bad" : "c" } });
      await client.post("/v1/tools/invoke", { name: "order", arguments: { q: "late" }, async: true });
      const waiting = await client.post("/v1/tools/invoke", { name: "guarded", arguments: { q: "d" } });
      await clients[at % 2 === 0 ? 1 : 0].post(`/v1/calls/${waiting.id}/${at % 2 === 0 ? "approve" : "reject"}`);
    }
    await tenant.client.send("post", "/v1/chat/completions", { messages: [] });
    await expect.poll(async () => (await open(tenant.client)).length, { timeout: 10_000 }).toBe(0);
    const rows: Json[] = [];
    for (let after = ""; ; after = `&after=${rows.at(-1).id}`) {
      const page = await tenant.client.get(`/v1/calls?limit=100&order=asc${after}`);
      rows.push(...page.data);
      if (!page.has_more) break;
    }
    const tools: Record<string, number> = {};
    const chats: Record<string, number> = {};
    for (const row of rows) {
      if (row.kind === "tool") tools[`${row.tool} ${row.state}`] = (tools[`${row.tool} ${row.state}`] ?? 0) + 1;
      else chats[row.state] = (chats[row.state] ?? 0) + 1;
    }
    expect(await sums("toolyard_tool_calls_total", ["tool", "state"])).toEqual(tools);
    expect(await sums("toolyard_chats_total", ["state"])).toEqual(chats);
    expect(await sums("toolyard_chats_total", ["tools"])).toEqual({ yes: 6, no: 1 });
    expect(await sums("toolyard_tokens_total", ["kind"])).toEqual({ prompt: 6 * 27, completion: 6 * 11 });
    const byCode = await sums("toolyard_tool_calls_total", ["code"]);
    expect(byCode["tool_failed"]).toBe(6 + 2);
    expect(byCode["invalid_arguments"]).toBe(6);
    expect((await sums("toolyard_http_requests_total", ["route", "status"]))["/v1/chat/completions 200"]).toBe(6);
  });

  test("only the operator reads them", async () => {
    const tenant = await one.newTenant();
    expect((await tenant.client.send("get", "/metrics")).status).toBe(403);
    expect((await one.nobody.send("get", "/metrics")).status).toBe(401);
  });

  test("the page in docs names every metric and every label", async () => {
    const page = await readFile(new URL("../../docs/metrics.md", import.meta.url), "utf8");
    for (const [name, { labels }] of Object.entries(metricCatalog)) {
      expect(page).toContain(`| \`${name}\` |`);
      for (const label of labels) expect(page).toContain(`\`${label}\``);
    }
  });
});

async function open(client: Gateway["operator"]): Promise<Json[]> {
  const states = await Promise.all(
    ["queued", "running", "input_required"].map((state) => client.get(`/v1/calls?state=${state}`)),
  );
  return states.flatMap((page) => page.data);
}

describe(`metrics of functions ${verifies("CHAT-15")}`, () => {
  test("an invocation writes one line a series, in the embedded metric format, and starts again at nothing", () => {
    const lines: Json[] = [];
    const metrics = createEmbeddedMetrics((line) => void lines.push(JSON.parse(line)));
    metrics.count("toolyard_tool_calls_total", { tool: "look", state: "completed", code: "" });
    metrics.count("toolyard_tool_calls_total", { tool: "look", state: "completed", code: "" });
    metrics.count("toolyard_tool_calls_total", { tool: "look", state: "failed", code: "tool_timeout" });
    metrics.count("toolyard_tool_calls_total", { tool: "搜索", state: "rejected", code: "tool_not_found" });
    metrics.observe("toolyard_tool_call_duration_seconds", { tool: "look" }, 0.25);
    metrics.observe("toolyard_tool_call_duration_seconds", { tool: "look" }, 0.5);
    metrics.flush();
    metrics.flush();
    expect(lines).toMatchObject([
      {
        toolyard_tool_calls_total: 2,
        tool: "look",
        state: "completed",
        _aws: {
          CloudWatchMetrics: [
            {
              Namespace: "Toolyard",
              // What CloudWatch takes as values of dimensions; of others it would drop these, too.
              Dimensions: [["tool", "state"]],
              Metrics: [{ Name: "toolyard_tool_calls_total", Unit: "Count" }],
            },
          ],
        },
      },
      { code: "tool_timeout", _aws: { CloudWatchMetrics: [{ Dimensions: [["tool", "state", "code"]] }] } },
      { tool: "搜索", _aws: { CloudWatchMetrics: [{ Dimensions: [["state", "code"]] }] } },
      { toolyard_tool_call_duration_seconds: [0.25, 0.5], tool: "look" },
    ]);
  });
});
