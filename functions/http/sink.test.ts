import { connect, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { serve, type ServerType } from "@hono/node-server";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { afterEach, describe, expect, test } from "vitest";
import { verifies } from "../../test/support/verifies.ts";
import { createFakeCore, type FakeCore } from "../../test/support/fake-core.ts";
import { createApp } from "./app.ts";
import { defineRoute } from "./define-route.ts";
import { answerThroughSink, eventStreamHeaders, type ResponseSink, type SinkTiming } from "./sink.ts";

interface Running {
  readonly port: number;
  readonly core: FakeCore;
  readonly request: (init?: RequestInit) => Promise<Response>;
  /** Resolves once the route's own code has come to its end. */
  readonly done: Promise<void>;
}

const servers: ServerType[] = [];
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await new Promise((closed) => server.close(closed));
});

function build(
  write: (sink: ResponseSink) => Promise<void>,
  timing?: SinkTiming,
): Running & { readonly app: ReturnType<typeof createApp> } {
  const core = createFakeCore();
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const route = defineRoute({
    method: "get",
    path: "/stream",
    summary: "",
    tags: ["test"],
    scope: null,
    admission: "none",
    responses: { 200: { description: "" } },
    handler: (c) => answerThroughSink(c, (sink) => write(sink).finally(resolve), timing),
  });
  const app = createApp({ core, adminKeyHash: hashApiKey("operator"), version: "1" }, { route });
  return { app, core, done, port: 0, request: async (init) => app.request("/stream", init) };
}

/** The app behind a real socket. */
async function listen(write: (sink: ResponseSink) => Promise<void>, timing?: SinkTiming): Promise<Running> {
  const built = build(write, timing);
  const server = serve({ fetch: built.app.fetch, port: 0, hostname: "127.0.0.1" });
  servers.push(server);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { ...built, port, request: (init) => fetchFrom(port, init) };
}

// Tests are clients; only the product's own requests have to pass its guarded door.
const { fetch: fetchFromNode } = globalThis;
const fetchFrom = (port: number, init?: RequestInit): Promise<Response> =>
  fetchFromNode(`http://127.0.0.1:${port}/stream`, init);

function open(port: number): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  sockets.push(socket);
  socket.write("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n");
  return socket;
}

/** Everything that comes until the server closes. */
async function wire(port: number, version: "1.0" | "1.1"): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  let text = "";
  socket.on("data", (part: Buffer) => (text += part.toString("utf8")));
  socket.write(`GET /stream HTTP/${version}\r\nhost: localhost\r\nconnection: close\r\n\r\n`);
  await once(socket, "close");
  return text;
}

const homes = [
  ["a Node server", listen],
  [
    "a web response",
    async (write: (sink: ResponseSink) => Promise<void>, timing?: SinkTiming) => Promise.resolve(build(write, timing)),
  ],
] as const;

describe("the bytes of an answer without a length", () => {
  const write = async (sink: ResponseSink): Promise<void> => {
    sink.head(200, { "content-type": "text/plain" });
    await sink.write("ä".repeat(10));
    await sink.write("");
    sink.end(Buffer.from("x"));
  };

  test(`are chunks with their sizes in bytes, and a last one without content ${verifies("CHAT-17")}`, async () => {
    const { port } = await listen(write);
    const [head = "", body] = (await wire(port, "1.1")).split(/\r\n\r\n(.*)/s);
    expect(head.toLowerCase()).toContain("transfer-encoding: chunked");
    expect(body).toBe(`14\r\n${"ä".repeat(10)}\r\n1\r\nx\r\n0\r\n\r\n`);
  });

  test("are as they are for a client that knows no chunks", async () => {
    const { port } = await listen(write);
    const [head = "", body] = (await wire(port, "1.0")).split(/\r\n\r\n(.*)/s);
    expect(head.toLowerCase()).not.toContain("transfer-encoding");
    expect(body).toBe(`${"ä".repeat(10)}x`);
  });
});

