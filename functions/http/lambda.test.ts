import { setTimeout as sleep } from "node:timers/promises";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { serve, type ServerType } from "@hono/node-server";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { createFakeCore, type FakeCore } from "../../test/support/fake-core.ts";
import { FakeResponseStream, installRuntime } from "../../test/support/response-stream.ts";
import { createApp } from "./app.ts";
import { defineRoute, type RouteModule } from "./define-route.ts";
import { answerPage, toPage } from "./entity-tag.ts";
import { createStreamingHandler } from "./lambda.ts";
import { answerThroughSink, eventStreamHeaders } from "./sink.ts";

const open = {
  tags: ["test"],
  summary: "",
  scope: null,
  admission: "none",
  responses: { 200: { description: "" } },
} as const;

const routes: Record<string, RouteModule> = {
  health: defineRoute({ ...open, method: "get", path: "/health", handler: (c) => c.json({ status: "ok" }) }),
  page: defineRoute({
    ...open,
    method: "get",
    path: "/page",
    handler: (c) => answerPage(c, toPage("text"), { "content-type": "text/plain" }),
  }),
  move: defineRoute({ ...open, method: "get", path: "/move", handler: (c) => c.redirect("/page", 302) }),
  remove: defineRoute({ ...open, method: "delete", path: "/things/{id}", handler: (c) => c.body(null, 204) }),
  bytes: defineRoute({
    ...open,
    method: "get",
    path: "/bytes",
    handler: (c) => c.body(new Uint8Array([0, 255, 254]), 200, { "content-type": "application/octet-stream" }),
  }),
  echo: defineRoute({
    ...open,
    method: "post",
    path: "/echo/{id}",
    request: { params: z.object({ id: z.string() }), query: z.looseObject({}), body: z.unknown() },
    handler: (c, input) =>
      c.json({
        ...input.params,
        query: input.query,
        body: input.body,
        url: c.req.url,
        many: c.req.header("x-many") ?? null,
      }),
  }),
  chat: defineRoute({
    ...open,
    method: "post",
    path: "/api/chat/completions",
    request: { body: z.looseObject({}) },
    handler: (c) =>
      answerThroughSink(c, async (sink) => {
        sink.head(200, eventStreamHeaders);
        await sink.write("data: 1\n\n");
        await sleep(5);
        await sink.write("data: 2\n\n");
      }),
  }),
  bodiless: defineRoute({
    ...open,
    method: "get",
    path: "/bodiless",
    handler: (c) => answerThroughSink(c, (sink) => Promise.resolve(sink.head(204, {}))),
  }),
  early: defineRoute({
    ...open,
    method: "get",
    path: "/early",
    handler: () => {
      throw new Error("before the first byte");
    },
  }),
  late: defineRoute({
    ...open,
    method: "get",
    path: "/late",
    handler: (c) =>
      answerThroughSink(c, async (sink) => {
        sink.head(200, eventStreamHeaders);
        await sink.write("data: 1\n\n");
        throw new Error("after the first byte");
      }),
  }),
  broken: defineRoute({
    ...open,
    method: "get",
    path: "/broken",
    handler: () => {
      const body = new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode("half"));
        },
        pull(controller) {
          controller.error(new Error("after the first byte"));
        },
      });
      return new Response(body);
    },
  }),
};

const servers: ServerType[] = [];

beforeEach(() => {
  installRuntime();
});

afterEach(async () => {
  Reflect.deleteProperty(globalThis, "awslambda");
  for (const server of servers.splice(0)) await new Promise((closed) => server.close(closed));
});

function build(): { readonly app: ReturnType<typeof createApp>; readonly core: FakeCore } {
  const core = createFakeCore();
  return { core, app: createApp({ core, adminKeyHash: hashApiKey("operator"), version: "1" }, routes) };
}

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

