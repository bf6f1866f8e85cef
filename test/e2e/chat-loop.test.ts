/** Chat with tools over real sockets: who runs what, in which order, and what the model and the client see. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, chunk, done, startLlmStub, text, usageChunk, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});

/** What the model was sent with its n-th request. */
function sentMessages(at: number): Json[] {
  return listOf(at, "messages");
}

function offeredTools(at: number): Json[] {
  return listOf(at, "tools");
}

function listOf(at: number, field: string): Json[] {
  const list = llm.requests[at]?.[field];
  if (!Array.isArray(list)) throw new Error(`request ${at} of the model has no ${field}`);
  return list;
}

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
};
const user = (content: string): Json => ({ role: "user", content });

function lookup(name = "lookup", change: Json = {}): Json {
  return {
    name,
    parameters: { type: "object", properties: { q: { type: "string" } }, required: ["q"] },
    execution: {
      method: "GET",
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: "query",
      ...change,
    },
  };
}

function writer(name = "create_order", change: Json = {}): Json {
  return {
    name,
    parameters: { type: "object", properties: { sku: { type: "string" } }, required: ["sku"] },
    execution: {
      method: "POST",
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: "body",
      ...change,
    },
  };
}

/** A chat, and its settlement: the record is written after the last byte. */
async function chat(client: Client, body: Json, path = "/v1/chat/completions"): Promise<Json> {
  const answer = await client.post(path, body);
  await settled(client);
  return answer;
}

async function settled(client: Client): Promise<void> {
  await expect.poll(async () => (await client.get("/v1/calls?kind=chat&state=running")).data.length).toBe(0);
}

async function toolCalls(client: Client): Promise<Json[]> {
  return (await client.get("/v1/calls?kind=tool&order=asc&limit=100")).data;
}

describe(`plain answers ${verifies("CHAT-1", "CHAT-2")}`, () => {
  test("an OpenAI body comes back, and the request reached the back end with nothing added", async () => {
    llm.script(text("你好 there"));
    const answer = await chat(tenant.client, {
      model: "stub-1",
      messages: [user("hi")],
      temperature: 0.7,
      max_tokens: null,
      top_k: 5,
    });
    expect(answer).toMatchObject({
      object: "chat.completion",
      choices: [{ index: 0, message: { role: "assistant", content: "你好 there" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
    });
    expect(answer.tool_execution).toBeUndefined();
    expect(llm.requests).toEqual([{ model: "stub-1", messages: [user("hi")], temperature: 0.7, top_k: 5 }]);
  });

  test("without a model the first of the tenant's order answers and is named", async () => {
    llm.script(text("ok"));
    const answer = await chat(tenant.client, { messages: [user("hi")] });
    expect(answer.model).toBe("stub-1");
  });

  test("an unknown model is refused before any back end is asked", async () => {
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      model: "gpt-none",
      messages: [user("hi")],
    });
    expect([reply.status, reply.json.error.code, reply.json.error.param]).toEqual([404, "model_not_found", "model"]);
    expect(llm.requests).toHaveLength(0);
  });

  test("a back end that fails before its first byte gives its status, streamed or not", async () => {
    llm.script({
      json: { error: { message: "bad tools", type: "invalid_request_error", code: "invalid_function_parameters" } },
      status: 400,
    });
    for (const stream of [false, true]) {
      const reply = await tenant.client.send("post", "/v1/chat/completions", { messages: [user("hi")], stream });
      expect([reply.status, reply.json.error.code]).toEqual([400, "provider_rejected"]);
      expect(reply.json.error.message).toContain("bad tools");
    }
  });
});

describe(`an answer that cannot be kept ${verifies("CHAT-13")}`, () => {
  test("is given all the same, with its record and its cost; who asks again with its key is told", async () => {
    const put = vi.spyOn(gateway.core.blobs, "put").mockRejectedValue(new GatewayError("blobs_unavailable", "away"));
    const asked = { messages: [user("go")] };
    const key = { headers: { "idempotency-key": "kept-nowhere" } };
    const long = "x".repeat(100_000);
    llm.script({ writes: [chunk({ content: long }), chunk({}, "stop"), usageChunk(7, 5), done] });
    const first = await tenant.client.send("post", "/v1/chat/completions", asked, key);
    put.mockRestore();
    expect([first.status, first.json.choices[0].message.content]).toEqual([200, long]);
    const [call] = (await tenant.client.get("/v1/calls?kind=chat")).data;
    expect(call).toMatchObject({ state: "completed", result: null, usage: { prompt_tokens: 7, completion_tokens: 5 } });
    const again = await tenant.client.send("post", "/v1/chat/completions", asked, key);
    expect([again.status, again.json.error.code, again.json.error.call_id]).toEqual([409, "conflict", call.id]);
    expect(llm.requests).toHaveLength(1);
  });
});

describe(`bad conversations ${verifies("CHAT-20")}`, () => {
  test.each([
    [{ messages: [] }, "messages"],
    [{ messages: [user("hi"), { role: "tool", tool_call_id: "x", content: "1" }] }, "messages[1].tool_call_id"],
    [{ messages: [user("hi")], tools: [weather, weather] }, "tools[1].function.name"],
    [{ messages: [user("hi")], session_id: "a/b" }, "session_id"],
  ])("%j names %s and reaches no model", async (body, param) => {
    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      const reply = await tenant.client.send("post", path, body);
      expect([reply.status, reply.json.error.param]).toEqual([400, param]);
    }
    expect(llm.requests).toHaveLength(0);
  });

  test("another tenant's session does not exist, whatever it holds", async () => {
    const other = await gateway.newTenant();
    await other.addProvider(llm.url);
    llm.script(text("ok"));
    await chat(other.client, { messages: [user("hi")], session_id: "theirs-1" });
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("hi")],
      session_id: "theirs-1",
    });
    expect([reply.status, reply.json.error.code]).toEqual([404, "session_not_found"]);
  });
});