test("what was written before an error still arrives, without the end", async () => {
  const { port } = await listen((sink) => {
    sink.head(200, { "content-type": "text/plain" });
    void sink.write("1");
    void sink.write("2");
    return Promise.reject(new Error("secret detail"));
  });
  expect(await wire(port, "1.1")).toMatch(/\r\n\r\n1\r\n1\r\n1\r\n2\r\n$/);
});

describe("the head of a stream", () => {
  test("leaves with the first event where that is there", async () => {
    const { port } = await listen(async (sink) => {
      sink.head(200, eventStreamHeaders);
      await sink.write("data: 1\n\n");
      await sleep(50);
      sink.end();
    });
    const [first] = (await once(open(port), "data")) as [Buffer];
    expect(first.toString()).toMatch(/^HTTP\/1\.1 200 .*\r\n\r\n9\r\ndata: 1\n\n\r\n$/s);
  });

  test("leaves by itself where nothing is there yet", async () => {
    let goOn: () => void = () => undefined;
    const { port } = await listen(async (sink) => {
      sink.head(200, eventStreamHeaders);
      await new Promise<void>((resolve) => {
        goOn = resolve;
      });
      sink.end("data: 1\n\n");
    });
    const socket = open(port);
    const [head] = (await once(socket, "data")) as [Buffer];
    expect(head.toString()).toMatch(/^HTTP\/1\.1 200 .*\r\n\r\n$/s);
    goOn();
    const [rest] = (await once(socket, "data")) as [Buffer];
    expect(rest.toString()).toContain("data: 1");
  });
});

