/** `api://` over real sockets: what is sent, who says who is calling, what is sent again, and what comes of answers. */
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { secretOf, startAuthorizationServer, type AuthorizationServer } from "../support/authorization-server.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { localCertificate, localKey } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50 } });
  backEnd = await startHttpStub();
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
});

const operation = (change: Json = {}): Json => ({ description: "An operation.", endpoint: "/do", ...change });

function addService(serviceId: string, tools: Json, config: Json = {}): Promise<Json> {
  return tenant.client.post("/v1/tool-services", {
    scheme: "api",
    service_id: serviceId,
    config: { base_url: `${backEnd.url}/api`, tools, ...config },
  });
}

const invoke = (uri: string, args: Json = {}, more: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more });

async function sent(uri: string, args: Json = {}): Promise<RecordedRequest> {
  const { status, text: answer } = await invoke(uri, args);
  expect(status, answer).toBe(200);
  const request = backEnd.requests.at(-1);
  if (request === undefined) throw new Error("nothing was sent");
  return request;
}

describe("requests", () => {
  test(`GET: arguments are the query of base_url and endpoint ${verifies("API-1")}`, async () => {
    await addService(
      "user-service",
      { get_profile: operation({ endpoint: "/profile?fixed=1" }) },
      { query: { lang: "zh" } },
    );
    const request = await sent("api://user-service/get_profile?method=GET", { userId: "U001", tags: ["a", "b"] });
    expect([request.method, request.target]).toEqual(["GET", "/api/profile?fixed=1&lang=zh&userId=U001&tags=a&tags=b"]);
    expect(request.body).toHaveLength(0);
  });

  test(`POST: arguments are a JSON body ${verifies("API-2")}`, async () => {
    await addService("oms-service", { sync_order: operation({ endpoint: "/orders", method: "POST" }) });
    const order = { id: "O001", lines: [{ sku: "a", qty: 2 }], note: "加急" };
    const request = await sent("api://oms-service/sync_order?method=POST", order);
    expect([request.method, request.target]).toEqual(["POST", "/api/orders"]);
    expect(request.headers["content-type"]).toBe("application/json");
    expect(JSON.parse(request.body.toString())).toEqual(order);
  });

  test(`an operation with several methods takes the one that the address names ${verifies("API-1", "API-2", "URI-4")}`, async () => {
    await addService("user-service", { profile: operation({ method: ["GET", "POST"] }) });
    expect((await sent("api://user-service/profile", { a: 1 })).target).toBe("/api/do?a=1");
    const posted = await sent("api://user-service/profile?method=post", { a: 1 });
    expect([posted.method, posted.body.toString()]).toEqual(["POST", '{"a":1}']);
    const { json } = await invoke("api://user-service/profile?method=DELETE");
    expect(json.error).toMatchObject({ code: "invalid_uri", param: "method" });
    expect(json.error.message).toContain("GET, POST");
    const { data } = await tenant.client.get("/v1/calls?limit=3");
    expect(data.map((call: Json) => call.effect)).toContain("write");
  });

  test(`path parameters stand in the endpoint, encoded ${verifies("API-4")}`, async () => {
    await addService("shop", { order: operation({ endpoint: "/users/{userId}/orders/{orderId}" }) });
    const request = await sent("api://shop/order", { userId: "U001", orderId: "O001" });
    expect(request.target).toBe("/api/users/U001/orders/O001");
    expect((await sent("api://shop/order", { userId: "a/b?c", orderId: "订单" })).target).toBe(
      "/api/users/a%2Fb%3Fc/orders/%E8%AE%A2%E5%8D%95",
    );
    const { json } = await invoke("api://shop/order", { userId: "..", orderId: "O001" });
    expect(json.error).toMatchObject({ code: "invalid_arguments", param: "userId" });
    expect((await invoke("api://shop/order", { userId: "U001" })).json.error.code).toBe("invalid_arguments");
    expect(backEnd.requests).toHaveLength(2);
  });

  test("headers of the service and of the operation are sent", async () => {
    await addService(
      "crm",
      { list: operation({ headers: { "X-Version": "3" } }) },
      { headers: { "x-version": "2", "X-Client": "toolyard" } },
    );
    const { headers } = await sent("api://crm/list");
    expect([headers["x-version"], headers["x-client"]]).toEqual(["3", "toolyard"]);
  });
});

