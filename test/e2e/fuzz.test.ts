/**
 * Whatever arrives, the gateway answers in its own words and lives on: bodies and headers of every kind at
 * every route, addresses of tools, and templates of addresses.
 */
import { connect } from "node:net";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RouteModule } from "../../functions/http/define-route.ts";
import { routes } from "../../functions/http/routes/index.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { isLong } from "../support/long.ts";
import {
  createRawClient,
  oddNumbers,
  oddTexts,
  oddValue,
  requireKnown,
  requireUnshaken,
  type RawClient,
} from "../support/raw-client.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let tenants = 0;
let raw: RawClient;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  raw = createRawClient(gateway.url, () => tenant.key);
});

afterAll(async () => {
  raw.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

const brokenEnd = ": broken bodies";

beforeEach(async ({ task }) => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  llm.script(text("ok"));
  // What cannot be read changes nothing, so the next one can have the tenant, too.
  if (task.name.endsWith(brokenEnd) && tenants > 0) return;
  tenants += 1;
  tenant = await gateway.newTenant({ requests_per_minute: 1_000_000, identical_calls: 100 });
  await tenant.addProvider(llm.url, { max_attempts: 1 });
  await tenant.addPlugin(readingTool(backEnd));
});

afterEach(() => requireUnshaken(gateway));

// Bodies.

type Schema = Json;

/** Values near what a JSON Schema describes; one in six is something else. */
function near(schema: Schema, depth = 0): fc.Arbitrary<unknown> {
  const asDescribed = described(schema, depth);
  return fc.oneof({ weight: 5, arbitrary: asDescribed }, { weight: 1, arbitrary: oddValue });
}

function described(schema: Schema, depth: number): fc.Arbitrary<unknown> {
  if (depth > 5 || schema === true || schema === undefined || typeof schema !== "object") return oddValue;
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  const branches = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(branches)) return fc.oneof(...branches.map((branch: Schema) => described(branch, depth + 1)));
  switch (schema.type) {
    case "object": {
      const properties = Object.entries(schema.properties ?? {}).map(
        ([name, value]) => [name, near(value, depth + 1)] as const,
      );
      const known = fc.record(Object.fromEntries(properties), {
        requiredKeys: (schema.required ?? []).filter((name: string) => Object.hasOwn(schema.properties ?? {}, name)),
      });
      const others = fc.dictionary(
        fc.constantFrom(...oddTexts),
        schema.additionalProperties ? near(schema.additionalProperties, depth + 1) : oddValue,
        { maxKeys: 2 },
      );
      return fc.oneof(
        { weight: 4, arbitrary: known },
        { weight: 1, arbitrary: fc.tuple(known, others).map(([one, other]) => ({ ...other, ...one })) },
      );
    }
    case "array":
      return fc.array(near(schema.items, depth + 1), { maxLength: 3 });
    case "string":
      return fc.constantFrom(
        ...oddTexts,
        "v1",
        "GET",
        "POST",
        "query",
        "body",
        "path",
        "application/json",
        "key",
        "user",
        "tool",
      );
    case "integer":
    case "number":
      return fc.constantFrom(...oddNumbers, 10, 100, 1_000);
    case "boolean":
      return fc.boolean();
    default:
      return oddValue;
  }
}

const deep = 100_000;
/** Bodies that are no JSON, or JSON that hurts. */
const brokenBodies: Readonly<Record<string, string | Uint8Array>> = {
  nothing: "",
  "a space": " ",
  null: "null",
  "a text": '"x"',
  "a number": "1e999",
  "a list": "[]",
  "an empty object": "{}",
  "half an object": '{"a":',
  "a comma too many": '{"a":1,}',
  "a mark before": "\ufeff{}",
  "no UTF-8": Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
  "a lone surrogate in UTF-8": Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]),
  "UTF-16": Buffer.from('{"a":1}', "utf16le"),
  bytes: Buffer.from(Array.from({ length: 256 }, (_none, at) => at)),
  "a form": "a=1&b=2",
  "deep lists": "[".repeat(deep) + "]".repeat(deep),
  "deep lists left open": "[".repeat(deep),
  "deep objects": '{"a":'.repeat(deep) + "1" + "}".repeat(deep),
  "a huge key": `{"${"k".repeat(1_000_000)}":1}`,
  "many keys": `{${Array.from({ length: 20_000 }, (_none, at) => `"k${at}":${at}`).join(",")}}`,
  "a key twice": '{"name":"a","name":1}',
  "a prototype": '{"__proto__":{"admin":true},"constructor":{"prototype":{"x":1}}}',
  "lone surrogates": '{"\\ud800":"\\udfff","name":"\\ud800","uri":"\\udc00"}',
};

