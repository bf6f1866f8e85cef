/** More tools than a model should be told of: it searches them, and calls what it has found (CHAT-4). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
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
