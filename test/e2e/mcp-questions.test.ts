/** `mcp://` servers that ask before they go on: people answer, forms fill themselves in, or the answer is no. */
import type { ServerResponse } from "node:http";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text } from "../support/llm-stub.ts";
import { connectSession, rawClient } from "../support/mcp-clients.ts";
import { anyTool, startMcpStub, textResult, type McpCall, type McpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
let stub: McpStub;
beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50 } });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  tenant = await gateway.newTenant();
  stub = await startMcpStub({ era: "stateless" });
});
afterEach(() => stub.close());

const addService = (config: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "crm", config: { url: stub.url, ...config } });
const invoke = (body: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri: "mcp://crm/echo", arguments: { n: 1 }, ...body });
const paramsOf = ({ request }: McpCall): Json => JSON.parse(request.body.toString()).params;
const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
const approve = (id: string, body: Json): Promise<Reply> => tenant.client.send("post", `/v1/calls/${id}/approve`, body);

const form = {
  method: "elicitation/create",
  params: {
    message: "Which account?",
    requestedSchema: {
      type: "object",
      properties: { account: { type: "string", minLength: 2 }, note: { type: "string", default: "none" } },
      required: ["account"],
    },
  },
};

/** Asks once, and tells then what it was answered. */
function asksOnce(requests: Json = { account: form }, requestState: string | null = "opaque ü state"): void {
  stub.onCall = (call) => {
    const { inputResponses, requestState: state } = paramsOf(call);
    if (inputResponses === undefined) {
      return {
        resultType: "input_required",
        inputRequests: requests,
        ...(requestState === null ? {} : { requestState }),
      };
    }
    return textResult(JSON.stringify({ inputResponses, state }));
  };
}

