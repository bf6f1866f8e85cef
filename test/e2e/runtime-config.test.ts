/** Plugins and credentials that come with the request (BLIND-7): who may send them, what they can do, what is left of them. */
import { randomBytes } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";
import { filesBelow, findSecrets } from "../support/written-secrets.ts";

let gateway: Gateway;
let other: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  other = await startGateway({ sharedWith: gateway });
});

afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});

const messages = [{ role: "user", content: "go" }];

const withDefaults = (definition: Json): Json => ({
  schema_version: "v1",
  description: "Looks things up.",
  ...definition,
});
const lookup = (change: Json = {}): Json => withDefaults({ ...readingTool(backEnd), ...change });
const config = (...plugins: readonly Json[]): Json => ({
  runtime_config: { plugins, credentials: { KEY: "inline-value-1" } },
});
const keyed = { auth_config: { type: "bearer", mapping: [{ source: "KEY" }] } };

/** A member's key that may send configurations. */
async function trustedKey(change: Json): Promise<{ readonly client: Client }> {
  return tenant.newKey({ scopes: ["chat", "tools", "runtime_config"], ...change });
}

function chat(client: Client, body: Json, path = "/v1/chat/completions"): Promise<Reply> {
  return client.send("post", path, { messages, ...body });
}

function invoke(client: Client, body: Json): Promise<Reply> {
  return client.send("post", "/v1/tools/invoke", { name: "lookup", arguments: { q: "x" }, ...body });
}

/** Names of the tools that the model was told of first. */
function offered(): string[] {
  const tools = (llm.requests[0]?.["tools"] ?? []) as Json[];
  return tools.map((tool) => tool.function.name);
}

function toldToModel(): string[] {
  const sent = (llm.requests.at(-1)?.["messages"] ?? []) as Json[];
  return sent.filter(({ role }) => role === "tool").map(({ content }) => content);
}

async function ended(id: string): Promise<Json> {
  const read = (): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
  await expect.poll(async () => (await read()).state, { timeout: 10_000 }).not.toMatch(/queued|running/);
  return read();
}