function toEvent({ method, path, headers = {}, body }: Asked): object {
  const [pathname, search = ""] = path.split("?");
  const query = new URLSearchParams(search);
  return {
    resource: "/{proxy+}",
    httpMethod: method,
    path: pathname,
    headers: { Host: "api.example.com", "X-Forwarded-Proto": "https", ...headers },
    multiValueHeaders: Object.fromEntries(
      Object.entries({ Host: "api.example.com", "X-Forwarded-Proto": "https", ...headers }).map(([name, value]) => [
        name,
        [value],
      ]),
    ),
    queryStringParameters: search === "" ? null : Object.fromEntries(query),
    multiValueQueryStringParameters:
      search === "" ? null : Object.fromEntries([...query.keys()].map((name) => [name, query.getAll(name)])),
    requestContext: {
      stage: "prod",
      path: `/prod${pathname}`,
      domainName: "api.example.com",
      identity: { sourceIp: "192.0.2.1" },
    },
    body: body ?? null,
    isBase64Encoded: false,
  };
}

const context = { getRemainingTimeInMillis: () => 10_000 };

async function stream(asked: Asked): Promise<FakeResponseStream> {
  const { app, core } = build();
  const answer = new FakeResponseStream();
  await createStreamingHandler(app, core.log)(toEvent(asked), answer, context);
  await expect.poll(() => answer.writableFinished).toBe(true);
  return answer;
}

