import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { startHttpStub, type HttpStub } from "../../../../test/support/http-stub.ts";
import { testCertificate, testKey } from "../../../../test/support/tls-pair.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress, EgressRequest, EgressResponse } from "../ports/egress.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { createEgress, type EgressOptions } from "./egress.ts";

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

function openEgress(options: Partial<EgressOptions> = {}): Egress {
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"], ...options });
  closers.push(() => egress.close());
  return egress;
}

const get = (url: string, more: Partial<EgressRequest> = {}): EgressRequest => ({
  method: "GET",
  url,
  headers: [],
  timeoutMs: 5_000,
  ...more,
});

async function readAll(response: EgressResponse): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of response.body) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof GatewayError)) throw new Error(`expected a GatewayError, got ${String(error)}`);
  return error;
}

interface RawServer {
  readonly port: number;
  readonly url: string;
  readonly sockets: Socket[];
}

/** A server of raw sockets: the test says what happens on each. */
async function startRaw(onSocket: (socket: Socket, index: number) => void): Promise<RawServer> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.resume();
    onSocket(socket, sockets.push(socket) - 1);
  });
  await listen(server);
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://127.0.0.1:${port}/`, sockets };
}

function firstSocket({ sockets: [socket] }: RawServer): Socket {
  if (socket === undefined) throw new Error("nobody has connected");
  return socket;
}

function listen(server: Server): Promise<void> {
  return new Promise((done) => server.listen(0, "127.0.0.1", done));
}

const head = (extra = ""): string => `HTTP/1.1 200 OK\r\n${extra}\r\n`;
const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

/** Resolves once, when the socket is closed by the other side. */
const closedOf = (socket: Socket): Promise<void> =>
  new Promise((done) => {
    if (socket.destroyed) done();
    else socket.once("close", () => done());
  });

let stub: HttpStub;
beforeAll(async () => {
  stub = await startHttpStub();
});
afterAll(() => stub.close());

describe(`the door sends what it is given ${verifies("BLIND-8")}`, () => {
  test("method, target, headers in their order and the body arrive byte for byte", async () => {
    stub.requests.length = 0;
    stub.answer = () => ({ status: 201, headers: { "x-reply": "yes" }, body: "done" });
    const response = await openEgress().request(
      get(`${stub.url}/a%2Fb?x=1&x=2#fragment`, {
        method: "POST",
        headers: [
          ["X-Second", "2"],
          ["x-first", "1"],
        ],
        body: Buffer.from([0, 1, 255]),
      }),
    );
    expect(response).toMatchObject({ status: 201, url: `${stub.url}/a%2Fb?x=1&x=2#fragment` });
    expect(response.headers["x-reply"]).toBe("yes");
    expect((await readAll(response)).toString()).toBe("done");
    const [request] = stub.requests;
    expect(request).toMatchObject({ method: "POST", target: "/a%2Fb?x=1&x=2" });
    expect([...(request?.body ?? [])]).toEqual([0, 1, 255]);
    const host = new URL(stub.url).host;
    expect(request?.rawHeaders).toEqual([
      "host",
      host,
      "connection",
      "keep-alive",
      "X-Second",
      "2",
      "x-first",
      "1",
      "content-length",
      "3",
    ]);
  });

  test("host and content-length are the door's, whatever a caller sends", async () => {
    stub.requests.length = 0;
    stub.answer = () => ({});
    const headers = [
      ["Host", "metadata.google.internal"],
      ["Content-Length", "1"],
    ] as const;
    await readAll(await openEgress().request(get(stub.url, { method: "POST", headers, body: "hello" })));
    expect(stub.requests[0]?.headers["host"]).toBe(new URL(stub.url).host);
    expect(stub.requests[0]?.body.toString()).toBe("hello");
  });

  test.each([
    ["a line break in a value", ["x-a", "1\r\nx-b: 2"]],
    ["a name that is no token", ["x a", "1"]],
    ["a hop-by-hop header", ["transfer-encoding", "chunked"]],
  ] as const)("%s is refused and nothing is sent", async (_what, header) => {
    stub.requests.length = 0;
    const error = await failureOf(openEgress().request(get(stub.url, { headers: [header] })));
    expect(error.code).toBe("invalid_request");
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toHaveLength(0);
  });

  test("requests to one origin use one connection after another", async () => {
    const raw = await startRaw((socket) => socket.on("data", () => socket.write(head("content-length: 2\r\n") + "ok")));
    const egress = openEgress();
    for (let turn = 0; turn < 5; turn += 1) {
      await readAll(await egress.request(get(raw.url)));
      // A connection is free again one turn of the event loop after its answer.
      await new Promise((done) => setTimeout(done, 5));
    }
    expect(raw.sockets).toHaveLength(1);
  });

  test("tells when the bytes leave, once", async () => {
    stub.answer = () => ({});
    let sent = 0;
    await readAll(await openEgress().request(get(stub.url, { onSent: () => (sent += 1) })));
    expect(sent).toBe(1);
  });

  test("pools of old origins are closed beyond the limit and opened again when needed", async () => {
    const servers = await Promise.all(
      [1, 2, 3].map(() => startRaw((socket) => socket.on("data", () => socket.write(head("content-length: 0\r\n"))))),
    );
    const egress = openEgress({ origins: 2 });
    for (const server of servers) await readAll(await egress.request(get(server.url)));
    const [first] = servers;
    const [oldest] = first?.sockets ?? [];
    if (first === undefined || oldest === undefined) throw new Error("no connection");
    await closedOf(oldest);
    expect((await egress.request(get(first.url))).status).toBe(200);
  });
});

