/**
 * Clients of VCP at its own WebSocket paths that are no nodes: logs and their replay, approvals, browsers. Each is
 * connected to one instance, and what it hears happens at the other.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { connectSocket, type SocketClient } from "../support/socket-client.ts";
import { importVcp, printing } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let first: Gateway;
let second: Gateway;
let tenant: TestTenant;
let key: string;
const open: SocketClient[] = [];

beforeAll(async () => {
  const options = { tickEveryMs: 200, vcpReplay: { afterMs: 200, betweenMs: 5 } };
  first = await startGateway(options);
  second = await startGateway({ ...options, sharedWith: first });
});
afterAll(async () => {
  await second.close();
  await first.close();
});
beforeEach(async () => {
  tenant = await first.newTenant();
  ({ key } = await tenant.newKey({ scopes: ["calls", "approve", "tools"] }));
  await importVcp(tenant.client, printing("Echo", JSON.stringify({ status: "success", result: "said" })));
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()));
});

async function connect(
  path: string,
  more: { readonly key?: string; readonly at?: Gateway } = {},
): Promise<SocketClient> {
  const { at = second, key: given = key } = more;
  const client = await connectSocket(`${at.url.replace("http", "ws")}${path}`, {
    headers: { authorization: `Bearer ${given}` },
  });
  open.push(client);
  return client;
}

async function watch(path: string): Promise<SocketClient> {
  const client = await connect(path);
  await expect.poll(() => client.of("connection_ack")).toHaveLength(1);
  return client;
}

const call = (args: Json = {}): Promise<Json> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Echo", arguments: args }).then(({ json }) => json);

const contents = (client: SocketClient): string[] =>
  client.of("vcp_log").map(({ data }) => data.details.callId ?? data.content);

describe(`clients of VCP ${verifies("VCP-13")}`, () => {
  test.each([
    ["/VCPlog", "VCPLog"],
    ["/vcpinfo", "VCPInfo"],
  ])("are told at %s that they are connected as %s", async (path, clientType) => {
    const client = await watch(path);
    expect(client.frames).toEqual([
      { type: "connection_ack", message: `WebSocket connection successful for ${clientType}.` },
    ]);
  });

  test("hear frames for their type as they are, on VCP's paths and on /ws", async () => {
    const frame = { type: "RAG_RETRIEVAL_DETAILS", z: 1, a: [2, "三"] };
    const observer = await connect("/ws?client_type=RAGObserver");
    const agent = await connect("/ws?client_type=AgentMessage");
    const info = await watch("/vcpinfo");
    const { publishFrames } = await import("@toolyard/core/vcp/log/frames");
    await publishFrames(first.core, tenant.id, [
      { frame, targetClientType: "RAGObserver" },
      { frame: { type: "agent_message", data: { message: "hello" } }, targetClientType: "AgentMessage" },
      { frame: { type: "DailyNote", text: "x" }, targetClientType: "VCPInfo" },
    ]);
    await expect.poll(() => observer.frames, { timeout: 5_000 }).toEqual([frame]);
    await expect.poll(() => agent.frames).toEqual([{ type: "agent_message", data: { message: "hello" } }]);
    await expect.poll(() => info.of("DailyNote")).toEqual([{ type: "DailyNote", text: "x" }]);
    expect(JSON.stringify(observer.frames[0])).toBe(JSON.stringify(frame));
  });

  test("are told what is wrong with a frame, and go on", async () => {
    const log = await watch("/VCPlog");
    for (const wrong of ["{", '{"type":"tool_approval_response"}', '{"type":"command","data":{}}']) log.say(wrong);
    await expect.poll(() => log.of("error"), { timeout: 5_000 }).toHaveLength(3);
    const { id } = await call();
    await expect.poll(() => contents(log), { timeout: 5_000 }).toContain(id);
  });
});

describe(`the length of what a client of VCP says ${verifies("VCP-13", "VCP-15")}`, () => {
  const paths = ["/VCPlog", "/vcpinfo", "/vcp-chrome-observer", "/vcp-chrome-control", "/vcp-admin-panel"];
  test.each([...paths, "/vcp-distributed-server"])("is at most that of others at %s", async (path) => {
    const client = await connect(path);
    client.say({ type: "x", data: "x".repeat(131_072) });
    expect(await client.closed).toMatchObject({ code: 1009 });
  });

  test("is a file's for nodes, whose key says that they may be some", async () => {
    const node = await tenant.newKey({ scopes: ["node"] });
    const client = await connect("/vcp-distributed-server", { key: node.key });
    client.say({ type: "tool_result", data: { requestId: "r", status: "maybe", result: "x".repeat(400_000) } });
    client.say({ type: 7 });
    await expect.poll(() => client.of("connection_ack")).toHaveLength(1);
    expect(client.socket.readyState).toBe(client.socket.OPEN);
    const elsewhere = await connect("/vcpinfo", { key: node.key });
    elsewhere.say({ type: "x", data: "x".repeat(131_072) });
    expect(await elsewhere.closed).toMatchObject({ code: 1009 });
  });
});

describe(`a device that was away ${verifies("VCP-13", "VCP-22")}`, () => {
  test("is told what it has missed, once, with ids, and nobody else is", async () => {
    const before = await watch("/VCPlog?deviceName=desk");
    const heard = await call();
    await expect.poll(() => contents(before), { timeout: 5_000 }).toEqual([heard.id]);
    // What was on its way as it went may be told twice, under the same id.
    await sleep(1_200);
    await before.close();
    await sleep(100);
    const missed = [await call(), await call()].map(({ id }) => id);
    // Frames are gathered for a moment.
    await sleep(400);
    const other = await watch("/VCPlog?deviceName=other");
    const back = await watch("/VCPlog?device_name=desk");
    const during = await call();
    await expect.poll(() => contents(back), { timeout: 5_000 }).toHaveLength(3);
    const replayed = back.of("vcp_log").filter(({ _vcpReplay }) => _vcpReplay === true);
    expect(replayed.map(({ data }) => data.details.callId)).toEqual(missed);
    expect(replayed.map(({ _vcpReplayId }) => _vcpReplayId)).toEqual([
      expect.stringMatching(/^vcplog-/),
      expect.stringMatching(/^vcplog-/),
    ]);
    expect(replayed[0]._vcpReplayOriginalAt).toBeGreaterThan(Date.now() - 60_000);
    await expect.poll(() => contents(other), { timeout: 5_000 }).toEqual([during.id]);
    await sleep(1_200);
    await back.close();
    const again = await watch("/VCPlog?deviceName=desk");
    await sleep(500);
    expect(again.of("vcp_log").filter(({ data }) => missed.includes(data.details.callId))).toEqual([]);
  });

  test("is told nothing of the calls that its key may not read", async () => {
    const { key: own } = await tenant.newKey({ scopes: ["tools"] });
    const before = await connect("/VCPlog?deviceName=desk", { key: own });
    await expect.poll(() => before.of("connection_ack")).toHaveLength(1);
    await before.close();
    await sleep(100);
    await call();
    const back = await connect("/VCPlog?deviceName=desk", { key: own });
    await sleep(800);
    expect(back.of("vcp_log")).toEqual([]);
  });
});

describe(`approval by a client of VCP ${verifies("VCP-13")}`, () => {
  let backEnd: HttpStub;
  beforeAll(async () => {
    backEnd = await startHttpStub();
  });
  afterAll(() => backEnd.close());
  beforeEach(() => tenant.addPlugin({ ...order(backEnd), sensitive: true }));

  const order = (stub: HttpStub): Json => {
    const tool = writingTool(stub, "order");
    return { ...tool, parameters: { type: "object", properties: {}, additionalProperties: true } };
  };
  const ask = (args: Json): Promise<Json> =>
    tenant.client.send("post", "/v1/tools/invoke", { uri: "plugin://order", arguments: args }).then(({ json }) => json);
  const asked = async (client: SocketClient): Promise<Json> => {
    await expect.poll(() => client.of("tool_approval_request"), { timeout: 5_000 }).toHaveLength(1);
    return client.of("tool_approval_request")[0];
  };
  const stateOf = async (id: string): Promise<string> => (await tenant.client.get(`/v1/calls/${id}`)).state;

  test.each([
    [true, "completed"],
    [false, "rejected"],
  ])("with approved: %s ends the call as %s", async (approved, state) => {
    const log = await watch("/VCPlog");
    const { id } = await ask({ text: "dangerous", maid: "Nova" });
    const { data, _vcpReplayId } = await asked(log);
    expect(_vcpReplayId).toMatch(/^vcplog-/);
    expect(data).toEqual({
      requestId: expect.stringMatching(/^approve-\d+-\w+$/),
      toolName: "order",
      maid: "Nova",
      args: { text: "dangerous", maid: "Nova" },
      timestamp: expect.any(String),
      approvalTtlMs: expect.any(Number),
    });
    log.say({ type: "tool_approval_response", data: { requestId: data.requestId, approved, reason: "because" } });
    await expect.poll(() => stateOf(id), { timeout: 10_000 }).toBe(state);
    expect((await tenant.client.get(`/v1/calls/${id}`)).approval).toMatchObject({ reason: "because" });
  });

  test("is refused to a key that may not approve, and to a browser", async () => {
    const log = await watch("/VCPlog");
    const { id } = await ask({});
    const { data } = await asked(log);
    const response = { type: "tool_approval_response", data: { requestId: data.requestId, approved: true } };
    const { key: weak } = await tenant.newKey({ scopes: ["calls"] });
    const other = await connect("/vcpinfo", { key: weak });
    other.say(response);
    const browser = await connect("/vcp-chrome-observer");
    browser.say(response);
    for (const client of [other, browser])
      await expect.poll(() => client.of("error"), { timeout: 5_000 }).toHaveLength(1);
    expect(await stateOf(id)).toBe("input_required");
    const panel = await connect("/vcp-admin-panel");
    panel.say(response);
    await expect.poll(() => stateOf(id), { timeout: 10_000 }).toBe("completed");
  });

  test("is asked again of a device that comes back, unless it was answered", async () => {
    const before = await watch("/VCPlog?deviceName=desk");
    const [{ id: waits }, { id: answered }] = [await ask({ n: 1 }), await ask({ n: 2 })];
    await expect.poll(() => before.of("tool_approval_request"), { timeout: 5_000 }).toHaveLength(2);
    const told = before.of("tool_approval_request").find(({ data }) => data.args.n === 1);
    await before.close();
    await tenant.client.post(`/v1/calls/${answered}/approve`);
    const back = await watch("/VCPlog?deviceName=desk");
    const { data, _vcpReplay, _vcpReplayId } = await asked(back);
    expect([data.args, _vcpReplay, _vcpReplayId]).toEqual([{ n: 1 }, true, told?.["_vcpReplayId"]]);
    back.say({ type: "tool_approval_response", data: { requestId: data.requestId, approved: true } });
    await expect.poll(() => stateOf(waits), { timeout: 10_000 }).toBe("completed");
  });
});

describe(`a browser ${verifies("VCP-13")}`, () => {
  test("is sent commands from another instance, and answers who has asked", async () => {
    const observer = await connect("/vcp-chrome-observer");
    const control = await connect("/vcp-chrome-control", { at: first });
    observer.say({ type: "heartbeat" });
    await expect.poll(() => observer.frames).toEqual([{ type: "heartbeat_ack", timestamp: expect.any(Number) }]);
    control.say({ type: "command", data: { requestId: "r1", command: "click", wait_for_page_info: true } });
    await expect.poll(() => observer.of("command"), { timeout: 5_000 }).toHaveLength(1);
    const [{ data }] = observer.of("command");
    expect(data).toEqual({
      requestId: "r1",
      command: "click",
      wait_for_page_info: true,
      sourceClientId: expect.any(String),
    });
    const result = { requestId: "r1", sourceClientId: data.sourceClientId, status: "success", message: "clicked" };
    observer.say({ type: "command_result", data: result });
    observer.say({ type: "pageInfoUpdate", data: { markdown: "# Page" } });
    await expect
      .poll(() => control.frames, { timeout: 5_000 })
      .toEqual([
        { type: "command_result", data: result },
        { type: "page_info_update", data: { requestId: "r1", markdown: "# Page" } },
      ]);
  });

  test("is missed where there is none, and another tenant's is none", async () => {
    const stranger = await first.newTenant();
    const { key: foreign } = await stranger.newKey({ scopes: ["tools"] });
    const theirs = await connect("/vcp-chrome-observer", { key: foreign });
    const control = await connect("/vcp-chrome-control");
    control.say({ type: "command", data: { requestId: "r1", command: "click" } });
    await expect
      .poll(() => control.frames, { timeout: 5_000 })
      .toEqual([
        {
          type: "command_result",
          data: { requestId: "r1", status: "error", error: "No active Chrome browser extension found." },
        },
      ]);
    expect(theirs.frames).toEqual([]);
    const { key: weak } = await tenant.newKey({ scopes: ["calls"] });
    const refused = await connect("/vcp-chrome-control", { key: weak });
    refused.say({ type: "command", data: { requestId: "r2", command: "click" } });
    await expect.poll(() => JSON.stringify(refused.frames), { timeout: 5_000 }).toContain("permission_denied");
  });
});
