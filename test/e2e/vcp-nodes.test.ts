/**
 * Nodes of VCP over its own WebSocket path: connected to one instance of the server form, called at the other
 * (docs/nodes.md).
 */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { vcpPaths } from "@toolyard/core/vcp/nodes/client-types";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startLlmStub, text } from "../support/llm-stub.ts";
import { connectSocket, HandshakeRefused, type SocketClient } from "../support/socket-client.ts";
import { startVcpNode, vcpManifest, type VcpNode, type VcpNodeOptions } from "../support/vcp-node.ts";
import { verifies } from "../support/verifies.ts";

const timing = { leaseMs: 3_000, heartbeatMs: 500, cancelPollMs: 100 };

let first: Gateway;
let second: Gateway;
let tenant: TestTenant;
let nodeKey: string;
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  first = await startGateway({ timing, tickEveryMs: 200 });
  second = await startGateway({ timing, tickEveryMs: 200, sharedWith: first });
});
afterAll(async () => {
  await second.close();
  await first.close();
});
beforeEach(async () => {
  tenant = await first.newTenant();
  nodeKey = (await tenant.newKey({ scopes: ["node", "tools"] })).key;
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()));
});

const socketUrl = ({ url }: Gateway, path: string): string => `${url.replace("http", "ws")}${path}`;

/** At the second instance, as all that is asked is asked at the first. */
async function startNode(more: Partial<VcpNodeOptions> = {}): Promise<VcpNode> {
  const node = await startVcpNode({ url: socketUrl(second, "/vcp-distributed-server"), key: nodeKey, ...more });
  open.push(node);
  return node;
}

/** Its plugin answers at once, and works on. */
async function startFilm(more: Partial<VcpNodeOptions> = {}): Promise<VcpNode> {
  const node = await startNode({
    ...more,
    tools: [vcpManifest("Film", { pluginType: "asynchronous" })],
    run: () => ({ requestId: "task-1", messageForAI: "It will take a while." }),
  });
  await listed("Film");
  return node;
}

async function watch(path: string, key?: string): Promise<SocketClient> {
  const { key: made } = key === undefined ? await tenant.newKey({ scopes: ["calls", "approve"] }) : { key };
  const client = await connectSocket(socketUrl(second, path), { headers: { authorization: `Bearer ${made}` } });
  open.push(client);
  return client;
}

const invoke = (target: Json, args: Json = {}, more: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { ...target, arguments: args, ...more });

const toolsListed = async (): Promise<Json[]> => (await tenant.client.get("/v1/tools")).data;
const namesListed = async (): Promise<string[]> => (await toolsListed()).map(({ name }) => name);
const listed = (name: string): Promise<unknown> =>
  expect.poll(namesListed, { timeout: 10_000, interval: 50 }).toContain(name);

