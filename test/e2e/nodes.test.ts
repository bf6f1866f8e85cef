/** Nodes: tools of another machine, through one gateway, over real processes and sockets (docs/nodes.md). */
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { hashNodeTool } from "@toolyard/core/nodes/node";
import { newTool } from "../contract/calls-fixture.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text } from "../support/llm-stub.ts";
import { endNodes, labFiles, labTool, residentTool, startNode, type NodeProcess } from "../support/node-process.ts";
import { nodeTool, runOf } from "../support/registered-node.ts";
import { connectSocket } from "../support/socket-client.ts";

let gateway: Gateway;
let tenant: TestTenant;
let nodeKey: string;

beforeAll(async () => {
  gateway = await startGateway({ timing: { leaseMs: 3_000, heartbeatMs: 500, cancelPollMs: 100 }, tickEveryMs: 200 });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  tenant = await gateway.newTenant({ result_bytes: 2_000 });
  nodeKey = (await tenant.newKey({ scopes: ["node"] })).key;
});
afterEach(endNodes);

type Tools = readonly Readonly<Record<string, unknown>>[];

const start = (tools: Tools, more: Json = {}): Promise<NodeProcess> =>
  startNode({ url: gateway.url, key: nodeKey, files: labFiles, tools, ...more });

const invoke = (uri: string, args: Json = {}, more: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more });

const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);

async function ended(id: string): Promise<Json> {
  await expect.poll(async () => (await callOf(id)).state, { timeout: 15_000 }).not.toMatch(/queued|running/);
  return callOf(id);
}

const namesListed = async (): Promise<string[]> =>
  (await tenant.client.get("/v1/tools")).data.map(({ name }: Json) => name);

const nodeNamed = (name: string): Promise<Json> => tenant.client.get(`/v1/nodes/${name}`);

/** The program has begun, and says who it is. */
async function begun(note: string): Promise<number> {
  await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
  return Number((await readFile(note, "utf8")).trim().split("\n").at(-1));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe("a node that offers tools", () => {
  test("offers them although nobody reads what it prints, and ends with 0", async () => {
    const node = await start([labTool("measure")], { isUnread: true });
    await expect.poll(namesListed, { timeout: 20_000 }).toContain("measure");
    expect((await invoke("node://measure", { text: "x" })).json.status).toBe("completed");
    expect(await node.stop()).toBe(0);
  });

  test("has them listed, called by URI and by name, and taken away when it leaves", async () => {
    const node = await start([labTool("measure", { command: [process.execPath, "./lab.mjs", "fixed"] })]);
    expect((await tenant.client.get("/v1/tools")).data).toContainEqual(
      expect.objectContaining({ name: "measure", kind: "NODE", uri: "node://measure", nodes: ["lab-pc"] }),
    );
    const answer = await invoke("node://measure", { text: "$(id) --x ; {{y}}" });
    expect(answer.json).toMatchObject({ status: "completed", media_type: "application/json" });
    // Arguments are read from stdin and nowhere else.
    const told = JSON.parse(answer.json.content);
    expect(told).toMatchObject({ echo: "$(id) --x ; {{y}}", argv: ["fixed"] });
    // PWD is the shell's, which sets limits before the program begins.
    expect(told.env.filter((name: string) => name !== "PWD")).toEqual(["HOME", "LANG", "PATH", "TMPDIR"]);
    expect((await invoke("node://lab-pc/measure")).status).toBe(200);
    expect((await tenant.client.send("post", "/v1/tools/invoke", { name: "measure", arguments: {} })).status).toBe(200);
    expect((await tenant.client.get("/v1/nodes")).data).toMatchObject([
      { name: "lab-pc", connected: true, calls_under_way: 0, tools: [{ name: "measure", effect: "read" }] },
    ]);
    expect(await node.stop()).toBe(0);
    expect(await namesListed()).not.toContain("measure");
    const { error } = (await invoke("node://measure")).json;
    expect(error).toMatchObject({ code: "tool_not_found" });
    expect(error.message).toMatch(/no node offers such a tool; .* npm run node/);
  });

  test("is called by a model in a chat", async () => {
    const stub = await startLlmStub();
    await start([labTool("measure")]);
    await tenant.addProvider(stub.url);
    stub.script(calls({ name: "measure", arguments: '{"text":"from a model"}' }), text("done"));
    await tenant.client.post("/v1/chat/completions", { model: "stub-1", messages: [{ role: "user", content: "Go" }] });
    expect(JSON.stringify(stub.requests.at(-1))).toContain("from a model");
    await stub.close();
  });

  test("says what the program said where it fails", async () => {
    await start([labTool("measure")]);
    const { status, json } = await invoke("node://measure", { fail: "the sensor is unplugged" });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(json.error).toMatchObject({ code: "tool_failed", tool_name: "measure" });
    expect(json.error.message).toContain("the sensor is unplugged");
  });

  test("is stopped at the tool's time limit", async () => {
    await start([labTool("measure", { timeout_ms: 400 }), labTool("change", { timeout_ms: 400, effect: "write" })]);
    expect((await invoke("node://measure", { sleep_ms: 60_000 })).json.error.code).toBe("tool_timeout");
    expect((await invoke("node://change", { sleep_ms: 60_000 })).json.error.code).toBe("outcome_unknown");
  });

  test("takes large arguments and gives large results through links", async () => {
    await start([labTool("measure")]);
    const text = "ä".repeat(60_000);
    const large = await invoke("node://measure", { text });
    expect(large.json.status).toBe("completed");
    const whole = await tenant.client.send("get", `/v1/calls/${large.json.id}/result`);
    expect(JSON.parse(whole.text).echo === text).toBe(true);
    const bytes = await invoke("node://measure", { bytes: 3_000_000 });
    expect(bytes.json.handle).toMatchObject({ bytes: 3_000_000, media_type: "text/plain" });
    expect((await tenant.client.send("get", `/v1/calls/${bytes.json.id}/result`)).bytes.byteLength).toBe(3_000_000);
  });

  test("is refused a result beyond what the tenant keeps", async () => {
    await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 50_000 });
    await start([labTool("measure")]);
    const { json } = await invoke("node://measure", { bytes: 60_000 });
    expect(json.error.message).toContain("result_max_bytes");
  });

  test("carries out a queued call that nobody waits for", async () => {
    await start([labTool("change", { effect: "write", timeout_ms: 3_600_000 })]);
    // Longer than any function lives, so that it is queued by itself.
    const { status, json } = await invoke("node://change", { sleep_ms: 4_000, text: "slow" });
    expect(status).toBe(202);
    expect((await ended(json.id)).state).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text).toContain("slow");
  });

  test("carries out a call once it is approved", async () => {
    await start([labTool("change", { effect: "write", sensitive: true })]);
    const { status, json } = await invoke("node://change", { text: "now" });
    expect([status, json.status]).toEqual([202, "input_required"]);
    await tenant.client.post(`/v1/calls/${json.id}/approve`);
    expect((await ended(json.id)).state).toBe("completed");
  });
});

