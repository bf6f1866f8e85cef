/**
 * The bridge as a user starts it, between a program that knows VCP's paths only and a gateway: a server, or
 * functions behind a WebSocket API.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { allScopes, type Json, type TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { chunk, done, startLlmStub, usageChunk, type Round } from "../support/llm-stub.ts";
import { startRealtimeFunctions, type RealtimeFunctions } from "../support/realtime-functions.ts";
import { connectSocket } from "../support/socket-client.ts";
import { nodeProgram } from "../support/programs.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { startVcpNode, vcpManifest, type VcpNodeOptions } from "../support/vcp-node.ts";
import { verifies } from "../support/verifies.ts";

const root = new URL("../../", import.meta.url);
const vcpKey = "a-key-of-this-machine";
const open: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

/** @returns where programs connect */
async function startBridge(url: string, key: string, args: readonly string[] = []): Promise<string> {
  const child = spawn(process.execPath, [nodeProgram, "--url", url, "--vcp", "--port", "0", ...args], {
    cwd: root,
    env: { PATH: process.env["PATH"] ?? "", TOOLYARD_NODE_KEY: key, TOOLYARD_VCP_KEY: vcpKey },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (part: Buffer) => (text += part.toString("utf8")));
  const ended = new Promise<number | null>((done) => child.once("close", (code) => done(code)));
  open.push(async () => {
    child.kill("SIGTERM");
    expect(await ended, text).toBe(0);
    // Neither key is told to anybody.
    expect(text).not.toContain(key);
    expect(text).not.toContain(vcpKey);
  });
  for (const until = Date.now() + 20_000; ;) {
    const [, address] = /Bridge for VCP on (ws:\S+)/.exec(text) ?? [];
    if (address !== undefined) return address;
    if (Date.now() > until || child.exitCode !== null) throw new Error(`the bridge did not start:\n${text}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

async function startNode(bridge: string, more: Partial<VcpNodeOptions> = {}): ReturnType<typeof startVcpNode> {
  const node = await startVcpNode({ url: `${bridge}/vcp-distributed-server/VCP_Key=${vcpKey}`, ...more });
  open.push(() => node.close());
  return node;
}

describe(`a bridge to a server ${verifies("VCP-15")}`, () => {
  let gateway: Gateway;
  let tenant: TestTenant;
  let key: string;
  beforeAll(async () => {
    gateway = await startGateway({ timing: { leaseMs: 3_000, heartbeatMs: 500 }, tickEveryMs: 200 });
  });
  afterAll(() => gateway.close());
  beforeEach(async () => {
    tenant = await gateway.newTenant();
    ({ key } = await tenant.newKey({ scopes: ["node", "calls", "approve", "tools"] }));
  });

  const names = async (): Promise<string[]> =>
    (await tenant.client.get("/v1/tools")).data.map(({ name }: Json) => name);
  const listed = (name: string): Promise<unknown> => expect.poll(names, { timeout: 10_000 }).toContain(name);
  const invoke = async (uri: string, args: Json = {}): Promise<Json> =>
    (await tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args })).json;

  test("has a node's tools called, large ones too, and takes them away with it", async () => {
    const bridge = await startBridge(gateway.url, key);
    const node = await startNode(bridge, { run: (_name, args) => ({ text: args.text }) });
    await listed("Echo");
    const text = "ä".repeat(50_000);
    const { id, status } = await invoke("vcp://Echo", { text });
    expect(status).toBe("completed");
    const whole = await tenant.client.send("get", `/v1/calls/${id}/result`);
    expect(JSON.parse(whole.text).text === text).toBe(true);
    expect(node.asked[0]).toMatchObject({
      toolName: "Echo",
      serverId: node.serverId,
      traceId: expect.stringMatching(/^\w{32}$/),
    });
    node.client.say({
      type: "update_static_placeholders",
      data: { serverName: "lab", placeholders: { "{{LabStatus}}": "ok" } },
    });
    await expect
      .poll(async () => (await gateway.core.repos.vcpStaticValues.list(tenant.id)).values, { timeout: 5_000 })
      .toMatchObject([{ source: "node:lab", key: "LabStatus", value: "ok" }]);
    await node.close();
    await expect.poll(names, { timeout: 10_000 }).not.toContain("Echo");
    expect((await gateway.core.repos.vcpStaticValues.list(tenant.id)).values).toEqual([]);
  });

  test("goes on after a frame that is longer than the gateway reads, of which the node is told", async () => {
    const bridge = await startBridge(gateway.url, key);
    const node = await startNode(bridge, { run: (name) => name });
    await listed("Echo");
    const placeholders = { "{{Long}}": "x".repeat(150_000) };
    node.client.say({ type: "update_static_placeholders", data: { serverName: "lab", placeholders } });
    await expect
      .poll(() => node.client.of("error"), { timeout: 5_000 })
      .toMatchObject([{ data: { message: expect.stringContaining("131072 bytes") } }]);
    expect(await invoke("vcp://Echo")).toMatchObject({ status: "completed" });
  });

  test("is held up by no callbacks of tasks that nobody has", async () => {
    const bridge = await startBridge(gateway.url, key);
    const tools = [vcpManifest("Clip", { pluginType: "asynchronous" }), vcpManifest("Echo")];
    const node = await startNode(bridge, { tools, run: (name) => name });
    await listed("Echo");
    for (const taskId of ["a", "b", "c", "d", "e"]) {
      const callbackData = { pluginName: "Clip", taskId, status: "Succeed" };
      node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    }
    expect(await invoke("vcp://Echo")).toMatchObject({ status: "completed" });
    await expect.poll(() => node.client.of("error"), { timeout: 5_000 }).toHaveLength(5);
  });

  test("lets clients hear the log, and decide", async () => {
    const bridge = await startBridge(gateway.url, key);
    await startNode(bridge, { run: () => "done" });
    await listed("Echo");
    const log = await connectSocket(`${bridge}/VCPlog/VCP_Key=${vcpKey}`);
    open.push(() => log.close());
    await expect.poll(() => log.of("connection_ack"), { timeout: 10_000 }).toHaveLength(1);
    const { id } = await invoke("vcp://Echo");
    await expect.poll(() => log.of("vcp_log").map(({ data }) => data.details.callId), { timeout: 5_000 }).toContain(id);
  });

  test("lets a client decide what a model has asked for, with a reason that the model reads", async () => {
    const [llm, shop] = await Promise.all([startLlmStub(), startHttpStub()]);
    open.push(
      () => llm.close(),
      () => shop.close(),
    );
    await tenant.addProvider(llm.url);
    await tenant.client.expect("patch", "/v1/settings", { approval_wait_s: 30 });
    const parameters = { type: "object", properties: { maid: { type: "string" } } };
    for (const name of ["Order", "Cancel"])
      await tenant.addPlugin({ ...writingTool(shop, name), parameters, sensitive: true });
    const block = (name: string, fields: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${name}「末」${fields}\n<<<[END_TOOL_REQUEST]>>>`;
    const says = (content: string): Round => ({
      writes: [chunk({ role: "assistant", content }), chunk({}, "stop"), usageChunk(4, 3), done],
    });
    llm.script(
      says(`${block("Order", ",maid:「始」Nova「末」")}\n${block("Cancel", ",archery:「始」true「末」")}`),
      says("understood"),
    );
    const bridge = await startBridge(gateway.url, key);
    const log = await connectSocket(`${bridge}/VCPlog/VCP_Key=${vcpKey}`);
    open.push(() => log.close());
    await expect.poll(() => log.of("connection_ack"), { timeout: 10_000 }).toHaveLength(1);
    const answering = tenant.client.post("/v1/chat/completions", {
      model: "stub-1",
      messages: [{ role: "user", content: "order it" }],
      tool_protocol: "vcp",
      session_id: "decisions",
    });
    const asked = (): Json[] => log.of("tool_approval_request").map(({ data }) => data);
    const decide = async (toolName: string, decision: Json): Promise<void> => {
      await expect.poll(() => asked().map((each) => each.toolName), { timeout: 10_000 }).toContain(toolName);
      const { requestId } = asked().find((each) => each.toolName === toolName);
      log.say({ type: "tool_approval_response", data: { requestId, ...decision } });
    };
    await decide("Cancel", { approved: true, reason: "fine" });
    await decide("Order", { approved: false, reason: "too dear" });
    const answer = await answering;
    expect(answer.choices[0].message.content).toContain("understood");
    expect(asked().find(({ toolName }) => toolName === "Order")).toMatchObject({ maid: "Nova" });
    const told = JSON.stringify((llm.requests.at(-1) as Json).messages.at(-1).content);
    expect(told).toContain("Manual approval was REJECTED by user. User reason: too dear");
    expect(shop.requests).toHaveLength(1);
    const calls = (await tenant.client.get("/v1/calls?kind=tool")).data;
    expect(calls).toHaveLength(2);
    expect(calls).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ tool: "Order", state: "rejected" }),
        expect.objectContaining({ tool: "Cancel", state: "completed" }),
      ]),
    );
    const whole = await Promise.all(calls.map(({ id }: Json) => tenant.client.get(`/v1/calls/${id}`)));
    const reasons: string[] = whole.map(({ approval }) => approval.reason);
    expect(reasons.toSorted()).toEqual(["fine", "too dear"]);
  });

  test("wants its own key, and nothing from pages in a browser", async () => {
    const bridge = await startBridge(gateway.url, key);
    const path = `${bridge}/VCPlog/VCP_Key=${vcpKey}`;
    await expect(connectSocket(`${bridge}/VCPlog/VCP_Key=other`)).rejects.toThrow("401");
    await expect(connectSocket(`${bridge}/VCPlog`)).rejects.toThrow("401");
    await expect(connectSocket(`${bridge}/elsewhere/VCP_Key=${vcpKey}`)).rejects.toThrow("404");
    await expect(connectSocket(path, { headers: { origin: "https://evil.example" } })).rejects.toThrow("403");
  });

  test(`has files asked for only in directories that were named ${verifies("VCP-16")}`, async () => {
    const directory = await mkdtemp(join(tmpdir(), "toolyard-files-"));
    open.push(() => rm(directory, { recursive: true, force: true }));
    await writeFile(join(directory, "a.txt"), "inside");
    await symlink("/etc/hostname", join(directory, "link.txt"));
    const bridge = await startBridge(gateway.url, key, ["--files", directory]);
    const node = await startNode(bridge, {
      tools: [vcpManifest("Echo"), vcpManifest("internal_request_file")],
      run: (name) =>
        name === "internal_request_file"
          ? { status: "success", fileData: Buffer.from("inside").toString("base64"), mimeType: "text/plain" }
          : "ran",
    });
    await listed("Echo");
    expect(await names()).not.toContain("internal_request_file");
    await importVcp(tenant.client, {
      name: "Copy",
      files: { "plugin.sh": `printf '{"status":"success","result":{"got":%s}}' "$(cat)"` },
    });
    const got = async (url: string): Promise<string> =>
      JSON.parse((await invoke("vcp://Copy", { url })).content).got.url;
    expect(await got(`file://${directory}/a.txt`)).toBe(
      `data:text/plain;base64,${Buffer.from("inside").toString("base64")}`,
    );
    for (const other of [`${directory}/link.txt`, `${directory}/../a.txt`, "/etc/hostname"])
      expect(await got(`file://${other}`)).toBe(`file://${other}`);
    expect(node.asked.map(({ toolArgs }) => toolArgs.fileUrl)).toEqual([`file://${directory}/a.txt`]);
  });
});