describe(`a configuration sent with the request ${verifies("BLIND-7")}`, () => {
  test("serves a chat: the model is offered the plugin, the back end gets the credential, nobody else has either", async () => {
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("found"));
    const reply = await chat(tenant.client, config(lookup(keyed)));
    expect(reply.json).toMatchObject({
      choices: [{ message: { content: "found" } }],
      tool_execution: { executed: true, tools_called: ["lookup"] },
    });
    expect(offered()).toContain("lookup");
    expect(toldToModel()).toEqual(['{"ok":true}']);
    expect(backEnd.requests.map(({ target, headers }) => [target, headers.authorization])).toEqual([
      ["/lookup?q=x", "Bearer inline-value-1"],
    ]);
    expect(JSON.stringify(llm.requests)).not.toMatch(/runtime_config|inline-value|base_url|auth_config/);
    expect((await invoke(tenant.client, {})).status).toBe(404);
    llm.script(text("ok"));
    await chat(tenant.client, {});
    expect(llm.requests.at(-1)?.["tools"]).toBeUndefined();
  });

  test("serves a stream and the typed stream alike", async () => {
    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      llm.script(calls({ name: "lookup", arguments: { q: path } }), text("found"));
      const reply = await chat(tenant.client, { ...config(lookup(keyed)), stream: true }, path);
      expect(reply.text).toContain("found");
      expect(sseEvents(reply.text).at(-1)).toBe("[DONE]");
    }
    expect(backEnd.requests).toHaveLength(2);
  });

  test("serves a direct call, by name and by URI", async () => {
    for (const target of [{ name: "lookup" }, { name: undefined, uri: "plugin://lookup" }]) {
      const reply = await invoke(tenant.client, { ...target, ...config(lookup(keyed)) });
      expect([reply.status, reply.json.content]).toEqual([200, '{"ok":true}']);
    }
    expect(backEnd.requests.map(({ headers }) => headers.authorization)).toEqual(
      Array(2).fill("Bearer inline-value-1"),
    );
  });

  test("serves a run of a flow: its tools, its models, and the flows within it", async () => {
    await tenant.addProvider(`${backEnd.url}/model`, { credential: "MODEL_KEY", models: { "own-1": "own-1" } });
    const look = { kind: "tool", name: "lookup", arguments: { q: { $: "input.q" } } };
    await publishFlow(tenant, { name: "inner", start: "look", nodes: { look } });
    await publishFlow(tenant, {
      name: "outer",
      start: "look",
      nodes: {
        look: { ...look, next: "rest" },
        // Longer than a run usually waits where it is.
        rest: { kind: "wait", duration_ms: 1_200, next: "say" },
        say: { kind: "model", model: "own-1", messages: [{ role: "user", content: "go" }], next: "sub" },
        sub: { kind: "flow", name: "inner", input: { q: "within" }, next: "end" },
        end: { kind: "end", output: { $: "steps.say.output.text" } },
      },
    });
    const message = { role: "assistant", content: "said" };
    const said = {
      id: "c",
      object: "chat.completion",
      created: 1,
      choices: [{ index: 0, message, finish_reason: "stop" }],
    };
    const headers = { "content-type": "application/json" };
    backEnd.answer = ({ target }) => ({
      headers,
      body: target.startsWith("/model") ? JSON.stringify(said) : '{"ok":true}',
    });
    const brought = config(lookup(keyed));
    brought.runtime_config.credentials.MODEL_KEY = "inline-model-key-1";
    const run = { workflow_id: "outer", input: { q: "first" } };
    const { client } = await trustedKey({});
    const whole = await client.send("post", "/v1/run_workflow", { ...run, ...brought, stream: false });
    expect([whole.status, whole.json.state, whole.json.output], whole.text).toEqual([200, "completed", "said"]);
    const streamed = await client.send("post", "/v1/run_workflow", { ...run, ...brought });
    expect(streamed.text).toContain("event: done");
    const once = [
      ["/lookup?q=first", "Bearer inline-value-1"],
      ["/model/chat/completions", "Bearer inline-model-key-1"],
      ["/lookup?q=within", "Bearer inline-value-1"],
    ];
    expect(backEnd.requests.map(({ target, headers: sent }) => [target, sent.authorization])).toEqual([
      ...once,
      ...once,
    ]);
    const without = await client.send("post", "/v1/run_workflow", { ...run, stream: false });
    expect(without.json).toMatchObject({
      state: "failed",
      steps: [{ path: "look", error: { code: "tool_not_found" } }],
    });
  });

  test(`serves the agents of a run, the rules of each as ever ${verifies("FLOWRUN-1")}`, async () => {
    const look = calls({ name: "lookup", arguments: { q: "by agent" } });
    await tenant.client.post("/v1/agents", {
      name: "finder",
      model: "stub-1",
      instructions: "Find.",
      tools: ["lookup"],
    });
    await tenant.client.post("/v1/agents", { name: "talker", model: "stub-1", instructions: "Talk.", tools: [] });
    await publishFlow(tenant, {
      name: "asks_agents",
      start: "find",
      nodes: {
        find: { kind: "agent", agent: "finder", prompt: "Find it.", next: "talk" },
        talk: { kind: "agent", agent: "talker", prompt: "Say it.", next: "end" },
        end: { kind: "end" },
      },
    });
    llm.script(look, text("found"), text("hello"));
    const { client } = await trustedKey({});
    const run = { workflow_id: "asks_agents", stream: false };
    const answer = await client.send("post", "/v1/run_workflow", { ...run, ...config(lookup(keyed)) });
    expect([answer.status, answer.json.state], answer.text).toEqual([200, "completed"]);
    expect(backEnd.requests.map(({ target, headers }) => [target, headers.authorization])).toEqual([
      ["/lookup?q=by%20agent", "Bearer inline-value-1"],
    ]);
    const tools = llm.requests.map(({ tools: told = [] }) => (told as Json[]).map((tool) => tool.function.name));
    expect(tools).toEqual([["lookup", "read_result"], ["lookup", "read_result"], []]);
    expect(JSON.stringify(llm.requests)).not.toMatch(/runtime_config|inline-value/);
  });

  test("is refused for a run of a flow where nothing is known of it, or the key may not", async () => {
    await publishFlow(tenant, { name: "idle", start: "end", nodes: { end: { kind: "end" } } });
    const run = (change: Json, client = tenant.client): Promise<Reply> =>
      client.send("post", "/v1/run_workflow", { workflow_id: "idle", stream: false, ...change });
    const strange = await run({ runtime_config: { plugins: [], models: {} } });
    expect([strange.status, strange.json.error.code]).toEqual([400, "invalid_definition"]);
    expect(strange.json.error.message).toContain("runtime_config.models");
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    expect((await run(config(), client)).json.error).toMatchObject({
      code: "permission_denied",
      param: "runtime_config",
    });
    expect((await run({ ...config(), wait: false })).json.error).toMatchObject({
      code: "runtime_config_required",
      param: "wait",
    });
    expect((await run(config())).json).toMatchObject({ state: "completed" });
  });

  test("does not outlast the request of its run: what waits for others fails, and says why", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    await publishFlow(tenant, {
      name: "asks",
      start: "order",
      nodes: {
        order: { kind: "tool", name: "create_order", arguments: { sku: "1" }, next: "sure" },
        sure: { kind: "approval", message: "Go on?" },
      },
    });
    const { json } = await tenant.client.send("post", "/v1/run_workflow", {
      workflow_id: "asks",
      stream: false,
      ...config(),
    });
    expect(json).toMatchObject({
      state: "failed",
      error: { code: "flow_failed", failure: { path: "sure", code: "runtime_config_required" } },
    });
    expect(json.error.message).toContain("never stored");
    expect(backEnd.requests).toHaveLength(1);
    // Nobody is asked any more.
    expect((await tenant.client.get("/v1/calls?state=input_required")).data).toEqual([]);
  });

  test("goes with its run where that is cancelled, which ends as such", async () => {
    const cancelled = Promise.withResolvers<void>();
    // So its answer, and not the lease, is where the run learns of it.
    backEnd.answer = async () => {
      await cancelled.promise;
      return { body: "{}" };
    };
    const look = { kind: "tool", name: "lookup", arguments: { q: "x" } };
    await publishFlow(tenant, {
      name: "slow",
      start: "look",
      nodes: { look: { ...look, next: "again" }, again: look },
    });
    const answer = tenant.client.send("post", "/v1/run_workflow", {
      workflow_id: "slow",
      stream: false,
      ...config(lookup()),
    });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    const [run] = (await tenant.client.get("/v1/runs?flow=slow")).data as Json[];
    await tenant.client.post(`/v1/runs/${run.id}/cancel`);
    cancelled.resolve();
    expect((await answer).json).toMatchObject({ state: "cancelled", error: { code: "call_cancelled" } });
    expect(backEnd.requests).toHaveLength(1);
  });

  test("is not begun for later by a flow that does not wait for another: the step fails, and nothing runs", async () => {
    const look = { kind: "tool", name: "lookup", arguments: { q: "later" } };
    await publishFlow(tenant, { name: "later", start: "look", nodes: { look } });
    const start = { kind: "flow", name: "later", async: true };
    await publishFlow(tenant, { name: "starts", start: "start", nodes: { start } });
    const { json } = await tenant.client.send("post", "/v1/run_workflow", {
      workflow_id: "starts",
      stream: false,
      ...config(lookup()),
    });
    expect(json).toMatchObject({
      state: "failed",
      error: { failure: { path: "start", code: "runtime_config_required" } },
    });
    expect((await tenant.client.get("/v1/runs?flow=later")).data).toEqual([]);
  });

  test("comes before what is stored: plugin before plugin, value before the tenant's and the user's", async () => {
    await tenant.addPlugin(readingTool(backEnd, "lookup", { base_url: `${backEnd.url}/stored` }));
    await tenant.addPlugin({ ...readingTool(backEnd, "kept"), ...keyed });
    await tenant.putCredential("KEY", "tenant-value-1");
    await tenant.putCredential("KEY", "user-value-1", "ann");
    const { client: ann } = await tenant.newKey({ user_id: "ann", scopes: ["tools", "chat"] });
    const trusted = (await trustedKey({ user_id: "ann" })).client;
    await invoke(trusted, config(lookup(keyed)));
    // A stored plugin takes the values that are sent, too.
    await invoke(trusted, { name: "kept", ...config() });
    await invoke(ann, { name: "kept" });
    await invoke(tenant.client, { name: "kept" });
    await invoke(tenant.client, {});
    expect(backEnd.requests.map(({ target, headers }) => [target, headers.authorization])).toEqual([
      ["/lookup?q=x", "Bearer inline-value-1"],
      ["/kept?q=x", "Bearer inline-value-1"],
      ["/kept?q=x", "Bearer user-value-1"],
      ["/kept?q=x", "Bearer tenant-value-1"],
      ["/stored?q=x", undefined],
    ]);
    llm.script(calls({ name: "lookup", arguments: { q: "chat" } }), text("ok"));
    await chat(trusted, config(lookup(keyed)));
    expect(offered().filter((name) => name === "lookup")).toHaveLength(1);
    expect(backEnd.requests.at(-1)).toMatchObject({ target: "/lookup?q=chat" });
  });

  test("gives no more than the key may use: its bound tools and its role hold for these plugins as well", async () => {
    const bound = (await trustedKey({ tools: ["crm_*"] })).client;
    const crm = lookup({ name: "crm_list" });
    expect((await invoke(bound, config(lookup(), crm))).status).toBe(404);
    expect((await invoke(bound, { name: "crm_list", ...config(lookup(), crm) })).status).toBe(200);
    expect((await invoke(bound, { name: "crm_list", ...config({ ...crm, roles: ["admin"] }) })).status).toBe(404);
    llm.script(text("ok"));
    await chat(bound, config(lookup(), crm));
    expect(offered()).toEqual(["crm_list"]);
  });

  test("needs a scope of its own, which 'manage' does not bring", async () => {
    const { client: manager } = await tenant.newKey({ role: "admin", scopes: ["chat", "tools", "manage"] });
    const body = config(lookup());
    for (const reply of [
      await chat(manager, body),
      await chat(manager, { ...body, stream: true }, "/api/chat/completions"),
      await invoke(manager, body),
      await invoke(manager, { ...body, async: true }),
      // Not even a wrong one is looked at.
      await invoke(manager, { runtime_config: "nonsense" }),
    ]) {
      expect([reply.status, reply.json.error.code, reply.json.error.param]).toEqual([
        403,
        "permission_denied",
        "runtime_config",
      ]);
    }
    expect([llm.requests.length, backEnd.requests.length]).toEqual([0, 0]);
    expect((await chat(manager, { runtime_config: null })).status).toBe(200);
  });

  test("that lacks a credential is refused before the model is asked, naming the key", async () => {
    const missing = { auth_config: { type: "bearer", mapping: [{ source: "OTHER_KEY" }] } };
    const reply = await chat(tenant.client, config(lookup(missing)));
    expect(reply).toMatchObject({ status: 400, json: { error: { code: "credential_missing", param: "OTHER_KEY" } } });
    expect(await invoke(tenant.client, config(lookup(missing)))).toMatchObject({
      status: 400,
      json: { error: { code: "credential_missing", param: "OTHER_KEY", tool_name: "lookup" } },
    });
    expect(reply.json.error.message).toContain("send it in 'runtime_config.credentials'");
    expect(llm.requests).toHaveLength(0);
  });

  test.each(["", " \t"])(
    "that leaves a credential empty (%j) lacks it, whatever is stored under its name",
    async (KEY) => {
      await tenant.putCredential("KEY", "of-the-tenant");
      const body = { runtime_config: { plugins: [lookup(keyed)], credentials: { KEY, UNUSED: "" } } };
      for (const reply of [await chat(tenant.client, body), await invoke(tenant.client, body)]) {
        expect(reply).toMatchObject({ status: 400, json: { error: { code: "credential_missing", param: "KEY" } } });
        expect(reply.json.error.message).toContain("is empty; give it a value in 'runtime_config.credentials'");
      }
      expect([llm.requests.length, backEnd.requests.length]).toEqual([0, 0]);
      const used = { runtime_config: { plugins: [lookup(keyed)], credentials: { UNUSED: "" } } };
      expect((await invoke(tenant.client, used)).status).toBe(200);
    },
  );

  test.each(["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\u0000b"])(
    `with the value %j sends nothing and names the key ${verifies("BLIND-10")}`,
    async (value) => {
      const body = { runtime_config: { plugins: [lookup(keyed)], credentials: { KEY: value } } };
      expect(await invoke(tenant.client, body)).toMatchObject({
        status: 400,
        json: { error: { code: "credential_invalid", param: "KEY" } },
      });
      llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("sorry"));
      await chat(tenant.client, body);
      expect(JSON.parse(toldToModel()[0] ?? "").error).toMatchObject({ code: "credential_invalid" });
      expect(backEnd.requests).toHaveLength(0);
    },
  );
});

