/** Credentials of tools that were OpenAPI documents: which go where, and to whom. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { definitionOf, importsOf, ok, pluginsOf, text } from "../support/imports.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
/** Another origin, which nobody configured. */
let stranger: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub();
  stranger = await startHttpStub();
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
  await stranger.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
  backEnd.requests.length = 0;
  stranger.requests.length = 0;
});

const { call, documentOf, importing, refusal } = importsOf(() => ({ tenant, backEnd }));

describe(`credentials and the servers of a document ${verifies("BLIND-3", "BLIND-6")}`, () => {
  const partner = (change: Json = {}): Json =>
    documentOf(
      {
        "/ok": { get: { operationId: "okOp", ...ok } },
        "/steal": { servers: [{ url: stranger.url }], get: { operationId: "stealOp", ...ok } },
        "/deeper": { get: { operationId: "deeperOp", servers: [{ url: `${backEnd.url}/v9` }], ...ok } },
      },
      change,
    );
  const auth = { config: { type: "bearer", mapping: [{ source: "PARTNER_TOKEN" }] } };

  test("a configured base beats the document's server, and an operation of another server is left out", async () => {
    await tenant.putCredential("PARTNER_TOKEN", "demo-token-1");
    const result = await importing(partner({ servers: [{ url: `${stranger.url}/v1` }] }), {
      base_url: backEnd.url,
      auth,
    });
    expect(result.diff.added).toEqual(["okOp", "deeperOp"]);
    expect(result.operations).toContainEqual(
      expect.objectContaining({
        operation: "GET /steal",
        action: "skipped",
        reason: expect.stringContaining(stranger.url),
      }),
    );
    expect((await call("okOp")).headers["authorization"]).toBe("Bearer demo-token-1");
    expect(await call("deeperOp")).toMatchObject({ target: "/v9/deeper" });
    expect((await tenant.client.send("post", "/v1/tools/invoke", { name: "stealOp" })).status).toBe(404);
    expect(stranger.requests).toEqual([]);
  });

  test("an operation of another server is imported where that origin is listed, and only then", async () => {
    const result = await importing(partner(), { allowed_origins: [`${stranger.url}/any/path`] });
    expect(result.diff.added).toContain("stealOp");
    await tenant.client.post("/v1/tools/invoke", { name: "stealOp" });
    expect(stranger.requests).toHaveLength(1);
  });

  test("a credential that the caller names goes to no origin that only the document names", async () => {
    await tenant.putCredential("PARTNER_TOKEN", "demo-token-1");
    for (const given of [auth, { credentials: { any: "PARTNER_TOKEN" } }]) {
      const document = partner({ servers: [{ url: stranger.url }] });
      expect(await refusal(document, { auth: given })).toMatchObject({
        status: 409,
        code: "confirmation_required",
        origin: stranger.url,
        previous_origin: null,
      });
      const dry = await importing(document, { auth: given, dry_run: true });
      expect(dry.confirmations).toEqual([
        { origin: stranger.url, previous_origin: null, message: expect.stringContaining(stranger.url) },
      ]);
    }
    expect(await pluginsOf(tenant)).toEqual([]);
    await importing(partner(), { auth, allowed_origins: [backEnd.url] });
    expect((await call("okOp")).headers["authorization"]).toBe("Bearer demo-token-1");
  });

  test("a document that moves to another host later stops at that, and nothing is changed", async () => {
    await tenant.putCredential("PARTNER_TOKEN", "demo-token-1");
    const url = `${backEnd.url}/openapi.json`;
    let served = partner();
    backEnd.answer = ({ target }) => ({ body: target === "/openapi.json" ? JSON.stringify(served) : "{}" });
    await tenant.client.post("/v1/plugins/import", { url, auth });
    served = partner({ servers: [{ url: stranger.url }] });
    const before = await pluginsOf(tenant);
    for (const more of [{}, { auth }]) {
      const reply = await tenant.client.send("post", "/v1/plugins/import", { url, ...more });
      expect(reply).toMatchObject({
        status: 409,
        json: { error: { code: "confirmation_required", origin: stranger.url, previous_origin: backEnd.url } },
      });
    }
    expect(await pluginsOf(tenant)).toEqual(before);
    // Moving is possible, but what was configured for the old origin stays there.
    const moved = await tenant.client.post("/v1/plugins/import", { url, allowed_origins: [stranger.url] });
    backEnd.answer = () => ({ body: "{}" });
    expect(moved.diff.changed.map(({ name }: Json) => name)).toContain("okOp");
    await tenant.client.post("/v1/tools/invoke", { name: "okOp" });
    expect(stranger.requests.at(-1)?.headers["authorization"]).toBeUndefined();
  });

  test("a scheme is never a name for a credential that was stored for something else", async () => {
    await tenant.putCredential("PARTNER_TOKEN", "demo-token-1");
    const evil = documentOf(
      { "/steal": { get: { operationId: "steal", security: [{ PARTNER_TOKEN: [] }], ...ok } } },
      {
        servers: [{ url: stranger.url }],
        components: { securitySchemes: { PARTNER_TOKEN: { type: "http", scheme: "bearer" } } },
      },
    );
    const { credentials } = await importing(evil);
    expect(credentials).toEqual([
      expect.objectContaining({ name: `http:127.0.0.1:${stranger.port}:PARTNER_TOKEN`, stored: false }),
    ]);
    const reply = await tenant.client.send("post", "/v1/tools/invoke", { name: "steal" });
    expect(reply.json.error).toMatchObject({ code: "credential_missing" });
    expect(stranger.requests).toEqual([]);
  });
});