describe(`who is calling ${verifies("API-3")}`, () => {
  test.each([
    ["apikey", { header: "X-API-Key", value: "secret-value" }, "x-api-key", "secret-value"],
    ["bearer", { token: "jwt_token" }, "authorization", "Bearer jwt_token"],
    ["basic", { username: "ann", password: "secret-word" }, "authorization", `Basic ${btoa("ann:secret-word")}`],
    [
      "mapping",
      {
        type: "api_key",
        mapping: [
          { source: "KEY", target: "X-One" },
          { source: "KEY", target: "X-Two" },
        ],
      },
      "x-two",
      "of-the-tenant",
    ],
  ])("auth_type %s with the fields of the specification", async (auth_type, auth_config, header, value) => {
    await tenant.putCredential("KEY", "of-the-tenant");
    await addService("crm", { list: operation() }, { auth_type, auth_config });
    expect((await sent("api://crm/list")).headers[header]).toBe(value);
  });

  test("a key may go into the query, where no answer and no error shows it", async () => {
    await addService(
      "crm",
      { list: operation() },
      { auth_type: "apikey", auth_config: { query: "key", value: "sentinel-q" } },
    );
    expect((await sent("api://crm/list")).target).toBe("/api/do?key=sentinel-q");
    backEnd.answer = ({ target }) => ({ status: 400, body: `bad: ${target}` });
    const { text: shown } = await invoke("api://crm/list");
    expect(shown).not.toContain("sentinel-q");
    const explained = await tenant.client.post("/v1/tools/explain", { uri: "api://crm/list", arguments: {} });
    expect(explained.request.url).toContain("key=***");
    expect(JSON.stringify(explained)).not.toContain("sentinel-q");
  });

  describe("with OAuth 2", () => {
    let authority: AuthorizationServer;
    beforeAll(async () => {
      authority = await startAuthorizationServer();
    });
    afterAll(() => authority.close());

    test("one token serves many calls, and is renewed where the API no longer takes it", async () => {
      authority.asks.length = 0;
      backEnd.answer = ({ headers }) => {
        const token = String(headers.authorization).replace("Bearer ", "");
        return authority.accepts(token) ? { body: "{}" } : { status: 401 };
      };
      const client = `client-${tenant.id}`;
      const auth_config = {
        client_id: client,
        client_secret: secretOf(client),
        token_url: `${authority.url}/token`,
        scope: "read",
      };
      await addService(
        "crm",
        { list: operation(), add: operation({ method: "POST" }) },
        { auth_type: "oauth2", auth_config },
      );
      const replies = await Promise.all(Array.from({ length: 5 }, () => invoke("api://crm/list")));
      expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
      expect(authority.asks).toMatchObject([{ form: { grant_type: "client_credentials", scope: "read" } }]);
      authority.withdrawTokens();
      expect((await invoke("api://crm/add")).status).toBe(200);
      expect(authority.asks).toHaveLength(2);
      const { credential } = (await tenant.client.get("/v1/tool-services")).data[0].config.auth_config.client_secret;
      expect(credential).toMatch(/^svc_/);
    });

    test("what the server refuses names the field of the configuration", async () => {
      const auth_config = { client_id: "x", client_secret: "wrong-secret", token_url: `${authority.url}/nothing` };
      const { id } = await addService("crm", { list: operation() }, { auth_type: "oauth2", auth_config });
      const { json } = await invoke("api://crm/list");
      expect(json.error.message).toContain("check 'auth_config.token_url'");
      expect(json.error.message).not.toContain("PUT /v1/credentials");
      expect(await tenant.client.post(`/v1/tool-services/${id}/test`)).toMatchObject({ ok: false });
      expect(backEnd.requests).toHaveLength(0);
    });
  });
});

test("a test of a connection that reaches nobody names the service", async () => {
  const { id } = await addService("crm", { list: operation() });
  await tenant.client.send("patch", `/v1/tool-services/${id}`, { config: { base_url: "http://127.0.0.1:9" } });
  const { ok, detail } = await tenant.client.post(`/v1/tool-services/${id}/test`);
  expect([ok, detail]).toEqual([false, expect.stringContaining("'api://crm'")]);
});