describe(`a node of VCP ${verifies("VCP-15")}`, () => {
  test("is told that it is connected, and has its tools listed with the marks of a node", async () => {
    const node = await startNode({ tools: [vcpManifest("Echo"), vcpManifest("Wan2.1VideoGen")] });
    expect(node.client.of("connection_ack")).toEqual([
      {
        type: "connection_ack",
        message: "WebSocket connection successful for DistributedServer.",
        data: {
          serverId: expect.stringMatching(/^dist-[0-9a-z]+-\w+$/),
          clientId: expect.stringMatching(/^[0-9a-z]+-\w+$/),
        },
      },
    ]);
    await listed("Echo");
    expect(await toolsListed()).toContainEqual(
      expect.objectContaining({
        name: "Echo",
        kind: "NODE",
        uri: "node://Echo",
        title: "[云端] Echo of a node",
        isDistributed: true,
        serverId: node.serverId,
        nodes: ["lab"],
      }),
    );
    // Models call it otherwise, since the names of functions have no dots.
    const dotted = (await toolsListed()).find(({ name }) => name === "Wan2.1VideoGen");
    expect(dotted).toMatchObject({ alias: expect.stringMatching(/^Wan2_1VideoGen/), uri: "node://Wan2_1VideoGen" });
    expect((await tenant.client.get("/v1/nodes")).data).toMatchObject([{ name: "lab", serverId: node.serverId }]);
  });

  test("carries out a call, by URI and by name, and is told the trace and its own id", async () => {
    const node = await startNode({ run: (_name, args) => ({ echo: args }) });
    await listed("Echo");
    const traceId = createHash("md5").update("trace").digest("hex");
    const answer = await tenant.client.send(
      "post",
      "/v1/tools/invoke",
      { uri: "node://Echo", arguments: { text: "「始」x「末」", n: 1 } },
      { headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` } },
    );
    expect(JSON.parse(answer.json.content)).toMatchObject({ echo: { text: "「始」x「末」", n: 1 } });
    expect(node.asked).toEqual([
      {
        requestId: expect.any(String),
        toolName: "Echo",
        toolArgs: { text: "「始」x「末」", n: 1 },
        traceId,
        serverId: node.serverId,
      },
    ]);
    expect((await invoke({ uri: "node://lab/Echo" })).status).toBe(200);
    expect((await invoke({ name: "Echo" })).status).toBe(200);
  });

  test("is called with a command that its address names", async () => {
    const node = await startNode({ run: (_name, args) => ({ echo: args }) });
    await listed("Echo");
    const answer = await invoke({ uri: "vcp://Echo/go" }, { text: "x" });
    expect(JSON.parse(answer.json.content)).toMatchObject({ echo: { command: "go", text: "x" } });
    expect(node.asked.map(({ toolArgs }) => toolArgs)).toEqual([{ command: "go", text: "x" }]);
    const other = await invoke({ uri: "vcp://Echo/go" }, { command: "Other" });
    expect([other.status, other.json.error.param]).toEqual([400, "command"]);
    const unknown = await invoke({ uri: "vcp://Echo/Sing" });
    expect([unknown.status, unknown.json.error.message]).toEqual([
      404,
      "Tool 'vcp://Echo/Sing' not found: 'Echo' has no command 'Sing'; known: go",
    ]);
    expect(node.asked).toHaveLength(1);
  });

  test("is called under its exact name, whatever models call it", async () => {
    const node = await startNode({ tools: [vcpManifest("Wan2.1VideoGen")], run: () => "made" });
    await listed("Wan2.1VideoGen");
    const targets = [{ name: "Wan2.1VideoGen" }, { uri: "vcp://Wan2.1VideoGen" }, { uri: "node://Wan2_1VideoGen" }];
    for (const target of targets) {
      expect(JSON.parse((await invoke(target)).json.content)).toMatchObject({ original_plugin_output: "made" });
    }
    expect(node.asked.map(({ toolName }) => toolName)).toEqual(targets.map(() => "Wan2.1VideoGen"));
  });

  test("is given VCP's own words as plugins of the tenant are, and answers as they do", async () => {
    const nested = { status: "success", result: { status: "success", result: { deep: 1 } } };
    const node = await startNode({ run: (_name, { kind }) => (kind === "nested" ? nested : "said") });
    await listed("Echo");
    const ask = (fields: string): Promise<Reply> =>
      tenant.client.send("post", "/v1/human/tool", undefined, {
        raw: `<<<[TOOL_REQUEST]>>>tool_name:「始」Echo「末」${fields}<<<[END_TOOL_REQUEST]>>>`,
        headers: { "content-type": "text/plain" },
      });
    const words = { maid: "Nova", valet: "Kim", tool_password: "open" };
    const said = await ask(
      Object.entries(words)
        .map(([key, value]) => `,${key}:「始」${value}「末」`)
        .join(""),
    );
    expect(said.json).toMatchObject({ original_plugin_output: "said", MaidName: "Nova" });
    expect(node.asked.at(-1).toolArgs).toEqual(words);
    const { json } = await ask(",kind:「始」nested「末」");
    expect(json, "unwrapped once").toMatchObject({ status: "success", result: { deep: 1 } });
    const task = { uri: "vcp://Echo", arguments: { text: "x" } };
    const { id } = await tenant.client.post("/v1/schedule_task", { delay_ms: 100, task });
    await expect.poll(() => node.asked.length, { timeout: 15_000 }).toBe(3);
    expect(node.asked.at(-1).toolArgs).toMatchObject({ text: "x", __vcp_timed_call: { taskId: id } });
  });

  test("says what went wrong, and has results unwrapped", async () => {
    await startNode({
      run(_name, { want }) {
        if (want === "error") throw new Error("the camera is off");
        if (want === "inner error") return { status: "error", error: "no film" };
        if (want === "inner success") return { status: "success", result: { picture: 1 } };
        return '{"text":"JSON in a text"}';
      },
    });
    await listed("Echo");
    const said = async (args: Json): Promise<Json> => (await invoke({ uri: "node://Echo" }, args)).json;
    const failed = (await invoke({ uri: "node://Echo" }, { want: "error" })).json.error;
    expect(failed).toMatchObject({ code: "tool_failed", message: "'Echo' failed: the camera is off" });
    expect((await said({ want: "inner error" })).error.message).toBe("'Echo' failed: no film");
    const timestamp = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]{12}[+-]\d\d:\d\d$/);
    expect(JSON.parse((await said({ want: "inner success" })).content)).toEqual({ picture: 1, timestamp });
    expect(JSON.parse((await said({ maid: "Nova" })).content)).toEqual({
      text: "JSON in a text",
      MaidName: "Nova",
      timestamp,
    });
  });

  test("takes large arguments and gives large results in one piece", async () => {
    const node = await startNode({ run: (_name, { text }) => ({ text: `${text}!` }) });
    await listed("Echo");
    const text = "ä".repeat(100_000);
    const { json } = await invoke({ uri: "node://Echo" }, { text });
    expect(json.status).toBe("completed");
    expect(node.asked[0].toolArgs.text === text).toBe(true);
    const whole = await tenant.client.send("get", `/v1/calls/${json.id}/result`);
    expect(JSON.parse(whole.text).text === `${text}!`).toBe(true);
  });

  test("is told to stop at the time limit of its manifest, if it can", async () => {
    const slow = vcpManifest("Slow", { communication: { protocol: "stdio", timeout: 2_000 } });
    const node = await startNode({ tools: [slow], cancelTool: true });
    await listed("Slow");
    // It is not known whether a write took effect.
    const { error } = (await invoke({ uri: "node://Slow" })).json;
    expect(error.code).toBe("outcome_unknown");
    const [{ requestId }] = node.asked;
    await expect.poll(() => node.client.of("cancel_tool")).toContainEqual({ type: "cancel_tool", data: { requestId } });
  });

  test("goes away in the middle of a call, which ends at once, and is called again when it is back", async () => {
    const node = await startNode();
    await listed("Echo");
    const waiting = invoke({ uri: "node://Echo" });
    await expect.poll(() => node.asked.length, { timeout: 10_000 }).toBe(1);
    node.client.socket.terminate();
    const { error } = (await waiting).json;
    expect(error.code).toBe("outcome_unknown");
    expect(error.message).toContain(
      `Distributed server lab disconnected while executing request ${node.asked[0].requestId}.`,
    );
    await expect.poll(namesListed, { timeout: 10_000 }).not.toContain("Echo");
    expect((await invoke({ uri: "node://Echo" })).json.error.code).toBe("tool_not_found");
    const again = await startNode({ run: () => "back" });
    await listed("Echo");
    expect(again.serverId).not.toBe(node.serverId);
    expect((await invoke({ uri: "node://Echo" })).json.content).toContain("back");
    expect((await toolsListed()).find(({ name }) => name === "Echo").serverId).toBe(again.serverId);
  });

  test("may register anew, which replaces what it offered", async () => {
    const node = await startNode({ run: (name) => name });
    await listed("Echo");
    node.register([vcpManifest("Other")]);
    await listed("Other");
    expect(await namesListed()).not.toContain("Echo");
    expect((await invoke({ uri: "node://Other" })).json.content).toContain("Other");
  });

  test("shares a tool with an equal one of another node, and is refused one that differs", async () => {
    await startNode({ serverName: "a", run: () => "a" });
    await listed("Echo");
    const other = await startNode({
      serverName: "b",
      tools: [vcpManifest("Echo", { description: "Something else." }), vcpManifest("Mine")],
      run: (name) => name,
    });
    await listed("Mine");
    expect((await invoke({ uri: "node://Echo" })).json.content).toContain("a");
    expect((await invoke({ uri: "node://b/Echo" })).json.error.code).toBe("tool_not_found");
    expect(JSON.stringify(other.client.of("error"))).toContain("Node 'a' offers a tool 'Echo'");
    await startNode({ serverName: "c", run: () => "c" });
    await expect.poll(async () => (await toolsListed()).find(({ name }) => name === "Echo").nodes).toEqual(["a", "c"]);
  });

  test("cannot take the name of a tool that the tenant has", async () => {
    const node = await startNode({ tools: [vcpManifest("fetch"), vcpManifest("Mine")], run: () => "from the node" });
    await listed("Mine");
    expect((await toolsListed()).find(({ name }) => name === "fetch").kind).toBe("NATIVE");
    await expect.poll(() => JSON.stringify(node.client.of("error"))).toContain("native://fetch");
    expect((await invoke({ uri: "node://lab/fetch" })).json.content).toContain("from the node");
  });

  test("belongs to its tenant alone", async () => {
    await startNode({ run: () => "mine" });
    await listed("Echo");
    const stranger = await first.newTenant();
    expect((await stranger.client.get("/v1/tools")).data.map(({ name }: Json) => name)).not.toContain("Echo");
    const { status } = await stranger.client.send("post", "/v1/tools/invoke", { uri: "node://Echo", arguments: {} });
    expect(status).toBe(404);
  });

  test("hands on what an asynchronous plugin says later, of its own plugins only", async () => {
    const node = await startFilm();
    const { json } = await invoke({ uri: "vcp://Film" }, { text: "a cat" });
    expect(json).toMatchObject({ status: "running" });
    const forward = (callbackData: Json): void =>
      node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    forward({ pluginName: "Other", taskId: "task-1", status: "Succeed" });
    forward({ pluginName: "Film", taskId: "unknown", status: "Succeed" });
    await expect.poll(() => node.client.of("error"), { timeout: 5_000 }).toHaveLength(2);
    forward({ pluginName: "Film", taskId: "task-1", status: "Succeed", videoUrl: "https://x/film" });
    const stateOf = async (): Promise<Json> => tenant.client.get(`/v1/calls/${json.id}`);
    await expect.poll(async () => (await stateOf()).state, { timeout: 5_000 }).toBe("completed");
    const result = await tenant.client.send("get", `/v1/calls/${json.id}/result`);
    expect(result.text).toContain("https://x/film");
  });

  test.for([
    ["words with its placeholder", "Submitted. {{VCP_ASYNC_RESULT::Clip::task-2}}"],
    ["the text of an object", '{"requestId":"task-2","messageForAI":"Submitted."}'],
  ])("waits for a task that the plugin names in %s", async ([, said]) => {
    const node = await startNode({ tools: [vcpManifest("Clip", { pluginType: "asynchronous" })], run: () => said });
    await listed("Clip");
    const { json } = await invoke({ uri: "vcp://Clip" });
    expect(json).toMatchObject({ status: "running" });
    expect(JSON.stringify(json)).toContain("Submitted.");
    const callbackData = { pluginName: "Clip", taskId: "task-2", status: "Succeed", message: "cut" };
    node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    const stateOf = async (): Promise<Json> => (await tenant.client.get(`/v1/calls/${json.id}`)).state;
    await expect.poll(stateOf, { timeout: 5_000 }).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text).toContain("cut");
    expect(node.client.of("error")).toEqual([]);
  });

  test("hands on as much of a task as is taken from others, with what it says right behind it", async () => {
    const said = "Submitted. {{VCP_ASYNC_RESULT::Clip::task-4}}";
    const node = await startNode({ tools: [vcpManifest("Clip", { pluginType: "asynchronous" })], run: () => said });
    await listed("Clip");
    const { json } = await invoke({ uri: "vcp://Clip" });
    const callbackData = { pluginName: "Clip", taskId: "task-4", status: "Succeed", picture: "A".repeat(3_000_000) };
    node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    node.client.say({ type: "report_ip", data: { serverName: "lab", localIPs: [] } });
    const stateOf = async (): Promise<Json> => (await tenant.client.get(`/v1/calls/${json.id}`)).state;
    await expect.poll(stateOf, { timeout: 10_000 }).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text.length).toBeGreaterThan(3_000_000);
    expect(node.client.of("error")).toEqual([]);
  });

  test("is believed of a task that it names and ends in one breath", async () => {
    const callbackData = { pluginName: "Clip", taskId: "task-3", status: "Succeed", message: "cut" };
    const node: VcpNode = await startNode({
      tools: [vcpManifest("Clip", { pluginType: "asynchronous" })],
      run() {
        const data = { serverName: "lab", callbackData };
        setImmediate(() => node.client.say({ type: "plugin_callback_forward", data }));
        return "Submitted. {{VCP_ASYNC_RESULT::Clip::task-3}}";
      },
    });
    await listed("Clip");
    const { json } = await invoke({ uri: "vcp://Clip" });
    const stateOf = async (): Promise<Json> => (await tenant.client.get(`/v1/calls/${json.id}`)).state;
    await expect.poll(stateOf, { timeout: 5_000 }).toBe("completed");
    expect(node.client.of("error")).toEqual([]);
  });

  test("has an asynchronous plugin's words as its result where they name no task of its own", async () => {
    const said = "What {{VCP_ASYNC_RESULT::Other::task-2}} says.";
    await startNode({ tools: [vcpManifest("Clip", { pluginType: "asynchronous" })], run: () => said });
    await listed("Clip");
    const { json } = await invoke({ uri: "vcp://Clip" });
    expect(json).toMatchObject({ status: "completed", content: expect.stringContaining(said) });
  });

  test("has what its plugin says later told to a model in the plugin's own words", async () => {
    const llm = await startLlmStub();
    open.push(llm);
    await tenant.addProvider(llm.url);
    const node = await startFilm();
    const chat = async (content: string): Promise<string> => {
      const body = { model: "stub-1", session_id: "sess_film", tool_protocol: "vcp", messages: [] as Json[] };
      body.messages.push({ role: "user", content });
      await tenant.client.post("/v1/chat/completions", body);
      return JSON.stringify((llm.requests.at(-1) as Json).messages);
    };
    const request = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」Film「末」\n<<<[END_TOOL_REQUEST]>>>";
    llm.script(text(request), text("It is being made."));
    await chat("Make a film.");
    const [call] = (await tenant.client.get("/v1/calls?kind=tool")).data;
    expect(call).toMatchObject({ uri: "node://Film", state: "running" });
    const callbackData = { pluginName: "Film", requestId: "task-1", status: "success", message: "ready" };
    const result = { url: "https://x/film" };
    node.client.say({
      type: "plugin_callback_forward",
      data: { serverName: "lab", callbackData: { ...callbackData, result } },
    });
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${call.id}`)).state).toBe("completed");
    llm.script(text("Here it is."));
    const told = await chat("Is it there?");
    expect(told).toContain("https://x/film");
    expect(told).toContain("ready");
  });

  test.for(["node://Film", "vcp://Film"])(
    "has a call of %s cancelled while its plugin works on, which reserves nothing any more",
    async (uri) => {
      const { client } = tenant;
      await client.expect("put", "/v1/prices", { prices: [{ kind: "tool", pattern: "Film", per_call: 500 }] });
      const budget = await client.post("/v1/budgets", { period: "total", limit_micros: 1_200 });
      await startFilm();
      const { json } = await invoke({ uri });
      expect(json).toMatchObject({ status: "running" });
      const micros = async (): Promise<Json> => {
        const { used, reserved } = await client.get(`/v1/budgets/${budget.id}`);
        return { used: used.micros, reserved: reserved.micros };
      };
      expect(await micros()).toEqual({ used: 0, reserved: 500 });
      expect(await client.post(`/v1/calls/${json.id}/cancel`)).toMatchObject({ state: "cancelled" });
      expect(await micros()).toEqual({ used: 500, reserved: 0 });
    },
  );

  test("may call tools of the gateway with a key that may", async () => {
    const node = await startNode({ run: (_name, args) => ({ said: args.text }) });
    await listed("Echo");
    node.client.say({ type: "get_vcp_manifests", data: { requestId: "m1" } });
    await expect.poll(() => node.client.of("vcp_manifest_response"), { timeout: 5_000 }).toHaveLength(1);
    expect(node.client.of("vcp_manifest_response")[0].data.plugins).toContainEqual(
      expect.objectContaining({ name: "Echo", displayName: "[云端] Echo of a node" }),
    );
    // Its own, which it has to answer meanwhile.
    node.client.say({
      type: "execute_vcp_tool",
      data: { requestId: "x1", toolName: "Echo", toolArgs: { text: "round" } },
    });
    await expect
      .poll(() => node.client.of("vcp_tool_result"), { timeout: 10_000 })
      .toEqual([
        {
          type: "vcp_tool_result",
          data: { requestId: "x1", status: "success", result: { said: "round", timestamp: expect.any(String) } },
        },
      ]);
    expect(node.client.of("vcp_tool_status")).toEqual([
      { type: "vcp_tool_status", data: { requestId: "x1", status: "running" } },
    ]);
  });
});

