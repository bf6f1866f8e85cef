/** Modules of VCP plugins: the chain before a model in the plugin box, tools, and routes of modules held on nodes. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readPluginDirectory } from "@toolyard/platform/local/plugin-directory";
import { packZip } from "@toolyard/core/zip";
import { runPreprocessors } from "@toolyard/core/vcp/modules/preprocess";
import { vcpPluginsOf } from "@toolyard/core/vcp/plugins/plugin";
import { Redactor } from "@toolyard/core/secrets/redactor";
import type { JsonObject } from "@toolyard/core/json";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { connectSocket } from "../support/socket-client.ts";
import { importVcp, type TestPlugin } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50, leaseMs: 6_000, heartbeatMs: 1_000 } });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  tenant = await gateway.newTenant();
});
afterEach(() => endNodes());

type Kind = "messagePreprocessor" | "service" | "hybridservice";

function module(name: string, pluginType: Kind, code: string, change: Json = {}): TestPlugin {
  return {
    name,
    manifest: {
      pluginType,
      entryPoint: { script: "index.js" },
      communication: { protocol: "direct", timeout: 8_000 },
      ...change,
    },
    files: { "index.js": code },
  };
}

const add = (plugin: TestPlugin): Promise<Json> => importVcp(tenant.client, plugin);
const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });
const start = async (name = "holder", vcpModules: Json = {}): Promise<NodeProcess> => {
  const { key } = await tenant.newKey({ scopes: ["node", "modules"] });
  return startNode({ url: gateway.url, key, name, vcpModules });
};
const appending = (text: string): string =>
  `module.exports = { processMessages: (messages) => [...messages, { role: "system", content: ${JSON.stringify(text)} }] };`;

/** The chain as the pipeline runs it, with these plugins. */
async function preprocess(
  names: readonly string[],
  messages: readonly JsonObject[] = [{ role: "user", content: "hello" }],
): Promise<readonly unknown[]> {
  const { core } = gateway;
  const row = await core.repos.tenants.get(tenant.id);
  const config = await core.configs.get(tenant.id, row?.configVersion ?? 0);
  const plugins = names.flatMap((name) => vcpPluginsOf(config).get(name) ?? []);
  expect(plugins).toHaveLength(names.length);
  const caller = { kind: "key", id: "key_1", role: "member", scopes: [], tools: null } as const;
  const context = { tenant: tenant.id, caller, config, requestId: "r", traceId: "t", redactor: new Redactor() };
  return (await runPreprocessors(core, context, plugins, messages)).map(({ content }) => content);
}

describe(`preprocessors ${verifies("VCP-6")}`, () => {
  test("run in their order, in one process, with their own configuration", async () => {
    await add(module("One", "messagePreprocessor", appending("one")));
    await add(
      module(
        "Two",
        "messagePreprocessor",
        `let given; module.exports = { initialize: (config) => { given = config; }, processMessages: (m) => [...m, { role: "system", content: given.LEVEL + 1 + " " + process.ppid }] };`,
        { configSchema: { LEVEL: { type: "integer", default: 4 } } },
      ),
    );
    await add(
      module(
        "Three",
        "messagePreprocessor",
        `module.exports = { processMessages: (m) => [...m, { role: "system", content: "3 " + process.ppid }] };`,
      ),
    );
    const [, two, three] = (await preprocess(["One", "Two", "Three"])).slice(1).map(String);
    expect(two).toMatch(/^5 \d+$/);
    expect(three?.slice(2)).toBe(two?.slice(2));
    expect((await preprocess(["Three", "One"])).map((content) => String(content).slice(0, 3))).toEqual([
      "hel",
      "3 " + three?.slice(2, 3),
      "one",
    ]);
  });

  test("fail alone: what one that fails had before it goes on to the next", async () => {
    await add(module("Good", "messagePreprocessor", appending("good")));
    await add(
      module("Throws", "messagePreprocessor", "module.exports = { processMessages() { throw new Error('no'); } };"),
    );
    await add(
      module(
        "Kills",
        "messagePreprocessor",
        "module.exports = { processMessages() { process.kill(process.pid, 'SIGKILL'); } };",
      ),
    );
    await add(
      module("Loops", "messagePreprocessor", "for (;;);", { communication: { protocol: "direct", timeout: 600 } }),
    );
    await add(module("Empties", "messagePreprocessor", "module.exports = { processMessages: () => [] };"));
    await add(module("Better", "messagePreprocessor", appending("better")));
    const names = ["Good", "Throws", "Kills", "Loops", "Empties", "Better"];
    expect(await preprocess(names)).toEqual(["hello", "good", "better"]);
  });

  test("that need to stay are told so, and run where a node holds them", async () => {
    const code = `let count = 0; setInterval(() => {}, 1000); module.exports = { processMessages: (m) => [...m, { role: "system", content: "count " + ++count }] };`;
    await add(module("Counts", "messagePreprocessor", code));
    await add(module("Stays", "messagePreprocessor", code, { stateless: false }));
    await add(module("After", "messagePreprocessor", appending("after")));
    expect(await preprocess(["Counts", "Stays", "After"])).toEqual(["hello", "after"]);
    await start();
    expect(await preprocess(["Stays", "After"])).toEqual(["hello", "count 1", "after"]);
    expect(await preprocess(["After", "Stays"])).toEqual(["hello", "after", "count 2"]);
  });
});

