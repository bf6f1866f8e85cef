import { hashApiKey, newApiKey } from "@toolyard/core/callers/api-key";
import type { Caller } from "@toolyard/core/callers/caller";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { AdmitInput, AdmitResult } from "@toolyard/core/ports/calls";
import * as z from "zod";
import { describe, expect, test } from "vitest";
import { admitted, createFakeCore, type FakeCore } from "../../test/support/fake-core.ts";
import { createApp } from "./app.ts";
import { defineRoute, type RouteModule } from "./define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "./list.ts";

const operatorKey = "operator-key-of-this-test";
const tenant = newId("tenant");
const { key, hash } = newApiKey(tenant);
const member: Caller = { kind: "key", id: "key_1", role: "member", scopes: ["chat", "tools"], tools: null };

/** Base of the declarations below. */
const open = { tags: ["test"], scope: null, admission: "none", responses: { 200: { description: "ok" } } } as const;
const closed = { tags: ["test"], responses: { 200: { description: "ok" } } } as const;

interface Setup {
  readonly core: FakeCore;
  readonly inputs: AdmitInput[];
  readonly send: (method: string, path: string, init?: RequestInit) => Promise<Response>;
}

function setup(routes: Record<string, RouteModule>, answer: Partial<AdmitResult> = {}): Setup {
  const inputs: AdmitInput[] = [];
  const core = createFakeCore({
    admit: (input) => {
      inputs.push(input);
      if (input.principal.kind === "key" && input.principal.hash !== hash) {
        return Promise.reject(new GatewayError("invalid_api_key", "There is no such key."));
      }
      return Promise.resolve(
        admitted(tenant, input.principal.kind === "known" ? input.principal.caller : member, answer),
      );
    },
  });
  const app = createApp({ core, adminKeyHash: hashApiKey(operatorKey), version: "1.2.3" }, routes);
  return { core, inputs, send: async (method, path, init) => app.request(path, { method, ...init }) };
}

const bearer = (credential: string): RequestInit => ({ headers: { authorization: `Bearer ${credential}` } });

