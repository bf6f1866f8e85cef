/** Agents as chat models and as tools: what they may call, whom they hand over to, and where they are stopped. */
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let second: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let client: Client;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  second = await startGateway({ sharedWith: gateway });
});

afterAll(async () => {
  await second.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"found":"42"}' });
  tenant = await gateway.newTenant();
  ({ client } = tenant);
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(plugin("lookup", "GET"));
  await tenant.addPlugin(plugin("create_order", "POST"));
});

function plugin(name: string, method: string): Json {
  return {
    name,
    parameters: { type: "object", properties: { q: { type: "string" } } },
    execution: {
      method,
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: method === "GET" ? "query" : "body",
    },
  };
}

const user = (content: string): Json => ({ role: "user", content });

function addAgent(name: string, change: Json = {}): Promise<Json> {
  return client.post("/v1/agents", { name, model: "stub-1", instructions: `You are ${name}.`, ...change });
}

function ask(agent: string, change: Json = {}, path = "/v1/chat/completions"): Promise<Json> {
  return client.post(path, { model: `agent/${agent}`, messages: [user("help")], ...change });
}

function sentMessages(at: number): Json[] {
  return llm.requests[at]?.["messages"] as Json[];
}

function offered(at: number): string[] {
  return ((llm.requests[at]?.["tools"] ?? []) as Json[]).map((tool) => tool.function.name as string);
}

/** Answers by who is speaking, which the instructions tell. */
function bySpeaker(rounds: Readonly<Record<string, readonly Round[]>>): void {
  const at: Record<string, number> = {};
  llm.respond((body) => {
    const [first] = body["messages"] as Json[];
    const name = /You are ([\w-]+)\./.exec(String(first?.content))?.[1] ?? "nobody";
    const script = rounds[name] ?? [];
    const turn = (at[name] = (at[name] ?? -1) + 1);
    return script[Math.min(turn, script.length - 1)] ?? text(`${name} has nothing to say`);
  });
}

const transfer = (to: string, reason: string): Round => calls({ name: `transfer_to_${to}`, arguments: { reason } });

async function settledTree(): Promise<Json[]> {
  await expect.poll(async () => (await client.get("/v1/calls?state=running")).data.length).toBe(0);
  return (await client.get("/v1/calls?order=asc&limit=100")).data;
}