const doubling = `let calls = 0; module.exports = {
  processMessages: (m) => [...m, { role: "system", content: "calls " + calls }],
  processToolCall: async ({ n, fail, quiet }) => { calls += 1; if (fail) throw new Error(fail); return quiet ? undefined : { doubled: n * 2, calls, pid: process.pid }; },
  registerRoutes(app, adminApiRouter, config, projectBasePath) { app.get("/calls", (request, response) => response.json({ calls })); },
};`;
const commands = { capabilities: { invocationCommands: [{ command: "double", description: "Doubles `n`." }] } };

describe(`a hybridservice ${verifies("VCP-7")}`, () => {
  test("without a node is loaded for each call", async () => {
    await add(module("Doubler", "hybridservice", doubling, commands));
    const listed = (await tenant.client.get("/v1/tools")).data.map(({ uri }: Json) => uri);
    expect(listed).toContain("vcp://Doubler");
    const { json, text, status } = await invoke("vcp://Doubler", { n: 4 });
    expect(status, text).toBe(200);
    expect(JSON.parse(json.content)).toMatchObject({ doubled: 8, calls: 1, timestamp: expect.any(String) });
    expect(JSON.parse((await invoke("vcp://Doubler", { n: 4 })).json.content).calls).toBe(1);
    const failed = await invoke("vcp://Doubler", { fail: "bad n" });
    expect(failed.json.error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("bad n") });
    expect(await preprocess(["Doubler"])).toEqual(["hello", "calls 0"]);
  });

  test("on a node is one module for tools, messages and routes, and for both instances of the gateway", async () => {
    await add(module("Doubler", "hybridservice", doubling, commands));
    await start();
    const first = JSON.parse((await invoke("vcp://Doubler", { n: 1 })).json.content);
    const other = await startGateway({ sharedWith: gateway });
    try {
      const client = other.client(tenant.key);
      const answer = await client.send("post", "/v1/tools/invoke", { uri: "vcp://Doubler", arguments: { n: 2 } });
      expect(JSON.parse(answer.json.content)).toMatchObject({ doubled: 4, calls: 2, pid: first.pid });
      expect((await client.send("get", "/v1/plugins/Doubler/http/calls")).json).toEqual({ calls: 2 });
    } finally {
      await other.close();
    }
    expect(await preprocess(["Doubler"])).toEqual(["hello", "calls 2"]);
    expect((await tenant.client.send("get", "/api/plugins/Doubler/calls")).json).toEqual({ calls: 2 });
  });

  test.each(["in the box", "on a node"])("%s gives away none of its keys", async (place) => {
    const code = `let given; module.exports = { initialize: (config) => { given = config; }, processToolCall: () => "my key is " + given.API_KEY };`;
    const configSchema = { API_KEY: { type: "string", required: true } };
    await add(module("Tells", "hybridservice", code, { ...commands, configSchema }));
    const [{ id }] = (await tenant.client.get("/v1/plugins")).data;
    await tenant.client.expect("put", `/v1/plugins/${id}/config`, { values: { API_KEY: "sk-tells-4711-secret" } });
    if (place === "on a node") await start();
    const { status, text } = await invoke("vcp://Tells");
    expect(status, text).toBe(200);
    expect(text).toContain("my key is");
    expect(text).not.toContain("tells-4711");
  });

  test("that fails is told with the end of what it has printed, and no piece of a key where that is cut", async () => {
    const code = `let given; exports.initialize = (config) => { given = config; };
      exports.processToolCall = () => { console.log("x".repeat(600) + given.API_KEY + " loading " + "y".repeat(480)); throw new Error("no"); };`;
    await importVcp(tenant.client, {
      ...module("Prints", "hybridservice", code, { ...commands, configSchema: { API_KEY: "string" } }),
      files: { "index.js": code, "config.env": "API_KEY=sk-tells-4711-secret\n" },
    });
    const { json } = await invoke("vcp://Prints");
    expect(json.error.message).toMatch(/^'Prints' failed: no; it printed: loading y+$/);
  });

  test("that is no preprocessor is left alone, and not asked again", async () => {
    const code = `console.log("loaded"); exports.initialize = () => { require("node:fs"); }; exports.processToolCall = () => "fine";`;
    await add(module("OnlyTool", "hybridservice", code, commands));
    await add(module("After", "messagePreprocessor", appending("after")));
    const before = gateway.logged.length;
    expect(await preprocess(["OnlyTool", "After"])).toEqual(["hello", "after"]);
    expect(await preprocess(["OnlyTool", "After"])).toEqual(["hello", "after"]);
    expect(gateway.logged.slice(before).filter(({ message }) => message.includes("preprocessor"))).toEqual([]);
  });

  test("that leaves something open is refused in the box, with what to do", async () => {
    const code = `require("node:net").createServer().listen(0, "127.0.0.1"); ${doubling}`;
    await add(module("Listens", "hybridservice", code, commands));
    const { status, json } = await invoke("vcp://Listens", { n: 1 });
    expect([status, json.error.code]).toEqual([503, "node_required"]);
    expect(json.error.message).toContain("vcp_modules");
    await start();
    expect(JSON.parse((await invoke("vcp://Listens", { n: 1 })).json.content).doubled).toBe(2);
  });
});

