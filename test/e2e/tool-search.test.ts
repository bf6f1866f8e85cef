/** More tools than a model should be told of: it searches them, and calls what it has found (CHAT-4). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { anyTool, startMcpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let llm: LlmStub;
/** Of a thousand tools. */
let large: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  [backEnd, llm] = await Promise.all([startHttpStub(() => ({ body: '{"found":true}' })), startLlmStub()]);
  large = await newTenant();
  const operations = Array.from({ length: 1_000 }, (_, at): [string, Json] => [
    `/things/${at}`,
    {
      get: {
        operationId: `thing_${at}`,
        summary: at === 617 ? "Measures the moisture of a greenhouse 温室湿度" : `Reads thing number ${at}`,
        parameters: [{ name: "q", in: "query", required: true, schema: { type: "string" } }],
        responses: { 200: { description: "ok" } },
      },
    },
  ]);
  await large.client.post("/v1/plugins/import", {
    openapi: {
      openapi: "3.0.3",
      info: { title: "Things", version: "1" },
      servers: [{ url: backEnd.url }],
      paths: Object.fromEntries(operations),
    },
    allowed_origins: [backEnd.url],
  });
});

afterAll(async () => {
  await Promise.all([gateway.close(), backEnd.close(), llm.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
});

async function newTenant(settings: Json = {}): Promise<TestTenant> {
  const made = await gateway.newTenant(settings);
  await made.addProvider(llm.url);
  return made;
}

const chat = (client: Client, more: Json = {}): Promise<Json> =>
  client.post("/v1/chat/completions", { messages: [{ role: "user", content: "go" }], ...more });

const search = (query: string, more: Json = {}): Json => ({ name: "search_tools", arguments: { query, ...more } });
const callOf = (name: string, args: Json): Json => ({ name: "call_tool", arguments: { name, arguments: args } });

function request(at: number): Json {
  return llm.requests.at(at);
}

function offered(at = 0): string[] {
  return request(at).tools.map((tool: Json): string => tool.function.name);
}

/** What the model was told in a request, the last one unless told otherwise. */
function results(at = -1): Json[] {
  return request(at)
    .messages.filter(({ role }: Json) => role === "tool")
    .map(({ content }: Json): Json => JSON.parse(content));
}

describe(`a thousand tools ${verifies("CHAT-4", "CHAT-5")}`, () => {
  test("are searched and called, and recorded under their real name", async () => {
    llm.script(calls(search("greenhouses moisture")), calls(callOf("thing_617", { q: "now" })), text("wet"));
    const answer = await chat(large.client);
    expect(answer.choices[0].message.content).toBe("wet");
    expect(answer.tool_execution.tools_called).toEqual(["search_tools", "thing_617"]);
    expect([offered(0), offered(1), offered(2)]).toEqual(
      Array.from({ length: 3 }, () => ["read_result", "call_tool", "search_tools"]),
    );
    const [found, result] = results();
    expect(found).toMatchObject({ matches: 1, of: 1_001 });
    expect(found.tools).toEqual([
      {
        name: "thing_617",
        description: expect.stringContaining("moisture"),
        parameters: expect.objectContaining({ required: ["q"] }),
      },
    ]);
    expect(result).toEqual({ found: true });
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/things/617?q=now"]);
    const { data } = await large.client.get("/v1/calls?kind=tool&limit=2");
    expect(data.map(({ tool, state, uri }: Json) => [tool, state, uri]).sort()).toEqual([
      ["search_tools", "completed", "native://search_tools"],
      ["thing_617", "completed", "plugin://thing_617"],
    ]);
  });

  test("are found by Chinese words, ten at most, in the same order each time", async () => {
    llm.script(calls(search("湿度"), search("thing number", { limit: 10 })), text("done"));
    await chat(large.client);
    const [chinese, many] = results();
    expect(chinese.tools.map(({ name }: Json) => name)).toEqual(["thing_617"]);
    expect(many.tools).toHaveLength(10);
    llm.script(calls(search("thing number", { limit: 10 })), text("done"));
    await chat(large.client);
    expect(results()[0]).toEqual(many);
  });

  test("are found and called only as far as the key is bound", async () => {
    const { client } = await large.newKey({ tools: ["thing_1*"] });
    llm.script(
      calls(search("greenhouse moisture"), search("thing 12"), callOf("thing_617", { q: "x" })),
      calls(callOf("thing_12", { q: "x" })),
      text("done"),
    );
    await chat(client);
    const [none, some, refused, allowed] = results();
    expect(none).toMatchObject({ tools: [], of: 111 });
    expect(some.tools.every(({ name }: Json) => name.startsWith("thing_1"))).toBe(true);
    expect(refused.error).toMatchObject({ code: "tool_not_found" });
    expect(allowed).toEqual({ found: true });
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/things/12?q=x"]);
  });

  test("refuse arguments that do not fit, calls of nothing and addresses, without sending anything", async () => {
    llm.script(
      calls(
        callOf("thing_1", {}),
        { name: "call_tool", arguments: { arguments: {} } },
        { name: "call_tool", arguments: "{" },
        callOf("plugin://thing_1", { q: "x" }),
        callOf("call_tool", { name: "thing_1" }),
        search(""),
      ),
      text("done"),
    );
    await chat(large.client);
    expect(results().map(({ error }): string => error.code)).toEqual([
      "invalid_arguments",
      "invalid_arguments",
      "invalid_arguments",
      "tool_not_found",
      "tool_not_found",
      "invalid_arguments",
    ]);
    expect(backEnd.requests).toEqual([]);
  });

  test("leave the client's own tools and the chosen one listed", async () => {
    llm.script(calls({ name: "thing_7", arguments: { q: "direct" } }), text("done"));
    const clientTool = { type: "function", function: { name: "mine", parameters: { type: "object" } } };
    await chat(large.client, {
      tools: [clientTool],
      tool_choice: { type: "function", function: { name: "thing_7" } },
    });
    expect(offered()).toEqual(["mine", "thing_7", "read_result", "call_tool", "search_tools"]);
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/things/7?q=direct"]);
  });

  test("are told of in full where the client has a tool of the search's name", async () => {
    llm.script(text("done"));
    await chat(large.client, { tools: [{ type: "function", function: { name: "call_tool" } }] });
    expect(offered()).toHaveLength(1_002);
  });
});

describe(`the threshold ${verifies("CHAT-4")}`, () => {
  test("is the tenant's: as many as it says are listed, one more is searched", async () => {
    const tenant = await newTenant({ tools_offered_max: 2 });
    await tenant.addPlugin(readingTool(backEnd, "one"));
    llm.script(text("done"));
    await chat(tenant.client);
    expect(offered(0)).toEqual(["one", "read_result"]);
    await tenant.addPlugin(readingTool(backEnd, "two"));
    await chat(tenant.client);
    expect(offered(1)).toEqual(["read_result", "call_tool", "search_tools"]);
  });

  test("counts the client's tools as well where all together are more than back ends take", async () => {
    const tenant = await newTenant();
    for (const name of ["a", "b"]) await tenant.addPlugin(readingTool(backEnd, name));
    const tools = Array.from({ length: 126 }, (_none, at) => ({
      type: "function",
      function: { name: `own_${at}`, parameters: { type: "object", properties: {} } },
    }));
    const limited: Parameters<LlmStub["respond"]>[0] = (body) => {
      const given = (body["tools"] as Json[]).length;
      const message = `Invalid 'tools': array too long. Expected an array with maximum length 128, but got ${given} instead.`;
      return given > 128 ? { status: 400, json: { error: { message, param: "tools" } } } : text("ok");
    };
    llm.respond(limited);
    await chat(tenant.client, { tools: tools.slice(0, 125) });
    expect(offered(-1).slice(-3)).toEqual(["a", "b", "read_result"]);
    for (const name of ["c", "d"]) await tenant.addPlugin(readingTool(backEnd, name));
    await chat(tenant.client, { tools: tools.slice(0, 125) });
    expect(offered(-1).slice(-3)).toEqual(["read_result", "call_tool", "search_tools"]);
    llm.respond(() => text("others take more"));
    await chat(tenant.client, { tools });
    expect(offered(-1)).toEqual([...tools.map((tool) => tool.function.name), "a", "b", "c", "d", "read_result"]);
    llm.respond(limited);
    await tenant.client.expect("patch", "/v1/settings", { tools_offered_max: 200 });
    expect(
      (await tenant.client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: "x" }], tools }))
        .status,
    ).toBe(400);
    expect(offered(-1)).toHaveLength(131);
  });

  test("counts tokens as well", async () => {
    const tenant = await newTenant({ tool_tokens_max: 1_000 });
    await tenant.addPlugin({ ...readingTool(backEnd, "wordy"), description: "word ".repeat(1_000) });
    llm.script(text("done"));
    await chat(tenant.client);
    expect(offered()).toEqual(["read_result", "call_tool", "search_tools"]);
  });

  test("lets a write wait for approval, found or not", async () => {
    const tenant = await newTenant({ tools_offered_max: 1 });
    await tenant.addPlugin({ ...writingTool(backEnd, "order"), sensitive: true });
    llm.script(calls(callOf("order", { sku: "a" })), text("done"));
    const answer = await chat(tenant.client);
    const [pending] = answer.tool_execution.pending;
    expect(pending).toMatchObject({ tool: "order", reason: "approval" });
    expect(await tenant.client.get(`/v1/calls/${pending.call_id}`)).toMatchObject({
      tool: "order",
      effect: "write",
      state: "input_required",
    });
    expect(backEnd.requests).toEqual([]);
  });

  test("does not ask for credentials of tools that are not listed, only of the one called", async () => {
    const tenant = await newTenant({ tools_offered_max: 1 });
    await tenant.addPlugin({
      ...readingTool(backEnd, "locked"),
      auth_config: { type: "api_key", mapping: [{ source: "LOCK_KEY", target: "x-key", location: "header" }] },
    });
    llm.script(calls(callOf("locked", { q: "x" })), text("done"));
    await chat(tenant.client);
    expect(results()[0].error).toMatchObject({ code: "credential_missing" });
  });
});

