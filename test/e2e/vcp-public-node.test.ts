/**
 * The public node program of VCP, unmodified, as a peer: it is run where it is installed
 * (VCP_DISTRIBUTED_SERVER_DIR), with plugins of our own. `vcp-nodes.test.ts` has what it says by a client of ours.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

const program = process.env["VCP_DISTRIBUTED_SERVER_DIR"];
if (program === undefined || program === "") {
  process.stdout.write(
    "The public VCP node is not run: VCP_DISTRIBUTED_SERVER_DIR does not name where it is installed.\n",
  );
}

const echo = `
const parts = [];
process.stdin.on("data", (part) => parts.push(part)).on("end", () => {
  const args = JSON.parse(Buffer.concat(parts).toString("utf8") || "{}");
  if (args.note) require("node:fs").writeFileSync(args.note, "begun");
  const answer = () => console.log(JSON.stringify({ status: "success", result: { echo: args.text ?? null, pid: process.pid } }));
  if (args.fail) console.log(JSON.stringify({ status: "error", error: args.fail }));
  else setTimeout(answer, Number(args.sleep ?? 0));
});
`;
const manifest = {
  manifestVersion: "1.0.0",
  name: "ToolyardEcho",
  displayName: "Echo",
  version: "1.0.0",
  description: "Says what it is told.",
  author: "test",
  pluginType: "synchronous",
  entryPoint: { type: "nodejs", command: "node echo.js" },
  communication: { protocol: "stdio", timeout: 20_000 },
  capabilities: { invocationCommands: [{ command: "say", description: "text:「始」…「末」" }] },
};

describe.skipIf(program === undefined || program === "")(
  `the public node program ${verifies("VCP-15", "VCP-16")}`,
  () => {
    let first: Gateway;
    let second: Gateway;
    let tenant: TestTenant;
    let key: string;
    let home: string;
    let child: ChildProcess | undefined;
    let output = "";

    beforeAll(async () => {
      const env = { TOOLYARD_VCP_KEY_IN_PATH: "true" };
      first = await startGateway({ env, tickEveryMs: 500 });
      second = await startGateway({ env, tickEveryMs: 500, sharedWith: first });
      tenant = await first.newTenant();
      ({ key } = await tenant.newKey({ scopes: ["node"] }));
      home = await mkdtemp(join(tmpdir(), "toolyard-vcp-node-"));
      const skipped = /\/(?:node_modules|Plugin|\.git)(?:\/|$)/;
      await cp(program ?? "", home, {
        recursive: true,
        filter: (path) => !skipped.test(path.slice((program ?? "").length)),
      });
      await symlink(join(program ?? "", "node_modules"), join(home, "node_modules"));
      const plugin = join(home, "Plugin/ToolyardEcho");
      await mkdir(plugin, { recursive: true });
      await writeFile(join(plugin, "plugin-manifest.json"), JSON.stringify(manifest));
      await writeFile(join(plugin, "echo.js"), echo);
      const config = {
        mainServerUrl: second.url.replace("http", "ws"),
        vcpKey: key,
        serverName: "public-node",
        port: 0,
        debugMode: true,
      };
      // The program is made to be started by another one, which names the server.
      const host = `const Server = require("./VCPDistributedServer.js"); new Server(${JSON.stringify(config)}).initialize();`;
      await writeFile(join(home, "host.cjs"), host);
    });
    afterAll(async () => {
      await rm(home, { recursive: true, force: true });
      await second.close();
      await first.close();
    });
    afterEach(() => stop());

    function start(): void {
      child = spawn(process.execPath, ["host.cjs"], {
        cwd: home,
        env: { PATH: process.env["PATH"] ?? "", HOME: home },
        stdio: ["ignore", "pipe", "pipe"],
      });
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (part: Buffer) => (output += part.toString("utf8")));
    }

    async function stop(): Promise<void> {
      const running = child;
      child = undefined;
      if (running === undefined || running.exitCode !== null || running.signalCode !== null) return;
      const ended = new Promise((done) => running.once("close", done));
      running.kill("SIGKILL");
      await ended;
    }

    const find = async (): Promise<Json> =>
      (await tenant.client.get("/v1/tools")).data.find(({ name }: Json) => name === manifest.name);
    const invoke = async (args: Json): Promise<Json> =>
      (await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://ToolyardEcho", arguments: args })).json;
    const connected = (): Promise<unknown> =>
      expect.poll(find, { timeout: 30_000, message: output }).toMatchObject({ kind: "NODE", isDistributed: true });

    test("connects, registers, is called, goes away, and comes back", async () => {
      start();
      await connected();
      const tool = await find();
      expect(tool).toMatchObject({
        title: "[云端] Echo",
        nodes: ["public-node"],
        serverId: expect.stringMatching(/^dist-/),
      });
      expect(JSON.parse((await invoke({ text: "über 中文" })).content)).toMatchObject({ echo: "über 中文" });
      expect((await invoke({ fail: "on purpose" })).error.message).toContain("on purpose");
      const note = join(home, "note");
      const waiting = invoke({ text: "never", sleep: 15_000, note });
      await expect.poll(() => existsSync(note), { timeout: 10_000 }).toBe(true);
      await stop();
      expect((await waiting).error).toMatchObject({ code: "outcome_unknown" });
      await expect.poll(find, { timeout: 10_000 }).toBeUndefined();
      start();
      await connected();
      expect((await find()).serverId).not.toBe(tool.serverId);
      expect(JSON.parse((await invoke({ text: "again" })).content)).toMatchObject({ echo: "again" });
    }, 120_000);

    test("gives a file of a directory that the tenant allows, and of no other", async () => {
      const files = join(home, "shared");
      await mkdir(files, { recursive: true });
      await writeFile(join(files, "note.txt"), "from the node");
      await writeFile(join(home, "secret.txt"), "not this");
      await tenant.client.expect("patch", "/v1/settings", { vcp_node_directories: [files] });
      await importVcp(tenant.client, {
        name: "Copy",
        files: { "plugin.sh": `printf '{"status":"success","result":{"got":%s}}' "$(cat)"` },
      });
      start();
      await connected();
      const got = async (path: string): Promise<string> => {
        const body = { uri: "vcp://Copy", arguments: { url: `file://${path}` } };
        const { json } = await tenant.client.send("post", "/v1/tools/invoke", body);
        return JSON.parse(json.content).got.url;
      };
      const base64 = Buffer.from("from the node").toString("base64");
      expect(await got(join(files, "note.txt"))).toMatch(new RegExp(`^data:[\\w./+-]+;base64,${base64}$`));
      expect(await got(join(home, "secret.txt"))).toBe(`file://${join(home, "secret.txt")}`);
    }, 60_000);
  },
);