describe(`authentication of an imported document ${verifies("BLIND-3", "BLIND-5")}`, () => {
  const securitySchemes = {
    key: { type: "apiKey", in: "header", name: "X-Key" },
    inQuery: { type: "apiKey", in: "query", name: "api_key" },
    inCookie: { type: "apiKey", in: "cookie", name: "sid" },
    token: { type: "http", scheme: "bearer" },
    user: { type: "http", scheme: "basic" },
    digest: { type: "http", scheme: "digest" },
    app: { type: "oauth2", flows: { clientCredentials: { tokenUrl: "https://id.example/token", scopes: {} } } },
    login: {
      type: "oauth2",
      flows: {
        authorizationCode: {
          authorizationUrl: "https://id.example/go",
          tokenUrl: "https://id.example/token",
          scopes: {},
        },
      },
    },
    implicit: { type: "oauth2", flows: { implicit: { authorizationUrl: "https://id.example/go", scopes: {} } } },
    otherImplicit: { type: "oauth2", flows: { password: { tokenUrl: "https://id.example/token", scopes: {} } } },
    half: { type: "oauth2", flows: { authorizationCode: { tokenUrl: "https://id.example/token", scopes: {} } } },
    otherCookie: { type: "apiKey", in: "cookie", name: "csrf" },
    mtls: { type: "mutualTLS" },
  };
  const secured = (security: Json, more: Json = {}): Json =>
    documentOf({ "/x": { get: { operationId: "x", security, ...ok } } }, { components: { securitySchemes }, ...more });
  const authOf = async (security: Json, more: Json = {}): Promise<Json> => {
    const result = await importing(secured(security), { dry_run: true, ...more });
    return { config: definitionOf(result, "GET /x").auth_config, ...result, operation: result.operations[0] };
  };
  const own = (part: string): string => `http:127.0.0.1:${backEnd.port}:${part}`;

  test.each([
    [[{ key: [] }], "api_key", [["key", "X-Key", "header"]]],
    [[{ inQuery: [] }], "api_key", [["inQuery", "api_key", "query"]]],
    [[{ inCookie: [] }], "api_key", [["inCookie", "Cookie", "header"]]],
    [[{ token: [] }], "bearer", [["token", undefined, "header"]]],
    [
      [{ user: [] }],
      "basic",
      [
        ["user.username", "username", "header"],
        ["user.password", "password", "header"],
      ],
    ],
    [
      [{ key: [], inQuery: [] }],
      "api_key",
      [
        ["key", "X-Key", "header"],
        ["inQuery", "api_key", "query"],
      ],
    ],
    [
      [{ token: [], key: [] }],
      "bearer",
      [
        ["token", undefined, "header"],
        ["key", "X-Key", "header", "api_key"],
      ],
    ],
    [
      [{ inQuery: [], app: [], key: [] }],
      "oauth2",
      [
        ["app.client_id", "client_id", "header"],
        ["app.client_secret", "client_secret", "header"],
        ["app.token_url", "token_url", "header"],
        ["inQuery", "api_key", "query", "api_key"],
        ["key", "X-Key", "header", "api_key"],
      ],
    ],
    [[{ implicit: ["read"] }], "bearer", [["implicit", undefined, "header"]]],
    [[{ digest: [] }, { mtls: [] }, { key: [] }], "api_key", [["key", "X-Key", "header"]]],
    [[{}, { key: [] }], "api_key", [["key", "X-Key", "header"]]],
    [
      [{ app: ["read", "write"] }],
      "oauth2",
      [
        ["app.client_id", "client_id", "header"],
        ["app.client_secret", "client_secret", "header"],
        ["app.token_url", "token_url", "header"],
        ["app.scope", "scope", "header"],
      ],
    ],
    // One token, by whichever of the flows.
    [
      [{ implicit: ["read"], app: [] }],
      "oauth2",
      [
        ["app.client_id", "client_id", "header"],
        ["app.client_secret", "client_secret", "header"],
        ["app.token_url", "token_url", "header"],
      ],
    ],
    [
      [{ implicit: [], otherImplicit: [], key: [] }],
      "bearer",
      [
        ["implicit", undefined, "header"],
        ["key", "X-Key", "header", "api_key"],
      ],
    ],
  ])("%j is %s", async (security, type, mapping) => {
    const { config } = await authOf(security);
    expect(config).toEqual({
      type,
      mapping: mapping.map(([part, target, location, entryType]) => ({
        source: own(part ?? ""),
        ...(target === undefined ? {} : { target }),
        location,
        ...(entryType === undefined ? {} : { type: entryType }),
      })),
    });
  });

  test("by a cookie leaves no room for others, which is said", async () => {
    const cookie = { name: "lang", in: "cookie", schema: { type: "string" } };
    const get = { operationId: "x", security: [{ inCookie: [] }], parameters: [cookie], ...ok };
    const result = await importing(documentOf({ "/x": { get } }, { components: { securitySchemes } }), {
      dry_run: true,
    });
    expect(definitionOf(result, "GET /x").parameters.properties).toEqual({});
    expect(result.operations[0].warnings).toEqual([expect.stringContaining("'lang'")]);
  });

  test("asks each user where the flow is a user's", async () => {
    const { config, credentials } = await authOf([{ login: ["a"] }]);
    expect(config).toMatchObject({ type: "oauth2", grant: "authorization_code" });
    expect(credentials).toContainEqual(
      expect.objectContaining({
        name: own("login.authorization_url"),
        suggested_value: "https://id.example/go",
        stored: false,
      }),
    );
  });

  test("is none where none is declared or none is possible, and says so", async () => {
    for (const security of [[], [{}]]) expect((await authOf(security)).config).toBeUndefined();
    const { config, operation } = await authOf([{ digest: [] }, { user: [], token: [] }, { nobody: [] }]);
    expect(config).toBeUndefined();
    expect(operation.warnings).toEqual([expect.stringMatching(/http digest.*basic.*bearer.*'nobody'/s)]);
    expect(operation.alternative_schemes).toEqual([["digest"], ["user", "token"], ["nobody"]]);
    const { warnings } = await importing(documentOf({ "/x": { get: ok } }), { dry_run: true });
    expect(warnings).toEqual([expect.stringContaining("securitySchemes")]);
  });

  test("takes another way where two would go to the same place, and leaves what one alone lacks to registration", async () => {
    const { config } = await authOf([{ inCookie: [], otherCookie: [] }, { key: [] }]);
    expect(config.mapping).toMatchObject([{ target: "X-Key" }]);
    const { operations } = await importing(secured([{ half: [] }]), { dry_run: true });
    expect(JSON.stringify(operations)).toContain("'authorization_url'");
  });

  test("is that of the document where the operation has none of its own", async () => {
    const result = await importing(
      {
        ...documentOf({ "/a": { get: ok }, "/b": { get: { security: [], ...ok } } }),
        security: [{ token: [] }],
        components: { securitySchemes },
      },
      { dry_run: true },
    );
    expect(definitionOf(result, "GET /a").auth_config.type).toBe("bearer");
    expect(definitionOf(result, "GET /b").auth_config).toBeUndefined();
  });

  test("shows the other ways, and takes the one that is asked for", async () => {
    const first = await authOf([{ key: [] }, { token: [] }]);
    expect(first.operation).toMatchObject({ schemes: ["key"], alternative_schemes: [["token"]] });
    expect((await authOf([{ key: [] }, { token: [] }], { auth: { scheme: "token" } })).config.type).toBe("bearer");
    expect((await authOf(undefined, { auth: { scheme: "token" } })).config.type).toBe("bearer");
    expect((await authOf([{ key: [] }], { auth: { config: null } })).config).toBeUndefined();
  });

  test("works once the credentials that the review names are stored", async () => {
    const { credentials } = await authOf([{ token: [], key: [] }]);
    expect(credentials).toEqual([
      { name: own("key"), scheme: "key", holds: "the API key", suggested_value: null, stored: false },
      {
        name: own("token"),
        scheme: "token",
        holds: "an access token",
        suggested_value: null,
        stored: false,
      },
    ]);
    await tenant.putCredential(own("key"), "k-12345678");
    await tenant.putCredential(own("token"), "t-12345678");
    const result = await importing(secured([{ token: [], key: [] }]));
    expect(result.credentials.map(({ stored }: Json) => stored)).toEqual([true, true]);
    expect((await call("x")).headers).toMatchObject({ "x-key": "k-12345678", authorization: "Bearer t-12345678" });
  });

  test("takes the caller's names for credentials, and no argument can stand in their place", async () => {
    const document = documentOf(
      {
        "/x": {
          get: {
            operationId: "x",
            security: [{ inQuery: [] }],
            parameters: [{ name: "api_key", in: "query", required: true, ...text }],
            ...ok,
          },
        },
      },
      { components: { securitySchemes } },
    );
    const result = await importing(document, { auth: { credentials: { inQuery: "MY_KEY" } }, base_url: backEnd.url });
    const { auth_config: config, parameters } = definitionOf(result, "GET /x");
    expect(config.mapping).toEqual([{ source: "MY_KEY", target: "api_key", location: "query" }]);
    expect(parameters.properties).toEqual({});
    await tenant.putCredential("MY_KEY", "s3cret-value");
    expect((await call("x")).target).toBe("/x?api_key=s3cret-value");
  });
});

