/** Placeholders in chats: what the model gets of them, with real plugins, nodes and callbacks (VCP-19, VCP-11). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { startVcpNode } from "../support/vcp-node.ts";
import { importVcp, printing } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** A second instance at the same database. */
let other: Gateway;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
  other = await startGateway({ sharedWith: gateway });
});
afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close()]);
});
beforeEach(async () => {
  llm.requests.length = 0;
  llm.script(text("fine"));
  tenant = await newTenant();
});

async function newTenant(): Promise<TestTenant> {
  const made = await gateway.newTenant({ tool_protocol: "vcp" });
  await made.addProvider(llm.url);
  return made;
}

async function define(kind: string, name: string, content: string, more: Json = {}): Promise<Json> {
  return tenant.client.post("/v1/vcp/variables", { kind, name, content, ...more });
}

/** The messages that the model got. */
async function given(messages: readonly Json[], client: Client = tenant.client): Promise<readonly Json[]> {
  await client.post("/v1/chat/completions", { model: "stub-1", messages });
  return (llm.requests.at(-1) as Json).messages;
}

const system = (content: string): Json => ({ role: "system", content });
const user = (content: string): Json => ({ role: "user", content });

/** Reports what it is told to have done, by the callback of its own, before it answers. */
const billing = {
  name: "Bill",
  manifest: { pluginType: "asynchronous", entryPoint: { command: "node plugin.mjs" } },
  files: {
    "plugin.mjs": `
      import { readFileSync } from "node:fs";
      const { reports } = JSON.parse(readFileSync(0, "utf8"));
      const { CALLBACK_BASE_URL: base, PLUGIN_NAME_FOR_CALLBACK: name } = process.env;
      for (const [id, message] of Object.entries(reports)) {
        const body = JSON.stringify({ requestId: id, status: "Succeed", message });
        await fetch(base + "/" + name + "/" + id, { method: "POST", headers: { "content-type": "application/json" }, body });
      }
      console.log(JSON.stringify({ status: "success", requestId: Object.keys(reports)[0], messageForAI: "sent" }));
    `,
  },
};

async function report(reports: Readonly<Record<string, string>>, plugin = "Bill"): Promise<void> {
  const uri = `vcp://${plugin}`;
  const call = await tenant.client.post("/v1/tools/invoke", { uri, arguments: { reports }, async: true });
  const state = async (): Promise<string> => (await tenant.client.get(`/v1/calls/${call.id}`)).state;
  await expect.poll(state, { timeout: 20_000 }).toBe("completed");
}

