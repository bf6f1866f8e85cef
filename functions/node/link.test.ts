import { createServer } from "node:http";
import type { JsonObject } from "@toolyard/core/json";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import * as z from "zod";
import { unscripted } from "../../test/support/fake-core.ts";
import { readDone } from "./frames.ts";
import { GatewayLink, NodeRefused } from "./link.ts";
import { Node } from "./node.ts";

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

describe("a gateway of another release", () => {
  /** A node at a gateway that answers each message so. */
  async function nodeAt(answer: (message: JsonObject) => JsonObject): Promise<{
    readonly registered: JsonObject[];
    readonly ended: Promise<unknown>;
  }> {
    const registered: JsonObject[] = [];
    const port = await startGateway((socket) =>
      socket.on("message", (data: Buffer) => {
        const message = z.looseObject({ id: z.string() }).parse(JSON.parse(data.toString("utf8"))) as JsonObject;
        registered.push(message);
        socket.send(JSON.stringify({ ...answer(message), id: message["id"] }));
      }),
    );
    const config = { directory: "/", programs: [], mcpServers: [], holdsSubscriptions: false, vcpModules: undefined };
    const node = new Node({
      url: `http://127.0.0.1:${port}`,
      key: "k",
      config: { ...config, name: "lab", files: ["/data"] },
      egress: unscripted("egress"),
      runner: unscripted("runner"),
      log: { log: () => undefined },
      path: "",
      graceMs: 0,
    });
    const ended = node.run().catch((thrown: unknown) => thrown);
    onTestFinished(() => node.stop());
    return { registered, ended };
  }

  test("that does not know what a node offers is named as the older one", async () => {
    const message = "The message's field 'tools.0': 'directories' is not known.";
    const error = { code: "invalid_request", message, param: "tools.0", type: "invalid_request_error" };
    const { ended } = await nodeAt(() => ({ type: "error", error }));
    expect(await ended).toBeInstanceOf(NodeRefused);
    expect(String(await ended)).toMatch(
      /'directories' is not known\. .*older.*Upgrade the gateway, or run the node of/,
    );
  });

  test("whose answer a node does not understand is named as the newer one", async () => {
    const { ended } = await nodeAt(() => ({ type: "node.welcomed", beats: "five a minute" }));
    expect(await ended).toBeInstanceOf(NodeRefused);
    expect(String(await ended)).toMatch(/newer.*Upgrade the node/);
  });

  test("is not told what is as it would be anyway, so that it knows all names", async () => {
    const { registered } = await nodeAt(() => ({ type: "node.registered", beat_ms: 60_000, hidden: [] }));
    await expect.poll(() => registered.length).toBeGreaterThan(0);
    expect(Object.keys((registered[0] as { tools: JsonObject[] }).tools[0] ?? {}).sort()).toEqual([
      "concurrency",
      "description",
      "directories",
      "effect",
      "kind",
      "name",
      "parameters",
      "timeout_ms",
    ]);
  });
});
