/** Tool services through their routes: configured, changed, referenced, deleted, and called by URI (CFG-1 to CFG-4). */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";
import { findSecrets, filesBelow } from "../support/written-secrets.ts";

let gateway: Gateway;
let backEnd: HttpStub;

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub(({ target }) => ({ body: JSON.stringify({ target }) }));
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});

const listing = { description: "Lists customers.", endpoint: "/customers" };

function crm(change: Json = {}, config: Json = {}): Json {
  return {
    scheme: "api",
    service_id: "crm",
    config: { base_url: `${backEnd.url}/v1`, tools: { customer_list: listing }, ...config },
    ...change,
  };
}

const create = (client: Client, change: Json = {}, config: Json = {}): Promise<Json> =>
  client.post("/v1/tool-services", crm(change, config));

const invoke = (client: Client, uri: string, args: Json = {}): Promise<Reply> =>
  client.send("post", "/v1/tools/invoke", { uri, arguments: args });

async function invoked(client: Client, uri: string, args: Json = {}): Promise<Json> {
  const { json, status, text } = await invoke(client, uri, args);
  if (status !== 200) throw new Error(text);
  return JSON.parse(json.content);
}

async function refusal(request: Promise<Reply>): Promise<Json> {
  const { status, json } = await request;
  return { status, ...json.error };
}

describe(`a tool service ${verifies("CFG-1", "URI-1")}`, () => {
  test("is created, read back and usable at once", async () => {
    const { client } = await gateway.newTenant();
    const made = await create(client, { display_name: "客户管理" });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^svc_/),
      object: "tool_service",
      uri: "api://crm",
      display_name: "客户管理",
      enabled: true,
      version: 1,
      config: { base_url: `${backEnd.url}/v1`, auth_type: "none", tools: { customer_list: { method: "GET" } } },
    });
    expect(await client.get(`/v1/tool-services/${made.id}`)).toEqual(made);
    expect((await client.get("/v1/tool-services?scheme=api")).data).toEqual([made]);
    expect(await invoked(client, "api://crm/customer_list?timeout=5000", { city: "北京" })).toEqual({
      target: "/v1/customers?city=%E5%8C%97%E4%BA%AC",
    });
  });

  test("keeps the case of its id, and takes letters of all scripts", async () => {
    const { client } = await gateway.newTenant();
    await create(client, { service_id: "CRM-Service" });
    await create(client, { service_id: "订单服务" }, { tools: { 查询: listing } });
    expect((await invoke(client, "API://CRM-Service/customer_list")).status).toBe(200);
    expect((await invoke(client, "api://crm-service/customer_list")).json.error.code).toBe("tool_not_found");
    expect((await invoke(client, "api://订单服务/查询")).status).toBe(200);
    expect((await invoke(client, `api://${encodeURIComponent("订单服务")}/${encodeURIComponent("查询")}`)).status).toBe(
      200,
    );
  });

  test.each([
    ["config.base_url", { config: { tools: {} } }],
    ["config.base_url", { config: { base_url: "ftp://crm.example.com" } }],
    ["config.base_url", { config: { base_url: "https://user:pass@crm.example.com" } }],
    ["config.colour", { config: { base_url: "https://crm.example.com", colour: "red" } }],
    ["config.auth_type", { config: { base_url: "https://crm.example.com", auth_type: "magic" } }],
    [
      "config.auth_config.token",
      { config: { base_url: "https://crm.example.com", auth_type: "bearer", auth_config: {} } },
    ],
    [
      "config.auth_config.secret",
      {
        config: { base_url: "https://crm.example.com", auth_type: "bearer", auth_config: { token: "t", secret: "s" } },
      },
    ],
    ["config.tools.x y", { config: { base_url: "https://crm.example.com", tools: { "x y": listing } } }],
    [
      "config.tools.list.endpoint",
      { config: { base_url: "https://crm.example.com", tools: { list: { ...listing, endpoint: "../x" } } } },
    ],
    [
      "config.tools.list.parameters.type",
      {
        config: { base_url: "https://crm.example.com", tools: { list: { ...listing, parameters: { type: "array" } } } },
      },
    ],
    [
      "config.tools.list.endpoint",
      {
        config: {
          base_url: "https://crm.example.com",
          tools: { list: { ...listing, endpoint: "/x/{id}", parameters: { type: "object", properties: {} } } },
        },
      },
    ],
    ["config.base_url", { config: { base_url: "http://10.0.0.1" } }],
    ["service_id", { service_id: "a/b" }],
    ["scheme", { scheme: "gopher" }],
    ["scheme", { scheme: "plugin" }],
  ])("is refused naming %s", async (field, change) => {
    const { client } = await gateway.newTenant();
    const error = await refusal(client.send("post", "/v1/tool-services", crm(change)));
    expect(error).toMatchObject({ param: field });
    expect(error.status).toBeGreaterThanOrEqual(400);
    expect(error.status).toBeLessThan(500);
    expect(error.code === "egress_denied" || error.message.includes(field)).toBe(true);
    expect((await client.get("/v1/tool-services")).data).toEqual([]);
  });

  test("is told how long an id may be where that is what is wrong with it", async () => {
    const { client } = await gateway.newTenant();
    const config = { base_url: "https://crm.example.com", tools: { ["a".repeat(65)]: listing } };
    const { code, message } = await refusal(client.send("post", "/v1/tool-services", crm({ config })));
    expect([code, message]).toEqual(["invalid_definition", expect.stringContaining("1 to 64 letters")]);
  });

  test("has an id of its own within its scheme", async () => {
    const { client } = await gateway.newTenant();
    await create(client);
    expect(await refusal(client.send("post", "/v1/tool-services", crm()))).toMatchObject({
      status: 409,
      code: "conflict",
      param: "service_id",
    });
  });
});