describe(`keys that a document asks for as parameters ${verifies("BLIND-1", "BLIND-3", "BLIND-6")}`, () => {
  const own = (part: string): string => `http:127.0.0.1:${backEnd.port}:${part}`;
  const key = (name: string, place = "header", more: Json = {}): Json => ({
    name,
    in: place,
    required: true,
    ...text,
    ...more,
  });
  const documentWith = (parameters: readonly Json[], more: Json = {}): Json =>
    documentOf({ "/x": { get: { operationId: "x", parameters, ...ok, ...more } } });
  const isKey = { description: "Your API key." };

  test.each([
    [[key("X-Api-Key")], ["x-api-key"], { "x-api-key": "k-0" }, ""],
    [[key("secret"), key("ApiIntegrationcode")], ["secret"], { secret: "k-0" }, ""],
    [[key("api_key", "query")], ["api_key"], {}, "api_key=k-0"],
    [[key("key", "query", isKey)], ["key"], {}, "key=k-0"],
    [[key("app_id"), key("app_key")], ["app_id", "app_key"], { app_id: "k-0", app_key: "k-1" }, ""],
    [[key("Authorization")], ["authorization"], { authorization: "k-0" }, ""],
    [
      [key("Authorization", "header", { description: "`Bearer <token>`" })],
      ["authorization"],
      { authorization: "Bearer k-0" },
      "",
    ],
  ])("%j are credentials %j", async (parameters, names, headers, query) => {
    const result = await importing(documentWith([...parameters, key("q", "query")]), { base_url: backEnd.url });
    expect(result.credentials.map(({ name }: Json) => name).sort()).toEqual(names.map(own).sort());
    const wanted = parameters.length === names.length ? ["q"] : ["q", "ApiIntegrationcode"];
    expect(Object.keys(definitionOf(result, "GET /x").parameters.properties).sort()).toEqual(wanted.sort());
    for (const [at, name] of names.entries()) await tenant.putCredential(own(name), `k-${at}`);
    const sent = await call("x", Object.fromEntries(wanted.map((name) => [name, "v"])));
    expect(sent.headers).toMatchObject(headers);
    expect(sent.target).toBe(`/x?q=v${query === "" ? "" : `&${query}`}`);
  });

  test("stand beside what the document's schemes ask for", async () => {
    const document = {
      ...documentWith([key("X-Server-Token")], { security: [{ token: [] }] }),
      components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    };
    const result = await importing(document, {
      base_url: backEnd.url,
      auth: { credentials: { "X-Server-Token": "SERVER" } },
    });
    expect(definitionOf(result, "GET /x").auth_config).toEqual({
      type: "bearer",
      mapping: [
        { source: own("token"), location: "header" },
        { source: "SERVER", target: "X-Server-Token", location: "header", type: "api_key" },
      ],
    });
  });

  test.each([
    ["an item's key", key("key", "query", { description: "Of the item." })],
    ["a token that makes a write safe to repeat", key("x-amzn-client-token")],
    ["a session", key("mcp-session-id")],
    ["a signature", key("X-Signature")],
    ["how far a list was read", key("page_token", "query")],
    ["a part of the path", key("apikey", "path")],
    ["a flag", key("append_api_key", "query", { schema: { type: "boolean" }, description: "Append the API key?" })],
    ["a code", key("code", "query", { description: "Is exchanged for an access token." })],
    ["the id of a key", key("id", "query", { description: "Of the API key to delete." })],
    ["the state of a session", key("x-amz-lex-session-state")],
    ["what a request is answered by", key("x-amz-request-token")],
  ])("are not %s", async (_what, parameter) => {
    const path = parameter.in === "path" ? "/x/{apikey}" : "/x";
    const document = documentOf({ [path]: { get: { operationId: "x", parameters: [parameter], ...ok } } });
    const result = await importing(document, { dry_run: true });
    expect(Object.keys(definitionOf(result, `GET ${path}`).parameters.properties)).toEqual([parameter.name]);
    expect(result.credentials).toEqual([]);
  });

  test.each([
    ["somebody else's token", key("customerAuthToken", "query", { description: "Access token of the customer." })],
    ["what the operation stores", key("PrivateKey", "query", { description: "The private key in PEM." })],
    [
      "a filter",
      key("applicationKey", "query", { required: false, description: "The application key of the product." }),
    ],
  ])("are not, where a scheme of the document lets the caller in, %s", async (_what, parameter) => {
    const securitySchemes = { token: { type: "http", scheme: "bearer" } };
    const document = { ...documentWith([parameter], { security: [{ token: [] }] }), components: { securitySchemes } };
    const result = await importing(document, { dry_run: true });
    expect(Object.keys(definitionOf(result, "GET /x").parameters.properties)).toEqual([parameter.name]);
    expect(result.credentials.map(({ name }: Json) => name)).toEqual([own("token")]);
    expect(result.operations[0].warnings).toHaveLength(parameter.required ? 1 : 0);
  });

  test("leave alone what was set up here for the same places", async () => {
    const document = documentWith([key("X-Api-Key"), key("q", "query")]);
    const first = await importing(document, { base_url: backEnd.url });
    const { plugin_id: id, definition: guessed } = first.operations[0];
    const { required_credentials: _guessed, ...definition } = guessed;
    const mapping = [{ source: "MINE", target: "x-api-key", location: "header" }];
    await tenant.client.expect("put", `/v1/plugins/${id}`, {
      ...definition,
      auth_config: { type: "api_key", mapping },
    });
    const again = await importing(document, { base_url: backEnd.url });
    expect([again.diff.unchanged, again.credentials]).toEqual([["x"], []]);
    const moved = await importing(document, { base_url: "http://127.0.0.1:9", dry_run: true });
    expect(JSON.stringify(definitionOf(moved, "GET /x").auth_config)).not.toContain("MINE");
    expect(moved.credentials).toHaveLength(1);
    const more = await importing(documentWith([key("X-Api-Key"), key("X-Auth-Token")]), { base_url: backEnd.url });
    expect(more.diff.changed).toHaveLength(1);
    expect(definitionOf(more, "GET /x").auth_config.mapping).toHaveLength(2);
  });

  test("that may be left out and are all that there is are sent where a credential is named for them, which the preview says", async () => {
    const document = documentWith([key("X-Api-Key", "header", { required: false })]);
    const auth = { credentials: { "X-Api-Key": "NAME" } };
    const { operations } = await importing(document, { dry_run: true });
    expect(operations[0].warnings).toEqual([expect.stringContaining(`import with "auth": ${JSON.stringify(auth)}`)]);
    const result = await importing(document, { base_url: backEnd.url, auth });
    expect(result.operations[0].warnings).toEqual([]);
    expect(result.credentials).toMatchObject([{ name: "NAME", holds: "the value of header 'X-Api-Key'" }]);
    await tenant.putCredential("NAME", "k-0");
    expect((await call("x", {})).headers).toMatchObject({ "x-api-key": "k-0" });
  });

  test("that may be left out are, and said; with 'config': null all are arguments", async () => {
    const document = documentWith([key("X-Api-Key", "header", { required: false }), key("auth_token", "query")]);
    const told = await importing(document, { dry_run: true });
    expect(told.operations[0].warnings).toEqual([expect.stringContaining("'X-Api-Key' is for a key, which")]);
    expect(definitionOf(told, "GET /x").parameters.properties).toEqual({});
    const open = await importing(document, { dry_run: true, auth: { config: null } });
    expect(Object.keys(definitionOf(open, "GET /x").parameters.properties).sort()).toEqual(["X-Api-Key", "auth_token"]);
  });
});