test(`A value of blanks is none: nothing is sent in its name, by a tool or by a service ${verifies("BLIND-5", "BLIND-10")}`, async () => {
  await tenant.client.post("/v1/tool-services", {
    scheme: "api",
    service_id: "stored",
    config: {
      base_url: backEnd.url,
      auth_type: "bearer",
      auth_config: { token: { credential: "KEY" } },
      tools: { read: { method: "GET", endpoint: "/read", description: "Reads." } },
    },
  });
  for (const KEY of ["", "   ", "\t"]) {
    const body = { runtime_config: { plugins: [lookup(keyed)], credentials: { KEY } } };
    const replies = [
      await invoke(tenant.client, body),
      await invoke(tenant.client, { ...body, name: "api_stored__read" }),
    ];
    for (const reply of replies) expect(reply.json.error).toMatchObject({ code: "credential_missing", param: "KEY" });
  }
  expect(backEnd.requests).toHaveLength(0);
});

describe(`a configuration with a mistake ${verifies("BLIND-7", "BLIND-10")}`, () => {
  const execution = (change: Json): Json => ({ execution: { ...lookup().execution, ...change } });
  const cases: readonly (readonly [what: string, make: () => Json, param: string])[] = [
    ["no object", () => "text", "runtime_config"],
    ["an unknown field", () => ({ plugin: [] }), "runtime_config.plugin"],
    ["plugins that are no list", () => ({ plugins: {} }), "runtime_config.plugins"],
    ["a value that is no text", () => ({ credentials: { KEY: 1 } }), "runtime_config.credentials.KEY"],
    [
      "an unknown version",
      () => ({ plugins: [lookup({ schema_version: "v2" })] }),
      "runtime_config.plugins[0].schema_version",
    ],
    ["a missing name", () => ({ plugins: [lookup(), lookup({ name: undefined })] }), "runtime_config.plugins[1].name"],
    ["a name twice", () => ({ plugins: [lookup(), lookup()] }), "runtime_config.plugins[1].name"],
    [
      "a URL that is none",
      () => ({ plugins: [lookup(execution({ base_url: "ftp://x" }))] }),
      "runtime_config.plugins[0].execution.base_url",
    ],
    [
      "a place that nothing fills",
      () => ({ plugins: [lookup(execution({ base_url: `${backEnd.url}/{id}` }))] }),
      "runtime_config.plugins[0].execution.base_url",
    ],
    [
      "an address that may not be reached",
      () => ({ plugins: [lookup(execution({ base_url: "http://169.254.169.254/x" }))] }),
      "runtime_config.plugins[0].execution.base_url",
    ],
    [
      "parameters that are no object",
      () => ({ plugins: [lookup({ parameters: { type: "array" } })] }),
      "runtime_config.plugins[0].parameters.type",
    ],
    [
      "an argument in the place of a credential",
      () => ({
        plugins: [
          lookup({ auth_config: { type: "api_key", mapping: [{ source: "K", target: "q", location: "query" }] } }),
        ],
      }),
      "runtime_config.plugins[0].auth_config.mapping[0].target",
    ],
  ];

  test.each(cases)(
    "%s is refused by the name of the field, in chats, calls and explanations",
    async (what, make, param) => {
      const runtime_config = make();
      const explained = { name: "lookup", arguments: { q: "x" }, runtime_config };
      const replies = [
        await chat(tenant.client, { runtime_config }),
        await chat(tenant.client, { runtime_config, stream: true }, "/api/chat/completions"),
        await invoke(tenant.client, { runtime_config }),
        await tenant.client.send("post", "/v1/tools/explain", explained),
      ];
      const refusal = what.startsWith("an address")
        ? [403, "egress_denied", param]
        : [400, "invalid_definition", param];
      expect(replies.map(({ status, json }) => [status, json.error.code, json.error.param])).toEqual(
        Array(4).fill(refusal),
      );
      expect([llm.requests.length, backEnd.requests.length]).toEqual([0, 0]);
    },
  );
});

