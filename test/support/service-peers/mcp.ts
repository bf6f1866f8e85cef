/** MCP servers that others have made, over every transport; see ../mcp-peers.ts. */
import { join } from "node:path";
import { startEverything, startOldSse, startStateless, startWebSocket, stdioServers } from "../mcp-peers.ts";
import type { PeerOperation, ServicePeer } from "./peer.ts";

/** What the operator of the suite's gateway offers over stdio. */
export function mcpCommands(home: string): string {
  return JSON.stringify({
    everything: { command: stdioServers.everything },
    files: { command: [...stdioServers.filesystem, home] },
    memory: { command: stdioServers.memory, env: ["MEMORY_FILE_PATH"] },
  });
}

const everything: readonly PeerOperation[] = [
  { tool: "echo", arguments: { message: "你好" }, gives: /你好/ },
  { tool: "get-sum", arguments: { a: 2, b: 40 }, gives: /42/ },
  { tool: "get-structured-content", arguments: { location: "Chicago" }, gives: /temperature/ },
];
const echo: readonly PeerOperation[] = [{ tool: "echo", arguments: { text: "你好" }, gives: /again: 你好/ }];

type Remote = () => Promise<{ readonly url: string; close(): Promise<void> }>;

function remote(name: string, start: Remote, operations: readonly PeerOperation[], transport = "http"): ServicePeer {
  return {
    scheme: "mcp",
    name,
    ...(operations === everything ? { takes: "a process" } : {}),
    async start() {
      const server = await start();
      return { config: { url: server.url, transport }, operations, close: () => server.close() };
    },
  };
}

function program(
  name: string,
  command: string,
  of: (home: string) => { readonly env?: Record<string, string>; readonly operations: readonly PeerOperation[] },
): ServicePeer {
  return {
    scheme: "mcp",
    name,
    takes: "a process for each call",
    start({ home }) {
      const { env, operations } = of(home);
      const config = { transport: "stdio", command, ...(env === undefined ? {} : { env }) };
      return Promise.resolve({ config, operations, close: () => Promise.resolve() });
    },
  };
}

const entities = [{ name: "Ada", entityType: "person", observations: ["likes engines"] }];

export const mcpPeers: readonly ServicePeer[] = [
  remote("server-everything over Streamable HTTP", () => startEverything("streamableHttp"), everything),
  remote("server-everything over HTTP with SSE", () => startEverything("sse"), everything, "sse"),
  remote("the SDK's server over HTTP with SSE", startOldSse, echo),
  remote("the second SDK's server of 2026-07-28", startStateless, echo),
  remote("the SDK's server over WebSocket", startWebSocket, echo, "websocket"),
  program("server-everything over stdio", "everything", () => ({ operations: everything })),
  program("server-filesystem over stdio", "files", (home) => ({
    operations: [
      { tool: "write_file", arguments: { path: join(home, "a.txt"), content: "hello" }, gives: /wrote/i },
      { tool: "read_text_file", arguments: { path: join(home, "a.txt") }, gives: /hello/ },
      { tool: "list_directory", arguments: { path: home }, gives: /a\.txt/ },
    ],
  })),
  program("server-memory over stdio", "memory", (home) => ({
    env: { MEMORY_FILE_PATH: join(home, "memory.jsonl") },
    operations: [
      { tool: "create_entities", arguments: { entities }, gives: /Ada|\[\]/ },
      { tool: "read_graph", arguments: {}, gives: /likes engines/ },
    ],
  })),
];