describe(`one conversation ${verifies("VCP-19", "VCP-11")}`, () => {
  test("has each kind of placeholder as the model is to read it", async () => {
    await importVcp(tenant.client, billing);
    await importVcp(tenant.client, {
      ...printing("Echo", '{"status":"success","result":"echo"}'),
      manifest: { capabilities: { invocationCommands: [{ command: "say", description: "Says $& it." }] } },
    });
    await report({ t1: "total: $100 $'x {{VarCity}}" });
    const { key } = await tenant.newKey({ scopes: ["node"] });
    const node = await startVcpNode({
      url: `${other.url.replace("http", "ws")}/vcp-distributed-server`,
      key,
      tools: [],
    });
    node.client.say({
      type: "update_static_placeholders",
      data: { serverName: "lab", placeholders: { "{{NodeMood}}": "calm {{VarCity}} $&" } },
    });
    await define("var", "VarCity", "city.txt");
    await define("text", "city.txt", "杭州 $$");
    await define("tar", "TarAll", "<{{VarCity}} {{Nova}} {{TarLast}}>");
    await define("tar", "TarLast", "last {{TarAll}}");
    await define("agent", "Nova", "NOVA {{SarPromptAll}}");
    await define("sar", "SarPrompt1", "for stub {{VarCity}}", { models: ["STUB-1"] });
    await define("sar", "SarPrompt2", "for others", { models: ["gpt"] });
    await define("toolbox", "Box", "box.md");
    await define("text", "box.md", "box\n[===vcp_fold: 0.9===]\nhidden");
    await define("emoji", "猫表情包", "a|b");
    await define("var", "VCP_Own", "own");
    await define("detector", "Detector1", "secretword", { output: "•" });
    await importVcp(tenant.client, {
      ...printing("Weather", "sunny {{VarCity}} $'"),
      manifest: {
        pluginType: "static",
        capabilities: { systemPromptPlaceholders: [{ placeholder: "{{TestWeather}}", description: "d" }] },
      },
    });
    const values = async (): Promise<string> => (await given([system("{{NodeMood}}|{{TestWeather}}")]))[0].content;
    await expect.poll(values, { timeout: 20_000 }).toBe("calm {{VarCity}} $&|sunny {{VarCity}} $'");
    const sent = await given([
      system(
        "{{TarAll}}|{{agent:Nova}}|{{AgentNova}}|{{SarPrompt2}}|{{Box}}|{{猫表情包}}|{{EmojiList}}|{{VCP_Own}}|{{VCPEcho}}|{{NodeMood}}|{{TestWeather}}|{{VCP_ASYNC_RESULT::Bill::t1}}|secretword{{ShowBase64}}|{{VarNone}} ",
      ),
      system("{{Date}} {{Time}} {{Today}} {{Festival}}"),
      system("{{VCPAllTools}}"),
      user("[系统提示:]{{SarPrompt1}} {{VarCity}}"),
      user("{{VarCity}} secretword {{VCP_ASYNC_RESULT::Bill::t2}}"),
    ]);
    const tool = "- Echo (Echo) - 命令: say:\n    Says $& it.";
    expect(sent[0].content).toBe(
      [
        "<杭州 $$ NOVA for stub 杭州 $$ last {{TarAll}}>",
        "NOVA for stub 杭州 $$",
        "NOVA for stub 杭州 $$",
        "",
        "box",
        "a|b",
        "猫表情包: a|b",
        "own",
        tool,
        "calm {{VarCity}} $&",
        "sunny {{VarCity}} $'",
        "total: $100 $'x {{VarCity}}",
        "•",
        "{{VarNone}}",
      ].join("|"),
    );
    expect(sent[1].content).toMatch(/^\d{4}\/\d{1,2}\/\d{1,2} \d\d:\d\d:\d\d 星期. \S{3}年\S+月\S{2}( \S\S)?$/);
    expect(sent[2].content).toContain(tool);
    expect(sent[3].content).toBe("[系统提示:]for stub {{VarCity}} {{VarCity}}");
    expect(sent[4].content).toBe("{{VarCity}} secretword [任务 Bill (ID: t2) 结果待更新...]");
    await node.close();
  });

  test("keeps what stands between two placeholders, and a brace that nobody closed", async () => {
    await importVcp(tenant.client, { ...billing, name: "Draw" });
    await report({ t1: "R1", t3: "R3" }, "Draw");
    const [sent] = await given([
      user(
        "first {{VCP_ASYNC_RESULT::Draw::t1}} keep-1 {{VCP_ASYNC_RESULT::Draw::t2}} keep-2 {{not closed {{VCP_ASYNC_RESULT::Draw::t3}} end",
      ),
    ]);
    expect(sent.content).toBe("first R1 keep-1 [任务 Draw (ID: t2) 结果待更新...] keep-2 {{not closed R3 end");
  });

  test("has nobody else's results and nobody else's variables", async () => {
    await importVcp(tenant.client, billing);
    await report({ t1: "mine" });
    await define("var", "VarMine", "mine");
    const colleague = await tenant.newKey();
    const asked = [system("{{VCP_ASYNC_RESULT::Bill::t1}} {{VarMine}}")];
    expect((await given(asked))[0].content).toBe("mine mine");
    expect((await given(asked, colleague.client))[0].content).toBe("[任务 Bill (ID: t1) 结果待更新...] mine");
    const stranger = await newTenant();
    expect((await given(asked, stranger.client))[0].content).toBe("[任务 Bill (ID: t1) 结果待更新...] {{VarMine}}");
  });

  test("is not touched where it does not speak VCP", async () => {
    await define("var", "VarCity", "杭州");
    await tenant.client.send("patch", "/v1/settings", { tool_protocol: "openai" });
    expect((await given([system(" {{VarCity}} ")]))[0].content).toBe(" {{VarCity}} ");
    await tenant.client.send("patch", "/v1/settings", { message_pipeline: "all" });
    expect((await given([system(" {{VarCity}} ")]))[0].content).toBe("杭州");
  });

  test("that comes to too much is refused before the model is asked", async () => {
    await tenant.client.send("patch", "/v1/settings", { placeholder_chars_max: 1_000 });
    await define("var", "VarLarge", "x".repeat(2_000));
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      model: "stub-1",
      messages: [system("{{VarLarge}}")],
    });
    expect(reply).toMatchObject({
      status: 422,
      json: { error: { code: "placeholder_limit", param: "VarLarge", type: "invalid_request_error" } },
    });
    expect(llm.requests).toEqual([]);
  });
});

describe(`a change ${verifies("VCP-19")}`, () => {
  test("is what the other instance's next chat has", async () => {
    const there = other.client(tenant.key);
    const made = await define("var", "VarMood", "m.txt");
    const file = await define("text", "m.txt", `calm ${"and ".repeat(2_000)}quiet`);
    expect((await given([system("{{VarMood}}")], there))[0].content).toMatch(/^calm and .* quiet$/);
    await tenant.client.expect("patch", `/v1/vcp/variables/${file.id}`, { content: `loud ${"or ".repeat(2_000)}wild` });
    expect((await given([system("{{VarMood}}")], there))[0].content).toMatch(/^loud or .* wild$/);
    await tenant.client.send("delete", `/v1/vcp/variables/${made.id}`);
    expect((await given([system("{{VarMood}}")], there))[0].content).toBe("{{VarMood}}");
  });
});
