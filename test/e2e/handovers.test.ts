/** What a handover leaves as it was: the session, the conversation that a client goes on with, the request's own end. */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let client: Client;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.answer = () => ({ body: '{"order":"o-1"}' });
  tenant = await gateway.newTenant();
  ({ client } = tenant);
  await tenant.addProvider(llm.url);
});

const user = (content: string): Json => ({ role: "user", content });
const transfer = calls({ name: "transfer_to_back", arguments: { reason: "it is about files" } });
const write = (path: string): Json => ({ name: "write_file", arguments: { path, content: "x" } });

/** The agents `front` and `back`, of which one hands over to the other. */
async function addAgents(front: Json, back: Json): Promise<void> {
  await client.post("/v1/agents", { name: "back", model: "stub-1", ...back });
  await client.post("/v1/agents", { name: "front", model: "stub-1", handoffs: ["back"], ...front });
}

function ask(more: Json = {}): Promise<Json> {
  return client.post("/v1/chat/completions", { model: "agent/front", messages: [user("help")], ...more });
}

function sent(at: number): Json[] {
  return llm.requests[at]?.["messages"] as Json[];
}

async function filesOf(session: string): Promise<string[]> {
  return (await client.get(`/v1/sessions/${session}/files`)).data.map(({ path }: Json) => path);
}

describe(`who goes on after a handover ${verifies("AGENT-3", "CHAT-8", "CHAT-11")}`, () => {
  test("works in the session of the request", async () => {
    const session = newId("session");
    await addAgents({ tools: ["write_file"] }, { tools: ["write_file"] });
    llm.script(calls(write("front.txt")), transfer, calls(write("back.txt")), text("Written."));
    const { tool_execution: told } = await ask({ session_id: session });
    expect(told).toMatchObject({ session_id: session, workspace_path: `/mcp_workspaces/${session}` });
    expect(await filesOf(session)).toEqual(["back.txt", "front.txt"]);
  });

  test("works in the session that the answer names where the request names none", async () => {
    await addAgents({}, { tools: ["write_file"] });
    llm.script(transfer, calls(write("back.txt")), text("Written."));
    const { tool_execution: told } = await ask();
    expect(await filesOf(told.session_id)).toEqual(["back.txt"]);
  });

  test("has what it was approved for told to the session", async () => {
    const session = newId("session");
    await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    await addAgents({}, { tools: ["create_order"] });
    llm.script(transfer, calls({ name: "create_order", arguments: { sku: "S1" } }), text("It is ordered."));
    const [{ call_id: id }] = (await ask({ session_id: session })).tool_execution.pending;
    await client.post(`/v1/calls/${id}/approve`);
    await expect.poll(async () => (await client.get(`/v1/calls/${id}`)).state).toBe("completed");
    await ask({ session_id: session, messages: [user("Is it ordered?")] });
    expect(sent(2).map(({ role, content }) => [role, content])).toEqual([
      ["assistant", null],
      ["tool", '{"order":"o-1"}'],
      ["user", "Is it ordered?"],
    ]);
  });
});

describe(`a call of the client after a handover ${verifies("AGENT-3", "CHAT-5")}`, () => {
  const own = { type: "function", function: { name: "get_weather", parameters: { type: "object", properties: {} } } };
  const instructions = "You are one of them.";

  test.each([
    ["neither", {}, {}],
    ["the first", { instructions }, {}],
    ["the second", {}, { instructions }],
    ["both", { instructions }, { instructions: "You are the other." }],
  ])("goes on with all that the model has seen, where %s has instructions", async (_who, front, back) => {
    await addAgents({ allow_client_tools: true, ...front }, { allow_client_tools: true, ...back });
    llm.script(transfer, calls({ name: "get_weather", arguments: {} }), text("Sunny."));
    const request = { tools: [own] };
    const [{ message }] = (await ask(request)).choices;
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sun" };
    await ask({ ...request, messages: [user("help"), message, result] });
    const spoken = sent(2).filter(({ role }) => role !== "system");
    expect(spoken.map(({ role, tool_calls: made }) => [role, made?.[0].function.name])).toEqual([
      ["user", undefined],
      ["assistant", "transfer_to_back"],
      ["tool", undefined],
      ["assistant", "get_weather"],
      ["tool", undefined],
    ]);
  });
});

describe(`an agent that a chat calls as a tool ${verifies("AGENT-2", "CHAT-8")}`, () => {
  test("has the files of the session that the answer names, where the request names none", async () => {
    await client.post("/v1/agents", { name: "writer", model: "stub-1", tools: ["write_file"] });
    llm.script(
      calls({ name: "agent_writer", arguments: { prompt: "write" } }),
      calls(write("note.txt")),
      text("Written."),
    );
    const { tool_execution: told } = await ask({ model: "stub-1" });
    expect(await filesOf(told.session_id)).toEqual(["note.txt"]);
  });

  test("has what it was approved for told to the session that the answer names, where the request names none", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    await client.post("/v1/agents", { name: "buyer", model: "stub-1", tools: ["create_order"] });
    llm.script(
      calls({ name: "agent_buyer", arguments: { prompt: "buy" } }),
      calls({ name: "create_order", arguments: { sku: "S1" } }),
      text("It waits."),
      text("It is ordered."),
    );
    const { tool_execution: told } = await ask({ model: "stub-1" });
    const [{ id }] = (await client.get("/v1/calls?state=input_required")).data;
    await client.post(`/v1/calls/${id}/approve`);
    await expect.poll(async () => (await client.get(`/v1/calls/${id}`)).state).toBe("completed");
    await ask({ model: "stub-1", session_id: told.session_id, messages: [user("Is it ordered?")] });
    expect(llm.requests.at(-1)?.["messages"]).toMatchObject([
      { role: "assistant" },
      { role: "tool", content: '{"order":"o-1"}' },
      { role: "user", content: "Is it ordered?" },
    ]);
  });

  test("begins no session for chats beside it where no agent works with files", async () => {
    await client.post("/v1/agents", { name: "writer", model: "stub-1", tools: ["lookup"] });
    llm.script(text("Hello."));
    await ask({ model: "stub-1" });
    expect((await client.get("/v1/sessions")).data).toEqual([]);
  });
});
