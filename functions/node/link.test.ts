import { createServer } from "node:http";
import { expect, onTestFinished, test, vi } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import * as z from "zod";
import { readDone } from "./frames.ts";
import { GatewayLink, NodeRefused } from "./link.ts";

/** @returns its port */
async function startGateway(onConnection: (socket: WebSocket) => void, maxPayload = 100_000): Promise<number> {
  const server = createServer();
  const sockets = new WebSocketServer({ server, maxPayload });
  sockets.on("connection", onConnection);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  onTestFinished(async () => {
    for (const socket of sockets.clients) socket.terminate();
    await new Promise((done) => server.close(done));
  });
  const address = server.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

test("a node whose registration the gateway finds too long ends, and says why", async () => {
  const port = await startGateway((socket) => socket.on("error", () => undefined), 1_000);
  const link: GatewayLink = new GatewayLink({
    url: `http://127.0.0.1:${port}`,
    key: "k",
    log: { log: () => undefined },
    onOpen: () => link.askNow({ type: "node.register", tools: ["x".repeat(2_000)] }, () => undefined),
    onEvent: () => undefined,
  });
  onTestFinished(() => link.close());
  const refused = await link.run().catch((thrown: unknown) => thrown);
  expect(refused).toBeInstanceOf(NodeRefused);
  expect(String(refused)).toContain("too long");
}, 10_000);

test("what no gateway reads is not sent: it would end the connection, and the next one, too", async () => {
  let connections = 0;
  const port = await startGateway((socket) => {
    connections += 1;
    socket.on("error", () => undefined);
    socket.on("message", (data: Buffer) => {
      const { id } = z.object({ id: z.string() }).parse(JSON.parse(data.toString("utf8")));
      socket.send(JSON.stringify({ id, type: "done" }));
    });
  }, 131_072);
  const link: GatewayLink = new GatewayLink({
    url: `http://127.0.0.1:${port}`,
    key: "k",
    log: { log: () => undefined },
    onOpen: () => link.askNow({ type: "node.register" }, () => undefined),
    onEvent: () => undefined,
  });
  onTestFinished(() => link.close());
  void link.run();
  await link.ask({ type: "vcp.frame", text: "x".repeat(130_000) }, readDone);
  const refused = link.ask({ type: "vcp.frame", text: "é".repeat(70_000) }, readDone);
  await expect(refused).rejects.toMatchObject({ code: "payload_too_large", isPassing: false });
  await link.ask({ type: "vcp.frame", text: "" }, readDone);
  expect(connections).toBe(1);
}, 10_000);

test("what the gateway puts off is asked again when it said, or by nobody where it is not wanted any more", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0);
  onTestFinished(() => void vi.restoreAllMocks());
  const asked: string[] = [];
  const countOf = (wanted: unknown): number => asked.filter((type) => type === wanted).length;
  const port = await startGateway((socket) =>
    socket.on("message", (data: Buffer) => {
      const { id, type } = z.object({ id: z.string(), type: z.string() }).parse(JSON.parse(data.toString("utf8")));
      asked.push(type);
      const retryAfterMs = type === "later" ? 50_000 : 0;
      const error = { code: "rate_limited", message: "m", retryable: true, retry_after_ms: retryAfterMs };
      socket.send(JSON.stringify(countOf(type) === 3 ? { id, type: "done" } : { id, type: "error", error }));
    }),
  );
  const link: GatewayLink = new GatewayLink({
    url: `http://127.0.0.1:${port}`,
    key: "k",
    log: { log: () => undefined },
    onOpen: () => Promise.resolve(),
    onEvent: () => undefined,
  });
  onTestFinished(() => link.close());
  void link.run();
  const unwanted = new AbortController();
  const later = link.ask({ type: "later" }, readDone, unwanted.signal);
  await link.ask({ type: "soon" }, readDone);
  expect(countOf("soon")).toBe(3);
  expect(countOf("later")).toBe(1);
  unwanted.abort();
  expect(await later).toBeUndefined();
}, 10_000);
