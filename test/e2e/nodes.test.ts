/** Nodes: tools of another machine, through one gateway, over real processes and sockets (docs/nodes.md). */
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { endNodes, labFiles, labTool, residentTool, startNode, type NodeProcess } from "../support/node-process.ts";
import { connectSocket } from "../support/socket-client.ts";

let gateway: Gateway;
let tenant: TestTenant;
let nodeKey: string;

beforeAll(async () => {
  gateway = await startGateway({ timing: { leaseMs: 3_000, heartbeatMs: 500, cancelPollMs: 100 }, tickEveryMs: 200 });
});
afterAll(async () => {
  await endNodes();
  await gateway.close();
});
afterEach(endNodes);

async function arrange(): Promise<void> {
  tenant = await gateway.newTenant();
  nodeKey = (await tenant.newKey({ scopes: ["node"] })).key;
}

const start = (tools: readonly Readonly<Record<string, unknown>>[], more: Json = {}): Promise<NodeProcess> =>
  startNode({ url: gateway.url, key: nodeKey, files: labFiles, tools, ...more });

const invoke = (uri: string, args: Json = {}, more: Json = {}): Promise<Json> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more });

const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);

async function ended(id: string): Promise<Json> {
  await expect.poll(async () => (await callOf(id)).state, { timeout: 15_000 }).not.toMatch(/queued|running/);
  return callOf(id);
}

describe("a node that offers tools", () => {
  test("has them listed, called by URI and by name, and taken away when it leaves", async () => {
    await arrange();
    const node = await start([labTool("measure", { command: [process.execPath, "./lab.mjs", "fixed"] })]);
    const listed = (await tenant.client.get("/v1/tools")).data;
    expect(listed).toContainEqual(
      expect.objectContaining({ name: "measure", kind: "NODE", uri: "node://measure", nodes: ["lab-pc"] }),
    );
    const answer = await invoke("node://measure", { text: "$(id) --x ; {{y}}" });
    expect(answer.text).toContain('"completed"');
    const outcome = JSON.parse(answer.json.result ?? answer.json.outcome?.text ?? answer.json.output ?? "null");
    expect(outcome).toMatchObject({
      echo: "$(id) --x ; {{y}}",
      argv: ["fixed"],
      env: ["HOME", "LANG", "PATH", "TMPDIR"],
    });
    expect((await invoke("node://lab-pc/measure")).status).toBe(200);
    expect(await node.stop()).toBe(0);
    expect((await tenant.client.get("/v1/tools")).data.map(({ name }: Json) => name)).not.toContain("measure");
    expect((await invoke("node://measure")).json.error.code).toBe("tool_not_found");
  });
});