async function listen(): Promise<string> {
  const server = serve({ fetch: build().app.fetch, port: 0, hostname: "127.0.0.1" });
  servers.push(server);
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Differ from request to request, or belong to one connection. */
const volatile = [
  "x-request-id",
  "traceparent",
  "date",
  "connection",
  "keep-alive",
  "transfer-encoding",
  "content-length",
];
const stable = (headers: Iterable<[string, string]>): Record<string, string> =>
  Object.fromEntries([...headers].filter(([name]) => !volatile.includes(name)));

const etag = toPage("text").tag;
const jsonHeaders = { "content-type": "application/json" };
const asked: readonly (readonly [string, number, Asked])[] = [
  ["a preflight", 204, { method: "OPTIONS", path: "/api/chat/completions", headers: { origin: "https://a.example" } }],
  ["HEAD", 200, { method: "HEAD", path: "/health" }],
  ["a page the client has", 304, { method: "GET", path: "/page", headers: { "if-none-match": `"other", W/${etag}` } }],
  ["a removal", 204, { method: "DELETE", path: "/things/1" }],
  ["a redirect", 302, { method: "GET", path: "/move" }],
  ["bad JSON", 400, { method: "POST", path: "/api/chat/completions", headers: jsonHeaders, body: "{" }],
  ["a handler that throws before the first byte", 500, { method: "GET", path: "/early" }],
  ["a route that is not there", 404, { method: "GET", path: "/nowhere" }],
  ["a method that is not there", 405, { method: "PUT", path: "/health" }],
  ["a whole answer", 200, { method: "GET", path: "/page" }],
  ["an event stream", 200, { method: "POST", path: "/api/chat/completions", headers: jsonHeaders, body: "{}" }],
  ["a sink without a body", 204, { method: "GET", path: "/bodiless" }],
];

describe("a streaming function", () => {
  test.each(asked)(
    "answers %s with %i as the server form does, and ends the stream once",
    async (_what, status, request) => {
      const answer = await stream(request);
      expect(answer.head?.statusCode).toBe(status);
      expect(answer.ends).toBe(1);
      expect(answer.log.slice(0, 2)).toEqual(["head", "write"]);
      expect(answer.log.at(-1)).toBe("end");

      const { method, path, headers, body } = request;
      const { fetch } = globalThis;
      const plain = await fetch(`${await listen()}${path}`, {
        method,
        redirect: "manual",
        ...(headers === undefined ? {} : { headers }),
        ...(body === undefined ? {} : { body }),
      });
      expect(plain.status).toBe(status);
      expect(stable(Object.entries(answer.head?.headers ?? {}))).toEqual(stable(plain.headers));
      const withoutId = (text: string): string => text.replace(/req_\w+/, "");
      expect(withoutId(answer.text)).toBe(withoutId(await plain.text()));
    },
  );

  test("hands on each part when it is there", async () => {
    const answer = await stream({ method: "POST", path: "/api/chat/completions", headers: jsonHeaders, body: "{}" });
    expect(answer.parts.map(String)).toEqual(["data: 1\n\n", "data: 2\n\n"]);
  });

  test.each(["/late", "/broken"])(
    "fails in place of an end to the stream where %s fails after the first byte, which the runtime passes on",
    async (path) => {
      const { app, core } = build();
      const answer = new FakeResponseStream();
      const after = vi.fn<() => void>();
      const invoked = createStreamingHandler(app, core.log, { after })(
        toEvent({ method: "GET", path }),
        answer,
        context,
      );
      await expect(invoked).rejects.toThrow("the answer was cut off");
      expect(answer.head?.statusCode).toBe(200);
      expect(answer.errored).toBeNull();
      expect(answer.destroyed).toBe(false);
      expect(answer.ends).toBe(0);
      expect(after).toHaveBeenCalledOnce();
    },
  );

  test("answers an event it cannot read with 500 and a JSON body", async () => {
    const { app, core } = build();
    const answer = new FakeResponseStream();
    await createStreamingHandler(app, core.log)({ httpMethod: 7 }, answer, context);
    expect(answer.head).toMatchObject({ statusCode: 500, headers: { "content-type": "application/json" } });
    expect(JSON.parse(answer.text)).toMatchObject({ error: { code: "internal_error" } });
    expect(answer.ends).toBe(1);
  });

  test("can be made where the runtime's global is missing", async () => {
    Reflect.deleteProperty(globalThis, "awslambda");
    const { app, core } = build();
    const answer = new FakeResponseStream();
    await createStreamingHandler(app, core.log)(toEvent({ method: "GET", path: "/page" }), answer, context);
    expect(answer.text).toBe("text");
  });

  test("waits for a slow stream", async () => {
    const { app, core } = build();
    const answer = new FakeResponseStream({ highWaterMark: 1 });
    await createStreamingHandler(app, core.log)(toEvent({ method: "GET", path: "/page" }), answer, context);
    await expect.poll(() => answer.writableFinished).toBe(true);
    expect(answer.text).toBe("text");
  });
});

describe("an event", () => {
  const send = async (event: object): Promise<FakeResponseStream> => {
    const { app, core } = build();
    const answer = new FakeResponseStream();
    await createStreamingHandler(app, core.log)(event, answer, context);
    return answer;
  };

  test("gives path, query, repeated headers and base64 bodies", async () => {
    const base = toEvent({ method: "POST", path: "/echo/a%2Fb?x=1&x=2&y=%26", headers: jsonHeaders });
    const event = {
      ...base,
      multiValueHeaders: { "Content-Type": ["application/json"], "X-Many": ["1", "2"], Host: ["api.example.com"] },
      body: Buffer.from('{"text":"ä"}').toString("base64"),
      isBase64Encoded: true,
    };
    expect(JSON.parse((await send(event)).text)).toEqual({
      id: "a/b",
      query: { x: ["1", "2"], y: "&" },
      body: { text: "ä" },
      url: "https://api.example.com/echo/a%2Fb?x=1&x=2&y=%26",
      many: "1, 2",
    });
  });

  test("may have only single values, as test consoles send", async () => {
    const event = {
      httpMethod: "POST",
      path: "/echo/1",
      headers: jsonHeaders,
      queryStringParameters: { x: "1" },
      body: "[1]",
    };
    expect(JSON.parse((await send(event)).text)).toMatchObject({ query: { x: "1" }, body: [1] });
  });

  test("has a path that cannot smuggle in a query, and a host that cannot smuggle in another address", async () => {
    const event = {
      httpMethod: "POST",
      path: "/echo/a?b=1#c",
      headers: { ...jsonHeaders, host: "evil/@x" },
      body: "1",
    };
    expect(JSON.parse((await send(event)).text)).toMatchObject({ id: "a?b=1#c", query: {} });
  });

  test("gets bytes back as they are", async () => {
    const { head, parts } = await send(toEvent({ method: "GET", path: "/bytes" }));
    expect(head?.headers).toMatchObject({ "content-type": "application/octet-stream" });
    expect(Buffer.concat(parts)).toEqual(Buffer.from([0, 255, 254]));
  });
});