describe(`who runs a call ${verifies("CHAT-3", "CHAT-4", "CHAT-5")}`, () => {
  test("the client's tools come back to it, several at once, with ids of the gateway", async () => {
    llm.script(
      calls({ name: "get_weather", arguments: { city: "北京" } }, { name: "get_weather", arguments: { city: "广州" } }),
    );
    const answer = await chat(tenant.client, { messages: [user("weather?")], tools: [weather] });
    const [choice] = answer.choices;
    expect(choice.finish_reason).toBe("tool_calls");
    expect(choice.message.content).toBeNull();
    expect(choice.message.tool_calls.map((call: Json) => call.function)).toEqual([
      { name: "get_weather", arguments: '{"city":"北京"}' },
      { name: "get_weather", arguments: '{"city":"广州"}' },
    ]);
    expect(new Set(choice.message.tool_calls.map((call: Json) => call.id)).size).toBe(2);
  });

  test("the first example: the client runs read_file and the model uses its result", async () => {
    const tools = [
      {
        type: "function",
        function: {
          name: "read_file",
          description: "读取文件内容",
          parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
        },
      },
    ];
    const question = user("请读取/tmp/config.json文件并告诉我其中的版本号");
    llm.script(
      calls({ name: "read_file", arguments: { path: "/tmp/config.json" } }),
      text("根据读取的config.json文件，版本号是2.3.1。"),
    );
    const first = await chat(
      tenant.client,
      { messages: [question], tools, tool_choice: "auto" },
      "/api/chat/completions",
    );
    const [message] = first.choices.map((choice: Json) => choice.message);
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: '{"version": "2.3.1"}' };
    const second = await chat(tenant.client, { messages: [question, message, result], tools }, "/api/chat/completions");
    expect(second.choices[0].message.content).toBe("根据读取的config.json文件，版本号是2.3.1。");
    const sent = sentMessages(1);
    expect(sent[2]).toEqual(result);
    expect(sent[1].tool_calls[0].id).toBe(result.tool_call_id);
  });

  test("the second example: both calls of one answer come back", async () => {
    const tool = (name: string): Json => ({
      type: "function",
      function: { name, description: name, parameters: { type: "object", properties: {} } },
    });
    llm.script(
      calls(
        { name: "fetch", arguments: { url: "https://api.weather.com/v1/beijing" } },
        { name: "write_file", arguments: { path: "weather.txt", content: "北京天气：晴，温度25°C" } },
      ),
    );
    const answer = await chat(
      tenant.client,
      { messages: [user("获取北京的天气，并保存到weather.txt文件中")], tools: [tool("fetch"), tool("write_file")] },
      "/api/chat/completions",
    );
    expect(answer.choices[0]).toMatchObject({
      finish_reason: "tool_calls",
      message: {
        content: null,
        tool_calls: [
          { type: "function", function: { name: "fetch" } },
          { type: "function", function: { name: "write_file" } },
        ],
      },
    });
    expect(answer.tool_execution).toBeUndefined();
  });

  test("the gateway's tools run on the server, listed or not, and the answer says so", async () => {
    await tenant.addPlugin(lookup());
    llm.script(calls({ id: "up_1", name: "lookup", arguments: { q: "x" } }), text("found", [30, 6]));
    const answer = await chat(tenant.client, { messages: [user("look")], session_id: "s-auto" });
    expect(answer.choices[0]).toMatchObject({ message: { content: "found" }, finish_reason: "stop" });
    expect(answer.choices[0].message.tool_calls).toBeUndefined();
    expect(answer.usage.total_tokens).toBe(28 + 36);
    expect(answer.tool_execution).toEqual({
      executed: true,
      tools_called: ["lookup"],
      session_id: "s-auto",
      workspace_path: "/mcp_workspaces/s-auto",
    });
    const sent = sentMessages(1);
    expect(sent.slice(1)).toEqual([
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "up_1", type: "function", function: { name: "lookup", arguments: '{"q":"x"}' } }],
      },
      { role: "tool", tool_call_id: "up_1", content: '{"ok":true}' },
    ]);
  });

  test("with a session a listed name of the gateway's is the gateway's, without one the client's", async () => {
    const listed = {
      type: "function",
      function: { name: "write_file", description: "mine", parameters: { type: "object", properties: {} } },
    };
    llm.script(calls({ name: "write_file", arguments: { path: "a.txt", content: "A" } }), text("written"));
    const answer = await chat(tenant.client, { messages: [user("write")], tools: [listed], session_id: "s-listed" });
    expect(answer.tool_execution.tools_called).toEqual(["write_file"]);
    llm.script(calls({ name: "write_file", arguments: { path: "a.txt", content: "A" } }));
    const manual = await chat(tenant.client, { messages: [user("write")], tools: [listed] });
    expect(manual.choices[0].finish_reason).toBe("tool_calls");
  });

  test("manual mode returns every call, and /v1/tools/invoke runs it for the client", async () => {
    await tenant.addPlugin(lookup());
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("done"));
    const first = await chat(tenant.client, { messages: [user("look")], tool_execution: "manual" });
    expect(backEnd.requests).toHaveLength(0);
    const { message } = first.choices[0];
    const invoked = await tenant.client.post("/v1/tools/invoke", {
      name: "lookup",
      arguments: JSON.parse(message.tool_calls[0].function.arguments),
    });
    const tool = { role: "tool", tool_call_id: message.tool_calls[0].id, content: invoked.content };
    const second = await chat(tenant.client, { messages: [user("look"), message, tool], tool_execution: "manual" });
    expect(second.choices[0].message.content).toBe("done");
    expect(sentMessages(1)[2].content).toBe('{"ok":true}');
  });

  test("a mixed turn: ours runs, theirs comes back, and the next request has both results, on any instance", async () => {
    await tenant.addPlugin(lookup());
    const mixed = calls(
      { id: "up_theirs", name: "get_weather", arguments: { city: "北京" } },
      { id: "up_ours", name: "lookup", arguments: { q: "x" } },
    );
    llm.script(mixed, text("both used"));
    const first = await chat(tenant.client, { messages: [user("mixed")], tools: [weather] });
    const { message, finish_reason: reason } = first.choices[0];
    expect(reason).toBe("tool_calls");
    expect(message.tool_calls.map((call: Json) => call.function.name)).toEqual(["get_weather"]);
    expect(first.tool_execution.tools_called).toEqual(["lookup"]);
    const other = await startGateway({ sharedWith: gateway });
    try {
      const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
      const second = await chat(other.client(tenant.key), {
        messages: [user("mixed"), message, result],
        tools: [weather],
      });
      expect(second.choices[0].message.content).toBe("both used");
    } finally {
      await other.close();
    }
    const sent = sentMessages(1);
    expect(sent[1].tool_calls.map((call: Json) => call.id)).toEqual(["up_theirs", "up_ours"]);
    expect(sent.slice(2)).toEqual([
      { role: "tool", tool_call_id: "up_theirs", content: "sunny" },
      { role: "tool", tool_call_id: "up_ours", content: '{"ok":true}' },
    ]);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("a mixed turn that has been answered is history, which goes on without what was kept of it", async () => {
    await tenant.addPlugin(lookup());
    const theirs = { name: "get_weather", arguments: {} };
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }, theirs));
    const first = await chat(tenant.client, { messages: [user("mixed")], tools: [weather] });
    const { message } = first.choices[0];
    const answer = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
    // For another caller nothing of it is kept, as for this one a day later.
    const stranger = await tenant.newKey();
    llm.script(text("later"));
    const before = [user("mixed"), message, answer, { role: "assistant", content: "sunny everywhere" }];
    const later = await chat(stranger.client, { messages: [...before, user("and tomorrow?")] });
    expect(later.choices[0].message.content).toBe("later");
    const told = llm.requests.at(-1)?.["messages"] as Json[];
    expect(told.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant", "user"]);
    expect(told[1]?.content).toContain("no longer kept");
  });

  test("a mixed turn is never continued without our results: partial 400, another caller's 410", async () => {
    await tenant.addPlugin(lookup());
    const [ours, theirs] = [
      { name: "lookup", arguments: { q: "x" } },
      { name: "get_weather", arguments: {} },
    ];
    llm.script(calls(ours, theirs, { ...theirs, arguments: { city: "北京" } }));
    const first = await chat(tenant.client, { messages: [user("mixed")], tools: [weather] });
    const { message } = first.choices[0];
    const [one, other] = message.tool_calls;
    const answers = [one, other].map(({ id }: Json) => ({ role: "tool", tool_call_id: id, content: "sunny" }));
    const partial = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("mixed"), message],
      tools: [weather],
    });
    expect([partial.status, partial.json.error.code]).toEqual([400, "tool_turn_incomplete"]);
    expect(partial.json.error.missing_tool_call_ids).toEqual([one.id, other.id]);
    const cut = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("mixed"), { ...message, tool_calls: [one] }, answers[0]],
      tools: [weather],
    });
    expect([cut.status, cut.json.error.code]).toEqual([400, "tool_turn_incomplete"]);
    expect(cut.json.error.missing_tool_call_ids).toEqual([other.id]);
    const stranger = await tenant.newKey();
    const answered = [user("mixed"), message, ...answers];
    const expired = await stranger.client.send("post", "/v1/chat/completions", {
      messages: answered,
      tools: [weather],
    });
    expect([expired.status, expired.json.error.code]).toEqual([410, "tool_turn_expired"]);
    expect(llm.requests).toHaveLength(1);
  });

  test("a mixed turn comes back when it is kept, and not where it cannot be", async () => {
    await tenant.addPlugin(lookup());
    const reach = (point: string): void => {
      if (point === "chat.before-settle") throw new Error("The database is away.");
    };
    const other = await startGateway({ sharedWith: gateway, reach });
    try {
      llm.script(calls({ name: "lookup", arguments: { q: "x" } }, { name: "get_weather", arguments: {} }));
      const body = { messages: [user("mixed")], tools: [weather] };
      const reply = await other.client(tenant.key).send("post", "/v1/chat/completions", body);
      expect([reply.status, reply.json.error.code]).toEqual([500, "internal_error"]);
    } finally {
      await other.close();
    }
  });

  test("fields that only the back end understands come back to it with the next turn", async () => {
    const message = {
      role: "assistant",
      content: null,
      reasoning_content: "thinking",
      tool_calls: [
        {
          id: "up",
          type: "function",
          function: { name: "get_weather", arguments: "{}" },
          extra_content: { google: { thought_signature: "sig" } },
        },
      ],
    };
    llm.script(
      {
        json: {
          id: "x",
          object: "chat.completion",
          created: 1,
          model: "stub-1",
          choices: [{ index: 0, message, finish_reason: "tool_calls" }],
        },
      },
      text("ok"),
    );
    const first = await chat(tenant.client, { messages: [user("w")], tools: [weather] });
    const { tool_calls: toolCalls } = first.choices[0].message;
    // A typical client sends back only what it knows.
    const own = {
      role: "assistant",
      content: null,
      tool_calls: [{ id: toolCalls[0].id, type: "function", function: toolCalls[0].function }],
    };
    await chat(tenant.client, {
      messages: [user("w"), own, { role: "tool", tool_call_id: toolCalls[0].id, content: "sunny" }],
      tools: [weather],
    });
    const [, assistant, tool] = sentMessages(1);
    expect(assistant).toEqual(message);
    expect(tool.tool_call_id).toBe("up");
  });

  test("what was thought comes back to the back end, and does not where that refuses it, in any turn after", async () => {
    const other = await gateway.newTenant();
    await other.addProvider(llm.url);
    await other.addPlugin(lookup("consult"));
    const refusal = "'messages.1' : for 'role:assistant' property 'reasoning' is unsupported, did you mean 'role'?";
    llm.respond(({ messages }) => {
      const sent = messages as Json[];
      if (sent.some(({ reasoning }) => reasoning !== undefined))
        return { status: 400, json: { error: { message: refusal } } };
      if (sent.length > 4) return text("ok");
      const called = calls({ name: "consult", arguments: { q: `${sent.length}` } });
      return { writes: [chunk({ role: "assistant", reasoning: "Let me see." }), ...called.writes] };
    });
    const body = { messages: [user("w")], stream: true };
    expect((await other.client.send("post", "/v1/chat/completions", body)).text).toContain('"ok"');
    expect(llm.requests.map(({ messages }) => JSON.stringify(messages).includes("Let me see."))).toEqual([
      false,
      true,
      false,
      false,
    ]);
  });

  test("a named choice of an unknown tool is a 404 before the model is asked", async () => {
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("x")],
      tool_choice: { type: "function", function: { name: "unknown_tool" } },
    });
    expect(reply.status).toBe(404);
    expect(reply.json.error).toMatchObject({
      message: "Tool 'unknown_tool' not found",
      type: "invalid_request_error",
      code: "tool_not_found",
    });
    expect(llm.requests).toHaveLength(0);
  });

  test("a forced choice holds for the first turn only", async () => {
    await tenant.addPlugin(lookup());
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("done"));
    await chat(tenant.client, { messages: [user("x")], tool_choice: "required" });
    expect(llm.requests.map((request) => request["tool_choice"])).toEqual(["required", undefined]);
  });
});

