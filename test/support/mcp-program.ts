/** An MCP server over stdio that keeps something in memory and does as it is told, for those who hold it. */
const program = `
import { createInterface } from "node:readline";
import { spawn } from "node:child_process";
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
const note = (line) => { if (process.env.NOTE) appendFileSync(process.env.NOTE, line + "\\n"); };
let count = 0;
let greetings = 0;
let isReady = false;
const outputSchema = { type: "object", properties: { count: { type: "integer" } } };
const tools = [{ name: "count", inputSchema: { type: "object" }, outputSchema }];
const stopped = new Set();
note("started " + process.pid);
process.stdout.write("a line of noise\\n");
const modern = process.env.ERA === "stateless";
async function call(id, params) {
  const { name, arguments: args = {}, _meta = {} } = params;
  const text = (value) => write({ id, result: { content: [{ type: "text", text: JSON.stringify(value) }] } });
  if (args.die) process.exit(9);
  if (args.detach) {
    const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { detached: true, stdio: "inherit" });
    child.unref();
    return text({ child: child.pid, pid: process.pid });
  }
  if (args.progress) {
    write({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress: 1, total: 4, message: "a quarter" } });
  }
  if (args.add) {
    tools.push({ name: args.add, inputSchema: { type: "object" } });
    write({ method: "notifications/tools/list_changed" });
  }
  if (args.ask) {
    write({ id: "ask" + id, method: "elicitation/create", params: { message: "?", requestedSchema: { type: "object", properties: { a: { type: "integer", default: 3 } } } } });
    asked.set("ask" + id, (answer) => text({ answer }));
    return;
  }
  while (args.until && !existsSync(args.until) && !stopped.has(id)) await sleep(20);
  if (stopped.has(id)) return;
  if (args.tell) return text({ secret: process.env.KEY });
  if (args.misfit) return write({ id, result: { content: [], structuredContent: { count: "many" } } });
  if (args.bytes) return text("x".repeat(args.bytes));
  count += 1;
  text({ pid: process.pid, count, greetings, key: process.env.KEY?.split("").reverse().join("") ?? null, env: Object.keys(process.env).sort() });
}
const asked = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params = {}, result } = JSON.parse(line);
  if (method === undefined) asked.get(id)?.(result);
  else if (method === "notifications/cancelled") { stopped.add(params.requestId); note("cancelled"); }
  else if (method === "notifications/initialized") isReady = true;
  else if (modern && method === "server/discover")
    write({ id, result: { resultType: "complete", supportedVersions: ["2026-07-28"], capabilities: { tools: {} } } });
  else if (method === "initialize" && !modern) {
    greetings += 1;
    write({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: "held", version: "1" } } });
  }
  else if (modern && method === "subscriptions/listen")
    write({ method: "notifications/subscriptions/acknowledged", params: {} });
  else if (id === undefined) continue;
  else if (!modern && !isReady) write({ id, error: { code: -32600, message: "not greeted" } });
  else if (method === "tools/list") write({ id, result: { tools } });
  else if (method === "tools/call") void call(id, params);
  else write({ id, error: { code: -32601, message: "Method not found" } });
}
`;

export const mcpProgramFiles = { "held.mjs": program };

/** An entry of a node's \`mcp_servers\`, which is to have `mcpProgramFiles` beside it. */
export function heldServer(
  note: string,
  change: Readonly<Record<string, unknown>> = {},
  environment: Readonly<Record<string, string>> = {},
): Readonly<Record<string, unknown>> {
  return {
    command: [process.execPath, "./held.mjs"],
    environment: { NOTE: note, ...environment },
    variables: ["KEY"],
    ...change,
  };
}