describe(`what a node of VCP does wrong ${verifies("VCP-24")}`, () => {
  test.each([
    ["no JSON", "{", "no JSON object"],
    ["no object", "[1]", "no JSON object"],
    ["a frame without type", { data: {} }, "a text as its 'type'"],
    ["a frame of an unknown type", { type: "take_over", data: {} }, "'take_over' is no frame of a node"],
    ["tools that are none", { type: "register_tools", data: { serverName: "lab", tools: "all" } }, "'tools', a list"],
    ["a node without a name", { type: "register_tools", data: { tools: [] } }, "'serverName', a text"],
    ["a result without a call", { type: "tool_result", data: { status: "success" } }, "'requestId'"],
    ["a result of no kind", { type: "tool_result", data: { requestId: "r", status: "maybe" } }, "'success' or 'error'"],
  ])("is said to it and logged, and it goes on: %s", async (_what, frame, words) => {
    const node = await startNode({ run: () => "well" });
    await listed("Echo");
    node.client.say(frame);
    await expect.poll(() => node.client.of("error"), { timeout: 5_000 }).toHaveLength(1);
    const { code, message } = node.client.of("error")[0].data;
    expect({ code, message }).toEqual({ code: "invalid_request", message: expect.stringContaining(words) });
    expect(second.logged.map((line) => JSON.stringify(line))).toContainEqual(expect.stringContaining(message));
    expect((await invoke({ uri: "node://Echo" })).json.content).toContain("well");
  });

  test("is said to one that has not registered, since it cannot do so", async () => {
    const client = await connectSocket(socketUrl(second, "/vcp-distributed-server"), {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    open.push(client);
    client.say({ type: "register_tools", data: { name: "lab", tools: [vcpManifest("Echo")] } });
    await expect.poll(() => client.of("error"), { timeout: 5_000 }).toHaveLength(1);
    expect(client.of("error")[0].data.message).toBe(
      "The frame cannot be used: 'data' of 'register_tools' must have 'serverName', a text, and 'tools', a list.",
    );
    client.say({ type: "register_tools", data: { serverName: "lab", tools: [vcpManifest("Echo")] } });
    await listed("Echo");
  });

  test("leaves out manifests that are none or come twice, and takes the others", async () => {
    const node = await startNode({
      tools: [
        vcpManifest("Echo"),
        vcpManifest("Echo", { description: "Twice." }),
        { name: "Half" },
        7,
        vcpManifest("Good"),
      ],
    });
    await listed("Good");
    expect((await namesListed()).filter((name) => ["Echo", "Half", "Good"].includes(name))).toEqual(["Echo", "Good"]);
    const problems = node.client.of("error").map(({ data }) => data.message);
    expect(problems).toEqual([
      expect.stringContaining("'Echo' of node 'lab' is left out: it is registered twice"),
      expect.stringContaining("'Half' of node 'lab' is left out: 'pluginType' is missing"),
      expect.stringContaining("is left out: it is no manifest"),
    ]);
  });

  test("is told where what it says is too long", async () => {
    const node = await startNode();
    await listed("Echo");
    node.client.say({
      type: "tool_result",
      data: { requestId: "r", status: "success", result: "x".repeat(15_000_000) },
    });
    expect(await node.client.closed).toMatchObject({ code: 1009 });
    const early = await connectSocket(socketUrl(second, "/vcp-distributed-server"), {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    for (let at = 0; at < 3; at += 1) early.say({ type: "early", data: "x".repeat(500_000) });
    expect(await early.closed).toMatchObject({ code: 1009 });
  });

  test("is sent away for now where it cannot be registered, and its connection counts no more", async () => {
    const { configs, repos } = second.core;
    const { clientType } = vcpPaths["vcp-distributed-server"];
    const client = await connectSocket(socketUrl(second, "/vcp-distributed-server"), {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const spy = vi.spyOn(configs, "get");
    spy.mockRejectedValue(new GatewayError("database_unavailable", "The database is away."));
    try {
      client.say({ type: "register_tools", data: { serverName: "lab", tools: [vcpManifest("Echo")] } });
      expect(await client.closed).toMatchObject({ code: 1011 });
      await expect.poll(() => repos.connections.ofType(tenant.id, clientType)).toEqual([]);
    } finally {
      spy.mockRestore();
    }
    await startNode({ run: () => "well" });
    await listed("Echo");
  });

  test("is refused a connection without a key that may be a node", async () => {
    const { key } = await tenant.newKey({ scopes: ["tools"] });
    const node = await startNode({ key });
    await expect.poll(() => JSON.stringify(node.client.of("error")), { timeout: 5_000 }).toContain("scope 'node'");
    expect(await node.client.closed).toMatchObject({ code: 1008 });
  });
});

describe(`the key in a path of VCP ${verifies("VCP-13")}`, () => {
  test("is refused with what to do instead, unless the operator allows it", async () => {
    const address = socketUrl(first, `/vcp-distributed-server/VCP_Key=${nodeKey}`);
    const refused = await connectSocket(address).catch((thrown: unknown) => thrown);
    expect(refused).toBeInstanceOf(HandshakeRefused);
    if (!(refused instanceof HandshakeRefused)) return;
    expect(refused.status).toBe(401);
    expect(refused.body.error.message).toContain("TOOLYARD_VCP_KEY_IN_PATH");
    expect(JSON.stringify(first.logged)).not.toContain(nodeKey);
    const open = await startGateway({ env: { TOOLYARD_VCP_KEY_IN_PATH: "true" }, sharedWith: first });
    try {
      const node = await startVcpNode({ url: socketUrl(open, `/vcp-distributed-server/VCP_Key=${nodeKey}`) });
      await listed("Echo");
      await node.close();
      await expect(connectSocket(socketUrl(open, "/vcp-distributed-server/VCP_Key=wrong"))).rejects.toThrow("401");
    } finally {
      await open.close();
    }
  });

  test.each(["/vcplog", "/VCPlog/Key=x", "/vcp-unknown/VCP_Key=x", "/VCPlog/VCP_Key=x/more"])(
    "leads nowhere at %s, which no client type has",
    async (path) => {
      await expect(connectSocket(socketUrl(first, path))).rejects.toThrow("404");
    },
  );
});

describe(`VCPLog ${verifies("VCP-22", "VCP-13")}`, () => {
  test("tells of calls with their trace, their task and their node, at another instance", async () => {
    const node = await startNode({ run: () => "the result" });
    await listed("Echo");
    const log = await watch("/VCPlog");
    await expect.poll(() => log.frames.length).toBeGreaterThan(0);
    expect(log.frames[0]).toEqual({ type: "connection_ack", message: "WebSocket connection successful for VCPLog." });
    const { json } = await invoke({ uri: "node://Echo" });
    await expect.poll(() => log.of("vcp_log").length, { timeout: 5_000 }).toBeGreaterThan(0);
    const call = await tenant.client.get(`/v1/calls/${json.id}`);
    expect(log.of("vcp_log")).toEqual([
      {
        type: "vcp_log",
        data: {
          tool_name: "Echo",
          status: "success",
          content: expect.stringContaining('"original_plugin_output": "the result"'),
          details: {
            traceId: call.trace_id,
            taskId: json.id,
            callId: json.id,
            serverId: node.serverId,
            state: "completed",
            durationMs: expect.any(Number),
          },
        },
        _vcpReplayId: expect.stringMatching(/^vcplog-/),
      },
    ]);
  });

  test("tells of nodes that come and go", async () => {
    const log = await watch("/VCPlog");
    // An instance knows from its own requests that somebody listens.
    await namesListed();
    const node = await startNode();
    await expect
      .poll(() => log.of("vcp_log").map(({ data }) => data), { timeout: 5_000 })
      .toContainEqual({
        tool_name: "VCPSystem",
        status: "success",
        content: "'lab' offers 1 tools.",
        details: { event: "node.registered", serverId: node.serverId },
      });
  });

  test("tells once of what a node's plugin says later, and of which node", async () => {
    const log = await watch("/VCPlog");
    const node = await startFilm();
    await invoke({ uri: "node://Film" });
    const told = (): Json[] => log.of("vcp_log").filter(({ data }) => data.details.taskId === "task-1");
    await expect.poll(() => told().length, { timeout: 5_000 }).toBe(1);
    const callbackData = { pluginName: "Film", taskId: "task-1", message: "ready" };
    node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    await expect.poll(() => JSON.stringify(told()), { timeout: 5_000 }).toContain("ready");
    await sleep(500);
    const details = { taskId: "task-1", serverId: node.serverId };
    expect(told().map(({ data }) => data)).toMatchObject([
      { tool_name: "Film", details: { ...details, state: "running" } },
      { tool_name: "Film", details: { ...details, state: "completed" } },
    ]);
  });

  test("names the node that was called, where two have the plugin", async () => {
    const log = await watch("/VCPlog");
    const [node, other] = [await startFilm(), await startFilm({ serverName: "studio" })];
    await expect.poll(async () => (await invoke({ uri: "node://studio/Film" })).status, { timeout: 5_000 }).toBe(202);
    const callbackData = { pluginName: "Film", taskId: "task-1", message: "ready" };
    other.client.say({ type: "plugin_callback_forward", data: { serverName: "studio", callbackData } });
    const told = (): Json[] =>
      log.of("vcp_log").flatMap(({ data: { details } }) => (details.taskId === "task-1" ? [details] : []));
    await expect.poll(() => told().map(({ state }) => state), { timeout: 5_000 }).toEqual(["running", "completed"]);
    expect(told().map(({ serverId }) => serverId)).toEqual([other.serverId, other.serverId]);
    expect(node.asked).toEqual([]);
  });

  test("is for those who may read the call", async () => {
    await startNode({ run: () => "not for all" });
    await listed("Echo");
    const { key } = await tenant.newKey({ scopes: ["tools"] });
    const [all, own] = [await watch("/VCPlog"), await watch("/VCPlog", key)];
    await sleep(100);
    await invoke({ uri: "node://Echo" });
    await expect.poll(() => all.of("vcp_log"), { timeout: 5_000 }).toHaveLength(1);
    await sleep(600);
    expect(own.of("vcp_log")).toEqual([]);
    const answer = await fetch(`${first.url}/v1/tools/invoke`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ uri: "node://Echo", arguments: {} }),
    });
    expect(answer.status).toBe(200);
    await expect.poll(() => own.of("vcp_log"), { timeout: 5_000 }).toHaveLength(1);
  });

  test("writes nothing where nobody listens", async () => {
    await startNode({ run: () => "unheard" });
    await listed("Echo");
    await invoke({ uri: "node://Echo" });
    await sleep(300);
    const other = await watch("/VCPlog");
    await sleep(300);
    expect(other.of("vcp_log")).toEqual([]);
  });
});
