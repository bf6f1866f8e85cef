/** Tenants, keys, issuers, providers and settings: who may change what, and from when on it counts. */
import { randomBytes } from "node:crypto";
import { generateKeyPair, exportJWK, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { startLlmStub, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway({ env: { TOOLYARD_SETTINGS_CAPS: '{"rounds": 20, "requests_per_minute": 5000}' } });
  tenant = await gateway.newTenant();
});
afterAll(() => gateway.close());

describe(`an API key ${verifies("CHAT-11", "BLIND-9")}`, () => {
  test("is shown once, and never again", async () => {
    const made = await tenant.client.post("/v1/api-keys", {
      name: "ci",
      scopes: ["tools"],
      tools: ["crm_*"],
      user_id: "ann",
    });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^key_/),
      object: "api_key",
      key: expect.stringMatching(/^ty_[0-9a-z]+_[A-Za-z0-9_-]{43}$/),
      role: "member",
      scopes: ["tools"],
      tools: ["crm_*"],
      user_id: "ann",
      revoked_at: null,
    });
    expect(made.key.startsWith(made.hint as string)).toBe(true);
    const secret = (made.key as string).slice((made.hint as string).length);
    for (const path of [`/v1/api-keys/${made.id}`, "/v1/api-keys?limit=100"]) {
      const { status, text } = await tenant.client.send("get", path);
      expect({ status, shows: text.includes(secret) }).toEqual({ status: 200, shows: false });
    }
    expect(JSON.stringify(gateway.logged)).not.toContain(secret);
  });

  test("works until it is revoked or has expired", async () => {
    const key = await tenant.newKey();
    await key.client.get("/v1/tools");
    expect((await tenant.client.send("delete", `/v1/api-keys/${key.id}`)).status).toBe(204);
    expect(await key.client.send("get", "/v1/tools")).toMatchObject({
      status: 401,
      json: { error: { code: "invalid_api_key" } },
    });
    expect(await tenant.client.get(`/v1/api-keys/${key.id}`)).toMatchObject({
      revoked_at: expect.stringMatching(/Z$/),
    });
    const brief = await tenant.newKey({ expires_at: new Date(Date.now() + 400).toISOString() });
    await brief.client.get("/v1/tools");
    await new Promise((done) => setTimeout(done, 500));
    expect((await brief.client.send("get", "/v1/tools")).status).toBe(401);
  });

  test("and calls and prices take times as clients of other languages write them", async () => {
    const made = await tenant.client.post("/v1/api-keys", { name: "ends", expires_at: "2099-06-30T02:00:00+02:00" });
    expect(made.expires_at).toBe("2099-06-30T00:00:00.000Z");
    const from = "2026-11-27T09:30:00.123456+00:00";
    const price = { kind: "tool", pattern: "look", per_call: 1, effective_from: from };
    expect(await tenant.client.expect("put", "/v1/prices", { prices: [price] })).toMatchObject({
      prices: [{ effective_from: "2026-11-27T09:30:00.123Z" }],
    });
    const calls = (text: string): ReturnType<Client["send"]> => tenant.client.send("get", `/v1/calls?from=${text}`);
    expect((await calls(encodeURIComponent(from))).status).toBe(200);
    expect((await calls(from)).json.error).toMatchObject({
      param: "from",
      message: expect.stringContaining("'+' is written %2B"),
    });
    expect((await calls("tomorrow")).json.error).toMatchObject({ param: "from" });
  });

  test("can do no more than its maker", async () => {
    const { client } = await tenant.newKey({ scopes: ["manage", "tools"], tools: ["crm_*"] });
    const attempts: readonly (readonly [Json, string])[] = [
      [{ scopes: ["manage", "runtime_config"], tools: ["crm_*"] }, "scopes"],
      [{ role: "admin", scopes: [], tools: ["crm_*"] }, "role"],
      [{ scopes: ["tools"] }, "tools"],
      [{ scopes: ["tools"], tools: ["*"] }, "tools"],
    ];
    for (const [body, param] of attempts) {
      const reply = await client.send("post", "/v1/api-keys", { name: "more", ...body });
      expect({ body, ...reply.json.error }).toMatchObject({ body, code: "permission_denied", param });
    }
    await client.post("/v1/api-keys", { name: "as much", scopes: ["manage"], tools: ["crm_*"] });
  });

  test.each([
    [{}, "name"],
    [{ name: "" }, "name"],
    [{ name: "x", role: "operator" }, "role"],
    [{ name: "x", scopes: ["everything"] }, "scopes.0"],
    [{ name: "x", tools: ["a b"] }, "tools.0"],
    [{ name: "x", key: "ty_mine" }, "key"],
    [{ name: "x", expires_at: "tomorrow" }, "expires_at"],
    [{ name: "x", expires_at: "2020-01-01T00:00:00Z" }, "expires_at"],
    [{ name: "x", requests_per_minute: 0 }, "requests_per_minute"],
  ])("is not made from %j", async (body, param) => {
    expect(await tenant.client.send("post", "/v1/api-keys", body)).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request", param } },
    });
  });

  test("of a business unit makes keys of that unit only", async () => {
    const { client } = await tenant.newKey({ scopes: ["manage"], business_unit: "north" });
    for (const unit of [{}, { business_unit: "south" }]) {
      const { status, json } = await client.send("post", "/v1/api-keys", { name: "x", scopes: ["manage"], ...unit });
      expect([status, json.error.param]).toEqual([403, "business_unit"]);
    }
    await client.post("/v1/api-keys", { name: "x", scopes: ["manage"], business_unit: "north" });
  });

  test("that is bound to tools makes no subscription, whose calls would not be", async () => {
    const bus = { broker: "redis", servers: ["mq.example.com"], topics: { orders: {}, copies: {} } };
    await tenant.client.post("/v1/tool-services", { scheme: "mq", service_id: "bus", config: bus });
    const { client } = await tenant.newKey({ scopes: ["manage", "tools"], tools: ["mq://*"] });
    const target = { uri: "mq://bus/copies", arguments: { message: { $message: "/body" } } };
    const subscription = { name: "copies", uri: "mq://bus/orders", target };
    const refused = await client.send("post", "/v1/subscriptions", subscription);
    expect([refused.status, refused.json.error.code]).toEqual([403, "permission_denied"]);
    const { id } = await tenant.client.post("/v1/subscriptions", subscription);
    const path = `/v1/subscriptions/${id}`;
    expect((await client.send("patch", path, { target })).status).toBe(403);
    await client.expect("patch", path, { enabled: false });
  });

  test("is held to its own number of requests", async () => {
    const { client } = await tenant.newKey({ requests_per_minute: 2 });
    await client.get("/v1/tools");
    const second = await client.send("get", "/v1/tools");
    expect(second.headers.get("x-ratelimit-remaining-requests")).toBe("0");
    const third = await client.send("get", "/v1/tools");
    expect(third).toMatchObject({
      status: 429,
      json: { error: { code: "rate_limited", type: "rate_limit_error", retryable: true } },
    });
    expect(Number(third.headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe(`a trusted issuer ${verifies("CHAT-11")}`, () => {
  let jwks: HttpStub;
  let sign: (claims: Json, by?: string) => Promise<string>;
  const issuer = "https://login.example.com/";

  beforeAll(async () => {
    const { privateKey, publicKey } = await generateKeyPair("ES256");
    const published = { keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256", use: "sig" }] };
    jwks = await startHttpStub(() => ({ body: JSON.stringify(published) }));
    sign = (claims, by = issuer) =>
      new SignJWT({ sub: "ann", ...claims })
        .setProtectedHeader({ alg: "ES256", kid: "k1" })
        .setIssuer(by)
        .setExpirationTime("5m")
        .sign(privateKey);
  });
  afterAll(() => jwks.close());

  test("lets its users in with what their tokens say, from the moment it is trusted", async () => {
    const audience = "toolyard-a";
    const client = gateway.client(await sign({ aud: audience, may: ["tools"] }));
    expect((await client.send("get", "/v1/tools")).status).toBe(401);
    const made = await tenant.client.post("/v1/issuers", {
      issuer,
      audience,
      jwks_url: jwks.url,
      claims: { scopes: "may" },
    });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^iss_/),
      object: "issuer",
      issuer,
      audience,
      default_role: "member",
    });
    await client.get("/v1/tools");
    expect(await client.send("get", "/v1/settings")).toMatchObject({
      status: 403,
      json: { error: { param: "manage" } },
    });
    const userId = `user:${issuer}:ann`;
    await client.expect("put", "/v1/credentials/OWN", { value: "mine", user_id: userId });
    expect((await tenant.client.send("delete", `/v1/issuers/${made.id}`)).status).toBe(204);
    expect((await tenant.client.get("/v1/issuers")).data).toEqual([]);
  });

  test("lets none of its users be taken for one of another issuer, whichever was trusted first", async () => {
    const [short, long] = ["https://login.example.com", "https://login.example.com:8443"];
    for (const order of [
      [short, long],
      [long, short],
    ]) {
      const own = await gateway.newTenant();
      const prefixes: string[] = [];
      for (const by of order) {
        const made = await own.client.post("/v1/issuers", { issuer: by, audience: own.id, jwks_url: jwks.url });
        prefixes.push(made.user_id_prefix);
      }
      expect(prefixes).toEqual([`user:${order[0]}:`, `user:${order[1]?.replaceAll(":", "%3A")}:`]);
      const of = async (by: string, sub: string): Promise<Client> =>
        gateway.client(await sign({ aud: own.id, sub }, by));
      const [alice, mallory] = [await of(long, "alice"), await of(short, "8443:alice")];
      const body = { arguments: { path: "a.txt", content: "of alice" }, session_id: `of-alice-${own.id}` };
      await alice.post("/v1/tools/invoke", { name: "write_file", ...body });
      expect(
        await mallory.send("post", "/v1/tools/invoke", { name: "list_files", ...body, arguments: {} }),
      ).toMatchObject({
        status: 404,
        json: { error: { code: "session_not_found" } },
      });
      const callers = (await own.client.get("/v1/calls")).data.map(({ caller }: Json) => caller.id);
      expect(callers).toEqual([`${prefixes[order.indexOf(long)]}alice`]);
    }
  });

  test("is not trusted by those who could not hand out what its tokens may claim", async () => {
    const { client } = await tenant.newKey({ role: "admin", scopes: ["manage", "chat", "tools"] });
    const body = { issuer, audience: "toolyard-b", jwks_url: jwks.url };
    await client.post("/v1/issuers", body);
    const wider: readonly (readonly [Json, string])[] = [
      [{ claims: { scopes: "may" } }, "scopes"],
      [{ default_scopes: ["runtime_config"] }, "scopes"],
    ];
    for (const [change, param] of wider) {
      const reply = await client.send("post", "/v1/issuers", { ...body, audience: "toolyard-c", ...change });
      expect(reply).toMatchObject({ status: 403, json: { error: { code: "permission_denied", param } } });
    }
    const { client: member } = await tenant.newKey({
      scopes: ["manage", "chat", "tools", "runtime_config", "calls", "approve"],
    });
    const reply = await member.send("post", "/v1/issuers", {
      ...body,
      audience: "toolyard-d",
      claims: { role: "role" },
    });
    expect(reply).toMatchObject({ status: 403, json: { error: { param: "role" } } });
  });

  test("is changed without its users being sent away, by those who could have made it so", async () => {
    const own = await gateway.newTenant();
    const body = { issuer, audience: own.id, jwks_url: jwks.url, default_scopes: ["tools"] };
    const made = await own.client.post("/v1/issuers", body);
    const at = `/v1/issuers/${made.id}`;
    const changed = await own.client.expect("patch", at, { claims: { scopes: "may" } });
    expect(changed).toEqual({ ...made, claims: { scopes: "may" } });
    expect((await own.client.get("/v1/issuers")).data).toEqual([changed]);
    const ann = gateway.client(await sign({ aud: own.id, may: ["calls"] }));
    expect(await ann.send("post", "/v1/tools/explain", { name: "list_files", arguments: {} })).toMatchObject({
      status: 403,
      json: { error: { param: "tools" } },
    });
    await own.client.expect("patch", at, { claims: {}, default_role: "admin", default_scopes: ["chat", "chat"] });
    expect((await own.client.get("/v1/issuers")).data).toEqual([
      { ...made, claims: {}, default_role: "admin", default_scopes: ["chat"] },
    ]);
    const refusals: readonly (readonly [Client, Json, number, string])[] = [
      [(await own.newKey({ scopes: ["manage", "chat"] })).client, { default_scopes: ["chat"] }, 403, "role"],
      [(await own.newKey({ role: "admin", scopes: ["manage"] })).client, { default_role: "member" }, 403, "scopes"],
      [own.client, { jwks_url: "http://169.254.169.254/" }, 403, "jwks_url"],
      [own.client, { issuer: "https://other.example.com" }, 400, "issuer"],
    ];
    for (const [client, change, status, param] of refusals) {
      expect(await client.send("patch", at, change)).toMatchObject({ status, json: { error: { param } } });
    }
  });

  test("is refused twice, at an address that is not open, and as the operator's", async () => {
    const body = { issuer, audience: "toolyard-e", jwks_url: jwks.url };
    await tenant.client.post("/v1/issuers", body);
    expect(await tenant.client.send("post", "/v1/issuers", body)).toMatchObject({
      status: 409,
      json: { error: { code: "conflict" } },
    });
    expect(
      await tenant.client.send("post", "/v1/issuers", { ...body, jwks_url: "http://169.254.169.254/" }),
    ).toMatchObject({ status: 403, json: { error: { code: "egress_denied", param: "jwks_url" } } });
    expect(await tenant.client.send("post", "/v1/issuers", { ...body, jwks_url: "file:///etc/passwd" })).toMatchObject({
      status: 400,
      json: { error: { param: "jwks_url" } },
    });
    expect(await tenant.client.send("post", "/v1/issuers", { ...body, default_role: "operator" })).toMatchObject({
      status: 400,
      json: { error: { param: "default_role" } },
    });
  });
});

describe(`a provider and its models ${verifies("CHAT-16")}`, () => {
  let models: LlmStub;

  beforeAll(async () => {
    models = await startLlmStub();
  });
  afterAll(() => models.close());

  test("names its key's credential, never the key, and is there with the next request", async () => {
    const own = await gateway.newTenant();
    await own.putCredential("MODEL_KEY", "sk-model-1234");
    const id = await own.addProvider(models.url, { credential: "MODEL_KEY", models: { fast: "stub-1" } });
    expect(await own.client.get("/v1/models")).toMatchObject({ data: [{ id: "fast", object: "model" }] });
    expect(await own.client.get("/v1/models/fast")).toMatchObject({ id: "fast" });
    const answer = await own.client.post("/v1/chat/completions", {
      model: "fast",
      messages: [{ role: "user", content: "hi" }],
    });
    expect(answer.choices[0].message.content).toBe("ok");
    expect(models.requests.at(-1)).toMatchObject({ model: "stub-1" });
    expect(models.http.requests.at(-1)?.headers.authorization).toBe("Bearer sk-model-1234");
    const { text } = await own.client.send("get", `/v1/providers/${id}`);
    expect(text).toContain("MODEL_KEY");
    expect(text).not.toContain("sk-model-1234");
  });

  test("is changed field by field", async () => {
    const own = await gateway.newTenant();
    const id = await own.addProvider(models.url);
    const before = await own.client.get(`/v1/providers/${id}`);
    expect(await own.client.expect("patch", `/v1/providers/${id}`, { enabled: false })).toEqual({
      ...before,
      enabled: false,
    });
    expect((await own.client.get("/v1/models")).data).toEqual([]);
    expect(await own.client.expect("patch", `/v1/providers/${id}`, { enabled: true, models: { a: "b" } })).toEqual({
      ...before,
      models: { a: "b" },
    });
    expect((await own.client.send("delete", `/v1/providers/${id}`)).status).toBe(204);
    expect((await own.client.send("delete", `/v1/providers/${id}`)).status).toBe(404);
  });

  test("adds what its back end lists where it passes every name on", async () => {
    const own = await gateway.newTenant();
    await own.addProvider(models.url, { passthrough_models: true, models: {} });
    expect((await own.client.get("/v1/models")).data).toMatchObject([{ id: "stub-1" }]);
    expect(await own.client.send("get", "/v1/models/other")).toMatchObject({
      status: 404,
      json: { error: { code: "model_not_found", param: "model" } },
    });
  });

  test.each([
    [{ kind: "gopher" }, 400, "kind"],
    [{ base_url: "not a url" }, 400, "base_url"],
    [{ base_url: "http://10.0.0.1/v1" }, 403, "base_url"],
    [{ base_url: "http://user:pass@127.0.0.1/v1" }, 403, "base_url"],
    [{ api_key: "sk-literal" }, 400, "api_key"],
    [{ credential: "a/b" }, 400, "credential"],
    [{ models: ["a"] }, 400, "models"],
    [{ max_attempts: 0 }, 400, "max_attempts"],
  ])("is not made with %j", async (change, status, param) => {
    const body = { name: "p", kind: "openai", base_url: models.url, ...change };
    const reply = await tenant.client.send("post", "/v1/providers", body);
    expect({ status: reply.status, param: reply.json.error.param }).toEqual({ status, param });
    expect(reply.text).not.toContain("sk-literal");
  });

  test("has an address, unless it is the built-in one", async () => {
    const own = await gateway.newTenant();
    const scripted = { name: "s", kind: "scripted", models: { tried: "toolyard/scripted" } };
    const { id } = await own.client.post("/v1/providers", scripted);
    expect(await own.client.get(`/v1/providers/${id}`)).toMatchObject({ ...scripted, base_url: null });
    const body = { model: "tried", messages: [{ role: "user", content: "hi" }] };
    expect((await own.client.post("/v1/chat/completions", body)).model).toBe("toolyard/scripted");
    const refused = { status: 400, json: { error: { code: "invalid_request", param: "base_url" } } };
    expect(await own.client.send("post", "/v1/providers", { name: "o", kind: "openai" })).toMatchObject(refused);
    expect(await own.client.send("patch", `/v1/providers/${id}`, { kind: "openai" })).toMatchObject(refused);
    const moved = await own.client.expect("patch", `/v1/providers/${id}`, { kind: "openai", base_url: models.url });
    expect(moved).toMatchObject({ kind: "openai", base_url: models.url });
    expect(await own.client.send("patch", `/v1/providers/${id}`, { base_url: null })).toMatchObject(refused);
  });

  test("has a name of its own", async () => {
    const own = await gateway.newTenant();
    await own.addProvider(models.url, { name: "one" });
    const two = await own.addProvider(models.url, { name: "two" });
    const body = { name: "one", kind: "openai", base_url: models.url };
    expect(await own.client.send("post", "/v1/providers", body)).toMatchObject({
      status: 409,
      json: { error: { code: "conflict", param: "name" } },
    });
    expect(await own.client.send("patch", `/v1/providers/${two}`, { name: "one" })).toMatchObject({ status: 409 });
  });
});

describe(`settings ${verifies("CHAT-12", "CHAT-8")}`, () => {
  test("are the defaults until they are changed, within the operator's caps", async () => {
    const own = await gateway.newTenant();
    const defaults = { object: "settings", ...tenantSettingsSchema.parse({}), requests_per_minute: 5_000 };
    expect(await own.client.get("/v1/settings")).toEqual(defaults);
    expect(await own.client.expect("patch", "/v1/settings", { rounds: 20, default_model: "m" })).toEqual({
      ...defaults,
      rounds: 20,
      default_model: "m",
    });
    expect(await own.client.expect("patch", "/v1/settings", { rounds: null, default_model: null })).toEqual(defaults);
  });

  test.each([
    [{ rounds: 21 }, "rounds"],
    [{ requests_per_minute: 5_001 }, "requests_per_minute"],
    [{ rounds: 0 }, "rounds"],
    [{ rounds: "5" }, "rounds"],
    [{ round: 5 }, "round"],
    [{ tool_timeout_ms: 840_001 }, "tool_timeout_ms"],
    [{ native_tools: "all" }, "native_tools"],
    [{ native_tools: ["read_file", "run_cod"] }, "native_tools.1"],
    [{ native_tools: ["constructor"] }, "native_tools.0"],
  ])("cannot be %j", async (change, param) => {
    const before = await tenant.client.get("/v1/settings");
    expect(await tenant.client.send("patch", "/v1/settings", change)).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request", param } },
    });
    expect(await tenant.client.get("/v1/settings")).toEqual(before);
  });

  test("say which native tools there are where they name none, to the operator too", async () => {
    const own = await gateway.newTenant();
    const said = { json: { error: { message: expect.stringContaining("run_code") } } };
    expect(await own.client.send("patch", "/v1/settings", { native_tools: ["run_cod"] })).toMatchObject(said);
    const operator = gateway.operator;
    const change = { settings: { native_tools: ["run_cod"] } };
    expect(await operator.send("patch", `/v1/tenants/${own.id}`, change)).toMatchObject({ status: 400, ...said });
    expect(await operator.send("post", "/v1/tenants", { name: "x", ...change })).toMatchObject({
      status: 400,
      ...said,
    });
  });

  test("that name what there is not yet are taken, and say so until it is there", async () => {
    const own = await gateway.newTenant();
    await own.addProvider("https://models.example.com/v1", { models: { fast: "stub-1" } });
    const settings = await own.client.expect("patch", "/v1/settings", {
      chat_knowledge_bases: ["handbook"],
      deep_search_sources: ["news", { tool: "plugin://wiki", query: "q" }],
      default_model: "nope",
      deep_search_model: "fast",
      media_translation_model: "agent/nobody",
      mcp_authorization_servers: ["https://login.example.com/"],
    });
    const told: string[] = settings.warnings;
    expect(told.map((warning) => /^'(\S+)' names '(\S+)'/.exec(warning)?.slice(1))).toEqual([
      ["default_model", "nope"],
      ["media_translation_model", "agent/nobody"],
      ["deep_search_sources", "news"],
      ["deep_search_sources", "plugin://wiki"],
      ["chat_knowledge_bases", "handbook"],
      ["mcp_authorization_servers", "https://login.example.com/"],
    ]);
    await own.client.post("/v1/knowledge/create", { name: "handbook" });
    const rest = { default_model: "fast", media_translation_model: null, deep_search_sources: null };
    await own.client.expect("patch", "/v1/settings", { ...rest, mcp_authorization_servers: null });
    expect(await own.client.get("/v1/settings")).not.toHaveProperty("warnings");
  });

  test("of a tenant that is there are within a cap that is set later, and its own again when that goes", async () => {
    const own = await gateway.newTenant();
    await own.client.expect("patch", "/v1/settings", { rounds: 9, concurrent_tool_calls: 30 });
    const caps = { rounds: 5, requests_per_minute: 7, session_idle_ms: 1_000 };
    const capped = await startGateway({
      sharedWith: gateway,
      env: { TOOLYARD_SETTINGS_CAPS: JSON.stringify(caps) },
    });
    const client = capped.client(own.key);
    expect(await client.get("/v1/settings")).toMatchObject({ ...caps, concurrent_tool_calls: 30 });
    const changed = await client.expect("patch", "/v1/settings", { identical_calls: 4 });
    expect(changed).toMatchObject({ ...caps, concurrent_tool_calls: 30, identical_calls: 4 });
    const stored = await capped.operator.get(`/v1/tenants/${own.id}`);
    expect(stored.settings).toEqual({ rounds: 9, concurrent_tool_calls: 30, identical_calls: 4 });
    const statuses = new Set<number>();
    for (let count = 0; count < 8; count += 1) statuses.add((await client.send("get", "/v1/tools")).status);
    expect(statuses).toEqual(new Set([200, 429]));
    await capped.close();

    const raised = await startGateway({ sharedWith: gateway });
    const now = raised.client(own.key);
    expect(await now.get("/v1/settings")).toMatchObject({ rounds: 9, requests_per_minute: 6_000, identical_calls: 4 });
    await raised.close();
  });

  test("count for the tenant's next request", async () => {
    const own = await gateway.newTenant();
    await own.client.expect("patch", "/v1/settings", { requests_per_minute: 3 });
    const statuses: number[] = [];
    for (let count = 0; count < 4; count += 1) statuses.push((await own.client.send("get", "/v1/tools")).status);
    expect(statuses.at(-1)).toBe(429);
  });
});

