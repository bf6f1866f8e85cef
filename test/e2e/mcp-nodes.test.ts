/** `mcp://` over stdio, held on a node: one process for all calls, as long as its service stays what it is. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hashNodeTool, mcpAnswerType } from "@toolyard/core/nodes/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { newTool } from "../contract/calls-fixture.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { heldServer, mcpProgramFiles } from "../support/mcp-program.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { nodeTool, runOf } from "../support/registered-node.ts";
import { connectSocket } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
let nodeKey: string;
let home: string;
let note: string;
beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50, leaseMs: 6_000, heartbeatMs: 2_000 } });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  tenant = await gateway.newTenant();
  nodeKey = (await tenant.newKey({ scopes: ["node"] })).key;
  home = await mkdtemp(join(tmpdir(), "toolyard-mcp-nodes-"));
  note = join(home, "note");
});
afterEach(async () => {
  await endNodes();
  await rm(home, { recursive: true, force: true });
});

const start = (mcpServers: Json = { memory: heldServer(note) }): Promise<NodeProcess> =>
  startNode({ url: gateway.url, key: nodeKey, tools: [], files: mcpProgramFiles, mcpServers });
const addService = (config: Json = {}, serviceId = "held"): Promise<Json> =>
  tenant.client.post("/v1/tool-services", {
    scheme: "mcp",
    service_id: serviceId,
    config: { transport: "stdio", node: "lab-pc", command: "memory", ...config },
  });
const invoke = (args: Json = {}, uri = "mcp://held/count", client = tenant.client): Promise<Reply> =>
  client.send("post", "/v1/tools/invoke", { uri, arguments: args });
const said = async (args: Json = {}, uri = "mcp://held/count", client = tenant.client): Promise<Json> => {
  const { status, json, text } = await invoke(args, uri, client);
  expect(status, text).toBe(200);
  return JSON.parse(json.content);
};
const notes = async (): Promise<readonly string[]> =>
  (await readFile(note, "utf8").catch(() => "")).split("\n").filter((line) => line !== "");
/** Said by the server, since secrets are cut out of what it says. */
const reversed = (secret: string): string => secret.split("").reverse().join("");
const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
const toolNames = async (id: string): Promise<readonly string[]> =>
  (await tenant.client.get(`/v1/tool-services/${id}/tools`)).data.map(({ uri }: Json) => uri.split("/").at(-1));

describe(`a server that is held ${verifies("MCP-1", "MCP-2", "MCP-3")}`, () => {
  test("is started once and greeted once, keeps what it has in memory, and serves many calls at once", async () => {
    await start();
    const { id } = await addService();
    expect(await toolNames(id)).toEqual(["count"]);
    const answers = await Promise.all(Array.from({ length: 6 }, () => said()));
    expect(new Set(answers.map(({ pid }) => pid)).size).toBe(1);
    expect(answers.map(({ count }) => count).toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(answers.map(({ greetings }) => greetings)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await notes()).toHaveLength(1);
    expect(answers[0].env).toEqual(["HOME", "LANG", "NOTE", "PATH", "TMPDIR", "TOOLYARD_HELD_PROCESS"]);
    // What is held is nothing that is called by itself.
    const listed = (await tenant.client.get("/v1/tools")).data.map(({ uri }: Json) => uri);
    expect(listed).toContain("mcp://held/count");
    expect(listed.filter((uri: string) => uri.startsWith("node://"))).toEqual([]);
    expect((await invoke({}, "node://memory")).status).toBe(404);
  });

  test("is one for all instances of the gateway", async () => {
    await start();
    await addService();
    const first = await said();
    const other = await startGateway({ sharedWith: gateway });
    try {
      const second = await said({}, "mcp://held/count", other.client(tenant.key));
      expect(second).toMatchObject({ pid: first.pid, count: 2, greetings: 1 });
    } finally {
      await other.close();
    }
  });

  test("tells how far it is to those who listen to calls", async () => {
    await start();
    await addService();
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    await socket.ask({ type: "subscribe", topic: "calls", events: ["call.progress"] });
    const go = join(home, "go");
    const waiting = invoke({ progress: true, until: go });
    await expect.poll(() => socket.of("call.progress").length).toBeGreaterThan(0);
    const [{ data }] = socket.of("call.progress");
    expect(data).toMatchObject({
      state: "running",
      tool: "mcp_held__count",
      progress: 1,
      total: 4,
      message: "a quarter",
    });
    await writeFile(go, "");
    const { json } = await waiting;
    expect(json).toMatchObject({ id: data.id, status: "completed" });
    await socket.close();
  });

  test("gives large answers whole, and those beyond measure not at all", async () => {
    await start({ memory: heldServer(note, { max_message_bytes: 300_000 }) });
    await addService();
    const { json } = await invoke({ bytes: 100_000 });
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text).toHaveLength(100_002);
    expect((await invoke({ bytes: 400_000 })).json.error.code).toBe("outcome_unknown");
    expect((await said()).count).toBe(1);
  });

  test("of the stateless era is spoken to without a greeting", async () => {
    await start({ memory: heldServer(note, {}, { ERA: "stateless" }) });
    const { id } = await addService();
    expect(await said()).toMatchObject({ greetings: 0, count: 1 });
    // Testing the connection asks the same process, and leaves it as it is.
    expect((await tenant.client.post(`/v1/tool-services/${id}/test`)).detail).toContain("2026-07-28");
    expect(await said({ add: "another" })).toMatchObject({ count: 2 });
    await expect.poll(() => toolNames(id)).toEqual(["another", "count"]);
  });

  test("that asks is given the defaults of its form, or told no", async () => {
    await start();
    await addService();
    expect(await said({ ask: true })).toEqual({ answer: { action: "decline" } });
    await addService({ elicitation: "defaults" }, "filled");
    expect(await said({ ask: true }, "mcp://filled/count")).toEqual({
      answer: { action: "accept", content: { a: 3 } },
    });
  });

  test("is another one where its node describes it otherwise from now on", async () => {
    await start();
    await addService();
    const first = await said();
    await endNodes();
    await start({ memory: heldServer(note, { concurrency: 3, variables: ["KEY", "MORE"] }) });
    await expect.poll(async () => (await invoke()).status).toBe(200);
    expect((await said()).pid).not.toBe(first.pid);
  });

  test("is not given credentials of a request's own, which it would keep", async () => {
    await start();
    await tenant.putCredential("HELD_KEY", "for-everybody");
    await addService({ env: { KEY: { credential: "HELD_KEY" } } });
    const body = { uri: "mcp://held/count", arguments: {}, runtime_config: { credentials: { HELD_KEY: "for-once" } } };
    const { json } = await tenant.client.send("post", "/v1/tools/invoke", body);
    expect(json.error).toMatchObject({ code: "invalid_request", param: "runtime_config" });
  });

  test("has its new tools known without anybody asking", async () => {
    await start();
    const { id } = await addService();
    await said({ add: "another" });
    await expect.poll(() => toolNames(id)).toEqual(["another", "count"]);
  });
});

