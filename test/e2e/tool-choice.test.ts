/** What a request says of tools without listing any: it means those of the gateway. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
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