describe(`streams ${verifies("CHAT-6")}`, () => {
  test("on /v1 server-run tools leave one clean assistant message", async () => {
    await tenant.addPlugin(lookup());
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("all found"));
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("look")],
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(reply.headers.get("content-type")).toBe("text/event-stream");
    const events = sseEvents(reply.text);
    expect(events.at(-1)).toBe("[DONE]");
    const chunks = events.slice(0, -1) as Json[];
    expect(new Set(chunks.map((event) => event.id)).size).toBe(1);
    const choices = chunks.flatMap((event) => event.choices);
    expect(choices.filter((choice) => choice.delta.role !== undefined)).toHaveLength(1);
    expect(choices.filter((choice) => choice.finish_reason !== null).map((choice) => choice.finish_reason)).toEqual([
      "stop",
    ]);
    expect(choices.some((choice) => choice.delta.tool_calls !== undefined)).toBe(false);
    expect(choices.map((choice) => choice.delta.content ?? "").join("")).toBe("all found");
    expect(chunks.filter((event) => event.usage).map((event) => [event.choices, event.usage.total_tokens])).toEqual([
      [[], 43],
    ]);
  });

  test("on /api the call, its result and the end are typed events", async () => {
    await tenant.addPlugin(lookup());
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("found"));
    const reply = await tenant.client.send("post", "/api/chat/completions", { messages: [user("look")], stream: true });
    const events = sseEvents(reply.text) as Json[];
    expect(events.map((event) => event.type ?? event)).toEqual([
      "tool_call",
      "tool_call",
      "tool_result",
      "content",
      "done",
      "[DONE]",
    ]);
    expect(events[2]).toMatchObject({
      tool_call_id: events[0].delta.tool_calls[0].id,
      result: { success: true, content: '{"ok":true}' },
    });
    expect(events[4]).toMatchObject({
      finish_reason: "stop",
      usage: { total_tokens: 43 },
      tool_execution: { executed: true, tools_called: ["lookup"] },
    });
  });

  test("after an error in the middle comes [DONE] and no done", async () => {
    llm.script({ writes: [chunk({ role: "assistant", content: "half" })], cut: true });
    const reply = await tenant.client.send("post", "/api/chat/completions", { messages: [user("x")], stream: true });
    const events = sseEvents(reply.text) as Json[];
    expect(events.map((event) => event.type ?? event)).toEqual(["content", "error", "[DONE]"]);
    expect(events[1].error).toMatchObject({ code: "provider_stream_incomplete", type: "api_error" });
    const v1 = await tenant.client.send("post", "/v1/chat/completions", { messages: [user("x")], stream: true });
    expect(v1.status).toBe(200);
    expect((sseEvents(v1.text) as Json[]).slice(-2)).toMatchObject([
      { error: { code: "provider_stream_incomplete" } },
      "[DONE]",
    ]);
  });
});

