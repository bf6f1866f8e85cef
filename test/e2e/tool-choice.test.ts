/** What a request says of tools without listing any: it means those of the gateway. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { importVcp, printing } from "../support/vcp-plugins.ts";
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
  llm.script(text("Hello."));
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});

async function ask(more: Json): Promise<Json> {
  const reply = await tenant.client.post("/v1/chat/completions", {
    model: "stub-1",
    messages: [{ role: "user", content: "help" }],
    ...more,
  });
  return { reply, sent: llm.requests[0] };
}

describe(`tool_choice 'none' without tools ${verifies("CHAT-1", "CHAT-4")}`, () => {
  test("keeps the gateway's tools from the model, and what it calls all the same from running", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    const { sent } = await ask({ tool_choice: "none", session_id: "s-none" });
    expect(Object.keys(sent).sort()).toEqual(["messages", "model"]);
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("Well."));
    await ask({ tool_choice: "none" });
    expect(backEnd.requests).toEqual([]);
  });

  test("leaves what a model asks for in VCP's text a text", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    const asks = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」lookup「末」,\nq:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>";
    llm.script(text(asks), text("Never asked."));
    const { reply } = await ask({ tool_choice: "none", tool_protocol: "vcp" });
    expect(reply.choices[0].message.content).toBe(asks);
    expect(backEnd.requests).toEqual([]);
  });
});

describe(`tool_choice of a tool whose name no model may write ${verifies("CHAT-1", "CHAT-4")}`, () => {
  const named = (name: string): Json => ({ tool_choice: { type: "function", function: { name } } });

  test.each([64, 1])(
    "is in the name that the model knows it by (%i tools told of at most)",
    async (tools_offered_max) => {
      await tenant.client.expect("patch", "/v1/settings", { tools_offered_max });
      await importVcp(tenant.client, printing("画图.助手", "{}"));
      const { sent } = await ask(named("画图.助手"));
      const known = sent.tools.map((tool: Json) => tool.function.name).find((name: string) => name.startsWith("__"));
      expect(sent).toMatchObject(named(known));
    },
  );
});

describe(`what goes with tools ${verifies("CHAT-1")}`, () => {
  test("is sent with the gateway's own, and not where there are none", async () => {
    expect((await ask({ parallel_tool_calls: false, tool_choice: "auto" })).sent).not.toHaveProperty(
      "parallel_tool_calls",
    );
    await tenant.addPlugin(readingTool(backEnd));
    llm.requests.length = 0;
    expect((await ask({ parallel_tool_calls: false })).sent).toMatchObject({ parallel_tool_calls: false });
  });
});

const handsOver = calls({ name: "transfer_to_second", arguments: { reason: "x" } });

/** The first may hand over to the second, who has another tool. */
async function addAgents(): Promise<void> {
  await tenant.client.post("/v1/agents", { model: "stub-1", name: "second", tools: ["create_order"] });
  const first = { model: "stub-1", name: "first", tools: ["lookup"], handoffs: ["second"] };
  await tenant.client.post("/v1/agents", first);
}

describe(`tool_choice where an agent hands over ${verifies("CHAT-4", "AGENT-3")}`, () => {
  test("is a choice among the tools of the agent that was asked", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    await tenant.addPlugin(writingTool(backEnd));
    await addAgents();
    llm.script(handsOver, text("I am the second."));
    const choice = { type: "function", function: { name: "lookup" } };
    const { sent, reply } = await ask({ model: "agent/first", tool_choice: choice });
    expect([sent.tool_choice, reply.choices[0].message.content]).toEqual([choice, "I am the second."]);
  });
});

