/** OpenAPI documents become tools: imported, reviewed, called and imported again through the public routes. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
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

const ok = { responses: { 200: { description: "ok" } } };
const text = { schema: { type: "string" } };

const documentOf = (paths: Json, change: Json = {}): Json => ({
  openapi: "3.0.3",
  info: { title: "Demo", version: "1" },
  servers: [{ url: `${backEnd.url}/v1` }],
  paths,
  ...change,
});

const importing = (openapi: Json, more: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/plugins/import", { openapi, ...more });
const refusal = async (openapi: Json, more: Json = {}): Promise<Json> => {
  const reply = await tenant.client.send("post", "/v1/plugins/import", { openapi, ...more });
  return { status: reply.status, ...reply.json.error };
};

async function call(name: string, args: Json = {}): Promise<RecordedRequest> {
  await tenant.client.post("/v1/tools/invoke", { name, arguments: args });
  const sent = backEnd.requests.at(-1);
  if (sent === undefined) throw new Error("nothing was sent");
  return sent;
}

const namesOf = async (of: TestTenant): Promise<readonly string[]> =>
  (await pluginsOf(of)).map(({ name }): string => name).sort();
const pluginsOf = async (of: TestTenant): Promise<Json[]> =>
  (await of.client.get("/v1/plugins?limit=100")).data.filter(({ type }: Json) => type === "HTTP");
const definitionOf = ({ operations }: Json, operation: string): Json =>
  operations.find((each: Json) => each.operation === operation)?.definition;
const versionOf = async (): Promise<number> => (await gateway.core.repos.tenants.get(tenant.id))?.configVersion ?? 0;

describe(`an imported document ${verifies("BLIND-1", "BLIND-2")}`, () => {
  test("is reviewed first: a dry run shows the tools and makes none", async () => {
    const document = documentOf({
      "/users/{id}": {
        parameters: [{ name: "id", in: "path", required: true, ...text }],
        get: { operationId: "getUser", summary: "One user", description: "By id.", tags: ["users"], ...ok },
        delete: { ...ok },
      },
    });
    const version = await versionOf();
    const result = await importing(document, { dry_run: true });
    expect(result).toMatchObject({
      object: "plugin_import",
      dry_run: true,
      document: { id: "demo", title: "Demo", version: "1", base_url: `${backEnd.url}/v1`, origin: backEnd.url },
      diff: { added: ["getUser", "delete_users_id"], changed: [], unchanged: [], removed: [] },
      confirmations: [],
    });
    expect(definitionOf(result, "GET /users/{id}")).toMatchObject({
      schema_version: "v1",
      name: "getUser",
      title: "One user",
      description: "One user\n\nBy id.",
      parameters: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
      execution: { method: "GET", base_url: `${backEnd.url}/v1/users/{id}`, param_placement: "query" },
      source: { document: "demo", operation: "GET /users/{}" },
    });
    expect(await pluginsOf(tenant)).toEqual([]);
    expect(await versionOf()).toBe(version);
  });

  test("becomes tools that are called at once and can be read back as definitions", async () => {
    const result = await importing(documentOf({ "/ping": { get: { operationId: "ping", ...ok } } }));
    const [plugin] = await pluginsOf(tenant);
    expect(plugin).toMatchObject({ id: result.operations[0].plugin_id, name: "ping", hash: result.operations[0].hash });
    expect(plugin.definition).toEqual(result.operations[0].definition);
    expect(await call("ping")).toMatchObject({ method: "GET", target: "/v1/ping" });
  });

  test("may be JSON text, YAML text or an object", async () => {
    const document = documentOf({ "/ping": { get: { operationId: "ping", ...ok } } });
    const yaml = `openapi: 3.0.3\ninfo: {title: Demo, version: "1"}\nservers:\n  - url: ${backEnd.url}/v1\npaths:\n  /ping:\n    get:\n      operationId: ping\n      responses:\n        200: {description: ok}\n`;
    const seen = new Set<string>();
    for (const openapi of [document, JSON.stringify(document), `\uFEFF${JSON.stringify(document)}`, yaml]) {
      seen.add(JSON.stringify((await importing(openapi, { dry_run: true })).operations));
    }
    expect(seen.size).toBe(1);
  });

  test("is fetched from its address, which relative servers start from", async () => {
    const document = documentOf(
      { "/ping": { get: { operationId: "ping", ...ok } } },
      { servers: [{ url: "../api/" }] },
    );
    backEnd.answer = ({ target }) => ({ body: target === "/docs/openapi.json" ? JSON.stringify(document) : "{}" });
    const result = await tenant.client.post("/v1/plugins/import", { url: `${backEnd.url}/docs/openapi.json` });
    expect(result.document).toMatchObject({ id: `${backEnd.url}/docs/openapi.json`, base_url: `${backEnd.url}/api` });
    expect(await call("ping")).toMatchObject({ target: "/api/ping" });
  });

  test.each([
    ["http://169.254.169.254/openapi.json", 403, "egress_denied"],
    ["http://10.0.0.1/openapi.json", 403, "egress_denied"],
    ["file:///etc/passwd", 400, "invalid_request"],
    ["http://user:pass@127.0.0.1/openapi.json", 400, "invalid_request"],
  ])("is not fetched from %s", async (url, status, code) => {
    const reply = await tenant.client.send("post", "/v1/plugins/import", { url });
    expect(reply).toMatchObject({ status, json: { error: { code } } });
  });

  test("is refused under the field that named it", async () => {
    backEnd.answer = () => ({ body: '{"hello":"world"}' });
    const { json } = await tenant.client.send("post", "/v1/plugins/import", { url: `${backEnd.url}/x.json` });
    expect(json.error.param).toBe("url");
    expect(json.error.message).toMatch(/^'url' leads to what is no OpenAPI/);
  });

  test.each([
    [{ status: 404, body: "secret page" }, 400, "invalid_request"],
    [{ status: 503, body: "" }, 502, "tool_unreachable"],
    [{ body: '{"hello":"world"}' }, 400, "invalid_request"],
    [{ body: "a: [unfinished" }, 400, "invalid_request"],
    [{ body: Buffer.from([0xff, 0xfe, 0x00]) }, 400, "invalid_request"],
  ])("is refused where its address answers %j", async (answer, status, code) => {
    backEnd.answer = () => answer;
    const reply = await tenant.client.send("post", "/v1/plugins/import", { url: `${backEnd.url}/openapi.json` });
    backEnd.answer = () => ({ body: "{}" });
    expect(reply).toMatchObject({ status, json: { error: { code } } });
    expect(reply.text).not.toContain("secret page");
  });

  test.each([
    [{}, "openapi"],
    [{ openapi: {}, curl: "curl http://a" }, "openapi"],
    [{ openapi: { openapi: "4.0.0" } }, "openapi"],
    [{ openapi: "[]" }, "openapi"],
    [{ openapi: "" }, "openapi"],
    [{ curl: "curl http://a.example", base_url: "http://b.example" }, "base_url"],
    [{ openapi: { openapi: "3.1.0" }, name: "x" }, "name"],
    [{ openapi: { openapi: "3.1.0", paths: {} }, allowed_origins: ["example.com"] }, "allowed_origins"],
    [{ definitions: [{}], remove_missing: true }, "document_id"],
    [{ openapi: { openapi: "3.1.0" }, prefix: "a b" }, "prefix"],
    [{ openapi: { openapi: "3.1.0" }, unknown: 1 }, "unknown"],
  ])("is refused by name of the field: %j", async (body, param) => {
    const reply = await tenant.client.send("post", "/v1/plugins/import", body);
    expect(reply).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param } } });
  });
});

describe(`where an imported API is ${verifies("BLIND-2", "BLIND-10")}`, () => {
  const paths = { "/ping": { get: { operationId: "ping", ...ok } } };

  test("has to be known: a document without servers asks for base_url", async () => {
    expect(await refusal(documentOf(paths, { servers: undefined }))).toMatchObject({
      status: 400,
      code: "invalid_request",
      param: "base_url",
    });
    const { document } = await importing(documentOf(paths, { servers: [] }), { base_url: `${backEnd.url}/own/` });
    expect(document).toMatchObject({ base_url: `${backEnd.url}/own` });
    expect(await call("ping")).toMatchObject({ target: "/own/ping" });
  });

  test("has variables with defaults, which can be given otherwise", async () => {
    const servers = [
      { url: `${backEnd.url}/{version}/{region}`, variables: { version: { default: "v2" }, region: { enum: ["eu"] } } },
    ];
    expect(await refusal(documentOf(paths, { servers }))).toMatchObject({
      param: "base_url",
      message: expect.stringContaining("'region'"),
    });
    const given = { server_variables: { region: "eu" }, dry_run: true };
    expect((await importing(documentOf(paths, { servers }), given)).document.base_url).toBe(`${backEnd.url}/v2/eu`);
  });

  test("joins base and path with one slash, whatever each brings", async () => {
    for (const [server, path] of [
      ["/v1/", "/ping"],
      ["/v1", "ping"],
      ["/v1//", "ping"],
    ]) {
      const document = documentOf({ [path ?? ""]: paths["/ping"] }, { servers: [{ url: backEnd.url + server }] });
      expect(definitionOf(await importing(document, { dry_run: true }), `GET ${path}`).execution.base_url).toBe(
        `${backEnd.url}/v1/ping`,
      );
    }
  });

  test("is spoken to safely where a document of no address names a host without a scheme", async () => {
    const document = documentOf(paths, { servers: [{ url: "//api.example.com/v1" }] });
    expect((await importing(document, { dry_run: true })).document.base_url).toBe("https://api.example.com/v1");
  });

  test("may not be an address that tools may not reach", async () => {
    for (const url of ["http://169.254.169.254/latest", "http://10.1.2.3"]) {
      expect(await refusal(documentOf(paths, { servers: [{ url }] }))).toMatchObject({
        status: 403,
        code: "egress_denied",
      });
      expect(await refusal(documentOf(paths), { base_url: url })).toMatchObject({ status: 403, code: "egress_denied" });
    }
  });

  test("of Swagger 2.0 is host, base path and the safest scheme", async () => {
    const swagger = { swagger: "2.0", info: { title: "Old", version: "1" }, paths };
    const at = async (change: Json): Promise<string> =>
      (await importing({ ...swagger, ...change }, { dry_run: true })).document.base_url;
    expect(await at({ host: "api.example.com", basePath: "/v2", schemes: ["http", "https"] })).toBe(
      "https://api.example.com/v2",
    );
    expect(await at({ host: "api.example.com" })).toBe("https://api.example.com");
    expect(await refusal({ ...swagger, basePath: "/v2" })).toMatchObject({ param: "base_url" });
  });
});

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

describe(`placeholders and styles of an imported document ${verifies("BLIND-2", "API-4")}`, () => {
  const parameter = (name: string, place: string, more: Json = text): Json => ({
    name,
    in: place,
    ...(place === "path" ? { required: true } : {}),
    ...more,
  });
  const list = { schema: { type: "array", items: { type: "string" } } };

  test("each placeholder is filled wherever it stands, with text that means nothing to the filling", async () => {
    await importing(
      documentOf({
        "/orgs/{org}/teams/{team}/of/{org}": {
          get: { operationId: "teamOf", parameters: [parameter("org", "path"), parameter("team", "path")], ...ok },
        },
        "/files/{name}.{ext}": {
          get: { operationId: "file", parameters: [parameter("name", "path"), parameter("ext", "path")], ...ok },
        },
        "/a/{id}/{id2}": {
          get: { operationId: "overlap", parameters: [parameter("id", "path"), parameter("id2", "path")], ...ok },
        },
        "/undeclared/{what-ever}/{proxy+}": { get: { operationId: "undeclared", ...ok } },
      }),
    );
    expect((await call("teamOf", { org: "{team}", team: "t$&1" })).target).toBe(
      "/v1/orgs/%7Bteam%7D/teams/t%24%261/of/%7Bteam%7D",
    );
    expect((await call("file", { name: "report", ext: "pdf" })).target).toBe("/v1/files/report.pdf");
    expect((await call("overlap", { id: "{id2}", id2: "{id}" })).target).toBe("/v1/a/%7Bid2%7D/%7Bid%7D");
    expect((await call("undeclared", { "what-ever": "a/b", proxy: "../c" })).target).toBe(
      "/v1/undeclared/a%2Fb/..%2Fc",
    );
  });

  test("lists and objects stand in a query as their style says", async () => {
    await importing(
      documentOf({
        "/search": {
          get: {
            operationId: "search",
            parameters: [
              parameter("fields", "query", { explode: false, ...list }),
              parameter("tag", "query", list),
              parameter("days", "query", { style: "pipeDelimited", explode: false, ...list }),
              parameter("words", "query", { style: "spaceDelimited", explode: false, ...list }),
              parameter("filter", "query", { style: "deepObject", explode: true, schema: { type: "object" } }),
              parameter("range", "query", { schema: { type: "object" } }),
              parameter("point", "query", { explode: false, schema: { type: "object" } }),
              parameter("json", "query", { content: { "application/json": list } }),
            ],
            ...ok,
          },
        },
      }),
    );
    const { target } = await call("search", {
      fields: ["id", "a,b"],
      tag: ["x", "y"],
      days: ["mon", "tue"],
      words: ["a b", "c"],
      filter: { min: 1, max: 5, in: ["a", { b: "c&d" }] },
      range: { from: 1, to: 2 },
      point: { x: 1, y: 2 },
      json: ["x"],
    });
    expect(target.slice(target.indexOf("?") + 1).split("&")).toEqual([
      "fields=id,a%2Cb",
      "tag=x",
      "tag=y",
      "days=mon%7Ctue",
      "words=a%20b%20c",
      "filter%5Bmin%5D=1",
      "filter%5Bmax%5D=5",
      "filter%5Bin%5D%5B0%5D=a",
      "filter%5Bin%5D%5B1%5D%5Bb%5D=c%26d",
      "from=1",
      "to=2",
      "point=x,1,y,2",
      "json=%5B%22x%22%5D",
    ]);
  });

  test("lists and objects stand in path, header and cookie as their style says", async () => {
    const result = await importing(
      documentOf({
        "/select/{days}/{label}/{matrix}": {
          get: {
            operationId: "select",
            parameters: [
              parameter("days", "path", list),
              parameter("label", "path", { style: "label", explode: true, ...list }),
              parameter("matrix", "path", { style: "matrix", ...text }),
              parameter("X-Ids", "header", list),
              parameter("X-Map", "header", { explode: true, schema: { type: "object" } }),
              parameter("theme", "cookie"),
              parameter("Accept", "header"),
              parameter("Authorization", "header"),
            ],
            ...ok,
          },
        },
      }),
    );
    const args = {
      days: ["monday", "tue,sday"],
      label: ["a", "b"],
      matrix: "x;y",
      "X-Ids": ["1", "2"],
      "X-Map": { a: 1 },
      theme: "d;k",
    };
    const sent = await call("select", args);
    expect(sent.target).toBe("/v1/select/monday,tue%2Csday/.a.b/;matrix=x%3By");
    expect(sent.headers).toMatchObject({ "x-ids": "1,2", "x-map": "a=1", cookie: "theme=d%3Bk" });
    const reply = await tenant.client.send("post", "/v1/tools/invoke", {
      name: "select",
      arguments: { ...args, Authorization: "x" },
    });
    expect(result.operations[0].warnings).toContainEqual(expect.stringMatching(/'Authorization' is for a key/));
    expect(reply.json.error).toMatchObject({ code: "invalid_arguments" });
  });

  test("formats of Swagger 2.0 are the styles of today", async () => {
    const items = { type: "array", items: { type: "string" } };
    await importing({
      swagger: "2.0",
      info: { title: "Old", version: "1" },
      host: `127.0.0.1:${backEnd.port}`,
      schemes: ["http"],
      paths: {
        "/pets/{ids}": {
          get: {
            operationId: "pets",
            parameters: [
              { name: "ids", in: "path", required: true, ...items },
              { name: "csv", in: "query", ...items },
              { name: "multi", in: "query", collectionFormat: "multi", ...items },
              { name: "pipes", in: "query", collectionFormat: "pipes", ...items },
            ],
            ...ok,
          },
        },
      },
    });
    const { target } = await call("pets", { ids: ["1", "2"], csv: ["a", "b"], multi: ["c", "d"], pipes: ["e", "f"] });
    expect(target).toBe("/pets/1,2?csv=a,b&multi=c&multi=d&pipes=e%7Cf");
  });

  test("two parameters of one name keep their places", async () => {
    const body = {
      content: {
        "application/json": { schema: { type: "object", properties: { id: { type: "integer" }, __proto__x: {} } } },
      },
    };
    const result = await importing(
      documentOf({
        "/x/{id}": {
          post: {
            operationId: "same",
            parameters: [
              parameter("id", "path"),
              parameter("id", "query"),
              parameter("id", "header"),
              parameter("page[size]", "query"),
            ],
            requestBody: { required: true, ...body },
            ...ok,
          },
        },
      }),
    );
    expect(Object.keys(definitionOf(result, "POST /x/{id}").parameters.properties)).toEqual([
      "id",
      "query_id",
      "page_size",
      "header_id",
      "body_id",
      "__proto__x",
    ]);
    const sent = await call("same", { id: "p", query_id: "q", header_id: "h", body_id: 5, page_size: "10" });
    expect(sent).toMatchObject({ target: "/v1/x/p?id=q&page%5Bsize%5D=10" });
    expect(sent.headers["id"]).toBe("h");
    expect(sent.body.toString()).toBe('{"id":5}');
  });
});

describe(`bodies of an imported document ${verifies("BLIND-2", "API-2")}`, () => {
  const posting = (operationId: string, content: Json, more: Json = {}): Json => ({
    post: { operationId, requestBody: { required: true, content, ...more }, ...ok },
  });
  const schema = (properties: Json, more: Json = {}): Json => ({ schema: { type: "object", properties, ...more } });

  test("are sent as the one type that the operation takes", async () => {
    const document = documentOf({
      "/pay": posting("pay", {
        "application/x-www-form-urlencoded": schema(
          { amount: { type: "integer" }, memo: { type: "string" }, live: { type: "boolean" } },
          { required: ["amount"] },
        ),
      }),
      "/doc": {
        patch: {
          operationId: "patchDoc",
          requestBody: { content: { "application/merge-patch+json": schema({ title: { type: ["string", "null"] } }) } },
          ...ok,
        },
      },
      "/both": posting("both", {
        "application/xml": schema({ a: {} }),
        "application/json; charset=utf-8": schema({ a: {} }),
      }),
    });
    const result = await importing({ ...document, openapi: "3.1.0" });
    const pay = await call("pay", { amount: 100, memo: "测试 a&b=c", live: false });
    expect(pay.headers["content-type"]).toBe("application/x-www-form-urlencoded");
    expect(pay.body.toString()).toBe("amount=100&memo=%E6%B5%8B%E8%AF%95+a%26b%3Dc&live=false");
    const patched = await call("patchDoc", { title: null });
    expect(patched).toMatchObject({ method: "PATCH", headers: { "content-type": "application/merge-patch+json" } });
    expect(patched.body.toString()).toBe('{"title":null}');
    expect((await call("both", { a: 1 })).headers["content-type"]).toBe("application/json; charset=utf-8");
    const both = result.operations.find(({ name }: Json) => name === "both");
    expect(both.warnings).toEqual([expect.stringContaining("application/xml")]);
  });

  test("that are no object are one argument", async () => {
    await importing(
      documentOf({
        "/list": posting("list", { "application/json": { schema: { type: "array", items: { type: "integer" } } } }),
        "/any": posting("any", { "application/json": {} }),
        "/map": posting("map", {
          "application/json": { schema: { type: "object", additionalProperties: { type: "integer" } } },
        }),
        "/text": posting("text", { "text/plain": text }),
        "/csv": posting("csv", { "text/csv": text }),
        "/bytes": posting("bytes", { "application/octet-stream": { schema: { type: "string", format: "binary" } } }),
        "/xml": posting("xml", { "application/xml": text }),
        "/either": posting("either", {
          "application/json": { schema: { oneOf: [{ type: "object", properties: { a: {} } }, { type: "array" }] } },
        }),
      }),
    );
    const sent = async (name: string, body: Json): Promise<readonly [string, string]> => {
      const request = await call(name, { body });
      return [String(request.headers["content-type"]), request.body.toString("latin1")];
    };
    expect(await sent("list", [1, 2])).toEqual(["application/json", "[1,2]"]);
    expect(await sent("any", "x")).toEqual(["application/json", '"x"']);
    expect(await sent("map", { a: 1 })).toEqual(["application/json", '{"a":1}']);
    expect(await sent("text", "a\nb")).toEqual(["text/plain", "a\nb"]);
    expect(await sent("csv", "a,b")).toEqual(["text/csv", "a,b"]);
    expect(await sent("bytes", Buffer.from([0, 255]).toString("base64"))).toEqual([
      "application/octet-stream",
      "\0\xff",
    ]);
    expect(await sent("xml", "<a/>")).toEqual(["application/xml", "<a/>"]);
    expect(await sent("either", [1])).toEqual(["application/json", "[1]"]);
    expect(await sent("either", { a: 1 })).toEqual(["application/json", '{"a":1}']);
    expect(
      (await tenant.client.send("post", "/v1/tools/invoke", { name: "list", arguments: { body: {} } })).status,
    ).toBe(400);
  });

  test("of several parts have fields also where the document does not name them", async () => {
    const file = { type: "string", format: "binary" };
    const result = await importing(
      documentOf({
        "/one": posting("one", { "multipart/form-data": { schema: file } }),
        "/more": posting("more", { "multipart/form-data": { schema: { type: "array", items: file } } }),
        "/words": posting("words", { "multipart/form-data": text }),
        "/any": posting("any", { "multipart/form-data": {} }),
      }),
    );
    const content = Buffer.from("zwölf").toString("base64");
    for (const [name, args] of [
      ["one", { file: content }],
      ["more", { file: [content, content] }],
    ] as const) {
      const parts = (await call(name, args)).body.toString().split('name="file"; filename=').slice(1);
      expect(parts.map((part) => part.includes("\r\n\r\nzwölf\r\n"))).toEqual(name === "one" ? [true] : [true, true]);
    }
    for (const name of ["words", "any"])
      expect((await call(name, { body: { a: "b" } })).body.toString()).toContain('name="a"\r\n\r\nb\r\n');
    expect(result.operations.flatMap(({ warnings }: Json) => warnings)).toEqual([
      expect.stringContaining("'file'"),
      expect.stringContaining("'file'"),
      expect.stringContaining("'body'"),
    ]);
  });

  test("of no media type are JSON", async () => {
    await importing(documentOf({ "/x": posting("x", { "": schema({ a: { type: "integer" } }) }) }));
    const { headers, body } = await call("x", { a: 1 });
    expect([headers["content-type"], body.toString()]).toEqual(["application/json", '{"a":1}']);
  });

  test("of several parts carry files, fields and objects each in its own way", async () => {
    await importing(
      documentOf({
        "/upload": posting("upload", {
          "multipart/form-data": {
            ...schema({
              photo: { type: "string", format: "binary" },
              more: { type: "array", items: { type: "string", format: "binary" } },
              note: { type: "string" },
              meta: { type: "object" },
              table: { type: "string" },
              icon: { type: "string" },
            }),
            encoding: {
              photo: { contentType: "image/png" },
              table: { contentType: "text/csv" },
              icon: { contentType: "image/svg+xml, image/png" },
            },
          },
        }),
      }),
    );
    const base64 = (value: string): string => Buffer.from(value).toString("base64");
    const { headers, body } = await call("upload", {
      photo: base64("PNG"),
      more: [base64("one"), base64("two")],
      note: "hi",
      meta: { a: 1 },
      table: "a,b",
    });
    const boundary = /boundary=(.*)$/.exec(String(headers["content-type"]))?.[1] ?? "";
    const parts = body
      .toString("latin1")
      .split(`--${boundary}`)
      .slice(1, -1)
      .map((part) => part.trim());
    expect(parts).toEqual([
      'content-disposition: form-data; name="photo"; filename="photo"\r\ncontent-type: image/png\r\n\r\nPNG',
      'content-disposition: form-data; name="more"; filename="more"\r\ncontent-type: application/octet-stream\r\n\r\none',
      'content-disposition: form-data; name="more"; filename="more"\r\ncontent-type: application/octet-stream\r\n\r\ntwo',
      'content-disposition: form-data; name="note"\r\n\r\nhi',
      'content-disposition: form-data; name="meta"\r\ncontent-type: application/json\r\n\r\n{"a":1}',
      'content-disposition: form-data; name="table"\r\ncontent-type: text/csv\r\n\r\na,b',
    ]);
  });

  test("of Swagger 2.0 are forms, forms with files, or a parameter", async () => {
    const swagger = (parameters: Json, more: Json = {}): Json => ({ post: { parameters, ...more, ...ok } });
    await importing({
      swagger: "2.0",
      info: { title: "Old", version: "1" },
      host: `127.0.0.1:${backEnd.port}`,
      schemes: ["http"],
      consumes: ["application/json"],
      definitions: {
        Pet: {
          type: "object",
          required: ["name"],
          properties: { name: { type: "string" }, id: { type: "integer", readOnly: true } },
        },
      },
      parameters: { Body: { name: "body", in: "body", required: true, schema: { $ref: "#/definitions/Pet" } } },
      paths: {
        "/pet": swagger([{ $ref: "#/parameters/Body" }], { operationId: "addPet" }),
        "/form": swagger(
          [
            { name: "a", in: "formData", type: "array", items: { type: "string" }, collectionFormat: "multi" },
            { name: "b", in: "formData", type: "string" },
          ],
          { operationId: "form" },
        ),
        "/file": swagger([{ name: "f", in: "formData", type: "file", required: true }], { operationId: "file" }),
      },
    });
    expect((await call("addPet", { name: "Rex" })).body.toString()).toBe('{"name":"Rex"}');
    const form = await call("form", { a: ["1", "2"], b: "x y" });
    expect(form.headers["content-type"]).toBe("application/x-www-form-urlencoded");
    expect(form.body.toString()).toBe("a=1&a=2&b=x+y");
    expect((await call("file", { f: "aGk=" })).body.toString()).toContain('name="f"; filename="f"');
    const { parameters } = (await pluginsOf(tenant)).find(({ name }) => name === "addPet").definition;
    expect(parameters).toMatchObject({ properties: { name: { type: "string" } }, required: ["name"] });
    expect(parameters.properties).not.toHaveProperty("id");
  });

  test("send no defaults of their own: those are for the back end to know", async () => {
    await importing(
      documentOf({
        "/repo": {
          patch: {
            operationId: "update",
            parameters: [
              { name: "per_page", in: "query", schema: { type: "integer", default: 30 } },
              { name: "api-version", in: "query", required: true, schema: { type: "string", default: "2024-01-01" } },
            ],
            requestBody: {
              content: {
                "application/json": schema({ private: { type: "boolean", default: false }, name: { type: "string" } }),
              },
            },
            ...ok,
          },
        },
      }),
    );
    const sent = await call("update", { name: "n" });
    expect(sent.target).toBe("/v1/repo?api-version=2024-01-01");
    expect(sent.body.toString()).toBe('{"name":"n"}');
    const [plugin] = await pluginsOf(tenant);
    expect(plugin.definition.parameters.properties.private.description).toBe("Default: false.");
  });

  test("are safe to repeat where the operation takes an idempotency key", async () => {
    const header = { name: "Idempotency-Key", in: "header", required: true, ...text };
    const result = await importing(
      documentOf({ "/pay": { post: { operationId: "pay", parameters: [header], ...ok } } }),
    );
    const { parameters, execution } = definitionOf(result, "POST /pay");
    expect([parameters.properties, execution.idempotency_header]).toEqual([{}, "Idempotency-Key"]);
    expect((await call("pay")).headers["idempotency-key"]).toMatch(/^call_/);
  });

  test("keep what a name is, however it looks", async () => {
    const properties: Json = JSON.parse(
      '{"const":{"type":"string"},"$ref":{"type":"string"},"properties":{"type":"object","properties":{"__proto__":{"type":"integer"},"$ref":{"type":"string"},"type":{"type":"string"}}},"__proto__":{"type":"integer"},"名称":{"type":"string"}}',
    );
    const result = await importing(
      documentOf({ "/odd": posting("odd", { "application/json": { schema: { type: "object", properties } } }) }),
    );
    expect(Object.keys(definitionOf(result, "POST /odd").parameters.properties).sort()).toEqual([
      "const",
      "properties",
      "proto",
      "ref",
      "名称",
    ]);
    const inner: Json = JSON.parse('{"__proto__":1,"$ref":"#/x","type":"t"}');
    const args = { const: "c", ref: "r", proto: 7, properties: inner, 名称: "n" };
    const sent = await call("odd", args);
    expect(JSON.parse(sent.body.toString())).toEqual(
      JSON.parse(
        '{"const":"c","$ref":"r","__proto__":7,"properties":{"__proto__":1,"$ref":"#/x","type":"t"},"名称":"n"}',
      ),
    );
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
            properties: { secret: { type: "string" }, amount: { type: "integer" } },
            required: ["secret", "amount"],
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
    ];
    const result = await importing(document, {
      auth: { config: { type: "api_key", mapping } },
      base_url: backEnd.url,
    });
    expect(definitionOf(result, "POST /bot{token}/pay").parameters).toMatchObject({
      properties: { amount: { type: "integer" } },
      required: ["amount"],
    });
    expect(definitionOf(result, "GET /bot{token}/state").auth_config.mapping).toEqual([mapping[0]]);
    expect(definitionOf(result, "GET /health").auth_config).toBeUndefined();
    await tenant.putCredential("BOT", "1:AbcDef");
    await tenant.putCredential("SECRET", "s-12345678");
    const paid = await call("pay", { amount: 3 });
    expect([paid.target, JSON.parse(String(paid.body))]).toEqual([
      "/bot1:AbcDef/pay",
      { amount: 3, secret: "s-12345678" },
    ]);
    expect((await call("state")).target).toBe("/bot1:AbcDef/state");
  });
});

describe(`importing a document again ${verifies("BLIND-1", "BLIND-4")}`, () => {
  const operation = (id: string, change: Json = {}): Json => ({
    operationId: id,
    parameters: [{ name: "q", in: "query", ...text }],
    ...ok,
    ...change,
  });
  const first = (): Json =>
    documentOf({
      "/a": { get: operation("getA") },
      "/b/{id}": { get: operation("getB") },
      "/c": { get: operation("getC") },
    });

  test("changes nothing where the document is the same: no hash, no id, no version", async () => {
    await importing(first());
    const [before, version] = [await pluginsOf(tenant), await versionOf()];
    const reordered = Object.fromEntries(Object.entries(first()).reverse());
    for (const document of [first(), reordered, JSON.stringify(first())]) {
      const { diff } = await importing(document);
      expect(diff).toEqual({ added: [], changed: [], unchanged: ["getA", "getB", "getC"], removed: [] });
    }
    expect(await pluginsOf(tenant)).toEqual(before);
    expect(await versionOf()).toBe(version);
  });

  test("says what is new, what changed and in which fields, and what is gone", async () => {
    const made = await importing(first());
    const version = await versionOf();
    const idOf = (name: string): string => made.operations.find((each: Json) => each.name === name).plugin_id;
    const second = documentOf({
      "/a": { get: operation("getA") },
      // The placeholder's name and the operation's id are labels: it is the same operation.
      "/b/{key}": {
        get: operation("renamed", {
          description: "New.",
          parameters: [{ name: "q", in: "query", schema: { type: "integer" } }],
        }),
      },
      "/d": { get: operation("getD") },
    });
    const dry = await importing(second, { dry_run: true });
    const diff = {
      added: ["getD"],
      changed: [
        {
          name: "getB",
          fields: expect.arrayContaining(["description", "execution.base_url", "parameters.properties.q.type"]),
        },
      ],
      unchanged: ["getA"],
      removed: ["getC"],
    };
    expect(dry.diff).toEqual(diff);
    expect(dry.operations).toContainEqual(
      expect.objectContaining({ name: "getC", action: "missing", operation: "GET /c" }),
    );
    expect(await versionOf()).toBe(version);

    expect((await importing(second)).diff).toEqual(diff);
    const kept = await pluginsOf(tenant);
    expect(await namesOf(tenant)).toEqual(["getA", "getB", "getC", "getD"]);
    expect(kept.find(({ name }) => name === "getB")).toMatchObject({ id: idOf("getB"), description: "New." });

    const removing = await importing(second, { remove_missing: true });
    expect(removing.diff).toMatchObject({ added: [], changed: [], removed: ["getC"] });
    expect(removing.operations).toContainEqual(expect.objectContaining({ name: "getC", action: "removed" }));
    expect(await namesOf(tenant)).toEqual(["getA", "getB", "getD"]);
  });

  test("keeps what was decided about a tool here", async () => {
    const made = await importing(first());
    const [{ plugin_id: id, definition }] = made.operations;
    const policy = { sensitive: true, roles: ["admin"] };
    const execution = { ...definition.execution, timeout_ms: 1_234, headers: { "x-version": "7" } };
    await tenant.client.expect("put", `/v1/plugins/${id}`, { ...definition, ...policy, execution });
    await tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: false });
    expect((await importing(first())).diff.changed).toEqual([]);
    const document = first();
    document.paths["/a"].get.summary = "Other";
    expect((await importing(document)).diff.changed).toEqual([{ name: "getA", fields: ["description", "title"] }]);
    expect(await tenant.client.get(`/v1/plugins/${id}`)).toMatchObject({
      enabled: false,
      definition: { ...policy, execution, title: "Other" },
    });
  });

  test("keeps the authentication that was set up where the document has no word about it", async () => {
    const auth = { config: { type: "bearer", mapping: [{ source: "TOKEN" }] } };
    await importing(first(), { auth, base_url: `${backEnd.url}/v1` });
    expect((await importing(first())).diff.changed).toEqual([]);
    expect((await importing(first(), { auth: { config: null } })).diff.changed).toHaveLength(3);
  });

  test("leaves alone what it does not select, other documents, and other tenants", async () => {
    await importing(first());
    await importing(documentOf({ "/a": { get: operation("getA") } }, { info: { title: "Another", version: "1" } }));
    const { diff } = await importing(first(), { include: ["getA"], remove_missing: true });
    expect(diff).toEqual({ added: [], changed: [], unchanged: ["getA"], removed: [] });
    expect(await pluginsOf(tenant)).toHaveLength(4);
    const other = await gateway.newTenant();
    const theirs = await other.client.post("/v1/plugins/import", { openapi: first(), remove_missing: true });
    expect(theirs.diff.added).toEqual(["getA", "getB", "getC"]);
    expect(await pluginsOf(tenant)).toHaveLength(4);
  });
});

describe(`names of imported tools ${verifies("BLIND-1", "BLIND-10")}`, () => {
  const named = (...ids: readonly (string | undefined)[]): Json =>
    documentOf(
      Object.fromEntries(
        ids.map((operationId, at) => [
          `/p${at}`,
          { get: { ...(operationId === undefined ? {} : { operationId }), ...ok } },
        ]),
      ),
    );

  test("are what models take: other characters go, long ones and equal ones get a hash", async () => {
    const long = "x".repeat(80);
    const { diff } = await importing(
      named("a/b.c d", "数据", "same", "same", "Sa/me", long, undefined, "---", "read_file"),
      { prefix: "gh_" },
    );
    expect(diff.added).toEqual([
      "gh_a_b_c_d",
      expect.stringMatching(/^gh_[0-9a-f]{8}$|^gh_/),
      expect.stringMatching(/^gh_same_[0-9a-f]{8}$/),
      expect.stringMatching(/^gh_same_[0-9a-f]{8}$/),
      "gh_Sa_me",
      expect.stringMatching(/^gh_x{52}_[0-9a-f]{8}$/),
      "gh_get_p6",
      "gh_---",
      "gh_read_file",
    ]);
    expect(new Set(diff.added).size).toBe(9);
    for (const name of diff.added) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
  });

  test("do not take those of native tools or of other plugins", async () => {
    await tenant.addPlugin({
      name: "mine",
      execution: { method: "GET", base_url: `${backEnd.url}/mine`, param_placement: "query" },
    });
    const { diff } = await importing(named("read_file", "mine"));
    expect(diff.added).toEqual([
      expect.stringMatching(/^read_file_[0-9a-f]{8}$/),
      expect.stringMatching(/^mine_[0-9a-f]{8}$/),
    ]);
    expect((await call("mine")).target).toBe("/mine");
    expect((await importing(named("read_file", "mine"))).diff.unchanged).toEqual(diff.added);
  });

  test("stay when another operation comes that would like them, too", async () => {
    const { diff } = await importing(named("search"));
    expect(diff.added).toEqual(["search"]);
    const later = documentOf({
      "/before": { get: { operationId: "search", ...ok } },
      "/p0": { get: { operationId: "search", ...ok } },
    });
    const again = await importing(later);
    expect(again.diff).toMatchObject({ added: [expect.stringMatching(/^search_[0-9a-f]{8}$/)], unchanged: ["search"] });
  });
});

describe(`schemas of imported tools ${verifies("BLIND-1", "CHAT-18")}`, () => {
  const withBody = (schema: Json, change: Json = {}): Json =>
    documentOf(
      {
        "/x": {
          post: {
            operationId: "x",
            requestBody: { required: true, content: { "application/json": { schema } } },
            ...ok,
          },
        },
      },
      change,
    );

  test("hold no reference, and circles end", async () => {
    const components = {
      schemas: {
        Node: {
          type: "object",
          required: ["value"],
          properties: {
            value: { type: "string" },
            next: { $ref: "#/components/schemas/Node" },
            children: { type: "array", items: { $ref: "#/components/schemas/Node" } },
          },
        },
        A: { allOf: [{ $ref: "#/components/schemas/B" }], properties: { a: { $ref: "#/components/schemas/A" } } },
        B: { properties: { b: { $ref: "#/components/schemas/A" } } },
        Loop: { $ref: "#/components/schemas/Pool" },
        Pool: { $ref: "#/components/schemas/Loop" },
      },
    };
    const schema = {
      type: "object",
      properties: {
        node: { $ref: "#/components/schemas/Node" },
        a: { $ref: "#/components/schemas/A" },
        loop: { $ref: "#/components/schemas/Loop" },
      },
    };
    const result = await importing(withBody(schema, { components }));
    const { parameters } = definitionOf(result, "POST /x");
    expect(JSON.stringify(parameters)).not.toContain('"$ref"');
    expect(parameters.properties.node).toMatchObject({
      required: ["value"],
      properties: { next: { properties: { value: { type: "string" } } } },
    });
    expect(result.operations[0].warnings).toEqual([expect.stringContaining("ecursive")]);
    const value = { value: "1", next: { value: "2", next: { value: "3", next: { anything: true } } } };
    expect(JSON.parse((await call("x", { node: value, loop: [1] })).body.toString())).toEqual({
      node: value,
      loop: [1],
    });
  });

  test("that multiply without a circle are cut, not written out", async () => {
    const schemas = Object.fromEntries(
      Array.from({ length: 40 }, (_none, at) => [
        `L${at}`,
        {
          type: "object",
          properties: {
            l: { $ref: `#/components/schemas/L${at + 1}` },
            r: { $ref: `#/components/schemas/L${at + 1}` },
          },
        },
      ]),
    );
    const result = await importing(withBody({ $ref: "#/components/schemas/L0" }, { components: { schemas } }));
    expect(JSON.stringify(definitionOf(result, "POST /x")).length).toBeLessThan(65_536);
    expect(result.operations[0].warnings).toContainEqual(expect.stringContaining("too large"));
  });

  test("that are wide are cut until they fit", async () => {
    const field = { type: "string", description: "Thirty-two characters of help." };
    const variant = {
      type: "object",
      properties: Object.fromEntries(Array.from({ length: 40 }, (_none, at) => [`field_${at}`, field])),
    };
    const oneOf = Array.from({ length: 80 }, (_none, at) => ({ ...variant, title: `Variant ${at}` }));
    const result = await importing(withBody({ type: "object", properties: { payment: { oneOf } } }));
    expect(Object.keys(definitionOf(result, "POST /x").parameters.properties)).toEqual(["payment"]);
    expect(result.operations[0].warnings).toContainEqual(expect.stringContaining("too large"));
  });

  test("name what references lead nowhere, and read no file for them", async () => {
    const schema = {
      type: "object",
      properties: {
        gone: { $ref: "#/components/schemas/Gone" },
        file: { $ref: "file:///etc/passwd" },
        far: { $ref: "https://other.example/s.json#/X" },
        near: { $ref: "./s.json" },
      },
    };
    const result = await importing(withBody(schema));
    expect(definitionOf(result, "POST /x").parameters.properties).toEqual({ gone: {}, file: {}, far: {}, near: {} });
    expect(result.operations[0].warnings).toHaveLength(4);
  });

  test("say no more than a model can read", async () => {
    const values = Array.from({ length: 1_234 }, (_none, at) => `value_${at}`);
    const document = withBody({
      type: "object",
      properties: { big: { type: "string", enum: values }, told: { type: "string", description: "d".repeat(9_999) } },
    });
    document.paths["/x"].post.description = `${"long ".repeat(2_000)}\u0000\u001b[31m`;
    const result = await importing(document);
    const { parameters, description } = definitionOf(result, "POST /x");
    expect(description.length).toBeLessThanOrEqual(1_024);
    for (const control of ["\u0000", "\u001b"]) expect(description).not.toContain(control);
    expect(parameters.properties.told.description.length).toBeLessThanOrEqual(512);
    expect(parameters.properties.big.enum).toBeUndefined();
    expect(parameters.properties.big.description).toMatch(/^One of 1234 values, for example "value_0"/);
    expect(result.operations[0].warnings).toHaveLength(3);
    // What was cut is not refused.
    await call("x", { big: "value_1233" });
  });
});

describe(`what of a document becomes a tool ${verifies("BLIND-1")}`, () => {
  const document = (): Json =>
    documentOf({
      "/bills": {
        get: { operationId: "listBills", tags: ["billing"], ...ok },
        head: { operationId: "headBills", ...ok },
      },
      "/bills/{id}": {
        get: { operationId: "getBill", tags: ["billing"], ...ok },
        delete: { operationId: "deleteBill", tags: ["billing", "admin"], ...ok },
      },
      "/users": { get: { operationId: "listUsers", deprecated: true, ...ok } },
      "x-ignored": { get: {} },
    });

  test.each([
    [{ include: ["tag:billing"] }, ["listBills", "getBill", "deleteBill"]],
    [{ include: ["GET /bills*"] }, ["listBills", "getBill"]],
    [{ include: ["/bills/*", "listU*"] }, ["getBill", "deleteBill", "listUsers"]],
    [{ exclude: ["tag:admin", "* /users"] }, ["listBills", "getBill"]],
    [{ include: ["*"], exclude: ["delete*"] }, ["listBills", "getBill", "listUsers"]],
    [{ include: ["nothing*"] }, []],
  ])("%j", async (filters, names) => {
    expect((await importing(document(), { dry_run: true, ...filters })).diff.added).toEqual(names);
  });

  test("is not what no tool can do, which is said", async () => {
    const { operations } = await importing(document(), { dry_run: true });
    expect(operations.find(({ action }: Json) => action === "skipped")).toMatchObject({
      operation: "HEAD /bills",
      reason: expect.stringContaining("HEAD"),
      name: null,
    });
    expect(operations.find(({ name }: Json) => name === "listUsers")).toMatchObject({
      warnings: [expect.stringContaining("deprecated")],
    });
  });
});

describe(`a list of definitions ${verifies("BLIND-1", "BLIND-10")}`, () => {
  const definition = (name: string, change: Json = {}): Json => ({
    schema_version: "v1",
    name,
    description: "A tool.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: `${backEnd.url}/${name}`, param_placement: "query" },
    ...change,
  });
  const importList = (definitions: Json, more: Json = {}): Promise<Json> =>
    tenant.client.post("/v1/plugins/import", { definitions, ...more });

  test("is made, changed and left as it is by name", async () => {
    expect((await importList([definition("one"), definition("two")])).diff.added).toEqual(["one", "two"]);
    const exported = (await pluginsOf(tenant)).map((plugin) => plugin.definition);
    expect((await importList(exported)).diff.unchanged.sort()).toEqual(["one", "two"]);
    const changed = await importList([definition("one", { description: "Other." }), definition("three")]);
    expect(changed.diff).toEqual({
      added: ["three"],
      changed: [{ name: "one", fields: ["description"] }],
      unchanged: [],
      removed: [],
    });
    expect((await call("three")).target).toBe("/three");
  });

  test("is removed with its document where that is asked for", async () => {
    const set = { document_id: "set-1" };
    await importList([definition("one"), definition("two")], set);
    await tenant.addPlugin(definition("apart"));
    expect((await importList([definition("two")], set)).diff.removed).toEqual(["one"]);
    await importList([definition("two")], { ...set, remove_missing: true });
    expect(await namesOf(tenant)).toEqual(["apart", "two"]);
  });

  test.each([
    [[{}], "invalid_definition", "definitions.0.name"],
    [["x"], "invalid_definition", "definitions.0"],
    [() => [definition("a"), definition("a")], "invalid_definition", "definitions.1.name"],
    [
      () => [definition("a"), definition("b", { schema_version: "v9" })],
      "invalid_definition",
      "definitions.1.schema_version",
    ],
    [() => [definition("a b")], "invalid_definition", "definitions.0.name"],
    [() => [definition("read_file")], "conflict", "definitions.0.name"],
    [
      () => [definition("a", { execution: { method: "GET", base_url: "http://10.0.0.1/", param_placement: "query" } })],
      "egress_denied",
      "definitions.0.execution.base_url",
    ],
    [
      () => [definition("a"), definition("b", { parameters: { type: "array" }, icon_url: "ftp://x" })],
      "invalid_definition",
      "definitions.1.icon_url",
      ["definitions.1.icon_url", "definitions.1.parameters.type"],
    ],
  ])("is refused whole where one is faulty: %#", async (list, code, param, all?: unknown) => {
    const definitions = typeof list === "function" ? list() : list;
    const reply = await tenant.client.send("post", "/v1/plugins/import", { definitions });
    expect(reply.json.error).toMatchObject({ code, param });
    expect(reply.json.error.problems?.map((problem: Json) => problem.param)).toEqual(all);
    expect(await pluginsOf(tenant)).toEqual([]);
  });
});

test("only who may manage may import", async () => {
  const member = await tenant.newKey({ scopes: ["tools", "chat"] });
  const reply = await member.client.send("post", "/v1/plugins/import", { openapi: documentOf({}) });
  expect(reply).toMatchObject({ status: 403, json: { error: { code: "permission_denied" } } });
});

describe(`documents as other software writes them ${verifies("BLIND-1", "BLIND-2")}`, () => {
  test("FastAPI: optional values, lists in the query, models by reference", async () => {
    const result = await importing({
      openapi: "3.1.0",
      info: { title: "FastAPI", version: "0.1.0" },
      servers: [{ url: backEnd.url }],
      paths: {
        "/items/{item_id}": {
          put: {
            summary: "Update Item",
            operationId: "update_item_items__item_id__put",
            security: [{ HTTPBearer: [] }],
            parameters: [
              { name: "item_id", in: "path", required: true, schema: { type: "integer", title: "Item Id" } },
              {
                name: "tag",
                in: "query",
                required: false,
                schema: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }], title: "Tag" },
              },
              {
                name: "x-tag",
                in: "header",
                required: false,
                schema: { anyOf: [{ type: "string" }, { type: "null" }], title: "X-Token" },
              },
            ],
            requestBody: {
              required: true,
              content: { "application/json": { schema: { $ref: "#/components/schemas/Item" } } },
            },
            responses: {
              422: {
                content: { "application/json": { schema: { $ref: "#/components/schemas/HTTPValidationError" } } },
              },
            },
          },
        },
      },
      components: {
        schemas: {
          Item: {
            properties: {
              name: { type: "string", title: "Name" },
              price: { anyOf: [{ type: "number" }, { type: "null" }], title: "Price" },
              tags: { items: { $ref: "#/components/schemas/Tag" }, type: "array", title: "Tags", default: [] },
            },
            type: "object",
            required: ["name"],
            title: "Item",
          },
          Tag: { type: "object", properties: { id: { type: "integer" } }, title: "Tag" },
        },
        securitySchemes: { HTTPBearer: { type: "http", scheme: "bearer" } },
      },
    });
    expect(definitionOf(result, "PUT /items/{item_id}")).toMatchObject({
      name: "update_item_items__item_id__put",
      parameters: {
        properties: {
          item_id: { type: "integer" },
          tag: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }] },
          "x-tag": { anyOf: [{ type: "string" }, { type: "null" }] },
          name: { type: "string" },
          price: { anyOf: [{ type: "number" }, { type: "null" }] },
          tags: { type: "array", items: { type: "object", properties: { id: { type: "integer" } } } },
        },
        required: ["item_id", "name"],
      },
    });
    await tenant.putCredential(result.credentials[0].name, "token-123456");
    const args = { item_id: 7, tag: ["a", "b"], "x-tag": "t", name: "n", price: null, tags: [{ id: 1 }] };
    const sent = await call("update_item_items__item_id__put", args);
    expect(sent).toMatchObject({ method: "PUT", target: "/items/7?tag=a&tag=b" });
    expect(sent.headers).toMatchObject({ "x-tag": "t", authorization: "Bearer token-123456" });
    expect(JSON.parse(sent.body.toString())).toEqual({ name: "n", price: null, tags: [{ id: 1 }] });
  });

  test("Stripe: forms whose objects and lists go on in brackets", async () => {
    const deep = { style: "deepObject", explode: true };
    const metadata = { type: "object", additionalProperties: { type: "string" } };
    const list = { type: "array", items: { type: "string" } };
    const result = await importing(
      documentOf({
        "/v1/charges": {
          get: {
            operationId: "GetCharges",
            parameters: [
              {
                name: "created",
                in: "query",
                ...deep,
                schema: { anyOf: [{ type: "object", properties: { gt: { type: "integer" } } }, { type: "integer" }] },
              },
              { name: "expand", in: "query", ...deep, schema: list },
            ],
            requestBody: {
              content: {
                "application/x-www-form-urlencoded": { schema: { type: "object", properties: {} }, encoding: {} },
              },
              required: false,
            },
            ...ok,
          },
          post: {
            operationId: "PostCharges",
            requestBody: {
              content: {
                "application/x-www-form-urlencoded": {
                  encoding: { metadata: deep, expand: deep, items: deep },
                  schema: {
                    type: "object",
                    properties: {
                      amount: { type: "integer" },
                      metadata,
                      expand: list,
                      items: { type: "array", items: { type: "object", properties: { price: { type: "string" } } } },
                    },
                  },
                },
              },
              required: false,
            },
            ...ok,
          },
        },
      }),
    );
    expect(result.operations.flatMap(({ warnings }: Json) => warnings)).toEqual([]);
    const { target, body } = await call("GetCharges", { created: { gt: 5 }, expand: ["a", "b"] });
    expect(decodeURIComponent(target)).toBe("/v1/v1/charges?created[gt]=5&expand[0]=a&expand[1]=b");
    expect(body).toHaveLength(0);
    const args = {
      amount: 100,
      metadata: { "order id": "6&7" },
      expand: ["customer"],
      items: [{ price: "p1" }, { price: "p2" }],
    };
    expect(decodeURIComponent((await call("PostCharges", args)).body.toString())).toBe(
      "amount=100&metadata[order id]=6&7&expand[0]=customer&items[0][price]=p1&items[1][price]=p2",
    );
  });

  test("this gateway's own document makes tools of every route, which work", async () => {
    const url = `${gateway.url}/openapi.json`;
    const { diff, operations, credentials } = await tenant.client.post("/v1/plugins/import", { url, prefix: "own_" });
    const { paths } = await gateway.nobody.get("/openapi.json");
    const count = Object.values<Json>(paths).reduce((sum, item) => sum + Object.keys(item).length, 0);
    expect(diff.added).toHaveLength(count);
    const warnings: string[] = operations.flatMap((operation: Json) => operation.warnings);
    // Descriptor sets come under the names that tools give them, receipts of text messages as their vendors write
    // them, variables as archives, characters as pictures; runs are followed where the client accepts a stream. Modules
    // and files take whatever is sent.
    const ofModules = "The body is sent as application/json; the document also allows application/octet-stream, */*.";
    const ofFiles = "The body is sent as application/json; the document also allows application/octet-stream.";
    expect(warnings).toEqual([
      ...Array.from({ length: 8 }, () => ofModules),
      "The body is sent as application/octet-stream; the document also allows application/x-protobuf.",
      "The body is sent as application/json; the document also allows application/x-www-form-urlencoded.",
      "Parameter 'accept' is a header that only the gateway sets; it is left out.",
      ofFiles,
      ofFiles,
      "The body is sent as application/json; the document also allows application/zip.",
      "The body is sent as application/json; the document also allows image/png, application/octet-stream.",
    ]);
    await tenant.putCredential(credentials[0].name, tenant.key);
    const answer = await tenant.client.post("/v1/tools/invoke", { name: "own_getSettings" });
    expect(JSON.parse(answer.content)).toEqual(await tenant.client.get("/v1/settings"));
  });
});
