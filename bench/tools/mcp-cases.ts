/** MCP over Streamable HTTP beside JSON-RPC by undici, and over stdio beside a process that is told the same. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Pool } from "undici";
import { openMcpClient } from "./mcp-client.ts";
import { addService, type ToolCase } from "./tool-case.ts";

export const mcpHttpCase: ToolCase = {
  bareClient: "JSON-RPC, undici",
  async start({ url, acrossUrl }, tenant) {
    await addService(tenant, "mcp", "crm", {
      url: `${url}/mcp`,
      auth_type: "bearer",
      auth_config: { token: "token-of-the-crm" },
    });
    const [pool, across] = [url, acrossUrl].map((each) => new Pool(each, { connections: 1, pipelining: 1 }));
    if (pool === undefined || across === undefined) throw new Error("no pool");
    const headers = {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      authorization: "Bearer token-of-the-crm",
      "mcp-protocol-version": "2025-11-25",
    };
    let id = 0;
    const exchange = async (through: Pool): Promise<unknown> => {
      id += 1;
      const params = { name: "customer_get", arguments: { id: "C001" }, _meta: { progressToken: `call_${id}` } };
      const message = JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params });
      const { statusCode, body } = await through.request({ method: "POST", path: "/mcp", headers, body: message });
      const answer = JSON.parse(await body.text()) as { readonly id: number; readonly result?: unknown };
      if (statusCode !== 200 || answer.id !== id || answer.result === undefined) throw new Error("no answer");
      return answer.result;
    };
    const client = await openMcpClient(`${acrossUrl}/mcp`);
    return {
      uri: "mcp://crm/customer_get",
      arguments: { id: "C001" },
      bare: () => exchange(pool),
      bareAcross: () => exchange(across),
      ownAcross: () => client.call(),
      async close() {
        await Promise.all([pool.destroy(), across.destroy(), client.close()]);
      },
    };
  },
};

/** A server that starts in no time, so that what is measured is ours. */
const script = `
while read -r line; do
  id=\${line#*'"id":'}; id=\${id%%,*}
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"customer_get","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"Ann, gold"}]}';;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' "$id" "$result"
done`;
const command = ["/bin/sh", "-c", script] as const;

/** What the gateway is started with. */
export const mcpCommands: string = JSON.stringify({ shell: { command } });

const told = [
  {
    id: "initialize",
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "bench", version: "1" } },
  },
  { method: "notifications/initialized", params: {} },
  { id: 1, method: "tools/call", params: { name: "customer_get", arguments: {} } },
]
  .map((message) => `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)
  .join("");

/** One process a call, on both sides: nothing holds such a program between calls. */
export const mcpStdioCase: ToolCase = {
  bareClient: "spawn",
  withoutFloor: "a process a call, with limits that take two programs more",
  async start(_backEnds, tenant) {
    await addService(tenant, "mcp", "shell", { transport: "stdio", command: "shell" });
    const [program, ...args] = command;
    return {
      uri: "mcp://shell/customer_get",
      arguments: {},
      async bare() {
        const child = spawn(program, args, { stdio: ["pipe", "pipe", "ignore"] });
        child.stdin.end(told);
        let text = "";
        child.stdout.on("data", (part: Buffer) => (text += part.toString("utf8")));
        await once(child, "close");
        if (!text.includes(`"id":1,"result"`)) throw new Error(`it answered ${text}`);
      },
      close: () => Promise.resolve(),
    };
  },
};
