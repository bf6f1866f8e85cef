/**
 * A small MCP server over Streamable HTTP whose every habit can be set, the bad ones above all; it keeps what
 * it was sent. Peers that are nobody's stubs are in mcp-peers.ts.
 */
import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "./http-stub.ts";
import type { Json } from "./gateway-client.ts";

export interface McpCall {
  readonly id: string | number;
  readonly name: string;
  readonly arguments: Json;
  readonly meta: Json;
  readonly request: RecordedRequest;
  readonly sessionId: string | undefined;
}

/** An object is the result; a function writes to the response itself, or not. */
type Answer = object | ((response: ServerResponse) => StubReply | undefined | Promise<StubReply | undefined>);

export interface McpStub {
  readonly url: string;
  readonly http: HttpStub;
  /** As `tools/list` gives them; pages by cursor where it is a function. */
  tools: readonly Json[] | ((cursor: string | undefined) => Json);
  /** `session`: since 2025; `stateless`: 2026-07-28. */
  era: "session" | "stateless";
  /** How requests are answered. */
  answersAs: "json" | "sse";
  /** Credentials without which everything is refused, or which of them are taken. */
  authorization: string | ((given: string) => boolean) | undefined;
  onCall: (call: McpCall) => Answer;
  /** JSON-RPC messages as they came. */
  readonly messages: Json[];
  readonly calls: McpCall[];
  /** Sessions that there are. */
  readonly sessions: Set<string>;
  /** Streams on which news are awaited. */
  readonly listeners: Set<ServerResponse>;
  /** Messages of a stream that broke, by the id of the event that was sent last. */
  readonly resumable: Map<string, readonly string[]>;
  /** To all who listen. */
  tell(method: string, params?: Json): void;
  sent(method: string): readonly Json[];
  close(): Promise<void>;
}

export const anyTool = (name: string, change: Json = {}): Json => ({
  name,
  description: `The tool ${name}.`,
  inputSchema: { type: "object" },
  ...change,
});

export const textResult = (text: string, change: Json = {}): Json => ({ content: [{ type: "text", text }], ...change });

export async function startMcpStub(change: Partial<McpStub> = {}): Promise<McpStub> {
  const http = await startHttpStub();
  const stub: McpStub = {
    url: `${http.url}/mcp`,
    http,
    tools: [anyTool("echo")],
    era: "session",
    answersAs: "json",
    authorization: undefined,
    onCall: (call) => textResult(JSON.stringify(call.arguments)),
    messages: [],
    calls: [],
    sessions: new Set(),
    listeners: new Set(),
    resumable: new Map(),
    tell(method, params = {}) {
      for (const response of stub.listeners) response.write(event({ jsonrpc: "2.0", method, params }));
    },
    sent: (method) => stub.messages.filter((message) => message.method === method),
    close: () => http.close(),
    ...change,
  };
  http.answer = (request, response) => answer(stub, request, response);
  return stub;
}

const event = (message: unknown, id?: string): string =>
  `${id === undefined ? "" : `id: ${id}\n`}event: message\ndata: ${JSON.stringify(message)}\n\n`;

async function answer(
  stub: McpStub,
  request: RecordedRequest,
  response: ServerResponse,
): Promise<StubReply | undefined> {
  const { authorization } = stub;
  const given = String(request.headers["authorization"] ?? "");
  const isTaken = typeof authorization === "function" ? authorization(given) : given === (authorization ?? given);
  if (!isTaken) {
    return { status: 401, body: JSON.stringify({ error: "invalid_token" }) };
  }
  const sessionId = String(request.headers["mcp-session-id"] ?? "");
  if (request.method === "DELETE") return { status: stub.sessions.delete(sessionId) ? 200 : 404, body: "" };
  if (request.method === "GET") return stream(stub, request, response);
  const message: Json = JSON.parse(request.body.toString("utf8"));
  stub.messages.push(message);
  if (stub.era === "stateless") return stateless(stub, { message, request, response });
  if (message.method === "initialize") {
    const id = randomUUID();
    stub.sessions.add(id);
    const { protocolVersion } = message.params;
    const capabilities = { tools: { listChanged: true } };
    const result = { protocolVersion, capabilities, serverInfo: { name: "stub", version: "1" } };
    return { ...reply(message.id, result), headers: { "content-type": "application/json", "mcp-session-id": id } };
  }
  if (!stub.sessions.has(sessionId)) {
    const status = sessionId === "" ? 400 : 404;
    const error = { code: -32_000, message: "Bad Request: no valid session id" };
    return { status, body: JSON.stringify({ jsonrpc: "2.0", error, id: null }) };
  }
  if (message.id === undefined || message.method === undefined) return { status: 202, body: "" };
  return perform(stub, { message, request, response });
}