describe(`what goes on after its request ${verifies("BLIND-7")}`, () => {
  const clientTool = {
    type: "function",
    function: { name: "ask_user", description: "asks", parameters: { type: "object", properties: {} } },
  };
  const required = [409, "runtime_config_required", "runtime_config"];
  const refusal = ({ status, json }: Reply): unknown[] => [status, json.error.code, json.error.param];

  test("a turn that was mixed needs the configuration again, on any instance", async () => {
    llm.script(
      calls({ name: "lookup", arguments: { q: "x" } }, { name: "ask_user", arguments: {} }),
      text("both used"),
    );
    const first = await chat(tenant.client, { ...config(lookup(keyed)), tools: [clientTool] });
    const [{ message }] = first.json.choices;
    const answered = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "yes" };
    const next = { messages: [...messages, message, answered], tools: [clientTool] };
    for (const body of [next, { ...next, stream: true }, { ...next, runtime_config: null }]) {
      expect(refusal(await chat(other.client(tenant.key), body))).toEqual(required);
    }
    expect(llm.requests).toHaveLength(1);
    const second = await chat(other.client(tenant.key), { ...next, ...config(lookup(keyed)) });
    expect(second.json.choices[0].message.content).toBe("both used");
    expect(toldToModel()).toEqual(['{"ok":true}', "yes"]);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("a call that would run later is refused, in every spelling, and leaves nothing behind to run", async () => {
    const slow = lookup({ execution: { ...lookup().execution, timeout_ms: 700_000 } });
    for (const reply of [
      await invoke(tenant.client, { ...config(lookup()), async: true }),
      await invoke(tenant.client, { name: undefined, uri: "plugin://lookup?async=true", ...config(lookup()) }),
      await invoke(tenant.client, config(slow)),
    ]) {
      expect(refusal(reply)).toEqual(required);
    }
    await gateway.tick();
    expect(backEnd.requests).toHaveLength(0);
    expect((await tenant.client.get("/v1/calls?state=queued")).data).toEqual([]);
  });

  test("a call that waits for approval runs when it is approved with the configuration, and not without", async () => {
    const pay = withDefaults({ ...writingTool(backEnd, "pay"), sensitive: true, ...keyed });
    const session = newId("session");
    llm.script(calls({ name: "pay", arguments: { sku: "S1" } }), text("never"));
    const waiting = await chat(tenant.client, { ...config(pay), session_id: session });
    const [pending] = waiting.json.tool_execution.pending;
    expect(pending).toMatchObject({ tool: "pay", reason: "approval" });
    const approve = (client: Client, body: Json): Promise<Reply> =>
      client.send("post", `/v1/calls/${pending.call_id}/approve`, body);
    expect(refusal(await approve(tenant.client, {}))).toEqual(required);
    expect(await tenant.client.get(`/v1/calls/${pending.call_id}`)).toMatchObject({
      state: "input_required",
      approval: null,
    });
    const { client: approver } = await tenant.newKey({ scopes: ["approve", "calls"] });
    expect(refusal(await approve(approver, config(pay)))).toEqual([403, "permission_denied", "runtime_config"]);
    expect(refusal(await approve(tenant.client, { runtime_config: { plugins: [{}] } }))[1]).toBe("invalid_definition");
    expect(backEnd.requests).toHaveLength(0);
    const approved = await approve(other.client(tenant.key), { ...config(pay), reason: "checked" });
    expect(approved.json).toMatchObject({ state: "completed", approval: { decision: "approved", reason: "checked" } });
    expect(backEnd.requests.map(({ headers, body }) => [headers.authorization, body.toString()])).toEqual([
      ["Bearer inline-value-1", '{"sku":"S1"}'],
    ]);
    expect((await approve(tenant.client, {})).json).toMatchObject({ state: "completed" });
    expect(backEnd.requests).toHaveLength(1);
    llm.script(text("paid"));
    await chat(tenant.client, { session_id: session });
    expect(toldToModel()).toEqual(['{"ok":true}']);
  });

  test("a direct call that waits is approved alike; another definition under its name is not run", async () => {
    const pay = withDefaults({ ...writingTool(backEnd, "pay"), sensitive: true });
    const ask = async (): Promise<string> => {
      const reply = await invoke(tenant.client, { name: "pay", arguments: { sku: "S1" }, ...config(pay) });
      expect([reply.status, reply.json.status]).toEqual([202, "input_required"]);
      return reply.json.id;
    };
    const changed = { ...pay, description: "Does something else." };
    const refused = await tenant.client.post(`/v1/calls/${await ask()}/approve`, config(changed));
    expect(refused).toMatchObject({ state: "failed", error: { code: "conflict" } });
    const gone = await tenant.client.post(`/v1/calls/${await ask()}/approve`, config());
    expect(gone).toMatchObject({ state: "failed", error: { code: "tool_not_found" } });
    expect(backEnd.requests).toHaveLength(0);
    const rejected = await tenant.client.post(`/v1/calls/${await ask()}/reject`);
    expect(rejected).toMatchObject({ state: "rejected" });
    expect(await tenant.client.post(`/v1/calls/${await ask()}/approve`, config(pay))).toMatchObject({
      state: "completed",
    });
    expect(backEnd.requests).toHaveLength(1);
  });

  test("a call that came without one is approved without one: it would run with what is stored", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd, "pay"), sensitive: true });
    const { json } = await invoke(tenant.client, { name: "pay", arguments: { sku: "S1" } });
    const path = `/v1/calls/${json.id}/approve`;
    const other = withDefaults({ ...writingTool(backEnd, "pay"), sensitive: true, ...keyed });
    const refused = refusal(await tenant.client.send("post", path, config(other)));
    expect(refused).toEqual([400, "invalid_request", "runtime_config"]);
    expect((await tenant.client.get(`/v1/calls/${json.id}`)).state).toBe("input_required");
    await tenant.client.post(path, { runtime_config: null });
    expect((await ended(json.id)).state).toBe("completed");
  });

  test("an approved call whose process died before it ran ends as what it is, and is never run blindly", async () => {
    const pay = withDefaults({ ...writingTool(backEnd, "pay"), sensitive: true });
    const { json } = await invoke(tenant.client, { name: "pay", arguments: { sku: "S1" }, ...config(pay) });
    await gateway.core.repos.calls.decide(tenant.id, json.id, { by: "key_x", decision: "approved" });
    await gateway.core.queue.send("short", [{ tenant: tenant.id, callId: json.id }]);
    expect(await ended(json.id)).toMatchObject({ state: "failed", error: { code: "runtime_config_required" } });
    expect(backEnd.requests).toHaveLength(0);
  });

  test("a finished call is not replayed without it", async () => {
    const { json } = await invoke(tenant.client, config(lookup()));
    const reply = await tenant.client.send("post", `/v1/calls/${json.id}/replay`, {});
    expect([reply.status, reply.json.error.code]).toEqual([409, "runtime_config_required"]);
  });

  test("nor is a run, not even from a step behind what it was for", async () => {
    const look = { kind: "tool", name: "lookup", arguments: { q: "x" }, next: "end" };
    await publishFlow(tenant, { name: "looks", start: "look", nodes: { look, end: { kind: "end" } } });
    const run = { workflow_id: "looks", stream: false, ...config(lookup()) };
    const { json } = await tenant.client.send("post", "/v1/run_workflow", run);
    expect(json.state).toBe("completed");
    for (const body of [{}, { from: "end" }]) {
      const reply = await tenant.client.send("post", `/v1/runs/${json.id}/replay`, body);
      expect([reply.status, reply.json.error.code]).toEqual([409, "runtime_config_required"]);
    }
  });
});