describe.each(homes)("an answer written through a sink to %s", (_home, start) => {
  test(`arrives in order with its own headers and those of every answer ${verifies("CHAT-17")}`, async () => {
    const { request } = await start(async (sink) => {
      sink.head(200, eventStreamHeaders);
      await sink.write("data: ä\n\n");
      await sink.write(Buffer.from("data: 2\n\n"));
      sink.end("data: [DONE]\n\n");
    });
    const answer = await request({ headers: { "x-request-id": "r-1" } });
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "text/event-stream",
      "x-accel-buffering": "no",
      "x-request-id": "r-1",
      "cache-control": "private, no-store",
    });
    expect(answer.headers.has("x-hono-already-sent")).toBe(false);
    expect(await answer.text()).toBe("data: ä\n\ndata: 2\n\ndata: [DONE]\n\n");
  });

  test("an error before the head is answered like any other", async () => {
    const { request } = await start(() => Promise.reject(new GatewayError("model_not_found", "no such model")));
    const answer = await request();
    expect(answer.status).toBe(404);
    expect(await answer.json()).toMatchObject({ error: { code: "model_not_found" } });
  });

  test.each([
    ["without a length", {}],
    ["with one", { "content-length": "100" }],
    ["that is a stream of events", eventStreamHeaders],
  ])("an error after the head cuts an answer %s off, and is logged", async (_which, headers) => {
    const { request, core } = await start((sink) => {
      sink.head(200, headers);
      void sink.write("data: 1\n\n");
      return Promise.reject(new Error("secret detail"));
    });
    await expect((await request()).text()).rejects.toThrow(/terminated|the answer was cut off/);
    const line = core.lines.find(({ message }) => message === "an answer ended early");
    expect(line).toMatchObject({ level: "error", fields: { route: "/stream", code: "internal_error" } });
    expect(JSON.stringify(core.lines)).not.toContain("secret detail");
  });

  test("an error after the end takes nothing away", async () => {
    const { request, core } = await start((sink) => {
      sink.head(200, { "content-type": "text/plain" });
      sink.end("all");
      return Promise.reject(new Error("secret detail"));
    });
    expect(await (await request()).text()).toBe("all");
    expect(core.lines.map(({ message }) => message)).toContain("an answer ended early");
  });

  test("a route that forgets to answer is an internal error, not a hanging client", async () => {
    const { request } = await start(() => Promise.resolve());
    expect((await request()).status).toBe(500);
  });

  test("nothing is written after the end, and ending twice is once", async () => {
    const { request } = await start((sink) => {
      sink.head(200, { "content-type": "text/plain" });
      sink.end("all");
      void sink.write("more");
      sink.end("again");
      expect(sink.closed).toBe(true);
      return Promise.resolve();
    });
    expect(await (await request()).text()).toBe("all");
  });

  test("comments keep a silent stream alive, and stand only between events", async () => {
    const { request } = await start(
      async (sink) => {
        sink.head(200, eventStreamHeaders);
        await sleep(30);
        await sink.write("data: half an ev");
        await sleep(30);
        await sink.write("ent\n\n");
        await sleep(30);
      },
      { keepAliveMs: 10, quietMs: 1_000, stallMs: 1_000 },
    );
    const text = await (await request()).text();
    expect(text).toMatch(/^(: keep-alive\n\n)+data: half an event\n\n(: keep-alive\n\n)+$/);
  });

  test("comments wait for the end of an event in any line ending", async () => {
    const { request } = await start(
      async (sink) => {
        sink.head(200, eventStreamHeaders);
        for (const part of ["data: 1\r", "\n\r", "\n", "data: 2\r\r", "data: 3\n", "data: 3\r\n\r\n"]) {
          await sink.write(part);
          await sleep(12);
        }
      },
      { keepAliveMs: 5, quietMs: 1_000, stallMs: 1_000 },
    );
    const text = await (await request()).text();
    const comment = "(?:: keep-alive\n\n)+";
    expect(text).toMatch(
      new RegExp(
        `^(?:: keep-alive\n\n)*data: 1\r\n\r\n${comment}data: 2\r\r${comment}data: 3\ndata: 3\r\n\r\n${comment}$`,
      ),
    );
  });

  test("a stream that says nothing at first is begun without it", async () => {
    const said = Promise.withResolvers<void>();
    const { request } = await start(
      async (sink) => {
        sink.beginWhenQuiet();
        await said.promise;
        sink.head(503, {});
        await sink.write("data: 1\n\n");
      },
      { keepAliveMs: 1_000, quietMs: 5, stallMs: 1_000 },
    );
    const answer = await request();
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/event-stream"]);
    said.resolve();
    expect(await answer.text()).toBe(": keep-alive\n\ndata: 1\n\n");
  });

  test("what goes wrong before that has a status of its own", async () => {
    const { request } = await start(
      async (sink) => {
        sink.beginWhenQuiet();
        throw new GatewayError("provider_unavailable", "It is away.");
      },
      { keepAliveMs: 1_000, quietMs: 5, stallMs: 1_000 },
    );
    const answer = await request();
    await sleep(15);
    expect([answer.status, (await answer.text()).includes("keep-alive")]).toEqual([503, false]);
  });

  test("only event streams get comments", async () => {
    const { request } = await start(
      async (sink) => {
        sink.head(200, { "content-type": "application/json" });
        await sleep(20);
        sink.end("{}");
      },
      { keepAliveMs: 5, quietMs: 1_000, stallMs: 1_000 },
    );
    expect(await (await request()).text()).toBe("{}");
  });
});