describe(`tool_choice of type 'allowed_tools' ${verifies("CHAT-1", "CHAT-4", "CHAT-7")}`, () => {
  const allowing = (names: readonly string[], mode = "auto"): Json => {
    const tools = names.map((name) => ({ type: "function", function: { name } }));
    return { tool_choice: { type: "allowed_tools", allowed_tools: { mode, tools } } };
  };
  const namesIn = ({ tools }: Json): readonly string[] => tools.map((tool: Json) => tool.function.name);
  const refusalOf = async (more: Json): Promise<Json> => {
    const messages = [{ role: "user", content: "help" }];
    const { status, json } = await tenant.client.send("post", "/v1/chat/completions", { messages, ...more });
    return [status, json.error.code, json.error.param, json.error.message];
  };

  beforeEach(async () => {
    await tenant.addPlugin(readingTool(backEnd));
    await tenant.addPlugin(writingTool(backEnd));
  });

  test("holds for every turn of the gateway's own tools, and forces the first alone", async () => {
    const look = calls({ name: "lookup", arguments: { q: "x" } });
    llm.script(look, calls({ name: "create_order", arguments: { sku: "S1" } }), text("Well."));
    const { reply } = await ask(allowing(["lookup"], "required"));
    expect(reply.choices[0].message.content).toBe("Well.");
    expect(llm.requests.map((sent) => namesIn(sent))).toEqual([["lookup"], ["lookup"], ["lookup"]]);
    expect(llm.requests.map((sent) => sent["tool_choice"])).toEqual(
      ["required", "auto", "auto"].map((mode) => allowing(["lookup"], mode)["tool_choice"]),
    );
    expect(backEnd.requests.map(({ method }) => method)).toEqual(["GET"]);
  });

  test("leaves the client's own functions listed, which its back end chooses among", async () => {
    const tools = ["theirs", "other"].map((name) => ({ type: "function", function: { name } }));
    const { sent } = await ask({ tools, ...allowing(["theirs"]) });
    expect(sent).toMatchObject({ tools, ...allowing(["theirs"]) });
    expect(namesIn((await ask({ tools, ...allowing(["theirs", "create_order"]) })) && llm.requests[1])).toEqual([
      "theirs",
      "other",
      "create_order",
    ]);
  });

  test("names tools by the names that models know them by, however many there are", async () => {
    await tenant.client.expect("patch", "/v1/settings", { tools_offered_max: 1 });
    await importVcp(tenant.client, printing("画图.助手", "{}"));
    const { sent } = await ask(allowing(["画图.助手", "lookup"]));
    const [alias = "", other] = namesIn(sent).toSorted();
    expect([alias, other]).toEqual([expect.stringMatching(/^__/), "lookup"]);
    expect(sent).toMatchObject(allowing([alias, "lookup"]));
  });

  test("is refused where it names what nobody has, or lists nothing", async () => {
    expect(await refusalOf(allowing(["lookup", "nobodys"]))).toEqual([
      404,
      "tool_not_found",
      "tool_choice",
      "Tool 'nobodys' not found",
    ]);
    const older = { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "lookup" }] };
    const [status, code, param] = await refusalOf({ tool_choice: older });
    expect([status, code, param]).toEqual([400, "invalid_request", "tool_choice.allowed_tools"]);
  });

  test("lets an agent hand over to nobody, who would bring tools of his own", async () => {
    await addAgents();
    llm.script(handsOver, text("Well."));
    const { sent, reply } = await ask({ model: "agent/first", ...allowing(["lookup"]) });
    expect([namesIn(sent), reply.choices[0].message.content]).toEqual([["lookup"], "Well."]);
    expect(JSON.stringify(llm.requests[1])).toContain("tool_not_found");
  });

  test("keeps a model that asks in its text to the client's functions", async () => {
    const vcp = { tool_protocol: "vcp" };
    const asks = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」lookup「末」,\nq:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>";
    const tools = [{ type: "function", function: { name: "theirs" } }];
    llm.script(text(asks), text("Never asked."));
    const { reply } = await ask({ ...vcp, tools, ...allowing(["theirs"]) });
    expect(reply.choices[0].message.content).toBe(asks);
    expect(backEnd.requests).toEqual([]);
    const [status, code, param, message] = await refusalOf({ ...vcp, tools, ...allowing(["lookup"]) });
    expect([status, code, param]).toEqual([404, "tool_not_found", "tool_choice"]);
    expect(message).toContain("'lookup' not found in 'tools'; others are not chosen where the model asks in its text");
  });
});
