import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { longestMessage } from "@toolyard/core/realtime/frames";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { verifies } from "../../test/support/verifies.ts";
import { callContext } from "../../test/support/call-context.ts";
import { allowanceOf, hearSocket, Intake } from "./intake.ts";

const allowance = { perSecond: 20, atOnce: 128 };

describe(`what a connection may say ${verifies("CHAT-13")}`, () => {
  test("is so much at once, and then so much a second, however long it said nothing", () => {
    const intake = new Intake(allowance, 0);
    const at = (now: number): number => intake.take(30, now);
    expect(Array.from({ length: 128 }, () => at(0)).every((wait) => wait === 0)).toBe(true);
    expect([at(0), at(0)]).toEqual([50, 100]);
    expect(at(100)).toBe(50);
    expect(at(1_000_000)).toBe(0);
    expect(Array.from({ length: 127 }, () => at(1_000_000)).every((wait) => wait === 0)).toBe(true);
    expect(at(1_000_000)).toBe(50);
  });

  test("counts by its length where that is more than a message of others may have", () => {
    const intake = new Intake(allowance, 0);
    expect(intake.take(longestMessage * 128, 0)).toBe(0);
    expect(intake.take(longestMessage + 1, 0)).toBe(100);
  });

  test("is more for nodes, which are what calls of the tenant run on", () => {
    const { caller } = callContext();
    expect(allowanceOf(caller)).toEqual(allowance);
    expect(allowanceOf({ ...caller, scopes: ["node"] }).perSecond).toBeGreaterThan(allowance.perSecond);
  });

  test("is read no faster: a client that goes on is waited for, and loses nothing", async () => {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    onTestFinished(() => server.close());
    await once(server, "listening");
    const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const [[socket]] = (await Promise.all([once(server, "connection"), once(client, "open")])) as [[WebSocket], []];
    let now = 0;
    const heard: [word: string, isPaused: boolean][] = [];
    hearSocket(socket, { allowance: { perSecond: 20, atOnce: 2 }, now: () => now }, (data) => {
      heard.push([(data as Buffer).toString("utf8"), socket.isPaused]);
    });
    for (const word of ["one", "two", "three"]) client.send(word);
    await expect.poll(() => heard.length).toBe(3);
    now = 1_000;
    client.send("four");
    await expect.poll(() => heard.length).toBe(4);
    expect(heard).toEqual([
      ["one", false],
      ["two", false],
      ["three", true],
      ["four", false],
    ]);
    client.close();
  });
});