describe(`a client that leaves or stalls ${verifies("CHAT-6")}`, () => {
  test("closing the connection mid-stream tells the route, and writing goes nowhere", async () => {
    const closed = Promise.withResolvers<void>();
    const { port, done, core } = await listen(async (sink) => {
      sink.onClose(() => closed.resolve());
      sink.head(200, eventStreamHeaders);
      await sink.write("data: 1\n\n");
      await closed.promise;
      expect(sink.closed).toBe(true);
      await sink.write("data: 2\n\n");
      // Too late to be called by an event, so it is called at once.
      await new Promise<void>((called) => {
        sink.onClose(() => called());
      });
    });
    const socket = open(port);
    await once(socket, "data");
    socket.destroy();
    await done;
    await expect.poll(() => core.lines.length).toBe(1);
    expect(core.lines[0]?.fields).toMatchObject({ route: "/stream", status: 200 });
  });

  test("closing before the head tells the route too", async () => {
    const arrived = Promise.withResolvers<void>();
    const { port, done, core } = await listen(async (sink) => {
      arrived.resolve();
      await new Promise<void>((gone) => {
        sink.onClose(() => gone());
      });
      sink.head(200, {});
      expect(sink.headSent).toBe(false);
    });
    const socket = open(port);
    await arrived.promise;
    socket.destroy();
    await done;
    await expect.poll(() => core.lines.length).toBe(1);
    expect(core.lines[0]?.fields).toMatchObject({ status: 499 });
  });

  test("the connection serves the next request", async () => {
    const { port } = await listen((sink) => {
      sink.head(200, { "content-type": "text/plain", "content-length": "2" });
      sink.end("ok");
      return Promise.resolve();
    });
    const socket = open(port);
    let text = "";
    socket.on("data", (part: Buffer) => {
      text += part.toString();
    });
    await expect.poll(() => text).toMatch(/\r\n\r\nok$/);
    text = "";
    socket.write("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n");
    await expect.poll(() => text).toMatch(/\r\n\r\nok$/);
  });

  test("leaving after a complete answer is no disconnect", async () => {
    let gone = false;
    const { request, done } = await listen((sink) => {
      sink.onClose(() => {
        gone = true;
      });
      sink.head(200, { "content-type": "text/plain" });
      sink.end("ok");
      return Promise.resolve();
    });
    await (await request({ headers: { connection: "close" } })).text();
    await done;
    await sleep(20);
    expect(gone).toBe(false);
  });

  test("a slow reader holds the writer back instead of filling memory", async () => {
    const chunk = Buffer.alloc(65_536, 97);
    const total = 200;
    let written = 0;
    const { port, done } = await listen(async (sink) => {
      sink.head(200, { "content-type": "application/octet-stream", "content-length": String(chunk.length * total) });
      for (; written < total; written += 1) await sink.write(chunk);
    });
    const socket = open(port);
    socket.pause();
    let before = -1;
    while (written !== before) {
      before = written;
      await sleep(30);
    }
    // What kernel buffers on both sides hold, far from everything.
    expect(written).toBeLessThan(total / 2);
    let received = 0;
    socket.on("data", (part: Buffer) => {
      received += part.length;
    });
    socket.resume();
    await done;
    await expect.poll(() => received).toBeGreaterThan(chunk.length * total);
  });

  test("a reader that takes nothing for too long is cut off", async () => {
    const closed = Promise.withResolvers<void>();
    const { port, done } = await listen(
      async (sink) => {
        sink.onClose(() => closed.resolve());
        sink.head(200, { "content-type": "application/octet-stream" });
        while (!sink.closed) await sink.write(Buffer.alloc(1_048_576));
      },
      { keepAliveMs: 1_000, quietMs: 1_000, stallMs: 50 },
    );
    const socket = open(port);
    socket.pause();
    await Promise.all([closed.promise, done]);
    socket.resume();
    await once(socket, "close");
    expect(socket.bytesRead).toBeGreaterThan(0);
  });

  test("a web reader that cancels, or whose request is aborted, counts as gone", async () => {
    for (const leave of ["cancel", "abort"] as const) {
      const closed = Promise.withResolvers<void>();
      const { request, done } = build(async (sink) => {
        sink.onClose(() => closed.resolve());
        sink.head(200, eventStreamHeaders);
        await sink.write("data: 1\n\n");
        await closed.promise;
      });
      const controller = new AbortController();
      const answer = await request({ signal: controller.signal });
      const reader = answer.body?.getReader();
      await reader?.read();
      if (leave === "cancel") await reader?.cancel();
      else controller.abort();
      await done;
      expect(answer.status).toBe(200);
    }
  });

  test("a web reader is waited for", async () => {
    let written = 0;
    const { request, done } = build(async (sink) => {
      sink.head(200, { "content-type": "application/octet-stream" });
      for (; written < 10; written += 1) await sink.write(new Uint8Array(65_536));
    });
    const answer = await request();
    await sleep(10);
    expect(written).toBeLessThan(3);
    expect((await answer.arrayBuffer()).byteLength).toBe(655_360);
    await done;
  });

  test("the answer to HEAD has no body", async () => {
    const { request } = build((sink) => {
      sink.head(200, { "content-type": "text/plain" });
      sink.end("body");
      return Promise.resolve();
    });
    const answer = await request({ method: "HEAD" });
    expect([answer.status, await answer.text()]).toEqual([200, ""]);
  });
});
