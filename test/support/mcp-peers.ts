/** MCP servers that others have made, as processes or in this one. */
import { spawn, type ChildProcess } from "node:child_process";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { McpServer as SessionServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import type { JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { WebSocketServer } from "ws";
import * as z from "zod";

export interface McpPeer {
  readonly url: string;
  close(): Promise<void>;
}

const require = createRequire(import.meta.url);

/** The reference server with one of everything, over Streamable HTTP or HTTP with SSE, as a process. */
export async function startEverything(transport: "streamableHttp" | "sse"): Promise<McpPeer> {
  const script = require.resolve("@modelcontextprotocol/server-everything/dist/index.js");
  const port = await freePort();
  const child = spawn(process.execPath, [script, transport], {
    env: { PATH: "/usr/bin:/bin", PORT: String(port) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  await listening(child, port);
  return {
    url: `http://127.0.0.1:${port}/${transport === "sse" ? "sse" : "mcp"}`,
    close: () => ended(child),
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

async function listening(child: ChildProcess, port: number): Promise<void> {
  let output = "";
  child.stderr?.on("data", (part: Buffer) => {
    output += part.toString("utf8");
  });
  for (let tries = 0; tries < 200; tries += 1) {
    if (child.exitCode !== null) throw new Error(`the server ended: ${output}`);
    if (await answers(port)) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`the server did not start: ${output}`);
}

async function answers(port: number): Promise<boolean> {
  try {
    await (await fetch(`http://127.0.0.1:${port}/nothing`)).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exit = new Promise((done) => child.once("exit", done));
  child.kill("SIGKILL");
  await exit;
}

const echoInput = { text: z.string().describe("What to say.") };

/** A server of the SDK's second generation: revision 2026-07-28, and earlier ones where told so. */
export async function startStateless({ alsoSessions = false } = {}): Promise<McpPeer> {
  const handler = createMcpHandler(
    () => {
      const server = new McpServer({ name: "stateless-peer", version: "2.0.0" });
      server.registerTool(
        "echo",
        { description: "Says it again.", inputSchema: z.object(echoInput), annotations: { readOnlyHint: true } },
        ({ text }) => ({ content: [{ type: "text", text: `again: ${text}` }] }),
      );
      return server;
    },
    alsoSessions ? {} : { legacy: "reject" },
  );
  return serve(async (request, response) => {
    const answer = await handler.fetch(await toWebRequest(request));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body !== null) for await (const part of answer.body) response.write(part);
    response.end();
  });
}

async function toWebRequest(request: IncomingMessage): Promise<Request> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    if (value !== undefined) headers.set(name, String(value));
  return new Request(`http://${request.headers.host ?? "127.0.0.1"}${request.url ?? "/"}`, {
    method: request.method ?? "GET",
    headers,
    ...(parts.length === 0 ? {} : { body: Buffer.concat(parts) }),
  });
}

/** The SDK's own server for HTTP with SSE, with the streams that are open. */
export async function startOldSse(): Promise<McpPeer & { cut(): void }> {
  const open = new Map<string, SSEServerTransport>();
  const responses = new Set<ServerResponse>();
  const peer = await serve(async (request, response) => {
    const url = new URL(request.url ?? "/", "http://127.0.0.1");
    if (request.method === "GET" && url.pathname === "/sse") {
      const transport = new SSEServerTransport("/messages", response);
      open.set(transport.sessionId, transport);
      responses.add(response);
      const server = new SessionServer({ name: "old-peer", version: "1.0.0" });
      server.registerTool("echo", { description: "Says it again.", inputSchema: echoInput }, ({ text }) => ({
        content: [{ type: "text", text: `again: ${text}` }],
      }));
      await server.connect(transport);
      return;
    }
    const transport = open.get(url.searchParams.get("sessionId") ?? "");
    if (request.method === "POST" && url.pathname === "/messages" && transport !== undefined) {
      await transport.handlePostMessage(request, response);
      return;
    }
    response.writeHead(404).end("nothing here");
  });
  return {
    ...peer,
    url: `${peer.url}/sse`,
    cut: () => {
      for (const response of responses) response.destroy();
      responses.clear();
    },
  };
}

/** The SDK's server on a WebSocket of another library, with the connections that are open. */
export async function startWebSocket(authorization?: string): Promise<McpPeer & { cut(): void; opened(): number }> {
  const sockets = new WebSocketServer({
    port: 0,
    host: "127.0.0.1",
    handleProtocols: () => "mcp",
    verifyClient: ({ req }: { readonly req: IncomingMessage }) =>
      authorization === undefined || req.headers["authorization"] === authorization,
  });
  let opened = 0;
  sockets.on("connection", (socket) => {
    opened += 1;
    const transport: Transport = {
      start: () => Promise.resolve(),
      send: (message) => new Promise((done) => socket.send(JSON.stringify(message), () => done())),
      close: () => Promise.resolve(socket.close()),
    };
    socket.on("message", (data: Buffer) => transport.onmessage?.(JSON.parse(data.toString("utf8")) as JSONRPCMessage));
    socket.on("close", () => transport.onclose?.());
    const server = new SessionServer({ name: "socket-peer", version: "1.0.0" });
    server.registerTool("echo", { description: "Says it again.", inputSchema: echoInput }, ({ text }) => ({
      content: [{ type: "text", text: `again: ${text}` }],
    }));
    void server.connect(transport);
    socket.ping("are you there");
  });
  await new Promise((done) => sockets.once("listening", done));
  const cut = (): void => {
    for (const socket of sockets.clients) socket.terminate();
  };
  return {
    url: `ws://127.0.0.1:${(sockets.address() as AddressInfo).port}/mcp`,
    cut,
    opened: () => opened,
    close: async () => {
      cut();
      await new Promise((done) => sockets.close(done));
    },
  };
}

async function serve(handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<McpPeer> {
  const server: Server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Command lines of reference servers over stdio. */
export const stdioServers = {
  everything: [process.execPath, require.resolve("@modelcontextprotocol/server-everything/dist/index.js"), "stdio"],
  filesystem: [process.execPath, require.resolve("@modelcontextprotocol/server-filesystem/dist/index.js")],
  memory: [process.execPath, require.resolve("@modelcontextprotocol/server-memory/dist/index.js")],
} as const;