describe(`tools of services ${verifies("URI-1", "URI-4", "CHAT-11")}`, () => {
  let tenant: TestTenant;
  let service: Json;
  beforeAll(async () => {
    tenant = await gateway.newTenant();
    service = await create(
      tenant.client,
      {},
      { tools: { customer_list: { ...listing, title: "Customers" }, "orders/open": listing } },
    );
  });

  test("stand in the catalogue beside plugins, with names that models can call", async () => {
    const { data } = await tenant.client.get("/v1/tools");
    const tools = new Map(data.map((tool: Json) => [tool.uri, tool]));
    expect(tools.get("api://crm/customer_list")).toMatchObject({
      name: "api_crm__customer_list",
      alias: "api_crm__customer_list",
      kind: "SERVICE",
      title: "Customers",
      effect: "read",
    });
    const nested = tools.get("api://crm/orders/open") as Json;
    expect(nested.name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    const { status } = await tenant.client.send("post", "/v1/tools/invoke", { name: nested.name, arguments: {} });
    expect(status).toBe(200);
  });

  test("are listed by service with their parameters", async () => {
    const { data, discovered_at } = await tenant.client.get(`/v1/tool-services/${service.id}/tools`);
    expect(data.map((tool: Json) => tool.uri)).toEqual(["api://crm/customer_list", "api://crm/orders/open"]);
    expect(data[0].parameters).toEqual({ type: "object", properties: {} });
    expect(discovered_at).toBeNull();
  });

  test.each([
    ["colour=red", "colour"],
    ["delay=5", "delay"],
    ["version=2", "version"],
    ["timeout=abc", "timeout"],
    ["max-attempts=0", "max-attempts"],
    ["max-attempts=99", "max-attempts"],
    ["timeout=999999999", "timeout"],
    ["method=DELETE", "method"],
    ["timeout=1&timeout=2", "timeout"],
  ])("refuse the option %s by name", async (query, option) => {
    const before = backEnd.requests.length;
    const error = await refusal(invoke(tenant.client, `api://crm/customer_list?${query}`));
    expect(error).toMatchObject({ status: 400, code: "invalid_uri", param: option });
    expect(backEnd.requests).toHaveLength(before);
  });

  test("a time limit is refused naming the one that holds for the tool", async () => {
    const { client } = await gateway.newTenant({ tool_timeout_ms: 1_000 });
    const tools = { quick: listing, slow: { ...listing, timeout_ms: 5_000 } };
    await create(client, {}, { tools });
    const messageOf = async (uri: string): Promise<string> => (await refusal(invoke(client, uri))).message;
    expect(await messageOf("api://crm/quick?timeout=1001")).toContain("cap of 1000 ms ('tool_timeout_ms')");
    expect(await messageOf("api://crm/slow?timeout=5001")).toContain("above the 5000 ms that 'api_crm__slow' may take");
    expect((await invoke(client, "api://crm/slow?timeout=5000")).status).toBe(200);
  });

  test("unknown options are answered with the known ones", async () => {
    const { message } = await refusal(invoke(tenant.client, "api://crm/customer_list?delay=5"));
    expect(message).toContain("known: timeout, max-attempts, async, method");
  });

  test("plugins, native tools and agents refuse options that would mean nothing to them", async () => {
    const { client, addPlugin } = await gateway.newTenant();
    await addPlugin({
      schema_version: "v1",
      name: "lookup",
      description: "d",
      parameters: { type: "object", properties: {} },
      execution: { method: "GET", base_url: backEnd.url, param_placement: "query" },
    });
    await client.post("/v1/agents", { name: "helper", description: "d", instructions: "i" });
    const before = backEnd.requests.length;
    for (const target of ["plugin://lookup?delay=60000", "plugin://lookup?version=2", "native://fetch?delay=60000"]) {
      expect(await refusal(invoke(client, target))).toMatchObject({ status: 400, code: "invalid_uri" });
    }
    const agent = "agent://helper?method=GET";
    expect((await refusal(invoke(client, agent, { prompt: "x" }))).message).toContain(
      "known: timeout, max-attempts, async.",
    );
    expect(backEnd.requests).toHaveLength(before);
    expect((await invoke(client, "plugin://lookup?timeout=5000&max-attempts=2&method=GET")).status).toBe(200);
  });

  test("say to those who manage the tenant what is missing, and to others nothing", async () => {
    const error = await refusal(invoke(tenant.client, "api://erp/customer_list"));
    expect(error).toMatchObject({ status: 404, code: "tool_not_found" });
    expect(error.message).toContain("there is no api service 'erp'");
    const { message } = await refusal(invoke(tenant.client, "api://crm/nothing?timeout=5000"));
    expect(message).toContain("Tool 'api://crm/nothing' not found: the api service 'crm' has no tool 'nothing'");
    const bound = await tenant.newKey({ scopes: ["tools"], tools: ["api://crm/customer_list"] });
    const [known, unknown] = await Promise.all(
      ["api://crm/orders/open", "api://erp/x"].map((uri) => refusal(invoke(bound.client, uri))),
    );
    expect(known).toMatchObject({ status: 404, message: "Tool 'api://crm/orders/open' not found" });
    expect(unknown).toMatchObject({ status: 404, message: "Tool 'api://erp/x' not found" });
    expect((await invoke(bound.client, "api://crm/customer_list")).status).toBe(200);
  });

  test("explain shows the request without sending it", async () => {
    const before = backEnd.requests.length;
    const explained = await tenant.client.post("/v1/tools/explain", {
      uri: "api://crm/customer_list?max-attempts=2",
      arguments: { q: "x" },
    });
    expect(explained).toMatchObject({
      max_attempts: 2,
      request: { method: "GET", url: `${backEnd.url}/v1/customers?q=x` },
    });
    expect(backEnd.requests).toHaveLength(before);
  });

  test("no plugin takes the name of one", async () => {
    const plugin = {
      schema_version: "v1",
      name: "api_crm__customer_list",
      description: "x",
      parameters: { type: "object", properties: {} },
      execution: { method: "GET", base_url: backEnd.url, param_placement: "query" },
    };
    expect(await refusal(tenant.client.send("post", "/v1/plugins", plugin))).toMatchObject({
      code: "conflict",
      param: "name",
    });
  });
});

describe(`secrets of services ${verifies("API-3", "CFG-1")}`, () => {
  test("become credentials: what is read back are references, and the value is nowhere", async () => {
    const tenant = await gateway.newTenant();
    const secret = `sentinel-${newId("request")}`;
    const made = await create(
      tenant.client,
      {},
      { auth_type: "apikey", auth_config: { header: "X-API-Key", value: secret } },
    );
    const { credential } = made.config.auth_config.value;
    expect(credential).toMatch(new RegExp(`^${made.id}\\.auth_config\\.value\\.`));
    await invoked(tenant.client, "api://crm/customer_list");
    expect(backEnd.requests.at(-1)?.headers["x-api-key"]).toBe(secret);
    expect((await tenant.client.get("/v1/credentials")).data).toMatchObject([{ name: credential, version: 1 }]);
    const { data } = await tenant.client.get("/v1/tools");
    expect(JSON.stringify([made, data, gateway.logged])).not.toContain(secret);
    expect(findSecrets(await filesBelow(gateway.dataDir), [secret])).toEqual([]);
  });

  test("may be references to credentials, which can be rotated without touching the service", async () => {
    const tenant = await gateway.newTenant();
    await create(tenant.client, {}, { auth_type: "bearer", auth_config: { token: { credential: "CRM_TOKEN" } } });
    expect(await refusal(invoke(tenant.client, "api://crm/customer_list"))).toMatchObject({
      status: 400,
      code: "credential_missing",
      param: "CRM_TOKEN",
    });
    await tenant.putCredential("CRM_TOKEN", "first-value");
    await invoked(tenant.client, "api://crm/customer_list");
    await tenant.putCredential("CRM_TOKEN", "second-value");
    await invoked(tenant.client, "api://crm/customer_list");
    const sent = backEnd.requests.slice(-2).map(({ headers }) => headers["authorization"]);
    expect(sent).toEqual(["Bearer first-value", "Bearer second-value"]);
  });

  test.each([
    ["config.headers.Authorization", { headers: { Authorization: "Bearer abc" } }],
    ["config.headers.X-Api-Key", { headers: { "X-Api-Key": "abc" } }],
    ["config.query.access_token", { query: { access_token: "abc" } }],
    ["config.tools.list.headers.Cookie", { tools: { list: { ...listing, headers: { Cookie: "sid=1" } } } }],
    ["config.base_url", { base_url: "https://crm.example.com/?api_key=abc" }],
    ["config.base_url", { base_url: "https://me:secret@crm.example.com/" }],
  ])("anywhere else are refused naming %s and where they belong", async (field, config) => {
    const { client } = await gateway.newTenant();
    const error = await refusal(client.send("post", "/v1/tool-services", crm({}, config)));
    expect(error).toMatchObject({ status: 400, code: "invalid_definition", param: field });
    expect(error.message).toContain("PUT /v1/credentials/{name}");
    expect(error.message).not.toContain("abc");
  });

  test("and other faults are refused all at once, with the names that are meant", async () => {
    const { client } = await gateway.newTenant();
    const config = { base_url: undefined, baseurl: "https://crm.example.com", auth_type: "bearer", auth_config: {} };
    const error = await refusal(client.send("post", "/v1/tool-services", crm({}, config)));
    expect(error).toMatchObject({ status: 400, code: "invalid_definition", param: "config.baseurl" });
    expect(error.message).toContain("'base_url' may be meant");
    expect(error.problems.map(({ param }: Json) => param)).toEqual(["config.baseurl", "config.base_url"]);
  });

  test("a new literal replaces the old one, and goes with its service", async () => {
    const { client } = await gateway.newTenant();
    const made = await create(client, {}, { auth_type: "bearer", auth_config: { token: "one-value" } });
    const changed = await client.expect("patch", `/v1/tool-services/${made.id}`, {
      config: { auth_config: { token: "two-value" } },
    });
    expect(changed.config.auth_config.token.credential).not.toBe(made.config.auth_config.token.credential);
    await invoked(client, "api://crm/customer_list");
    expect(backEnd.requests.at(-1)?.headers["authorization"]).toBe("Bearer two-value");
    expect((await client.get("/v1/credentials")).data).toHaveLength(1);
    await client.expect("delete", `/v1/tool-services/${made.id}`);
    expect((await client.get("/v1/credentials")).data).toEqual([]);
  });

  test("of a service that is refused are not kept", async () => {
    const { client } = await gateway.newTenant();
    await create(client);
    const second = crm({}, { auth_type: "bearer", auth_config: { token: "lost-value" } });
    expect((await client.send("post", "/v1/tool-services", second)).status).toBe(409);
    expect((await client.get("/v1/credentials")).data).toEqual([]);
  });
});

describe(`changing a service ${verifies("CFG-2", "CFG-3")}`, () => {
  test("disabled, it refuses calls and offers no tools, until it is enabled again", async () => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client);
    expect(await client.post(`/v1/tool-services/${id}/disable`)).toMatchObject({ enabled: false, version: 2 });
    expect(await refusal(invoke(client, "api://crm/customer_list"))).toMatchObject({
      status: 403,
      code: "service_disabled",
      message: expect.stringMatching(new RegExp(`api://crm.* POST /v1/tool-services/${id}/enable`)),
    });
    const names = (await client.get("/v1/tools")).data.map((tool: Json) => tool.name);
    expect(names).not.toContain("api_crm__customer_list");
    expect(await client.post(`/v1/tool-services/${id}/enable`)).toMatchObject({ enabled: true, version: 3 });
    expect((await invoke(client, "api://crm/customer_list")).status).toBe(200);
  });

  test("is refused where it is based on another version", async () => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client);
    const path = `/v1/tool-services/${id}`;
    const first = await client.send("patch", path, { display_name: "A" }, { headers: { "if-match": '"1"' } });
    expect([first.status, first.headers.get("etag"), first.json.version]).toEqual([200, '"2"', 2]);
    const late = { headers: { "if-match": '"1"' } };
    expect(await refusal(client.send("patch", path, { display_name: "B" }, late))).toMatchObject({
      status: 412,
      code: "version_conflict",
      version: 2,
    });
    expect(await refusal(client.send("patch", path, { display_name: "B", version: 1 }))).toMatchObject({ status: 412 });
    expect(await refusal(client.send("patch", path, {}, { headers: { "if-match": "x" } }))).toMatchObject({
      param: "if-match",
    });
    expect(await client.get(path)).toMatchObject({ display_name: "A", version: 2 });
  });

  test("does not live on the secret of another, whose configuration it was copied from", async () => {
    const { client } = await gateway.newTenant();
    const made = await create(client, {}, { auth_type: "bearer", auth_config: { token: "plain-token-1" } });
    const copied = { ...crm({ service_id: "copy" }), config: made.config };
    const error = await refusal(client.send("post", "/v1/tool-services", copied));
    expect(error).toMatchObject({ code: "invalid_definition", param: "config.auth_config.token.credential" });
    expect(error.message).toContain("PUT /v1/credentials");
    expect(error.message).toContain("of another service's own");
    const path = `/v1/tool-services/${made.id}`;
    expect((await client.send("patch", path, { config: made.config })).status).toBe(200);
    expect((await client.send("patch", path, { config: { auth_config: { token: "plain-token-2" } } })).status).toBe(
      200,
    );
    const late = await refusal(client.send("patch", path, { config: made.config }));
    expect(late).toMatchObject({ code: "invalid_definition", param: "config.auth_config.token.credential" });
    expect(late.message).toContain("this service has had");
  });

  test("says of what was there and does not fit any more how it goes", async () => {
    const tenant = await gateway.newTenant();
    const { id } = await create(tenant.client, {}, { auth_type: "bearer", auth_config: { token: "plain-token-1" } });
    const change = (auth_config: Json): Promise<Reply> =>
      tenant.client.send("patch", `/v1/tool-services/${id}`, { config: { auth_type: "apikey", auth_config } });
    const key = { header: "X-Key", value: "plain-key-1" };
    const error = await refusal(change(key));
    expect(error).toMatchObject({ code: "invalid_definition", param: "config.auth_config.token" });
    expect(error.message).toContain("null in its place removes it");
    expect((await change({ ...key, token: null })).status).toBe(200);
    expect((await refusal(change({ ...key, colour: 1 }))).message).not.toContain("null");
  });

  test("merges the configuration, and checks the whole", async () => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client, {}, { headers: { "X-Version": "1" } });
    const path = `/v1/tool-services/${id}`;
    const changed = await client.expect("patch", path, {
      config: { headers: null, tools: { customer_get: { ...listing, endpoint: "/customers/{id}" } } },
    });
    expect(Object.keys(changed.config.tools)).toEqual(["customer_list", "customer_get"]);
    expect(changed.config.headers).toBeUndefined();
    expect(await refusal(client.send("patch", path, { config: { base_url: null } }))).toMatchObject({
      param: "config.base_url",
    });
    expect(await client.get(path)).toEqual(changed);
  });

  test("made twenty times at once, nothing is lost", async () => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client, {}, { tools: {} });
    const names = Array.from({ length: 20 }, (_, at) => `tool_${at}`);
    const replies = await Promise.all(
      names.map((name) => client.send("patch", `/v1/tool-services/${id}`, { config: { tools: { [name]: listing } } })),
    );
    const done = names.filter((_, at) => replies[at]?.status === 200);
    expect(replies.every(({ status }) => status === 200 || status === 412)).toBe(true);
    const { config } = await client.get(`/v1/tool-services/${id}`);
    expect(Object.keys(config.tools).sort()).toEqual(done.toSorted());
  });

  test("reaches another instance with its next request, and leaves calls under way alone", async () => {
    const second = await startGateway({ sharedWith: gateway });
    const tenant = await gateway.newTenant();
    const there = second.client(tenant.key);
    const slow = await startHttpStub(() => ({ body: '"old"', delayMs: 400 }));
    const { id } = await create(tenant.client, {}, { base_url: slow.url });
    const underWay = invoke(there, "api://crm/customer_list");
    await waitFor(() => slow.requests.length === 1);
    await tenant.client.expect("patch", `/v1/tool-services/${id}`, { config: { base_url: `${backEnd.url}/new` } });
    expect(await invoked(there, "api://crm/customer_list")).toEqual({ target: "/new/customers" });
    expect((await underWay).json.content).toBe('"old"');
    await tenant.client.post(`/v1/tool-services/${id}/disable`);
    expect((await invoke(there, "api://crm/customer_list")).json.error.code).toBe("service_disabled");
    await slow.close();
    await second.close();
  });
});