interface Received {
  readonly message: Json;
  readonly request: RecordedRequest;
  readonly response: ServerResponse;
}

async function stateless(stub: McpStub, received: Received): Promise<StubReply | undefined> {
  const { message, request, response } = received;
  const version = request.headers["mcp-protocol-version"];
  const isModern =
    version === "2026-07-28" &&
    message.params?._meta?.["io.modelcontextprotocol/protocolVersion"] === version &&
    request.headers["mcp-method"] === message.method;
  if (!isModern)
    return failure(message.id, { code: -32_022, message: "unsupported", data: { supported: ["2026-07-28"] } });
  if (message.method === "server/discover") {
    return reply(message.id, {
      resultType: "complete",
      supportedVersions: ["2026-07-28"],
      capabilities: { tools: { listChanged: true } },
      _meta: { "io.modelcontextprotocol/serverInfo": { name: "stub", version: "2" } },
    });
  }
  if (message.method === "subscriptions/listen") {
    listen(stub, response);
    response.write(event({ jsonrpc: "2.0", method: "notifications/subscriptions/acknowledged", params: {} }));
    return undefined;
  }
  return perform(stub, received);
}

async function perform(stub: McpStub, { message, request, response }: Received): Promise<StubReply | undefined> {
  if (message.method === "ping") return respond(stub, response, message.id, {});
  if (message.method === "tools/list") {
    const { tools } = stub;
    const result = typeof tools === "function" ? tools(message.params.cursor) : { tools };
    return respond(stub, response, message.id, { resultType: "complete", ...result });
  }
  if (message.method !== "tools/call") return failure(message.id, { code: -32_601, message: "Method not found" }, 200);
  const call: McpCall = {
    id: message.id,
    name: message.params.name,
    arguments: message.params.arguments,
    meta: message.params._meta,
    request,
    sessionId: request.headers["mcp-session-id"]?.toString(),
  };
  stub.calls.push(call);
  const result = stub.onCall(call);
  return typeof result === "function" ? result(response) : respond(stub, response, message.id, result);
}

function respond(stub: McpStub, response: ServerResponse, id: Json, result: Json): StubReply | undefined {
  if (stub.answersAs === "json") return reply(id, result);
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(event({ jsonrpc: "2.0", id, result }));
  return undefined;
}

function reply(id: Json, result: Json): StubReply {
  return { headers: { "content-type": "application/json" }, body: JSON.stringify({ jsonrpc: "2.0", id, result }) };
}

function failure(id: Json, error: Json, status = 400): StubReply {
  return {
    status,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: id ?? null, error }),
  };
}

function listen(stub: McpStub, response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.flushHeaders();
  stub.listeners.add(response);
  response.on("close", () => stub.listeners.delete(response));
}

function stream(stub: McpStub, request: RecordedRequest, response: ServerResponse): StubReply | undefined {
  const last = request.headers["last-event-id"]?.toString();
  if (last === undefined) {
    listen(stub, response);
    return undefined;
  }
  const rest = stub.resumable.get(last);
  if (rest === undefined) return { status: 404 };
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(rest.join(""));
  return undefined;
}

/** A result as a stream that breaks before it, and goes on when asked for by the id of its last event. */
export function brokenStream(stub: McpStub, call: McpCall, result: Json): (response: ServerResponse) => undefined {
  return (response) => {
    const id = randomUUID();
    stub.resumable.set(id, [event({ jsonrpc: "2.0", id: call.id, result })]);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`retry: 20\nid: ${id}\ndata: \n\n`, () => response.destroy());
    return undefined;
  };
}