const service = `
const express = require("express");
let started = 0;
module.exports = {
  initialize(config) { started = config.START; },
  registerApiRoutes(router, config, projectBasePath) {
    router.get("/status/:id", (request, response) => response.set("x-own", "1").set("Set-Cookie", "a=b").set("X-Accel-Redirect", "/private").set("X-Sendfile", "/etc/hosts").json({ id: request.params.id, query: request.query, started, key: request.get("authorization") ?? null, language: request.get("accept-language") ?? null, original: request.originalUrl }));
    router.post("/echo", (request, response) => response.status(201).json(request.body));
    router.put("/size", express.raw({ type: "*/*", limit: "10mb" }), (request, response) => response.send(String(request.body.length)));
    router.get("/page", (request, response) => response.send("<script>1</script>"));
    router.get("/large", (request, response) => response.send("x".repeat(300000)));
    router.get("/missing", (request, response) => response.status(404).json({ error: "own" }));
    router.get("/stuck", () => { for (;;); });
    router.get("/ends", () => process.exit(3));
    router.delete("/item", (request, response) => response.sendStatus(204));
  },
};`;
const routed = (name = "Board", change: Json = {}): TestPlugin =>
  module(name, "service", service, {
    hasApiRoutes: true,
    configSchema: { START: { type: "integer", default: 7 } },
    ...change,
  });

