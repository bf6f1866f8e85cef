/** `webSocketPush`: what plugins came to, told to connected clients of the kind that the manifest names, or to all. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { asyncPlugin, startDesks, type Desks } from "../support/async-plugin.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { rawSend } from "../support/raw-send.ts";
import { connectSocket, type SocketClient } from "../support/socket-client.ts";
import { startVcpNode, vcpManifest as nodeManifest } from "../support/vcp-node.ts";
import { importVcp, printing } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let first: Gateway;
let second: Gateway;
let tenant: TestTenant;
let desks: Desks;
const sockets: SocketClient[] = [];
beforeAll(async () => {
  desks = await startDesks();
  first = await startGateway();
  second = await startGateway({ sharedWith: first });
});
afterAll(async () => {
  await second.close();
  await first.close();
  await desks.close();
});
beforeEach(async () => {
  for (const socket of sockets.splice(0)) await socket.close();
  tenant = await first.newTenant();
});

async function listen(clientType: string, { gateway = first, key = tenant.key } = {}): Promise<SocketClient> {
  const url = `${gateway.url.replace("http", "ws")}/ws?client_type=${clientType}`;
  const client = await connectSocket(url, { headers: { authorization: `Bearer ${key}` } });
  sockets.push(client);
  return client;
}
const invoke = (name: string, args: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/tools/invoke", { uri: `vcp://${name}`, arguments: args });
const pushes = (client: SocketClient): Json[] =>
  client.frames.filter(({ type }) => !/^(?:hello|welcome|vcp_log$)/.test(type));
const expectPush = (client: SocketClient, frame: Json): Promise<void> =>
  expect.poll(() => pushes(client), { timeout: 10_000 }).toEqual([frame]);

describe(`a synchronous result ${verifies("VCP-12")}`, () => {
  const plugin = (name: string, push: Json, result: unknown) => ({
    ...printing(name, JSON.stringify({ status: "success", result })),
    manifest: { webSocketPush: push },
  });

  test("goes to the clients of its kind, at every instance, and to nobody else", async () => {
    const push = { enabled: true, messageType: "note", targetClientType: "VCPLog" };
    await importVcp(tenant.client, plugin("Noter", push, { text: "written" }));
    const other = await first.newTenant();
    const [here, there, info, stranger] = await Promise.all([
      listen("VCPLog"),
      listen("VCPLog", { gateway: second }),
      listen("VCPInfo"),
      listen("VCPLog", { key: other.key }),
    ]);
    await invoke("Noter");
    const frame = { type: "note", data: { text: "written" } };
    await expectPush(here, frame);
    await expectPush(there, frame);
    expect(pushes(info)).toEqual([]);
    expect(pushes(stranger)).toEqual([]);
  });

  test("is the frame itself where the manifest says so, and goes to all where it names no kind", async () => {
    const push = { enabled: true, usePluginResultAsMessage: true, targetClientType: null };
    await importVcp(tenant.client, plugin("Framer", push, { type: "agent_message", message: "hi" }));
    const [log, any] = await Promise.all([listen("VCPLog"), listen("Console")]);
    await invoke("Framer");
    await expectPush(log, { type: "agent_message", message: "hi" });
    await expectPush(any, { type: "agent_message", message: "hi" });
  });

  test("goes to all where the kind is empty, without the secrets that the plugin has", async () => {
    const push = { enabled: true, messageType: "note", targetClientType: "" };
    const noting = plugin("Noter", push, { text: "made with sk-very-secret-1234" });
    const files = { ...noting.files, "config.env": "API_KEY=sk-very-secret-1234" };
    await importVcp(tenant.client, { ...noting, files });
    const any = await listen("Console");
    await invoke("Noter");
    await expect.poll(() => pushes(any), { timeout: 10_000 }).toHaveLength(1);
    expect(pushes(any)).toMatchObject([{ type: "note", data: { text: expect.stringMatching(/^made with /) } }]);
    expect(JSON.stringify(pushes(any))).not.toContain("sk-very-secret");
  });

  test("is not told where it is switched off, where it failed, or where nobody listens", async () => {
    await importVcp(tenant.client, plugin("Silent", { enabled: false, messageType: "no" }, "x"));
    const failing = printing("Failing", '{"status":"error","error":"no"}');
    await importVcp(tenant.client, { ...failing, manifest: { webSocketPush: { enabled: true, messageType: "no" } } });
    await importVcp(tenant.client, plugin("Marker", { enabled: true }, "said"));
    await invoke("Marker");
    const log = await listen("VCPLog");
    await invoke("Silent");
    await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Failing" });
    await invoke("Marker");
    await expectPush(log, { type: "vcp_tool_result_Marker", data: "said" });
  });
});

describe(`what plugins on nodes come to ${verifies("VCP-12", "VCP-15")}`, () => {
  test("is told as their manifests want it: results, also of calls that nobody waits for, and callbacks", async () => {
    const push = { enabled: true, messageType: "of_node", targetClientType: "VCPLog" };
    const node = await startVcpNode({
      url: `${second.url.replace("http", "ws")}/vcp-distributed-server`,
      key: tenant.key,
      tools: [
        nodeManifest("Echo", { webSocketPush: push }),
        nodeManifest("Film", { pluginType: "asynchronous", webSocketPush: push }),
        nodeManifest("Quiet"),
      ],
      run: (name, { n }) => (name === "Film" ? { requestId: "f1" } : { n }),
    });
    sockets.push(node.client);
    const names = async (): Promise<string[]> =>
      (await tenant.client.get("/v1/tools")).data.map(({ name }: Json) => name);
    await expect.poll(names, { timeout: 10_000 }).toContain("Film");
    const log = await listen("VCPLog");
    await invoke("Echo", { n: 1 });
    await invoke("Quiet", { n: 2 });
    const film = await tenant.client.post("/v1/tools/invoke", { uri: "node://Film", arguments: {}, async: true });
    await expect
      .poll(async () => (await tenant.client.get(`/v1/calls/${film.id}`)).result, { timeout: 10_000 })
      .not.toBeNull();
    expect((await tenant.client.get(`/v1/calls/${film.id}`)).state).toBe("running");
    await tenant.client.post("/v1/tools/invoke", { uri: "node://Echo", arguments: { n: 3 }, async: true });
    await expect.poll(() => pushes(log).length, { timeout: 10_000 }).toBe(2);
    const callbackData = { pluginName: "Film", requestId: "f1", message: "ready" };
    node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    await expect.poll(() => pushes(log).length, { timeout: 10_000 }).toBe(3);
    expect(pushes(log)).toEqual(
      [{ n: 1 }, { n: 3 }, callbackData].map((data) => ({ type: "of_node", data: expect.objectContaining(data) })),
    );
  });

  test("is forwarded by the node whose plugin it is, and placeholders are set by that node", async () => {
    const url = `${second.url.replace("http", "ws")}/vcp-distributed-server`;
    await importVcp(tenant.client, asyncPlugin("Maker"));
    const desk = desks.open();
    const order = { desk: desk.url, waits: true, answer: { status: "success", requestId: "t1" } };
    const { json } = await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Maker", arguments: order });
    const node = await startVcpNode({ url, key: tenant.key, tools: [nodeManifest("Echo")] });
    const other = await startVcpNode({ url, key: tenant.key, serverName: "attic", tools: [nodeManifest("Loft")] });
    sockets.push(node.client, other.client);
    const offered = async (): Promise<number> => (await tenant.client.get("/v1/nodes")).data.length;
    await expect.poll(offered, { timeout: 10_000 }).toBe(2);
    const callbackData = { pluginName: "Maker", requestId: "t1", message: "forged" };
    node.client.say({ type: "plugin_callback_forward", data: { serverName: "lab", callbackData } });
    const placeholders = { VCPLoft: "forged" };
    node.client.say({ type: "update_static_placeholders", data: { serverName: "attic", placeholders } });
    await expect.poll(() => node.client.of("error").length, { timeout: 10_000 }).toBe(2);
    expect((await tenant.client.get(`/v1/calls/${json.id}`)).state).toBe("running");
    expect((await tenant.client.get("/v1/vcp/runtime")).staticPlaceholderValues).toEqual({});
    desk.go();
  });
});

describe(`a callback ${verifies("VCP-12", "VCP-5")}`, () => {
  test("is told once, however often it comes, and its call to those who follow it", async () => {
    const webSocketPush = { enabled: true, targetClientType: "VCPLog" };
    await importVcp(tenant.client, asyncPlugin("Maker", { webSocketPush }));
    const log = await listen("VCPLog", { gateway: second });
    const follower = await listen("Console");
    await follower.ask({ type: "subscribe", id: "s", topic: "calls" });
    const desk = desks.open();
    const order = { desk: desk.url, waits: true, answer: { status: "success", requestId: "t1" } };
    const { json } = await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Maker", arguments: order });
    expect(pushes(log), "the first answer is no result").toEqual([]);
    const body = { requestId: "t1", status: "Succeed", videoUrl: "https://v/1" };
    const url = `${desk.environment().CALLBACK_BASE_URL}/Maker/t1`;
    for (const _each of [1, 2, 3]) await rawSend(url, JSON.stringify(body));
    await expectPush(log, { type: "plugin_callback_notification", data: body });
    await expect
      .poll(() => follower.of("call.completed"), { timeout: 10_000 })
      .toMatchObject([{ data: { id: json.id } }]);
  });
});
