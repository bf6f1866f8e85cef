/** Tools by configuration: registered, listed, changed and called through the public routes alone. */
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub(() => ({ body: '{"name":"ByteDance","status":"active"}' }));
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});

/** The example of the blind-execution specification, at our own back end. */
const companySearch = (change: Json = {}): Json => ({
  schema_version: "v1",
  name: "search_company_basic",
  description: "根据关键词（如公司名、注册号）查询企业的基础工商信息。",
  parameters: {
    type: "object",
    properties: {
      keyword: { type: "string", description: "企业名称关键词，例如'字节跳动'" },
      page_index: { type: "integer", description: "页码，默认为1", default: 1 },
    },
    required: ["keyword"],
  },
  execution: {
    method: "GET",
    base_url: `${backEnd.url}/ECIV4/Search`,
    content_type: "application/x-www-form-urlencoded",
    param_placement: "query",
  },
  auth_config: {
    type: "api_key",
    mapping: [
      { source: "QCC_KEY", target: "Token", location: "header" },
      { source: "QCC_SECRET", target: "Timespan", location: "header" },
    ],
  },
  ...change,
});

describe(`a plugin ${verifies("BLIND-1", "BLIND-4")}`, () => {
  let tenant: TestTenant;
  let plugin: Json;

  beforeAll(async () => {
    tenant = await gateway.newTenant();
    plugin = await tenant.client.post("/v1/plugins", companySearch());
  });

  test("is created from the specified definition as it stands", () => {
    expect(plugin).toMatchObject({
      id: expect.stringMatching(/^plg_\d+$/),
      object: "plugin",
      type: "HTTP",
      name: "search_company_basic",
      status: "0",
      enabled: true,
      required_credentials: ["QCC_KEY", "QCC_SECRET"],
    });
  });

  test("gives its definition back, and the same definition makes the same plugin again", async () => {
    const { definition, hash } = await tenant.client.get(`/v1/plugins/${plugin.id}`);
    expect(definition).toMatchObject(companySearch({ auth_config: expect.anything() }));
    const again = await tenant.client.expect("put", `/v1/plugins/${plugin.id}`, definition);
    expect(again).toMatchObject({ id: plugin.id, hash, definition });
  });

  test("is called the moment it is there, with its defaults and credentials", async () => {
    await tenant.putCredential("QCC_KEY", "sk-company-1234");
    await tenant.putCredential("QCC_SECRET", "1700000000");
    const answer = await tenant.client.post("/v1/tools/invoke", {
      uri: "plugin://search_company_basic",
      arguments: { keyword: "字节跳动" },
    });
    expect(JSON.parse(answer.content)).toEqual({ name: "ByteDance", status: "active" });
    const sent = backEnd.requests.at(-1);
    expect(sent).toMatchObject({
      method: "GET",
      target: `/ECIV4/Search?keyword=${encodeURIComponent("字节跳动")}&page_index=1`,
    });
    expect(sent?.headers).toMatchObject({ token: "sk-company-1234", timespan: "1700000000" });
  });

  test("is disabled and enabled by either spelling, at once", async () => {
    const call = { name: "search_company_basic", arguments: { keyword: "x" } };
    for (const change of [{ status: "1" }, { enabled: false }]) {
      expect(await tenant.client.expect("patch", `/v1/plugins/${plugin.id}`, change)).toMatchObject({
        status: "1",
        enabled: false,
      });
      expect(await tenant.client.send("post", "/v1/tools/invoke", call)).toMatchObject({
        status: 403,
        json: {
          error: {
            code: "service_disabled",
            message: expect.stringContaining(`PATCH /v1/plugins/${plugin.id} {"enabled": true}`),
          },
        },
      });
    }
    for (const change of [{ status: "0" }, { enabled: true }, { status: "0", enabled: true }]) {
      expect(await tenant.client.expect("patch", `/v1/plugins/${plugin.id}`, change)).toMatchObject({
        status: "0",
        enabled: true,
      });
    }
    await tenant.client.post("/v1/tools/invoke", call);
  });

  test.each([
    [{}, "enabled"],
    [{ status: "0", enabled: false }, "enabled"],
    [{ status: 1 }, "status"],
    [{ status: "2" }, "status"],
    [{ state: "1" }, "state"],
    [{ enabled: true, description: "new" }, "description"],
  ])("refuses the change %j by name", async (change, param) => {
    const reply = await tenant.client.send("patch", `/v1/plugins/${plugin.id}`, change);
    expect(reply).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param } } });
  });

  test("keeps its place and its state when its definition is replaced", async () => {
    await tenant.client.expect("patch", `/v1/plugins/${plugin.id}`, { enabled: false });
    const renamed = companySearch({ name: "search_company", auth_config: undefined });
    const replaced = await tenant.client.expect("put", `/v1/plugins/${plugin.id}`, renamed);
    expect(replaced).toMatchObject({ id: plugin.id, name: "search_company", enabled: false, required_credentials: [] });
    expect(replaced.hash).not.toBe(plugin.hash);
  });

  test("that a newer release has written is missing, named in the log, and can be deleted and made anew", async () => {
    const { id, name } = await tenant.client.post("/v1/plugins", companySearch({ name: "of_tomorrow" }));
    const database = await openDatabase({ url: gateway.databaseUrl });
    const rewrite = `UPDATE sys_ai_plugin SET execution_config = REPLACE(execution_config, '"header"', '"orbit"') WHERE plugin_id = ?`;
    await database.batch([{ sql: rewrite, args: [Number(id.slice(4))] }]);
    await database.close();
    await tenant.client.expect("patch", "/v1/settings", { rounds: 5 });
    const { json } = await tenant.client.send("post", "/v1/tools/invoke", { name, arguments: { keyword: "x" } });
    expect(json.error.code).toBe("tool_not_found");
    expect(gateway.logged).toContainEqual(
      expect.objectContaining({
        message: "a stored row cannot be read",
        fields: expect.objectContaining({
          row: `${id} '${name}'`,
          error: expect.stringContaining("'execution_config.auth_config.mapping.0.location' is not valid"),
        }),
      }),
    );
    await tenant.client.expect("delete", `/v1/plugins/${id}`);
    const again = await tenant.client.post("/v1/plugins", companySearch({ name }));
    await tenant.client.expect("delete", `/v1/plugins/${again.id}`);
  });

  test("is gone when it is deleted", async () => {
    expect((await tenant.client.send("delete", `/v1/plugins/${plugin.id}`)).status).toBe(204);
    for (const method of ["get", "delete"]) {
      expect(await tenant.client.send(method, `/v1/plugins/${plugin.id}`)).toMatchObject({
        status: 404,
        json: { error: { code: "not_found", param: "id" } },
      });
    }
    for (const [param, value] of [
      ["name", "search_company"],
      ["uri", "plugin://search_company"],
    ] as const) {
      expect(await tenant.client.send("post", "/v1/tools/invoke", { [param]: value })).toMatchObject({
        status: 404,
        json: { error: { code: "tool_not_found", type: "invalid_request_error", param, tool_name: value } },
      });
    }
  });

  test.each(["plg_", "plg_0", "plg_1e3", "plg_-1", "plg_99999999999999999999", "1", "plg_1%00"])(
    "has no id like %s",
    async (id) => {
      expect((await tenant.client.send("get", `/v1/plugins/${id}`)).status).toBe(404);
    },
  );
});

