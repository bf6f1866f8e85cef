import type { AddressInfo } from "node:net";
import type { ServerResponse } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { callContext } from "../../../../test/support/call-context.ts";
import type { Json } from "../../../../test/support/gateway-client.ts";
import { startHttpStub, type StubReply } from "../../../../test/support/http-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { Correlator } from "./correlator.ts";
import { HttpPeer } from "./http-peer.ts";
import { HttpSse } from "./http-sse.ts";
import { decodeMessages } from "./json-rpc.ts";
import { McpSession } from "./session.ts";
import { StdioOnce } from "./stdio-once.ts";
import { StreamableHttp } from "./streamable-http.ts";
import type { ExchangeOptions } from "./transport.ts";
import { WebSocketLink } from "./websocket.ts";

const call = { id: "c-1", method: "tools/call", params: {} };
const answer = { jsonrpc: "2.0", id: call.id, result: { ok: true } };
const asksTooMuch = {
  code: "tool_failed",
  message: "'mcp://stub' asks for more at once than it takes answers to.",
};

const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const pings = (count: number): object[] =>
  Array.from({ length: count }, (_, id) => ({ jsonrpc: "2.0", id, method: "ping" }));

function exchange(): ExchangeOptions {
  const { signal } = new AbortController();
  return { context: callContext(), signal, timeoutMs: 5_000, maxBytes: 8_000_000 };
}

function peerAt(url: string): HttpPeer {
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  onTestFinished(() => egress.close());
  const credentials = { resolve: () => Promise.resolve(new Map<string, string>()) };
  const tokens = { accessToken: () => Promise.reject(new Error("nobody asks for a token")) };
  const auth = { authConfig: undefined, literals: new Map() };
  const tls = (): Promise<undefined> => Promise.resolve(undefined);
  return new HttpPeer(
    { egress, credentials, tokens },
    { url, name: "mcp://stub", tool: "mcp://stub/*", auth, headers: {}, tls },
  );
}

/** A server over HTTP, and how many answers it got and had under way at once. */
async function serve(onCall: (response: ServerResponse) => StubReply | undefined) {
  const stub = await startHttpStub();
  onTestFinished(() => stub.close());
  const seen = { answers: 0, underWay: 0, most: 0 };
  stub.answer = async ({ method, body }, response) => {
    if (method === "GET") return onCall(response);
    if (body.includes("tools/call")) return onCall(response);
    seen.answers += 1;
    seen.underWay += 1;
    seen.most = Math.max(seen.most, seen.underWay);
    await new Promise((done) => setTimeout(done, 5));
    seen.underWay -= 1;
    return { status: 202, body: "" };
  };
  return { url: stub.url, seen };
}

function correlated(): { readonly correlator: Correlator; readonly say: (...messages: object[]) => void } {
  const correlator = new Correlator({ name: "mcp://stub", reply: () => undefined });
  return { correlator, say: (...messages) => correlator.receive(decodeMessages(JSON.stringify(messages))) };
}

function stream(response: ServerResponse, ...events: string[]): undefined {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const text of events) response.write(text);
}

describe(`what a server asks over Streamable HTTP ${verifies("MCP-4")}`, () => {
  test("is answered a few at a time", async () => {
    const { url, seen } = await serve((response) => stream(response, event(pings(100)), event(answer)));
    const transport = new StreamableHttp(peerAt(url));
    expect(await transport.request(call, exchange())).toMatchObject({ kind: "result", id: call.id });
    await expect.poll(() => seen.answers).toBe(100);
    expect(seen.most).toBe(8);
  });

  test("ends the exchange where it is more than the server takes answers to", async () => {
    let isLeft = false;
    const { url, seen } = await serve((response) => {
      response.on("close", () => (isLeft = true));
      return stream(response, `id: 1\n${event(pings(2_000))}`);
    });
    await expect(new StreamableHttp(peerAt(url)).request(call, exchange())).rejects.toMatchObject(asksTooMuch);
    await expect.poll(() => isLeft).toBe(true);
    await expect.poll(() => seen.underWay).toBe(0);
    expect(seen.answers).toBeLessThan(120);
  });

  test("ends a stream of news likewise", async () => {
    const { url } = await serve((response) => stream(response, event(pings(2_000))));
    const listening = new StreamableHttp(peerAt(url)).listen(exchange(), () => undefined);
    await expect(listening).rejects.toThrow(asksTooMuch.message.slice("'mcp://stub' ".length, -1));
  });
});

test(`what a server asks over HTTP with SSE ends the connection where it is too much ${verifies("MCP-4")}`, async () => {
  let say: (text: string) => void = () => undefined;
  let isLeft = false;
  const { url, seen } = await serve((response) => {
    if (response.req.method === "POST") {
      say(event(pings(2_000)));
      return { status: 202, body: "" };
    }
    say = (text) => response.write(text);
    response.on("close", () => (isLeft = true));
    return stream(response, "event: endpoint\ndata: /messages\n\n");
  });
  const transport = await HttpSse.open(peerAt(url), exchange());
  await expect(transport.request(call, exchange())).rejects.toMatchObject(asksTooMuch);
  expect(transport.isAlive()).toBe(false);
  await expect.poll(() => isLeft).toBe(true);
  await expect.poll(() => seen.underWay).toBe(0);
  expect(seen.answers).toBeLessThan(120);
});

