/** `mcp://` over stdio: programs that the operator offers, a process a call. */
import { mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { stdioServers } from "../support/mcp-peers.ts";
import { verifies } from "../support/verifies.ts";

/** Answers after noise, or ends without an answer, as its variable says. */
const rude = `
  process.stdout.write("loading...\\n{\\"half\\": ");
  process.stdout.write("\\n");
  if (process.env.MOOD === "dies") { console.error("out of " + process.env.MOOD_SECRET); process.exit(3); }
  if (process.env.MOOD === "hangs") setInterval(() => {}, 1000);
  else process.stdin.on("data", (part) => {
    for (const line of String(part).split("\\n").filter(Boolean)) {
      const { id, method } = JSON.parse(line);
      const send = (result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n");
      if (method === "initialize") send({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "rude" } });
      if (method === "tools/list") send({ tools: [{ name: "say", inputSchema: { type: "object" } }] });
      if (method === "tools/call" && process.env.MOOD === "asks") {
        const params = { message: "Who?", requestedSchema: { type: "object", properties: {} } };
        process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: 0, method: "ping" }) + "\\n");
        process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "elicitation/create", params }) + "\\n");
      } else if (method === "tools/call") send({ content: [{ type: "text", text: Object.keys(process.env).sort().join(" ") }] });
    }
  });
`;

/** Knows the stateless era alone. */
const modern = `
  process.stdin.on("data", (part) => {
    for (const line of String(part).split("\\n").filter(Boolean)) {
      const { id, method, params } = JSON.parse(line);
      const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...message }) + "\\n");
      const version = params._meta?.["io.modelcontextprotocol/protocolVersion"];
      if (method === "server/discover") send({ result: { supportedVersions: [version], capabilities: { tools: {} } } });
      else if (version !== "2026-07-28") send({ error: { code: -32601, message: "Method not found" } });
      else if (method === "tools/list") send({ result: { resultType: "complete", tools: [{ name: "say", inputSchema: { type: "object" } }] } });
      else if (method === "tools/call") send({ result: { resultType: "complete", content: [{ type: "text", text: version }] } });
    }
  });
`;

/** Takes its time for everything, and leaves when its input ends, whatever it still has to answer. */
const leaving = `
  process.stdin.on("end", () => process.exit(0));
  process.stdin.on("data", (part) => {
    for (const line of String(part).split("\\n").filter(Boolean)) {
      const { id, method } = JSON.parse(line);
      const send = (result) => setTimeout(() => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n"), 50);
      if (method === "initialize") send({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "leaving" } });
      if (method === "tools/list") send({ tools: [{ name: "say", inputSchema: { type: "object" } }] });
      if (method === "tools/call") send({ content: [{ type: "text", text: "before I go" }] });
    }
  });
`;

let gateway: Gateway;
let tenant: TestTenant;
let home: string;
beforeAll(async () => {
  home = await realpath(await mkdtemp(join(tmpdir(), "toolyard-mcp-")));
  await writeFile(join(home, "note.txt"), "hello from a file");
  const commands = {
    everything: { command: stdioServers.everything },
    files: { command: [...stdioServers.filesystem, home] },
    memory: { command: stdioServers.memory, env: ["MEMORY_FILE_PATH"] },
    rude: { command: [process.execPath, "-e", rude], env: ["MOOD", "MOOD_SECRET"] },
    leaving: { command: [process.execPath, "-e", leaving] },
    modern: { command: [process.execPath, "-e", modern] },
    nowhere: { command: ["/no/such/program"] },
  };
  gateway = await startGateway({ env: { TOOLYARD_MCP_COMMANDS: JSON.stringify(commands) } });
});
afterAll(async () => {
  await gateway.close();
  await rm(home, { recursive: true, force: true });
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
});

const addService = (command: string, more: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tool-services", {
    scheme: "mcp",
    service_id: command,
    config: { transport: "stdio", command, ...more },
  });
const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });
const content = async (uri: string, args: Json = {}): Promise<string> => {
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return json.content;
};