describe(`what is refused when a plugin is registered ${verifies("BLIND-10", "BLIND-4")}`, () => {
  let tenant: TestTenant;

  beforeAll(async () => {
    tenant = await gateway.newTenant();
  });

  const execution = (change: Json): Json => ({ execution: { ...companySearch().execution, ...change } });
  const cases: readonly (readonly [what: string, change: () => Json, param: string])[] = [
    ["an unknown version", () => ({ schema_version: "v2" }), "schema_version"],
    ["an unknown field", () => ({ parameter: {} }), "parameter"],
    ["an unknown field inside", () => execution({ timeout: 5 }), "execution.timeout"],
    ["parameters that are no object", () => ({ parameters: { type: "array" } }), "parameters.type"],
    ["an unknown method", () => execution({ method: "FETCH" }), "execution.method"],
    ["an unknown placement", () => execution({ param_placement: "cookie" }), "execution.param_placement"],
    ["a URL that is not http", () => execution({ base_url: "ftp://x.example.com/" }), "execution.base_url"],
    ["a URL with a user", () => execution({ base_url: "http://user:pass@x.example.com/" }), "execution.base_url"],
    [
      "an unknown kind of authentication",
      () => ({ auth_config: { ...companySearch().auth_config, type: "digest" } }),
      "auth_config.type",
    ],
    ["an icon that is a script", () => ({ icon_url: "javascript:alert(1)" }), "icon_url"],
    ["a name that models cannot call", () => ({ name: "search company" }), "name"],
    ["no description", () => ({ description: "" }), "description"],
  ];

  test.each(cases)("%s", async (_what, change, param) => {
    const reply = await tenant.client.send("post", "/v1/plugins", companySearch(change()));
    expect(reply).toMatchObject({ status: 400, json: { error: { code: "invalid_definition", param } } });
    expect((await tenant.client.get("/v1/plugins?limit=100")).data.filter(({ type }: Json) => type === "HTTP")).toEqual(
      [],
    );
  });

  const faults = async (definition: Json): Promise<Json> => {
    const { status, json } = await tenant.client.send("post", "/v1/plugins", definition);
    expect([status, json.error.code]).toEqual([400, "invalid_definition"]);
    const { param, message, problems } = json.error;
    expect(problems[0].param).toBe(param);
    expect(message).toBe(`'${param}' ${problems[0].message}.`);
    return Object.fromEntries(problems.map((problem: Json) => [problem.param, problem.message]));
  };

  test("several faults of form, all at once", async () => {
    const change = execution({ method: "get", content_type: "json", param_placement: "header" });
    expect(Object.keys(await faults(companySearch(change)))).toEqual([
      "execution.method",
      "execution.content_type",
      "execution.param_placement",
    ]);
  });

  test("a change of the definition by PATCH, which says where it is made", async () => {
    const id = await tenant.addPlugin({ name: "patched", execution: companySearch().execution });
    const { json } = await tenant.client.send("patch", `/v1/plugins/${id}`, { description: "Another one." });
    expect(json.error).toMatchObject({ code: "invalid_request", param: "description" });
    expect(json.error.message).toContain("PUT /v1/plugins/{id}");
    await tenant.client.expect("delete", `/v1/plugins/${id}`);
  });

  test("a call by address and by name at once, or by neither", async () => {
    for (const path of ["/v1/tools/invoke", "/v1/tools/explain"]) {
      const said = async (body: Json): Promise<string> =>
        (await tenant.client.send("post", path, body)).json.error.message;
      expect(await said({ uri: "plugin://a", name: "a" })).toContain("'uri' and 'name' exclude each other");
      expect(await said({})).toContain("'uri' needs either 'uri' or 'name'");
    }
  });

  test("a misspelt field, with the one that is meant and the one that is missing for it", async () => {
    const { description, ...others } = companySearch();
    expect(await faults({ ...others, descripton: description })).toEqual({
      descripton: "is not a known field; 'description' may be meant",
      description: "is required",
    });
  });

  test("several faults that no schema tells, all at once", async () => {
    const change = execution({ base_url: "ftp://x.example.com/" });
    const parameters = { type: "array" };
    expect(Object.keys(await faults(companySearch({ ...change, parameters, icon_url: "javascript:1" })))).toEqual([
      "icon_url",
      "parameters.type",
      "execution.base_url",
    ]);
    const placed = execution({ param_overrides: { nobody: "query" }, headers: { Authorization: "x" }, xml_root: "r" });
    expect(Object.keys(await faults(companySearch(placed)))).toEqual([
      "execution.param_overrides.nobody",
      "execution.headers.Authorization",
      "execution.xml_root",
    ]);
  });

  test("an address that tools may not reach", async () => {
    const reply = await tenant.client.send(
      "post",
      "/v1/plugins",
      companySearch(execution({ base_url: "http://169.254.169.254/latest" })),
    );
    expect(reply).toMatchObject({
      status: 403,
      json: { error: { code: "egress_denied", param: "execution.base_url" } },
    });
  });

  test("a name that is taken, by a plugin or by a native tool", async () => {
    const other = await gateway.newTenant();
    await other.client.post("/v1/plugins", companySearch());
    await other.client.post("/v1/plugins", companySearch({ name: "second" }));
    for (const name of ["search_company_basic", "read_file"]) {
      const reply = await other.client.send("post", "/v1/plugins", companySearch({ name }));
      expect(reply).toMatchObject({ status: 409, json: { error: { code: "conflict", param: "name" } } });
    }
    // Another tenant's names are free.
    await tenant.client.post("/v1/plugins", companySearch());
  });

  test("a body that is no definition at all", async () => {
    for (const body of ["text", 7, [], null]) {
      expect((await tenant.client.send("post", "/v1/plugins", body)).status).toBe(400);
    }
    // No field of that name is asked for: the body is the definition.
    expect(await tenant.client.send("post", "/v1/plugins")).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_definition", param: null, message: "The definition is required." } },
    });
    const listed = await tenant.client.send("post", "/v1/plugins/import", { definitions: [7] });
    expect(listed.json.error).toMatchObject({ param: "definitions.0", message: expect.stringContaining("definition") });
  });
});

