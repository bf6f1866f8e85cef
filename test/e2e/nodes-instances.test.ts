/**
 * Nodes where more than one process is the gateway: connected to one server, called at another, and over
 * functions behind a WebSocket API, whose workers wait for nobody.
 */
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { allScopes, type Json, type TestTenant } from "../support/gateway-client.ts";
import { startGatewayProcess, type GatewayProcess } from "../support/gateway.ts";
import { endNodes, labFiles, labTool, startNode, type NodeProcess } from "../support/node-process.ts";
import { startRealtimeFunctions, type RealtimeFunctions } from "../support/realtime-functions.ts";

afterEach(endNodes);

const tools = [labTool("measure"), labTool("change", { effect: "write" })];

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  await new Promise((done) => server.close(done));
  return typeof address === "object" && address !== null ? address.port : 0;
}

describe("a node that is connected to one of two processes", () => {
  let first: GatewayProcess;
  let second: GatewayProcess;
  let tenant: TestTenant;
  let key: string;
  let port: number;

  beforeEach(async () => {
    first = await startGatewayProcess();
    port = await freePort();
    second = await startGatewayProcess({ sharedWith: first, env: { PORT: String(port) } });
    tenant = await first.newTenant();
    key = (await tenant.newKey({ scopes: ["node"] })).key;
  });
  afterEach(async () => {
    await second.close();
    await first.close();
  });

  /** Connected to the second, called at the first. */
  const start = (): Promise<NodeProcess> => startNode({ url: second.url, key, files: labFiles, tools });
  const invoke = async (uri: string, args: Json, more: Json = {}): Promise<Json> =>
    (await tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more })).json;
  const stateOf = async (id: string): Promise<string> => (await tenant.client.get(`/v1/calls/${id}`)).state;

  test("is called at the other, and stopped from there", async () => {
    const node = await start();
    expect(await invoke("node://measure", { text: "across" })).toMatchObject({ status: "completed" });
    const note = join(node.directory, "note");
    const waiting = invoke("node://change", { note, sleep_ms: 60_000 });
    await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
    const [{ id }] = (await tenant.client.get("/v1/calls?state=running")).data;
    await tenant.client.post(`/v1/calls/${id}/cancel`);
    expect((await waiting).error.code).toBe("outcome_unknown");
  });

  test("delivers results although its own process is killed meanwhile, to one that waits and to none", async () => {
    const node = await start();
    const notes = ["waited", "queued"].map((name) => join(node.directory, name));
    const go = join(node.directory, "go");
    const waiting = invoke("node://measure", { note: notes[0], until: go, text: "waited" });
    const queued = await invoke("node://change", { note: notes[1], until: go, text: "queued" }, { async: true });
    for (const note of notes) await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
    await second.stop("SIGKILL");
    await writeFile(go, "");
    // Where it was, a new process of the gateway is soon.
    const third = await startGatewayProcess({ sharedWith: first, env: { PORT: String(port) } });
    expect((await waiting).content).toContain("waited");
    await expect.poll(() => stateOf(queued.id), { timeout: 15_000 }).toBe("completed");
    await third.close();
  });

  test("ends a queued call although the process that gave it the call is killed", async () => {
    const node = await start();
    const [note, go] = [join(node.directory, "note"), join(node.directory, "go")];
    const queued = await invoke("node://change", { note, until: go, text: "queued" }, { async: true });
    await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
    await first.stop("SIGKILL");
    await writeFile(go, "");
    const there = second.client(tenant.key);
    await expect
      .poll(async () => (await there.get(`/v1/calls/${queued.id}`)).state, { timeout: 15_000 })
      .toBe("completed");
  });
});

describe("a node behind the WebSocket API", () => {
  let functions: RealtimeFunctions;
  let key: string;
  let nodeKey: string;

  beforeAll(async () => {
    functions = await startRealtimeFunctions();
    const operator = { key: functions.operatorKey, method: "POST" };
    const { id } = await functions.request({ ...operator, path: "/v1/tenants", body: { name: "T" } });
    const newKey = async (body: Json): Promise<string> =>
      (await functions.request({ ...operator, path: "/v1/api-keys", tenant: id, body })).key;
    key = await newKey({ name: "all", role: "admin", scopes: allScopes });
    nodeKey = await newKey({ name: "node", scopes: ["node"] });
  });
  afterAll(() => functions.close());

  const invoke = (body: Json): Promise<Json> =>
    functions.request({ key, method: "POST", path: "/v1/tools/invoke", body });
  const get = (path: string): Promise<Json> => functions.request({ key, method: "GET", path });

  test("is called by a function that waits, and by a worker that does not", async () => {
    const node = await startNode({ url: functions.api.url, key: nodeKey, files: labFiles, tools });
    expect(await invoke({ uri: "node://measure", arguments: { text: "waited for" } })).toMatchObject({
      status: "completed",
    });
    const go = join(node.directory, "go");
    const queued = await invoke({ uri: "node://change", arguments: { until: go, text: "later" }, async: true });
    // The worker is done long before the node is.
    expect(await functions.work()).toBeGreaterThan(0);
    expect((await get(`/v1/calls/${queued.id}`)).state).toBe("running");
    await writeFile(go, "");
    await expect.poll(async () => (await get(`/v1/calls/${queued.id}`)).state, { timeout: 10_000 }).toBe("completed");
    expect((await get("/v1/nodes")).data).toMatchObject([{ name: "lab-pc", connected: true, calls_under_way: 0 }]);
    expect(await node.stop()).toBe(0);
    expect((await get("/v1/nodes")).data).toEqual([]);
  });

  test("comes back when its connection is cut, and delivers what it has done meanwhile", async () => {
    const node = await startNode({ url: functions.api.url, key: nodeKey, files: labFiles, tools });
    const [note, go] = [join(node.directory, "note"), join(node.directory, "go")];
    const queued = await invoke({ uri: "node://change", arguments: { note, until: go }, async: true });
    await functions.work();
    await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
    functions.api.cut();
    await writeFile(go, "");
    await expect.poll(async () => (await get(`/v1/calls/${queued.id}`)).state, { timeout: 15_000 }).toBe("completed");
  });
});