describe("a tenant", () => {
  const suspended = (client: Client): Promise<Json> => client.send("get", "/v1/tools");

  test("is the operator's to make, see, change and suspend", async () => {
    const made = await gateway.operator.post("/v1/tenants", { name: "Acme", settings: { rounds: 4 } });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^ten_/),
      object: "tenant",
      name: "Acme",
      status: "active",
    });
    expect(made.settings).toMatchObject({ rounds: 4 });
    expect(JSON.stringify(made)).not.toContain("wrapped");
    const changed = await gateway.operator.expect("patch", `/v1/tenants/${made.id}`, {
      name: "Acme Ltd",
      settings: { rounds: null },
    });
    expect(changed).toMatchObject({ name: "Acme Ltd", status: "active" });
    expect(changed.settings).not.toHaveProperty("rounds");
    expect(changed.config_version).toBeGreaterThan(made.config_version as number);
    expect(await gateway.operator.get(`/v1/tenants/${made.id}`)).toEqual(changed);
  });

  test("is refused everything while it is suspended, and keeps what it has", async () => {
    const own = await gateway.newTenant();
    await own.putCredential("KEPT", "value");
    await gateway.operator.expect("patch", `/v1/tenants/${own.id}`, { status: "suspended" });
    expect(await suspended(own.client)).toMatchObject({ status: 403, json: { error: { code: "tenant_suspended" } } });
    await gateway.operator.expect("patch", `/v1/tenants/${own.id}`, { status: "active" });
    expect((await own.client.get("/v1/credentials")).data).toMatchObject([{ name: "KEPT" }]);
  });

  test("is acted for by the operator who names it", async () => {
    const own = await gateway.newTenant();
    const operator = gateway.operator.with({ "x-toolyard-tenant": own.id });
    await operator.expect("put", "/v1/credentials/BY_OPERATOR", { value: "v" });
    expect((await own.client.get("/v1/credentials")).data).toMatchObject([{ name: "BY_OPERATOR" }]);
    const nowhere = await gateway.operator.with({ "x-toolyard-tenant": "ten_nothing" }).send("get", "/v1/tools");
    expect(nowhere.status).toBe(404);
    expect(nowhere.json.error.message).toMatch(/GET \/v1\/tenants lists all.*x-toolyard-tenant/);
  });

  test.each([
    [{}, "name"],
    [{ name: "x", settings: { rounds: 1_000 } }, "settings.rounds"],
    [{ name: "x", settings: { rounds: 21 } }, "rounds"],
    [{ name: "x", id: "ten_mine" }, "id"],
  ])("is not made from %j", async (body, param) => {
    expect(await gateway.operator.send("post", "/v1/tenants", body)).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request", param } },
    });
  });
});