describe("a call that is given up", () => {
  test("has its process killed, whoever waits for it", async () => {
    const node = await start([labTool("change", { effect: "write", concurrency: 2 })]);
    const [waited, queued] = [join(node.directory, "waited"), join(node.directory, "queued")];
    const waiting = invoke("node://change", { note: waited, sleep_ms: 60_000 });
    const { json } = await invoke("node://change", { note: queued, sleep_ms: 60_000 }, { async: true });
    const pids = [await begun(waited), await begun(queued)];
    for (const { id } of (await tenant.client.get("/v1/calls?state=running")).data) {
      await tenant.client.post(`/v1/calls/${id}/cancel`);
    }
    await expect.poll(() => pids.filter(isAlive), { timeout: 10_000 }).toEqual([]);
    // It had begun, and may have done something.
    expect((await waiting).json.error.code).toBe("outcome_unknown");
    expect((await ended(json.id)).state).toBe("unknown");
  });

  test("never begins where it was still in line", async () => {
    const node = await start([labTool("change", { effect: "write" })]);
    const [first, second] = [join(node.directory, "first"), join(node.directory, "second")];
    const going = await invoke("node://change", { note: first, until: join(node.directory, "go") }, { async: true });
    await begun(first);
    const inLine = await invoke("node://change", { note: second }, { async: true });
    await expect.poll(async () => (await nodeNamed("lab-pc")).calls_under_way).toBe(2);
    expect((await tenant.client.post(`/v1/calls/${inLine.json.id}/cancel`)).state).toBe("cancelled");
    await writeFile(join(node.directory, "go"), "");
    expect((await ended(going.json.id)).state).toBe("completed");
    expect(existsSync(second)).toBe(false);
  });
});

