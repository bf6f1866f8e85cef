/** `webSocketPush`: what plugins came to, told to connected clients of the kind that the manifest names, or to all. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { asyncPlugin, startDesks, type Desks } from "../support/async-plugin.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { rawSend } from "../support/raw-send.ts";
import { connectSocket, type SocketClient } from "../support/socket-client.ts";
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
