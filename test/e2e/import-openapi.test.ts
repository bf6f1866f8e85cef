/** OpenAPI documents become tools: imported, reviewed, named and imported again through the public routes. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { definitionOf, importsOf, namesOf, ok, pluginsOf, text } from "../support/imports.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub();
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
  backEnd.requests.length = 0;
});

const { call, documentOf, importing, refusal } = importsOf(() => ({ tenant, backEnd }));
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
    const ofFiles = "The body is sent as application/octet-stream; the document also allows */*.";
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