const oneOf = (characters: string): fc.Arbitrary<string> => fc.constantFrom(...characters.split(""));

const oddHeaders: fc.Arbitrary<Readonly<Record<string, string>>> = fc.dictionary(
  fc.constantFrom(
    "content-type",
    "idempotency-key",
    "x-request-id",
    "traceparent",
    "x-stainless-timeout",
    "x-stainless-retry-count",
    "x-toolyard-events",
    "x-toolyard-tenant",
    "content-encoding",
    "accept",
    "accept-encoding",
    "range",
    "if-match",
    "if-none-match",
    "origin",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-api-key",
    "authorization",
    "cookie",
    "last-event-id",
  ),
  fc.oneof(
    fc.constantFrom(
      "",
      " ",
      "0",
      "-1",
      "NaN",
      "1e9",
      "99999999999999999999",
      "true",
      "*/*",
      "application/json",
      "application/json; charset=utf-16",
      'application/json; charset="',
      "APPLICATION/JSON",
      "text/plain",
      "multipart/form-data; boundary=x",
      "application/x-www-form-urlencoded",
      "gzip",
      "identity",
      "bytes=0-",
      "bytes=9-1",
      "*",
      'W/"x"',
      "Bearer",
      "Bearer ",
      "Bearer x y",
      "Basic YTpi",
      "bearer eyJhbGciOiJub25lIn0.e30.",
      "00-00000000000000000000000000000000-0000000000000000-00",
      "ten_default",
      "\x80\xff",
      "a".repeat(2_000),
    ),
    fc.string({ unit: oneOf(" !#$%&'*+-.^_`|~0aZ\t,;=\"()[]{}<>@:/?\\"), maxLength: 30 }),
  ),
  { maxKeys: 4 },
);

const oddSegment = fc.oneof(
  fc.constantFrom(
    "%",
    "%zz",
    "%2",
    "%ff",
    "%c0%af",
    "%ed%a0%80",
    "%00",
    "%0d%0a",
    "..",
    ".",
    "%2e%2e",
    "%2f",
    "a%2fb",
    "~",
    "*",
    "plg_1",
    "plg_99999999999999999999",
    "call_1",
    "key_",
    "ten_default",
    "__proto__",
    "constructor",
    "a".repeat(3_000),
    "\xff\xfe",
    "%F0%9F%98%80",
    "a;b",
    "a?b",
    "a#b",
    "a b".replace(" ", "+"),
  ),
  fc.string({ unit: oneOf("abcXYZ019-._~!$&'()*+,;=:@%\x80\xff"), minLength: 1, maxLength: 20 }),
);

const all = Object.entries(routes as Readonly<Record<string, RouteModule>>);
const writing = all.filter(([, { method }]) => method !== "get");
/** Whoever erases or stops things by a lucky guess would only disturb the others. */
const spared = new Set(["/v1/tenants/{id}"]);

function targetOf(path: string, segments: readonly string[]): string {
  let at = 0;
  return path.replaceAll(/\{\w+\+?\}/g, () => segments[at++ % segments.length] ?? "x");
}

function authorizationOf(route: RouteModule): string {
  return `Bearer ${route.scope === "operator" ? gateway.adminKey : tenant.key}`;
}

