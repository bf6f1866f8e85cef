/** `/mcp`: a tenant's tools for MCP clients of both eras, whichever of two instances gets a request. */
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startBalancer, type Balancer } from "../support/balancer.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { connectSession, connectStateless, rawClient, type RawClient } from "../support/mcp-clients.ts";
import { anyTool, startMcpStub, textResult, type McpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

const eras = [
  ["2025-11-25", connectSession],
  ["2026-07-28", connectStateless],
] as const;
const tasks = { extensions: { "io.modelcontextprotocol/tasks": {} } };
const forms = { elicitation: { form: {} } };

let gateway: Gateway;
let other: Gateway;
let balancer: Balancer;
let backEnd: HttpStub;
let tenant: TestTenant;
/** To each of the two in turn. */
let url: string;
let raw: RawClient;

beforeAll(async () => {
  backEnd = await startHttpStub();
  gateway = await startGateway({ timing: { cancelPollMs: 50 } });
  other = await startGateway({ sharedWith: gateway, timing: { cancelPollMs: 50 } });
  balancer = await startBalancer();
  balancer.targets = [gateway.url, other.url];
  url = `${balancer.url}/mcp`;
});
afterAll(async () => {
  await balancer.close();
  await other.close();
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  backEnd.answer = () => ({ body: JSON.stringify({ ok: true }) });
  tenant = await gateway.newTenant();
  raw = rawClient(url, tenant.key);
});

const onlyText = (result: Json): string => result.content.map(({ text }: Json) => text).join("");
const callsOf = async (): Promise<readonly Json[]> => (await tenant.client.get("/v1/calls?order=asc")).data;
/** Answers when told to, and knows when it has been left. */
function hold(): { readonly asked: Promise<void>; readonly left: Promise<void>; release(): void } {
  const asked = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  backEnd.answer = async (_request, response) => {
    response.on("close", () => left.resolve());
    asked.resolve();
    await released.promise;
    return { body: '{"late":true}' };
  };
  return { asked: asked.promise, left: left.promise, release: () => released.resolve() };
}

describe.each(eras)(`a client of revision %s ${verifies("CHAT-11", "CHAT-13", "CHAT-18")}`, (_revision, connect) => {
  test("lists and calls tools of the tenant, with requests at two instances in turn", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    await tenant.addPlugin(writingTool(backEnd));
    backEnd.answer = () => ({ body: '{"id": 12345678901234567890, "ok": true}' });
    const client = await connect({ url, key: tenant.key });
    const { tools } = await client.listTools();
    expect(tools.find(({ name }) => name === "lookup")).toMatchObject({
      inputSchema: { type: "object", required: ["q"] },
      annotations: { readOnlyHint: true },
    });
    expect(tools.find(({ name }) => name === "create_order")?.annotations).toMatchObject({ readOnlyHint: false });
    const { counts } = balancer;
    const before = new Map(counts);
    const result: Json = await client.callTool({ name: "lookup", arguments: { q: "tea" } });
    expect(onlyText(result)).toBe('{"id": 12345678901234567890, "ok": true}');
    expect(result.structuredContent).toMatchObject({ ok: true });
    await client.callTool({ name: "create_order", arguments: { sku: "a" } });
    await client.callTool({ name: "create_order", arguments: { sku: "b" } });
    for (const target of balancer.targets) expect(counts.get(target)).toBeGreaterThan(before.get(target) ?? 0);
    const [call] = await callsOf();
    expect(call).toMatchObject({ tool: "lookup", state: "completed", route: "mcp.tools_call", input: { q: "tea" } });
    expect(call.caller.chain).toEqual([
      { kind: "key", id: tenant.keyId },
      { kind: "mcp_client", id: "test-client/1.2.3" },
    ]);
    await client.close();
  });

  test("gets failures as results with their code, and unknown tools as errors", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    await tenant.addPlugin({ ...writingTool(backEnd, "needs_key"), required_credentials: ["SHOP_KEY"] });
    const client = await connect({ url, key: tenant.key });
    backEnd.answer = () => ({ status: 422, body: '{"reason":"no such tea"}' });
    const failed: Json = await client.callTool({ name: "lookup", arguments: { q: "tea" } });
    expect(failed).toMatchObject({
      isError: true,
      structuredContent: { error: { code: "tool_failed", call_id: expect.stringMatching(/^call_/) } },
    });
    expect(onlyText(failed)).toContain("no such tea");
    const wrong: Json = await client.callTool({ name: "lookup", arguments: { q: 7 } });
    expect(wrong).toMatchObject({ isError: true, structuredContent: { error: { code: "invalid_arguments" } } });
    const missing: Json = await client.callTool({ name: "needs_key", arguments: { sku: "a" } });
    expect(missing).toMatchObject({ isError: true, structuredContent: { error: { code: "credential_missing" } } });
    expect(onlyText(missing)).toContain("PUT /v1/credentials/SHOP_KEY");
    await expect(client.callTool({ name: "no_such_tool", arguments: {} })).rejects.toMatchObject({ code: -32_602 });
    expect((await callsOf()).map(({ tool, state }) => [tool, state])).toEqual([
      ["lookup", "failed"],
      ["lookup", "rejected"],
      ["needs_key", "rejected"],
      ["no_such_tool", "rejected"],
    ]);
    await client.close();
  });

  test("sees all of a long list, whose names are legal and lead back to the tools they stand for", async () => {
    const odd = ["query.run", "query_run", "query/run", `${"x".repeat(70)}A`, `${"x".repeat(70)}B`];
    const many = Array.from({ length: 230 }, (_, at) => `tool_${String(at).padStart(3, "0")}`);
    const stub = await startMcpStub({ tools: [...odd, ...many].map((name) => anyTool(name)) });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "db", config: { url: stub.url } });
    const client = await connect({ url, key: tenant.key });
    const names: string[] = [];
    for (let cursor: string | undefined; ;) {
      const page: Json = await client.listTools(cursor === undefined ? undefined : { cursor });
      names.push(...page.tools.map(({ name }: Json) => name));
      if (page.nextCursor === undefined) break;
      cursor = page.nextCursor;
    }
    const own = names.filter((name) => name.includes("db"));
    expect(own).toHaveLength(odd.length + many.length);
    expect(new Set(names).size).toBe(names.length);
    expect(names.every((name) => /^[a-zA-Z0-9_-]{1,64}$/.test(name))).toBe(true);
    expect(names).toEqual(names.toSorted());
    const strange = own.filter((name) => !/__tool_\d{3}$/.test(name));
    for (const name of strange) await client.callTool({ name, arguments: {} });
    expect(stub.calls.map(({ name }) => name).sort()).toEqual(odd.toSorted());
    await client.close();
    await stub.close();
  });
});