test(`another release of a held server, which its node begins to run, has its tools looked at with the first call ${verifies("MCP-2")}`, async () => {
  const before = await start();
  const { id } = await addService();
  await said();
  await before.stop();
  const [[name, program] = ["", ""]] = Object.entries(mcpProgramFiles);
  const files = {
    [name]: program.replace("const tools = [{", 'const tools = [{ name: "more", inputSchema: { type: "object" } }, {'),
  };
  await startNode({ url: gateway.url, key: nodeKey, tools: [], files, mcpServers: { memory: heldServer(note) } });
  await said();
  await expect.poll(() => toolNames(id), { timeout: 5_000 }).toEqual(["count", "more"]);
});

describe(`whose it is ${verifies("MCP-5")}`, () => {
  test("tenants, and users with values of their own, have processes of their own", async () => {
    await start();
    await tenant.putCredential("HELD_KEY", "for-everybody");
    await addService({ env: { KEY: { credential: "HELD_KEY" } } });
    const first = await said();
    expect(first.key).toBe(reversed("for-everybody"));
    const ada = await tenant.newKey({ scopes: ["tools"], user_id: "ada" });
    expect((await said({}, "mcp://held/count", ada.client)).pid).toBe(first.pid);
    await tenant.putCredential("HELD_KEY", "for-ada", "ada");
    const own = await said({}, "mcp://held/count", ada.client);
    expect(own).toMatchObject({ key: reversed("for-ada"), count: 1 });
    expect(await said()).toMatchObject({ key: reversed("for-everybody"), pid: first.pid });
    // A new value takes the place of the old one's process.
    await tenant.putCredential("HELD_KEY", "for-ada-again", "ada");
    expect(await said({}, "mcp://held/count", ada.client)).toMatchObject({ key: reversed("for-ada-again"), count: 1 });
    await expect.poll(() => isAlive(own.pid)).toBe(false);
    expect(isAlive(first.pid)).toBe(true);
  });

  test("services set the variables that the node's owner lets them, no others", async () => {
    await start();
    await tenant.putCredential("HELD_KEY", "x");
    await addService({ env: { NODE_OPTIONS: { credential: "HELD_KEY" } } });
    const { json } = await invoke();
    expect(json.error).toMatchObject({ code: "invalid_definition", message: expect.stringContaining("KEY") });
    expect(await notes()).toEqual([]);
  });
});

