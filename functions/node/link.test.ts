import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { WebSocketServer } from "ws";
import { GatewayLink, NodeRefused } from "./link.ts";

test("a node whose registration the gateway finds too long ends, and says why", async () => {
  const server = createServer();
  const sockets = new WebSocketServer({ server, maxPayload: 1_000 });
  sockets.on("connection", (socket) => socket.on("error", () => undefined));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  onTestFinished(async () => {
    for (const socket of sockets.clients) socket.terminate();
    await new Promise((done) => server.close(done));
  });
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
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