describe(`a service ${verifies("VCP-7")}`, () => {
  const http = (method: "get" | "post" | "delete", path: string, body?: Json): Promise<Reply> =>
    tenant.client.send(method, `/v1/plugins/Board/http${path}`, body);

  test("without a node says what to start, and is no tool", async () => {
    await add(routed());
    const { status, json } = await http("get", "/status/1");
    expect([status, json.error.code]).toEqual([503, "node_required"]);
    expect(json.error.message).toMatch(/vcp_modules.*npm run node/);
    expect((await invoke("vcp://Board")).status).toBe(404);
    expect((await tenant.client.get("/v1/tools")).data.map(({ uri }: Json) => uri)).not.toContain("vcp://Board/_http");
    expect((await tenant.client.send("get", "/v1/plugins/Nobody/http/x")).status).toBe(404);
  });

  test("answers where its router begins, with a slash behind it or none", async () => {
    const code = `module.exports = {
      registerApiRoutes(router) {
        router.get("/", (request, response) => response.json({ at: request.originalUrl, a: request.query.a }));
        router.post("/", (request, response) => response.status(201).json(request.body));
      },
    };`;
    await add(module("Board", "service", code, { hasApiRoutes: true }));
    await start();
    for (const path of [
      "/v1/plugins/Board/http",
      "/v1/plugins/Board/http/",
      "/api/plugins/Board",
      "/api/plugins/Board/",
    ]) {
      const got = await tenant.client.send("get", `${path}?a=1`);
      expect([path, got.status, got.json.a]).toEqual([path, 200, "1"]);
      expect((await tenant.client.send("post", path, { b: 2 })).json).toEqual({ b: 2 });
    }
    expect((await tenant.client.send("get", "/v1/plugins/Nobody/http")).status).toBe(404);
  });

  test("answers its routes at both addresses, as calls of the tenant", async () => {
    await add(routed());
    await start();
    const answer = await fetch(`${gateway.url}/v1/plugins/Board/http/status/a%2Fb?x=1&x=2`, {
      headers: { authorization: `Bearer ${tenant.key}`, "accept-language": "de" },
    });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual({
      id: "a/b",
      query: { x: ["1", "2"] },
      started: 7,
      key: null,
      language: "de",
      original: "/api/plugins/Board/status/a%2Fb?x=1&x=2",
    });
    expect(answer.headers.get("x-own")).toBe("1");
    for (const name of ["set-cookie", "x-accel-redirect", "x-sendfile"]) expect(answer.headers.get(name)).toBeNull();
    const id = answer.headers.get("x-toolyard-call-id") ?? "";
    expect(await tenant.client.get(`/v1/calls/${id}`)).toMatchObject({
      uri: "vcp://Board/_http",
      effect: "read",
      state: "completed",
    });

    const echo = await http("post", "/echo", { n: "值" });
    expect([echo.status, echo.json]).toEqual([201, { n: "值" }]);
    expect((await tenant.client.send("post", "/api/plugins/Board/echo", { a: 1 })).json).toEqual({ a: 1 });
    expect((await http("delete", "/item")).status).toBe(204);
    const missing = await fetch(`${gateway.url}/v1/plugins/Board/http/missing`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    expect([missing.status, await missing.json()]).toEqual([404, { error: "own" }]);
    expect((await http("get", "/large")).text).toHaveLength(300_000);
    const page = await fetch(`${gateway.url}/api/plugins/Board/page`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    expect(page.headers.get("content-security-policy")).toContain("sandbox");
    const put = await fetch(`${gateway.url}/v1/plugins/Board/http/size`, {
      method: "PUT",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/octet-stream" },
      body: new Uint8Array(200_000),
    });
    expect(await put.text()).toBe("200000");
    expect((await fetch(`${gateway.url}/v1/plugins/Board/http/page`)).status).toBe(401);
    const { key } = await tenant.newKey({ scopes: ["chat"] });
    expect((await gateway.client(key).send("get", "/v1/plugins/Board/http/page")).status).toBe(403);
  });

  test("that hangs or ends is started again, and says so to who asked", async () => {
    await add(routed("Board", { communication: { protocol: "direct", timeout: 3_000 } }));
    await start();
    expect((await http("get", "/page")).status).toBe(200);
    const ended = await http("get", "/ends");
    expect(ended.json.error.code).toBe("tool_unreachable");
    await expect.poll(async () => (await http("get", "/page")).status).toBe(200);
    const stuck = await http("get", "/stuck");
    expect(stuck.json.error.code).toBe("tool_timeout");
    await expect.poll(async () => (await http("get", "/page")).status).toBe(200);
  });

  test("that streams is heard to its end; without one, and where a WebSocket is wanted, the error says so", async () => {
    const code = `module.exports = { registerApiRoutes(router) {
      router.get("/ends", (request, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\\n\\n");
        setTimeout(() => response.end("data: 2\\n\\n"), 20);
      });
      router.get("/stays", (request, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\\n\\n");
      });
    } };`;
    const communication = { protocol: "direct", timeout: 1_500 };
    await add(module("Board", "service", code, { hasApiRoutes: true, communication }));
    await start();
    const ends = await fetch(`${gateway.url}/api/plugins/Board/ends`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    expect([ends.headers.get("content-type"), await ends.text()]).toEqual([
      "text/event-stream",
      "data: 1\n\ndata: 2\n\n",
    ]);
    const stays = await http("get", "/stays");
    expect([stays.status, stays.json.error]).toMatchObject([
      501,
      { code: "stream_not_carried", tool_name: "Board_http" },
    ]);
    expect((await http("get", "/ends")).status, "the module goes on").toBe(200);
    for (const path of ["/api/plugins/Board/live", "/v1/plugins/Board/http/live"]) {
      const headers = { authorization: `Bearer ${tenant.key}` };
      const refused = await connectSocket(`${gateway.url.replace("http", "ws")}${path}`, { headers }).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(refused).toMatchObject({ status: 501, body: { error: { code: "stream_not_carried" } } });
    }
  });

  test("is loaded anew where it is changed, and ended where it is switched off", async () => {
    await add(routed());
    await start();
    expect((await http("get", "/status/1")).json.started).toBe(7);
    await add(routed("Board", { configSchema: { START: { type: "integer", default: 8 } } }));
    expect((await http("get", "/status/1")).json.started).toBe(8);
    const listed = (await tenant.client.get("/v1/plugins")).data.find(({ name }: Json) => name === "Board");
    await tenant.client.send("patch", `/v1/plugins/${listed.id}`, { enabled: false });
    expect((await http("get", "/status/1")).status).toBe(403);
    const { serviceModules } = await tenant.client.get("/v1/vcp/runtime");
    expect(serviceModules[0]).toMatchObject({ name: "Board", state: "disabled" });
  });

  test("is held by one node at a time; another one takes over", async () => {
    await add(routed());
    const first = await start("a-node");
    await start("b-node");
    expect((await http("get", "/page")).status).toBe(200);
    const runtime = async (): Promise<Json> =>
      (await tenant.client.get("/v1/vcp/runtime")).serviceModules.find(({ name }: Json) => name === "Board");
    await expect.poll(async () => (await runtime()).state).toBe("running");
    expect(await runtime()).toMatchObject({ node: "a-node", pluginType: "service" });
    await first.stop();
    await expect.poll(async () => (await http("get", "/page")).status).toBe(200);
    await expect.poll(async () => (await runtime()).node).toBe("b-node");
  });

  test("needs a key for nodes that may hold modules", async () => {
    const { key } = await tenant.newKey({ scopes: ["node"] });
    const node = await startNode({ url: gateway.url, key, vcpModules: {}, isRefused: true });
    expect(await node.ended).toBe(1);
    expect(node.output()).toContain("scope 'modules'");
  });

  test("keeps what it writes where its node gives it a directory", async () => {
    const code = `const fs = require("node:fs"), path = require("node:path"); const file = path.join(__dirname, "count.txt");
      module.exports = { registerApiRoutes(router) { router.post("/count", (q, s) => { const n = Number(fs.existsSync(file) ? fs.readFileSync(file, "utf8") : 0) + 1; fs.writeFileSync(file, String(n)); s.json({ n }); }); } };`;
    await add(module("Board", "service", code, { hasApiRoutes: true }));
    const node = await start("holder", { directory: "./kept" });
    expect((await http("post", "/count", {})).json).toEqual({ n: 1 });
    expect(await readdir(join(node.directory, "kept"))).toEqual(["Board", "module-host.cjs"]);
  });
});

describe(`the samples ${verifies("VCP-6", "VCP-7")}`, () => {
  const configure = async (name: string, values: Json): Promise<void> => {
    const { id } = (await tenant.client.get("/v1/plugins?limit=100")).data.find((each: Json) => each.name === name);
    await tenant.client.expect("put", `/v1/plugins/${id}/config`, { values });
  };

  test("do what their descriptions say", async () => {
    const files = await readPluginDirectory(join(import.meta.dirname, "../../plugins"), ["plugin-manifest.json"]);
    const zip = Buffer.from(await packZip(files ?? [])).toString("base64");
    await tenant.client.post("/v1/plugins/import", { vcp: { zip } });
    // Neither works before it is told what it needs.
    const view = await tenant.client.get("/v1/vcp/runtime");
    expect(view.messagePreprocessors).toEqual([]);
    expect(view.serviceModules).toMatchObject([
      { name: "Notebook", state: "disabled", message: expect.stringContaining("NOTEBOOK_TITLE") },
      { name: "NoticeBoard", state: "needs_node" },
    ]);
    await configure("Glossary", { GLOSSARY: "gate: the door to the yard\ncrane: a bird" });
    await configure("Notebook", { NOTEBOOK_TITLE: "the yard's book" });
    await start();
    const asked = [{ role: "user", content: "Is the gate open?" }];
    expect(await preprocess(["Glossary"], asked)).toEqual([
      "Words of this house:\n- gate: the door to the yard",
      "Is the gate open?",
    ]);
    const { json } = await invoke("vcp://Notebook/write", { text: "The gate is open" });
    expect(JSON.parse(json.content).original_plugin_output).toBe("Line 1 is written.");
    expect((await invoke("vcp://Notebook", { command: "erase" })).json.error.message).toContain("known: write, read");
    expect(await preprocess(["Notebook"])).toEqual([
      "Last line of the notebook 'the yard's book' (1 in all): The gate is open",
      "hello",
    ]);
    expect((await tenant.client.send("get", "/api/plugins/Notebook/lines/1")).json).toEqual({
      line: "The gate is open",
    });
    const board = "/v1/plugins/NoticeBoard/http/notices";
    expect((await tenant.client.send("post", board, { text: "Closed on Sunday" })).json).toEqual({
      id: 1,
      text: "Closed on Sunday",
    });
    expect((await tenant.client.send("get", board)).json).toEqual({ notices: [{ id: 1, text: "Closed on Sunday" }] });
    expect((await tenant.client.send("delete", `${board}/1`)).status).toBe(204);
  });
});

describe(`the runtime's view ${verifies("VCP-23")}`, () => {
  test("shows preprocessors in their order, modules and where they are, placeholders and jobs", async () => {
    await add(module("First", "messagePreprocessor", appending("x")));
    await add(module("Doubler", "hybridservice", doubling, commands));
    await add(routed());
    await add(module("Broken", "service", "throw new Error('no port')", { hasApiRoutes: true }));
    const before = await tenant.client.get("/v1/vcp/runtime");
    expect(before.messagePreprocessors.map(({ name }: Json) => name)).toEqual(["Doubler", "First"]);
    expect(before.serviceModules.map(({ name, state }: Json) => [name, state])).toEqual([
      ["Board", "needs_node"],
      ["Broken", "needs_node"],
      ["Doubler", "on_demand"],
    ]);
    expect(before.staticPlaceholderValues).toEqual({});
    expect(before.scheduledJobs).toEqual([]);
    await start();
    const state = async (name: string): Promise<Json> =>
      (await tenant.client.get("/v1/vcp/runtime")).serviceModules.find((each: Json) => each.name === name);
    await expect.poll(async () => (await state("Board")).state).toBe("running");
    await expect.poll(async () => (await state("Broken")).state).toBe("failed");
    expect(await state("Broken")).toMatchObject({ node: "holder", message: expect.stringContaining("no port") });
    const other = await gateway.newTenant();
    expect((await other.client.get("/v1/vcp/runtime")).serviceModules).toEqual([]);
  });
});