describe(`time limits and repetition ${verifies("API-5")}`, () => {
  test("a read that is not answered is sent as often as the address says, with growing pauses", async () => {
    backEnd.answer = () => ({ delayMs: 5_000 });
    await addService("crm", { list: operation() });
    const { json, status } = await invoke("api://crm/list?timeout=50&max-attempts=3");
    expect([status, json.error.code]).toEqual([504, "tool_timeout"]);
    expect(json.error.message).toContain("3 sends");
    expect(backEnd.requests).toHaveLength(3);
    const [first = 0, second = 0, third = 0] = backEnd.requests.map(({ at }) => at);
    expect(second - first).toBeGreaterThanOrEqual(150);
    expect(third - second).toBeGreaterThanOrEqual(250);
  });

  test("a second answer in time is the outcome", async () => {
    backEnd.answer = () => (backEnd.requests.length === 1 ? { status: 503 } : { body: '"late"' });
    await addService("crm", { list: operation() }, { max_attempts: 2 });
    expect((await invoke("api://crm/list")).json.content).toBe('"late"');
  });

  test("a write is sent once, unless the API knows its key or repeating it is harmless", async () => {
    backEnd.answer = (_request, response) => {
      response.destroy();
      return undefined;
    };
    await addService("crm", {
      add: operation({ method: "POST" }),
      put: operation({ method: "PUT" }),
      keyed: operation({ method: "POST", idempotency_header: "Idempotency-Key" }),
    });
    const outcomeOf = async (tool: string): Promise<unknown> => {
      backEnd.requests.length = 0;
      const { json } = await invoke(`api://crm/${tool}?max-attempts=3`);
      return [json.error.code, backEnd.requests.length];
    };
    expect(await outcomeOf("add")).toEqual(["outcome_unknown", 1]);
    expect(await outcomeOf("put")).toEqual(["outcome_unknown", 3]);
    expect(await outcomeOf("keyed")).toEqual(["outcome_unknown", 3]);
    expect(new Set(backEnd.requests.map(({ headers }) => headers["idempotency-key"])).size).toBe(1);
  });
});

describe(`answers ${verifies("API-6")}`, () => {
  test.each([400, 404, 409, 422, 500, 503])("%i is an error with status and body", async (status) => {
    backEnd.answer = () => ({ status, body: '{"reason":"库存不足"}' });
    await addService("crm", { list: operation() });
    const { json, status: answered } = await invoke("api://crm/list");
    expect([answered, json.error.code, json.error.type, json.error.status]).toEqual([
      502,
      "tool_failed",
      "tool_execution_error",
      status,
    ]);
    expect(json.error.message).toContain("库存不足");
  });

  test(`an unchanged read is not sent twice over, and a write makes it void ${verifies("CHAT-14")}`, async () => {
    backEnd.answer = ({ headers, method }) =>
      method === "GET" && headers["if-none-match"] === '"1"'
        ? { status: 304 }
        : { headers: { etag: '"1"' }, body: '{"n":1}' };
    await addService("crm", { list: operation(), add: operation({ method: "POST" }) });
    for (const tool of ["list", "list", "add", "list"])
      expect((await invoke(`api://crm/${tool}`)).json.content).toBe('{"n":1}');
    expect(backEnd.requests.map(({ headers }) => headers["if-none-match"])).toEqual([
      undefined,
      '"1"',
      undefined,
      undefined,
    ]);
  });
});

describe(`a breaker ${verifies("SVC-4")}`, () => {
  test("leaves a failing API alone, lets one call through after a while, and closes when it works", async () => {
    backEnd.answer = () => ({ status: 500 });
    await addService("crm", { list: operation() }, { breaker: { failures: 2, open_ms: 300 } });
    for (const code of ["tool_failed", "tool_failed", "circuit_open"]) {
      expect((await invoke("api://crm/list")).json.error.code).toBe(code);
    }
    const open = await invoke("api://crm/list");
    expect(open.status).toBe(503);
    expect(open.json.error.retry_after_ms).toBeGreaterThan(0);
    expect(open.headers.get("retry-after")).toBe("1");
    expect(backEnd.requests).toHaveLength(2);
    await new Promise((done) => setTimeout(done, 350));
    expect((await invoke("api://crm/list")).json.error.code).toBe("tool_failed");
    expect((await invoke("api://crm/list")).json.error.code).toBe("circuit_open");
    backEnd.answer = () => ({ body: '"well"' });
    await new Promise((done) => setTimeout(done, 350));
    for (let call = 0; call < 3; call += 1) expect((await invoke("api://crm/list")).json.content).toBe('"well"');
  });

  test("answers with the fallback, saying that it is one", async () => {
    backEnd.answer = () => ({ delayMs: 5_000 });
    const breaker = { failures: 1, open_ms: 60_000, fallback: { customers: [] } };
    await addService("crm", { list: operation() }, { breaker });
    expect((await invoke("api://crm/list?timeout=50")).json.error.code).toBe("tool_timeout");
    const { json } = await invoke("api://crm/list");
    expect(JSON.parse(json.content)).toEqual({ customers: [], degraded: true });
  });

  test("is not opened by answers that say no, nor by a changed service", async () => {
    backEnd.answer = () => ({ status: 404 });
    const { id } = await addService("crm", { list: operation() }, { breaker: { failures: 1 } });
    for (let call = 0; call < 3; call += 1) expect((await invoke("api://crm/list")).json.error.status).toBe(404);
    backEnd.answer = () => ({ status: 500 });
    await invoke("api://crm/list");
    expect((await invoke("api://crm/list")).json.error.code).toBe("circuit_open");
    await tenant.client.expect("patch", `/v1/tool-services/${id}`, { config: { timeout_ms: 1_000 } });
    expect((await invoke("api://crm/list")).json.error.code).toBe("tool_failed");
  });
});