describe(`the body at the reader's pace ${verifies("BLIND-8")}`, () => {
  test("a slow reader holds the back end back instead of filling memory", async () => {
    const total = 64 * 1024 * 1024;
    const piece = Buffer.alloc(64 * 1024, 7);
    let written = 0;
    const raw = await startRaw((socket) => {
      const pump = (): void => {
        while (written < total) {
          written += piece.length;
          if (!socket.write(piece)) {
            socket.once("drain", pump);
            return;
          }
        }
        socket.end();
      };
      socket.once("data", () => {
        socket.write(head(`content-length: ${total}\r\n`));
        pump();
      });
    });
    const response = await openEgress().request(get(raw.url, { timeoutMs: 30_000 }));
    // Long enough for the kernel's buffers to fill if nobody pauses.
    await new Promise((done) => setTimeout(done, 150));
    expect(written).toBeLessThan(total / 2);
    let received = 0;
    for await (const part of response.body) received += part.byteLength;
    expect(received).toBe(total);
  });

  test("leaving the loop early closes the connection", async () => {
    const raw = await startRaw((socket) =>
      socket.once("data", () => socket.write(head("transfer-encoding: chunked\r\n") + chunked("first"))),
    );
    const response = await openEgress().request(get(raw.url));
    for await (const piece of response.body) {
      expect(Buffer.from(piece).toString()).toBe("first");
      break;
    }
    await closedOf(firstSocket(raw));
  });

  test("a reader that leaves while it waits is let go", async () => {
    const raw = await startRaw((socket) =>
      socket.once("data", () => socket.write(head("transfer-encoding: chunked\r\n"))),
    );
    const response = await openEgress().request(get(raw.url));
    const iterator = response.body[Symbol.asyncIterator]();
    const waiting = iterator.next();
    await iterator.return?.();
    expect(await waiting).toEqual({ done: true, value: undefined });
    await closedOf(firstSocket(raw));
  });

  test("a body that breaks off is an error after the pieces that came", async () => {
    const raw = await startRaw((socket) =>
      socket.once("data", () => {
        socket.write(head("content-length: 100\r\n") + "only this");
        setTimeout(() => socket.destroy(), 20);
      }),
    );
    const response = await openEgress().request(get(raw.url));
    const pieces: string[] = [];
    const error = await failureOf(
      (async () => {
        for await (const piece of response.body) pieces.push(Buffer.from(piece).toString());
      })(),
    );
    expect(pieces.join("")).toBe("only this");
    expect(error.code).toBe("tool_unreachable");
    expect(deliveryOf(error)).toBe("uncertain");
  });

  const text = "价格 42 ".repeat(5_000);
  test.each([
    ["gzip", gzipSync(text)],
    ["x-gzip", gzipSync(text)],
    ["deflate", deflateSync(text)],
    ["deflate", deflateRawSync(text)],
    ["br", brotliCompressSync(text)],
    ["gzip, br", brotliCompressSync(gzipSync(text))],
  ])("a reply in %s is read as plain text", async (encoding, body) => {
    stub.answer = () => ({ headers: { "content-encoding": encoding, "content-length": String(body.length) }, body });
    const response = await openEgress().request(get(stub.url));
    expect((await readAll(response)).toString()).toBe(text);
    expect(response.headers["content-encoding"]).toBeUndefined();
    expect(response.headers["content-length"]).toBeUndefined();
  });

  test("an encoding that nobody asked for stays as it is, header included", async () => {
    stub.answer = () => ({ headers: { "content-encoding": "x-other" }, body: "raw" });
    const response = await openEgress().request(get(stub.url));
    expect(response.headers["content-encoding"]).toBe("x-other");
    expect((await readAll(response)).toString()).toBe("raw");
  });

  test("an empty body that claims to be compressed is empty", async () => {
    stub.answer = () => ({ headers: { "content-encoding": "gzip", "content-length": "0" }, body: "" });
    expect(await readAll(await openEgress().request(get(stub.url)))).toHaveLength(0);
  });

  test("a body that does not decode is an error of the tool, its fate open", async () => {
    stub.answer = () => ({ headers: { "content-encoding": "gzip" }, body: "not gzip at all" });
    const error = await failureOf(openEgress().request(get(stub.url)).then(readAll));
    expect(error.code).toBe("tool_failed");
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("a compressed body that is cut off is an error, not a short result", async () => {
    const whole = gzipSync(text);
    stub.answer = () => ({ headers: { "content-encoding": "gzip" }, body: whole.subarray(0, whole.length / 2) });
    await expect(openEgress().request(get(stub.url)).then(readAll)).rejects.toBeInstanceOf(GatewayError);
  });

  test("a bomb comes in small pieces, and leaving it closes the connection", async () => {
    const bomb = gzipSync(Buffer.alloc(40 * 1024 * 1024));
    const raw = await startRaw((socket) =>
      socket.once("data", () => socket.write(Buffer.concat([Buffer.from(head("content-encoding: gzip\r\n")), bomb]))),
    );
    const response = await openEgress().request(get(raw.url));
    let read = 0;
    for await (const piece of response.body) {
      expect(piece.byteLength).toBeLessThanOrEqual(65_536);
      read += piece.byteLength;
      if (read > 1_000_000) break;
    }
    await closedOf(firstSocket(raw));
  });

  test("a compressed body that is left before it is read closes the connection, too", async () => {
    const raw = await startRaw((socket) =>
      socket.once("data", () => socket.write(head("content-encoding: gzip, br\r\n"))),
    );
    const response = await openEgress().request(get(raw.url));
    await response.body[Symbol.asyncIterator]().return?.();
    await expect(closedOf(firstSocket(raw))).resolves.toBeUndefined();
  });

  test("a compressed stream is handed on as its pieces arrive", async () => {
    const { createGzip, constants } = await import("node:zlib");
    const raw = await startRaw((socket) =>
      socket.once("data", () => {
        socket.write(head("content-encoding: gzip\r\n"));
        const gzip = createGzip({ flush: constants.Z_SYNC_FLUSH });
        gzip.on("data", (data: Buffer) => socket.write(data));
        gzip.write("data: first\n\n");
      }),
    );
    const response = await openEgress().request(get(raw.url));
    const first = await response.body[Symbol.asyncIterator]().next();
    expect(Buffer.from(first.value as Uint8Array).toString()).toBe("data: first\n\n");
  });
});

describe(`what is known of a request's fate ${verifies("BLIND-8", "API-5")}`, () => {
  test("a refused connection has sent nothing", async () => {
    const raw = await startRaw(() => undefined);
    const { port } = raw;
    await closers.pop()?.();
    const error = await failureOf(
      openEgress().request(get(`http://127.0.0.1:${port}/`, { method: "POST", body: "x" })),
    );
    expect(error).toMatchObject({ code: "tool_unreachable", message: `'127.0.0.1:${port}' refused the connection.` });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("a name that does not resolve has sent nothing, and neither path nor query is told", async () => {
    const egress = openEgress({
      resolve: (host) => Promise.reject(Object.assign(new Error(`getaddrinfo ${host}`), { code: "ENOTFOUND" })),
    });
    const error = await failureOf(egress.request(get("https://nobody.example/secret?key=sentinel")));
    expect(error.code).toBe("tool_unreachable");
    expect(error.message).toBe("'nobody.example' cannot be resolved (ENOTFOUND).");
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test(`a caller who must not learn the address reads a name instead, at every end ${verifies("BLIND-6")}`, async () => {
    const egress = openEgress();
    const raw = await startRaw((socket) => void socket.end("HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\n\r\n"));
    const messages = await Promise.all(
      [raw.url, "http://10.0.0.1/", "ftp://10.0.0.1/", "http://10.0.0.1:x/", "http://user@10.0.0.1/"].map(
        async (url) => (await failureOf(egress.request(get(url, { peer: "weather", maxRedirects: 1 })))).message,
      ),
    );
    await closers.pop()?.();
    messages.push((await failureOf(egress.request(get(raw.url, { peer: "weather" })))).message);
    expect(messages.toSorted()).toEqual([
      "The URL of 'weather' may not be reached: it is not a valid URL.",
      "The URL of 'weather' may not be reached: only http and https are allowed.",
      "The URL of 'weather' may not be reached: user name and password may not stand in a URL; they belong into a credential.",
      expect.stringMatching(/^The host of 'weather' may not be reached: it is or resolves to a private address;/),
      expect.stringMatching(/^The host of 'weather' may not be reached: it is or resolves to a private address;/),
      "The host of 'weather' refused the connection.",
    ]);
  });

  test.each([
    ["ENOTFOUND", "The host of 'weather' cannot be resolved (ENOTFOUND)."],
    ["EAI_AGAIN", "The host of 'weather' cannot be resolved (EAI_AGAIN)."],
    ["ENETUNREACH", "The host of 'weather' could not be connected to (ENETUNREACH)."],
    ["ETIMEDOUT", "The host of 'weather' could not be connected to in time."],
  ])(`%s on the way to a tool is the host's, whose name is not told ${verifies("BLIND-6")}`, async (code, message) => {
    const egress = openEgress({
      resolve: (host) => Promise.reject(Object.assign(new Error(`getaddrinfo ${host}`), { code })),
    });
    const error = await failureOf(egress.request(get("https://crm.secret.example/x", { peer: "weather" })));
    expect([error.message, deliveryOf(error)]).toEqual([message, "not_sent"]);
  });

  test("a connection that ends before the answer is the host's too; silence and redirects are the tool's", async () => {
    const fail = async (bytes: string, change: Partial<EgressRequest> = {}): Promise<string> => {
      const raw = await startRaw((socket) => void (bytes === "" ? socket.write("") : socket.end(bytes)));
      return (await failureOf(openEgress().request(get(raw.url, { peer: "weather", ...change })))).message;
    };
    expect(await fail("HTTP/1.1 200")).toMatch(/^The host of 'weather' (closed the connection|answered with)/);
    expect(await fail("no HTTP at all\r\n\r\n")).toMatch(/^The host of 'weather' answered with something/);
    expect(await fail("", { timeoutMs: 50 })).toBe("'weather' did not answer within 50 ms.");
    const redirect = "HTTP/1.1 302 Found\r\nlocation: http://[x/\r\ncontent-length: 0\r\n\r\n";
    expect(await fail(redirect, { maxRedirects: 1 })).toBe(
      "The host of 'weather' may not be reached: it redirects to what is not a valid URL.",
    );
  });

  test("the next address of a name is tried where the first cannot be connected to", async () => {
    stub.answer = () => ({});
    const egress = openEgress({
      resolve: () =>
        Promise.resolve([
          { address: "127.0.0.2", family: 4 },
          { address: "127.0.0.1", family: 4 },
        ]),
    });
    const response = await egress.request(get(`http://two.example:${stub.port}/`));
    expect(response.status).toBe(200);
    expect(stub.requests.at(-1)?.headers["host"]).toBe(`two.example:${stub.port}`);
  });

  test("a connection that closes without an answer leaves the fate open", async () => {
    const raw = await startRaw((socket) => socket.once("data", () => socket.destroy()));
    const error = await failureOf(openEgress().request(get(raw.url, { method: "POST", body: "x" })));
    expect(error.code).toBe("tool_unreachable");
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("an answer that is no HTTP leaves the fate open", async () => {
    const raw = await startRaw((socket) => socket.once("data", () => socket.end("SSH-2.0-OpenSSH_9.6\r\n")));
    const error = await failureOf(openEgress().request(get(raw.url)));
    expect(error.message).toMatch(/not HTTP\/1\.1/);
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("a write is never sent twice when a kept connection turns out to be closed", async () => {
    const bodies: string[] = [];
    const raw = await startRaw((socket, index) =>
      socket.on("data", (data) => {
        bodies.push(data.toString());
        // The first connection serves once, then dies at the very moment of the second request.
        if (index === 0 && bodies.length === 2) socket.destroy();
        else socket.write(head("content-length: 2\r\n") + "ok");
      }),
    );
    const egress = openEgress({ connections: 1 });
    await readAll(await egress.request(get(raw.url)));
    const error = await failureOf(egress.request(get(raw.url, { method: "POST", body: "pay 100" })));
    expect(deliveryOf(error)).toBe("uncertain");
    await new Promise((done) => setTimeout(done, 50));
    expect(bodies.filter((text) => text.includes("pay 100"))).toHaveLength(1);
  });

  test("a connection that the back end closed while it was idle is not used for the next request", async () => {
    const raw = await startRaw((socket) =>
      socket.on("data", () => {
        socket.write(head("content-length: 2\r\n") + "ok");
        setTimeout(() => socket.end(), 5);
      }),
    );
    const egress = openEgress({ connections: 1 });
    await readAll(await egress.request(get(raw.url)));
    await closedOf(firstSocket(raw));
    const response = await egress.request(get(raw.url, { method: "POST", body: "x" }));
    expect(response.status).toBe(200);
    expect(raw.sockets).toHaveLength(2);
  });

  test("the time limit ends a request that gets no answer, and closes its connection", async () => {
    const raw = await startRaw(() => undefined);
    const error = await failureOf(openEgress().request(get(raw.url, { timeoutMs: 60 })));
    expect(error.code).toBe("tool_timeout");
    expect(error.message).toContain("within 60 ms");
    expect(deliveryOf(error)).toBe("uncertain");
    await closedOf(firstSocket(raw));
  });

  test("the time limit counts to the end of the body", async () => {
    const raw = await startRaw((socket) => {
      socket.once("data", () => socket.write(head("transfer-encoding: chunked\r\n")));
      const timer = setInterval(() => socket.write(chunked("tick")), 10);
      socket.once("close", () => clearInterval(timer));
    });
    const response = await openEgress().request(get(raw.url, { timeoutMs: 120 }));
    expect((await failureOf(readAll(response))).code).toBe("tool_timeout");
  });

  test("a time limit that is over before a connection stands has sent nothing", async () => {
    const egress = openEgress({ resolve: () => new Promise(() => undefined) });
    const error = await failureOf(egress.request(get("http://slow.example/", { timeoutMs: 30 })));
    expect(error.code).toBe("tool_timeout");
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("a name is looked up once for all who wait for it, and anew for those who come later", async () => {
    stub.answer = () => ({});
    const asked: PromiseWithResolvers<readonly { readonly address: string; readonly family: number }[]>[] = [];
    const egress = openEgress({
      keepAliveMs: 1,
      resolve: () => {
        asked.push(Promise.withResolvers());
        return asked.at(-1)?.promise ?? Promise.reject(new Error("nobody asks"));
      },
    });
    const url = `http://slow.example:${stub.port}/`;
    await Promise.all([1, 2].map(() => failureOf(egress.request(get(url, { timeoutMs: 30 })))));
    const waiting = [1, 2, 3].map(() => egress.request(get(url)));
    expect(asked).toHaveLength(1);
    asked[0]?.resolve([{ address: "127.0.0.1", family: 4 }]);
    for (const response of await Promise.all(waiting)) expect((await readAll(response)).length).toBeGreaterThan(0);
    await new Promise((done) => setTimeout(done, 50));
    const later = egress.request(get(url));
    await expect.poll(() => asked.length).toBe(2);
    asked[1]?.resolve([{ address: "127.0.0.1", family: 4 }]);
    expect((await later).status).toBe(200);
  });

  test("silent names of one site hold two lookups, and no other site's", async () => {
    stub.answer = () => ({});
    const asked: string[] = [];
    const silent = Promise.withResolvers<never>();
    const egress = openEgress({
      resolve: (host) => {
        asked.push(host);
        return host.endsWith("silent.example") || host.endsWith("silent.co.uk")
          ? silent.promise
          : Promise.resolve([{ address: "127.0.0.1", family: 4 }]);
      },
    });
    const ask = (host: string) => egress.request(get(`http://${host}:${stub.port}/`, { timeoutMs: 2_000 }));
    const names = ["a", "b", "c", "d"].map((name) => `${name}.silent.example`);
    const waiting = Promise.all([...names, "a.silent.co.uk", "b.silent.co.uk"].map((name) => failureOf(ask(name))));
    for (const host of ["silence.example", "heard.co.uk"]) expect((await ask(host)).status).toBe(200);
    expect(asked.slice(0, 4)).toEqual([...names.slice(0, 2), "a.silent.co.uk", "b.silent.co.uk"]);
    expect(asked).toHaveLength(6);
    silent.reject(Object.assign(new Error("nobody answers"), { code: "EAI_AGAIN" }));
    expect((await waiting).map(({ code }) => code)).toEqual(Array.from({ length: 6 }, () => "tool_unreachable"));
    expect(asked.slice(6)).toEqual(names.slice(2));
  });

  test("names below a short one are names of one site, and so many wait for their turn at most", async () => {
    const asked: string[] = [];
    const egress = openEgress({
      resolve: (host) => {
        asked.push(host);
        return new Promise(() => undefined);
      },
    });
    const names = Array.from({ length: 510 }, (_, at) => `n${at}.q7z.de`);
    const errors = await Promise.all(
      names.map((host) => failureOf(egress.request(get(`http://${host}/`, { timeoutMs: 300 })))),
    );
    expect(asked).toEqual(names.slice(0, 2));
    const refused = errors.filter(({ message }) => message.endsWith("cannot be resolved (EAI_AGAIN)."));
    expect(refused).toHaveLength(8);
    expect(errors.filter(({ code }) => code === "tool_timeout")).toHaveLength(502);
  });

  test("silence in the middle of a body ends it, a steady trickle does not", async () => {
    let pieces = 0;
    const raw = await startRaw((socket) => {
      socket.once("data", () => socket.write(head("transfer-encoding: chunked\r\n")));
      const timer = setInterval(() => {
        pieces += 1;
        if (pieces <= 8) socket.write(chunked("tick"));
      }, 20);
      socket.once("close", () => clearInterval(timer));
    });
    const response = await openEgress().request(get(raw.url, { timeoutMs: 5_000, idleTimeoutMs: 100 }));
    let received = 0;
    const error = await failureOf(
      (async () => {
        for await (const piece of response.body) received += piece.byteLength;
      })(),
    );
    expect(received).toBe(8 * 4);
    expect(error).toMatchObject({ code: "tool_timeout" });
    expect(error.message).toContain("100 ms");
  });

  test("a slow reader is no silence of the back end", async () => {
    const size = 8 * 1024 * 1024;
    const raw = await startRaw((socket) =>
      socket.once("data", () =>
        socket.write(Buffer.concat([Buffer.from(head(`content-length: ${size}\r\n`)), Buffer.alloc(size)])),
      ),
    );
    const response = await openEgress().request(get(raw.url, { idleTimeoutMs: 300 }));
    await new Promise((done) => setTimeout(done, 700));
    expect(await readAll(response)).toHaveLength(size);
  });

  test("a signal that has fired already sends nothing", async () => {
    stub.requests.length = 0;
    const error = await failureOf(openEgress().request(get(stub.url, { signal: AbortSignal.abort() })));
    expect(error.code).toBe("call_cancelled");
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toHaveLength(0);
  });

  test("a signal ends the wait for an answer and closes the connection", async () => {
    const controller = new AbortController();
    const raw = await startRaw((socket) => socket.once("data", () => controller.abort()));
    const error = await failureOf(openEgress().request(get(raw.url, { signal: controller.signal })));
    expect(error.code).toBe("call_cancelled");
    expect(deliveryOf(error)).toBe("uncertain");
    await closedOf(firstSocket(raw));
  });

  test("a signal ends a body at once, pieces that nobody has read included", async () => {
    const controller = new AbortController();
    const raw = await startRaw((socket) =>
      socket.once("data", () => socket.write(head("transfer-encoding: chunked\r\n") + chunked("a") + chunked("b"))),
    );
    const response = await openEgress().request(get(raw.url, { signal: controller.signal }));
    const iterator = response.body[Symbol.asyncIterator]();
    await iterator.next();
    controller.abort();
    expect((await failureOf(Promise.resolve(iterator.next()))).code).toBe("call_cancelled");
    await closedOf(firstSocket(raw));
  });

  test("each request ended by one signal has a fate of its own", async () => {
    const controller = new AbortController();
    const raw = await startRaw((socket) =>
      socket.once("data", () => controller.abort(new GatewayError("tool_timeout", "over"))),
    );
    const egress = openEgress({ resolve: () => new Promise(() => undefined) });
    const [sent, waiting] = await Promise.all([
      failureOf(egress.request(get(raw.url, { signal: controller.signal }))),
      failureOf(egress.request(get("http://slow.example/", { signal: controller.signal }))),
    ]);
    expect([sent?.code, waiting?.code]).toEqual(["tool_timeout", "tool_timeout"]);
    expect(deliveryOf(sent)).toBe("uncertain");
    expect(deliveryOf(waiting)).toBe("not_sent");
  });

  test("a request given up while it waits for a connection is not sent when there is one", async () => {
    const answers: (() => void)[] = [];
    const raw = await startRaw((socket) =>
      socket.on("data", () => answers.push(() => socket.write(head("content-length: 0\r\n")))),
    );
    const egress = openEgress({ connections: 1 });
    const first = egress.request(get(raw.url));
    const controller = new AbortController();
    const second = failureOf(
      egress.request(get(`${raw.url}second`, { method: "POST", body: "x", signal: controller.signal })),
    );
    controller.abort();
    expect(deliveryOf(await second)).toBe("not_sent");
    while (answers.length === 0) await new Promise((done) => setTimeout(done, 5));
    answers[0]?.();
    await readAll(await first);
    const third = egress.request(get(`${raw.url}third`));
    while (answers.length === 1) await new Promise((done) => setTimeout(done, 5));
    answers[1]?.();
    expect((await third).status).toBe(200);
    // The connection that the first request stood on was still good.
    expect(raw.sockets).toHaveLength(1);
    expect(answers).toHaveLength(2);
  });

  test("after closing, running requests end and new ones are refused", async () => {
    const raw = await startRaw(() => undefined);
    const egress = openEgress();
    const running = failureOf(egress.request(get(raw.url)));
    while (raw.sockets.length === 0) await new Promise((done) => setTimeout(done, 5));
    await egress.close();
    expect((await running).code).toBe("tool_unreachable");
    const error = await failureOf(egress.request(get(raw.url)));
    expect(error.code).toBe("shutting_down");
    expect(deliveryOf(error)).toBe("not_sent");
  });
});

describe(`redirects ${verifies("BLIND-8")}`, () => {
  const redirect = (status: number, location: string) => ({ status, headers: { location } });

  test("are given back as they are where the caller did not ask to follow", async () => {
    stub.answer = () => redirect(302, "/next");
    const response = await openEgress().request(get(stub.url));
    expect(response.status).toBe(302);
    expect(response.headers["location"]).toBe("/next");
  });

  test.each([
    [301, "POST", "GET", ""],
    [302, "POST", "GET", ""],
    [303, "POST", "GET", ""],
    [303, "PUT", "GET", ""],
    [302, "PUT", "PUT", "body"],
    [307, "POST", "POST", "body"],
    [308, "POST", "POST", "body"],
    [301, "GET", "GET", ""],
  ])("%i after %s becomes %s", async (status, method, expected, body) => {
    stub.requests.length = 0;
    stub.answer = ({ target }) => (target === "/first" ? redirect(status, "second?x=1") : { body: "there" });
    const response = await openEgress().request(
      get(`${stub.url}/first`, {
        method,
        headers: [["content-type", "text/plain"]],
        ...(method === "GET" ? {} : { body: "body" }),
        maxRedirects: 3,
      }),
    );
    expect((await readAll(response)).toString()).toBe("there");
    expect(response.url).toBe(`${stub.url}/second?x=1`);
    expect(stub.requests[1]).toMatchObject({ method: expected, target: "/second?x=1" });
    expect(stub.requests[1]?.body.toString()).toBe(body);
    expect(stub.requests[1]?.headers["content-type"]).toBe(body === "" && method !== "GET" ? undefined : "text/plain");
  });

  test("to the same origin keep credentials, to another they lose them for good", async () => {
    const other = await startHttpStub(({ target }) =>
      target === "/b" ? redirect(302, `${stub.url}/home`) : { body: "{}" },
    );
    closers.push(() => other.close());
    stub.requests.length = 0;
    stub.answer = ({ target }) => {
      if (target === "/start") return redirect(302, "/same");
      if (target === "/same") return redirect(302, `${other.url}/b`);
      return {};
    };
    await openEgress().request(
      get(`${stub.url}/start`, {
        headers: [
          ["Authorization", "Bearer sentinel"],
          ["Cookie", "session=sentinel"],
          ["X-Api-Key", "sentinel"],
          ["x-plain", "kept"],
        ],
        maxRedirects: 3,
        sensitiveHeaders: ["x-api-key"],
      }),
    );
    const [, same, home] = stub.requests;
    expect(same?.headers).toMatchObject({ authorization: "Bearer sentinel", "x-api-key": "sentinel" });
    const [foreign] = other.requests;
    expect(foreign?.rawHeaders.join("\n")).not.toContain("sentinel");
    expect(foreign?.headers["x-plain"]).toBe("kept");
    expect(home?.rawHeaders.join("\n")).not.toContain("sentinel");
  });

  test("with a short body keep the connection for what follows, with an endless one they close it", async () => {
    const answers = [
      `HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 5\r\n\r\nmoved`,
      head("content-length: 0\r\n"),
      `HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 999999\r\n\r\n${"x".repeat(100_000)}`,
      head("content-length: 0\r\n"),
    ];
    const raw = await startRaw((socket) => socket.on("data", () => socket.write(answers.shift() ?? "")));
    const egress = openEgress({ connections: 1 });
    await readAll(await egress.request(get(raw.url, { maxRedirects: 1 })));
    expect(raw.sockets).toHaveLength(1);
    await readAll(await egress.request(get(raw.url, { maxRedirects: 1 })));
    await closedOf(firstSocket(raw));
    expect(raw.sockets).toHaveLength(2);
  });

  test("end after three, whatever the caller asks for", async () => {
    stub.requests.length = 0;
    let turn = 0;
    stub.answer = () => redirect(302, `/${(turn += 1)}`);
    const error = await failureOf(openEgress().request(get(stub.url, { maxRedirects: 50 })));
    expect(error.code).toBe("tool_failed");
    expect(stub.requests).toHaveLength(4);
  });

  test.each([
    ["a metadata address", "http://169.254.169.254/latest/meta-data/"],
    ["another scheme", "ftp://127.0.0.1/"],
    ["user and password", "http://u:p@127.0.0.1/"],
    ["nonsense", "http://["],
  ])("to %s are refused", async (_what, location) => {
    stub.answer = () => redirect(307, location);
    const error = await failureOf(openEgress().request(get(stub.url, { maxRedirects: 3 })));
    expect(error.code).toBe("egress_denied");
    // 307 comes instead of what was asked for, so nothing has happened.
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("that fail after a write may have happened leave its fate open", async () => {
    const raw = await startRaw(() => undefined);
    const { port } = raw;
    await closers.pop()?.();
    stub.answer = () => redirect(303, `http://127.0.0.1:${port}/done`);
    const error = await failureOf(openEgress().request(get(stub.url, { method: "POST", body: "x", maxRedirects: 3 })));
    expect(error.code).toBe("tool_unreachable");
    expect(deliveryOf(error)).toBe("uncertain");
    stub.answer = () => redirect(302, "http://169.254.169.254/");
    const denied = await failureOf(openEgress().request(get(stub.url, { method: "POST", body: "x", maxRedirects: 3 })));
    expect(denied.code).toBe("egress_denied");
    expect(deliveryOf(denied)).toBe("uncertain");
  });

  test("share the time limit of the first request", async () => {
    stub.answer = ({ target }) => (target === "/slow" ? { delayMs: 400 } : { ...redirect(302, "/slow"), delayMs: 50 });
    const error = await failureOf(openEgress().request(get(stub.url, { maxRedirects: 3, timeoutMs: 150 })));
    expect(error.code).toBe("tool_timeout");
  });
});

describe("TLS", () => {
  async function startTls(): Promise<{ readonly port: number; readonly names: (string | boolean | null)[] }> {
    const names: (string | boolean | null)[] = [];
    const server = createTlsServer({ cert: testCertificate, key: testKey }, (socket: TLSSocket) => {
      socket.on("error", () => undefined);
      names.push(socket.servername);
      socket.once("data", () => socket.end(head("content-length: 2\r\n") + "ok"));
    });
    await listen(server);
    closers.push(() => server.close());
    return { port: (server.address() as AddressInfo).port, names };
  }
  const resolve = (): Promise<{ address: string; family: number }[]> =>
    Promise.resolve([{ address: "127.0.0.1", family: 4 }]);

  test("the connection goes to the checked address and the certificate is asked for the name", async () => {
    const { port, names } = await startTls();
    const egress = openEgress({ resolve, trustedCa: [testCertificate] });
    const response = await egress.request(get(`https://api.example.com.:${port}/`));
    expect((await readAll(response)).toString()).toBe("ok");
    expect(names).toEqual(["api.example.com"]);
  });

  test("a certificate for another name, or one that nobody vouches for, sends nothing", async () => {
    const { port } = await startTls();
    const otherName = await failureOf(
      openEgress({ resolve, trustedCa: [testCertificate] }).request(get(`https://other.example.com:${port}/`)),
    );
    const untrusted = await failureOf(openEgress({ resolve }).request(get(`https://api.example.com:${port}/`)));
    for (const error of [otherName, untrusted]) {
      expect(error.code).toBe("tool_unreachable");
      expect(deliveryOf(error)).toBe("not_sent");
    }
    expect(otherName.message).toMatch(/certificate for other names than this one \(ERR_TLS_CERT_ALTNAME_INVALID\)/);
    expect(untrusted.message).toMatch(
      /authority that is not trusted \(DEPTH_ZERO_SELF_SIGNED_CERT\);.*'tls', its 'ca'/,
    );
  });

  test("who speaks no TLS, or none that we do, is not said to have a bad certificate", async () => {
    const strange = createTlsServer({
      cert: testCertificate,
      key: testKey,
      maxVersion: "TLSv1.2",
      ciphers: "PSK-AES128-GCM-SHA256",
    });
    await listen(strange);
    closers.push(() => strange.close());
    const said = async (port: number): Promise<string> =>
      (await failureOf(openEgress({ resolve }).request(get(`https://api.example.com:${port}/`)))).message;
    expect(await said(Number(new URL(stub.url).port))).toMatch(/does not speak TLS there/);
    expect(await said((strange.address() as AddressInfo).port)).toMatch(/refused the TLS that was offered/);
  });

  test("a redirect from https to http is refused", async () => {
    const server = createTlsServer({ cert: testCertificate, key: testKey }, (socket: TLSSocket) =>
      socket.once("data", () =>
        socket.end(`HTTP/1.1 302 Found\r\nlocation: ${stub.url}/\r\ncontent-length: 0\r\n\r\n`),
      ),
    );
    await listen(server);
    closers.push(() => server.close());
    const { port } = server.address() as AddressInfo;
    const egress = openEgress({ resolve, trustedCa: [testCertificate] });
    const error = await failureOf(egress.request(get(`https://api.example.com:${port}/`, { maxRedirects: 3 })));
    expect(error).toMatchObject({ code: "egress_denied", details: { extra: { reason: "downgrade" } } });
  });
});

describe(`a body that holds a credential ${verifies("BLIND-3", "BLIND-8")}`, () => {
  const post = (status: number, to: () => string): Promise<unknown> => {
    stub.requests.length = 0;
    stub.answer = ({ target }) => (target === "/first" ? { status, headers: { location: to() } } : {});
    return openEgress()
      .request({ ...get(`${stub.url}/first`, { maxRedirects: 3 }), method: "POST", body: "k=1", hasSecretBody: true })
      .catch((error: unknown) => error);
  };
  const elsewhere = (): string => `http://localhost:${stub.port}/second`;

  test.each([307, 308])("is not taken to another origin by %i", async (status) => {
    const error = await post(status, elsewhere);
    expect(error).toMatchObject({ code: "egress_denied", details: { extra: { reason: "secret_redirected" } } });
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests.map(({ target }) => target)).toEqual(["/first"]);
  });

  test("is sent again to its own, and left behind where the redirect asks for a page", async () => {
    expect(await post(307, () => "/second")).toMatchObject({ status: 200 });
    expect(stub.requests.map(({ body }) => String(body))).toEqual(["k=1", "k=1"]);
    expect(await post(303, elsewhere)).toMatchObject({ status: 200 });
    expect(stub.requests.map(({ body }) => String(body))).toEqual(["k=1", ""]);
  });
});

test("loopback is reached only where the operator lists it", async () => {
  stub.requests.length = 0;
  stub.answer = () => ({});
  const closed = openEgress({ allowCidrs: [] });
  const url = `http://localhost:${stub.port}/`;
  expect((await failureOf(closed.request(get(url)))).code).toBe("egress_denied");
  expect(() => closed.checkUrl(url)).toThrow(/may not be reached/);
  expect(stub.requests).toHaveLength(0);
  const open = openEgress({ resolve: () => Promise.resolve([{ address: "127.0.0.1", family: 4 }]) });
  open.checkUrl(url);
  expect((await open.request(get(url))).status).toBe(200);
});