describe(`the master key ${verifies("BLIND-5")}`, () => {
  const masterKey = (): string => randomBytes(32).toString("base64");

  test("is changed without touching a credential, and the old one can be put away", async () => {
    const [old, current] = [masterKey(), masterKey()];
    const backEnd = await startHttpStub();
    const first = await startGateway({ env: { TOOLYARD_MASTER_KEY: old } });
    const own = await first.newTenant();
    await own.addPlugin({
      name: "whoami",
      execution: { method: "GET", base_url: backEnd.url, param_placement: "query" },
      auth_config: { type: "bearer", mapping: [{ source: "TOKEN" }] },
    });
    await own.putCredential("TOKEN", "kept-over-rotation");
    const both = await startGateway({
      sharedWith: first,
      env: { TOOLYARD_MASTER_KEY: current, TOOLYARD_PREVIOUS_MASTER_KEYS: old },
    });
    const tooEarly = await startGateway({ sharedWith: first, env: { TOOLYARD_MASTER_KEY: current } });
    const call = (gatewayOfTest: Gateway): Promise<Json> =>
      gatewayOfTest.client(own.key).send("post", "/v1/tools/invoke", { name: "whoami" });
    expect((await call(both)).status).toBe(200);
    expect(await call(tooEarly)).toMatchObject({ status: 500, json: { error: { code: "credential_unreadable" } } });
    const rotated = await both.operator.post(`/v1/tenants/${own.id}/rotate-key`);
    expect(rotated).toMatchObject({ id: own.id, object: "tenant" });
    const after = await startGateway({ sharedWith: first, env: { TOOLYARD_MASTER_KEY: current } });
    expect((await call(after)).status).toBe(200);
    expect(backEnd.requests.at(-1)?.headers.authorization).toBe("Bearer kept-over-rotation");
    expect((await both.operator.send("post", "/v1/tenants/ten_nothing/rotate-key", {})).status).toBe(404);
    for (const running of [after, tooEarly, both, first]) await running.close();
    await backEnd.close();
  });

  test("is changed step by step, as the page for operators says, and no instance that can serve is unready", async () => {
    const [old, current] = [masterKey(), masterKey()];
    const ready = async ({ nobody }: Gateway): Promise<number> => (await nobody.send("get", "/health/ready")).status;
    const before = await startGateway({ env: { TOOLYARD_MASTER_KEY: old } });
    await before.newTenant();
    const start = (env: Record<string, string>): Promise<Gateway> => startGateway({ sharedWith: before, env });
    const both = await start({ TOOLYARD_MASTER_KEY: current, TOOLYARD_PREVIOUS_MASTER_KEYS: old });
    expect(await ready(both)).toBe(200);
    // It runs until the others have taken over, and opens everything that there is.
    expect(await ready(before)).toBe(200);

    const tooEarly = await start({ TOOLYARD_MASTER_KEY: current });
    expect(await ready(tooEarly)).toBe(503);
    expect(tooEarly.logged.find(({ message }) => message === "not ready")?.fields).toMatchObject({
      check: "master_key",
      code: "credential_unreadable",
      reason: expect.stringMatching(/wrapped under master key.*TOOLYARD_PREVIOUS_MASTER_KEYS/),
    });

    const { data } = await both.operator.get("/v1/tenants?limit=100");
    for (const { id } of data as Json[]) await both.operator.post(`/v1/tenants/${String(id)}/rotate-key`);
    const after = await start({ TOOLYARD_MASTER_KEY: current });
    expect(await ready(after)).toBe(200);
    for (const running of [after, tooEarly, both, before]) await running.close();
  });
});