describe(`TLS ${verifies("API-3", "SVC-2")}`, () => {
  let server: Server;
  let url: string;
  const subjects: unknown[] = [];
  beforeAll(async () => {
    const options = {
      cert: localCertificate,
      key: localKey,
      ca: localCertificate,
      requestCert: true,
      rejectUnauthorized: false,
    };
    server = createServer(options, (request, response) => {
      const socket = request.socket as TLSSocket;
      subjects.push(socket.authorized ? socket.getPeerCertificate().subject.CN : null);
      response.setHeader("content-type", "application/json").end('"secure"');
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  });

  test("trusts the service's own authority, and only for this service", async () => {
    await addService("strict", { list: operation() }, { base_url: url });
    await addService("trusting", { list: operation() }, { base_url: url, tls: { ca: localCertificate } });
    expect((await invoke("api://trusting/list")).json.content).toBe('"secure"');
    expect((await invoke("api://strict/list")).json.error.code).toBe("tool_unreachable");
    expect(subjects.at(-1)).toBeNull();
  });

  test("shows the service's certificate, whose key is a secret", async () => {
    const tls = { ca: localCertificate, cert: localCertificate, key: localKey };
    const made = await addService("mutual", { list: operation() }, { base_url: url, tls });
    expect(made.config.tls.key).toEqual({ credential: expect.stringMatching(/^svc_/) });
    expect((await invoke("api://mutual/list")).json.content).toBe('"secure"');
    expect(subjects.at(-1)).toBe("localhost");
    await addService(
      "again",
      { list: operation() },
      { base_url: url, tls: { ...tls, key: { credential: "TLS_KEY" } } },
    );
    expect((await invoke("api://again/list")).json.error).toMatchObject({
      code: "credential_missing",
      param: "TLS_KEY",
    });
    for (const key of [localKey.replaceAll("\n", "\\n"), localKey]) {
      await tenant.putCredential("TLS_KEY", key);
      expect((await invoke("api://again/list")).json.content).toBe('"secure"');
    }
    expect(subjects.at(-1)).toBe("localhost");
  });

  test.each([
    ["config.tls.ca", { ca: "no certificate" }],
    ["config.tls.cert", { cert: localCertificate }],
    ["config.tls.colour", { colour: "red" }],
  ])("is refused naming %s", async (param, tls) => {
    const body = { scheme: "api", service_id: "x", config: { base_url: url, tls } };
    const { json } = await tenant.client.send("post", "/v1/tool-services", body);
    expect(json.error).toMatchObject({ code: "invalid_definition", param });
  });
});

describe(`tools of services in a chat ${verifies("CHAT-1", "URI-1")}`, () => {
  let llm: LlmStub;
  beforeAll(async () => {
    llm = await startLlmStub();
  });
  afterAll(() => llm.close());
  beforeEach(async () => {
    llm.requests.length = 0;
    await tenant.addProvider(llm.url);
  });

  const chat = (body: Json = {}): Promise<Json> =>
    tenant.client.post("/v1/chat/completions", {
      model: "stub-1",
      messages: [{ role: "user", content: "hi" }],
      ...body,
    });
  const offered = (at: number): readonly string[] =>
    ((llm.requests[at]?.["tools"] ?? []) as Json[]).map((tool) => tool.function.name);

  test("are offered under stable names, run, and their results go back", async () => {
    await addService("crm", { customer_get: operation({ endpoint: "/customers/{id}" }), 查询: operation() });
    llm.script(calls({ name: "api_crm__customer_get", arguments: { id: "C1" } }), text("found"));
    const answer = await chat();
    expect(answer.choices[0].message.content).toBe("found");
    expect(backEnd.requests.map(({ target }) => target)).toEqual(["/api/customers/C1"]);
    expect(offered(0)).toContain("api_crm__customer_get");
    expect(offered(0).every((name) => /^[a-zA-Z0-9_-]{1,64}$/.test(name))).toBe(true);
    const result = ((llm.requests[1]?.["messages"] ?? []) as Json[]).at(-1);
    expect(result).toMatchObject({ role: "tool", content: '{"ok":true}' });
    expect(JSON.stringify(llm.requests)).not.toContain(backEnd.url);
  });

  test("of a disabled service are not offered and not run", async () => {
    const { id } = await addService("crm", { list: operation() });
    await tenant.client.post(`/v1/tool-services/${id}/disable`);
    llm.script(text("nothing to call"));
    await chat();
    expect(offered(0)).not.toContain("api_crm__list");
  });
});

describe(`calls of services are calls like all others ${verifies("CHAT-7", "CHAT-13")}`, () => {
  test("sensitive ones wait for approval, and run with the method that was asked for", async () => {
    await addService("crm", { erase: operation({ method: ["GET", "DELETE"], sensitive: true }) });
    const { json, status } = await invoke("api://crm/erase?method=DELETE", { id: "7" });
    expect([status, json.status]).toEqual([202, "input_required"]);
    expect(backEnd.requests).toHaveLength(0);
    await tenant.client.post(`/v1/calls/${json.id}/approve`);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${json.id}`)).state).toBe("completed");
    expect(backEnd.requests.map(({ method, target }) => `${method} ${target}`)).toEqual(["DELETE /api/do?id=7"]);
  });

  test("late ones run on a worker, with the configuration of then", async () => {
    await addService("crm", { list: operation({ method: ["GET", "POST"] }) });
    const { json, status } = await invoke("api://crm/list?async=true&method=POST", { a: 1 });
    expect([status, json.status]).toEqual([202, "queued"]);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${json.id}`)).state).toBe("completed");
    expect(backEnd.requests[0]).toMatchObject({ method: "POST" });
    const replayed = await tenant.client.post(`/v1/calls/${json.id}/replay`, { confirm: true });
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${replayed.id}`)).state).toBe("completed");
    expect(backEnd.requests.map(({ method }) => method)).toEqual(["POST", "POST"]);
  });

  test("are kept with their address, and without what was secret", async () => {
    await addService("crm", { list: operation() }, { auth_type: "bearer", auth_config: { token: "sentinel-token" } });
    await invoke("api://crm/list", { q: "x" });
    const { data } = await tenant.client.get("/v1/calls");
    expect(data[0]).toMatchObject({ uri: "api://crm/list", tool: "api_crm__list", effect: "read", state: "completed" });
    expect(JSON.stringify(data)).not.toContain("sentinel-token");
  });
});

describe(`an OpenAPI document ${verifies("API-1", "BLIND-1")}`, () => {
  const document = (change: Json = {}, more: Json = {}): Json => ({
    openapi: "3.1.0",
    info: { title: "Shop", version: "1" },
    servers: [{ url: "https://elsewhere.example.com/v9" }],
    paths: {
      "/orders/{orderId}": {
        get: {
          operationId: "getOrder",
          summary: "One order",
          parameters: [{ name: "orderId", in: "path", required: true, schema: { type: "string" } }],
          ...change,
        },
      },
      "/orders": {
        post: {
          operationId: "createOrder",
          requestBody: {
            required: true,
            content: { "application/json": { schema: { type: "object", properties: { sku: { type: "string" } } } } },
          },
        },
      },
      "/other": { servers: [{ url: "https://thief.example.com" }], get: { operationId: "other" } },
      ...more,
    },
  });
  const actions = ({ tools }: Json): Json =>
    Object.fromEntries(tools.map((tool: Json) => [tool.operation, [tool.action, tool.tool]]));

  test("becomes tools at the service's own address, with its own credentials", async () => {
    const { id } = await addService("shop", {}, { auth_type: "bearer", auth_config: { token: "shop-token" } });
    const path = `/v1/tool-services/${id}/import`;
    const dry = await tenant.client.post(path, { openapi: document(), dry_run: true });
    expect(dry).toMatchObject({ dry_run: true, service: { version: 1 }, document: { title: "Shop" } });
    const done = await tenant.client.post(path, { openapi: document() });
    expect(actions(done)).toEqual({
      "GET /orders/{orderId}": ["added", "getOrder"],
      "POST /orders": ["added", "createOrder"],
      "GET /other": ["skipped", null],
    });
    const got = await sent("api://shop/getOrder", { orderId: "O/1" });
    expect([got.method, got.target, got.headers["authorization"]]).toEqual([
      "GET",
      "/api/orders/O%2F1",
      "Bearer shop-token",
    ]);
    const made = await sent("api://shop/createOrder", { sku: "a" });
    expect([made.method, made.body.toString()]).toEqual(["POST", '{"sku":"a"}']);
  });

  test("has operations that cannot be the service's left out, each with its reason", async () => {
    const { id } = await addService("shop", {});
    const paths = { "//raw": { get: { operationId: "raw" } }, "/made": { get: { operationId: "made" } } };
    const { tools } = await tenant.client.post(`/v1/tool-services/${id}/import`, { openapi: { ...document(), paths } });
    expect(tools.map(({ operation, action, reason }: Json) => [operation, action, reason])).toEqual([
      ["GET //raw", "skipped", expect.stringMatching(/^its 'endpoint' must start with one '\/'/)],
      ["GET /made", "added", null],
    ]);
  });

  test("asks nobody for a key that the service sends, and says which keys models are asked for", async () => {
    const apikey = { auth_type: "apikey", auth_config: { header: "X-Api-Key", value: "shop-key-1234" } };
    const { id } = await addService("shop", {}, apikey);
    const key = (name: string, place: string, required = true): Json => ({
      name,
      in: place,
      required,
      schema: { type: "string" },
    });
    const parameters = [key("x-api-key", "header"), key("user_token", "query"), key("X-Trace-Token", "header", false)];
    const paths = { "/state": { get: { operationId: "state", parameters } } };
    const { tools } = await tenant.client.post(`/v1/tool-services/${id}/import`, { openapi: { ...document(), paths } });
    expect(tools[0].warnings).toEqual([
      "Parameter 'user_token' is for a key, and models are asked for it; 'auth_config' can send it.",
      "Parameter 'X-Trace-Token' is for a key, which 'auth_config' sends; it is left out.",
    ]);
    const { target, headers } = await sent("api://shop/state", { user_token: "u" });
    expect([target, headers["x-api-key"]]).toEqual(["/api/state?user_token=u", "shop-key-1234"]);
  });

  test("may call its operations what every object has", async () => {
    const { id } = await addService("shop", {});
    const paths = { "/made": { get: { operationId: "constructor" } }, "/text": { get: { operationId: "toString" } } };
    const done = await tenant.client.post(`/v1/tool-services/${id}/import`, { openapi: { ...document(), paths } });
    expect(actions(done)).toEqual({ "GET /made": ["added", "constructor"], "GET /text": ["added", "toString"] });
    expect((await sent("api://shop/constructor", {})).target).toBe("/api/made");
  });

  test("imported again changes what it changed, and keeps what was decided here", async () => {
    const { id } = await addService("shop", { own: operation() });
    const path = `/v1/tool-services/${id}/import`;
    await tenant.client.post(path, { openapi: document() });
    await tenant.client.expect("patch", `/v1/tool-services/${id}`, {
      config: { tools: { getOrder: { timeout_ms: 123 } } },
    });
    const same = await tenant.client.post(path, { openapi: document() });
    expect(actions(same)).toMatchObject({ "GET /orders/{orderId}": ["unchanged", "getOrder"] });
    expect(same.service.version).toBe(3);
    const changed = await tenant.client.post(path, {
      openapi: document({ operationId: "orderById", summary: "An order" }),
    });
    expect(actions(changed)).toMatchObject({ "GET /orders/{orderId}": ["changed", "getOrder"] });
    expect(changed.service.config.tools).toMatchObject({ own: {}, getOrder: { title: "An order", timeout_ms: 123 } });
    const gone = { ...document(), paths: {} };
    expect(actions(await tenant.client.post(path, { openapi: gone })).getOrder).toBeUndefined();
    const removed = await tenant.client.post(path, { openapi: gone, remove_missing: true });
    expect(Object.keys(removed.service.config.tools)).toEqual(["own"]);
  });
});