describe("a node that sleeps", () => {
  test("goes on with a write when it wakes up, whose result ends what was unknown; one that was cancelled it stops", async () => {
    const node = await start([labTool("change", { effect: "write", concurrency: 2, timeout_ms: 3_600_000 })]);
    const go = join(node.directory, "go");
    const [kept, unwanted] = [join(node.directory, "kept"), join(node.directory, "unwanted")];
    const going = await invoke("node://change", { note: kept, until: go, text: "slept" }, { async: true });
    const other = await invoke("node://change", { note: unwanted, until: go }, { async: true });
    const [keptPid, unwantedPid] = [await begun(kept), await begun(unwanted)];
    process.kill(node.pid, "SIGSTOP");
    await tenant.client.post(`/v1/calls/${other.json.id}/cancel`);
    for (const { json } of [going, other]) expect((await ended(json.id)).state).toBe("unknown");
    process.kill(node.pid, "SIGCONT");
    await expect.poll(() => isAlive(unwantedPid), { timeout: 10_000 }).toBe(false);
    // Some beats later it is still wanted.
    await sleep(2_000);
    expect(isAlive(keptPid)).toBe(true);
    await writeFile(go, "");
    await expect.poll(async () => (await callOf(going.json.id)).state, { timeout: 15_000 }).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${going.json.id}/result`)).text).toContain("slept");
    expect((await callOf(other.json.id)).state).toBe("unknown");
  });
});

describe("a node that dies", () => {
  test("leaves a read that may be tried again, a write that is unknown, and tools that say what to start", async () => {
    const node = await start([labTool("measure"), labTool("change", { effect: "write" })]);
    const [read, write] = [join(node.directory, "read"), join(node.directory, "write")];
    const reading = invoke("node://measure", { note: read, sleep_ms: 60_000 });
    const writing = invoke("node://change", { note: write, sleep_ms: 60_000 });
    const queued = await invoke("node://change", { sleep_ms: 60_000 }, { async: true });
    await Promise.all([begun(read), begun(write)]);
    await node.stop("SIGKILL");
    const readError = (await reading).json.error;
    expect(readError).toMatchObject({ code: "tool_unreachable", retryable: true });
    expect(readError.message).toContain("lab-pc");
    expect((await writing).json.error.code).toBe("outcome_unknown");
    expect((await ended(queued.json.id)).state).toMatch(/unknown|failed/);
    expect(await namesListed()).toContain("measure");
    const { error } = (await invoke("node://measure")).json;
    expect(error).toMatchObject({ code: "tool_unreachable" });
    expect(error.message).toMatch(/'lab-pc'.*npm run node/);
    expect(await nodeNamed("lab-pc")).toMatchObject({ connected: false });
  });

  test("is replaced by a newer process of its name, and ends", async () => {
    const older = await start([labTool("measure")]);
    await start([labTool("measure"), labTool("second_tool")]);
    expect(await older.ended).toBe(1);
    expect(older.output()).toContain("Another process has registered under this name");
    expect(await namesListed()).toEqual(expect.arrayContaining(["measure", "second_tool"]));
    expect((await invoke("node://second_tool")).status).toBe(200);
  });

  test("is sent away by DELETE /v1/nodes/{name}", async () => {
    const node = await start([labTool("measure")]);
    expect((await tenant.client.send("delete", "/v1/nodes/lab-pc")).status).toBe(204);
    expect(await node.ended).toBe(1);
    expect(await namesListed()).not.toContain("measure");
  });
});

describe("a node that is told to stop", () => {
  test("takes nothing new, ends what it has in hand, and delivers it", async () => {
    const node = await start([labTool("change", { effect: "write" })]);
    const [note, go] = [join(node.directory, "note"), join(node.directory, "go")];
    const waiting = invoke("node://change", { note, until: go, text: "in hand" });
    await begun(note);
    const stopped = node.stop();
    await expect.poll(namesListed).not.toContain("change");
    await writeFile(go, "");
    expect((await waiting).json).toMatchObject({ status: "completed" });
    expect(await stopped).toBe(0);
  });
});

describe("a resident program", () => {
  test("is one process for all calls, and is started again when it dies", async () => {
    await start([residentTool("hold"), residentTool("hold_change", { effect: "write" })]);
    const first = JSON.parse((await invoke("node://hold")).json.content);
    const second = JSON.parse((await invoke("node://hold")).json.content);
    expect(second).toEqual({ pid: first.pid, served: first.served + 1 });
    expect((await invoke("node://hold", { refuse: "not now" })).json.error).toMatchObject({ code: "tool_failed" });
    expect((await invoke("node://hold", { die: true })).json.error).toMatchObject({
      code: "tool_unreachable",
      retryable: true,
    });
    expect((await invoke("node://hold_change", { die: true })).json.error.code).toBe("outcome_unknown");
    await expect
      .poll(async () => (await invoke("node://hold")).json.status, { timeout: 10_000, interval: 200 })
      .toBe("completed");
    expect(JSON.parse((await invoke("node://hold")).json.content).pid).not.toBe(first.pid);
  });
});

describe("names", () => {
  test("of one node are another's, too, where the tools are equal; else the second node is told which", async () => {
    await start([labTool("measure")]);
    const twin = await start([labTool("measure")], { name: "lab-2" });
    expect((await tenant.client.get("/v1/tools")).data).toContainEqual(
      expect.objectContaining({ name: "measure", nodes: ["lab-2", "lab-pc"] }),
    );
    const other = await start([labTool("measure", { description: "Another one." })], {
      name: "lab-3",
      isRefused: true,
    });
    expect(await other.ended).toBe(1);
    expect(other.output()).toMatch(/'lab-(2|pc)' offers a tool 'measure' with another definition/);
    // Both have room for one, so two at once are one for each.
    const notes = [1, 2].map((number) => join(twin.directory, `note-${number}`));
    const calls = notes.map((note) => invoke("node://measure", { note, until: join(twin.directory, "go") }));
    await Promise.all(notes.map(begun));
    await writeFile(join(twin.directory, "go"), "");
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200]);
  });

  test("that a plugin has stay the plugin's, and the node is told", async () => {
    await tenant.addPlugin({
      name: "measure",
      execution: { method: "GET", base_url: "https://api.example.com/x", param_placement: "query" },
    });
    const node = await start([labTool("measure")]);
    await expect.poll(() => node.output()).toContain("'measure' is hidden by plugin://measure");
    const listed = (await tenant.client.get("/v1/tools")).data.filter(({ name }: Json) => name === "measure");
    expect(listed).toMatchObject([{ uri: "plugin://measure" }]);
    expect((await invoke("node://lab-pc/measure")).status).toBe(200);
  });
});

describe("a node's key", () => {
  test("is for nodes alone", async () => {
    const node = gateway.client(nodeKey);
    for (const path of ["/v1/tools", "/v1/calls", "/v1/nodes", "/v1/plugins"]) {
      expect((await node.send("get", path)).status, path).toBe(403);
    }
    const called = await node.send("post", "/v1/tools/invoke", { name: "measure", arguments: {} });
    expect(called.status).toBe(403);
  });

  test("must have the scope", async () => {
    const node = await start([labTool("measure")], { key: (await tenant.newKey()).key, isRefused: true });
    expect(await node.ended).toBe(1);
    expect(node.output()).toContain("lacks the scope 'node'");
    const stranger = await start([labTool("measure")], { key: "ty_x_y", isRefused: true });
    expect(await stranger.ended).toBe(1);
  });

  test("that is bound to tools offers no others", async () => {
    const key = (await tenant.newKey({ scopes: ["node"], tools: ["node://lab-pc/allowed"] })).key;
    const node = await start([labTool("measure")], { key, isRefused: true });
    expect(await node.ended).toBe(1);
    expect(node.output()).toContain("cannot offer 'measure'");
  });

  test("hears of no other tenant's calls, and cannot answer them", async () => {
    const node = await start([labTool("measure")]);
    const stranger = await gateway.newTenant();
    const strangerKey = (await stranger.newKey({ scopes: ["node"] })).key;
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${strangerKey}` },
    });
    const instance = "stranger-instance";
    const tools = [
      {
        name: "measure",
        description: "Does as it is told.",
        parameters: { type: "object" },
        effect: "read",
        timeout_ms: 60_000,
        concurrency: 1,
      },
    ];
    const registration = { type: "node.register", name: "lab-pc", version: "1", instance, tools };
    expect((await socket.ask(registration)).type).toBe("node.registered");
    const note = join(node.directory, "note");
    const waiting = invoke("node://measure", { note, until: join(node.directory, "go") });
    await begun(note);
    const [row] = (await tenant.client.get("/v1/calls?state=running")).data;
    const runs = await gateway.core.repos.nodes.run(tenant.id, row.id);
    expect(runs).toBeUndefined();
    expect(socket.of("node.call")).toEqual([]);
    await socket.close();
    await writeFile(join(node.directory, "go"), "");
    expect((await waiting).status).toBe(200);
  });
});