describe(`an agent as a chat model ${verifies("AGENT-1", "CHAT-16")}`, () => {
  test("is listed, and answers with its instructions, parameters and model", async () => {
    await addAgent("support", { parameters: { temperature: 0.2, max_tokens: 50 } });
    llm.script(text("hello"));
    expect((await client.get("/v1/models")).data).toContainEqual(
      expect.objectContaining({ id: "agent/support", owned_by: "toolyard" }),
    );
    expect(await client.get("/v1/models/agent/support")).toMatchObject({ id: "agent/support" });
    const answer = await ask("support", { temperature: 0.9 });
    expect(answer.choices[0]).toMatchObject({ message: { content: "hello" }, finish_reason: "stop" });
    expect(llm.requests[0]).toMatchObject({ model: "stub-1", temperature: 0.9, max_tokens: 50 });
    expect(sentMessages(0)).toEqual([{ role: "system", content: "You are support." }, user("help")]);
    const [row] = await settledTree();
    expect(row).toMatchObject({ kind: "chat", tool: "agent/support", uri: "agent://support", state: "completed" });
    expect(row.caller.chain).toContainEqual({ kind: "agent", id: "support" });
  });

  test("an unmodified OpenAI SDK streams it, at a second instance too", async () => {
    await addAgent("support", { tools: ["lookup"] });
    bySpeaker({ support: [calls({ name: "lookup", arguments: { q: "x" } }), text("found 42")] });
    const openai = new OpenAI({ baseURL: `${second.url}/v1`, apiKey: tenant.key, maxRetries: 0 });
    const stream = openai.chat.completions.stream({
      model: "agent/support",
      messages: [{ role: "user", content: "help" }],
    });
    expect(await stream.finalContent()).toBe("found 42");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("that is disabled, unknown or asked for what agents do not do is refused by name", async () => {
    const { id } = await addAgent("support");
    const post = (body: Json) => client.send("post", "/v1/chat/completions", { messages: [user("hi")], ...body });
    expect((await post({ model: "agent/nobody" })).json.error).toMatchObject({ code: "model_not_found" });
    const tools = [{ type: "function", function: { name: "own", parameters: { type: "object" } } }];
    expect((await post({ model: "agent/support", tools })).json.error).toMatchObject({
      code: "invalid_request",
      param: "tools",
    });
    expect((await post({ model: "agent/support", n: 2 })).json.error).toMatchObject({ param: "n" });
    await client.expect("patch", `/v1/agents/${id}`, { enabled: false });
    expect((await post({ model: "agent/support" })).json.error).toMatchObject({
      code: "agent_disabled",
      message: expect.stringContaining(`PATCH /v1/agents/${id} {"enabled": true}`),
    });
    const invoked = await client.send("post", "/v1/tools/invoke", {
      uri: "agent://support",
      arguments: { prompt: "x" },
    });
    expect(invoked.json.error).toMatchObject({
      code: "service_disabled",
      message: expect.stringContaining(`PATCH /v1/agents/${id} {"enabled": true}`),
    });
    expect((await client.get("/v1/models")).data.map((model: Json) => model.id)).not.toContain("agent/support");
    expect(llm.requests).toHaveLength(0);
  });

  test("is changed by several at once, and each of them counts", async () => {
    const { id } = await addAgent("support");
    const changes = { description: "one", instructions: "two", tools: ["three"], parameters: { seed: 4 } };
    await Promise.all(
      Object.entries(changes).map(([field, value], at) =>
        (at % 2 === 0 ? gateway : second).client(tenant.key).expect("patch", `/v1/agents/${id}`, { [field]: value }),
      ),
    );
    expect(await client.get(`/v1/agents/${id}`)).toMatchObject(changes);
  });

  test("takes tools of clients where it says so, and returns their calls", async () => {
    await addAgent("support", { allow_client_tools: true, tools: ["lookup"] });
    const tools = [{ type: "function", function: { name: "own", parameters: { type: "object" } } }];
    bySpeaker({ support: [calls({ name: "own", arguments: {} })] });
    const answer = await ask("support", { tools });
    expect(answer.choices[0]).toMatchObject({ finish_reason: "tool_calls" });
    expect(offered(0).sort()).toEqual(["lookup", "own", "read_result"]);
  });
});

describe(`agent:// ${verifies("AGENT-1")}`, () => {
  const invoke = (uri: string, args: Json): Promise<Json> => client.post("/v1/tools/invoke", { uri, arguments: args });

  test("calls the model with prompt and context, and returns the answer", async () => {
    await addAgent("sample-agent");
    llm.script(text("It is 42."));
    const call = await invoke("agent://sample-agent", { prompt: "How many?", context: { order: 7 } });
    expect(call).toMatchObject({ status: "completed", content: "It is 42." });
    expect(sentMessages(0).at(-1)).toEqual(user('Context:\n{"order":7}\n\nHow many?'));
    const [chat] = (await client.get(`/v1/calls?parent_id=${call.id}`)).data;
    expect(chat).toMatchObject({ kind: "chat", tool: "agent/sample-agent", route: "agent" });
    llm.script(text("Of what?"));
    await invoke("agent://sample-agent", { prompt: "How many?", context: null });
    expect(sentMessages(1).at(-1)).toEqual(user("How many?"));
  });

  test("takes a conversation, says what is missing, and is not there under another name", async () => {
    await addAgent("sample-agent");
    llm.script(text("yes"));
    const messages = [user("a"), { role: "assistant", content: "b" }];
    await invoke("agent://sample-agent", { messages, prompt: "c" });
    expect(sentMessages(0).slice(1)).toEqual([...messages, user("c")]);
    const empty = await client.send("post", "/v1/tools/invoke", { uri: "agent://sample-agent", arguments: {} });
    expect(empty.json.error).toMatchObject({ code: "invalid_arguments", param: "prompt" });
    const missing = await client.send("post", "/v1/tools/invoke", {
      uri: "agent://other",
      arguments: { prompt: "x" },
    });
    expect(missing.json.error).toMatchObject({ code: "tool_not_found" });
    expect(missing.json.error.message).toContain("POST /v1/agents");
  });

  test("runs later for who does not wait, for a key that has no chats", async () => {
    await addAgent("sample-agent");
    llm.script(text("later"));
    const key = await tenant.newKey({ scopes: ["tools"] });
    const { json } = await key.client.send("post", "/v1/tools/invoke", {
      uri: "agent://sample-agent?async=true",
      arguments: { prompt: "x" },
    });
    await expect
      .poll(async () => (await client.get(`/v1/calls/${json.call_id ?? json.id}`)).state, { timeout: 10_000 })
      .toBe("completed");
  });
});

describe(`what is bound ${verifies("AGENT-2", "CHAT-11")}`, () => {
  test("is offered and run; all else is an error for the model, on record, and never sent", async () => {
    await addAgent("support", { tools: ["lookup"] });
    bySpeaker({
      support: [
        calls({ name: "lookup", arguments: { q: "a" } }, { name: "create_order", arguments: { q: "b" } }),
        text("done"),
      ],
    });
    const reply = await client.send("post", "/api/chat/completions", {
      model: "agent/support",
      messages: [user("x")],
      stream: true,
    });
    expect(offered(0).sort()).toEqual(["lookup", "read_result"]);
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/lookup?q=a"]);
    const results = sseEvents(reply.text).filter((event: Json) => event.type === "tool_result") as Json[];
    expect(results.map(({ result }) => result.success)).toEqual([true, false]);
    expect(results[1]?.result.content).toContain("tool_not_bound");
    expect(sentMessages(1).at(-1).content).toContain("tool_not_bound");
    const row = (await settledTree()).find(({ tool }) => tool === "create_order");
    expect(row).toMatchObject({ state: "rejected", error: { code: "tool_not_bound" } });
    expect(row.caller.chain).toContainEqual({ kind: "agent", id: "support" });
  });

  test("is never more than the caller may", async () => {
    await addAgent("support", { tools: ["*"] });
    const key = await tenant.newKey({ tools: ["lookup"] });
    bySpeaker({ support: [calls({ name: "create_order", arguments: { q: "b" } }), text("done")] });
    await key.client.post("/v1/chat/completions", { model: "agent/support", messages: [user("x")] });
    expect(offered(0)).toEqual(["lookup"]);
    expect(backEnd.requests).toHaveLength(0);
    expect(sentMessages(1).at(-1).content).toContain("tool_not_found");
  });

  test("holds for a model that asks in its text", async () => {
    await addAgent("oracle", {
      tool_protocol: "vcp",
      tools: ["lookup"],
      instructions: "You are oracle. {{VCPAllTools}}",
    });
    const request = (tool: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${tool}「末」,\nq:「始」z「末」\n<<<[END_TOOL_REQUEST]>>>`;
    bySpeaker({ oracle: [text(`${request("lookup")}\n${request("create_order")}`), text("all done")] });
    const answer = await ask("oracle");
    expect(answer.choices[0].message.content).toContain("all done");
    expect(sentMessages(0)[0].content).toContain("lookup");
    expect(sentMessages(0)[0].content).not.toContain("create_order");
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/lookup?q=z"]);
    const rows = await settledTree();
    expect(rows.find(({ tool }) => tool === "create_order")?.error).toMatchObject({ code: "tool_not_bound" });
  });
});

describe(`handing over ${verifies("AGENT-3")}`, () => {
  test.each([true, false])("keeps the conversation and passes the reason (stream: %s)", async (stream) => {
    await addAgent("front", { handoffs: ["billing"], tools: ["lookup"] });
    await addAgent("billing", { tools: ["create_order"], model: "stub-1", parameters: { top_p: 0.5 } });
    bySpeaker({
      front: [transfer("billing", "it is about money")],
      billing: [calls({ name: "create_order", arguments: { q: "refund" } }), text("Refunded.")],
    });
    const reply = await client.send("post", "/api/chat/completions", {
      model: "agent/front",
      messages: [user("refund me")],
      stream,
    });
    expect(offered(0).sort()).toEqual(["lookup", "read_result", "transfer_to_billing"]);
    expect(offered(1).sort()).toEqual(["create_order", "read_result"]);
    expect(llm.requests[1]).toMatchObject({ top_p: 0.5 });
    const [instructions, asked, call, result] = sentMessages(1);
    expect([instructions, asked]).toEqual([{ role: "system", content: "You are billing." }, user("refund me")]);
    expect(call.tool_calls[0].function.name).toBe("transfer_to_billing");
    expect(JSON.parse(result.content)).toEqual({
      transferred_from: "front",
      transferred_to: "billing",
      reason: "it is about money",
    });
    const events = stream ? (sseEvents(reply.text) as Json[]) : [];
    const told = { type: "agent.handoff", from: "front", to: "billing", reason: "it is about money" };
    expect(events.filter(({ type }) => type === told.type)).toEqual(stream ? [told] : []);
    const pieces = events.flatMap((event) => (event.type === "content" ? [event.delta.content] : []));
    expect(stream ? pieces.join("") : reply.json.choices[0].message.content).toBe("Refunded.");
    const rows = await settledTree();
    const chat = rows.find(({ kind }) => kind === "chat");
    const handoff = rows.find(({ tool }) => tool === "transfer_to_billing");
    expect(handoff).toMatchObject({
      uri: "agent://billing",
      parent_id: chat.id,
      state: "completed",
      input: { reason: "it is about money" },
    });
    expect(rows.find(({ tool }) => tool === "create_order").caller.chain).toContainEqual({
      kind: "agent",
      id: "billing",
    });
  });

  test("is one clean message of one assistant on /v1", async () => {
    await addAgent("front", { handoffs: ["billing"] });
    await addAgent("billing");
    bySpeaker({ front: [transfer("billing", "money")], billing: [text("Hello from billing.")] });
    const reply = await client.send("post", "/v1/chat/completions", {
      model: "agent/front",
      messages: [user("x")],
      stream: true,
    });
    const chunks = sseEvents(reply.text).filter((event) => event !== "[DONE]") as Json[];
    const deltas = chunks.flatMap((chunk) => chunk.choices.map((choice: Json) => choice.delta));
    expect(deltas.filter((delta) => delta.role === "assistant")).toHaveLength(1);
    expect(deltas.some((delta) => delta.tool_calls !== undefined)).toBe(false);
    expect(deltas.map((delta) => delta.content ?? "").join("")).toBe("Hello from billing.");
    expect(
      chunks.flatMap((chunk) => chunk.choices).filter((choice: Json) => choice.finish_reason !== null),
    ).toHaveLength(1);
  });

  test("works for models that ask in their text", async () => {
    await addAgent("front", { tool_protocol: "vcp", handoffs: ["sage", "clerk"] });
    await addAgent("sage", { tool_protocol: "vcp", instructions: "You are sage. The year is {{Year}}." });
    await addAgent("clerk");
    await client.expect("put", "/v1/vcp/variables", { name: "Year", content: "2026" }).catch(() => undefined);
    const request = (to: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」transfer_to_${to}「末」,\nreason:「始」too hard「末」\n<<<[END_TOOL_REQUEST]>>>`;
    bySpeaker({ front: [text(request("clerk")), text(request("sage"))], sage: [text("Know thyself.")] });
    const answer = await ask("front", {}, "/v1/chatvcp/completions");
    expect(answer.choices[0].message.content).toContain("Know thyself.");
    expect(sentMessages(0)[0].content).toContain("tool_name:「始」transfer_to_sage「末」");
    // They would not understand what was said.
    expect(JSON.stringify(sentMessages(1).at(-1))).toContain("tool_protocol");
    expect(sentMessages(2)[0].content).toMatch(/^You are sage\./);
    expect(JSON.stringify(sentMessages(2))).toContain("too hard");
    expect(JSON.stringify(sentMessages(2))).not.toContain("You are front");
  });

  test("goes on in the dialect of who goes on", async () => {
    await addAgent("front", { tool_protocol: "vcp", handoffs: ["clerk"] });
    await addAgent("clerk", { tool_protocol: "vcp", tools: ["lookup"] });
    const request = (tool: string, field: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${tool}「末」,\n${field}:「始」z「末」\n<<<[END_TOOL_REQUEST]>>>`;
    bySpeaker({
      front: [text(request("transfer_to_clerk", "reason"))],
      clerk: [text(`One moment. ${request("lookup", "q")}`), text("It is 7.")],
    });
    const answer = await ask("front");
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/lookup?q=z"]);
    expect(answer.choices[0].message.content).toMatch(/One moment\.[^]*It is 7\.$/);
  });

  test("to whom it may not, or who is not there, is an error for the model", async () => {
    await addAgent("front", { handoffs: ["away", "nobody"] });
    await addAgent("away", { enabled: false });
    await addAgent("billing");
    bySpeaker({
      front: [
        calls(
          { id: "1", name: "transfer_to_away", arguments: { reason: "r" } },
          { id: "2", name: "transfer_to_nobody", arguments: { reason: "r" } },
          { id: "3", name: "transfer_to_billing", arguments: { reason: "r" } },
        ),
        text("I stay."),
      ],
    });
    const answer = await ask("front");
    expect(answer.choices[0].message.content).toBe("I stay.");
    const told = sentMessages(1)
      .slice(-3)
      .map(({ content }) => JSON.parse(content).error.code as string);
    expect(told).toEqual(["agent_disabled", "agent_not_found", "tool_not_found"]);
  });

  test.each([true, false])("round and round ends the run, with what was said (stream: %s)", async (stream) => {
    await addAgent("ping", { handoffs: ["pong"] });
    await addAgent("pong", { handoffs: ["ping"] });
    llm.respond((body) => {
      const isPing = String((body["messages"] as Json[])[0].content).includes("ping");
      return transfer(isPing ? "pong" : "ping", "not mine");
    });
    const reply = await client.send("post", "/v1/chat/completions", {
      model: "agent/ping",
      messages: [user("x")],
      stream,
    });
    expect(reply.text).toContain("handoff_loop");
    expect(llm.requests).toHaveLength(3);
    expect((await settledTree()).find(({ kind }) => kind === "chat")).toMatchObject({
      state: "failed",
      error: { code: "handoff_loop" },
    });
  });

  test("more often than its limit ends the run", async () => {
    await addAgent("front", { handoffs: ["b"], limits: { handoffs: 1 } });
    await addAgent("b", { handoffs: ["c"] });
    await addAgent("c");
    bySpeaker({ front: [transfer("b", "1")], b: [transfer("c", "2")] });
    const reply = await client.send("post", "/v1/chat/completions", { model: "agent/front", messages: [user("x")] });
    expect(reply.status).toBe(422);
    expect(reply.json.error).toMatchObject({ code: "handoffs_exceeded", from: "b", to: "c" });
  });
});

describe(`agents that call agents ${verifies("AGENT-2", "CHAT-12")}`, () => {
  test("get their answers, and the run is a tree with what each part cost", async () => {
    await client.expect("put", "/v1/prices", {
      prices: [{ kind: "model", pattern: "stub-1", prompt_per_mtok: 1_000_000, completion_per_mtok: 1_000_000 }],
    });
    await addAgent("boss", { agents: ["worker"] });
    await addAgent("worker", { tools: ["lookup"] });
    bySpeaker({
      boss: [calls({ name: "agent_worker", arguments: { prompt: "look" } }), text("The worker says 42.")],
      worker: [calls({ name: "lookup", arguments: { q: "x" } }), text("42")],
    });
    const answer = await ask("boss");
    expect(answer.choices[0].message.content).toBe("The worker says 42.");
    const rows = await settledTree();
    const chat = rows.find(({ tool }) => tool === "agent/boss");
    const tree = await client.get(`/v1/calls/${chat.id}/tree`);
    expect(tree.nodes.map(({ depth, tool }: Json) => `${depth} ${tool}`)).toEqual([
      "0 agent/boss",
      "1 agent_worker",
      "2 agent/worker",
      "3 lookup",
    ]);
    expect(tree.nodes.map((node: Json) => [node.micros, node.total_micros])).toEqual([
      [43, 86],
      [0, 43],
      [43, 43],
      [0, 0],
    ]);
    expect(rows.find(({ tool }) => tool === "lookup").caller.chain.slice(1, 3)).toEqual([
      { kind: "agent", id: "boss" },
      { kind: "agent", id: "worker" },
    ]);
  });

  test("go no deeper than they may", async () => {
    await addAgent("mirror", { agents: ["mirror"], limits: { depth: 1 } });
    let asked = 0;
    llm.respond((body) => {
      const { role } = (body["messages"] as Json[]).at(-1);
      asked += 1;
      return role === "tool" ? text("enough") : calls({ name: "agent_mirror", arguments: { prompt: "again" } });
    });
    await ask("mirror");
    expect(asked).toBe(4);
    const deepest = (await settledTree()).filter(({ tool }) => tool === "agent_mirror");
    expect(deepest.map(({ error }) => error?.code ?? null)).toEqual([null, "depth_exceeded"]);
  });

  test.each([
    ["has read what came from outside needs approval", true, "input_required"],
    ["has not may do it", false, "completed"],
  ])("an outward write for an agent that %s", async (_name, reads, state) => {
    await addAgent("boss", { agents: ["worker"], tools: ["fetch"] });
    await addAgent("worker", { tools: ["fetch"] });
    const get = calls({ name: "fetch", arguments: { url: `${backEnd.url}/page` } });
    const post = calls({ name: "fetch", arguments: { url: `${backEnd.url}/post`, method: "POST", body: "x" } });
    const toWorker = calls({ name: "agent_worker", arguments: { prompt: "post it" } });
    bySpeaker({ boss: [...(reads ? [get] : []), toWorker, text("ok")], worker: [post, text("posted")] });
    await ask("boss");
    const rows = (await client.get("/v1/calls?tool=fetch&limit=100&order=desc")).data;
    const written = rows.find(({ effect }: Json) => effect === "write");
    expect(written).toMatchObject({ state });
    expect(backEnd.requests.filter(({ method }) => method === "POST")).toHaveLength(reads ? 0 : 1);
  });

  test("share what the one above may use", async () => {
    await addAgent("boss", { agents: ["worker"], limits: { tokens: 50 } });
    await addAgent("worker", { tools: ["lookup"] });
    bySpeaker({
      boss: [calls({ name: "agent_worker", arguments: { prompt: "look" } })],
      worker: [calls({ name: "lookup", arguments: { q: "x" } }), text("42")],
    });
    const reply = await client.send("post", "/v1/chat/completions", { model: "agent/boss", messages: [user("x")] });
    expect(reply.status).toBe(422);
    expect(reply.json.error).toMatchObject({ code: "cost_exceeded", agent: "boss", limit: "tokens" });
    expect(backEnd.requests).toHaveLength(0);
    const worker = (await settledTree()).find(({ tool }) => tool === "agent_worker");
    expect(worker.error).toMatchObject({ code: "cost_exceeded" });
  });

  test("end at their rounds, with what was said so far", async () => {
    await addAgent("talker", { tools: ["lookup"], limits: { rounds: 1 } });
    let n = 0;
    llm.respond(() => {
      n += 1;
      return calls({ name: "lookup", arguments: { q: `${n}` } });
    });
    const reply = await client.send("post", "/v1/chat/completions", { model: "agent/talker", messages: [user("x")] });
    expect(reply.json.error).toMatchObject({ code: "rounds_exceeded" });
    expect(reply.json.error.message).toContain("limit 'rounds' of agent 'talker'");
    expect(reply.json.partial.tool_execution.tools_called).toEqual(["lookup"]);
  });
});

describe(`what is used is not deleted ${verifies("CFG-4")}`, () => {
  test("unless somebody insists", async () => {
    const { id } = await addAgent("worker");
    await addAgent("boss", { agents: ["worker"] });
    await addAgent("front", { handoffs: ["worker"] });
    const refused = await client.send("delete", `/v1/agents/${id}`);
    expect(refused.status).toBe(409);
    expect(refused.json.error).toMatchObject({ code: "service_referenced" });
    expect(refused.json.error.references.map(({ name, field }: Json) => `${name} ${field}`).sort()).toEqual([
      "boss agents",
      "front handoffs",
    ]);
    expect((await client.send("delete", `/v1/agents/${id}?force=true`)).status).toBe(204);
    expect((await client.send("get", `/v1/agents/${id}`)).status).toBe(404);
  });

  test(`nor one that speaks in a room or leads one, which say so by name afterwards ${verifies("VCP-14")}`, async () => {
    const [speaker, leader] = [await addAgent("speaker"), await addAgent("leader")];
    const members = [{ kind: "agent", name: "speaker" }];
    const quay = await client.post("/v1/group_chats", { name: "quay", members });
    const deck = await client.post("/v1/group_chats", { name: "deck", members, mode: "invited", moderator: "leader" });
    const refusal = async (id: string): Promise<Json> => {
      const { status, json } = await client.send("delete", `/v1/agents/${id}`);
      expect([status, json.error.code]).toEqual([409, "service_referenced"]);
      return json.error.references.map(({ kind, id: of, field, value }: Json) => [kind, of, field, value]);
    };
    expect(await refusal(leader.id)).toEqual([["group_chat", deck.id, "moderator", "agent://leader"]]);
    expect(await refusal(speaker.id)).toEqual([
      ["group_chat", quay.id, "members", "agent://speaker"],
      ["group_chat", deck.id, "members", "agent://speaker"],
    ]);
    for (const { id } of [speaker, leader]) await client.expect("delete", `/v1/agents/${id}?force=true`);
    const errorsOf = async (room: Json): Promise<Json[]> => {
      const said = { content: "Is anybody there?", stream: true };
      const events: Json[] = sseEvents((await client.send("post", `/v1/group_chats/${room.id}/messages`, said)).text);
      return events.filter(({ type }) => type === "error").map(({ error }) => error);
    };
    expect(await errorsOf(quay)).toMatchObject([
      { code: "agent_not_found", message: expect.stringContaining("no agent 'speaker'") },
    ]);
    expect(await errorsOf(deck)).toMatchObject([
      { code: "moderator_undecided", message: expect.stringMatching(/'leader'.*PATCH \/v1\/group_chats/) },
    ]);
  });
});