describe(`requests that are no requests ${verifies("CHAT-1", "CHAT-20", "BLIND-10")}`, () => {
  let document: Json;
  beforeAll(async () => {
    document = JSON.parse((await gateway.nobody.send("get", "/openapi.json")).text);
  });

  function schemaOf(route: RouteModule): Schema {
    return (
      document.paths[route.path.replaceAll("+}", "}")]?.[route.method]?.requestBody?.content?.["application/json"]
        ?.schema ?? {}
    );
  }

  // What is large is read before any route's own code: in short runs a part of the routes meets it.
  const largeFrom = Math.floor(Math.random() * 5);
  const cases = writing.map(([name, route], at) => [name, route, isLong || at % 5 === largeFrom] as const);
  test.each(cases)(`%s${brokenEnd}`, async (_name, route, meetsLarge) => {
    const target = targetOf(route.path, ["x1"]);
    for (const [what, content] of Object.entries(brokenBodies)) {
      if (content.length > 10_000 && !meetsLarge) continue;
      for (const type of isLong ? ["application/json", "text/plain"] : ["application/json"]) {
        const headers = { authorization: authorizationOf(route), "content-type": type };
        const answer = await raw.ask({ method: route.method.toUpperCase(), target, headers, body: content });
        expect([what, answer.status]).not.toEqual([what, 500]);
        requireKnown({ method: route.method, target }, answer);
      }
    }
  });

  test.each([2_000, 5_000, 50_000])("fields that are nested %d levels deep", async (levels) => {
    const objects = `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
    for (const [target, content] of [
      ["/v1/tools/invoke", `{"name":"lookup","arguments":${objects}}`],
      ["/v1/chat/completions", `{"messages":[{"role":"user","content":"x","y":${objects}}]}`],
      ["/v1/flows/validate", `{"definition":${objects}}`],
    ] as const) {
      const headers = { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" };
      const answer = await raw.ask({ method: "POST", target, headers, body: content });
      expect([target, answer.status, JSON.parse(answer.text).error.code]).toEqual([target, 400, "invalid_json"]);
    }
  });

  test.each(writing.filter(([, { path }]) => !spared.has(path)))(
    "%s: bodies that are almost right, with odd headers and ids",
    async (_name, route) => {
      const schema = schemaOf(route);
      const request = fc.record({
        content: near(schema),
        headers: oddHeaders,
        segments: fc.array(oddSegment, { minLength: 1, maxLength: 3 }),
        isTidy: fc.boolean(),
      });
      await fc.assert(
        fc.asyncProperty(request, async ({ content, headers, segments, isTidy }) => {
          const target = targetOf(route.path, isTidy ? ["x1"] : segments);
          const given = {
            authorization: authorizationOf(route),
            "content-type": "application/json",
            ...(isTidy ? {} : headers),
          };
          const answer = await raw.ask({
            method: route.method.toUpperCase(),
            target,
            headers: given,
            body: JSON.stringify(content) ?? "",
          });
          requireKnown({ method: route.method, target }, answer);
        }),
        { numRuns: isLong ? 60 : 10 },
      );
    },
  );

  test("ids, queries and headers of reading routes", async () => {
    const reading = all.filter(([, { method }]) => method === "get").map(([, route]) => route);
    const query = fc.dictionary(
      fc.constantFrom("limit", "after", "order", "state", "kind", "format", "q", "x", "offset", "path", "tool"),
      fc.oneof(oddSegment, fc.constantFrom("0", "-1", "1e3", "101", "asc", "up", "")),
      { maxKeys: 3 },
    );
    const request = fc.record({
      route: fc.constantFrom(...reading),
      segments: fc.array(oddSegment, { minLength: 1, maxLength: 3 }),
      query,
      headers: oddHeaders,
    });
    await fc.assert(
      fc.asyncProperty(request, async ({ route, segments, query: asked, headers }) => {
        const search = Object.entries(asked)
          .map(([name, value]) => `${name}=${value.replaceAll("#", "%23")}`)
          .join("&");
        const target = targetOf(route.path, segments) + (search === "" ? "" : `?${search}`);
        const answer = await raw.ask({
          method: "GET",
          target,
          headers: { authorization: authorizationOf(route), ...headers },
        });
        requireKnown({ method: "get", target }, answer);
      }),
      { numRuns: isLong ? 600 : 100 },
    );
  });

  test("methods and paths that are none", async () => {
    const method = fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND");
    const path = fc.oneof(
      fc.constantFrom(
        "/",
        "//",
        "/v1",
        "/v1/",
        "/V1/models",
        "/v1//models",
        "/v1/./models",
        "/v1/../v1/models",
        "/api/chat/completions/",
        "*",
        "/%",
        "/%ff",
        "/health/../v1/calls",
        "/v1/models/",
        "/?%",
        "/;",
        "/v1/plugins/plg_1/extra",
      ),
      fc.array(oddSegment, { maxLength: 4 }).map((segments) => `/${segments.join("/")}`),
    );
    await fc.assert(
      fc.asyncProperty(method, path, oddHeaders, async (asked, target, headers) => {
        const answer = await raw.ask({ method: asked, target, headers });
        expect(answer.status).toBeLessThan(500);
        if (asked !== "HEAD") requireKnown({ method: asked, target }, answer);
      }),
      { numRuns: isLong ? 300 : 60 },
    );
  });

  test("lines that are no HTTP are told so", async () => {
    const lines = [
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "GET /\u0000 HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /v1/plugins HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /v1/plugins HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST /v1/plugins HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      `GET / HTTP/1.1\r\nHost: x\r\nX: ${"a".repeat(40_000)}\r\n\r\n`,
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
      "GET / HTTP/1.1\r\nX\u0001: 1\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01",
    ];
    for (const line of lines) {
      const heard = await hear(line);
      const [head = "", content = ""] = heard.split("\r\n\r\n");
      const answer = {
        status: Number(head.split(" ")[1]),
        headers: { "content-type": "application/json" },
        text: content,
      };
      expect([line, answer.status]).toEqual([line, line.length > 32_768 ? 413 : 400]);
      requireKnown({ method: "GET", target: "/" }, answer);
    }
  });

  /** All that is answered to these bytes, after which nothing is sent any more. */
  function hear(bytes: string, { isEnded = true } = {}): Promise<string> {
    const port = Number(new URL(gateway.url).port);
    return new Promise((resolve) => {
      let answer = "";
      const socket = connect(port, "127.0.0.1", () => {
        if (isEnded) socket.end(bytes, "latin1");
        else socket.write(bytes, "latin1");
      });
      socket
        .on("data", (part: Buffer) => (answer += part.toString("latin1")))
        .on("error", () => resolve(answer))
        .on("close", () => resolve(answer));
    });
  }

  test("probes of HTTP/1.0 that name no host are answered", async () => {
    expect(await hear("GET /health HTTP/1.0\r\n\r\n")).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*"status":"ok"/);
  });

  test("who wants a tunnel is told that this is no proxy", async () => {
    const heard = await hear("CONNECT x.example:443 HTTP/1.1\r\nHost: x.example:443\r\n\r\n", { isEnded: false });
    expect(heard).toMatch(/^HTTP\/1\.1 405 [^]*\r\nallow: GET, HEAD[^]*"code":"method_not_allowed"/);
    // Nobody is there any more to hear the answer.
    const port = Number(new URL(gateway.url).port);
    const socket = connect(port, "127.0.0.1", () => {
      socket.write("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", () => socket.resetAndDestroy());
    });
    await new Promise((closed) => socket.on("error", () => undefined).on("close", closed));
  });

  const health = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

  test("what came before a line that is no HTTP is answered first", async () => {
    const heard = await hear(`${health}${health}GET\r\n\r\n`, { isEnded: false });
    expect([...heard.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => status)).toEqual(["200", "200", "400"]);
  });

  const upgrade = ["Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];
  const handshake = ["GET /ws HTTP/1.1", "Host: x", ...upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="];

  test.each([
    ["a tunnel", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a WebSocket", `${handshake.join("\r\n")}\r\n\r\n`],
  ])("who wants %s while an answer is under way is heard no more", async (_what, asked) => {
    expect(await hear(`${health}${asked}`, { isEnded: false })).not.toMatch(/ (?:101|401|405) /);
  });

  test.each([
    ["a tunnel", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a WebSocket without a key", `${handshake.join("\r\n")}\r\n\r\n`],
  ])("who was refused %s and stays is let go", async (_what, asked) => {
    const socket = connect({ port: Number(new URL(gateway.url).port), host: "127.0.0.1", allowHalfOpen: true });
    socket.resume().write(asked);
    await new Promise((ended) => socket.once("end", ended));
    const more = setInterval(() => socket.write("x"), 100);
    await new Promise((closed) => socket.on("error", () => undefined).once("close", closed));
    clearInterval(more);
    expect(socket.errored).not.toBeNull();
  });

  test("what is expected and cannot be given is passed over", async () => {
    const heard = await hear("GET /health HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nConnection: close\r\n\r\n");
    expect(heard).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });

  describe("who asks whether a body is wanted", () => {
    const asking = (target: string, headers: readonly string[]): string =>
      [`PUT ${target} HTTP/1.1`, "Host: x", "Expect: 100-continue", ...headers, "", ""].join("\r\n");

    test.each([
      ["without a key", "/v1/credentials/A", "401 invalid_api_key"],
      ["with a body that is too large", "/v1/credentials/A", "413 payload_too_large"],
      ["without a key, for a file", "/v1/sessions/s/files/a", "401 invalid_api_key"],
      ["with a key, at no route", "/v1/nothing", "404 not_found"],
    ])("%s, %s, is refused at once and sends nothing: %s", async (name, target, told) => {
      const key = name.startsWith("without") ? [] : [`Authorization: Bearer ${tenant.key}`];
      const heard = await hear(asking(target, [...key, "Content-Length: 99999999"]), { isEnded: false });
      const [, status, code] = /^HTTP\/1\.1 (\d+) [^]*"code":"(\w+)"/.exec(heard) ?? [];
      expect(`${status} ${code}`).toBe(told);
      expect(heard).toMatch(/\r\nConnection: close\r\n/i);
    });

    test.each([
      ["/v1/credentials/A", '{"value":"x"}'],
      ["/v1/sessions/s/files/a", "bytes"],
    ])("of %s is told to go on, and answered", async (target, content) => {
      const port = Number(new URL(gateway.url).port);
      const head = asking(target, [
        `Authorization: Bearer ${tenant.key}`,
        "Content-Type: application/json",
        `Content-Length: ${content.length}`,
        "Connection: close",
      ]);
      const heard = await new Promise<string>((resolve) => {
        let answer = "";
        const socket = connect(port, "127.0.0.1", () => socket.write(head));
        socket
          .on("data", (part: Buffer) => {
            answer += part.toString("latin1");
            if (answer === "HTTP/1.1 100 Continue\r\n\r\n") socket.write(content);
          })
          .on("close", () => resolve(answer));
      });
      expect(heard).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 20[01] /);
    });
  });
});

describe(`addresses of tools ${verifies("URI-1", "URI-2", "URI-3", "URI-4")}`, () => {
  const piece = fc.oneof(
    fc.constantFrom(
      "lookup",
      "read_file",
      "x",
      "",
      "..",
      "%2e",
      "%",
      "%zz",
      "%00",
      "a/b",
      "a?b",
      "#",
      "@",
      ":",
      "北京",
      "😀",
      "\ud800",
      " ",
      "\n",
      "__proto__",
      "a".repeat(300),
    ),
    fc.string({ unit: "grapheme", maxLength: 8 }),
  );
  const scheme = fc.constantFrom(
    "plugin",
    "native",
    "api",
    "mcp",
    "svc",
    "oss",
    "mq",
    "mail",
    "sms",
    "flow",
    "agent",
    "vcp",
    "PLUGIN",
    "http",
    "file",
    "javascript",
    "",
    "x-y",
    "plugin:",
    "__proto__",
    "constructor",
  );
  const option = fc.tuple(
    fc.constantFrom("timeout", "max-attempts", "method", "async", "version", "delay", "x", "", "__proto__", "timeout "),
    fc.oneof(
      fc.constantFrom("1", "0", "-1", "abc", "1e3", "1.5", "true", "GET", "get", "DELETE", "99999999999999", "%31", ""),
      piece,
    ),
  );
  const grammar = fc
    .tuple(
      scheme,
      fc.constantFrom("://", ":", ":/", ":///", "//"),
      fc.array(piece, { maxLength: 3 }),
      fc.array(option, { maxLength: 3 }),
      fc.constantFrom("", "#x", "?"),
    )
    .map(
      ([name, separator, path, options, end]) =>
        `${name}${separator}${path.join("/")}${options.length === 0 ? "" : `?${options.map(([key, value]) => `${key}=${value}`).join("&")}`}${end}`,
    );
  const address = fc.oneof(
    { weight: 4, arbitrary: grammar },
    { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 60 }) },
    { weight: 1, arbitrary: fc.webUrl() },
  );

  test.each(["/v1/tools/invoke", "/v1/tools/explain"])("of any kind at %s", async (target) => {
    await fc.assert(
      fc.asyncProperty(
        address,
        fc.dictionary(fc.constantFrom("q", "path", "content", "__proto__"), oddValue, { maxKeys: 3 }),
        async (uri, args) => {
          const answer = await raw.ask({
            method: "POST",
            target,
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ uri, arguments: args }),
          });
          requireKnown({ method: "post", target }, answer);
        },
      ),
      { numRuns: isLong ? 400 : 60 },
    );
    for (const request of backEnd.requests) expect(request.target).toMatch(/^\/lookup\?q=/);
  });
});

describe(`templates of addresses ${verifies("BLIND-2", "BLIND-10", "API-4")}`, () => {
  const part = fc.constantFrom(
    "v1",
    "{a}",
    "{b}",
    "{a}{b}",
    "x{a}",
    "{a}.json",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "%",
    "{",
    "}",
    "{}",
    "{c}",
    "{a b}",
    "a b",
    "北京",
    "placeholder0x1e",
    "\ud800",
    "a;b",
    "@",
    ":",
    "\\",
    "",
  );
  const template = fc
    .tuple(
      fc.array(part, { maxLength: 5 }),
      fc.constantFrom("", "?", "?x=1", "?x={a}", "?{a}=1", "?a=1", "#x", "?x=%", "?x=1&x={b}"),
      fc.constantFrom("", "/"),
    )
    .map(([parts, query, end]) => `/${parts.join("/")}${end}${query}`);
  const value = fc.oneof(
    fc.constantFrom(
      "..",
      ".",
      "%2e%2e",
      "../../admin",
      "a/b",
      "?x",
      "#y",
      "{a}",
      "{b}",
      "$&",
      "\r\n",
      "\ud800",
      "",
      "北京",
      "\\..\\",
      "a",
      "@evil",
      ";/",
    ),
    fc.string({ unit: "binary", maxLength: 10 }),
    oddValue,
  );

  test("and any arguments stay on the route that was registered, or are refused", async () => {
    await fc.assert(
      fc.asyncProperty(
        template,
        fc.tuple(fc.constantFrom("GET", "POST", "PUT", "DELETE", "PATCH"), fc.constantFrom("path", "query", "body")),
        value,
        value,
        async (path, [method, placement], a, b) => {
          const definition = {
            schema_version: "v1",
            name: "templated",
            description: "Of a template.",
            parameters: { type: "object", properties: { a: {}, b: { default: "b" } }, required: ["a"] },
            execution: {
              method,
              base_url: `${backEnd.url}${path}`,
              content_type: "application/json",
              param_placement: placement,
            },
          };
          const made = await raw.post("/v1/plugins", definition);
          requireKnown({ method: "post", target: "/v1/plugins" }, made);
          if (made.status !== 201) return;
          backEnd.requests.length = 0;
          const answer = await raw.post("/v1/tools/invoke", { name: "templated", arguments: { a, b } });
          requireKnown({ method: "post", target: "/v1/tools/invoke" }, answer);
          const target = `/v1/plugins/${JSON.parse(made.text).id}`;
          await raw.ask({ method: "DELETE", target });
          const literal = new URL(`${backEnd.url}${path.replaceAll(/\{[^{}]*\}/g, "placeholder")}`).pathname;
          for (const request of backEnd.requests) {
            const sent = request.target.split("?")[0] ?? "";
            expect([path, sent.split("/").length]).toEqual([path, literal.split("/").length]);
            expect(new URL(backEnd.url + request.target).pathname).toBe(sent);
            expect(request.method).toBe(method);
          }
        },
      ),
      { numRuns: isLong ? 250 : 50 },
    );
  });
});
