/**
 * What the specification of the VCP runtime accepts itself by (s. 14), in any home: plugins over stdio, the loop of
 * an asynchronous result, pushes, tools of nodes, models that pass by, variables.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { packZip } from "@toolyard/core/zip";
import { readPluginDirectory } from "@toolyard/platform/local/plugin-directory";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import type { RunningHome } from "../support/homes.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { connectSocket, type SocketClient } from "../support/socket-client.ts";
import { startVcpNode, vcpManifest } from "../support/vcp-node.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

export interface VcpHome extends RunningHome {
  /** Where programs of VCP connect to with this key. */
  openPath(path: string, key: string): Promise<{ readonly url: string; readonly key?: string }>;
}

const samples = join(import.meta.dirname, "../../plugins");
const asyncPlaceholder = /\{\{VCP_ASYNC_RESULT::DelayedNote::[\w-]+\}\}/;
const patience = { timeout: 60_000, interval: 100 };

function block(name: string, fields: Readonly<Record<string, string>> = {}): string {
  const lines = Object.entries({ tool_name: name, ...fields }).map(([key, value]) => `${key}:「始」${value}「末」`);
  return `<<<[TOOL_REQUEST]>>>\n${lines.join(",\n")}\n<<<[END_TOOL_REQUEST]>>>`;
}

