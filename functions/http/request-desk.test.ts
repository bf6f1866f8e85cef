import { once } from "node:events";
import { connect, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AppEnv } from "./app-env.ts";
import { readBody, streamBody } from "./body.ts";
import { RequestDesk } from "./request-desk.ts";

const limit = 1_000;

const app = new Hono<AppEnv>()
  .post("/whole", async (c) => c.text(`${(await readBody(c, limit)).length} bytes`))
  .put("/passed-on", async (c) => {
    let bytes = 0;
    for await (const part of streamBody(c, limit)) bytes += part.length;
    return c.text(`${bytes} bytes`);
  });
app.onError(() => new Response(null, { status: 500 }));

const desk = new RequestDesk({
  wantsUpgrade: () => false,
  upgrade: (_request, socket) => socket.destroy(),
  patience: { wholeMs: 150, everyMs: 20 },
});

beforeAll(async () => {
  desk.open(app.fetch);
  desk.server.listen(0, "127.0.0.1");
  await once(desk.server, "listening");
});
afterAll(() => desk.close(0));

/** Sends all of a request but the last byte of its body. */
function begin(start: string): { readonly socket: Socket; readonly answer: Promise<string> } {
  const socket = connect((desk.server.address() as AddressInfo).port, "127.0.0.1");
  socket.write(`${start} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n123456789`);
  const answer = socket.toArray().then((parts: readonly Buffer[]) => Buffer.concat(parts).toString("latin1"));
  return { socket, answer };
}

describe("a body that does not come to its end", () => {
  test("is given up where it is read whole, and its client is told", async () => {
    const answer = await begin("POST /whole").answer;
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toContain('"code":"request_timeout"');
  });

  test("may take longer where it is passed on", async () => {
    const { socket, answer } = begin("PUT /passed-on");
    await sleep(400);
    socket.write("0");
    expect(await answer).toContain("10 bytes");
  });
});