describe(`the reference servers ${verifies("MCP-1", "MCP-2", "MCP-3")}`, () => {
  test("one with one of everything lists and answers", async () => {
    const { json } = await addService("everything");
    const { data } = await tenant.client.get(`/v1/tool-services/${json.id}/tools`);
    expect(data.map(({ uri }: Json) => uri)).toContain("mcp://everything/get-sum");
    expect(await content("mcp://everything/get-sum", { a: 2, b: 40 })).toContain("42");
  });

  test("one for files reads what its operator lets it, and nothing else", async () => {
    await addService("files");
    expect(await content("mcp://files/read_text_file", { path: join(home, "note.txt") })).toContain(
      "hello from a file",
    );
    const refused = await invoke("mcp://files/read_text_file", { path: "/etc/passwd" });
    expect(refused.json.error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("denied") });
  });

  test("one that keeps a file keeps it from process to process", async () => {
    const file = join(home, "memory.jsonl");
    await addService("memory", { env: { MEMORY_FILE_PATH: file } });
    const entities = [{ name: "Ada", entityType: "person", observations: ["likes engines"] }];
    await content("mcp://memory/create_entities", { entities });
    expect(await content("mcp://memory/read_graph")).toContain("likes engines");
    expect(await readFile(file, "utf8")).toContain("Ada");
  });
});

test.each([{}, { protocol: "stateless" }])(
  `a program of revision 2026-07-28 is spoken to without a session: %j ${verifies("MCP-1")}`,
  async (more) => {
    const { json } = await addService("modern", more);
    expect(await content("mcp://modern/say")).toBe("2026-07-28");
    expect((await tenant.client.post(`/v1/tool-services/${json.id}/test`)).detail).toContain("2026-07-28");
  },
);

describe(`programs that are not what they should be ${verifies("MCP-1", "MCP-4")}`, () => {
  test("noise before the answer does not disturb, and nothing of our environment is given on", async () => {
    const { json } = await addService("rude", { env: { MOOD: "calm" } });
    expect(json.warnings).toBeUndefined();
    expect((await content("mcp://rude/say")).split(" ")).toEqual(["HOME", "LANG", "MOOD", "PATH", "PWD", "TMPDIR"]);
  });

  test("one that leaves when its input ends has answered before", async () => {
    const { json } = await addService("leaving");
    expect(json.warnings).toBeUndefined();
    expect(await content("mcp://leaving/say")).toBe("before I go");
  });

  test("one whose tools are not known when it is added is told to be so, and why", async () => {
    const { status, json } = await addService("rude", { env: { MOOD: "dies", MOOD_SECRET: "the-moon" } });
    expect(status).toBe(201);
    expect(json.warnings).toEqual([
      expect.stringMatching(/\/v1\/tool-services\/svc_\w+\/tools .*ended \(3\).*out of \[redacted\]/s),
    ]);
  });

  test("one that dies says why, without secrets", async () => {
    await addService("rude", { env: { MOOD: "calm", MOOD_SECRET: "sentinel-of-rude" } });
    await content("mcp://rude/say");
    const { data } = await tenant.client.get("/v1/tool-services");
    await tenant.client.expect("patch", `/v1/tool-services/${data[0].id}`, { config: { env: { MOOD: "dies" } } });
    const { json } = await invoke("mcp://rude/say?max-attempts=1");
    expect(json.error.code).toBe("tool_unreachable");
    expect(json.error.message).toContain("out of");
    expect(json.error.message).not.toContain("sentinel-of-rude");
  });

  // As FastMCP's `ctx.elicit` does, whatever the client has declared.
  test("one that asks somebody is not waited for", async () => {
    await addService("rude", { env: { MOOD: "asks" } });
    const { json } = await invoke("mcp://rude/say");
    expect(json.error).toMatchObject({ code: "outcome_unknown", message: expect.stringContaining("on a node") });
    expect(json.error.message).toContain("'elicitation/create'");
  });

  test("one that hangs ends with the time of the call", async () => {
    await addService("rude", { env: { MOOD: "hangs" } });
    const { json } = await invoke("mcp://rude/say?timeout=700&max-attempts=1");
    expect(json.error.code).toBe("tool_timeout");
  });

  test("one that is not there says so", async () => {
    await addService("nowhere");
    expect((await invoke("mcp://nowhere/x")).json.error.code).toBe("tool_unreachable");
  });
});

test.each([
  ["a program that is not offered", { command: "sh" }, "config.command"],
  [
    "a variable that is not offered",
    { command: "memory", env: { NODE_OPTIONS: "--import x" } },
    "config.env.NODE_OPTIONS",
  ],
  ["an address beside a program", { command: "memory", url: "https://x.example.com/mcp" }, "config.url"],
])(`refuses %s, naming the field ${verifies("CFG-1")}`, async (_which, config, param) => {
  const { status, json } = await addService("memory", config);
  expect([status, json.error.param]).toEqual([400, param]);
});
