/** Traces at a real OTLP/HTTP backend: what hangs under what, and that nothing else is told (CHAT-15). */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, startGatewayProcess, type Gateway, type GatewayProcess } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { startOtlpReceiver, treeOf, type OtlpReceiver, type ReceivedSpan } from "../support/otlp-receiver.ts";
import { verifies } from "../support/verifies.ts";

let receiver: OtlpReceiver;
let llm: LlmStub;
let backEnd: HttpStub;
let gateway: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  [receiver, llm, backEnd] = await Promise.all([startOtlpReceiver(), startLlmStub(), startHttpStub()]);
  gateway = await startGateway({
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_HEADERS: "x-backend-key=abc%20def",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
      OTEL_BSP_SCHEDULE_DELAY: "20",
    },
  });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { name: "stub" });
  await tenant.addPlugin(readingTool(backEnd));
  await tenant.addPlugin(writingTool(backEnd));
});
beforeEach(() => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"found":"SECRET-RESULT"}' });
});
afterAll(async () => {
  await gateway.close();
  await Promise.all([receiver.close(), llm.close(), backEnd.close()]);
});

interface Asked {
  readonly traceId: string;
  readonly parent: string;
  readonly header: Readonly<Record<string, string>>;
}

function newTrace(flags = "01"): Asked {
  const [traceId, parent] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
  return { traceId, parent, header: { traceparent: `00-${traceId}-${parent}-${flags}`, tracestate: "vendor=their" } };
}

/** The spans of a trace, once the server's own is among them and nothing more comes. */
async function arrived({ traceId }: Asked, names: readonly string[]): Promise<readonly ReceivedSpan[]> {
  await expect
    .poll(() => receiver.trace(traceId).map(({ name }) => name), { timeout: 15_000 })
    .toEqual(expect.arrayContaining([...names]));
  return receiver.trace(traceId);
}

function named(spans: readonly ReceivedSpan[], name: string): ReceivedSpan {
  const found = spans.find((span) => span.name === name);
  if (found === undefined) throw new Error(`no span '${name}' among ${spans.map((span) => span.name).join(", ")}`);
  return found;
}

const chatRoute = "POST /v1/chat/completions";
const question = { model: "stub-1", messages: [{ role: "user", content: "SECRET-QUESTION" }] };

