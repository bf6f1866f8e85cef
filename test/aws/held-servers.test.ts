/**
 * MCP servers that a node holds, as they are reached on AWS: the node dials the WebSocket API, whose function hears
 * it, and functions of other bundles give it calls and take what comes of them (MCP-1).
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { createDriver, type GatewayDriver, type Json, type TestTenant } from "../support/gateway-client.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { heldServer, mcpProgramFiles } from "../support/mcp-program.ts";
import { endNodes, startNode } from "../support/node-process.ts";
import { verifies } from "../support/verifies.ts";
import type { Deployment } from "./deployment.ts";
import { openGroundOfAws, type Ground } from "./home.ts";

const uri = "mcp://held/count";

describe.skipIf(inject("runtimeClientMissing") !== "")(`a server on a node ${verifies("MCP-1", "MCP-3")}`, () => {
  let ground: Ground;
  let deployment: Deployment;
  let driver: GatewayDriver;
  let llm: LlmStub;
  let tenant: TestTenant;
  let home: string;

  beforeAll(async () => {
    [ground, llm] = await Promise.all([openGroundOfAws(), startLlmStub()]);
    deployment = await ground.start({ spreads: true, duplicates: true });
    driver = createDriver(deployment.url, ground.services.adminKey);
  });
  afterAll(async () => {
    await deployment.close();
    await llm.close();
    await ground.close();
  });
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), "toolyard-held-"));
    tenant = await driver.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.putCredential("HELD_KEY", "for-everybody");
    const { key } = await tenant.newKey({ scopes: ["node"] });
    const mcpServers = { memory: heldServer(join(home, "note")) };
    await startNode({ url: deployment.webSocketApi.url, key, tools: [], files: mcpProgramFiles, mcpServers });
    const config = { transport: "stdio", node: "lab-pc", command: "memory", env: { KEY: { credential: "HELD_KEY" } } };
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "held", config });
  });
  afterEach(async () => {
    await endNodes();
    await rm(home, { recursive: true, force: true });
  });

  const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
  const invoke = (args: Json, change: Json = {}): Promise<Json> =>
    tenant.client.post("/v1/tools/invoke", { uri, arguments: args, ...change });
  const ended = async (id: string): Promise<Json> => {
    await expect.poll(async () => (await callOf(id)).finished_at, { timeout: 20_000 }).not.toBeNull();
    return callOf(id);
  };
  const answerOf = (call: Json): Json => {
    expect(call).toMatchObject({ state: "completed", error: null });
    return JSON.parse(call.result.preview);
  };

  test("is called from chat and from the worker, and is one process for all of them", async () => {
    llm.script(calls({ id: "up_1", name: "mcp_held__count", arguments: {} }), text("counted"));
    const answer = await tenant.client.post("/v1/chat/completions", {
      model: "stub-1",
      messages: [{ role: "user", content: "count" }],
    });
    expect(answer.choices[0].message.content).toBe("counted");
    const [{ id: inChat }] = (await tenant.client.get("/v1/calls?kind=tool")).data;
    const first = answerOf(await ended(inChat));
    // A call that waits is a worker's here: the function is not held by it.
    const waited = answerOf(await ended((await invoke({})).id));
    const later = answerOf(await ended((await invoke({}, { async: true })).id));
    expect([first.count, waited.count, later.count]).toEqual([1, 2, 3]);
    expect(new Set([first.pid, waited.pid, later.pid]).size).toBe(1);
    expect([first.greetings, waited.greetings, later.greetings]).toEqual([1, 1, 1]);
  });

  test("is given calls that no function waits for, whatever becomes of those that gave them", async () => {
    const go = join(home, "go");
    const asked = await Promise.all(
      Array.from({ length: 5 }, () => invoke({ until: go, tell: true }, { async: true })),
    );
    const underWay = async (): Promise<number> => (await tenant.client.get("/v1/nodes")).data[0].calls_under_way;
    await expect.poll(underWay, { timeout: 20_000 }).toBe(5);
    await expect.poll(() => deployment.functions.worker.environments.some(({ isBusy }) => isBusy)).toBe(false);
    for (const { id } of asked) expect((await callOf(id)).state).toBe("running");
    for (const environment of deployment.functions.worker.environments) environment.kill();
    await writeFile(go, "");
    for (const { id } of asked) {
      const call = await ended(id);
      expect(call).toMatchObject({ state: "completed", attempt: 1 });
      expect(call.result.preview).toContain('"secret":');
      expect(call.result.preview).not.toContain("for-everybody");
    }
  });

  test("gives what is larger than a frame of the WebSocket API by a link of the bucket", async () => {
    const { id } = await invoke({ bytes: 100_000 }, { async: true });
    await ended(id);
    expect((await tenant.client.send("get", `/v1/calls/${id}/result`)).text).toHaveLength(100_002);
  });
});