/** What the models' own servers say of a function, and refuse the whole request with. */
function refusalOf(model: string, { name, parameters }: Json): string[] {
  if (!/^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/.test(name)) return [`${name}: Invalid function name.`];
  if (parameters.properties === undefined) return [`${name}: object schema missing properties.`];
  const all = partsOf(parameters);
  if (all.some((part) => [part.type].flat().includes("array") && part.items === undefined))
    return [`${name}: array schema missing items.`];
  const older = (part: Json): boolean =>
    Array.isArray(part.items) || typeof part.exclusiveMinimum === "boolean" || part.description === null;
  if (all.some(older)) return [`${name}: JSON schema is invalid. It must match JSON Schema draft 2020-12`];
  const isClaudes = (key: string): boolean => /^[a-zA-Z0-9_.-]{1,64}$/.test(key);
  return model === "claude" && !Object.keys(parameters.properties).every(isClaudes)
    ? [`${name}: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'`]
    : [];
}

function partsOf(schema: Json): Json[] {
  const { properties = {}, items } = schema;
  const below = [...Object.values(properties), ...(items === undefined ? [] : [items])];
  return [schema, ...below.flat().flatMap(partsOf)];
}

describe(`schemas for other families of models ${verifies("CHAT-4")}`, () => {
  test("are told as each family reads them; the call is checked against the whole", async () => {
    const tenant = await gateway.newTenant();
    await tenant.addProvider(llm.url, { models: { open: "stub-1", google: "gemini-stub" } });
    const parameters = {
      type: "object",
      properties: { const: { type: "string" }, level: { type: "integer", exclusiveMinimum: 3 } },
      required: ["level"],
    };
    await tenant.addPlugin({ ...readingTool(backEnd, "measure"), parameters });
    llm.script(calls({ name: "measure", arguments: { level: 3 } }), text("done"));
    await chat(tenant.client, { model: "google" });
    await chat(tenant.client, { model: "open" });
    const told = [0, 2].map((at): Json => request(at).tools[0].function.parameters);
    expect(told).toEqual([
      { type: "object", properties: { const: { type: "string" }, level: { type: "integer" } }, required: ["level"] },
      parameters,
    ]);
    expect(results(1)[0].error.code).toBe("invalid_arguments");
    const { data } = await tenant.client.get("/v1/tools");
    expect(data.find(({ name }: Json) => name === "measure")).toMatchObject({
      alias: "measure",
      tokens: expect.any(Number),
      warnings: [
        "gemini: 'exclusiveMinimum' is not told to the model",
        "plain: 'exclusiveMinimum' is not told to the model",
      ],
    });
  });

  test("follow the provider where it names a family, whatever its models are called, from the next request on", async () => {
    const tenant = await gateway.newTenant();
    const provider = await tenant.addProvider(llm.url, {
      models: { assistant: "deployment-7", google: "gemini-stub" },
      schema_family: "gemini",
    });
    const parameters = {
      type: "object",
      properties: { level: { type: "integer", exclusiveMinimum: 3 } },
      anyOf: [{ required: ["level"] }],
    };
    await tenant.addPlugin({ ...readingTool(backEnd, "measure"), parameters });
    const toldTo = async (model: string): Promise<Json> => {
      llm.script(text("done"));
      await chat(tenant.client, { model });
      return request(-1).tools[0].function.parameters;
    };
    const geminis = { type: "object", properties: { level: { type: "integer" } } };
    // GPT models, too, refuse alternatives at the top.
    const others = { type: "object", properties: parameters.properties };
    expect(await toldTo("assistant")).toEqual(geminis);
    const choose = (schema_family: string | null): Promise<Json> =>
      tenant.client.expect("patch", `/v1/providers/${provider}`, { schema_family });
    expect(await choose("openai")).toMatchObject({ schema_family: "openai" });
    expect(await toldTo("google")).toEqual(others);
    await choose("anthropic-compatible");
    expect(await toldTo("assistant")).toEqual(others);
    await choose("plain");
    expect(await toldTo("google")).toEqual(geminis);
    await choose(null);
    expect([await toldTo("assistant"), await toldTo("google")]).toEqual([others, geminis]);
  });

  test("are told so that no back end refuses a request for them, whatever a definition or a server of MCP leaves out", async () => {
    const tenant = await gateway.newTenant();
    await tenant.addProvider(llm.url, { models: { gpt: "gpt-5", claude: "claude-opus-5", google: "gemini-stub" } });
    const schemas: Readonly<Record<string, Json>> = {
      bare: { type: "object" },
      lists: { type: "object", properties: { tags: { type: "array" }, more: { type: ["array", "null"] } } },
      older: {
        $schema: "http://json-schema.org/draft-07/schema#",
        type: "object",
        properties: {
          pair: { type: "array", items: [{ type: "string" }, { type: "integer" }], additionalItems: false },
          count: { type: "integer", minimum: 0, exclusiveMinimum: true },
          note: { type: "string", description: null },
        },
      },
      "1c_names": {
        type: "object",
        properties: { 城市: { type: "string" }, "filter[id]": { type: "array" }, $top: { type: "integer" } },
        required: ["城市"],
      },
    };
    for (const [name, parameters] of Object.entries(schemas)) {
      await tenant.addPlugin({ ...writingTool(backEnd, name), parameters });
    }
    const mcp = await startMcpStub({
      tools: Object.entries(schemas).map(([name, inputSchema]) => anyTool(name, { inputSchema })),
    });
    await tenant.client.post("/v1/tool-services", {
      scheme: "mcp",
      service_id: "foreign",
      config: { transport: "http", url: mcp.url },
    });
    const args = { 城市: "北京", "filter[id]": [7], $top: 1 };
    for (const model of ["gpt", "claude", "google"]) {
      backEnd.requests.length = 0;
      llm.respond(({ tools, messages }) => {
        const told = tools as Json[];
        const refusal = told.flatMap((tool) => refusalOf(model, tool.function))[0];
        if (refusal !== undefined) return { status: 400, json: { error: { message: refusal } } };
        const name = told.map((tool): string => tool.function.name).find((each) => each.startsWith("_1c_names_"));
        return (messages as Json[]).length > 1 ? text("done") : calls({ name: name ?? "", arguments: args });
      });
      expect((await chat(tenant.client, { model })).tool_execution.tools_called).toEqual(["1c_names"]);
      expect(backEnd.requests.map(({ target, body }) => [target, JSON.parse(body.toString())])).toEqual([
        ["/1c_names", args],
      ]);
      const names = offered(-1).filter((name) => name !== "read_result");
      expect(names).toHaveLength(8);
    }
    await mcp.close();
  });

  test("have names that whoever runs the calls of a model can use as the model does", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin(readingTool(backEnd, "2fa_check"));
    llm.respond(({ tools }) => calls({ name: (tools as Json[])[0].function.name, arguments: { q: "x" } }));
    const asked = await chat(tenant.client, { tool_execution: "manual" });
    const { name } = asked.choices[0].message.tool_calls[0].function;
    expect(name).toMatch(/^_2fa_check_[0-9a-f]{12}$/);
    const call = await tenant.client.post("/v1/tools/invoke", { name, arguments: { q: "x" } });
    expect([call.tool, backEnd.requests[0]?.target]).toEqual(["2fa_check", "/2fa_check?q=x"]);
    const { client } = await tenant.newKey({ tools: ["other"] });
    expect((await client.send("post", "/v1/tools/invoke", { name, arguments: { q: "x" } })).status).toBe(404);
    const mine = [
      { type: "function", function: { name: "2fa_check", parameters: { type: "object", properties: {} } } },
    ];
    llm.script(text("done"));
    await chat(tenant.client, { tools: mine });
    expect(offered(-1)).toEqual(["2fa_check"]);
    const tool_choice = { type: "function", function: { name: "2fa_check" } };
    await chat(tenant.client, { tools: mine, session_id: "s1", tool_choice });
    expect([offered(-1).filter((each) => each.includes("2fa")), request(-1).tool_choice.function.name]).toEqual([
      [name],
      name,
    ]);
  });

  test("are told of arguments by names that Claude takes, and the back end gets their own", async () => {
    const tenant = await gateway.newTenant();
    await tenant.addProvider(llm.url, { models: { "claude-x": "claude-x" } });
    const properties = { 关键词: { type: "string" }, page: { type: "integer" } };
    const parameters = { type: "object", properties, required: ["关键词"], additionalProperties: false };
    await tenant.addPlugin({ ...readingTool(backEnd, "search_company"), parameters });
    llm.script(text("done"));
    await chat(tenant.client, { model: "claude-x" });
    const told = request(-1).tools[0].function.parameters;
    const [alias = ""] = Object.keys(told.properties);
    expect(alias).toMatch(/^[a-zA-Z0-9_.-]{1,64}$/);
    expect(told.required).toEqual([alias]);
    llm.script(calls({ name: "search_company", arguments: { [alias]: "字节", page: 2 } }), text("found"));
    backEnd.requests.length = 0;
    await chat(tenant.client, { model: "claude-x" });
    const sent = new URL(backEnd.requests[0]?.target ?? "", "http://back.end").searchParams;
    expect(Object.fromEntries(sent)).toEqual({ 关键词: "字节", page: "2" });
  });

  test("are refused where there is no such family, naming those that there are", async () => {
    const tenant = await gateway.newTenant();
    const id = await tenant.addProvider(llm.url);
    expect(await tenant.client.get(`/v1/providers/${id}`)).toMatchObject({ schema_family: null });
    const reply = await tenant.client.send("patch", `/v1/providers/${id}`, { schema_family: "claude" });
    expect([reply.status, reply.json.error.param]).toEqual([400, "schema_family"]);
    for (const family of ["openai", "gemini", "anthropic-compatible", "plain"]) {
      expect(reply.json.error.message).toContain(family);
    }
  });
});