describe(`what a server asks over WebSocket ${verifies("MCP-4")}`, () => {
  async function open(onMessage: (socket: WebSocket, message: Json) => void): Promise<WebSocketLink> {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => "mcp" });
    server.on("connection", (socket) => {
      socket.on("message", (data: Buffer) => onMessage(socket, JSON.parse(data.toString("utf8"))));
    });
    await new Promise((done) => server.once("listening", done));
    onTestFinished(() => {
      for (const socket of server.clients) socket.terminate();
      server.close();
    });
    return WebSocketLink.open(peerAt(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), exchange());
  }

  test("is answered as long as the server reads", async () => {
    let pongs = 0;
    const link = await open((socket) => {
      socket.on("pong", () => {
        pongs += 1;
        if (pongs === 2_000) socket.send(JSON.stringify(answer));
        else if (pongs < 2_000) socket.ping();
      });
      socket.ping();
    });
    expect(await link.request(call, exchange())).toMatchObject({ kind: "result" });
    await link.close();
  });

  test("is declined where its form is no schema, and the call goes on", async () => {
    const asked = { message: "?", requestedSchema: { properties: { a: { type: "nonsense" } } } };
    const said: unknown[] = [];
    const link = await open((socket, { id, method, params, ...reply }) => {
      const say = (message: object): void => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
      if (method === "initialize") say({ id, result: { protocolVersion: params.protocolVersion, capabilities: {} } });
      if (method === "tools/call") say({ id: "form", method: "elicitation/create", params: asked });
      if (id === "form") said.push(reply);
      if (id === "form") say({ id: 2, result: { content: [] } });
    });
    const options = { name: "mcp://stub", era: "session" as const, elicitation: "defaults" as const };
    const session = await McpSession.open(link, { ...options, onToolsChanged: () => undefined }, exchange());
    const done = await session.callTool({ name: "t", arguments: {}, token: "1" }, exchange());
    expect(done).toEqual({ content: [] });
    expect(said).toMatchObject([{ result: { action: "decline" } }]);
    await session.close();
  });

  test("ends the connection, and nothing else, where it cannot be answered", async () => {
    const link = await open((socket) => socket.send(JSON.stringify(pings(1))));
    link.serve(() => {
      throw new Error("a mistake of ours");
    });
    await expect(link.request(call, exchange())).rejects.toMatchObject({ code: "internal_error" });
    expect(link.isAlive()).toBe(false);
  });

  test.each([
    ["pings", (socket: WebSocket) => socket.ping(Buffer.alloc(125))],
    ["requests", (socket: WebSocket) => socket.send(JSON.stringify(pings(100)))],
  ])("ends the connection where the server reads none of the answers to its %s", async (_which, ask) => {
    const link = await open((socket) => {
      socket.pause();
      const go = (): void => {
        if (socket.readyState !== socket.OPEN) return;
        if (socket.bufferedAmount < 8_000_000) for (let count = 0; count < 500; count += 1) ask(socket);
        setImmediate(go);
      };
      go();
    });
    await expect(link.request(call, exchange())).rejects.toMatchObject(asksTooMuch);
    expect(link.isAlive()).toBe(false);
  });
});

describe(`what a server tells of a request that nobody can take ${verifies("MCP-4")}`, () => {
  const notice = { jsonrpc: "2.0", method: "notifications/progress", params: {} };
  const mistaken = (): ExchangeOptions => ({
    ...exchange(),
    onNotice: () => {
      throw new Error("a mistake of ours");
    },
  });

  test("ends that request, not the others of its connection", async () => {
    const { correlator, say } = correlated();
    const failing = correlator.request(call, mistaken(), () => Promise.resolve());
    const other = correlator.request({ ...call, id: "c-2" }, exchange(), () => Promise.resolve());
    say(notice, { ...answer, id: "c-2" });
    await expect(failing).rejects.toMatchObject({ code: "internal_error" });
    expect(await other).toMatchObject({ id: "c-2" });
  });

  test("ends that run of a program", async () => {
    const transport = new StdioOnce({
      name: "mcp://stub",
      command: ["stub"],
      environment: () => Promise.resolve({}),
      runner: {
        run: ({ onStdout }) => {
          onStdout?.(`${JSON.stringify(notice)}\n`);
          return Promise.resolve({ stdout: "", stderr: "", exitCode: null, ended: "aborted", durationMs: 1 });
        },
      },
    });
    await expect(transport.request(call, mistaken())).rejects.toMatchObject({ code: "internal_error" });
  });
});
