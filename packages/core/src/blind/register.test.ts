import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { createEgress } from "./egress.ts";
import { definitionOf, parseRuntimeConfig, recordFromDefinition, registerPlugin } from "./register.ts";

const egress = createEgress({ allowCidrs: [] });
const register = (input: unknown) => registerPlugin(input, { egress });

/** The definition of the specification's section 2, without its comments. */
const companySearch = {
  schema_version: "v1",
  name: "search_company_basic",
  description:
    "根据关键词（如公司名、注册号）查询企业的基础工商信息（成立日期、法人、状态等）。当用户询问某家公司的基本情况时调用。",
  parameters: {
    type: "object",
    properties: {
      keyword: { type: "string", description: "企业名称关键词，例如'字节跳动'或'腾讯科技'" },
      page_index: { type: "integer", description: "页码，默认为1", default: 1 },
    },
    required: ["keyword"],
  },
  execution: {
    method: "GET",
    base_url: "http://api.qichacha.com/ECIV4/Search",
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
};

/** A copy with some paths set; `undefined` removes. */
function changed(changes: Readonly<Record<string, unknown>>): unknown {
  const copy = structuredClone(companySearch) as unknown as Record<string, unknown>;
  for (const [path, value] of Object.entries(changes)) {
    const keys = path.split("/");
    let at: Record<string, unknown> = copy;
    for (const key of keys.slice(0, -1)) at = at[key] as Record<string, unknown>;
    const last = keys.at(-1) ?? "";
    if (value === undefined) delete at[last];
    else at[last] = value;
  }
  return copy;
}

/** The result or what was thrown. */
function attempt(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

function refusal(work: () => unknown): GatewayError {
  const error = attempt(work);
  if (error instanceof GatewayError) return error;
  throw new Error(`was not refused: ${String(error)}`);
}

describe(`registering a definition ${verifies("BLIND-1", "BLIND-4")}`, () => {
  test("the specification's example becomes a row, its mapped sources become required", () => {
    expect(register(companySearch)).toMatchObject({
      name: "search_company_basic",
      type: "HTTP",
      title: null,
      iconUrl: null,
      enabled: true,
      parameterSchema: companySearch.parameters,
      executionConfig: {
        schema_version: "v1",
        execution: companySearch.execution,
        auth_config: companySearch.auth_config,
      },
      requiredCredentials: ["QCC_KEY", "QCC_SECRET"],
      sensitive: false,
      roles: [],
    });
  });

  test("declared credentials come first, each once", () => {
    const plugin = register(changed({ required_credentials: ["OTHER", "QCC_SECRET"] }));
    expect(plugin.requiredCredentials).toEqual(["OTHER", "QCC_SECRET", "QCC_KEY"]);
  });

  test("`url` is read as `base_url`, but not beside it", () => {
    const url = companySearch.execution.base_url;
    const plugin = register(changed({ "execution/base_url": undefined, "execution/url": url }));
    expect(plugin.hash).toBe(register(companySearch).hash);
    expect(refusal(() => register(changed({ "execution/url": url }))).details.param).toBe("execution.url");
  });

  test("reading a row back and registering that gives the same row", () => {
    const plugin = register(
      changed({ title: "企查查", icon_url: "https://cdn.example.com/i.png", sensitive: true, roles: ["admin"] }),
    );
    const record = { ...plugin, pluginId: 7, createdAt: 1, updatedAt: 2 };
    expect(register(definitionOf(record))).toEqual(plugin);
    expect(recordFromDefinition(definitionOf(record))).toMatchObject({ hash: plugin.hash, pluginId: 0 });
  });

  test("properties keep their names, also those that are special elsewhere", () => {
    const properties = JSON.parse(
      '{"const":{"type":"string"},"$ref":{"type":"string"},"__proto__":{"properties":{"__proto__":{"type":"string"}}}}',
    ) as JsonObject;
    const plugin = register(changed({ "parameters/properties": properties, "parameters/required": ["const"] }));
    expect(JSON.stringify(plugin.parameterSchema["properties"])).toBe(JSON.stringify(properties));
  });

  test("where it was imported from is kept, and is part of what it is", () => {
    const source = { document: "https://api.example.com/openapi.json", operation: "GET /v1/search" };
    const plugin = register(changed({ source }));
    expect(plugin.executionConfig).toMatchObject({ source });
    expect(definitionOf({ ...plugin, pluginId: 7, createdAt: 1, updatedAt: 2 }).source).toEqual(source);
    expect(plugin.hash).not.toBe(register(companySearch).hash);
  });

  test("the hash of a definition is the same from release to release", () => {
    expect(register(companySearch).hash).toBe("1e3d5f31e4cbc27a1129a14c789f6405996b8d8dee40898df509cff607bc6984");
  });

  test("every change that matters changes the hash, whether it is enabled does not", () => {
    const { hash } = register(companySearch);
    expect(registerPlugin(companySearch, { egress, enabled: false })).toMatchObject({ hash, enabled: false });
    for (const change of [
      { description: "other" },
      { "execution/method": "POST" },
      { "execution/effect": "write" },
      { sensitive: true },
      { "parameters/properties/keyword/maxLength": 5 },
    ]) {
      expect(register(changed(change)).hash).not.toBe(hash);
    }
  });
});

describe(`what is refused at registration, by its field ${verifies("BLIND-10", "BLIND-2", "BLIND-3")}`, () => {
  test.each([
    ["unknown schema_version", { schema_version: "v2" }, "schema_version"],
    ["no name", { name: undefined }, "name"],
    ["a name with spaces", { name: "a b" }, "name"],
    ["a misspelt field", { discription: "x" }, "discription"],
    ["a misspelt field inside", { "execution/placement": "query" }, "execution.placement"],
    ["an unknown method", { "execution/method": "TRACE" }, "execution.method"],
    ["an unknown content type", { "execution/content_type": "image/png" }, "execution.content_type"],
    ["an unknown placement", { "execution/param_placement": "cookie" }, "execution.param_placement"],
    ["an unknown auth type", { "auth_config/type": "digest" }, "auth_config.type"],
    ["an unknown location", { "auth_config/mapping/1/location": "trailer" }, "auth_config.mapping.1.location"],
    ["a credential name with a slash", { "auth_config/mapping/0/source": "a/b" }, "auth_config.mapping.0.source"],
    ["an empty mapping", { "auth_config/mapping": [] }, "auth_config.mapping"],
    ["an icon that is no URL", { icon_url: "icon.png" }, "icon_url"],
    ["an icon by script", { icon_url: "javascript:alert(1)" }, "icon_url"],
    ["parameters that are a list", { parameters: [] }, "parameters"],
    ["parameters of another type", { "parameters/type": "array" }, "parameters.type"],
    ["parameters without a type", { "parameters/type": undefined }, "parameters.type"],
    ["properties that are a list", { "parameters/properties": ["keyword"] }, "parameters.properties"],
    ["required that is no list", { "parameters/required": "keyword" }, "parameters.required"],
    ["another scheme", { "execution/base_url": "ftp://api.example.com/" }, "execution.base_url"],
    ["a file", { "execution/base_url": "file:///etc/passwd" }, "execution.base_url"],
    ["no URL", { "execution/base_url": "api.example.com/v1" }, "execution.base_url"],
    ["user and password", { "execution/base_url": "https://u:p@api.example.com/" }, "execution.base_url"],
    ["a fragment", { "execution/base_url": "https://api.example.com/#x" }, "execution.base_url"],
    ["a placeholder in the host", { "execution/base_url": "https://{keyword}.example.com/" }, "execution.base_url"],
    [
      "a placeholder that nothing fills",
      { "execution/base_url": "https://api.example.com/{nobody}" },
      "execution.base_url",
    ],
    ["a brace alone", { "execution/base_url": "https://api.example.com/{keyword" }, "execution.base_url"],
    [
      "a placeholder that may stay empty",
      { "execution/base_url": "https://api.example.com/{keyword}", "parameters/required": [] },
      "parameters.required",
    ],
    [
      "a parameter that base_url sets already",
      { "execution/base_url": "https://api.example.com/?keyword=1" },
      "parameters.properties.keyword",
    ],
    [
      "an override of nothing",
      { "execution/param_overrides": { nobody: "query" } },
      "execution.param_overrides.nobody",
    ],
    [
      "an override to a path without placeholder",
      { "execution/param_overrides": { keyword: "path" } },
      "execution.param_overrides.keyword",
    ],
    [
      "a placeholder moved elsewhere",
      { "execution/base_url": "https://api.example.com/{keyword}", "execution/param_overrides": { keyword: "query" } },
      "execution.param_overrides.keyword",
    ],
    ["a style of nothing", { "execution/param_styles": { nobody: {} } }, "execution.param_styles.nobody"],
    [
      "a style in a JSON body",
      {
        "execution/method": "POST",
        "execution/content_type": "application/json",
        "execution/param_placement": "body",
        "execution/param_styles": { keyword: {} },
      },
      "execution.param_styles.keyword",
    ],
    [
      "a style of another place",
      { "execution/param_styles": { keyword: { style: "label" } } },
      "execution.param_styles.keyword",
    ],
    ["a name for nothing", { "execution/param_names": { nobody: "x" } }, "execution.param_names.nobody"],
    [
      "a name that another one has",
      { "execution/param_names": { keyword: "page_index" } },
      "execution.param_names.keyword",
    ],
    [
      "a name that base_url sets",
      { "execution/base_url": "https://api.example.com/?q=1", "execution/param_names": { keyword: "q" } },
      "parameters.properties.keyword",
    ],
    [
      "a name that is no header name",
      { "execution/param_overrides": { keyword: "header" }, "execution/param_names": { keyword: "a b" } },
      "execution.param_overrides.keyword",
    ],
    [
      "a name under which a credential is sent",
      {
        "auth_config/mapping/0/location": "query",
        "auth_config/mapping/0/target": "q",
        "execution/param_names": { keyword: "q" },
      },
      "auth_config.mapping.0.target",
    ],
    [
      "a cookie beside a credential in the header 'Cookie'",
      { "execution/param_overrides": { keyword: "cookie" }, "auth_config/mapping/0/target": "Cookie" },
      "auth_config.mapping.0.target",
    ],
    [
      "a cookie beside a fixed header 'Cookie'",
      { "execution/param_overrides": { keyword: "cookie" }, "execution/headers": { cookie: "a=1" } },
      "execution.param_overrides.keyword",
    ],
    ["a body that is no parameter", { "execution/body_param": "nobody" }, "execution.body_param"],
    [
      "a body that is part of the address",
      { "execution/base_url": "https://api.example.com/{keyword}", "execution/body_param": "keyword" },
      "execution.body_param",
    ],
    [
      "a body with more beside it",
      { "execution/param_placement": "body", "execution/body_param": "keyword" },
      "execution.body_param",
    ],
    ["a content type with a line break", { "execution/content_type": "text/x\r\nx: y" }, "execution.content_type"],
    [
      "the type of a part without parts",
      { "execution/part_types": { keyword: "text/csv" } },
      "execution.part_types.keyword",
    ],
    ["a part's type that is none", { "execution/part_types": { keyword: "a\r\nb" } }, "execution.part_types.keyword"],
    ["a source without operation", { source: { document: "d" } }, "source.operation"],
    ["a header that is no name", { "execution/headers": { "a b": "1" } }, "execution.headers.a b"],
    ["a header with a line break", { "execution/headers": { "x-a": "1\r\nx-b: 2" } }, "execution.headers.x-a"],
    ["host as a header", { "execution/headers": { Host: "evil" } }, "execution.headers.Host"],
    [
      "a header of the connection",
      { "execution/headers": { "Transfer-Encoding": "chunked" } },
      "execution.headers.Transfer-Encoding",
    ],
    [
      "content-length as a header",
      { "execution/headers": { "content-length": "1" } },
      "execution.headers.content-length",
    ],
    [
      "a credential as a header",
      { "execution/headers": { authorization: "Bearer x" } },
      "execution.headers.authorization",
    ],
    [
      "a content type as a header",
      { "execution/headers": { "Content-Type": "text/xml" } },
      "execution.headers.Content-Type",
    ],
    ["a header twice", { "execution/headers": { "x-a": "1", "X-A": "2" } }, "execution.headers.X-A"],
    [
      "an idempotency header that the gateway sets",
      { "execution/idempotency_header": "Host" },
      "execution.idempotency_header",
    ],
    [
      "an idempotency header that is set already",
      { "execution/headers": { "x-key": "1" }, "execution/idempotency_header": "X-Key" },
      "execution.idempotency_header",
    ],
    [
      "an auth target that 'headers' sets",
      { "execution/headers": { "x-client": "1" }, "auth_config/mapping/0/target": "X-Client" },
      "auth_config.mapping.0.target",
    ],
    [
      "an auth target that is the idempotency header",
      { "execution/idempotency_header": "Token" },
      "auth_config.mapping.0.target",
    ],
    [
      "an argument on an auth target",
      { "auth_config/mapping/0/location": "query", "auth_config/mapping/0/target": "keyword" },
      "auth_config.mapping.0.target",
    ],
    [
      "an auth target that is a part of the path for an argument",
      {
        "execution/base_url": "https://api.example.com/{keyword}",
        "auth_config/mapping/0/location": "path",
        "auth_config/mapping/0/target": "keyword",
      },
      "auth_config.mapping.0.target",
    ],
    [
      "a part of the path that there is not",
      { "auth_config/mapping/0/location": "path" },
      "auth_config.mapping.0.target",
    ],
    [
      "an argument on a field of the body",
      {
        "execution/method": "POST",
        "execution/param_placement": "body",
        "auth_config/mapping/0/location": "body",
        "auth_config/mapping/0/target": "keyword",
      },
      "auth_config.mapping.0.target",
    ],
    [
      "a field of a body that is one argument",
      {
        "execution/method": "POST",
        "execution/param_overrides": { keyword: "body" },
        "execution/body_param": "keyword",
        "auth_config/mapping/0/location": "body",
      },
      "auth_config.mapping.0.target",
    ],
    [
      "a field of a text",
      { "execution/content_type": "text/plain", "auth_config/mapping/0/location": "body" },
      "auth_config.mapping.0.target",
    ],
    [
      "a field that is no element",
      {
        "execution/content_type": "application/xml",
        "auth_config/mapping/0/location": "body",
        "auth_config/mapping/0/target": "a b",
      },
      "auth_config.mapping.0.target",
    ],
    ...[
      ["that is no pointer", "/a//b"],
      ["that is none either", "/a~2"],
      ["that an argument has, too", "/keyword"],
    ].map(
      ([what, target]) =>
        [
          `a field further in ${what}`,
          {
            "execution/method": "POST",
            "execution/param_placement": "body",
            "execution/content_type": "application/json",
            "auth_config/mapping/0/location": "body",
            "auth_config/mapping/0/target": target,
          },
          "auth_config.mapping.0.target",
        ] as const,
    ),
    [
      "a field further in a form",
      {
        "execution/method": "POST",
        "execution/param_placement": "body",
        "execution/content_type": "application/x-www-form-urlencoded",
        "auth_config/mapping/0/location": "body",
        "auth_config/mapping/0/target": "/merchant/apiKey",
      },
      "auth_config.mapping.0.target",
    ],
    [
      "a field in a field of another credential",
      {
        "execution/method": "POST",
        "execution/param_placement": "body",
        "execution/content_type": "application/json",
        "auth_config/mapping": [
          { source: "A", target: "auth", location: "body" },
          { source: "B", target: "/auth/key", location: "body" },
        ],
      },
      "auth_config.mapping.1.target",
    ],
    [
      "a user name in the body",
      {
        "auth_config/type": "basic",
        "auth_config/mapping": [{ source: "USER", target: "username", location: "body" }],
      },
      "auth_config.mapping.0.location",
    ],
    [
      "an auth target that base_url sets",
      {
        "execution/base_url": "https://api.example.com/?k=1",
        "auth_config/mapping/0/location": "query",
        "auth_config/mapping/0/target": "k",
      },
      "auth_config.mapping.0.target",
    ],
    ["a basic mapping without user name", { "auth_config/type": "basic" }, "auth_config.mapping.0.target"],
    [
      "an XML root for JSON",
      { "execution/content_type": "application/json", "execution/xml_root": "x" },
      "execution.xml_root",
    ],
    [
      "text with two parameters",
      { "execution/method": "POST", "execution/param_placement": "body", "execution/content_type": "text/plain" },
      "execution.content_type",
    ],
  ] as const)("%s", (_what, changes, param) => {
    const error = refusal(() => register(changed(changes)));
    expect(error).toMatchObject({ code: "invalid_definition", details: { param } });
    expect(error.message).toContain(`'${param}'`);
  });

  test.each([
    ["a reference to another document", { $ref: "https://evil.example/schema.json" }],
    ["a reference to a file", { $ref: "file:///etc/passwd" }],
    ["a reference to nothing", { $ref: "#/$defs/nobody" }],
    ["a pattern that RE2 does not know", { type: "string", pattern: "(?=a)b" }],
    ["a pattern with a back reference", { type: "string", pattern: "(a)\\1" }],
    ["a pattern that does not parse", { type: "string", pattern: "(" }],
    ["an unknown type", { type: "strnig" }],
  ])("parameters with %s", (_what, keyword) => {
    const error = refusal(() => register(changed({ "parameters/properties/keyword": keyword })));
    expect(error.code).toBe("invalid_definition");
    expect(error.details.param).toContain("parameters");
    expect(error.message).toContain("keyword");
  });

  test("a catastrophic pattern is no danger and is taken", () => {
    expect(register(changed({ "parameters/properties/keyword/pattern": "^(a+)+$" })).name).toBe("search_company_basic");
  });

  test("keywords that nobody knows are taken", () => {
    expect(register(changed({ "parameters/x-order": 1, "parameters/properties/keyword/nullable": true })).name).toBe(
      "search_company_basic",
    );
  });

  test.each([
    "http://127.0.0.1/",
    "http://10.0.0.5/{keyword}",
    "http://[::1]/",
    "http://localhost:8080/",
    "http://169.254.169.254/",
    "http://crm.internal/",
  ])("the address %s, unless the operator opens it", (url) => {
    expect(refusal(() => register(changed({ "execution/base_url": url })))).toMatchObject({
      code: "egress_denied",
      details: { param: "execution.base_url" },
    });
  });

  test("a header argument that collides with a credential, whatever its case", () => {
    const change = { "execution/param_overrides": { keyword: "header" }, "auth_config/mapping/0/target": "KEYWORD" };
    expect(refusal(() => register(changed(change))).details.param).toBe("auth_config.mapping.0.target");
  });

  test("a private address is taken where the operator has opened it", () => {
    const open = createEgress({ allowCidrs: ["10.0.0.0/8"] });
    expect(registerPlugin(changed({ "execution/base_url": "http://10.0.0.5/x" }), { egress: open }).type).toBe("HTTP");
  });

  test("any input is a row or an error that names a field", () => {
    const keys = [
      "schema_version",
      "name",
      "parameters/properties",
      "parameters/type",
      "execution/base_url",
      "execution/headers",
      "execution/param_overrides",
      "auth_config",
      "auth_config/mapping",
      "required_credentials",
    ];
    fc.assert(
      fc.property(fc.constantFrom(...keys), fc.jsonValue({ maxDepth: 2 }), (key, value) => {
        const answer = attempt(() => register(changed({ [key]: value })));
        expect(answer).toEqual(expect.any(answer instanceof Error ? GatewayError : Object));
        expect(answer instanceof GatewayError ? answer.details.param : "row").toEqual(expect.any(String));
      }),
    );
    for (const input of [null, 1, "x", [], {}]) expect(refusal(() => register(input)).code).toBe("invalid_definition");
  });
});

describe(`a runtime_config sent with the request ${verifies("BLIND-7", "BLIND-10")}`, () => {
  const parse = (input: unknown) => parseRuntimeConfig(input, { egress });

  test("is checked like stored plugins", () => {
    const config = parse({ plugins: [companySearch], credentials: { QCC_KEY: "a" } });
    expect(config.plugins[0]?.execution.content_type).toBe("application/x-www-form-urlencoded");
    expect(parse({})).toEqual({ plugins: [], credentials: {} });
  });

  test.each([
    [
      { plugins: [changed({ "execution/base_url": "http://127.0.0.1/" })] },
      "egress_denied",
      "runtime_config.plugins[0].execution.base_url",
    ],
    [{ plugins: [companySearch, companySearch] }, "invalid_definition", "runtime_config.plugins[1].name"],
    [
      { plugins: [changed({ schema_version: "v9" })] },
      "invalid_definition",
      "runtime_config.plugins[0].schema_version",
    ],
    [{ credentials: { KEY: 1 } }, "invalid_definition", "runtime_config.credentials.KEY"],
    [{ plugin: [] }, "invalid_definition", "runtime_config.plugin"],
  ])("a fault is named by its place: %#", (input, code, param) => {
    expect(refusal(() => parse(input))).toMatchObject({ code, details: { param } });
  });
});

test("a NATIVE row has no definition", () => {
  const record = { ...register(companySearch), pluginId: 1, createdAt: 0, updatedAt: 0 };
  const native = { ...record, type: "NATIVE", executionConfig: { class_name: "ReadFile" } } as const;
  expect(refusal(() => definitionOf(native)).details.param).toBe("type");
});

test("the company search's schema is an object schema", () => {
  const schema: JsonObject = register(companySearch).parameterSchema;
  expect(isJsonObject(schema["properties"])).toBe(true);
});