describe(`pages of the list ${verifies("CHAT-11")}`, () => {
  // FastMCP 2 and a bare session of the SDK for Python do not ask for another.
  test("are one where the tools are not many", async () => {
    const stub = await startMcpStub({ tools: Array.from({ length: 400 }, (_, at) => anyTool(`t${at}`)) });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "db", config: { url: stub.url } });
    const { result } = (await raw.ask("tools/list")).answer;
    expect(result.tools.length).toBeGreaterThan(400);
    expect(result).not.toHaveProperty("nextCursor");
    await stub.close();
  });

  test("are given by any instance, each with how long it may be kept, and only for cursors of ours", async () => {
    const description = "x".repeat(8_000);
    const tools = Array.from({ length: 160 }, (_, at) => anyTool(`t${at}`, { description }));
    const stub = await startMcpStub({ tools });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "db", config: { url: stub.url } });
    const first = (await raw.ask("tools/list")).answer.result;
    expect(first).toMatchObject({ resultType: "complete", cacheScope: "private", ttlMs: expect.any(Number) });
    expect(JSON.stringify(first.tools).length).toBeGreaterThan(1_000_000);
    expect(first.tools.length).toBeLessThan(tools.length);
    const second = (await raw.ask("tools/list", { cursor: first.nextCursor })).answer.result;
    expect(second).not.toHaveProperty("nextCursor");
    expect(second.tools[0].name > first.tools.at(-1).name).toBe(true);
    for (const cursor of ["", "nonsense", 7]) {
      const { answer } = await raw.ask("tools/list", { cursor });
      expect(answer.error).toMatchObject({ code: -32_602 });
    }
    await stub.close();
  });
});

describe("toolsets", () => {
  beforeEach(async () => {
    for (const name of ["crm_find", "crm_erase", "weather"]) await tenant.addPlugin(readingTool(backEnd, name));
    await tenant.client.expect("patch", "/v1/settings", {
      mcp_toolsets: { sales: { tools: ["crm_*"], instructions: "Ask before you erase." } },
    });
  });
  const namesAt = async (address: string, key = tenant.key): Promise<readonly string[]> =>
    (await rawClient(`${url}${address}`, key).ask("tools/list")).answer.result.tools
      .map(({ name }: Json) => name)
      .filter((name: string) => name !== "get_call_result");

  test(`give a client a part of the tools, to list and to call ${verifies("CHAT-11")}`, async () => {
    expect(await namesAt("/sales")).toEqual(["crm_erase", "crm_find"]);
    const sales = raw.at(`${url}/sales`);
    const called = await sales.ask("tools/call", { name: "crm_find", arguments: { q: "x" } });
    expect(called.answer.result).not.toHaveProperty("isError");
    const hidden = await sales.ask("tools/call", { name: "weather", arguments: { q: "x" } });
    expect(hidden.answer.error).toMatchObject({ code: -32_602, message: "Unknown tool: weather" });
    expect(backEnd.requests.filter(({ target }) => target.startsWith("/weather"))).toEqual([]);
    expect((await sales.ask("server/discover")).answer.result.instructions).toBe("Ask before you erase.");
  });

  test("do not widen what a key is bound to", async () => {
    const bound = await tenant.newKey({ tools: ["crm_find", "weather"] });
    expect(await namesAt("/sales", bound.key)).toEqual(["crm_find"]);
    expect(await namesAt("", bound.key)).toEqual(["crm_find", "weather"]);
  });

  test("are services, too, whose tools have the names that the service gives them", async () => {
    const stub = await startMcpStub({ tools: [anyTool("query.run"), anyTool("query_run")] });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "db", config: { url: stub.url } });
    expect(await namesAt("/db")).toEqual(["query.run", "query_run"]);
    await raw.at(`${url}/db`).ask("tools/call", { name: "query.run" });
    expect(stub.calls.map(({ name }) => name)).toEqual(["query.run"]);
    await stub.close();
  });

  test("are services and tools by names of all scripts", async () => {
    const stub = await startMcpStub({ tools: [anyTool("query"), anyTool("查询"), anyTool("get:item")] });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "地图", config: { url: stub.url } });
    const names = await namesAt(`/${encodeURIComponent("地图")}`);
    expect(names).toHaveLength(3);
    expect(names).toContain("query");
    const bound = await tenant.newKey({ tools: ["mcp://地图/query", "mcp://地图/get:*"] });
    expect(await namesAt(`/${encodeURIComponent("地图")}`, bound.key)).toHaveLength(2);
    await stub.close();
  });

  test("that are not there are not found", async () => {
    const { status, answer } = await raw.at(`${url}/nothing`).ask("tools/list");
    expect([status, answer.error.data.code]).toEqual([404, "not_found"]);
  });
});