describe(`native tools ${verifies("BLIND-4", "NATIVE-1")}`, () => {
  test("are listed for everybody, and a tenant switches them off for itself only", async () => {
    const tenant = await gateway.newTenant();
    const other = await gateway.newTenant();
    const list = (await tenant.client.get("/v1/plugins?limit=100")).data as Json[];
    const writeFile = list.find(({ name }) => name === "write_file");
    expect(writeFile).toMatchObject({ type: "NATIVE", status: "0", definition: null });
    expect(await tenant.client.expect("patch", `/v1/plugins/${writeFile.id}`, { status: "1" })).toMatchObject({
      status: "1",
    });
    expect(await namesOf(tenant.client)).not.toContain("write_file");
    expect(await namesOf(other.client)).toContain("write_file");
    expect((await tenant.client.get("/v1/settings")).native_tools).not.toContain("write_file");
    await tenant.client.expect("patch", `/v1/plugins/${writeFile.id}`, { enabled: true });
    expect(await namesOf(tenant.client)).toContain("write_file");
  });

  test("are switched at once by several, and each of them counts", async () => {
    const tenant = await gateway.newTenant();
    const list = (await tenant.client.get("/v1/plugins?limit=100")).data as Json[];
    const some = list.filter(({ type, status }) => type === "NATIVE" && status === "0").slice(0, 5);
    await Promise.all(some.map(({ id }) => tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: false })));
    const { native_tools: on } = await tenant.client.get("/v1/settings");
    expect(some.filter(({ name }) => on.includes(name))).toEqual([]);
  });

  test("cannot be changed or deleted", async () => {
    const tenant = await gateway.newTenant();
    const [native] = (await tenant.client.get("/v1/plugins")).data;
    for (const method of ["put", "delete"]) {
      const reply = await tenant.client.send(
        method,
        `/v1/plugins/${native.id}`,
        method === "put" ? companySearch() : undefined,
      );
      expect(reply).toMatchObject({ status: 403, json: { error: { code: "permission_denied" } } });
    }
  });
});