describe(`a server of the stateless era that asks ${verifies("MCP-3")}`, () => {
  test("makes its call wait, and is asked again with the answer and its own state under another id", async () => {
    asksOnce();
    await addService();
    const { status, json } = await invoke();
    expect([status, json.status]).toEqual([202, "input_required"]);
    expect(json.input_requests).toEqual({ account: form });
    expect(await callOf(json.id)).toMatchObject({
      state: "input_required",
      input_requests: { account: form },
      error: null,
      approval: null,
      finished_at: null,
    });
    const inbox = await tenant.client.get("/v1/calls?state=input_required");
    expect(inbox.data.map(({ id }: Json) => id)).toEqual([json.id]);
    const answered = await approve(json.id, { input: { account: { action: "accept", content: { account: "A-7" } } } });
    expect(answered.status, answered.text).toBe(200);
    await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
    const result = JSON.parse((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text);
    expect(result).toEqual({
      inputResponses: { account: { action: "accept", content: { account: "A-7", note: "none" } } },
      state: "opaque ü state",
    });
    expect(stub.calls).toHaveLength(2);
    expect(new Set(stub.calls.map(({ id }) => id)).size).toBe(2);
    expect(stub.calls.map((call) => paramsOf(call).arguments)).toEqual([{ n: 1 }, { n: 1 }]);
    expect(await callOf(json.id)).toMatchObject({ input_requests: null, approval: { decision: "approved" } });
  });

  test("is sent no state where it gave none", async () => {
    asksOnce({ account: form }, null);
    await addService();
    const { json } = await invoke();
    await approve(json.id, { input: { account: { action: "decline" } } });
    await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
    expect(paramsOf(stub.calls[1] as McpCall)).not.toHaveProperty("requestState");
    expect(paramsOf(stub.calls[1] as McpCall).inputResponses).toEqual({ account: { action: "decline" } });
  });

  test("is answered by another instance than the one that it asked", async () => {
    asksOnce();
    await addService();
    const { json } = await invoke();
    const other = await startGateway({ sharedWith: gateway });
    try {
      const answer = { input: { account: { action: "accept", content: { account: "A-7" } } } };
      expect((await other.client(tenant.key).send("post", `/v1/calls/${json.id}/approve`, answer)).status).toBe(200);
      await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
    } finally {
      await other.close();
    }
  });

  test("may ask again, and each answer is for its own question", async () => {
    const second = { ...form, params: { ...form.params, message: "And which year?" } };
    stub.onCall = (call) => {
      const { inputResponses, requestState } = paramsOf(call);
      if (requestState === undefined)
        return { resultType: "input_required", inputRequests: { a: form }, requestState: "1" };
      if (requestState === "1")
        return { resultType: "input_required", inputRequests: { b: second }, requestState: "2" };
      return textResult(JSON.stringify(inputResponses));
    };
    await addService();
    const { json } = await invoke();
    const yes = { action: "accept", content: { account: "A-7" } };
    await approve(json.id, { input: { a: yes } });
    await expect.poll(async () => (await callOf(json.id)).input_requests).toEqual({ b: second });
    expect((await approve(json.id, { input: { a: yes } })).json.error).toMatchObject({ param: "input.a" });
    await approve(json.id, { input: { b: yes } });
    await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
    expect(stub.calls.map((call) => paramsOf(call).requestState)).toEqual([undefined, "1", "2"]);
  });

  test.for([
    [{}, "input"],
    [{ input: {} }, "input.account"],
    [{ input: { account: { action: "accept" } } }, "input.account.content"],
    [{ input: { account: { action: "accept", content: { account: "A" } } } }, "input.account.content"],
    [{ input: { account: { action: "decline" }, other: { action: "decline" } } }, "input.other"],
    [{ input: { account: { action: "decline", content: { account: "A-7" } } } }, "input.account.content"],
  ] as const)("is not given what it did not ask for: %j", async ([body, param]) => {
    asksOnce();
    await addService();
    const { json } = await invoke();
    expect((await approve(json.id, body)).json.error).toMatchObject({ code: "invalid_request", param });
    expect((await callOf(json.id)).state).toBe("input_required");
    expect(stub.calls).toHaveLength(1);
  });

  test("is answered by the caller itself or by whoever approves, by nobody else", async () => {
    asksOnce();
    await addService();
    const caller = await tenant.newKey({ scopes: ["tools"] });
    const stranger = await tenant.newKey({ scopes: ["tools"] });
    const approver = await tenant.newKey({ scopes: ["approve"] });
    const ask = async (): Promise<string> =>
      (await caller.client.send("post", "/v1/tools/invoke", { uri: "mcp://crm/echo", arguments: {} })).json.id;
    const body = { input: { account: { action: "cancel" } } };
    const first = await ask();
    expect((await stranger.client.send("post", `/v1/calls/${first}/approve`, body)).status).toBe(403);
    expect((await stranger.client.send("post", `/v1/calls/${first}/reject`)).status).toBe(403);
    expect((await caller.client.send("post", `/v1/calls/${first}/approve`, body)).status).toBe(200);
    const second = await ask();
    expect((await approver.client.send("post", `/v1/calls/${second}/approve`, body)).status).toBe(200);
    for (const id of [first, second]) await expect.poll(async () => (await callOf(id)).state).toBe("completed");
  });

  test("is let be where the call is rejected or cancelled", async () => {
    asksOnce();
    await addService();
    const [rejected, cancelled] = [(await invoke()).json.id, (await invoke()).json.id];
    await tenant.client.post(`/v1/calls/${rejected}/reject`, { reason: "not that" });
    expect(await callOf(rejected)).toMatchObject({ state: "rejected", error: { code: "call_rejected" } });
    await tenant.client.post(`/v1/calls/${cancelled}/cancel`);
    expect(await callOf(cancelled)).toMatchObject({ state: "cancelled" });
    expect(stub.calls).toHaveLength(2);
  });

  test("asks for a call that nobody waits for as well, and the same key finds it waiting", async () => {
    asksOnce();
    await addService();
    const { json } = await invoke({ async: true });
    await expect.poll(async () => (await callOf(json.id)).state).toBe("input_required");
    await approve(json.id, { input: { account: { action: "decline" } } });
    await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
    const keyed = { headers: { "idempotency-key": "k1" } };
    const body = { uri: "mcp://crm/echo", arguments: {} };
    const [first, again] = [
      await tenant.client.send("post", "/v1/tools/invoke", body, keyed),
      await tenant.client.send("post", "/v1/tools/invoke", body, keyed),
    ];
    expect(again.json).toEqual(first.json);
    expect(again.json.status).toBe("input_required");
  });

  test("is refused what this client has not offered, and what nobody could read", async () => {
    await addService();
    asksOnce({ a: { method: "sampling/createMessage", params: { messages: [] } } });
    expect((await invoke()).json.error.message).toContain(
      "'sampling/createMessage', which this client has not offered",
    );
    asksOnce({ a: { method: "roots/list" } });
    expect((await invoke()).json.error.message).toContain("'roots/list'");
    asksOnce({ a: { method: "elicitation/create", params: { message: "x".repeat(40_000) } } });
    expect((await invoke()).json.error.message).toContain("more input than can be asked");
    stub.onCall = () => ({ resultType: "something_new" });
    expect((await invoke()).json.error.message).toContain("'something_new'");
    const [call] = stub.calls;
    expect(call?.meta["io.modelcontextprotocol/clientCapabilities"]).toEqual({ elicitation: { form: {}, url: {} } });
  });

  test("has no more kept of its own state than belongs in the row of a call", async () => {
    await addService();
    asksOnce({ account: form }, "ü".repeat(32_768));
    expect((await invoke()).status).toBe(202);
    asksOnce({ account: form }, "ü".repeat(32_769));
    const { status, json } = await invoke();
    expect([status, json.error.code]).toEqual([502, "tool_failed"]);
    expect(json.error.message).toContain("65538 bytes of 'requestState' kept for it; 65536 are");
  });

  test("is answered with the defaults of its form where the service says so, and asks people for the rest", async () => {
    const filled = {
      method: "elicitation/create",
      params: { message: "?", requestedSchema: { type: "object", properties: { a: { type: "integer", default: 3 } } } },
    };
    asksOnce({ x: filled });
    await addService({ elicitation: "defaults" });
    const { json } = await invoke();
    expect(JSON.parse(json.content).inputResponses).toEqual({ x: { action: "accept", content: { a: 3 } } });
    asksOnce({ x: filled, account: form });
    expect((await invoke()).json.status).toBe("input_required");
  });

  test("is told beforehand that nobody can be asked where the service says so", async () => {
    asksOnce();
    await addService({ elicitation: "decline" });
    expect((await invoke()).json.error).toMatchObject({ code: "tool_failed" });
    expect(stub.calls[0]?.meta["io.modelcontextprotocol/clientCapabilities"]).toEqual({});
  });
});

describe(`in a chat ${verifies("MCP-3", "CHAT-13")}`, () => {
  test.each(["read", "write"])(
    "a %s that asks ends the turn, and the session's next request has its result",
    async (effect) => {
      const llm = await startLlmStub();
      try {
        await tenant.addProvider(llm.url);
        asksOnce();
        await addService({ tools: { echo: { effect } } });
        llm.script(calls({ name: "mcp_crm__echo", arguments: { n: 5 } }), text("never said"));
        const chat = (): Promise<Json> =>
          tenant.client.post("/v1/chat/completions", {
            model: "stub-1",
            session_id: `asks-${effect}`,
            messages: [{ role: "user", content: "hi" }],
          });
        const first = await chat();
        const [pending] = first.tool_execution.pending;
        expect(pending).toMatchObject({ reason: "input" });
        expect(first.choices[0].message.content).toMatch(/asks for input \(call .*\nWhich account\?/);
        expect(await callOf(pending.call_id)).toMatchObject({ state: "input_required", effect });
        await approve(pending.call_id, { input: { account: { action: "accept", content: { account: "A-7" } } } });
        await expect.poll(async () => (await callOf(pending.call_id)).state).toBe("completed");
        llm.requests.length = 0;
        llm.script(text("thank you"));
        await chat();
        expect(JSON.stringify(llm.requests[0]?.["messages"])).toContain("A-7");
      } finally {
        await llm.close();
      }
    },
  );
});

describe(`a server of the session era ${verifies("MCP-3")}`, () => {
  const question = {
    message: "Go on?",
    requestedSchema: { type: "object", properties: { ok: { type: "boolean", default: true } } },
  };
  const asking = (call: McpCall) => (response: ServerResponse) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (message: Json): void =>
      void response.write(`data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`);
    send({ id: "e1", method: "elicitation/create", params: question });
    send({ id: "s1", method: "sampling/createMessage", params: { messages: [] } });
    send({ id: "r1", method: "roots/list" });
    const wait = setInterval(() => {
      if (!["e1", "s1", "r1"].every((id) => stub.messages.some((message) => message.id === id))) return;
      clearInterval(wait);
      send({ id: call.id, result: textResult("it went on") });
      response.end();
    }, 10);
    return undefined;
  };
  const answerTo = (id: string): Json => stub.messages.find((message) => message.id === id);

  test.each([
    ["ask", {}, { action: "decline" }],
    ["defaults", { elicitation: { form: { applyDefaults: true } } }, { action: "accept", content: { ok: true } }],
    ["decline", {}, { action: "decline" }],
  ])("that asks on its open stream goes on at once: '%s'", async (elicitation, capabilities, answer) => {
    stub.era = "session";
    stub.onCall = asking;
    await addService({ elicitation });
    const { json, text: body } = await invoke();
    expect(json.content, body).toBe("it went on");
    expect(stub.sent("initialize")[0].params.capabilities).toEqual(capabilities);
    expect(answerTo("e1").result).toEqual(answer);
    expect(answerTo("s1").error).toMatchObject({ code: -32_601 });
    expect(answerTo("r1").error).toMatchObject({ code: -32_601 });
  });
});

test("a tool that waits for approval is not answered but approved", async () => {
  stub.tools = [anyTool("echo")];
  await addService({ tools: { echo: { sensitive: true } } });
  const { json } = await invoke();
  const answer = { input: { account: { action: "decline" } } };
  expect((await approve(json.id, answer)).json.error).toMatchObject({ param: "input" });
  const caller = await tenant.newKey({ scopes: ["tools"] });
  const own = await caller.client.send("post", "/v1/tools/invoke", { uri: "mcp://crm/echo", arguments: {} });
  expect((await caller.client.send("post", `/v1/calls/${own.json.id}/approve`, {})).status).toBe(403);
  expect((await approve(json.id, {})).status).toBe(200);
  await expect.poll(async () => (await callOf(json.id)).state).toBe("completed");
});

describe(`a server that asks, behind /mcp ${verifies("MCP-3")}`, () => {
  const forms = { elicitation: { form: {} } };
  const tasks = { extensions: { "io.modelcontextprotocol/tasks": {} } };
  const second = { ...form, params: { ...form.params, message: "And which year?" } };
  const echo = { name: "mcp_crm__echo", arguments: { n: 1 } };
  const yes = (account: string): Json => ({ action: "accept", content: { account } });
  let asker: Awaited<ReturnType<TestTenant["newKey"]>>;
  beforeEach(async () => {
    stub.onCall = (call) => {
      const { inputResponses, requestState } = paramsOf(call);
      if (requestState === undefined)
        return { resultType: "input_required", inputRequests: { a: form }, requestState: "1" };
      if (requestState === "1")
        return { resultType: "input_required", inputRequests: { a: second }, requestState: "2" };
      return textResult(JSON.stringify(inputResponses));
    };
    await addService();
    asker = await tenant.newKey({ scopes: ["tools"] });
  });
  const ask = async (method: string, params: Json, capabilities: Json): Promise<Json> =>
    (await rawClient(`${gateway.url}/mcp`, asker.key).ask(method, params, { capabilities })).answer.result;

  test("has its client's user asked, one question after the other, each answer for its own", async () => {
    const first = await ask("tools/call", echo, forms);
    expect(first).toMatchObject({ resultType: "input_required", inputRequests: { a: form } });
    const again = (from: Json, a: Json): Promise<Json> =>
      ask("tools/call", { ...echo, requestState: from.requestState, inputResponses: { a } }, forms);
    expect((await again(first, yes("A"))).inputRequests).toEqual({ a: form });
    const next = await again(first, yes("A-7"));
    expect(next.inputRequests).toEqual({ a: second });
    // Somebody who has lost the answer repeats it; it is none to the question of now.
    expect((await again(first, yes("A-7"))).inputRequests).toEqual({ a: second });
    const done = await again(next, { action: "decline", content: null });
    expect(done.content).toEqual([{ type: "text", text: '{"a":{"action":"decline"}}' }]);
    expect(stub.calls).toHaveLength(3);
  });

  test("has a task ask, and be answered", async () => {
    const { requestState } = await ask("tools/call", echo, { ...forms, ...tasks });
    const params = { ...echo, requestState, inputResponses: { a: yes("A-7") } };
    const { taskId } = await ask("tools/call", params, { ...forms, ...tasks });
    const task = (): Promise<Json> => ask("tasks/get", { taskId }, { ...forms, ...tasks });
    await expect.poll(async () => (await task()).status).toBe("input_required");
    expect(await task()).toMatchObject({
      inputRequests: { a: second },
      statusMessage: expect.stringContaining("And which year?"),
    });
    await ask("tasks/update", { taskId, inputResponses: { a: yes("A-8"), other: 1 } }, { ...forms, ...tasks });
    await expect.poll(async () => (await task()).status).toBe("completed");
    expect((await task()).result.content[0].text).toContain("A-8");
  });

  test("tells whoever listens to its task of each question, however soon one follows the other", async () => {
    stub.onCall = (call) => {
      const asked = Number(paramsOf(call).requestState ?? 0);
      if (asked === 3) return textResult("done");
      return { resultType: "input_required", inputRequests: { a: form }, requestState: String(asked + 1) };
    };
    const capabilities = { ...forms, ...tasks };
    const { requestState } = await ask("tools/call", echo, capabilities);
    const inputResponses = { a: yes("A-7") };
    const { taskId } = await ask("tools/call", { ...echo, requestState, inputResponses }, capabilities);
    const told: string[] = [];
    const leave = new AbortController();
    const listening = rawClient(`${gateway.url}/mcp`, asker.key).ask(
      "subscriptions/listen",
      { notifications: { taskIds: [taskId] } },
      {
        capabilities,
        signal: leave.signal,
        onMessage({ method, params }) {
          if (method !== "notifications/tasks") return;
          told.push(params.status);
          if (params.status === "input_required") void ask("tasks/update", { taskId, inputResponses }, capabilities);
        },
      },
    );
    await expect.poll(() => told.at(-1)).toBe("completed");
    expect(told.filter((status) => status === "input_required")).toHaveLength(2);
    leave.abort();
    await expect(listening).rejects.toThrow("aborted");
  });

  test("is asked for where the result of an earlier call is", async () => {
    const body = { uri: "mcp://crm/echo", arguments: { n: 1 }, async: true };
    const { id } = (await asker.client.send("post", "/v1/tools/invoke", body)).json;
    await expect.poll(async () => (await callOf(id)).state).toBe("input_required");
    const fetching = { name: "get_call_result", arguments: { call_id: id, wait_s: 40 } };
    const first = await ask("tools/call", fetching, forms);
    expect(first).toMatchObject({ resultType: "input_required", inputRequests: { a: form } });
    const again = (from: Json, a: Json): Promise<Json> =>
      ask("tools/call", { ...fetching, requestState: from.requestState, inputResponses: { a } }, forms);
    const next = await again(first, yes("A-7"));
    expect(next.inputRequests).toEqual({ a: second });
    expect((await again(next, yes("A-8"))).content[0].text).toContain("A-8");
  });

  test("is told of, too, where the result of an earlier call is asked for and the client cannot ask", async () => {
    const held = Promise.withResolvers<void>();
    stub.onCall = (call) => async () => {
      await held.promise;
      const question = { resultType: "input_required", inputRequests: { a: form }, requestState: "1" };
      const result = paramsOf(call).requestState === undefined ? question : textResult("done");
      const headers = { "content-type": "application/json" };
      return { headers, body: JSON.stringify({ jsonrpc: "2.0", id: call.id, result }) };
    };
    const body = { uri: "mcp://crm/echo", arguments: { n: 1 }, async: true };
    const { id } = (await asker.client.send("post", "/v1/tools/invoke", body)).json;
    const fetching = (waitS: number): Promise<Json> =>
      ask("tools/call", { name: "get_call_result", arguments: { call_id: id, wait_s: waitS } }, tasks);
    // As soon as it asks, and for as long as it asks that.
    const told = fetching(40);
    await expect.poll(() => stub.calls.length).toBe(1);
    held.resolve();
    for (const { isError, structuredContent } of [await told, await fetching(0)]) {
      const { error } = structuredContent;
      expect([isError, error.code, error.input_requests]).toEqual([true, "input_required", { a: form }]);
      expect([error.call_id, error.url]).toEqual([id, `${gateway.url}/v1/calls/${id}`]);
    }
    const ended = fetching(40);
    await approve(id, { input: { a: yes("A-7") } });
    expect((await ended).content[0].text).toBe("done");
  });

  test("is told of where the call came with a configuration of its own, which no answer to a form can bring", async () => {
    const runtime_config = { plugins: [], credentials: { OTHER: "inline-value-1" } };
    asker = await tenant.newKey({ scopes: ["tools", "runtime_config"] });
    const body = { uri: "mcp://crm/echo", arguments: { n: 1 }, runtime_config };
    const { id } = await asker.client.post("/v1/tools/invoke", body);
    const fetching = { name: "get_call_result", arguments: { call_id: id } };
    const { isError, structuredContent } = await ask("tools/call", fetching, forms);
    const { error } = structuredContent;
    expect([isError, error.code, error.input_requests]).toEqual([true, "input_required", { a: form }]);
    expect(error.message).toContain(`/approve {"input": …, "runtime_config": …}`);
    await approve(id, { input: { a: yes("A-7") }, runtime_config });
    expect((await callOf(id)).input_requests).toEqual({ a: second });
  });

  test("is waited for by who asks for a result, where a stream cannot ask so much", async () => {
    stub.onCall = (call) =>
      paramsOf(call).requestState === undefined
        ? { resultType: "input_required", inputRequests: { a: form, b: second }, requestState: "1" }
        : textResult("done");
    const body = { uri: "mcp://crm/echo", arguments: { n: 1 }, async: true };
    const { id } = (await asker.client.send("post", "/v1/tools/invoke", body)).json;
    await expect.poll(async () => (await callOf(id)).state).toBe("input_required");
    const client = await connectSession({
      url: `${gateway.url}/mcp`,
      key: asker.key,
      capabilities: { elicitation: {} },
    });
    const fetching = client.callTool({ name: "get_call_result", arguments: { call_id: id, wait_s: 40 } });
    await new Promise((next) => setTimeout(next, 300));
    await approve(id, { input: { a: yes("A-7"), b: yes("A-8") } });
    expect(((await fetching) as Json).content[0].text).toBe("done");
    await client.close();
  });

  test("is asked for on the stream of a session", async () => {
    const client = await connectSession({
      url: `${gateway.url}/mcp`,
      key: asker.key,
      capabilities: { elicitation: {} },
    });
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const questions: string[] = [];
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      questions.push(params.message);
      return { action: "accept", content: { account: `A-${questions.length}` } };
    });
    const { content } = (await client.callTool(echo)) as Json;
    expect(questions).toEqual(["Which account?", "And which year?"]);
    expect(content[0].text).toContain("A-2");
    await client.close();
  });

  test("is told of, too, where it wants a page opened and the client knows forms alone", async () => {
    const params = { mode: "url", message: "Sign in.", url: "https://bank.example.com/in", elicitationId: "e1" };
    const page = { method: "elicitation/create", params };
    stub.onCall = () => ({ resultType: "input_required", inputRequests: { a: form, b: page }, requestState: "1" });
    const { structuredContent } = await ask("tools/call", echo, forms);
    expect(structuredContent.error).toMatchObject({ code: "input_required", input_requests: { a: form, b: page } });
  });

  test("is told of where the client cannot ask", async () => {
    const { isError, structuredContent } = await ask("tools/call", echo, {});
    const { error } = structuredContent;
    expect([isError, error.code, error.input_requests]).toEqual([true, "input_required", { a: form }]);
    expect(error.message).toContain(`Which account?): answer a with POST ${error.url}/approve`);
    await approve(error.call_id, { input: { a: yes("A-7") } });
    await expect.poll(async () => (await callOf(error.call_id)).input_requests).toEqual({ a: second });
  });
});