describe(`tools that fail ${verifies("CHAT-7", "CHAT-18")}`, () => {
  test("unknown and failed tools become results for the model", async () => {
    await tenant.addPlugin(lookup());
    backEnd.answer = () => ({ status: 500, body: '{"reason":"down"}' });
    llm.script(
      calls({ name: "lookup", arguments: { q: "x" } }, { name: "no_such_tool", arguments: {} }),
      text("sorry"),
    );
    const reply = await tenant.client.send("post", "/api/chat/completions", { messages: [user("x")], stream: true });
    const results = (sseEvents(reply.text) as Json[]).filter((event) => event.type === "tool_result");
    expect(results.map((event) => event.result.success)).toEqual([false, false]);
    const told = sentMessages(1)
      .filter((message) => message.role === "tool")
      .map((message) => JSON.parse(message.content).error);
    expect(told.map((error) => error.code)).toEqual(["tool_failed", "tool_not_found"]);
    expect(told[0].details.status).toBe(500);
  });

  test("on_tool_error fail ends the request with the tool's name", async () => {
    await tenant.addPlugin(lookup());
    backEnd.answer = () => ({ status: 403, body: "Permission denied" });
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("never"));
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      messages: [user("x")],
      on_tool_error: "fail",
    });
    expect(reply.status).toBe(502);
    expect(reply.json.error).toMatchObject({ type: "tool_execution_error", code: "tool_failed", tool_name: "lookup" });
    expect(llm.requests).toHaveLength(1);
  });

  test("on_tool_error fail says of a tool that there is not what is said everywhere", async () => {
    llm.script(calls({ name: "unknown_tool", arguments: {} }), text("never"));
    const body = { messages: [user("x")], on_tool_error: "fail" };
    const { status, json } = await tenant.client.send("post", "/v1/chat/completions", body);
    expect(status).toBe(404);
    expect(json.error).toMatchObject({
      message: "Tool 'unknown_tool' not found",
      type: "invalid_request_error",
      code: "tool_not_found",
    });
  });

  test("on_tool_error fail leaves no call of the turn without its record", async () => {
    for (const name of ["refused", "slow"]) await tenant.addPlugin(lookup(name));
    const release = Promise.withResolvers<void>();
    backEnd.answer = async ({ target }) => {
      if (target.startsWith("/refused")) return { status: 403, body: "no" };
      await release.promise;
      return { body: "{}" };
    };
    llm.script(calls({ name: "refused", arguments: { q: "x" } }, { name: "slow", arguments: { q: "y" } }));
    const body = { messages: [user("x")], on_tool_error: "fail" };
    expect((await tenant.client.send("post", "/v1/chat/completions", body)).status).toBe(502);
    release.resolve();
    await settled(tenant.client);
    const rows = await toolCalls(tenant.client);
    expect(Object.fromEntries(rows.map(({ tool, state }) => [tool, state]))).toEqual({
      refused: "failed",
      slow: "completed",
    });
  });

  test("on_tool_error fail lets the others come to their end though the client leaves with the error", async () => {
    for (const name of ["refused", "slow"]) await tenant.addPlugin(lookup(name));
    const release = Promise.withResolvers<void>();
    backEnd.answer = async ({ target }) => {
      if (target.startsWith("/refused")) return { status: 403, body: "no" };
      await release.promise;
      return { body: "{}" };
    };
    llm.script(calls({ name: "refused", arguments: { q: "x" } }, { name: "slow", arguments: { q: "y" } }));
    const left = new AbortController();
    const response = await fetch(`${gateway.url}/api/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "stub-1", messages: [user("x")], on_tool_error: "fail", stream: true }),
      signal: left.signal,
    });
    let told = "";
    for await (const part of response.body ?? []) {
      told += Buffer.from(part).toString("utf8");
      if (told.includes("[DONE]")) break;
    }
    left.abort();
    await new Promise((next) => setTimeout(next, 300));
    release.resolve();
    await settled(tenant.client);
    const rows = await toolCalls(tenant.client);
    expect(rows.map(({ tool, state }) => `${tool} ${state}`).sort()).toEqual(["refused failed", "slow completed"]);
  });

  test("calls that the gateway runs are no part of what a client must give back", async () => {
    await tenant.addPlugin(lookup());
    const look = calls({ name: "lookup", arguments: { q: "x" } });
    llm.script(look, look, text("Done."));
    const { text: events } = await tenant.client.send("post", "/api/chat/completions", {
      messages: [user("look twice")],
      stream: true,
    });
    const ids = [...events.matchAll(/"(call_[0-9a-z]+)"/g)].map(([, id]) => id);
    expect(new Set(ids).size).toBe(2);
    expect(ids.filter((id) => id?.length !== "call_".length + 26)).toEqual([]);
  });

  test("arguments that do not fit reach the model with pointers, and nothing runs", async () => {
    await tenant.addPlugin(lookup());
    llm.script(
      calls({ name: "lookup", arguments: { q: 7, r: 1 } }, { name: "lookup", arguments: '{"q":"x' }),
      text("ok"),
    );
    await chat(tenant.client, { messages: [user("x")] });
    const told = sentMessages(1)
      .filter((message) => message.role === "tool")
      .map((message) => JSON.parse(message.content).error);
    expect(told.map((error) => error.code)).toEqual(["invalid_arguments", "invalid_arguments"]);
    expect(told[0].details.errors[0].pointer).toBe("/q");
    expect(sentMessages(1)[1].tool_calls.map((call: Json) => JSON.parse(call.function.arguments))).toEqual([
      { q: 7, r: 1 },
      { invalid_arguments: '{"q":"x' },
    ]);
    expect(backEnd.requests).toHaveLength(0);
    expect((await toolCalls(tenant.client)).map((call) => call.state)).toEqual(["rejected", "rejected"]);
  });

  test("invoke answers the same failures with their status", async () => {
    await tenant.addPlugin(lookup());
    backEnd.answer = () => ({ status: 500, body: "oops" });
    const failed = await tenant.client.send("post", "/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
    expect([failed.status, failed.json.error.code, failed.json.error.tool_name]).toEqual([
      502,
      "tool_failed",
      "lookup",
    ]);
    const missing = await tenant.client.send("post", "/v1/tools/invoke", { name: "unknown_tool" });
    expect(missing.status).toBe(404);
    expect(missing.json.error).toMatchObject({
      message: "Tool 'unknown_tool' not found",
      code: "tool_not_found",
      type: "invalid_request_error",
    });
    const wrong = await tenant.client.send("post", "/v1/tools/invoke", {
      uri: "plugin://lookup?timeout=abc",
      arguments: { q: "x" },
    });
    expect([wrong.status, wrong.json.error.code]).toEqual([400, "invalid_uri"]);
  });
});

describe(`parallel calls ${verifies("CHAT-10")}`, () => {
  test("reads of one turn run together, results keep the order, one failure stops nobody", async () => {
    await tenant.addPlugin(lookup());
    let together = 0;
    let most = 0;
    const all = Promise.withResolvers<void>();
    backEnd.answer = async (request) => {
      together += 1;
      most = Math.max(most, together);
      if (most === 3) all.resolve();
      await Promise.race([all.promise, new Promise((next) => setTimeout(next, 2_000))]);
      if (request.target.includes("q=a")) await new Promise((next) => setTimeout(next, 20));
      together -= 1;
      return request.target.includes("q=b")
        ? { status: 500, body: "b" }
        : { body: JSON.stringify(request.target.slice(-1)) };
    };
    llm.script(
      calls(
        { id: "1", name: "lookup", arguments: { q: "a" } },
        { id: "2", name: "lookup", arguments: { q: "b" } },
        { id: "3", name: "lookup", arguments: { q: "c" } },
      ),
      text("ok"),
    );
    await chat(tenant.client, { messages: [user("x")] });
    expect(most).toBe(3);
    const results = sentMessages(1).filter((message) => message.role === "tool");
    expect(results.map((message) => message.tool_call_id)).toEqual(["1", "2", "3"]);
    expect([results[0].content, results[2].content]).toEqual(['"a"', '"c"']);
    expect(JSON.parse(results[1].content).error.code).toBe("tool_failed");
  });

  test("writes to one service run in call order, one after another", async () => {
    await tenant.addPlugin(writer());
    let open = 0;
    backEnd.answer = async (request) => {
      open += 1;
      expect(open).toBe(1);
      await new Promise((next) => setTimeout(next, request.body.includes("first") ? 50 : 5));
      open -= 1;
      return { body: "{}" };
    };
    llm.script(
      calls(
        { name: "create_order", arguments: { sku: "first" } },
        { name: "create_order", arguments: { sku: "second" } },
      ),
      text("ok"),
    );
    await chat(tenant.client, { messages: [user("x")] });
    expect(backEnd.requests.map((request) => JSON.parse(request.body.toString()).sku)).toEqual(["first", "second"]);
    expect((await toolCalls(tenant.client)).map((call) => [call.tool, call.state])).toEqual([
      ["create_order", "completed"],
      ["create_order", "completed"],
    ]);
  });
});

describe(`hard limits ${verifies("CHAT-12")}`, () => {
  test.each([
    [{ rounds: 2 }, "rounds_exceeded"],
    [{ identical_calls: 1 }, "repeated_call"],
    [{ tokens_per_request: 30 }, "cost_exceeded"],
  ])("%j ends the run with %s, the work so far attached, never as a success", async (settings, code) => {
    const limited = await gateway.newTenant(settings);
    await limited.addProvider(llm.url);
    await limited.addPlugin(lookup());
    let turn = 0;
    llm.respond(() => {
      turn += 1;
      return calls({ name: "lookup", arguments: { q: code === "rounds_exceeded" ? String(turn) : "same" } });
    });
    const reply = await limited.client.send("post", "/v1/chat/completions", { messages: [user("x")] });
    expect([reply.status, reply.json.error.code]).toEqual([422, code]);
    await settled(limited.client);
    expect((await limited.client.get("/v1/calls?kind=chat")).data[0]).toMatchObject({
      state: "failed",
      error: { code },
    });
  });

  test("calls_per_round: none of too many runs", async () => {
    const limited = await gateway.newTenant({ calls_per_round: 2 });
    await limited.addProvider(llm.url);
    await limited.addPlugin(lookup());
    llm.script(calls(...["a", "b", "c"].map((q) => ({ name: "lookup", arguments: { q } }))));
    const reply = await limited.client.send("post", "/v1/chat/completions", { messages: [user("x")] });
    expect(reply.json.error.code).toBe("calls_exceeded");
    expect(backEnd.requests).toHaveLength(0);
  });

  test("the wall clock", async () => {
    const limited = await gateway.newTenant({ wall_clock_ms: 1_000 });
    await limited.addProvider(llm.url);
    llm.script({ writes: [chunk({ content: "a" }), chunk({ content: "b" }), chunk({}, "stop"), done], gapMs: 900 });
    const reply = await limited.client.send("post", "/v1/chat/completions", { messages: [user("x")], stream: true });
    expect((sseEvents(reply.text) as Json[]).at(-2)).toMatchObject({ error: { code: "wall_clock_exceeded" } });
  });

  test("a tool's time, with the knob in the message", async () => {
    await tenant.addPlugin(lookup("slow", { timeout_ms: 50 }));
    backEnd.answer = () => ({ body: "{}", delayMs: 400 });
    const reply = await tenant.client.send("post", "/v1/tools/invoke", { name: "slow", arguments: { q: "x" } });
    expect([reply.status, reply.json.error.code]).toEqual([504, "tool_timeout"]);
    expect(reply.json.error.message).toContain("timeout_ms");
  });

  test("calls cut by the token limit are not run, streamed or not", async () => {
    await tenant.addPlugin(writer());
    const cut = {
      writes: [
        chunk({
          role: "assistant",
          tool_calls: [
            { index: 0, id: "1", type: "function", function: { name: "create_order", arguments: '{"sku":"S1"}' } },
          ],
        }),
        chunk({
          tool_calls: [
            { index: 1, id: "2", type: "function", function: { name: "create_order", arguments: '{"sku":"S' } },
          ],
        }),
        chunk({}, "length"),
        usageChunk(1, 1),
        done,
      ],
    };
    llm.script(cut);
    const plain = await chat(tenant.client, { messages: [user("x")] });
    expect(plain.choices[0].finish_reason).toBe("length");
    const reply = await tenant.client.send("post", "/v1/chat/completions", { messages: [user("x")], stream: true });
    expect(reply.text).toContain('"finish_reason":"length"');
    expect(backEnd.requests).toHaveLength(0);
  });
});

describe(`permission ${verifies("CHAT-11", "BLIND-9")}`, () => {
  test("a key sees and runs exactly the tools it is bound to", async () => {
    await tenant.addPlugin(lookup("crm_list"));
    await tenant.addPlugin(lookup("hr_list"));
    const bound = await tenant.newKey({ tools: ["crm_*"], scopes: ["chat", "tools"] });
    llm.script(calls({ name: "hr_list", arguments: { q: "x" } }), text("no"));
    await chat(bound.client, { messages: [user("x")] }).catch(() => undefined);
    const offered = offeredTools(0).map((tool) => tool.function.name);
    expect(offered).toContain("crm_list");
    expect(offered).not.toContain("hr_list");
    expect(JSON.parse(sentMessages(1)[2].content).error.code).toBe("tool_not_found");
    expect(
      (await bound.client.send("post", "/v1/tools/invoke", { name: "hr_list", arguments: { q: "x" } })).status,
    ).toBe(404);
    const listed = (await bound.client.get("/v1/tools?limit=100")).data.map((tool: Json) => tool.name);
    expect(listed).toContain("crm_list");
    expect(listed).not.toContain("hr_list");
    expect(backEnd.requests).toHaveLength(0);
  });

  test("a disabled plugin is neither offered nor run", async () => {
    const id = await tenant.addPlugin(lookup());
    await tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: false });
    llm.script(text("ok"));
    await chat(tenant.client, { messages: [user("x")] });
    expect(llm.requests[0]?.["tools"]).toBeUndefined();
    const reply = await tenant.client.send("post", "/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
    expect([reply.status, reply.json.error.code]).toEqual([403, "service_disabled"]);
  });

  test("a sensitive tool waits: the turn ends with call and link, siblings settle, the next request has the result", async () => {
    await tenant.addPlugin({ ...writer("wire_money"), sensitive: true });
    await tenant.addPlugin(lookup());
    llm.script(calls({ name: "wire_money", arguments: { sku: "1" } }, { name: "lookup", arguments: { q: "x" } }));
    const waiting = await chat(tenant.client, { messages: [user("pay")], session_id: "s-approve" });
    const [pending] = waiting.tool_execution.pending;
    expect(pending).toMatchObject({ tool: "wire_money", reason: "approval" });
    expect(waiting.choices[0].message.content).toContain(pending.call_id);
    expect(waiting.choices[0].message.content).toContain(pending.url);
    expect(waiting.choices[0].finish_reason).toBe("stop");
    expect(backEnd.requests.map((request) => request.method)).toEqual(["GET"]);
    await tenant.client.post(`/v1/calls/${pending.call_id}/approve`);
    await expect
      .poll(async () => (await tenant.client.get(`/v1/calls/${pending.call_id}`)).state, { timeout: 10_000 })
      .toBe("completed");
    expect(backEnd.requests.map((request) => request.method)).toEqual(["GET", "POST"]);
    llm.script(text("paid"));
    await chat(tenant.client, { messages: [user("and now?")], session_id: "s-approve" });
    const sent = llm.requests.at(-1)?.["messages"] as Json[];
    expect(sent.map((message) => message.role)).toEqual(["assistant", "tool", "user"]);
    expect(sent[1].content).toBe('{"ok":true}');
    await chat(tenant.client, { messages: [user("again")], session_id: "s-approve" });
    expect(llm.requests.at(-1)?.["messages"]).toHaveLength(1);
  });

  test("a refused call is not run and says so", async () => {
    await tenant.addPlugin({ ...writer("wire_money"), sensitive: true });
    const asked = await tenant.client.send("post", "/v1/tools/invoke", { name: "wire_money", arguments: { sku: "1" } });
    expect([asked.status, asked.json.status]).toEqual([202, "input_required"]);
    const refused = await tenant.client.post(`/v1/calls/${asked.json.id}/reject`, { reason: "too much" });
    expect(refused).toMatchObject({ state: "rejected" });
    expect((await tenant.client.send("post", `/v1/calls/${asked.json.id}/approve`, {})).status).toBe(409);
    expect(backEnd.requests).toHaveLength(0);
  });

  test("an approval is for the definition that was shown: a changed one is not run", async () => {
    const id = await tenant.addPlugin({ ...writer("wire_money"), sensitive: true });
    const asked = await tenant.client.post("/v1/tools/invoke", { name: "wire_money", arguments: { sku: "1" } });
    const definition =
      (await tenant.client.get(`/v1/plugins/${id}`)).definition ?? (await tenant.client.get(`/v1/plugins/${id}`));
    await tenant.client.expect("put", `/v1/plugins/${id}`, {
      ...pick(definition),
      sensitive: true,
      description: "Now it does something else.",
    });
    await tenant.client.post(`/v1/calls/${asked.id}/approve`);
    const call = (): Promise<Json> => tenant.client.get(`/v1/calls/${asked.id}`);
    await expect.poll(async () => (await call()).state, { timeout: 10_000 }).toBe("failed");
    expect((await call()).error).toMatchObject({
      code: "conflict",
      message: "The definition of 'wire_money' was changed since this call was asked for; ask again.",
    });
    expect(backEnd.requests).toHaveLength(0);
  });
});

function pick(definition: Json): Json {
  const { schema_version, name, description, parameters, execution } = definition;
  return { schema_version, name, description, parameters, execution };
}