async function namesOf(client: Client): Promise<string[]> {
  return (await client.get("/v1/tools")).data.map(({ name }: Json) => name as string);
}

describe(`the tools of a caller ${verifies("CHAT-11", "BLIND-9")}`, () => {
  let tenant: TestTenant;
  const toolNames = ["crm_read", "crm_write", "weather", "admin_only", "switched_off"];

  beforeAll(async () => {
    tenant = await gateway.newTenant();
    for (const name of toolNames) {
      const id = await tenant.addPlugin({
        ...companySearch({ auth_config: undefined, parameters: { type: "object", properties: {} } }),
        name,
        ...(name === "admin_only" ? { roles: ["admin"] } : {}),
      });
      if (name === "switched_off") await tenant.client.expect("patch", `/v1/plugins/${id}`, { status: "1" });
    }
  });

  const callers: readonly (readonly [what: string, key: Json, expected: readonly string[]])[] = [
    ["an admin", { role: "admin" }, ["admin_only", "crm_read", "crm_write", "weather"]],
    ["a member", {}, ["crm_read", "crm_write", "weather"]],
    ["a key bound to a pattern", { tools: ["crm_*"] }, ["crm_read", "crm_write"]],
    ["a key bound to names", { tools: ["weather", "switched_off", "admin_only"] }, ["weather"]],
    ["a key bound to nothing", { tools: [] }, []],
  ];

  test.each(callers)("%s lists exactly what it can run", async (_what, key, expected) => {
    const { client } = await tenant.newKey(key);
    const listed = await namesOf(client);
    expect(listed.filter((name) => toolNames.includes(name))).toEqual(expected);
    for (const name of [...toolNames, "read_file", "fetch"]) {
      const reply = await client.send("post", "/v1/tools/explain", { name, arguments: {} });
      const isKnown = !["tool_not_found", "service_disabled"].includes(reply.json.error?.code as string);
      expect({ name, isKnown }).toEqual({ name, isKnown: listed.includes(name) });
    }
    for (const name of toolNames) {
      const reply = await client.send("post", "/v1/tools/invoke", { name, arguments: {} });
      expect({ name, ran: reply.status === 200 }).toEqual({ name, ran: expected.includes(name) });
    }
  });

  test("come in the forms that OpenAI's and MCP's clients read, without what is behind them", async () => {
    const { client } = await tenant.newKey({ tools: ["weather"] });
    const { description } = companySearch();
    const parameters = { type: "object", properties: {} };
    expect(await client.get("/v1/tools?format=openai")).toMatchObject({
      object: "list",
      data: [{ type: "function", function: { name: "weather", description, parameters } }],
    });
    expect(await client.get("/v1/tools?format=mcp")).toEqual({
      tools: [
        {
          name: "weather",
          description,
          inputSchema: parameters,
          annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: true },
        },
      ],
    });
    for (const format of ["list", "openai", "mcp"]) {
      expect((await client.send("get", `/v1/tools?format=${format}`)).text).not.toContain(backEnd.url);
    }
    expect(await client.send("get", "/v1/tools?format=xml")).toMatchObject({
      status: 400,
      json: { error: { param: "format" } },
    });
  });

  test("page in MCP's form as well", async () => {
    const names: string[] = [];
    for (let cursor = ""; ;) {
      const { tools, nextCursor } = await tenant.client.get(`/v1/tools?format=mcp&limit=2${cursor}`);
      names.push(...tools.map(({ name }: Json) => name as string));
      if (nextCursor === undefined) break;
      cursor = `&after=${nextCursor}`;
    }
    expect(names).toEqual(await namesOf(tenant.client));
  });

  test("say which credentials are still missing", async () => {
    const other = await gateway.newTenant();
    await other.client.post("/v1/plugins", companySearch());
    await other.putCredential("QCC_KEY", "sk-1");
    const tool = (await other.client.get("/v1/tools")).data.find(({ name }: Json) => name === "search_company_basic");
    expect(tool).toMatchObject({
      required_credentials: ["QCC_KEY", "QCC_SECRET"],
      missing_credentials: ["QCC_SECRET"],
    });
  });
});

