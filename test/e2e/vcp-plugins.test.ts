/** VCP plugins from their import to their answer, through every door that leads to a tool. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { writeZip, type ZipFile } from "@toolyard/core/vcp/plugins/zip";
import { readPluginDirectory } from "@toolyard/platform/local/plugin-directory";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { rawClient } from "../support/mcp-clients.ts";
import { importVcp, printing, vcpManifest } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

const samples = join(import.meta.dirname, "../../plugins");

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(async () => {
  await gateway.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
});

const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });
/** What a call of this tool gave, as JSON. */
async function resultOf(uri: string, args: Json = {}): Promise<Json> {
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return JSON.parse(json.content);
}
async function errorOf(uri: string, args: Json = {}): Promise<Json> {
  const { status, json } = await invoke(uri, args);
  return { status, ...json.error };
}
async function sampleFiles(): Promise<readonly ZipFile[]> {
  const files = await readPluginDirectory(samples, ["plugin-manifest.json"]);
  return files ?? [];
}
async function importSamples(): Promise<Json> {
  const zip = Buffer.from(writeZip(await sampleFiles())).toString("base64");
  return tenant.client.post("/v1/plugins/import", { vcp: { zip } });
}

describe(`the manifest of the specification ${verifies("VCP-4", "VCP-1")}`, () => {
  test("loads verbatim and answers 3 to its own example", async () => {
    const imported = await importSamples();
    expect(imported.operations.map(({ action }: Json) => action)).toEqual(imported.operations.map(() => "added"));
    const manifest = JSON.parse(await readFile(join(samples, "SciCalculator/plugin-manifest.json"), "utf8"));
    const example: string = manifest.capabilities.invocationCommands[0].example;
    const [, expression] = /expression:「始」(.*?)「末」/.exec(example) ?? [];
    expect(expression).toBe("1+2");
    expect((await resultOf("vcp://SciCalculator", { expression })).original_plugin_output).toBe(3);
    expect((await resultOf("vcp://SciCalculator/eval", { expression: "2**10" })).original_plugin_output).toBe(1024);
  });

  test("answers in Node and in a shell as well", async () => {
    await importSamples();
    const counted = await resultOf("vcp://TextStatistics/count", { text: "one two\nthree" });
    expect(counted).toMatchObject({ words: 3, lines: 2 });
    const told = await resultOf("vcp://ServerClock");
    expect(told.utc).toMatch(/^\d{4}-\d\d-\d\dT/);
    const refused = await errorOf("vcp://SciCalculator", { expression: "__import__('os').system('id')" });
    expect(refused).toMatchObject({ status: 502, code: "tool_failed" });
    expect(refused.message).toContain("cannot be computed");
  });
});

describe(`one plugin at every door ${verifies("VCP-3")}`, () => {
  test("is listed with what its manifest says, for people, functions, MCP and VCP", async () => {
    await importSamples();
    const { data } = await tenant.client.get("/v1/plugins?limit=100");
    expect(data.find(({ name }: Json) => name === "TextStatistics")).toMatchObject({
      type: "VCP",
      displayName: "Text statistics",
      version: "1.0.0",
      description: "Counts characters, words and lines of a text, or names its most frequent words.",
      communication: { protocol: "stdio", timeout: 10_000 },
      enabled: true,
    });
    const openai = await tenant.client.get("/v1/tools?format=openai");
    const offered = openai.data.find((each: Json) => each.function.name === "TextStatistics").function;
    expect(offered.description).toContain("Counts characters, words and lines.");
    expect(offered.parameters.properties.command.anyOf[0].enum).toEqual(["count", "frequent"]);
    expect(offered.parameters.properties.text.description).toContain("the text to count");
    const mcp = await tenant.client.get("/v1/tools?format=mcp");
    expect(mcp.tools.map(({ name }: Json) => name)).toContain("SciCalculator");
    const vcp = await tenant.client.get("/v1/tools?format=vcp");
    expect(vcp.data.find(({ name }: Json) => name === "SciCalculator").text).toBe(
      "- 科学计算器 (SciCalculator) - 命令: eval:\n    输入表达式并返回计算结果\n  调用示例:\n    <<<[TOOL_REQUEST]>>>\n    tool_name:「始」SciCalculator「末」, expression:「始」1+2「末」\n    <<<[END_TOOL_REQUEST]>>>",
    );
  });

  test("runs for a model and for an MCP client", async () => {
    await importSamples();
    const llm: LlmStub = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      llm.script(calls({ name: "SciCalculator", arguments: { expression: "6*7" } }), text("It is 42."));
      const answer = await tenant.client.post("/v1/chat/completions", {
        model: "stub-1",
        messages: [{ role: "user", content: "What is 6*7?" }],
      });
      expect(answer.choices[0].message.content).toBe("It is 42.");
    } finally {
      await llm.close();
    }
    const mcp = rawClient(`${gateway.url}/mcp`, tenant.key);
    const called = await mcp.ask("tools/call", { name: "SciCalculator", arguments: { expression: "6*7" } });
    expect(called.text).toContain("original_plugin_output");
    expect(called.text).toContain("42");
  });
});
