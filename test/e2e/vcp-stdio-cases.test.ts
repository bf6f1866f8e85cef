/**
 * The golden cases of what plugins write, from the process to the model's message, the client's text and the answer of
 * `/v1/human/tool`: real plugins, a scripted model, over sockets.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

interface Golden {
  readonly case: string;
  readonly stdout: string | null;
  readonly stderr: string;
  readonly exitCode: number;
  readonly messageAppendedForModel: Json;
  readonly clientTextAfterBlock: string;
  readonly humanTool: { readonly status: number; readonly body: Json };
}

const { cases }: { readonly cases: readonly Golden[] } = JSON.parse(
  readFileSync(new URL("../fixtures/vcp/stdio-cases.json", import.meta.url), "utf8"),
);
/** Where the specification wins: `messageForAI` and `base64` beside the result reach the model. */
const otherwise = new Set(["msgforai"]);

const block = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」EchoSync「末」\n<<<[END_TOOL_REQUEST]>>>";

let gateway: Gateway;
let llm: LlmStub;
beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
});
afterAll(async () => {
  await Promise.all([gateway.close(), llm.close()]);
});

async function tenantWith({
  stdout,
  stderr,
  exitCode,
}: Pick<Golden, "stdout" | "stderr" | "exitCode">): Promise<TestTenant> {
  const tenant = await gateway.newTenant({ tool_protocol: "vcp" });
  await tenant.addProvider(llm.url);
  await importVcp(tenant.client, {
    name: "EchoSync",
    manifest: { communication: { protocol: "stdio", timeout: 1_500 } },
    files: {
      "plugin.sh": `cat >/dev/null\n${stdout === null ? "sleep 60" : `cat out.txt; cat err.txt >&2; exit ${exitCode}`}\n`,
      "out.txt": stdout ?? "",
      "err.txt": stderr,
    },
  });
  return tenant;
}

function masked(value: Json): Json {
  const written = JSON.stringify(value).replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d/g, "<TS>");
  return JSON.parse(written);
}

async function chat(tenant: TestTenant): Promise<{ readonly told: Json; readonly said: string }> {
  llm.requests.length = 0;
  llm.script(text(block), text("FINAL"));
  const answer = await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "hi" }] });
  const messages = llm.requests[1]?.["messages"] as Json[];
  return { told: masked(messages.at(-1)), said: answer.choices[0].message.content };
}

const inOneTenant = cases.filter((golden) => !otherwise.has(golden.case));

describe(`golden cases of plugins in the loop ${verifies("VCP-4", "VCP-10")}`, () => {
  test.each(inOneTenant.map((golden): [string, Golden] => [golden.case, golden]))("%s", async (_name, golden) => {
    const tenant = await tenantWith(golden);
    const { told, said } = await chat(tenant);
    expect(told).toEqual(golden.messageAppendedForModel);
    expect(said).toBe(`${block}${golden.clientTextAfterBlock}`);
    const byHand = await tenant.client.send("post", "/v1/human/tool", undefined, { raw: block });
    expect([byHand.status, masked(byHand.json)]).toEqual([golden.humanTool.status, golden.humanTool.body]);
  });

  test("words for the model and a picture beside the result are parts of its message", async () => {
    const stdout = JSON.stringify({
      status: "success",
      result: { x: 1 },
      messageForAI: "HELLO AI",
      base64: "iVBORw0KGgoAAAA=",
    });
    const { told } = await chat(await tenantWith({ stdout, stderr: "", exitCode: 0 }));
    expect(told.content).toEqual([
      { type: "text", text: "<!-- VCP_TOOL_PAYLOAD -->\nResults:" },
      { type: "text", text: "HELLO AI" },
      { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgoAAAA=" } },
    ]);
  });
});
