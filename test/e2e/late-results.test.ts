/** Results that come after their answer: what the model was not told stays due, whatever became of the request. */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, chunk, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let session: string;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  backEnd.answer = () => ({ body: '{"order":"o-1"}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { max_attempts: 1 });
  await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
  session = newId("session");
  await orderLater();
  llm.requests.length = 0;
});

const bodyOf = (more: Json): Json => ({
  model: "stub-1",
  session_id: session,
  messages: [{ role: "user", content: "go" }],
  ...more,
});

/** A request of the session, and its settlement. */
async function ask(more: Json = {}, signal?: AbortSignal): Promise<Json> {
  const options = signal === undefined ? {} : { signal };
  const reply = await tenant.client
    .send("post", "/v1/chat/completions", bodyOf(more), options)
    .catch((thrown: unknown) => ({ status: 0, json: { thrown } }));
  await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data).toEqual([]);
  return reply;
}

/** A person approves an order after its answer. */
async function orderLater(): Promise<void> {
  llm.script(calls({ name: "create_order", arguments: { sku: "S1" } }));
  const { json } = await ask();
  const [{ call_id: id }] = json.tool_execution.pending;
  await tenant.client.post(`/v1/calls/${id}/approve`);
  await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
}

/** What a request to the model told of results. */
function toldIn(request: object | undefined): readonly string[] {
  const { messages = [] } = (request ?? {}) as { readonly messages?: readonly Json[] };
  return messages.filter(({ role }) => role === "tool").map(({ content }) => content);
}

/** The last one. */
function toldLast(): readonly string[] {
  return toldIn(llm.requests.at(-1));
}

const order = '{"order":"o-1"}';
const filtered = {
  json: { error: { message: "The prompt was filtered.", type: "invalid_request_error", code: "content_filter" } },
  status: 400,
};

/** A back end that takes no request with the order in it. */
function filterOrders(answer: Round): void {
  llm.respond((request) => (JSON.stringify(request).includes("o-1") ? filtered : answer));
}

/** As Mistral's server puts it. */
function mistralRefuses(messages: readonly Json[]): string | undefined {
  for (const [at, { role, tool_calls: made = [], tool_call_id: id }] of messages.entries()) {
    const before = messages[at - 1]?.role;
    if (before === "tool" && role !== "tool" && role !== "assistant")
      return `Unexpected role '${role}' after role 'tool'`;
    const odd = [id, ...made.map((call: Json) => call.id)].find((each) => each && !/^[a-zA-Z0-9]{9}$/.test(each));
    if (odd !== undefined) return `Tool call id was ${odd} but must be a-z, A-Z, 0-9, with a length of 9.`;
  }
  return undefined;
}

function geminiRefuses(messages: readonly Json[]): string | undefined {
  const calls = messages.findIndex((message) => message.tool_calls !== undefined);
  return ["user", "tool"].includes(messages[calls - 1]?.role)
    ? undefined
    : "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
}

const overloaded = { json: { error: { message: "overloaded", type: "server_error" } }, status: 503 };