describe(`what is left of it ${verifies("BLIND-7", "BLIND-6")}`, () => {
  test("is nothing: no file, no blob and no log line holds a piece of it, whatever became of the request", async () => {
    const mark = (): string => `S${randomBytes(12).toString("hex")}`;
    const [value, keyName, description, header] = [mark(), mark(), mark(), mark()];
    const [parameter, choice, path, unused] = [mark(), mark(), mark(), mark()];
    const plugin = (name: string, change: Json = {}): Json => ({
      schema_version: "v1",
      name,
      description,
      parameters: {
        type: "object",
        properties: { q: { type: "string" }, [parameter]: { type: "string", enum: [choice] } },
        required: ["q"],
      },
      execution: {
        method: "POST",
        base_url: `${backEnd.url}/${path}`,
        content_type: "application/json",
        param_placement: "body",
        headers: { [header]: "1" },
      },
      auth_config: { type: "api_key", mapping: [{ source: keyName, target: "X-Key" }] },
      ...change,
    });
    const body = (...more: readonly Json[]): Json => ({
      runtime_config: { plugins: [plugin("lookup"), plugin(unused), ...more], credentials: { [keyName]: value } },
    });
    const session = newId("session");
    const call = { name: "lookup", arguments: { q: "x" } };
    backEnd.answer = () => ({ body: JSON.stringify({ echo: value }) });
    // Completed, by a model and directly.
    llm.script(calls(call), text("done"));
    const keyHeader = { headers: { "idempotency-key": "inline-1" } };
    await tenant.client.send("post", "/v1/chat/completions", { messages, session_id: session, ...body() }, keyHeader);
    await invoke(tenant.client, body());
    // Refused: arguments, credentials, definition, address, replay of the key.
    llm.script(calls({ name: "lookup", arguments: { q: 1, [parameter]: "other" } }), text("done"));
    await chat(tenant.client, body());
    await invoke(tenant.client, { arguments: { q: 1 }, ...body() });
    await invoke(tenant.client, { runtime_config: { plugins: [plugin("lookup")], credentials: {} } });
    await chat(tenant.client, { runtime_config: { plugins: [plugin("lookup")], credentials: {} } });
    await invoke(tenant.client, {
      runtime_config: { plugins: [plugin("lookup")], credentials: { [keyName]: `${value}\n` } },
    });
    await chat(
      tenant.client,
      body(plugin("again", { execution: { ...plugin("x").execution, base_url: `http://${path}.internal/` } })),
    );
    await chat(tenant.client, body(plugin("lookup")));
    // Failed: the back end's error echoes the credential, the model's quotes a definition, and a back end that is away.
    backEnd.answer = () => ({ status: 400, body: `bad key ${value}` });
    llm.script(calls(call), text("done"));
    await chat(tenant.client, { ...body(), on_tool_error: "fail" });
    await invoke(tenant.client, body());
    llm.script({ json: { error: { message: `A tool is not taken: ${description}` } }, status: 400 });
    await chat(tenant.client, body());
    const away = plugin("away", { execution: { ...plugin("x").execution, base_url: `http://${path}.invalid/x` } });
    await invoke(tenant.client, { name: "away", ...body(away) });
    // Waiting, mixed, later.
    backEnd.answer = () => ({ body: "{}" });
    const waiting = await invoke(tenant.client, { name: "waits", ...body(plugin("waits", { sensitive: true })) });
    expect(waiting.status).toBe(202);
    const clientTool = {
      type: "function",
      function: { name: "ask_user", parameters: { type: "object", properties: {} } },
    };
    llm.script(calls(call, { name: "ask_user", arguments: {} }));
    expect((await chat(tenant.client, { ...body(), tools: [clientTool] })).status).toBe(200);
    await invoke(tenant.client, { ...body(), async: true });
    await tenant.client.post("/v1/tools/explain", { ...call, ...body() });
    // In runs of flows: refused for its arguments, and for a credential that it lacks.
    const lacked = mark();
    const strict = plugin("strict", {
      parameters: {
        type: "object",
        properties: { q: { enum: [choice] }, [parameter]: { type: "string" } },
        required: ["q", parameter],
      },
    });
    const lacking = plugin("lacking", { auth_config: { type: "bearer", mapping: [{ source: lacked }] } });
    const refused = (name: string, next?: string): Json => ({
      kind: "tool",
      name,
      arguments: { q: "x" },
      ...(next === undefined ? {} : { on_error: "continue", next }),
    });
    for (const [name, last] of [
      ["first", "strict"],
      ["second", "lacking"],
    ] as const) {
      const nodes = { strict: refused("strict", "lacking"), lacking: refused("lacking", "last"), last: refused(last) };
      await publishFlow(tenant, { name, start: "strict", nodes });
      const run = await tenant.client.send("post", "/v1/run_workflow", {
        workflow_id: name,
        stream: false,
        ...body(strict, lacking),
      });
      expect(run.json).toMatchObject({ state: "failed", error: { failure: { path: "last" } } });
    }
    await expect
      .poll(async () => (await tenant.client.get("/v1/calls?state=running")).data.length, { timeout: 5_000 })
      .toBe(0);
    expect(backEnd.requests.some(({ headers }) => headers["x-key"] === value)).toBe(true);

    const logged = Buffer.from(JSON.stringify([...gateway.logged, ...other.logged]));
    const written = [...(await filesBelow(gateway.dataDir)), { where: "log", bytes: logged }];
    const told = { where: "model", bytes: Buffer.from(JSON.stringify(llm.requests)) };
    expect(findSecrets(written, [value, keyName, description, header, choice, path, unused, lacked])).toEqual([]);
    expect(findSecrets([told], [value, header, path])).toEqual([]);
    // The record says that there was such a call, by the name it was called by, and no more.
    const rows = (await tenant.client.get("/v1/calls?kind=tool&tool=lookup&limit=100")).data as Json[];
    expect(rows.length).toBeGreaterThan(5);
    expect(new Set(rows.map(({ uri }) => uri))).toEqual(new Set(["plugin://lookup"]));
    expect(JSON.stringify(rows)).not.toContain(value);
  });
});
