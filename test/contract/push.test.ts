import type { AddressInfo } from "node:net";
import { createMemoryPush } from "@toolyard/platform/memory/memory-push";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { createSocketPush } from "../../functions/realtime/socket-push.ts";
import { describePush } from "./push.ts";

describePush("sockets of this process", async () => {
  const push = createSocketPush();
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  onTestFinished(() => {
    server.close();
  });
  await new Promise((listening) => server.once("listening", listening));
  let last = 0;
  return {
    push,
    async connect() {
      last += 1;
      const id = `connection-${last}`;
      const accepted = new Promise<WebSocket>((done) => server.once("connection", done));
      const { port } = server.address() as AddressInfo;
      const client = new WebSocket(`ws://127.0.0.1:${port}`);
      const received: string[] = [];
      client.on("message", (data: Buffer) => void received.push(data.toString("utf8")));
      const socket = await accepted;
      await new Promise((open) => client.once("open", open));
      push.open(id, socket);
      const closed = new Promise((done) => socket.once("close", done));
      return {
        id,
        received,
        async close() {
          client.close();
          await closed;
        },
      };
    },
  };
});

describePush("connections of this process", async () => {
  const push = createMemoryPush();
  let last = 0;
  return {
    push,
    async connect() {
      last += 1;
      const id = `connection-${last}`;
      const received: string[] = [];
      const forget = push.register(id, (frame) => void received.push(frame));
      return { id, received, close: async () => forget() };
    },
  };
});

describe("connections of this process", () => {
  test("one whose write fails is gone, and stays so", async () => {
    const push = createMemoryPush();
    let writes = 0;
    push.register("a", async () => {
      writes += 1;
      throw new Error("socket closed");
    });
    expect(await push.send("a", "1")).toBe("gone");
    expect(await push.send("a", "2")).toBe("gone");
    expect(writes).toBe(1);
  });

  test("forgetting an old connection leaves a newer one of the same id alone", async () => {
    const push = createMemoryPush();
    const received: string[] = [];
    const forgetOld = push.register("a", () => undefined);
    push.register("a", (frame) => void received.push(frame));
    forgetOld();
    expect(await push.send("a", "hello")).toBe("sent");
    expect(received).toEqual(["hello"]);
  });
});
