import { connect, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { serve, type ServerType } from "@hono/node-server";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import * as z from "zod";
import { afterEach, describe, expect, test } from "vitest";
import { createFakeCore, type FakeCore } from "../../test/support/fake-core.ts";
import { createApp } from "./app.ts";
import { defineRoute } from "./define-route.ts";

const open = {
  tags: ["test"],
  summary: "",
  scope: null,
  admission: "none",
  responses: { 200: { description: "" } },
} as const;
const limit = 1_000_000;

const json = defineRoute({
  ...open,
  method: "post",
  path: "/json",
  request: { body: z.looseObject({}), maxBytes: limit },
  handler: (c, { bytes }) => c.json({ size: bytes.length }),
});

const upload = defineRoute({
  ...open,
  method: "put",
  path: "/upload",
  request: { stream: { mediaTypes: ["application/octet-stream"], description: "" }, maxBytes: limit },
  async handler(c, { stream }) {
    let size = 0;
    for await (const part of stream) size += part.length;
    return c.json({ size });
  },
});

let release = (): void => undefined;
let body: WeakRef<Uint8Array> | undefined;
const waits = defineRoute({
  ...open,
  method: "post",
  path: "/waits",
  request: { body: z.looseObject({}), maxBytes: limit },
  handler(c, { bytes }) {
    body = new WeakRef(bytes);
    return new Promise<Response>((resolve) => {
      release = () => resolve(c.json({}));
    });
  },
});

const servers: ServerType[] = [];
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await new Promise((closed) => server.close(closed));
});

async function listen(): Promise<{ readonly port: number; readonly core: FakeCore }> {
  const core = createFakeCore();
  const app = createApp({ core, adminKeyHash: hashApiKey("operator"), version: "1" }, { json, upload, waits });
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  servers.push(server);
  await once(server, "listening");
  return { core, port: (server.address() as AddressInfo).port };
}

function dial(port: number): { readonly socket: Socket; readonly text: () => string } {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  sockets.push(socket);
  let text = "";
  socket.on("data", (part: Buffer) => {
    text += part.toString("latin1");
  });
  return { socket, text: () => text };
}

const chunk = (bytes: number): string => `${bytes.toString(16)}\r\n${"x".repeat(bytes)}\r\n`;

describe("bodies over a real socket", () => {
  test.each([
    ["POST", "/json", "application/json"],
    ["PUT", "/upload", "application/octet-stream"],
  ])("%s %s that grows past the limit is answered, though its end is never sent", async (method, path, type) => {
    const { port } = await listen();
    const { socket, text } = dial(port);
    socket.write(
      `${method} ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    for (let sent = 0; sent <= limit; sent += 100_000) socket.write(chunk(100_000));
    await expect.poll(text).toContain('"code":"payload_too_large"');
    expect(text()).toMatch(/^HTTP\/1\.1 413 /);
  });

  test("one announced as too large is answered before any of it is sent", async () => {
    const { port } = await listen();
    const { socket, text } = dial(port);
    socket.write(
      `POST /json HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${limit + 1}\r\n\r\n`,
    );
    await expect.poll(text).toMatch(/^HTTP\/1\.1 413 /);
  });

  test("one with an object of too many names is refused before any of them is checked", async () => {
    const { port } = await listen();
    const send = (names: number): Promise<Response> => {
      const members = Object.fromEntries(Array.from({ length: names }, (_, index) => [`n${index}`, 1]));
      return fetch(`http://127.0.0.1:${port}/json`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ list: [members] }),
      });
    };
    expect((await send(20_000)).status).toBe(200);
    const refused = await send(20_001);
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({
      error: { code: "invalid_json", message: "An object of the body has more than 20000 names." },
    });
  });

  test("one that comes byte by byte is whole in the end", async () => {
    const { port } = await listen();
    const { socket, text } = dial(port);
    const body = Buffer.from('{"text":"ä漢"}');
    socket.setNoDelay(true);
    socket.write(
      `POST /json HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`,
    );
    for (const byte of body) {
      socket.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    await expect.poll(text).toContain(`{"size":${body.length}}`);
  });

  test("a long one is let go of while what it asked for is still under way", async () => {
    setFlagsFromString("--expose-gc");
    const collectGarbage = runInNewContext("gc") as () => void;
    const { port } = await listen();
    const { socket, text } = dial(port);
    const long = JSON.stringify({ text: "x".repeat(500_000) });
    collectGarbage();
    const before = process.memoryUsage().arrayBuffers;
    socket.write(
      `POST /waits HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${long.length}\r\n\r\n`,
    );
    socket.write(long);
    await expect.poll(() => body).toBeDefined();
    // Functions that are still on the stack may hold it, and what was found to be free is given back beside.
    const held = (): number => {
      collectGarbage();
      return process.memoryUsage().arrayBuffers - before;
    };
    await expect.poll(held).toBeLessThan(200_000);
    await expect.poll(() => body?.deref()).toBe(undefined);
    expect(text()).toBe("");
    release();
    await expect.poll(text).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("a client that leaves in the middle is noticed, and no error of ours", async () => {
    const { port, core } = await listen();
    for (const head of [
      "POST /json HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
      "PUT /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc",
    ]) {
      const before = core.lines.length;
      const { socket } = dial(port);
      socket.write(head);
      await new Promise((later) => setTimeout(later, 20));
      socket.destroy();
      await expect.poll(() => core.lines.length).toBeGreaterThan(before);
      expect(core.lines.slice(before).map(({ fields }) => fields["status"] ?? fields["code"])).toEqual([499]);
    }
  });
});