function json(body: unknown, headers: Record<string, string> = {}): RequestInit {
  return { headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}

const errorSchema = z.object({
  error: z.looseObject({ code: z.string(), message: z.string(), param: z.string().nullable() }),
});

async function errorOf(response: Response): Promise<z.infer<typeof errorSchema>["error"]> {
  return errorSchema.parse(await response.json()).error;
}

const hello = defineRoute({
  ...open,
  method: "get",
  path: "/hello",
  summary: "Hello",
  handler: (c) => c.text("hello"),
});

describe("every answer", () => {
  test("keeps a sane request id, and replaces any other", async () => {
    const { send } = setup({ hello });
    const kept = await send("GET", "/hello", { headers: { "x-request-id": "abc-1.2:3" } });
    expect(kept.headers.get("x-request-id")).toBe("abc-1.2:3");
    for (const wrong of ["", "with space", "x".repeat(129), "ä", "<script>"]) {
      const replaced = await send("GET", "/hello", { headers: { "x-request-id": encodeURI(wrong) } });
      const id = replaced.headers.get("x-request-id") ?? "";
      if (encodeURI(wrong) === wrong && wrong.length <= 128 && wrong !== "") continue;
      expect(id).toMatch(/^req_/);
    }
  });

  test("continues the trace it came with under a new span", async () => {
    const { send } = setup({ hello });
    const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
    const answer = await send("GET", "/hello", { headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-00` } });
    const [, id, span, flags] = answer.headers.get("traceparent")?.split("-") ?? [];
    expect([id, flags]).toEqual([traceId, "00"]);
    expect(span).toMatch(/^[0-9a-f]{16}$/);
    expect(span).not.toBe("00f067aa0ba902b7");
  });

  test.each([
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
    "nonsense",
  ])("starts a trace of its own for the traceparent %s", async (traceparent) => {
    const { send } = setup({ hello });
    const answer = await send("GET", "/hello", { headers: { traceparent } });
    expect(answer.headers.get("traceparent")).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(answer.headers.get("traceparent")).not.toContain("4bf92f3577b34da6a3ce929d0e0e4736");
  });

  test("is for its caller alone, errors included", async () => {
    const { send } = setup({ hello });
    for (const answer of [await send("GET", "/hello"), await send("GET", "/nowhere"), await send("POST", "/hello")]) {
      expect(answer.headers.get("cache-control")).toBe("private, no-store");
      expect(answer.headers.get("vary")).toBe("Authorization");
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("x-request-id")).not.toBeNull();
    }
  });

  test("leaves one log line with the pattern of the route, not the path, which may hold a token", async () => {
    const secret = defineRoute({
      ...open,
      method: "get",
      path: "/t/{token}",
      summary: "Token",
      handler: (c) => c.text(""),
    });
    const { send, core } = setup({ secret });
    await send("GET", "/t/very-secret", { headers: { "x-request-id": "r-1" } });
    expect(core.lines).toHaveLength(1);
    expect(core.lines[0]?.fields).toMatchObject({ route: "/t/{token}", status: 200, method: "GET", request_id: "r-1" });
    expect(JSON.stringify(core.lines)).not.toContain("very-secret");
  });
});

describe("paths and methods that are not there", () => {
  test("404 says so in the one error shape", async () => {
    const { send } = setup({ hello });
    const answer = await send("GET", "/nowhere", { headers: { "x-request-id": "r-1" } });
    expect(answer.status).toBe(404);
    expect(await errorOf(answer)).toEqual({
      code: "not_found",
      type: "not_found_error",
      param: null,
      message: "There is no route GET /nowhere; GET /openapi.json lists all.",
      request_id: "r-1",
    });
  });

  test("clients of another model API are told where models answer", async () => {
    const { message } = await errorOf(await setup({ hello }).send("POST", "/v1/responses"));
    expect(message).toContain("POST /v1/chat/completions");
  });

  test.each([
    ["GET", "//v1/things", "GET /v1/things"],
    ["GET", "/v1/things/", "GET /v1/things"],
    ["GET", "/v1/v1/things", "GET /v1/things"],
    ["GET", "/things", "GET /v1/things"],
    ["GET", "//things//", "GET /v1/things"],
    ["GET", "/v1/hello", "GET /hello"],
    ["POST", "/things", undefined],
    ["GET", "/v1/v1/v1/things", undefined],
  ])("%s %s says which address is meant, where one is: %s", async (method, path, meant) => {
    const things = defineRoute({
      ...open,
      method: "get",
      path: "/v1/things",
      summary: "All",
      handler: (c) => c.text(""),
    });
    const answer = await setup({ hello, things }).send(method, path);
    expect(answer.status).toBe(404);
    const { message } = await errorOf(answer);
    expect(/there is (\S+ [^\s:]+)/.exec(String(message))?.[1]).toBe(meant);
  });

  test("an address with an id left out is told that, and not another route that it looks like", async () => {
    const path = "/v1/things/{id}";
    const thing = defineRoute({ ...open, method: "get", path, summary: "One", handler: (c) => c.text("") });
    const { send } = setup({ thing });
    const messageOf = async (sent: string): Promise<unknown> => (await errorOf(await send("GET", sent))).message;
    expect(await messageOf("/v1/things//parts")).toBe(
      "There is no route GET /v1/things//parts; nothing stands between two of its slashes, where an id may be missing; GET /openapi.json lists all.",
    );
    expect(await messageOf("//v1//things/7")).toContain("look at the base address");
  });

  test("405 lists what the path answers", async () => {
    const remove = defineRoute({
      ...open,
      method: "delete",
      path: "/things/{id}",
      summary: "Remove",
      handler: (c) => c.body(null, 204),
    });
    const read = defineRoute({
      ...open,
      method: "get",
      path: "/things/{id}",
      summary: "Read",
      handler: (c) => c.text(""),
    });
    const { send } = setup({ remove, read });
    const answer = await send("PUT", "/things/7");
    expect(answer.status).toBe(405);
    expect(answer.headers.get("allow")).toBe("DELETE, GET, HEAD");
    expect(await errorOf(answer)).toMatchObject({ code: "method_not_allowed" });
    expect((await send("PUT", "/things/7/8")).status).toBe(404);
  });

  test("a greedy parameter takes slashes, an ordinary one does not", async () => {
    const file = defineRoute({
      ...open,
      method: "get",
      path: "/files/{path+}",
      summary: "File",
      request: { params: z.object({ path: z.string() }) },
      handler: (c, { params }) => c.text(params.path),
    });
    const { send } = setup({ file });
    expect(await (await send("GET", "/files/a/b%20c/d.txt")).text()).toBe("a/b c/d.txt");
    expect((await send("POST", "/files/a/b")).status).toBe(405);
  });

  test("HEAD is GET without a body, and a preflight is answered for any path", async () => {
    const { send } = setup({ hello });
    const head = await send("HEAD", "/hello");
    expect([head.status, await head.text()]).toEqual([200, ""]);
    const preflight = await send("OPTIONS", "/hello", {
      headers: {
        origin: "https://app.example.com",
        "access-control-request-headers": "Authorization, X-Stainless-Lang",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
    expect(preflight.headers.get("access-control-allow-headers")).toContain("x-stainless-lang");
    expect(preflight.headers.get("access-control-allow-methods")).toContain("DELETE");
    const exposed = (await send("GET", "/hello")).headers.get("access-control-expose-headers")?.split(", ");
    expect(exposed).toEqual(expect.arrayContaining(["x-toolyard-call-id", "x-toolyard-cost-micros", "etag"]));
  });
});

describe("what a route is given", () => {
  const echo = defineRoute({
    ...open,
    method: "post",
    path: "/echo/{id}",
    summary: "Echo",
    request: {
      params: z.object({ id: z.string() }),
      query: z.strictObject({ n: z.coerce.number().int().default(1) }),
      body: z.strictObject({
        name: z.string().min(1),
        parts: z.array(z.union([z.strictObject({ text: z.string() }), z.strictObject({ url: z.url() })])).default([]),
      }),
      maxBytes: 1_000,
    },
    handler: (c, { params, query, body, bytes }) => c.json({ params, query, body, size: bytes.length }),
  });

  test("is checked and typed", async () => {
    const { send } = setup({ echo });
    const answer = await send("POST", "/echo/a%2Fb?n=3", json({ name: "x" }));
    expect(await answer.json()).toEqual({
      params: { id: "a/b" },
      query: { n: 3 },
      body: { name: "x", parts: [] },
      size: 12,
    });
  });

  test.each([
    [
      "a field of the wrong type",
      { name: 7 },
      "name",
      /Body field 'name' is not valid: expected string, received number\.$/,
    ],
    ["a missing field", {}, "name", /Body field 'name' is required\.$/],
    [
      "an unknown field",
      { name: "x", nmae: "y" },
      "nmae",
      /Body field 'nmae' is not a known field; 'name' may be meant\.$/,
    ],
    [
      "a field deep inside a union",
      { name: "x", parts: [{ text: "a" }, { url: "no url" }] },
      "parts.1.url",
      /invalid URL/,
    ],
    [
      "what fits none of a union",
      { name: "x", parts: [7] },
      "parts.0",
      /Body field 'parts\.0' is not valid: expected object, received number\.$/,
    ],
    ["another type altogether", [1], null, /The body is not valid: expected object/],
  ])("%s is named by its path", async (_what, body, param, message) => {
    const { send } = setup({ echo });
    const answer = await send("POST", "/echo/1", json(body));
    expect(answer.status).toBe(400);
    const error = await errorOf(answer);
    expect(error).toMatchObject({ code: "invalid_request", type: "invalid_request_error", param });
    expect(error.message).toMatch(message);
  });

  test("several problems are all listed, none of them with the value that was sent", async () => {
    const { send } = setup({ echo });
    const answer = await send("POST", "/echo/1", json({ name: 7, parts: "sk-secret-value" }));
    const text = await answer.text();
    expect(text).not.toContain("sk-secret-value");
    expect(errorSchema.parse(JSON.parse(text)).error["problems"]).toMatchObject([
      { param: "name" },
      { param: "parts" },
    ]);
  });

  test("a query parameter that is wrong, unknown or given twice is named", async () => {
    const { send } = setup({ echo });
    for (const [query, param, message] of [
      ["n=x", "n", "expected number"],
      ["m=1", "m", "is not a known field"],
      ["n=1&n=2", "n", "is given more than once"],
    ]) {
      const error = await errorOf(await send("POST", `/echo/1?${query}`, json({ name: "x" })));
      expect(error).toMatchObject({ code: "invalid_request", param, message: expect.stringContaining(message ?? "") });
    }
  });

  test("JSON that cannot be read says where, without repeating it", async () => {
    const { send } = setup({ echo });
    const headers = { "content-type": "application/json" };
    const answer = await send("POST", "/echo/1", { headers, body: '{\n "name": "secret" oops }' });
    expect(answer.status).toBe(400);
    const error = await errorOf(answer);
    expect(error).toMatchObject({ code: "invalid_json", message: "The body is not valid JSON: line 2, column 19." });
    const cut = await send("POST", "/echo/1", { headers, body: '{"name":' });
    expect(await errorOf(cut)).toMatchObject({ code: "invalid_json" });
    const bytes = await send("POST", "/echo/1", { headers, body: new Uint8Array([0x22, 0xff, 0x22]) });
    expect(await errorOf(bytes)).toMatchObject({ code: "invalid_json", message: "The body is not valid UTF-8 text." });
  });

  test("no body where one is needed, and a body of another type", async () => {
    const { send } = setup({ echo });
    expect(await errorOf(await send("POST", "/echo/1"))).toMatchObject({
      code: "invalid_request",
      message: "This route needs a JSON body.",
    });
    const form = await send("POST", "/echo/1", {
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: "a=b",
    });
    expect([form.status, (await errorOf(form)).param]).toEqual([415, "content-type"]);
    const packed = await send("POST", "/echo/1", json({ name: "x" }, { "content-encoding": "gzip" }));
    expect([packed.status, (await errorOf(packed)).param]).toEqual([415, "content-encoding"]);
    const suffixed = await send(
      "POST",
      "/echo/1",
      json({ name: "x" }, { "content-type": "application/vnd.x+json; charset=utf-8" }),
    );
    expect(suffixed.status).toBe(200);
  });

  test("more bytes than the route takes, announced or not", async () => {
    const { send } = setup({ echo });
    const body = JSON.stringify({ name: "x".repeat(2_000) });
    const announced = await send("POST", "/echo/1", {
      body,
      headers: { "content-type": "application/json", "content-length": "2013" },
    });
    const stream = new Blob([body]).stream();
    const unannounced = await send("POST", "/echo/1", {
      body: stream,
      duplex: "half",
      headers: { "content-type": "application/json" },
    });
    for (const answer of [announced, unannounced]) {
      expect(answer.status).toBe(413);
      expect(await errorOf(answer)).toMatchObject({ code: "payload_too_large", limit_bytes: 1_000 });
    }
  });

  test("a body that is no JSON arrives as a stream", async () => {
    const upload = defineRoute({
      ...open,
      method: "put",
      path: "/upload",
      summary: "Upload",
      request: { stream: { mediaTypes: ["application/octet-stream"], description: "Bytes" }, maxBytes: 10 },
      async handler(c, { stream }) {
        let size = 0;
        for await (const part of stream) size += part.length;
        return c.json({ size });
      },
    });
    const { send } = setup({ upload });
    expect(await (await send("PUT", "/upload", { body: "0123456789" })).json()).toEqual({ size: 10 });
    expect((await send("PUT", "/upload", { body: "0123456789x" })).status).toBe(413);
  });
});

describe("who may use a route", () => {
  const mine = defineRoute({
    ...closed,
    method: "get",
    path: "/mine",
    summary: "Mine",
    scope: "tools",
    isolation: { kind: "nothing-owned", reason: "test" },
    handler: (c, { caller, tenant: of, config, context }) =>
      c.json({ caller: caller.id, of, version: config.version, trace: context.traceId.length }),
  });

  test("a caller of the tenant gets in, is counted, and sees what is left", async () => {
    const { send, inputs } = setup({ mine });
    const answer = await send("GET", "/mine", bearer(key));
    expect(await answer.json()).toEqual({ caller: "key_1", of: tenant, version: 1, trace: 32 });
    expect(inputs).toEqual([{ tenant, principal: { kind: "key", hash }, limits: { countRequest: true } }]);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "x-ratelimit-limit-requests": "100",
      "x-ratelimit-remaining-requests": "99",
      "x-ratelimit-reset-requests": "30s",
      "ratelimit-policy": '"requests";q=100;w=60',
      ratelimit: '"requests";r=99;t=30',
    });
  });

  test("without a key, and with one that does not exist: 401 that names the scheme", async () => {
    const { send } = setup({ mine });
    for (const init of [{}, bearer(newApiKey(tenant).key)]) {
      const answer = await send("GET", "/mine", init);
      expect(answer.status).toBe(401);
      expect(answer.headers.get("www-authenticate")).toBe('Bearer realm="toolyard"');
      expect(await errorOf(answer)).toMatchObject({ code: "invalid_api_key", type: "authentication_error" });
    }
  });

  test("a bad token is told from a missing one", async () => {
    const { send } = setup({ mine });
    const answer = await send("GET", "/mine", bearer("eyJhbGciOiJub25lIn0.e30."));
    expect(answer.headers.get("www-authenticate")).toBe('Bearer realm="toolyard", error="invalid_token"');
  });

  test("the scope is asked for by name", async () => {
    const { send } = setup({
      manage: defineRoute({
        ...closed,
        method: "get",
        path: "/m",
        summary: "",
        scope: "manage",
        handler: (c) => c.text(""),
      }),
    });
    const answer = await send("GET", "/m", bearer(key));
    expect([answer.status, (await errorOf(answer)).param]).toEqual([403, "manage"]);
  });

  test("authentication comes before the body is read", async () => {
    const guarded = defineRoute({
      ...closed,
      method: "post",
      path: "/g",
      summary: "",
      scope: null,
      request: { body: z.object({}) },
      handler: (c) => c.text(""),
    });
    const { send } = setup({ guarded });
    expect((await send("POST", "/g", { body: "{", headers: { "content-type": "application/json" } })).status).toBe(401);
    expect(
      (
        await send("POST", "/g", {
          body: "{",
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        })
      ).status,
    ).toBe(400);
  });

  test("too many requests: 429 with how long to wait, in every spelling", async () => {
    const { send } = setup(
      { mine },
      { outcome: { kind: "rate_limited", scope: "tenant" }, rate: { limit: 100, remaining: 0, resetMs: 12_300 } },
    );
    const answer = await send("GET", "/mine", bearer(key));
    expect(answer.status).toBe(429);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "retry-after": "13",
      "x-ratelimit-limit-requests": "100",
      "x-ratelimit-remaining-requests": "0",
      ratelimit: '"requests";r=0;t=13',
    });
    expect(await errorOf(answer)).toMatchObject({ code: "rate_limited", retryable: true, retry_after_ms: 12_300 });
    expect(answer.headers.get("x-should-retry")).toBeNull();
  });

  describe("the operator", () => {
    const operate = defineRoute({
      ...closed,
      method: "get",
      path: "/operate",
      summary: "",
      scope: "operator",
      handler: (c, { caller, namedTenant }) => c.json({ caller: caller.id, namedTenant: namedTenant ?? null }),
    });

    test("needs no tenant on operator routes, and asks the database nothing", async () => {
      const { send, inputs } = setup({ operate });
      expect(await (await send("GET", "/operate", bearer(operatorKey))).json()).toEqual({
        caller: "operator",
        namedTenant: null,
      });
      expect(inputs).toEqual([]);
    });

    test("is nobody else: another key is proven first, then refused", async () => {
      const { send } = setup({ operate });
      expect((await send("GET", "/operate", bearer(key))).status).toBe(403);
      expect((await send("GET", "/operate", bearer(newApiKey(tenant).key))).status).toBe(401);
      expect((await send("GET", "/operate")).status).toBe(401);
    });

    test("acts on a tenant by naming it", async () => {
      const { send, inputs } = setup({ mine });
      const headers = { authorization: `Bearer ${operatorKey}`, "x-toolyard-tenant": tenant };
      expect(await (await send("GET", "/mine", { headers })).json()).toMatchObject({ caller: "operator", of: tenant });
      expect(inputs[0]?.principal).toMatchObject({ kind: "known", caller: { kind: "operator" } });
      expect((await send("GET", "/mine", bearer(operatorKey))).status).toBe(400);
    });
  });

  test("a route that admits by itself gets the tenant and the principal, unproven", async () => {
    const own = defineRoute({
      ...closed,
      method: "post",
      path: "/own",
      summary: "",
      scope: "chat",
      admission: "own",
      handler: (c, { presented }) => c.json(presented),
    });
    const { send, inputs } = setup({ own });
    const answer = await send("POST", "/own", bearer(key));
    expect(await answer.json()).toEqual({ tenant, principal: { kind: "key", hash } });
    expect(inputs).toEqual([]);
  });
});

describe("errors of a handler", () => {
  const failing = (thrown: unknown): RouteModule =>
    defineRoute({
      ...open,
      method: "get",
      path: "/fail",
      summary: "",
      handler: () => {
        throw thrown;
      },
    });

  test("an unknown one tells the client nothing and the log where it came from, but not its text", async () => {
    const { send, core } = setup({ failing: failing(new TypeError("password=hunter2")) });
    const answer = await send("GET", "/fail", { headers: { "x-request-id": "r-9" } });
    expect(answer.status).toBe(500);
    expect(await errorOf(answer)).toMatchObject({ code: "internal_error", request_id: "r-9" });
    const line = core.lines.find(({ message }) => message === "request failed");
    expect(line?.fields).toMatchObject({
      request_id: "r-9",
      route: "/fail",
      code: "internal_error",
      error: "TypeError",
    });
    expect(line?.fields["at"]).toContain("app.test.ts");
    expect(JSON.stringify(core.lines)).not.toContain("hunter2");
  });

  test("one of a service that is the operator's says to the log what is wrong with it", async () => {
    const full = "The database file cannot be read or written (SQLITE_FULL: no space is left for it); try again.";
    const cause = Object.assign(new Error("disk full at hunter2"), { code: "ERR_SQLITE_ERROR" });
    const { send, core } = setup({ failing: failing(new GatewayError("database_unavailable", full, { cause })) });
    expect((await send("GET", "/fail")).status).toBe(503);
    expect(core.lines.find(({ message }) => message === "request failed")?.fields).toMatchObject({
      code: "database_unavailable",
      reason: full,
      error: "Error ERR_SQLITE_ERROR",
    });
    expect(JSON.stringify(core.lines)).not.toContain("hunter2");
  });

  test("a thrown value that is no error is an internal error too", async () => {
    const { send } = setup({ failing: failing("just text") });
    expect((await send("GET", "/fail")).status).toBe(500);
  });

  test.each([
    ["a write has begun", new GatewayError("provider_unavailable", "x", { extra: { write_started: true } }), "false"],
    ["sending again cannot help", new GatewayError("tool_failed", "x"), "false"],
    ["sending again may help", new GatewayError("provider_unavailable", "x"), null],
    ["SDKs do not send it again anyway", new GatewayError("invalid_request", "x"), null],
  ])("SDKs are told not to retry where %s", async (_when, error, expected) => {
    const { send } = setup({ failing: failing(error) });
    expect((await send("GET", "/fail")).headers.get("x-should-retry")).toBe(expected);
  });

  test.each([
    ["as its code", {}, true],
    ["not where a write has begun", { write_started: true }, undefined],
  ])("a body says that it may be sent again %s", async (_when, extra, expected) => {
    const { send } = setup({ failing: failing(new GatewayError("provider_unavailable", "x", { extra })) });
    expect((await errorOf(await send("GET", "/fail")))["retryable"]).toBe(expected);
  });

  test("503 always says how long to wait", async () => {
    const { send } = setup({ failing: failing(new GatewayError("database_unavailable", "away")) });
    const answer = await send("GET", "/fail");
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
  });
});

describe("lists", () => {
  const items = ["a", "b", "c"];
  const list = defineRoute({
    ...open,
    method: "get",
    path: "/items",
    summary: "",
    list: true,
    request: { query: pageQuery.extend({ tag: z.string().optional() }) },
    responses: { 200: { description: "Items", schema: listSchema(z.object({ id: z.string() })) } },
    handler(c, { query }) {
      const page = toPageRequest(query);
      const data = items.slice(0, page.limit);
      return c.json({
        ...toList(
          { data, hasMore: data.length < items.length },
          (id) => ({ id }),
          ({ id }) => id,
        ),
        page,
      });
    },
  });

  test("have one shape and newest first", async () => {
    const { send } = setup({ list });
    expect(await (await send("GET", "/items?limit=2&after=z")).json()).toEqual({
      object: "list",
      data: [{ id: "a" }, { id: "b" }],
      has_more: true,
      first_id: "a",
      last_id: "b",
      page: { limit: 2, after: "z", order: "desc" },
    });
  });

  test("an empty one has no first and last", () => {
    expect(toList({ data: [], hasMore: false }, String, String)).toEqual({
      object: "list",
      data: [],
      has_more: false,
      first_id: null,
      last_id: null,
    });
  });

  test.each(["limit=0", "limit=101", "limit=1.5", "limit=", "limit=abc", "order=up", "after=", "page=2"])(
    "refuse ?%s by name",
    async (query) => {
      const { send } = setup({ list });
      const answer = await send("GET", `/items?${query}`);
      expect([answer.status, (await errorOf(answer)).param]).toEqual([400, query.split("=")[0]]);
    },
  );

  test.each([
    ["abc", "must be a number"],
    ["101", "is not valid: too big: expected number to be <=100"],
    ["0", "is not valid: too small: expected number to be >=1"],
    ["1.5", "is not valid: expected int, received number"],
  ])("say what is wrong with ?limit=%s", async (limit, problem) => {
    const { send } = setup({ list });
    const { message } = await errorOf(await send("GET", `/items?limit=${limit}`));
    expect(message).toBe(`Query field 'limit' ${problem}.`);
  });
});