describe(`results ${verifies("MCP-3")}`, () => {
  const png = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==",
    "base64",
  );

  test("are pictures where they are pictures, and links where they are too long", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    const call = async (): Promise<Json> =>
      (await raw.ask("tools/call", { name: "lookup", arguments: { q: "x" } })).answer.result;
    backEnd.answer = () => ({ headers: { "content-type": "image/png" }, body: png });
    expect((await call()).content[0]).toEqual({ type: "image", mimeType: "image/png", data: png.toString("base64") });
    backEnd.answer = () => ({ headers: { "content-type": "text/plain" }, body: "word ".repeat(20_000) });
    const long = await call();
    expect(long.content[0].text.length).toBeLessThan(40_000);
    const link = long.content.find(({ type }: Json) => type === "resource_link");
    expect(link).toMatchObject({ mimeType: "text/plain", size: 100_000 });
    const whole = await tenant.client.send("get", new URL(link.uri).pathname);
    expect(whole.text).toHaveLength(100_000);
    backEnd.answer = () => ({ headers: { "content-type": "application/json" }, body: "[1, 12345678901234567890]" });
    const { text } = await raw.ask("tools/call", { name: "lookup", arguments: { q: "x" } });
    expect(text).toContain('"structuredContent":[1,12345678901234567890]');
  });

  test("of another MCP server pass through part by part", async () => {
    const content = [
      { type: "text", text: "two parts" },
      { type: "resource", resource: { uri: "test://a", mimeType: "text/plain", text: "inside" } },
      { type: "image", data: png.toString("base64"), mimeType: "image/png" },
    ];
    const stub = await startMcpStub({ onCall: () => ({ content, structuredContent: { n: 1 } }) });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "far", config: { url: stub.url } });
    const { answer } = await raw.at(`${url}/far`).ask("tools/call", { name: "echo", arguments: {} });
    expect(answer.result).toMatchObject({ content, structuredContent: { n: 1 } });
    await stub.close();
  });

  describe("of a tool that says what they look like", () => {
    const outputSchema = {
      type: "object",
      properties: { city: { type: "string" }, degrees: { type: "number" } },
      required: ["degrees"],
    };
    const structured = (value: Json): Json => ({ content: [{ type: "text", text: "21" }], structuredContent: value });
    let stub: McpStub;

    beforeEach(async () => {
      stub = await startMcpStub({ tools: [anyTool("weather", { outputSchema }), anyTool("plain")] });
      const config = { url: stub.url, trust_hints: true, tools: { weather: { effect: "read" } } };
      await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "far", config });
    });
    afterEach(() => stub.close());

    test.each(eras)("come to a client of revision %s as they were listed", async (_revision, connect) => {
      const client = await connect({ url: `${url}/far`, key: tenant.key });
      const { tools } = await client.listTools();
      expect(tools.find(({ name }) => name === "weather")?.outputSchema).toEqual(outputSchema);
      expect(tools.find(({ name }) => name === "plain")).not.toHaveProperty("outputSchema");

      // Both clients check by themselves what they get.
      stub.onCall = () => structured({ degrees: 21 });
      const whole: Json = await client.callTool({ name: "weather", arguments: { n: 1 } });
      expect(whole).toMatchObject({ content: [{ text: "21" }], structuredContent: { degrees: 21 } });
      expect(whole).not.toHaveProperty("isError");
      stub.onCall = () => textResult('{"degrees":22}');
      expect(await client.callTool({ name: "weather", arguments: { n: 2 } })).toMatchObject({
        structuredContent: { degrees: 22 },
      });
      const city = "x".repeat(100_000);
      stub.onCall = () => structured({ degrees: 23, city });
      const long: Json = await client.callTool({ name: "weather", arguments: { n: 3 } });
      expect(long.structuredContent).toEqual({ degrees: 23, city });
      expect(JSON.stringify(long.content).length).toBeLessThan(50_000);

      stub.onCall = () => textResult("fine weather");
      const told: Json = await client.callTool({ name: "weather", arguments: { n: 4 } });
      expect(told).toMatchObject({ isError: true, content: [{ text: expect.stringContaining("carried out") }, {}] });
      expect(told.content[1]).toEqual({ type: "text", text: "fine weather" });
      stub.onCall = () => ({ ...textResult("no such place"), isError: true });
      const failed: Json = await client.callTool({ name: "weather", arguments: { n: 5 } });
      expect(failed.isError).toBe(true);
      expect(JSON.parse(onlyText(failed)).error).toMatchObject({
        code: "tool_failed",
        call_id: expect.stringMatching(/^call_/),
      });
      await client.close();
    });

    test.each(eras)(
      "are wrapped for a client of revision %s as the server had wrapped them",
      async (_revision, connect) => {
        const wrapping = (name: string, schema: Json): Json =>
          anyTool(name, { outputSchema: { type: "object", properties: { result: schema }, required: ["result"] } });
        stub.tools = [
          wrapping("say", { type: "string" }),
          wrapping("list", { type: "array" }),
          wrapping("either", { anyOf: [{ type: "integer" }, { type: "string" }] }),
        ];
        const config = { url: stub.url };
        await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "wrapping", config });
        const client = await connect({ url: `${url}/wrapping`, key: tenant.key });
        await client.listTools();
        const given = async (name: string, texts: readonly string[], result: Json): Promise<Json> => {
          const content = texts.map((text) => ({ type: "text", text }));
          stub.onCall = () => ({ content, structuredContent: { result } });
          return client.callTool({ name, arguments: {} });
        };
        const long = "a line\n".repeat(20_000);
        for (const text of ["plain", "3", '{"a": 1}', long]) {
          const told = await given("say", [text], text);
          expect(told.structuredContent).toEqual({ result: text });
          expect(told).not.toHaveProperty("isError");
        }
        expect(await given("list", ["1", "x"], [1, "x"])).toMatchObject({
          content: [{ text: '[1,"x"]' }],
          structuredContent: { result: [1, "x"] },
        });
        for (const value of [3, "3"]) {
          expect((await given("either", ["3"], value)).structuredContent).toEqual({ result: value });
        }
        await client.close();
      },
    );

    test("are described in the list over HTTP, too", async () => {
      const listed = await tenant.client.get("/v1/tools?format=mcp");
      expect(listed.tools.map((tool: Json) => tool.outputSchema)).toContainEqual(outputSchema);
    });

    test("are not described to clients that cannot know what that is", async () => {
      for (const [revision, described] of [
        ["2025-03-26", undefined],
        ["2025-06-18", outputSchema],
      ] as const) {
        const listed = await raw
          .at(`${url}/far`)
          .post({ jsonrpc: "2.0", id: 1, method: "tools/list" }, { headers: { "mcp-protocol-version": revision } });
        const weather = listed.answer.result.tools.find(({ name }: Json) => name === "weather");
        expect([revision, weather.outputSchema]).toEqual([revision, described]);
      }
      stub.onCall = () => textResult("fine weather");
      const { answer } = await raw
        .at(`${url}/far`)
        .post(
          { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "weather" } },
          { headers: { "mcp-protocol-version": "2025-03-26" } },
        );
      expect(answer.result).toEqual(textResult("fine weather"));
    });
  });

  test("come after progress where the client wants to know", async () => {
    const stub = await startMcpStub();
    stub.onCall =
      ({ id, meta }) =>
      (response) => {
        const event = (message: Json): string => `data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const progress of [1, 1, 2]) {
          const params = { progressToken: meta.progressToken, progress, total: 2, message: "on it" };
          response.write(event({ method: "notifications/progress", params }));
        }
        response.end(event({ id, result: textResult("done") }));
        return undefined;
      };
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "far", config: { url: stub.url } });
    const params = { name: "echo", arguments: {}, _meta: { progressToken: "p-1" } };
    const { messages, headers } = await raw.at(`${url}/far`).ask("tools/call", params);
    expect(headers.get("content-type")).toBe("text/event-stream");
    expect(headers.get("x-accel-buffering")).toBe("no");
    const told = messages.filter(({ method }) => method === "notifications/progress");
    expect(told.map(({ params: { progressToken, progress, total } }) => [progressToken, progress, total])).toEqual([
      ["p-1", 1, 2],
      ["p-1", 2, 2],
    ]);
    expect(onlyText(messages.at(-1).result)).toBe("done");
    await stub.close();
  });
});

describe("cancelling", () => {
  beforeEach(() => tenant.addPlugin(readingTool(backEnd)));

  test("in a session is told to any instance and reaches the one that runs the call", async () => {
    const held = hold();
    const first = raw.at(`${gateway.url}/mcp`);
    const begun = await first.post({
      jsonrpc: "2.0",
      id: 0,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } },
    });
    const headers = {
      "mcp-session-id": begun.headers.get("mcp-session-id") ?? "",
      "mcp-protocol-version": "2025-11-25",
    };
    const params = { name: "lookup", arguments: { q: "x" } };
    const answered = first.post({ jsonrpc: "2.0", id: "call-7", method: "tools/call", params }, { headers });
    await held.asked;
    const notice = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "call-7" } };
    const elsewhere = await raw.at(`${other.url}/mcp`).post(notice, { headers });
    expect([elsewhere.status, elsewhere.text]).toEqual([202, ""]);
    await held.left;
    expect((await answered).answer.result).toMatchObject({ isError: true });
    expect(await callsOf()).toMatchObject([{ state: "cancelled" }]);
    held.release();
  });

  test("since 2026-07-28 is to close the stream; before that it is not", async () => {
    const stateless = hold();
    const leave = new AbortController();
    const params = { name: "lookup", arguments: { q: "x" } };
    const asked = raw.ask("tools/call", params, { signal: leave.signal });
    await stateless.asked;
    leave.abort();
    await expect(asked).rejects.toThrow("aborted");
    await stateless.left;
    await expect.poll(async () => (await callsOf()).map(({ state }) => state)).toEqual(["cancelled"]);
    stateless.release();

    const session = hold();
    const stay = new AbortController();
    const posted = raw.post({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, { signal: stay.signal });
    await session.asked;
    stay.abort();
    await expect(posted).rejects.toThrow("aborted");
    session.release();
    await expect.poll(async () => (await callsOf()).map(({ state }) => state)).toEqual(["cancelled", "completed"]);
  });
});

describe(`approvals ${verifies("CHAT-11")}`, () => {
  const order = { name: "create_order", arguments: { sku: "tea" } };
  beforeEach(() => tenant.addPlugin({ ...writingTool(backEnd), sensitive: true }));
  const orders = (): number => backEnd.requests.filter(({ target }) => target.startsWith("/create_order")).length;

  test("are asked for in the result, and given with the request that comes again, to any instance", async () => {
    const before = orders();
    const asked = (await raw.ask("tools/call", order, { capabilities: forms })).answer.result;
    expect(asked).toMatchObject({
      resultType: "input_required",
      inputRequests: { approval: { method: "elicitation/create", params: { mode: "form" } } },
      requestState: expect.any(String),
    });
    expect(asked.inputRequests.approval.params.message).toContain("tea");
    const { requestState } = asked;
    const again = (inputResponses: Json): Promise<Json> =>
      raw
        .ask("tools/call", { ...order, inputResponses, requestState }, { capabilities: forms })
        .then(({ answer }) => answer.result);
    expect(await again({})).toMatchObject({ resultType: "input_required" });
    expect(await again({ approval: { action: "cancel" } })).toMatchObject({
      isError: true,
      structuredContent: { error: { code: "approval_required" } },
    });
    expect(orders()).toBe(before);
    const done = await again({ approval: { action: "accept", content: { approve: true } } });
    expect(onlyText(done)).toBe('{"ok":true}');
    // A client that has lost the answer asks once more, and nothing is done twice.
    expect(await again({ approval: { action: "accept", content: { approve: true } } })).toMatchObject(done);
    expect(orders()).toBe(before + 1);
  });

  test.each([
    ["a decline", { action: "decline" }],
    ["an unticked box", { action: "accept", content: { approve: false } }],
  ])("%s rejects the call", async (_what, approval) => {
    const before = orders();
    const { requestState } = (await raw.ask("tools/call", order, { capabilities: forms })).answer.result;
    const params = { ...order, requestState, inputResponses: { approval } };
    const { answer } = await raw.ask("tools/call", params, { capabilities: forms });
    expect(answer.result).toMatchObject({ isError: true, structuredContent: { error: { code: "call_rejected" } } });
    expect(await callsOf()).toMatchObject([{ state: "rejected" }]);
    expect(orders()).toBe(before);
  });

  test("hold for the caller, the tool and the arguments that were shown, and for nobody else", async () => {
    const { requestState } = (await raw.ask("tools/call", order, { capabilities: forms })).answer.result;
    const inputResponses = { approval: { action: "accept", content: { approve: true } } };
    const colleague = rawClient(url, (await tenant.newKey({ role: "admin", scopes: ["tools", "approve"] })).key);
    const stranger = rawClient(url, (await gateway.newTenant()).key);
    const other = { ...order, arguments: { sku: "gold" } };
    for (const [client, params] of [
      [colleague, { ...order, requestState }],
      [stranger, { ...order, requestState }],
      [raw, { ...other, requestState }],
      [raw, { ...order, requestState: `${requestState.slice(0, -2)}xx` }],
      [raw, { ...order, requestState: "nonsense" }],
    ] as const) {
      const { answer } = await client.ask("tools/call", { ...params, inputResponses }, { capabilities: forms });
      expect(answer.error).toMatchObject({ code: -32_602 });
    }
    expect(await callsOf()).toMatchObject([{ state: "input_required" }]);
  });

  test("are told of where the client cannot ask or the caller may not decide, and fetched afterwards", async () => {
    const member = rawClient(url, (await tenant.newKey({ scopes: ["tools"] })).key);
    for (const [client, capabilities] of [
      [raw, {}],
      [member, forms],
    ] as const) {
      const { answer } = await client.ask("tools/call", order, { capabilities });
      const { error } = answer.result.structuredContent;
      expect(answer.result.isError).toBe(true);
      expect(error).toMatchObject({ code: "approval_required", url: expect.stringContaining("/v1/calls/call_") });
      const early = await client.ask("tools/call", { name: "get_call_result", arguments: { call_id: error.call_id } });
      expect(early.answer.result.structuredContent).toMatchObject({ status: "pending" });
      await tenant.client.post(`/v1/calls/${error.call_id}/approve`);
      const params = { name: "get_call_result", arguments: { call_id: error.call_id, wait_s: 20 } };
      expect(onlyText((await client.ask("tools/call", params)).answer.result)).toBe('{"ok":true}');
    }
  });

  test("are asked for by the official client of 2026-07-28", async () => {
    const client = await connectStateless({ url, key: tenant.key, capabilities: forms });
    const questions: string[] = [];
    client.setRequestHandler("elicitation/create", ({ params }) => {
      questions.push(params.message);
      return { action: "accept", content: { approve: true } };
    });
    expect(onlyText(await client.callTool(order))).toBe('{"ok":true}');
    expect(questions).toEqual([expect.stringContaining("create_order")]);
    await client.close();
  });

  test("are asked for on the stream by the official client of 2025-11-25, and answered to the other instance", async () => {
    const client = await connectSession({ url, key: tenant.key, capabilities: { elicitation: {} } });
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { approve: true } }));
    expect(onlyText(await client.callTool(order))).toBe('{"ok":true}');
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: "decline" }));
    expect(await client.callTool(order)).toMatchObject({
      isError: true,
      structuredContent: { error: { code: "call_rejected" } },
    });
    await client.close();
  });
});

describe("tasks", () => {
  const slow = { name: "lookup", arguments: { q: "x" } };
  beforeEach(() => tenant.addPlugin(readingTool(backEnd, "lookup", { timeout_ms: 120_000 })));
  const get = async (taskId: string): Promise<Json> =>
    (await raw.ask("tasks/get", { taskId }, { capabilities: tasks })).answer.result;

  test("stand for calls of slow tools, and are the calls: any instance tells of them", async () => {
    const held = hold();
    const begun = (await raw.ask("tools/call", slow, { capabilities: tasks })).answer.result;
    expect(begun).toMatchObject({ resultType: "task", status: "working", ttlMs: expect.any(Number) });
    const { taskId } = begun;
    expect(await get(taskId)).toMatchObject({ resultType: "complete", taskId, status: "working" });
    held.release();
    await expect.poll(async () => (await get(taskId)).status).toBe("completed");
    expect(onlyText((await get(taskId)).result)).toBe('{"late":true}');
    expect(await tenant.client.get(`/v1/calls/${taskId}`)).toMatchObject({ state: "completed", tool: "lookup" });
  });

  test("are cancelled, wherever they run, and so are their calls", async () => {
    const held = hold();
    const { taskId } = (await raw.ask("tools/call", slow, { capabilities: tasks })).answer.result;
    await held.asked;
    const acknowledged = await raw.ask("tasks/cancel", { taskId }, { capabilities: tasks });
    expect(acknowledged.answer.result).toMatchObject({ resultType: "complete" });
    await held.left;
    await expect.poll(async () => (await get(taskId)).status).toBe("cancelled");
    held.release();
  });

  test("are for those who declare them and whose they are", async () => {
    backEnd.answer = () => ({ body: '{"ok":true}' });
    const { taskId } = (await raw.ask("tools/call", slow, { capabilities: tasks })).answer.result;
    const undeclared = await raw.ask("tasks/get", { taskId });
    expect([undeclared.status, undeclared.answer.error.code]).toEqual([400, -32_021]);
    expect(undeclared.answer.error.data.requiredCapabilities).toEqual(tasks);
    const colleague = rawClient(url, (await tenant.newKey({ role: "admin", scopes: ["tools", "calls"] })).key);
    const stranger = rawClient(url, (await gateway.newTenant()).key);
    for (const client of [colleague, stranger]) {
      for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
        const { answer } = await client.ask(method, { taskId, inputResponses: {} }, { capabilities: tasks });
        expect(answer.error).toMatchObject({ code: -32_602, message: "There is no task of that id." });
      }
    }
  });

  test("are not needed: other clients get the result itself", async () => {
    for (const connect of [connectSession, connectStateless]) {
      const client = await connect({ url, key: tenant.key });
      expect(onlyText(await client.callTool(slow))).toBe('{"ok":true}');
      await client.close();
    }
  });

  test("are told of on a stream to whoever listens", async () => {
    const held = hold();
    const { taskId } = (await raw.ask("tools/call", slow, { capabilities: tasks })).answer.result;
    const leave = new AbortController();
    const told: Json[] = [];
    const params = { notifications: { taskIds: [taskId, "call_of_nobody"] } };
    const listening = raw.ask("subscriptions/listen", params, {
      capabilities: tasks,
      signal: leave.signal,
      onMessage: (message) => void told.push(message),
    });
    await expect.poll(() => told[0]?.params.notifications).toEqual({ taskIds: [taskId] });
    held.release();
    await expect.poll(() => told.at(-1)?.params.status).toBe("completed");
    leave.abort();
    await expect(listening).rejects.toThrow("aborted");
  });
});

describe("news of the list of tools", () => {
  test("reach a client that listens at another instance than the one where it was changed", async () => {
    const leave = new AbortController();
    const told: Json[] = [];
    const params = { notifications: { toolsListChanged: true, promptsListChanged: true } };
    const listening = raw.at(`${other.url}/mcp`).ask("subscriptions/listen", params, {
      signal: leave.signal,
      onMessage: (message) => void told.push(message),
    });
    await expect
      .poll(() => told)
      .toMatchObject([
        {
          method: "notifications/subscriptions/acknowledged",
          params: {
            notifications: { toolsListChanged: true },
            _meta: { "io.modelcontextprotocol/subscriptionId": expect.any(Number) },
          },
        },
      ]);
    await tenant.addPlugin(readingTool(backEnd, "fresh"));
    await expect.poll(() => told.at(-1)?.method).toBe("notifications/tools/list_changed");
    leave.abort();
    await expect(listening).rejects.toThrow("aborted");
  });
});

describe("who may come in", () => {
  test("without a key a client is told where to learn how", async () => {
    const { status, headers } = await rawClient(`${gateway.url}/mcp`, undefined).ask("tools/list");
    expect(status).toBe(401);
    const challenge = headers.get("www-authenticate") ?? "";
    const address = /resource_metadata="([^"]+)"/.exec(challenge)?.[1] ?? "";
    expect(address).toBe(`${gateway.url}/.well-known/oauth-protected-resource/mcp`);
    const metadata: Json = await (await fetch(address)).json();
    expect(metadata).toMatchObject({ resource: `${gateway.url}/mcp`, bearer_methods_supported: ["header"] });
    expect(metadata).not.toHaveProperty("authorization_servers");
  });

  // Clients in Python read nothing else of it, those in Go where it has the id of their request.
  test("whoever is refused reads why in an error of the protocol", async () => {
    const limited = await tenant.newKey({ requests_per_minute: 1 });
    await rawClient(url, limited.key).ask("tools/list");
    // Of a key of nobody's no message is read.
    for (const [at, key, status, code, words, id] of [
      [url, "ty_nobody_x", 401, "invalid_api_key", "API key", null],
      [url, limited.key, 429, "rate_limited", "requests per minute", expect.any(Number)],
      [`${url}/nowhere`, tenant.key, 404, "not_found", "nowhere", expect.any(Number)],
    ] as const) {
      const refused = await rawClient(at, key).ask("tools/list");
      expect(refused.status).toBe(status);
      expect(refused.answer).toEqual({
        jsonrpc: "2.0",
        id,
        error: {
          code: -32_600,
          message: expect.stringContaining(words),
          data: expect.objectContaining({ code, request_id: refused.headers.get("x-request-id") }),
        },
      });
      const plain = await rawClient(at, key).ask("tools/list", {}, { headers: { accept: "application/json" } });
      expect([plain.status, plain.answer.error.code]).toEqual([status, code]);
    }
  });

  test("a tenant names the issuers that its clients are sent to", async () => {
    const issuer = "https://login.example.com/realms/tea";
    await tenant.client.expect("patch", "/v1/settings", { mcp_authorization_servers: [issuer] });
    const asked = await rawClient(`${url}?tenant=${tenant.id}`, undefined).ask("tools/list");
    const address = /resource_metadata="([^"]+)"/.exec(asked.headers.get("www-authenticate") ?? "")?.[1] ?? "";
    expect(await (await fetch(address)).json()).toMatchObject({ authorization_servers: [issuer] });
    const elsewhere = await fetch(`${gateway.url}/.well-known/oauth-protected-resource/mcp?tenant=ten_nobody`);
    expect(await elsewhere.json()).not.toHaveProperty("authorization_servers");
  });

  test(`a user of a trusted issuer lists and calls by the token, under its own name ${verifies("CHAT-11", "CHAT-13")}`, async () => {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwks = await startHttpStub();
    const keys = [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256", use: "sig" }];
    jwks.answer = () => ({ body: JSON.stringify({ keys }) });
    const issuer = `https://login.example.com/realms/${tenant.id}`;
    const audience = `${gateway.url}/mcp`;
    const inSeconds = (after: number): number => Math.floor(Date.now() / 1_000) + after;
    const sign = (claims: Json): Promise<string> =>
      new SignJWT({ aud: audience, exp: inSeconds(300), ...claims })
        .setProtectedHeader({ alg: "ES256", kid: "k1" })
        .setIssuer(issuer)
        .setSubject("ann")
        .sign(privateKey);
    const trusted = { issuer, audience, jwks_url: jwks.url, claims: { scopes: "may" } };
    await tenant.client.post("/v1/issuers", trusted);
    await tenant.addPlugin(readingTool(backEnd));

    for (const [, connect] of eras) {
      const client = await connect({ url, key: await sign({ may: ["tools"] }) });
      expect((await client.listTools()).tools.map(({ name }) => name)).toContain("lookup");
      expect(await client.callTool({ name: "lookup", arguments: { q: "x" } })).toMatchObject({
        structuredContent: { ok: true },
      });
      await client.close();
    }
    for (const call of await callsOf()) {
      expect(call.caller.chain[0]).toEqual({ kind: "user", id: `user:${issuer}:ann` });
    }

    const asked = async (claims: Json): Promise<readonly unknown[]> => {
      const { status, answer, headers } = await rawClient(url, await sign(claims)).ask("tools/list");
      return [status, answer.error?.data.code, headers.get("www-authenticate")];
    };
    expect(await asked({ may: ["chat"] })).toEqual([
      403,
      "permission_denied",
      expect.stringContaining('error="insufficient_scope", scope="tools"'),
    ]);
    const challenge = expect.stringContaining("resource_metadata=");
    expect(await asked({ may: ["tools"], aud: "another" })).toEqual([401, expect.any(String), challenge]);
    expect(await asked({ may: ["tools"], exp: inSeconds(-300) })).toEqual([401, "invalid_token", challenge]);
    await jwks.close();
  });

  test("a key without the scope is told which one", async () => {
    const { key } = await tenant.newKey({ scopes: ["chat"] });
    const { status, headers } = await rawClient(url, key).ask("tools/list");
    expect(status).toBe(403);
    expect(headers.get("www-authenticate")).toContain('error="insufficient_scope", scope="tools"');
  });

  test("web pages of others are refused, those of the user's machine are not", async () => {
    const asked = (origin: string): Promise<number> =>
      raw.ask("tools/list", {}, { headers: { origin } }).then(({ status }) => status);
    expect(await asked("https://evil.example.com")).toBe(403);
    expect(await asked("null")).toBe(403);
    expect(await asked("http://localhost.evil.example.com")).toBe(403);
    expect(await asked("http://localhost:6274")).toBe(200);
    expect(await asked(gateway.url)).toBe(200);
  });

  test("an operator lets pages in by their origin", async () => {
    const open = await startGateway({ env: { TOOLYARD_MCP_ORIGINS: "https://app.example.com" } });
    const { key } = await open.newTenant();
    const asked = (origin: string): Promise<number> =>
      rawClient(`${open.url}/mcp`, key)
        .ask("tools/list", {}, { headers: { origin } })
        .then(({ status }) => status);
    expect([await asked("https://app.example.com"), await asked("https://app.example.com.evil.net")]).toEqual([
      200, 403,
    ]);
    await open.close();
  });

  test("a session of another tenant is none", async () => {
    const stranger = await gateway.newTenant();
    const begun = await rawClient(url, stranger.key).post({ jsonrpc: "2.0", id: 1, method: "initialize", params: {} });
    const id = begun.headers.get("mcp-session-id") ?? "";
    expect(id).toMatch(/^[\x21-\x7e]+$/);
    for (const session of [id, `${id}x`, "nonsense", "a.b.c"]) {
      const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };
      const { status, answer } = await raw.post(list, { headers: { "mcp-session-id": session } });
      expect([status, answer.error.code]).toEqual([404, -32_600]);
    }
  });
});