describe(`a document whose keys stand in path and body ${verifies("BLIND-1", "BLIND-3")}`, () => {
  test("is imported with a mapping of the caller's, each operation with what it has a place for", async () => {
    const body = {
      required: true,
      content: {
        "application/json": {
          schema: {
            type: "object",
            properties: {
              secret: { type: "string" },
              amount: { type: "integer" },
              merchant: {
                type: "object",
                properties: { key: { type: "string" }, name: { type: "string" } },
                required: ["key", "name"],
              },
              auth: { type: "object", properties: { key: { type: "string" } }, required: ["key"] },
            },
            required: ["secret", "amount", "auth"],
          },
        },
      },
    };
    const document = documentOf({
      "/bot{token}/pay": {
        post: {
          operationId: "pay",
          parameters: [{ name: "token", in: "path", required: true, ...text }],
          requestBody: body,
          ...ok,
        },
      },
      "/bot{token}/state": { get: { operationId: "state", ...ok } },
      "/health": { get: { operationId: "health", ...ok } },
    });
    const mapping = [
      { source: "BOT", target: "token", location: "path" },
      { source: "SECRET", target: "secret", location: "body" },
      { source: "SECRET", target: "/merchant/key", location: "body" },
      { source: "SECRET", target: "/auth/key", location: "body" },
    ];
    const result = await importing(document, {
      auth: { config: { type: "api_key", mapping } },
      base_url: backEnd.url,
    });
    const { properties, required } = definitionOf(result, "POST /bot{token}/pay").parameters;
    expect([properties, required]).toEqual([
      {
        amount: { type: "integer" },
        merchant: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
      },
      ["amount"],
    ]);
    expect(definitionOf(result, "GET /bot{token}/state").auth_config.mapping).toEqual([mapping[0]]);
    expect(definitionOf(result, "GET /health").auth_config).toBeUndefined();
    await tenant.putCredential("BOT", "1:AbcDef");
    await tenant.putCredential("SECRET", "s-12345678");
    const paid = await call("pay", { amount: 3, merchant: { name: "ann" } });
    expect([paid.target, JSON.parse(String(paid.body))]).toEqual([
      "/bot1:AbcDef/pay",
      {
        amount: 3,
        secret: "s-12345678",
        merchant: { name: "ann", key: "s-12345678" },
        auth: { key: "s-12345678" },
      },
    ]);
    expect((await call("state")).target).toBe("/bot1:AbcDef/state");
  });
});
