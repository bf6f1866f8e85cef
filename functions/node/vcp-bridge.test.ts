import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { unscripted } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import { startVcpBridge } from "./vcp-bridge.ts";

test(`a bridge outlives programs that leave while they are refused ${verifies("VCP-15")}`, async () => {
  const thrown: unknown[] = [];
  const note = (error: unknown): void => void thrown.push(error);
  process.on("uncaughtExceptionMonitor", note);
  onTestFinished(() => void process.off("uncaughtExceptionMonitor", note));
  const bridge = await startVcpBridge({
    url: "http://127.0.0.1:1",
    key: "k",
    port: 0,
    vcpKey: "secret",
    directories: [],
    egress: unscripted("egress"),
    runner: unscripted("runner"),
    clock: unscripted("clock"),
    log: { log: () => undefined },
  });
  const asking = [
    "GET /nothing HTTP/1.1",
    "Host: bridge",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  ];
  for (let at = 0; at < 50; at += 1) {
    const socket = connect(bridge.port, "127.0.0.1");
    socket.on("error", () => undefined);
    await new Promise<void>((done) => socket.once("connect", () => done()));
    await new Promise<void>((done) => socket.write(`${asking.join("\r\n")}\r\n\r\n`, () => done()));
    socket.resetAndDestroy();
    await sleep(5);
  }
  await sleep(100);
  await bridge.stop();
  expect(thrown).toEqual([]);
});