describe("requests as hostile clients send them", () => {
  const list = { jsonrpc: "2.0", id: 1, method: "tools/list" };
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const stateless = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list" };

  test.each<[string, unknown, Record<string, string>, readonly [status: number, code: number]]>([
    ["no JSON", "{", {}, [400, -32_700]],
    ["nothing", "", {}, [400, -32_600]],
    ["no object", '"tools/list"', {}, [400, -32_600]],
    ["another version of JSON-RPC", { ...list, jsonrpc: "1.0" }, {}, [400, -32_600]],
    ["an id that is none", { ...list, id: null }, {}, [400, -32_600]],
    ["an id that is half", { ...list, id: 1.5 }, {}, [400, -32_600]],
    ["parameters that are a list", { ...list, params: [] }, {}, [400, -32_600]],
    ["neither request nor answer", { jsonrpc: "2.0", id: 1 }, {}, [400, -32_600]],
    ["an empty batch", [], {}, [400, -32_600]],
    ["a batch of a revision without", [list], { "mcp-protocol-version": "2025-11-25" }, [400, -32_600]],
    ["too large a batch", Array.from({ length: 21 }, () => list), {}, [400, -32_600]],
    ["a method of JavaScript's own", { ...list, method: "constructor" }, {}, [200, -32_601]],
    [
      "a tool of JavaScript's own",
      { ...list, method: "tools/call", params: { name: "__proto__" } },
      {},
      [200, -32_602],
    ],
    ["a tool without a name", { ...list, method: "tools/call", params: { name: 7 } }, {}, [200, -32_602]],
    [
      "arguments that are a text",
      { ...list, method: "tools/call", params: { name: "x", arguments: "{}" } },
      {},
      [200, -32_602],
    ],
    ["a revision of nobody", list, { "mcp-protocol-version": "1999-01-01" }, [400, -32_022]],
    ["a revision in the header alone", list, stateless, [400, -32_602]],
    ["a revision in the body alone", { ...list, params: { _meta: meta } }, {}, [400, -32_020]],
    [
      "another method in the header",
      { ...list, params: { _meta: meta } },
      { ...stateless, "mcp-method": "tools/call" },
      [400, -32_020],
    ],
    [
      "a method of the other era",
      { ...list, method: "ping", params: { _meta: meta } },
      { ...stateless, "mcp-method": "ping" },
      [404, -32_601],
    ],
  ])("%s is refused as the protocol says", async (_what, body, headers, refusal) => {
    const posted = await raw.post(body, { headers });
    expect([posted.status, posted.answer.error.code]).toEqual(refusal);
    expect(posted.answer.jsonrpc).toBe("2.0");
  });

  test("are told nothing of the protocol without a key", async () => {
    for (const body of ["{", "[]", JSON.stringify({ ...list, jsonrpc: "1.0" })]) {
      expect((await rawClient(url, "ty_nobody_x").post(body)).status).toBe(401);
    }
  });

  test("other methods of HTTP are not allowed", async () => {
    for (const method of ["GET", "DELETE", "PUT"]) {
      const answer = await fetch(url, { method, headers: { authorization: `Bearer ${tenant.key}` } });
      expect([answer.status, answer.headers.get("allow")]).toEqual([405, "POST"]);
    }
  });

  test("a batch of revision 2025-03-26 is answered as one", async () => {
    const notice = { jsonrpc: "2.0", method: "notifications/initialized" };
    const { status, answer } = await raw.post([list, notice, { jsonrpc: "2.0", id: "b", method: "ping" }]);
    expect(status).toBe(200);
    expect(answer).toMatchObject([
      { id: 1, result: { tools: expect.any(Array) } },
      { id: "b", result: {} },
    ]);
  });

  const orders = (...ids: readonly string[]): Json =>
    ids.map((sku, id) => ({ ...list, id, method: "tools/call", params: { name: "book", arguments: { sku } } }));

  test("the key of a batch is one for each of its calls, whenever the batch is sent", async () => {
    await tenant.addPlugin(writingTool(backEnd, "book"));
    const before = backEnd.requests.length;
    for (let sent = 0; sent < 2; sent += 1) {
      const { answer } = await raw.post(orders("a", "b", "a"), { headers: { "idempotency-key": "batch-1" } });
      expect(answer).toMatchObject([0, 1, 2].map((id) => ({ id, result: { structuredContent: { ok: true } } })));
    }
    expect(backEnd.requests.length - before).toBe(3);
  });

  test("what is refused before it is a call names none", async () => {
    await tenant.addPlugin(writingTool(backEnd, "book"));
    const book = { ...list, method: "tools/call", params: { name: "book", arguments: { sku: "a" } } };
    const keyed = { headers: { "idempotency-key": "reused" } };
    await raw.post(book, keyed);
    const { answer } = await raw.post({ ...book, params: { name: "book", arguments: { sku: "b" } } }, keyed);
    expect(answer.result.structuredContent.error).toMatchObject({ code: "idempotency_key_reused" });
    expect(answer.result.structuredContent.error).not.toHaveProperty("call_id");
  });

  test("what is refused in a batch takes nothing from the answers before it", async () => {
    await tenant.addPlugin(writingTool(backEnd, "book"));
    await tenant.client.expect("patch", "/v1/settings", { requests_per_minute: 6 });
    const before = backEnd.requests.length;
    const { status, answer } = await raw.post(orders(...Array.from({ length: 20 }, (_, id) => `sku-${id}`)));
    expect(status).toBe(200);
    const done = answer.filter(({ result }: Json) => result?.structuredContent?.ok === true);
    const refused = answer.filter(({ error }: Json) => error?.data?.code === "rate_limited");
    expect(done.length).toBe(backEnd.requests.length - before);
    expect([done.length > 0, refused.length > 0, done.length + refused.length]).toEqual([true, true, 20]);
  });

  test("headers are held against the tool as it is, not as another instance still knows it", async () => {
    const region = { type: "string", "x-mcp-header": "Region" };
    const parameters = { type: "object", properties: { q: { type: "string" }, region }, required: ["q"] };
    const id = await tenant.addPlugin({ ...readingTool(backEnd), parameters });
    const there = raw.at(`${other.url}/mcp`);
    const call = { name: "lookup", arguments: { q: "x", region: "eu" } };
    expect((await there.ask("tools/call", call)).answer.error.code).toBe(-32_020);
    const plain = { ...parameters, properties: { ...parameters.properties, region: { type: "string" } } };
    const definition = { schema_version: "v1", description: "A tool.", ...readingTool(backEnd), parameters: plain };
    await tenant.client.expect("put", `/v1/plugins/${id}`, definition);
    expect((await there.ask("tools/call", call)).answer.result).toBeDefined();
  });

  test("arguments that headers should mirror must be mirrored", async () => {
    const region = { type: "string", "x-mcp-header": "Region" };
    await tenant.addPlugin({
      ...readingTool(backEnd),
      parameters: { type: "object", properties: { q: { type: "string" }, region }, required: ["q"] },
    });
    const call = (args: Json, headers: Record<string, string> = {}): Promise<Json> =>
      raw.ask("tools/call", { name: "lookup", arguments: args }, { headers }).then(({ answer }) => answer);
    expect((await call({ q: "x" })).result).toBeDefined();
    expect(
      (await call({ q: "x", region: "Zürich" }, { "mcp-param-region": "=?base64?WsO8cmljaA==?=" })).result,
    ).toBeDefined();
    const before = backEnd.requests.length;
    expect((await call({ q: "x", region: "eu" })).error.code).toBe(-32_020);
    expect((await call({ q: "x", region: "eu" }, { "mcp-param-region": "us" })).error.code).toBe(-32_020);
    expect((await call({ q: "x" }, { "mcp-param-region": "us" })).error.code).toBe(-32_020);
    expect((await call({ q: "x", region: "Zürich" }, { "mcp-param-region": "=?base64?WsO8cmljaA?=" })).error.code).toBe(
      -32_020,
    );
    expect(backEnd.requests).toHaveLength(before);
  });
});