describe(`traces ${verifies("CHAT-15", "CHAT-13")}`, () => {
  test("a plain chat is one span for the request, one for the chat, one for the model, one for its HTTP request", async () => {
    llm.script(text("SECRET-ANSWER", [11, 7]));
    const asked = newTrace();
    await tenant.client.with(asked.header).post("/v1/chat/completions", question);
    const spans = await arrived(asked, [chatRoute]);
    expect(treeOf(spans)).toEqual({
      [`server ${chatRoute}`]: { "internal invoke_agent": { "client chat stub-1": { "client POST": {} } } },
    });
    const [server, chat, model, http] = [chatRoute, "invoke_agent", "chat stub-1", "POST"].map((n) => named(spans, n));
    expect(server).toMatchObject({
      parentSpanId: asked.parent,
      failed: false,
      attributes: {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "toolyard.tenant": tenant.id,
        "toolyard.caller": tenant.keyId,
      },
      resource: { "service.name": "toolyard", "deployment.environment.name": "test" },
    });
    expect(chat?.attributes).toMatchObject({
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.provider.name": "openai",
      "gen_ai.request.model": "stub-1",
      "gen_ai.usage.input_tokens": 11,
      "gen_ai.usage.output_tokens": 7,
      "gen_ai.response.finish_reasons": ["stop"],
      "toolyard.chat.rounds": 1,
      "toolyard.call.state": "completed",
      "toolyard.call.id": server?.attributes["toolyard.call.id"],
    });
    expect(model?.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "openai",
      "gen_ai.request.model": "stub-1",
      "gen_ai.response.model": "stub-1",
      "gen_ai.response.id": "chatcmpl-x1",
      "gen_ai.usage.input_tokens": 11,
      "gen_ai.response.finish_reasons": ["stop"],
      "server.address": "127.0.0.1",
      "server.port": llm.http.port,
      "toolyard.provider": "stub",
    });
    expect(http?.attributes).toMatchObject({ "http.response.status_code": 200, "server.port": llm.http.port });
    for (const span of spans) expect(span.endNs >= span.startNs).toBe(true);
    expect(llm.http.requests.at(-1)?.headers).not.toHaveProperty("traceparent");
    expect(receiver.http.requests.at(-1)?.headers["x-backend-key"]).toBe("abc def");
  });

  test("a streamed chat shows each turn and each tool call, and the tool's back end is told of its own request", async () => {
    llm.script(calls({ name: "lookup", arguments: { q: "SECRET-ARGUMENT" } }), text("found"));
    const asked = newTrace();
    const answer = await tenant.client
      .with(asked.header)
      .send("post", "/v1/chat/completions", { ...question, stream: true, session_id: "talk" });
    expect(answer.status).toBe(200);
    const spans = await arrived(asked, [chatRoute]);
    expect(treeOf(spans)).toEqual({
      [`server ${chatRoute}`]: {
        "internal invoke_agent": {
          "client chat stub-1": { "client POST": {} },
          "internal execute_tool lookup": { "client GET": {} },
          "client chat stub-1 #2": { "client POST": {} },
        },
      },
    });
    const tool = named(spans, "execute_tool lookup");
    const record = await tenant.client.get(`/v1/calls/${String(tool.attributes["gen_ai.tool.call.id"])}`);
    expect(record).toMatchObject({ tool: "lookup", trace_id: asked.traceId, state: "completed" });
    expect(tool.attributes).toMatchObject({
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "lookup",
      "gen_ai.tool.type": "extension",
      "toolyard.tool.kind": "HTTP",
      "toolyard.tool.effect": "read",
      "toolyard.call.state": "completed",
    });
    expect(named(spans, "invoke_agent").attributes).toMatchObject({
      "gen_ai.usage.input_tokens": 30,
      "gen_ai.conversation.id": "talk",
      "toolyard.chat.rounds": 2,
    });
    expect(named(spans, "chat stub-1").attributes["gen_ai.response.time_to_first_chunk"]).toBeGreaterThan(0);
    const request = named(spans, "GET");
    expect(backEnd.requests[0]?.headers).toMatchObject({ traceparent: `00-${asked.traceId}-${request.spanId}-01` });
    expect(backEnd.requests[0]?.headers).not.toHaveProperty("tracestate");
    expect(request.parentSpanId).toBe(tool.spanId);
  });

  test("nothing that was said, sent or answered is told, nor a key", async () => {
    await tenant.putCredential("ERP_KEY", "SECRET-CREDENTIAL-VALUE");
    await tenant.addPlugin({
      ...readingTool(backEnd, "guarded_lookup"),
      auth_config: {
        type: "api_key",
        mapping: [{ source: "ERP_KEY", target: "api_key", location: "query" }],
      },
    });
    llm.script(calls({ name: "guarded_lookup", arguments: { q: "SECRET-ARGUMENT" } }), text("SECRET-ANSWER"));
    const asked = newTrace();
    await tenant.client.with(asked.header).post("/v1/chat/completions", question);
    await arrived(asked, [chatRoute, "execute_tool guarded_lookup"]);
    expect(backEnd.requests.at(-1)?.target).toContain("SECRET-CREDENTIAL-VALUE");
    const told = Buffer.concat(receiver.http.requests.map(({ body }) => body)).toString("latin1");
    for (const secret of ["SECRET-", tenant.key, gateway.adminKey]) expect(told).not.toContain(secret);
  });

  test("a failing tool is marked with its code, and so is one that may not run", async () => {
    backEnd.answer = () => ({ status: 500, body: '{"error":"SECRET-RESULT"}' });
    llm.script(
      calls(
        { name: "lookup", arguments: { q: "a" } },
        { name: "lookup", arguments: { wrong: 1 } },
        { name: "no_such_tool_SECRET-NAME", arguments: {} },
      ),
      text("sorry"),
    );
    const asked = newTrace();
    await tenant.client.with(asked.header).post("/v1/chat/completions", question);
    const spans = await arrived(asked, [chatRoute]);
    const tools = spans.filter(({ name }) => name.startsWith("execute_tool"));
    expect(tools.map(({ name, attributes }) => `${name}: ${String(attributes["error.type"])}`).sort()).toEqual([
      "execute_tool lookup: invalid_arguments",
      "execute_tool lookup: tool_failed",
      "execute_tool unknown: tool_not_found",
    ]);
    expect(tools.every(({ failed }) => failed)).toBe(true);
    expect(named(spans, "GET")).toMatchObject({ failed: true, attributes: { "error.type": "500" } });
    expect(named(spans, "invoke_agent")).toMatchObject({ failed: false });
  });

  test("a model back end that fails shows in its own request, the turn, the chat and the status", async () => {
    llm.script({ json: { error: { message: "no" } }, status: 400 });
    const asked = newTrace();
    const answer = await tenant.client.with(asked.header).send("post", "/v1/chat/completions", question);
    const spans = await arrived(asked, [chatRoute]);
    const { code } = answer.json.error;
    expect(named(spans, "POST").attributes).toMatchObject({ "http.response.status_code": 400, "error.type": "400" });
    expect(named(spans, "chat stub-1")).toMatchObject({ failed: true, attributes: { "error.type": code } });
    expect(named(spans, "invoke_agent")).toMatchObject({ failed: true, attributes: { "error.type": code } });
    expect(named(spans, chatRoute).attributes["http.response.status_code"]).toBe(answer.status);
  });

  test("a direct call hangs under its request", async () => {
    const asked = newTrace();
    await tenant.client.with(asked.header).post("/v1/tools/invoke", { name: "create_order", arguments: { sku: "s" } });
    const spans = await arrived(asked, ["POST /v1/tools/invoke"]);
    expect(treeOf(spans)).toEqual({
      "server POST /v1/tools/invoke": { "internal execute_tool create_order": { "client POST": {} } },
    });
    expect(backEnd.requests[0]?.headers["traceparent"]).toContain(named(spans, "POST").spanId);
  });

  test("a request without a trace starts one, which its answer names; one that fails says why", async () => {
    const answer = await tenant.client.send("post", "/v1/tools/invoke", { name: "no_such_tool" });
    const [, traceId = "", spanId, flags] = answer.headers.get("traceparent")?.split("-") ?? [];
    const spans = await arrived({ ...newTrace(), traceId }, ["POST /v1/tools/invoke"]);
    expect(flags).toBe("01");
    expect(named(spans, "POST /v1/tools/invoke")).toMatchObject({
      spanId,
      parentSpanId: "",
      failed: false,
      attributes: { "error.type": "tool_not_found", "http.response.status_code": 404 },
    });
  });

  test("what the caller does not want recorded is not, and its back ends learn that", async () => {
    llm.script(calls({ name: "lookup", arguments: { q: "a" } }), text("ok"));
    const quiet = newTrace("00");
    await tenant.client.with(quiet.header).post("/v1/chat/completions", question);
    const later = await tenant.client
      .with(quiet.header)
      .post("/v1/tools/invoke", { name: "lookup", arguments: { q: "late" }, async: true });
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${later.id}`)).state).toBe("completed");
    const loud = newTrace();
    await tenant.client.with(loud.header).post("/v1/tools/invoke", { name: "lookup", arguments: { q: "b" } });
    await arrived(loud, ["POST /v1/tools/invoke"]);
    expect(receiver.trace(quiet.traceId)).toEqual([]);
    const told = backEnd.requests.map(({ headers }) => String(headers["traceparent"]));
    expect(told.slice(0, 2)).toEqual(
      Array(2).fill(expect.stringMatching(new RegExp(`^00-${quiet.traceId}-[0-9a-f]{16}-00$`))),
    );
  });

  test("a queued call goes on with the trace of the request that asked for it", async () => {
    const asked = newTrace();
    const queued = await tenant.client
      .with(asked.header)
      .post("/v1/tools/invoke", { name: "lookup", arguments: { q: "late" }, async: true });
    const spans = await arrived(asked, ["POST /v1/tools/invoke", "process call"]);
    expect(treeOf(spans)).toEqual({
      "server POST /v1/tools/invoke": {
        "consumer process call": { "internal execute_tool lookup": { "client GET": {} } },
      },
    });
    expect(named(spans, "process call").attributes).toMatchObject({
      "toolyard.call.id": queued.id,
      "toolyard.call.state": "completed",
    });
  });

  test("a call that waits for approval shows where it was wanted, and runs under the chat that wanted it", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd, "guarded_order"), sensitive: true });
    llm.script(calls({ name: "guarded_order", arguments: { sku: "s" } }));
    const asked = newTrace();
    const answer = await tenant.client.with(asked.header).post("/v1/chat/completions", question);
    const [{ call_id: id }] = answer.tool_execution.pending;
    await arrived(asked, [chatRoute]);
    await tenant.client.post(`/v1/calls/${id}/approve`);
    const spans = await arrived(asked, ["process call"]);
    expect(treeOf(spans)).toEqual({
      [`server ${chatRoute}`]: {
        "internal invoke_agent": {
          "client chat stub-1": { "client POST": {} },
          "internal execute_tool guarded_order": {},
          "consumer process call": { "internal execute_tool guarded_order": { "client POST": {} } },
        },
      },
    });
    const states = spans
      .filter(({ name }) => name === "execute_tool guarded_order")
      .map(({ attributes }) => attributes);
    expect(states).toMatchObject([
      { "gen_ai.tool.call.id": id, "toolyard.call.state": "input_required" },
      { "gen_ai.tool.call.id": id, "toolyard.call.state": "completed" },
    ]);
  });

  test("a webhook's delivery is a trace of its own, which names the call", async () => {
    const hooks = await startHttpStub();
    try {
      await tenant.client.post("/v1/webhooks", {
        name: "told",
        url: `${hooks.url}/SECRET-PATH`,
        events: ["call.completed"],
      });
      const called = await tenant.client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "told" } });
      await expect.poll(() => receiver.spans.some(isDelivery), { timeout: 20_000 }).toBe(true);
      const delivery = receiver.spans.find(isDelivery);
      expect(delivery?.attributes).toMatchObject({
        "toolyard.call.id": called.id,
        "toolyard.webhook.event": "call.completed",
      });
      const spans = receiver.trace(delivery?.traceId ?? "");
      expect(treeOf(spans)).toEqual({ "internal deliver webhook": { "client POST": {} } });
      expect(hooks.requests[0]?.headers).not.toHaveProperty("traceparent");
    } finally {
      await hooks.close();
    }
  });

  test("what the gateway fetches for a request hangs under it, too", async () => {
    const other = await gateway.newTenant();
    await other.addProvider(llm.url, { passthrough_models: true });
    const info = { title: "t", version: "1" };
    backEnd.answer = () => ({ body: JSON.stringify({ openapi: "3.1.0", info, paths: {} }) });
    const [models, document] = [newTrace(), newTrace()];
    await other.client.with(models.header).get("/v1/models");
    const body = { url: `${backEnd.url}/openapi.json`, dry_run: true };
    await other.client.with(document.header).send("post", "/v1/plugins/import", body);
    expect(treeOf(await arrived(models, ["GET /v1/models"]))).toEqual({
      "server GET /v1/models": { "client GET": {} },
    });
    expect(treeOf(await arrived(document, ["POST /v1/plugins/import"]))).toEqual({
      "server POST /v1/plugins/import": { "client GET": {} },
    });
  });

  test("probes of health and metrics leave no spans", async () => {
    await gateway.operator.send("get", "/health/ready");
    await gateway.operator.send("get", "/metrics");
    const asked = newTrace();
    await tenant.client.with(asked.header).get("/v1/tools");
    await arrived(asked, ["GET /v1/tools"]);
    expect(receiver.spans.filter(({ attributes }) => /health|metrics/.test(String(attributes["http.route"])))).toEqual(
      [],
    );
  });
});

function isDelivery({ name }: ReceivedSpan): boolean {
  return name === "deliver webhook";
}

describe(`traces over processes ${verifies("CHAT-15", "CHAT-11")}`, () => {
  let accepting: Gateway;
  let working: GatewayProcess;

  beforeAll(async () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" };
    working = await startGatewayProcess({ env: { ...env, OTEL_SERVICE_NAME: "worker" } });
    accepting = await startGateway({
      env: { ...env, OTEL_BSP_SCHEDULE_DELAY: "20" },
      requestsOnly: true,
      sharedWith: working,
    });
  });
  afterAll(async () => {
    await accepting.close();
    await working.close();
  });

  test("a call accepted by one and run by the other is one trace, and what waits at the end is sent", async () => {
    const own = await accepting.newTenant();
    await own.addPlugin(readingTool(backEnd));
    const asked = newTrace();
    await own.client
      .with(asked.header)
      .post("/v1/tools/invoke", { name: "lookup", arguments: { q: "far" }, async: true });
    await expect.poll(() => backEnd.requests.length, { timeout: 10_000 }).toBe(1);
    // Told to stop, it does not keep what it has not sent yet.
    expect(await working.stop()).toEqual({ code: 0, signal: null });
    const spans = await arrived(asked, ["POST /v1/tools/invoke", "process call", "execute_tool lookup"]);
    expect(treeOf(spans)).toEqual({
      "server POST /v1/tools/invoke": {
        "consumer process call": { "internal execute_tool lookup": { "client GET": {} } },
      },
    });
    expect(named(spans, "process call").resource["service.name"]).toBe("worker");
    expect(named(spans, "POST /v1/tools/invoke").resource["service.name"]).toBe("toolyard");
  });
});

describe(`the tick in traces ${verifies("CHAT-15")}`, () => {
  test("is told of where it sent something again, and else not", async () => {
    const slow = await startGateway({
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: "20", OTEL_SERVICE_NAME: "slow" },
      requestsOnly: true,
      timing: { leaseMs: 100 },
    });
    const ticks = (): readonly ReceivedSpan[] =>
      receiver.spans.filter(({ name, resource }) => name === "tick" && resource["service.name"] === "slow");
    try {
      const own = await slow.newTenant();
      await own.addPlugin(readingTool(backEnd));
      await slow.tick();
      const { id } = await own.client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "a" }, async: true });
      await expect
        .poll(async () => {
          await slow.tick();
          return ticks().length;
        })
        .toBe(1);
      expect(ticks()).toMatchObject([{ parentSpanId: "", attributes: { "messaging.batch.message_count": 1 } }]);
      expect(await own.client.get(`/v1/calls/${id}`)).toMatchObject({ state: "queued" });
    } finally {
      await slow.close();
    }
  });
});

describe(`traces without a collector ${verifies("CHAT-15")}`, () => {
  test("requests do not notice, and the log says so once in a while", async () => {
    const nobody = await startHttpStub();
    await nobody.close();
    const alone = await startGateway({
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: nobody.url, OTEL_BSP_SCHEDULE_DELAY: "20" },
    });
    try {
      const own = await alone.newTenant();
      await own.addProvider(llm.url);
      llm.script(text("ok"));
      for (let at = 0; at < 3; at += 1) await own.client.post("/v1/chat/completions", question);
      await expect
        .poll(() => alone.logged.filter(({ message }) => message.startsWith("traces could not be exported")), {
          timeout: 15_000,
        })
        .toMatchObject([{ level: "warn", fields: { reason: "tool_unreachable" } }]);
    } finally {
      await alone.close();
    }
  });
});

describe(`the page about traces ${verifies("CHAT-15")}`, () => {
  test("names every span and every attribute that this suite has seen", async () => {
    const page = await readFile(new URL("../../docs/traces.md", import.meta.url), "utf8");
    const names = new Set(receiver.spans.flatMap(({ attributes }) => Object.keys(attributes)));
    expect(names.size).toBeGreaterThan(30);
    expect([...names].filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
    const inner = receiver.spans.filter(
      ({ kind }) => kind === "internal" || kind === "consumer" || kind === "producer",
    );
    const kinds = new Set(inner.map(({ name }) => name.replace(/^execute_tool .*/, "execute_tool {name}")));
    expect([...kinds].filter((name) => !page.includes(name))).toEqual([]);
  });
});