describe("what a node says", () => {
  test("is checked strictly, and a result counts once", async () => {
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "an-instance-of-a-test";
    const tool = { name: "measure", description: "M.", parameters: { type: "object" }, effect: "write" };
    const whole = { ...tool, timeout_ms: 60_000, concurrency: 1 };
    const register = (tools: Json): Promise<Json> =>
      socket.ask({ type: "node.register", name: "by-hand", version: "1", instance, tools });
    expect((await register([{ ...whole, command: ["sh"] }])).error.message).toContain("tools.0");
    expect((await register([whole, whole])).error.message).toContain("'measure' is offered twice");
    expect((await register([{ ...whole, parameters: { type: "string" } }])).error.param).toBe("tools.0.parameters");
    const parameters = { type: "object", description: "x".repeat(15_600) };
    const many = Array.from({ length: 8 }, (_, at) => ({ ...whole, name: `measure_${at}`, parameters }));
    expect((await register(many)).error.message).toMatch(/have 12\d{4} bytes together, more than the 122880/);
    expect(await register([whole])).toMatchObject({ type: "node.registered", hidden: [] });

    const waiting = invoke("node://measure", { text: "x" });
    await expect.poll(() => socket.of("node.call").length).toBe(1);
    const [{ data }] = socket.of("node.call");
    // The frame says of the arguments nothing; they are for the one that begins.
    expect(data).toEqual({ run: expect.any(String), call_id: expect.any(String), attempt: 1, tool: "measure" });
    expect(await socket.ask({ type: "node.accept", run: data.run, instance: "somebody-else-than-it" })).toMatchObject({
      type: "node.withdrawn",
    });
    const accept = { type: "node.accept", run: data.run, instance };
    expect((await socket.ask(accept)).input).toMatchObject({ arguments: { text: "x" }, tool: "measure" });
    expect((await socket.ask(accept)).type).toBe("node.accepted");
    const result = { type: "node.result", run: data.run, instance, status: "completed", output: "first" };
    expect((await socket.ask({ ...result, instance: "somebody-else-than-it", output: "forged" })).type).toBe(
      "node.received",
    );
    expect((await socket.ask(result)).type).toBe("node.received");
    expect((await socket.ask({ ...result, output: "second" })).type).toBe("node.received");
    const { json } = await waiting;
    expect(json.content).toBe("first");
    expect((await socket.ask({ ...result, output: "third" })).type).toBe("node.received");
    await sleep(300);
    expect((await callOf(json.id)).state).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).text).toBe("first");
    await socket.close();
  });

  test("counts where whoever waited has died before it came", async () => {
    const { repos } = gateway.core;
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "an-instance-of-a-test";
    const tools = [{ ...nodeTool("change"), effect: "write" as const }];
    await socket.ask({ type: "node.register", name: "by-hand", version: "1", instance, tools });
    // As a process leaves it that was killed while it waited.
    const call = newTool({ uri: "node://change", tool: "change", repeat: "never", leaseMs: 1_000 });
    await repos.calls.record(tenant.id, tenant.keyId, [call]);
    const given = { callId: call.id, toolHash: hashNodeTool(nodeTool("change", { effect: "write" })) };
    const { id: run = "" } = (await repos.nodes.offer(tenant.id, runOf("change", given))) ?? {};
    await repos.nodes.accept(tenant.id, run, instance, 60_000);
    await socket.ask({ type: "node.result", run, instance, status: "completed", output: "it was done" });
    await expect.poll(async () => (await callOf(call.id)).state, { timeout: 15_000 }).toBe("completed");
    expect((await tenant.client.send("get", `/v1/calls/${call.id}/result`)).text).toBe("it was done");
    await socket.close();
  });

  test("counts for a write that was given up meanwhile", async () => {
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "an-instance-of-a-test";
    const tools = [
      {
        name: "change",
        description: "C.",
        parameters: { type: "object" },
        effect: "write",
        timeout_ms: 1_000,
        concurrency: 1,
      },
    ];
    await socket.ask({ type: "node.register", name: "by-hand", version: "1", instance, tools });
    const waiting = invoke("node://change");
    await expect.poll(() => socket.of("node.call").length).toBe(1);
    const { run, call_id: id } = socket.of("node.call")[0].data;
    await socket.ask({ type: "node.accept", run, instance });
    expect((await waiting).json.error.code).toBe("outcome_unknown");
    await expect.poll(() => socket.of("node.cancel").length).toBeGreaterThan(0);
    await socket.ask({ type: "node.result", run, instance, status: "completed", output: "done all the same" });
    await expect.poll(async () => (await callOf(id)).state, { timeout: 10_000 }).toBe("completed");
    await socket.close();
  });
});