describe(`a result that comes late ${verifies("CHAT-11")}`, () => {
  test("is told once to a model that reads on although its back end refuses what it reads", async () => {
    llm.respond((request) => {
      const all = JSON.stringify(request);
      if (all.includes("o-1")) return filtered;
      const [, id] = /read_result {\\+"call_id\\+":\\+"(\w+)/.exec(all) ?? [];
      return id === undefined ? text("Hello.") : calls({ name: "read_result", arguments: { call_id: id } });
    });
    const { status, json } = await ask();
    expect(status).toBe(400);
    expect(json.error.message).toMatch(/not told again: call_\w+\. GET/);
    expect(llm.requests).toHaveLength(3);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([]);
  });

  test("is told to the model once, by the session's next request that is answered", async () => {
    llm.script(overloaded, text("It is ordered."));
    expect((await ask()).status).toBe(503);
    expect(toldLast()).toEqual([order]);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([order]);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([]);
  });

  test("is told again where the client left before the answer was complete", async () => {
    const slow = { writes: [chunk({ content: "It" }), chunk({ content: " is" })], gapMs: 5_000 };
    for (const [stream, round] of [[false, { json: {}, delayMs: 5_000 }] as const, [true, slow] as const]) {
      const left = new AbortController();
      llm.respond(() => {
        setTimeout(() => left.abort(), 200);
        return round;
      });
      await ask({ stream }, left.signal);
      expect(toldLast()).toEqual([order]);
    }
    llm.script(text("It is ordered."));
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is told again where a later turn failed: what the model made of it is in no answer", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    llm.script(calls({ name: "lookup", arguments: { q: "o-1" } }), overloaded);
    expect((await ask()).status).toBe(503);
    llm.script(text("It is ordered."));
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is told again to a model that makes pictures, where it was not answered", async () => {
    await tenant.client.expect("patch", "/v1/settings", { whitelist_image_models: ["stub-1"] });
    llm.script(overloaded);
    expect((await ask()).status).toBe(503);
    llm.script(text("a picture"));
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([order]);
    await ask();
    expect(toldLast()).toEqual([]);
  });
});

describe(`a result that the model is told in another way ${verifies("CHAT-11")}`, () => {
  test("in the answer that waited for the decision is not told a second time", async () => {
    llm.script(text("It is ordered."));
    await ask();
    await tenant.client.expect("patch", "/v1/settings", { approval_wait_s: 20 });
    llm.script(calls({ name: "create_order", arguments: { sku: "S2" } }), text("It is ordered."));
    const answering = ask();
    const waiting = async (): Promise<Json[]> => (await tenant.client.get("/v1/calls?state=input_required")).data;
    await expect.poll(async () => (await waiting()).length).toBe(1);
    await tenant.client.post(`/v1/calls/${(await waiting())[0].id}/approve`);
    expect((await answering).json.choices[0].message.content).toBe("It is ordered.");
    expect(toldLast()).toEqual([order]);
    await ask();
    expect(toldLast()).toEqual([]);
  });

  test("beside one that still waits is told again: the answer names that alone", async () => {
    llm.script(text("It is ordered."));
    await ask();
    await tenant.client.expect("patch", "/v1/settings", { approval_wait_s: 4 });
    const ordered = (sku: string) => ({ name: "create_order", arguments: { sku } });
    llm.script(calls(ordered("S2"), ordered("S3")), text("It is ordered."));
    const answering = ask();
    const waiting = async (): Promise<Json[]> => (await tenant.client.get("/v1/calls?state=input_required")).data;
    await expect.poll(async () => (await waiting()).length).toBe(2);
    await tenant.client.post(`/v1/calls/${(await waiting())[0].id}/approve`);
    expect((await answering).json.tool_execution.pending).toHaveLength(1);
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("by a request that runs no tools is not lost with a client that asks again", async () => {
    llm.script(text("It is ordered."), text("I do not know."));
    const body = bodyOf({ tool_choice: "none" });
    await tenant.client.send("post", "/v1/chat/completions", body);
    const retry = { headers: { "x-stainless-retry-count": "1" } };
    const { json } = await tenant.client.send("post", "/v1/chat/completions", body, retry);
    expect([json.choices[0].message.content, llm.requests.length]).toEqual(["It is ordered.", 1]);
  });

  test("by an answer that an SDK asks for again is in what it is given", async () => {
    llm.script(text("It is ordered."), text("I do not know."));
    await ask();
    const retry = { headers: { "x-stainless-retry-count": "1" } };
    const { json } = await tenant.client.send("post", "/v1/chat/completions", bodyOf({}), retry);
    expect(json.choices[0].message.content).toBe("It is ordered.");
    expect(llm.requests).toHaveLength(1);
  });

  test("before a turn that only says what waits for a person is told again", async () => {
    llm.script(calls({ name: "create_order", arguments: { sku: "S2" } }), text("The first is ordered."));
    expect((await ask()).json.tool_execution.pending).toHaveLength(1);
    expect(toldLast()).toEqual([order]);
    await ask();
    expect(toldLast()).toEqual([order]);
    await ask();
    expect(toldLast()).toEqual([]);
  });

  test("stays before the question that it came with where the client goes on with the turn", async () => {
    const tools = [{ type: "function", function: { name: "mine", parameters: { type: "object" } } }];
    llm.script(calls({ name: "mine", arguments: {} }), text("ok"));
    const [{ message }] = (await ask({ tools })).json.choices;
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "done" };
    const next = bodyOf({ tools, messages: [...bodyOf({})["messages"], message, result] });
    await ask(next);
    const [first, second] = llm.requests.map(({ messages }) => messages as Json[]);
    expect(first?.map(({ role }) => role)).toEqual(["assistant", "tool", "user"]);
    expect(second?.slice(0, 3)).toEqual(first);
    // Whoever cannot have them is told so, and does not go on without them.
    const { client } = await tenant.newKey();
    const reply = await client.send("post", "/v1/chat/completions", { ...next, session_id: undefined });
    expect([reply.status, reply.json.error.code]).toEqual([410, "tool_turn_expired"]);
  });
});

describe(`a turn of both kinds whose call of ours has ended since ${verifies("CHAT-4", "CHAT-11")}`, () => {
  test.each([
    ["mistral-large-latest", mistralRefuses],
    ["gemini-3-pro", geminiRefuses],
  ])("is told to %s, whose server takes conversations in one order only", async (name, refuses) => {
    await tenant.addProvider(llm.url, { models: { theirs: name }, max_attempts: 1 });
    llm.respond(({ messages }) => {
      const message = refuses(messages as Json[]);
      return message === undefined ? text("It is ordered.") : { status: 400, json: { object: "error", message } };
    });
    const messages = [
      { role: "user", content: "Order S1." },
      { role: "assistant", content: "It waits for approval." },
      { role: "user", content: "Is it done?" },
    ];
    expect((await ask({ model: "theirs", messages })).status).toBe(200);
    expect([llm.requests.length, toldLast()]).toEqual([1, [order]]);
    const said = llm.requests.flatMap((request) => request["messages"] as Json[]);
    const words = messages.map(({ content }) => content);
    expect(said.map(({ content }) => content)).toEqual(expect.arrayContaining(words));
  });

  test("does not say behind the result that it still waits, now or in the turns after it", async () => {
    llm.script(text("It is ordered."));
    await ask();
    const tools = [{ type: "function", function: { name: "theirs" } }];
    const theirs = { name: "theirs", arguments: {} };
    llm.script(calls({ name: "create_order", arguments: { sku: "S2" } }, theirs), calls(theirs), text("Done."));
    const messages: Json[] = bodyOf({})["messages"];
    const goOn = async (): Promise<Json> => {
      const { json } = await ask({ tools, messages });
      const { message } = json.choices[0];
      for (const { id } of message.tool_calls ?? []) {
        messages.push(message, { role: "tool", tool_call_id: id, content: "done" });
      }
      return json;
    };
    const [{ call_id: id }] = (await goOn()).tool_execution.pending;
    await tenant.client.post(`/v1/calls/${id}/approve`);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
    await goOn();
    const told = { status: "ended", call_id: id, message: expect.stringContaining(id) as unknown };
    const [result, ours, other] = toldLast();
    expect([result, JSON.parse(ours ?? ""), other]).toEqual([order, told, "done"]);
    await goOn();
    expect(toldLast()).toEqual([result, ours, "done", "done"]);
  });
});

describe(`a request that names no session ${verifies("CHAT-4", "CHAT-11")}`, () => {
  test("is told of what waits in the session that its answer names", async () => {
    llm.script(calls({ name: "create_order", arguments: { sku: "S2" } }), text("It is ordered."));
    const { tool_execution: told } = (await ask({ session_id: undefined })).json;
    const [{ call_id: id }] = told.pending;
    await tenant.client.post(`/v1/calls/${id}/approve`);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
    await ask({ session_id: told.session_id });
    expect(toldLast()).toEqual([order]);
  });
});

describe(`a late result that the model's back end does not take ${verifies("CHAT-11")}`, () => {
  test.each([false, true])(
    "is left out of what it is asked next, and the session goes on (stream: %s)",
    async (stream) => {
      filterOrders(text("Hello."));
      expect((await ask({ stream })).status).toBe(200);
      expect(toldIn(llm.requests[0])).toEqual([order]);
      expect(toldLast()).toEqual([expect.stringMatching(/call_\w+.*read_result/)]);
      expect((await ask({ stream })).status).toBe(200);
      expect(toldLast()).toEqual([]);
      expect(llm.requests).toHaveLength(3);
    },
  );

  test("is told again where the request is refused without it as well", async () => {
    llm.script(filtered, filtered, text("It is ordered."));
    expect((await ask()).json.error.code).toBe("content_filter");
    expect(llm.requests).toHaveLength(2);
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is left out where pictures of a turn before were left out in vain, and stands before the question", async () => {
    await tenant.addPlugin(readingTool(backEnd, "draw"));
    const picture = Buffer.from("\x89PNG\r\n\x1a\n........", "latin1");
    backEnd.answer = () => ({ headers: { "content-type": "image/png" }, body: picture });
    const tools = [{ type: "function", function: { name: "mine", parameters: { type: "object" } } }];
    llm.script(calls({ name: "mine", arguments: {} }, { name: "draw", arguments: { q: "x" } }));
    const { json } = await ask({ tools, session_id: newId("session") });
    const { message } = json.choices[0];
    const [{ id }] = message.tool_calls;
    const messages = [...bodyOf({})["messages"], message, { role: "tool", tool_call_id: id, content: "done" }];
    filterOrders(text("Hello."));
    expect((await ask({ tools, messages })).status).toBe(200);
    const [, first, , last] = llm.requests.map((request) => (request["messages"] as Json[]).map(({ role }) => role));
    expect(first).toEqual(["assistant", "tool", "user", "assistant", "tool", "tool", "user"]);
    expect(last).toEqual(first?.slice(0, -1));
    expect(toldLast()[0]).toMatch(/call_\w+.*read_result/);
  });

  test("is left out of the later turns of that answer, too, and of the turn that the client goes on with", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    backEnd.answer = () => ({ body: '{"price":5}' });
    const tools = [{ type: "function", function: { name: "mine", parameters: { type: "object" } } }];
    const rounds = [
      calls({ name: "lookup", arguments: { q: "x" } }),
      calls({ name: "mine", arguments: {} }),
      text("ok"),
    ];
    llm.respond((request) => (JSON.stringify(request).includes("o-1") ? filtered : (rounds.shift() ?? text("ok"))));
    const { json } = await ask({ tools });
    const { message } = json.choices[0];
    const [{ id }] = message.tool_calls;
    const messages = [...bodyOf({})["messages"], message, { role: "tool", tool_call_id: id, content: "done" }];
    expect((await ask({ tools, messages })).status).toBe(200);
    expect(JSON.stringify(llm.requests.slice(1))).not.toContain("o-1");
    expect(toldLast()).toHaveLength(3);
  });

  test("is left out for a model that makes pictures", async () => {
    await tenant.client.expect("patch", "/v1/settings", { whitelist_image_models: ["stub-1"] });
    filterOrders(text("a picture"));
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toHaveLength(1);
    expect((await ask()).status).toBe(200);
    expect(toldLast()).toEqual([]);
  });

  test("is left out in VCP's dialect", async () => {
    filterOrders(text("Hello."));
    expect((await ask({ tool_protocol: "vcp" })).status).toBe(200);
    expect(JSON.stringify(llm.requests.at(-1))).toMatch(/create_order \(call_\w+\):.*read_result/);
    expect((await ask({ tool_protocol: "vcp" })).status).toBe(200);
    expect(llm.requests).toHaveLength(3);
  });

  test("is named where the answer takes too long that was to be given without it", async () => {
    await tenant.client.expect("patch", "/v1/settings", { wall_clock_ms: 1_000 });
    const slow = { writes: [chunk({ content: "It" }), chunk({ content: " is" })], gapMs: 5_000 };
    filterOrders(slow);
    const { text: said } = await ask({ stream: true });
    expect(said).toMatch(/wall_clock_ms.*not told again: call_\w+/);
    await tenant.client.expect("patch", "/v1/settings", { wall_clock_ms: 60_000 });
    filterOrders(text("Hello."));
    await ask();
    expect(toldLast()).toEqual([]);
  });

  test("is told again where the client left the answer that was to be given without it", async () => {
    const left = new AbortController();
    llm.respond((request) => {
      if (JSON.stringify(request).includes("o-1")) return filtered;
      setTimeout(() => left.abort(), 200);
      return { writes: [chunk({ content: "It" }), chunk({ content: " is" })], gapMs: 5_000 };
    });
    await ask({ stream: true }, left.signal);
    llm.script(text("It is ordered."));
    await ask();
    expect(toldLast()).toEqual([order]);
  });

  test("is named, and not told again, where the answer is refused after it has begun", async () => {
    const broken = { writes: [chunk({ content: "It" }), `data: ${JSON.stringify(filtered.json)}\n\n`] };
    llm.script(broken, text("Hello."));
    const reply = await tenant.client.send("post", "/v1/chat/completions", bodyOf({ stream: true }));
    expect(reply.text).toMatch(/not told again: call_\w+/);
    await expect.poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data).toEqual([]);
    await ask();
    expect(toldLast()).toEqual([]);
  });
});