async function waitFor(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((done) => setTimeout(done, 5));
}

describe(`deleting a service ${verifies("CFG-4")}`, () => {
  test("is refused while keys, prices or calls refer to it, naming them, and forced when confirmed", async () => {
    const tenant = await gateway.newTenant();
    const { client } = tenant;
    const { id } = await create(
      client,
      {},
      { tools: { customer_list: listing, erase: { ...listing, sensitive: true } } },
    );
    const key = await tenant.newKey({ name: "reporting", tools: ["api://crm/*", "weather"] });
    await tenant.newKey({ name: "everything", tools: ["*", "api_*"] });
    await client.expect("put", "/v1/prices", {
      prices: [{ kind: "tool", pattern: "api_crm__customer_list", per_call: 5 }],
    });
    const waiting = (await invoke(client, "api://crm/erase")).json;
    const { data } = await client.get(`/v1/tool-services/${id}/references`);
    expect(data).toEqual([
      { kind: "api_key", id: key.id, name: "reporting", field: "tools", value: "api://crm/*" },
      { kind: "call", id: waiting.id, name: "api_crm__erase", field: "state", value: "input_required" },
      {
        kind: "tool_price",
        id: "api_crm__customer_list",
        name: null,
        field: "pattern",
        value: "api_crm__customer_list",
      },
    ]);
    const error = await refusal(client.send("delete", `/v1/tool-services/${id}`));
    expect(error).toMatchObject({ status: 409, code: "service_referenced", references: data });
    expect(error.message).toContain("api_key 'reporting'");
    expect((await invoke(client, "api://crm/customer_list")).status).toBe(200);
    expect((await client.send("delete", `/v1/tool-services/${id}?force=true`)).status).toBe(204);
    expect((await invoke(client, "api://crm/customer_list")).json.error.code).toBe("tool_not_found");
    expect((await client.send("get", `/v1/tool-services/${id}`)).status).toBe(404);
  });

  test("knows who refers to it, however they write its address", async () => {
    const tenant = await gateway.newTenant();
    const { client } = tenant;
    const { id } = await create(client, { service_id: "订单服务" }, { tools: { 查询: listing } });
    const uri = "api://订单服务/查询";
    const key = await tenant.newKey({ name: "reporting", tools: ["api://订单服务/*"] });
    const agent = await client.post("/v1/agents", { name: "clerk", model: "stub-1", instructions: "x", tools: [uri] });
    await client.expect("patch", "/v1/settings", { mcp_toolsets: { sales: { tools: [uri] } } });
    const steps = { start: "find", nodes: { find: { kind: "tool", uri: `API://订单服务/查询?timeout=3000` } } };
    const definition = { schema_version: 1, name: "daily", description: "Looks up.", ...steps };
    const flow = await client.post("/v1/flows", { definition, publish: true });
    const { data } = await client.get(`/v1/tool-services/${id}/references`);
    expect(data.map((reference: Json) => [reference.kind, reference.id])).toEqual([
      ["api_key", key.id],
      ["mcp_toolset", "sales"],
      ["flow", flow.id],
      ["agent", agent.id],
    ]);
    expect((await invoke(key.client, uri)).status).toBe(200);
  });

  test("needs no force where nothing refers to it", async () => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client);
    expect((await client.get(`/v1/tool-services/${id}/references`)).data).toEqual([]);
    expect((await client.send("delete", `/v1/tool-services/${id}`)).status).toBe(204);
  });
});