describe(`a bridge to functions behind a WebSocket API ${verifies("VCP-15", "VCP-13")}`, () => {
  let functions: RealtimeFunctions;
  let key: string;
  let bridgeKey: string;
  beforeAll(async () => {
    functions = await startRealtimeFunctions();
    const operator = { key: functions.operatorKey, method: "POST" };
    const { id } = await functions.request({ ...operator, path: "/v1/tenants", body: { name: "T" } });
    const newKey = async (body: Json): Promise<string> =>
      (await functions.request({ ...operator, path: "/v1/api-keys", tenant: id, body })).key;
    key = await newKey({ name: "all", role: "admin", scopes: allScopes });
    bridgeKey = await newKey({ name: "bridge", scopes: ["node", "calls"] });
  });
  afterAll(() => functions.close());

  test("has a node called by a function, with frames that the API lets through", async () => {
    const bridge = await startBridge(functions.api.url, bridgeKey);
    const tools = Array.from({ length: 12 }, (_, at) =>
      vcpManifest(`Tool${at}`, {
        capabilities: { invocationCommands: [{ command: "go", description: "long ".repeat(1_000) }] },
      }),
    );
    const node = await startNode(bridge, { tools, run: (_name, args) => ({ length: args.text.length }) });
    const list = async (): Promise<Json[]> => (await functions.request({ key, method: "GET", path: "/v1/tools" })).data;
    await expect.poll(async () => (await list()).map(({ name }) => name), { timeout: 15_000 }).toContain("Tool11");
    const body = { uri: "vcp://Tool3", arguments: { text: "x".repeat(20_000) } };
    const answer = await functions.request({ key, method: "POST", path: "/v1/tools/invoke", body });
    expect(JSON.parse(answer.content)).toMatchObject({ length: 20_000 });
    expect(node.asked[0]).toMatchObject({ toolName: "Tool3", serverId: node.serverId });
    const log = await connectSocket(`${bridge}/VCPlog/VCP_Key=${vcpKey}`);
    open.push(() => log.close());
    await expect.poll(() => log.of("connection_ack"), { timeout: 10_000 }).toHaveLength(1);
    const again = await functions.request({ key, method: "POST", path: "/v1/tools/invoke", body });
    await functions.work();
    await functions.tick();
    await expect
      .poll(() => log.of("vcp_log").map(({ data }) => data.details.callId), { timeout: 10_000 })
      .toContain(again.id);
  });
});