describe(`what a call would do ${verifies("BLIND-6", "BLIND-5")}`, () => {
  let tenant: TestTenant;

  beforeAll(async () => {
    tenant = await gateway.newTenant();
    await tenant.client.post("/v1/plugins", companySearch());
    await tenant.putCredential("QCC_KEY", "sk-sentinel-value");
  });

  test("is shown to who manages it, with names in the place of values, and nothing is sent", async () => {
    const before = backEnd.requests.length;
    const reply = await tenant.client.send("post", "/v1/tools/explain", {
      name: "search_company_basic",
      arguments: { keyword: "x" },
    });
    expect(reply.json).toMatchObject({
      object: "explanation",
      arguments: { keyword: "x", page_index: 1 },
      effect: "read",
      needs_approval: false,
      request: {
        method: "GET",
        url: `${backEnd.url}/ECIV4/Search?keyword=x&page_index=1`,
        credentials: [
          { name: "QCC_KEY", level: "tenant", version: 1, target: "Token" },
          { name: "QCC_SECRET", level: "missing", target: "Timespan" },
        ],
      },
    });
    expect(reply.text).not.toContain("sk-sentinel-value");
    expect(backEnd.requests).toHaveLength(before);
  });

  test("is told to others only as far as a model may know it", async () => {
    const { client } = await tenant.newKey();
    const reply = await client.send("post", "/v1/tools/explain", {
      name: "search_company_basic",
      arguments: { keyword: "x" },
    });
    expect(reply.json).toMatchObject({ request: null, tool: { missing_credentials: ["QCC_SECRET"] } });
    expect(reply.text).not.toContain(backEnd.url);
    expect(reply.text).not.toContain("Token");
  });

  test("is refused as the call would be", async () => {
    const explain = (body: Json): Promise<Json> => tenant.client.send("post", "/v1/tools/explain", body);
    expect(await explain({ name: "search_company_basic", arguments: { keyword: 7 } })).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_arguments" } },
    });
    expect(await explain({ name: "nothing" })).toMatchObject({
      status: 404,
      json: { error: { code: "tool_not_found" } },
    });
    expect(await explain({})).toMatchObject({ status: 400, json: { error: { param: "uri" } } });
    expect(await explain({ name: "a", uri: "plugin://a" })).toMatchObject({
      status: 400,
      json: { error: { param: "uri" } },
    });
  });

  test("takes an inline configuration from those who may send one", async () => {
    const runtime_config = { plugins: [companySearch({ name: "inline_tool", auth_config: undefined })] };
    const body = { name: "inline_tool", arguments: { keyword: "x" }, runtime_config };
    expect(await tenant.client.post("/v1/tools/explain", body)).toMatchObject({ tool: { name: "inline_tool" } });
    const { client } = await tenant.newKey();
    expect(await client.send("post", "/v1/tools/explain", body)).toMatchObject({
      status: 403,
      json: { error: { param: "runtime_config" } },
    });
  });
});