describe(`what becomes of it ${verifies("MCP-1", "MCP-4")}`, () => {
  test("it is started again when it dies, and what it had in hand is not known", async () => {
    await start();
    await addService({ tools: { count: { max_attempts: 1 } } });
    const first = await said();
    expect((await invoke({ die: true })).json.error.code).toBe("outcome_unknown");
    await expect.poll(async () => (await invoke()).status).toBe(200);
    const second = await said();
    expect(second.pid).not.toBe(first.pid);
    expect(second.greetings).toBe(1);
  });

  test("it ends when its service is configured otherwise, and the next call has another", async () => {
    await start();
    const { id } = await addService();
    const first = await said();
    await tenant.client.expect("patch", `/v1/tool-services/${id}`, { config: { timeout_ms: 30_000 } });
    await expect.poll(() => isAlive(first.pid)).toBe(false);
    expect(await said()).toMatchObject({ count: 1 });
  });

  test.each(["disabled", "deleted"])("it ends when its service is %s, with what it has started", async (how) => {
    await start();
    const { id } = await addService();
    const { child, pid } = await said({ detach: true });
    expect(isAlive(child)).toBe(true);
    if (how === "disabled") await tenant.client.post(`/v1/tool-services/${id}/disable`);
    else await tenant.client.expect("delete", `/v1/tool-services/${id}`);
    await expect.poll(() => isAlive(pid)).toBe(false);
    await expect.poll(() => isAlive(child)).toBe(false);
  });

  test.each(["SIGTERM", "SIGKILL"] as const)("it ends with its node: %s", async (signal) => {
    const node = await start();
    await addService();
    const { pid } = await said();
    await node.stop(signal);
    await expect.poll(() => isAlive(pid)).toBe(false);
  });

  test("a call that is cancelled is cancelled at the server", async () => {
    await start();
    await addService();
    await said();
    const waiting = invoke({ until: join(home, "never") });
    await expect.poll(async () => (await tenant.client.get("/v1/calls?state=running")).data.length).toBe(1);
    const [{ id }] = (await tenant.client.get("/v1/calls?state=running")).data;
    await expect
      .poll(async () => (await gateway.core.repos.nodes.list(tenant.id, { limit: 10, order: "asc" })).data[0]?.underWay)
      .toBe(1);
    await tenant.client.post(`/v1/calls/${id}/cancel`);
    expect((await waiting).json.error.code).toMatch(/call_cancelled|outcome_unknown/);
    await expect.poll(notes).toContain("cancelled");
    expect((await said()).count).toBe(2);
  });

  describe("a call that nobody waits for is the node's alone", () => {
    const invokeLater = async (args: Json): Promise<string> => {
      const body = { uri: "mcp://held/count", arguments: args, async: true };
      return (await tenant.client.post("/v1/tools/invoke", body)).id;
    };
    const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
    const runs = async (): Promise<number> =>
      (await gateway.core.repos.nodes.list(tenant.id, { limit: 10, order: "asc" })).data[0]?.underWay ?? 0;

    test("no worker holds it, and it ends with the server's answer", async () => {
      await start();
      await addService();
      const go = join(home, "go");
      const ids = await Promise.all(Array.from({ length: 14 }, () => invokeLater({ until: go })));
      // More than the workers of one process carry out at once, twelve.
      await expect.poll(runs, { timeout: 10_000 }).toBe(14);
      expect((await callOf(ids[0] ?? "")).state).toBe("running");
      await writeFile(go, "");
      for (const id of ids) {
        await expect.poll(() => callOf(id), { timeout: 10_000 }).toMatchObject({ state: "completed", attempt: 1 });
      }
      const counts = await Promise.all(ids.map(async (id) => JSON.parse((await callOf(id)).result.preview).count));
      expect(new Set(counts).size).toBe(14);
    });

    test("what its process was given is cut out of what it says, and what it says must fit", async () => {
      await start();
      await tenant.putCredential("HELD_KEY", "for-everybody");
      await tenant.putCredential("HELD_KEY", "for-ada", "ada");
      await addService({ env: { KEY: { credential: "HELD_KEY" } } });
      const ada = await tenant.newKey({ scopes: ["tools"], user_id: "ada" });
      for (const [client, secret] of [
        [tenant.client, "for-everybody"],
        [ada.client, "for-ada"],
      ] as const) {
        const body = { uri: "mcp://held/count", arguments: { tell: true }, async: true };
        const { id } = await client.post("/v1/tools/invoke", body);
        await expect.poll(() => callOf(id)).toMatchObject({ state: "completed" });
        const call = await callOf(id);
        expect(call.result.preview).toContain('"secret":');
        expect(call.result.preview).not.toContain(secret);
      }
      const wrong = await invokeLater({ misfit: true });
      await expect
        .poll(() => callOf(wrong))
        .toMatchObject({
          state: "failed",
          error: { code: "tool_failed", message: expect.stringContaining("does not fit the schema") },
        });
    });

    test("it is stopped at its time limit, when it is cancelled, and with its process", async () => {
      await start();
      await addService({ tools: { count: { timeout_ms: 1_500 } } });
      const late = await invokeLater({ until: join(home, "never") });
      const stopped = await invokeLater({ until: join(home, "never") });
      await expect.poll(runs).toBe(2);
      await tenant.client.post(`/v1/calls/${stopped}/cancel`);
      await expect.poll(async () => (await callOf(stopped)).state).toMatch(/unknown|cancelled/);
      await expect.poll(async () => (await callOf(late)).error?.message).toContain("1500 ms");
      expect(await callOf(late)).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
      const lost = await invokeLater({ die: true });
      await expect.poll(() => callOf(lost)).toMatchObject({ state: "unknown" });
      const id = await invokeLater({});
      await expect.poll(() => callOf(id), { timeout: 10_000 }).toMatchObject({ state: "completed" });
    });

    test("of a server of the stateless era, which may ask, it is waited for", async () => {
      await start({ memory: heldServer(note, {}, { ERA: "stateless" }) });
      await addService();
      const id = await invokeLater({});
      await expect.poll(() => callOf(id)).toMatchObject({ state: "completed" });
    });

    test("where no node is connected it fails, and says which one is needed", async () => {
      await addService();
      const id = await invokeLater({});
      await expect.poll(() => callOf(id)).toMatchObject({ state: "failed", error: { code: "node_required" } });
    });
  });

  test("where no node is connected, the call says which one is needed", async () => {
    const { id } = await addService();
    const { status, json } = await invoke();
    expect([status, json.error.code]).toEqual([503, "node_required"]);
    expect(json.error).toMatchObject({ retryable: true, node: "lab-pc", message: expect.stringContaining("'memory'") });
    const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
    expect(report).toMatchObject({ ok: false, error: { code: "node_required" } });
    await start({ other: heldServer(note) });
    expect((await invoke()).json.error.code).toBe("node_required");
  });

  test("a call whose time is over is cancelled at the server, which goes on", async () => {
    await start();
    await addService({ tools: { count: { timeout_ms: 1_500 } } });
    const { pid } = await said();
    const { json } = await invoke({ until: join(home, "never") });
    expect(json.error.code).toBe("outcome_unknown");
    await expect.poll(notes).toContain("cancelled");
    expect(await said()).toMatchObject({ pid, count: 2 });
  });

  test("an answer that comes when whoever waited has died still ends the call", async () => {
    const { repos } = gateway.core;
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "an-instance-of-a-test";
    const offered = nodeTool("memory", { effect: "write", kind: "mcp", variables: [] });
    await socket.ask({ type: "node.register", name: "by-hand", version: "1", instance, tools: [offered] });
    const answers = [
      { content: { result: { content: [{ type: "text", text: "it was done" }] } }, end: { state: "completed" } },
      { content: { error: { code: -32_602, message: "no such tool" } }, end: { error: { code: "tool_failed" } } },
      { content: { result: { resultType: "input_required", inputRequests: {} } }, end: { state: "failed" } },
    ];
    const ids = await Promise.all(
      answers.map(async ({ content }) => {
        const call = newTool({ uri: "mcp://held/count", tool: "count", repeat: "never", leaseMs: 1_000 });
        await repos.calls.record(tenant.id, tenant.keyId, [call]);
        const given = { callId: call.id, toolHash: hashNodeTool(offered) };
        const { id: run = "" } = (await repos.nodes.offer(tenant.id, runOf("memory", given))) ?? {};
        await repos.nodes.accept(tenant.id, run, instance, 60_000);
        const answer = { media_type: mcpAnswerType, output: JSON.stringify(content) };
        await socket.ask({ type: "node.result", run, instance, status: "completed", ...answer });
        return call.id;
      }),
    );
    for (const [at, { end }] of answers.entries()) {
      await expect
        .poll(() => tenant.client.get(`/v1/calls/${ids[at]}`), { timeout: 40_000 })
        .toMatchObject({ finished_at: expect.any(String), ...end });
    }
    await socket.close();
  });
});

test("is refused where it makes no sense", async () => {
  const refused = async (config: Json): Promise<string> =>
    (await tenant.client.send("post", "/v1/tool-services", { scheme: "mcp", service_id: "x", config })).json.error
      .param;
  expect(await refused({ url: "https://a.example/mcp", node: "lab-pc" })).toBe("config.node");
  expect(await refused({ transport: "stdio", command: "memory", node: "lab/pc" })).toBe("config.node");
  expect(await refused({ transport: "stdio", node: "lab-pc" })).toBe("config.command");
});