describe(`testing a connection ${verifies("CFG-1")}`, () => {
  const tested = async (config: Json): Promise<Json> => {
    const { client } = await gateway.newTenant();
    const { id } = await create(client, {}, config);
    return client.post(`/v1/tool-services/${id}/test`);
  };

  test("says that the back end answers", async () => {
    expect(await tested({ probe_endpoint: "/health" })).toMatchObject({ ok: true, error: null });
    expect(backEnd.requests.at(-1)?.target).toBe("/v1/health");
    const silent = await startHttpStub(() => ({ status: 404 }));
    expect(await tested({ base_url: silent.url })).toMatchObject({ ok: true, detail: expect.stringContaining("404") });
    await silent.close();
  });

  test("says what is wrong, with the code that a call would have", async () => {
    expect(await tested({ base_url: "http://127.0.0.1:9" })).toMatchObject({
      ok: false,
      error: { code: "tool_unreachable", retryable: true },
    });
    const stub = await startHttpStub(() => ({ status: 401 }));
    const refused = await tested({ base_url: stub.url, auth_type: "bearer", auth_config: { token: "wrong-token" } });
    expect(refused).toMatchObject({ ok: false, error: { code: "credential_invalid", param: "config.auth_config" } });
    expect(refused.detail).toContain("PUT /v1/credentials/");
    stub.answer = () => ({ status: 503 });
    expect(await tested({ base_url: stub.url })).toMatchObject({ ok: false, error: { code: "tool_failed" } });
    expect(
      await tested({ base_url: stub.url, auth_type: "bearer", auth_config: { token: { credential: "NOT_THERE" } } }),
    ).toMatchObject({ ok: false, error: { code: "credential_missing", param: "NOT_THERE" } });
    await stub.close();
  });
});

test("schemes describe themselves to pickers", async () => {
  const { client } = await gateway.newTenant();
  const { data } = await client.get("/v1/tool-services/schemes");
  const api = data.find(({ scheme }: Json) => scheme === "api");
  expect(api).toMatchObject({ title: "HTTP API", icon: "globe", discovers_tools: false });
  const fields = new Map(api.fields.map((field: Json) => [field.name, field]));
  expect(fields.get("base_url")).toMatchObject({ type: "url", required: true });
  expect(fields.get("auth_type")).toMatchObject({ type: "choice", required: false, default: "none" });
  const auth = fields.get("auth_config") as Json;
  expect(auth).toMatchObject({ depends_on: "auth_type" });
  expect(auth.variants.bearer).toMatchObject([{ name: "token", type: "secret", required: true }]);
  expect(api.options.map(({ name }: Json) => name)).toEqual(["timeout", "max-attempts", "async", "method"]);
});