export function describeVcpAcceptance(homes: Readonly<Record<string, () => Promise<VcpHome>>>): void {
  describe.each(Object.entries(homes))("%s", (_name, start) => {
    let home: VcpHome;
    let llm: LlmStub;
    let tenant: TestTenant;
    const sockets: SocketClient[] = [];

    beforeAll(async () => {
      [home, llm] = await Promise.all([start(), startLlmStub()]);
      tenant = await home.newTenant({ tool_protocol: "vcp" });
      await tenant.addProvider(llm.url, { models: { "stub-1": "stub-1", painter: "painter" } });
      const files = (await readPluginDirectory(samples, ["plugin-manifest.json"])) ?? [];
      const imported = await tenant.client.post("/v1/plugins/import", {
        vcp: { zip: Buffer.from(await packZip(files)).toString("base64") },
      });
      expect(imported.operations.map(({ action }: Json) => action)).not.toContain("failed");
    });
    afterAll(async () => {
      await Promise.all(sockets.map((socket) => socket.close()));
      await Promise.all([home.close(), llm.close()]);
    });
    beforeEach(() => {
      llm.requests.length = 0;
    });

    const chat = (content: string, more: Json = {}): Promise<Json> =>
      tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content }], ...more });
    const sent = (at: number): readonly Json[] => llm.requests[at]?.["messages"] as readonly Json[];

    async function watch(path: string): Promise<SocketClient> {
      const { key } = await tenant.newKey({ scopes: ["calls", "approve"] });
      const at = await home.openPath(path, key);
      const socket = await connectSocket(
        at.url,
        at.key === undefined ? {} : { headers: { authorization: `Bearer ${at.key}` } },
      );
      sockets.push(socket);
      await expect.poll(() => socket.of("connection_ack").length, patience).toBe(1);
      return socket;
    }

    test(`a synchronous plugin is run over stdio and answers in JSON ${verifies("VCP-4", "VCP-10")}`, async () => {
      const invoked = await tenant.client.post("/v1/tools/invoke", {
        uri: "vcp://SciCalculator/eval",
        arguments: { expression: "2+3" },
      });
      expect(JSON.parse(invoked.content)).toMatchObject({ original_plugin_output: 5 });
      llm.script(text(block("SciCalculator", { expression: "1+2" })), text("It is 3."));
      const answer = await chat("What is 1+2?");
      expect(answer.choices[0].message.content).toContain("It is 3.");
      expect(sent(1).at(-1)).toMatchObject({
        role: "user",
        content: expect.stringMatching(/^<!-- VCP_TOOL_PAYLOAD -->\n\[.*original_plugin_output\\": 3/),
      });
    });

    test(`a plugin brings more files than an invocation carries ${verifies("VCP-4", "VCP-7")}`, async () => {
      const large = randomBytes(2_200_000).toString("hex");
      await importVcp(tenant.client, {
        name: "Heavy",
        files: {
          "plugin.sh": `cat >/dev/null; printf '{"status":"success","result":{"bytes":%s}}' "$(wc -c <data/large.txt)"`,
          "data/large.txt": large,
        },
      });
      const invoked = await tenant.client.post("/v1/tools/invoke", { uri: "vcp://Heavy", arguments: {} });
      expect(JSON.parse(invoked.content)).toMatchObject({ bytes: large.length });
    });

    test(`the placeholder of an asynchronous plugin becomes its result ${verifies("VCP-5", "VCP-11")}`, async () => {
      llm.script(text(block("DelayedNote", { text: "tea is ready", seconds: "1" })), text("I come back to it."));
      const answer = await chat("Remind me.");
      expect(answer.choices[0].message.content).toContain("I come back to it.");
      const told = JSON.stringify(sent(1));
      expect(told).toMatch(asyncPlaceholder);
      const [placeholder = ""] = asyncPlaceholder.exec(told) ?? [];
      await expect
        .poll(async () => {
          llm.requests.length = 0;
          llm.script(text("Well."));
          await chat("And now?", {
            messages: [
              { role: "assistant", content: `I said ${placeholder}` },
              { role: "user", content: "And now?" },
            ],
          });
          return JSON.stringify(sent(0));
        }, patience)
        .toContain("I said Note: tea is ready");
    });

    test(`what is to be pushed reaches a client ${verifies("VCP-12", "VCP-13")}`, async () => {
      const log = await watch("/VCPlog");
      await importVcp(tenant.client, {
        name: "Bell",
        manifest: { webSocketPush: { enabled: true, messageType: "bell", targetClientType: "VCPLog" } },
        files: { "plugin.sh": `cat >/dev/null; echo '{"status":"success","result":{"rings":2}}'` },
      });
      await tenant.client.post("/v1/tools/invoke", { uri: "vcp://Bell", arguments: {} });
      await expect.poll(() => log.of("bell"), patience).toMatchObject([{ type: "bell", data: { rings: 2 } }]);
      await expect.poll(() => log.of("vcp_log").map(({ data }) => data.tool_name), patience).toContain("Bell");
    });

    test(`tools of a node are registered and called ${verifies("VCP-15")}`, async () => {
      const { key } = await tenant.newKey({ scopes: ["node", "tools"] });
      const node = await startVcpNode({
        ...(await home.openPath("/vcp-distributed-server", key)),
        tools: [vcpManifest("Distant")],
        run: (_tool, { word }) => ({ heard: word }),
      });
      sockets.push(node.client);
      const names = async (): Promise<string[]> =>
        (await tenant.client.get("/v1/tools?limit=100")).data.map(({ name }: Json) => name);
      await expect.poll(names, patience).toContain("Distant");
      llm.script(text(block("Distant", { word: "hello" })), text("It heard."));
      await chat("Tell it.");
      expect(JSON.stringify(sent(1).at(-1))).toContain("hello");
      expect(node.asked).toMatchObject([{ toolName: "Distant", toolArgs: { word: "hello" } }]);
    });

    test(`a model of pictures is asked past preprocessing and loop ${verifies("VCP-17")}`, async () => {
      await tenant.client.expect("patch", "/v1/settings", { WhitelistImageModel: ["painter"] });
      llm.script(text("a picture"));
      await chat("{{VarPlace}}", { model: "painter" });
      expect(llm.requests).toMatchObject([
        {
          messages: [{ role: "user", content: "{{VarPlace}}" }],
          generationConfig: { responseModalities: ["TEXT", "IMAGE"], responseMimeType: "text/plain" },
        },
      ]);
    });

    test(`variables are put in, Tar before Var, Sar by the model ${verifies("VCP-19", "VCP-8")}`, async () => {
      const define = (variable: Json): Promise<Json> => tenant.client.post("/v1/vcp/variables", variable);
      await define({ kind: "tar", name: "TarWhole", content: "You are in {{VarPlace}}." });
      await define({ kind: "var", name: "VarPlace", content: "杭州" });
      await define({ kind: "sar", name: "SarPrompt1", content: "Be brief.", models: ["stub-1"] });
      await define({ kind: "sar", name: "SarPrompt2", content: "Be long.", models: ["other"] });
      llm.script(text("Yes."));
      await chat("Where?", {
        messages: [
          { role: "system", content: "{{TarWhole}} {{SarPrompt1}}{{SarPrompt2}}" },
          { role: "user", content: "{{VarPlace}}?" },
        ],
      });
      expect(sent(0)).toEqual([
        { role: "system", content: "You are in 杭州. Be brief." },
        { role: "user", content: "{{VarPlace}}?" },
      ]);
    });

    // The last: from here on every request has its word.
    test(`a preprocessor changes what a model reads ${verifies("VCP-6", "VCP-8")}`, async () => {
      await importVcp(tenant.client, {
        name: "Whisper",
        manifest: {
          pluginType: "messagePreprocessor",
          entryPoint: { script: "index.js" },
          communication: { protocol: "direct", timeout: 30_000 },
        },
        files: {
          "index.js": `module.exports = { processMessages: (messages) => [...messages, { role: "system", content: "Whisper." }] };`,
        },
      });
      llm.script(text("I whisper."));
      expect((await chat("Say it.")).choices[0].message.content).toBe("I whisper.");
      expect(sent(0).at(-1)).toEqual({ role: "system", content: "Whisper." });
    });
  });
}
