import { hashApiKey } from "@toolyard/core/callers/api-key";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { checkValue } from "@toolyard/core/tools/arguments";
import * as z from "zod";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import { createApp } from "./app.ts";
import { defineRoute, type RouteModule } from "./define-route.ts";
import { docsPolicy, renderDocs, renderLlmsText } from "./docs.ts";
import { listSchema } from "./list.ts";
import { toOpenApi, type OpenApiDocument } from "./openapi.ts";
import { requestExamples } from "./request-examples.ts";
import { routes as allRoutes } from "./routes/index.ts";

const item = z
  .object({
    id: z.string(),
    size: z.number().int().default(1),
    note: z.string().optional().meta({ description: "<b>Free</b> text" }),
  })
  .meta({ id: "Item" });

const routes = {
  putItem: defineRoute({
    method: "put",
    path: "/items/{id}",
    summary: "Put <an> item",
    description: "Takes `name` & more.",
    tags: ["items"],
    scope: "manage",
    request: {
      params: z.object({ id: z.string().meta({ description: "The id" }) }),
      query: z.strictObject({ dry: z.enum(["yes", "no"]).optional(), n: z.coerce.number().int().min(1) }),
      body: item,
      headers: { "idempotency-key": "Safe to repeat" },
    },
    responses: {
      200: {
        description: "The item",
        schema: item,
        content: { "text/event-stream": z.object({ type: z.literal("done") }) },
      },
    },
    handler: (c) => c.text(""),
  }),
  getFile: defineRoute({
    method: "get",
    path: "/files/{path+}",
    summary: "Read",
    tags: ["items"],
    scope: null,
    admission: "none",
    responses: { 200: { description: "Bytes" } },
    handler: (c) => c.text(""),
  }),
  putFile: defineRoute({
    method: "put",
    path: "/files/{path+}",
    summary: "Write",
    tags: ["items"],
    scope: "operator",
    request: { stream: { mediaTypes: ["application/octet-stream"], description: "The bytes" } },
    responses: { 204: { description: "Written" } },
    handler: (c) => c.text(""),
  }),
};

const document = toOpenApi(routes, { version: "1.2.3", url: "http://127.0.0.1:8787" });
/** Of the whole gateway. */
const ofGateway = toOpenApi(allRoutes, { version: "1", url: "http://x" });

const clientsOwn =
  /^(?:Configuration|Error|Exception|Api(?:Client|Exception|Response)|Client|Request|Response|New[A-Z].*)$/;

/** Every `$ref` of a document. */
function references(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(references);
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, part]) =>
    key === "$ref" && typeof part === "string" ? [part] : references(part),
  );
}

/** Where a schema lists checked items without saying how many there may be. */
function endlessLists(schema: JsonValue | undefined, place: string, within: readonly string[] = []): string[] {
  if (Array.isArray(schema)) return schema.flatMap((part) => endlessLists(part, place, within));
  if (!isJsonObject(schema ?? null)) return [];
  const { $ref, items, maxItems, properties, additionalProperties, anyOf, oneOf, allOf } = schema as JsonObject;
  if (typeof $ref === "string") {
    if (within.includes($ref)) return [];
    return endlessLists(find(ofGateway, $ref) as JsonValue, place, [...within, $ref]);
  }
  const isChecked = isJsonObject(items ?? null) && Object.keys(items as JsonObject).length > 0;
  return [
    ...(isChecked && maxItems === undefined ? [place] : []),
    ...endlessLists(items, `${place}[]`, within),
    ...endlessLists(additionalProperties, `${place}.*`, within),
    ...[anyOf, oneOf, allOf].flatMap((forms) => endlessLists(forms, place, within)),
    ...Object.entries((properties ?? {}) as JsonObject).flatMap(([name, field]) =>
      endlessLists(field, `${place}.${name}`, within),
    ),
  ];
}

/** Whether this says nothing of an object. */
function allowsAll({
  type,
  required,
  properties,
  additionalProperties,
  description: _text,
  ...others
}: JsonObject): boolean {
  const isBare = required === undefined && Object.keys(isJsonObject(properties) ? properties : {}).length === 0;
  const isObject = type === undefined || (type === "object" && additionalProperties !== false);
  return isBare && isObject && Object.keys(others).length === 0;
}

function find(whole: OpenApiDocument, reference: string): unknown {
  let value: unknown = whole;
  for (const part of reference.replace("#/", "").split("/")) {
    value =
      typeof value === "object" && value !== null
        ? Object.entries(value).find(([name]) => name === part)?.[1]
        : undefined;
  }
  return value;
}

describe("the OpenAPI document", () => {
  test("says of a route what its declaration says", () => {
    const put = document.paths["/items/{id}"]?.["put"];
    expect(put).toMatchObject({
      operationId: "putItem",
      summary: "Put <an> item",
      description: "Takes `name` & more.\n\nNeeds the scope `manage`.",
      security: [{ bearer: [] }, { apiKey: [] }],
      parameters: [
        { name: "id", in: "path", required: true, description: "The id", schema: { type: "string" } },
        { name: "dry", in: "query", required: false, schema: { enum: ["yes", "no"] } },
        { name: "n", in: "query", required: true, schema: { type: "integer", minimum: 1 } },
        { name: "idempotency-key", in: "header", required: false, description: "Safe to repeat" },
      ],
      requestBody: {
        required: true,
        content: { "application/json": { schema: { $ref: "#/components/schemas/Item" } } },
      },
      responses: {
        200: {
          description: "The item",
          content: {
            "application/json": { schema: { $ref: "#/components/schemas/Item2" } },
            "text/event-stream": { schema: { properties: { type: { const: "done" } } } },
          },
        },
        default: { $ref: "#/components/responses/Error" },
      },
    });
  });

  test("tells what a client may leave out from what it always gets", () => {
    expect(find(document, "#/components/schemas/Item")).toMatchObject({ required: ["id"] });
    expect(find(document, "#/components/schemas/Item2")).toMatchObject({ required: ["id", "size"] });
  });

  test("spells greedy paths as OpenAPI can, and keeps both methods of a path", () => {
    expect(Object.keys(document.paths["/files/{path}"] ?? {})).toEqual(["get", "put"]);
    expect(document.paths["/files/{path}"]?.["get"]?.security).toEqual([]);
    expect(document.paths["/files/{path}"]?.["put"]).toMatchObject({
      description: "Needs the operator's key.",
      requestBody: { content: { "application/octet-stream": { schema: { format: "binary" } } } },
    });
  });

  const answering = (responses: RouteModule["responses"], request: RouteModule["request"] = {}): OpenApiDocument => {
    const route = defineRoute({
      method: "post",
      path: "/x",
      summary: "x",
      tags: ["x"],
      scope: null,
      request,
      responses,
      handler: (c) => c.text(""),
    });
    return toOpenApi({ route }, { version: "1", url: "http://x" });
  };

  test("keeps schemas apart that hold themselves and have no name", () => {
    const nested = (word: string): z.ZodType => {
      const node: z.ZodType = z.object({
        word: z.literal(word),
        get kids(): z.ZodType {
          return z.array(node);
        },
      });
      return node;
    };
    const whole = answering({ 200: { description: "", schema: nested("answered") } }, { body: nested("asked") });
    const text = JSON.stringify(whole.components);
    expect(text).toContain('"asked"');
    expect(text).toContain('"answered"');
    expect(references(whole).filter((reference) => find(whole, reference) === undefined)).toEqual([]);
  });

  test("makes a component of what says what it is, and of a page of it", () => {
    const thing = z.strictObject({ object: z.literal("odd.thing"), size: z.int() });
    const whole = answering({
      200: { description: "", schema: listSchema(thing) },
      201: { description: "", schema: thing.extend({ secret: z.string() }).meta({ id: "NewThing" }) },
      202: { description: "", schema: z.strictObject({ made: thing.nullable() }) },
    });
    expect(whole.components["schemas"]).toMatchObject({
      OddThing: { type: "object", required: ["object", "size"] },
      OddThingList: { properties: { data: { items: { $ref: "#/components/schemas/OddThing" } } } },
      NewThing: { properties: { secret: { type: "string" } } },
    });
    expect(whole.paths["/x"]?.["post"]?.responses).toMatchObject({
      200: { content: { "application/json": { schema: { $ref: "#/components/schemas/OddThingList" } } } },
      201: { content: { "application/json": { schema: { $ref: "#/components/schemas/NewThing" } } } },
      202: {
        content: {
          "application/json": {
            schema: { properties: { made: { anyOf: [{ $ref: "#/components/schemas/OddThing" }, { type: "null" }] } } },
          },
        },
      },
    });
  });

  test("says any JSON by saying nothing, which no generator writes down without end", () => {
    const schema = z.strictObject({
      any: z.json().meta({ description: "Whatever." }),
      by_name: z.record(z.string(), z.json()),
    });
    const whole = answering({ 200: { description: "", schema }, 201: { description: "", schema: z.json() } });
    expect(whole.paths["/x"]?.["post"]?.responses).toMatchObject({
      200: { content: { "application/json": { schema: { properties: { any: { description: "Whatever." } } } } } },
      201: { content: { "application/json": { schema: {} } } },
    });
    expect(JSON.stringify(whole)).not.toMatch(/__schema|x_output|propertyNames/);
    expect(JSON.stringify(whole)).toContain('"by_name":{"type":"object","additionalProperties":{}}');
  });

  test("says a tuple of one kind as a list of that length", () => {
    const whole = answering({ 200: { description: "", schema: z.tuple([z.string(), z.string()]) } });
    expect(whole.paths["/x"]?.["post"]?.responses["200"]?.content?.["application/json"]?.schema).toEqual({
      type: "array",
      items: { type: "string" },
      minItems: 2,
      maxItems: 2,
    });
  });

  test("says what bytes, pages and streamed bodies are", () => {
    const whole = answering(
      {
        200: { description: "", mediaType: ["application/octet-stream", "*/*"] },
        201: { description: "", mediaType: "text/html" },
        204: { description: "" },
      },
      {
        stream: {
          mediaTypes: ["application/json", "application/zip"],
          description: "Files",
          json: z.object({ files: z.array(z.string()) }),
          optional: true,
        },
      },
    );
    const bytes = { schema: { type: "string", format: "binary" } };
    expect(whole.paths["/x"]?.["post"]).toMatchObject({
      requestBody: {
        required: false,
        content: {
          "application/json": { schema: { type: "object", required: ["files"], description: "Files" } },
          "application/zip": { schema: { ...bytes.schema, description: "Files" } },
        },
      },
      responses: {
        200: { content: { "application/octet-stream": bytes, "*/*": { schema: {} } } },
        201: { content: { "text/html": { schema: { type: "string" } } } },
        204: { description: "" },
      },
    });
    expect(whole.paths["/x"]?.["post"]?.responses["204"]).not.toHaveProperty("content");
  });

  test("says of a request of any type that it is bytes, and of lines of JSON that they are no JSON", () => {
    const thing = z.strictObject({ object: z.literal("thing") });
    const whole = answering(
      {
        200: { description: "", mediaType: "application/x-ndjson", schema: thing },
        206: { description: "", mediaType: "application/x-ndjson" },
      },
      { stream: { mediaTypes: ["*/*"], description: "Files" } },
    );
    const type = "application/x-ndjson";
    const lines = { type: "array", items: { $ref: "#/components/schemas/Thing" } };
    expect(whole.paths["/x"]?.["post"]).toMatchObject({
      requestBody: { content: { "*/*": { schema: { type: "string", format: "binary" } } } },
      responses: {
        200: { content: { [type]: { schema: { type: "string", contentMediaType: type, contentSchema: lines } } } },
        206: { content: { [type]: { schema: { type: "string" } } } },
      },
    });
    expect(renderDocs(whole)).toContain("object: ");
  });

  test("says the defaults of fields, and none of an object as a whole", () => {
    const limits = z.strictObject({ rounds: z.int().default(8) }).prefault({});
    const schema = z.strictObject({ limits, names: z.record(z.string(), z.string()).default({}) });
    const whole = answering({ 204: { description: "" } }, { body: schema });
    const told = whole.paths["/x"]?.["post"]?.requestBody?.content["application/json"]?.schema;
    expect(told).toMatchObject({ properties: { limits: { properties: { rounds: { default: 8 } } } } });
    expect(told).not.toHaveProperty("required");
    expect(JSON.stringify(told)).not.toContain('"default":{');
  });

  test("leaves times to their format", () => {
    const schema = z.strictObject({ at: z.iso.datetime(), day: z.iso.date(), word: z.string().regex(/^a/) });
    const whole = answering({ 200: { description: "", schema } });
    expect(whole.paths["/x"]?.["post"]?.responses["200"]?.content?.["application/json"]?.schema).toMatchObject({
      properties: {
        at: { type: "string", format: "date-time" },
        day: { type: "string", format: "date" },
        word: { type: "string", pattern: "^a" },
      },
    });
    expect(JSON.stringify(whole.paths)).not.toContain("0[13578]");
  });

  test("bounds the headers that are read in one way everywhere", () => {
    const headers = { "idempotency-key": "Once", "if-match": "Based on", range: "Part" };
    const parameters = answering({ 204: { description: "" } }, { headers }).paths["/x"]?.["post"]?.parameters ?? [];
    const allows = (name: string, value: string): boolean => {
      const pattern = parameters.find((parameter) => parameter.name === name)?.schema["pattern"];
      return typeof pattern !== "string" || new RegExp(pattern, "u").test(value);
    };
    expect(["k-1", "", "a b", "k".repeat(256)].map((key) => allows("idempotency-key", key))).toEqual([
      true,
      false,
      false,
      false,
    ]);
    expect(['"3"', 'W/"3"', "3", "*", "", '"x"', "0"].map((tag) => allows("if-match", tag))).toEqual([
      true,
      true,
      true,
      true,
      false,
      false,
      false,
    ]);
    expect(allows("range", "anything")).toBe(true);
  });

  test("of the whole gateway has names that say something", () => {
    const { schemas } = ofGateway.components;
    const names = Object.keys(schemas ?? {});
    expect(names).toEqual(expect.arrayContaining(["Agent", "AgentList", "Call", "Plugin", "RunWithSteps"]));
    // Two forms under one name are told apart by numbers, which change with the order of the routes: `id` names the second.
    expect(names.filter((name) => !/^[A-Z][A-Za-z]*$/.test(name))).toEqual([]);
    // What is called as a part of the client itself, or as Go calls what makes one, takes its place.
    expect(names).not.toEqual(expect.arrayContaining([expect.stringMatching(clientsOwn)]));
  });

  test(`of the whole gateway says what an answer of a chat holds ${verifies("CHAT-1")}`, () => {
    const { schemas } = ofGateway.components;
    const fields = (part: string): unknown => ({
      properties: { choices: { items: { properties: { [part]: { properties: { content: expect.anything() } } } } } },
    });
    expect(schemas).toMatchObject({ ChatCompletion: fields("message"), ChatCompletionChunk: fields("delta") });
  });

  test("of the whole gateway has patterns that other languages read, too", () => {
    const text = JSON.stringify(ofGateway);
    const patterns = [...text.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g)].map(([, one = '""']) =>
      String(JSON.parse(one)),
    );
    expect(patterns.length).toBeGreaterThan(0);
    // In Rust's, which pydantic has, a bracket within brackets begins a class of its own.
    const unescaped = patterns.map((pattern) => pattern.replaceAll(/\\./g, ""));
    expect(unescaped.filter((pattern) => /\[[^\]]*\[/.test(pattern))).toEqual([]);
    // Neither Python nor Go knows classes of Unicode, characters of four digits, or looking around as JavaScript has it.
    expect(patterns.filter((pattern) => /\\[pu]|\(\?(?!:)/.test(pattern))).toEqual([]);
  });

  test("of the whole gateway lets no kind of a body stand for all of them", () => {
    const { paths } = ofGateway;
    const open = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).flatMap(([method, { requestBody }]) =>
        Object.values(requestBody?.content ?? {})
          .flatMap(({ schema }) => [schema["anyOf"], schema["oneOf"]].flat())
          .filter((branch) => isJsonObject(branch) && allowsAll(branch))
          .map(() => `${method} ${path}`),
      ),
    );
    expect(open).toEqual([]);
  });

  test("of the whole gateway refers to nothing that is not there", () => {
    const found = references(ofGateway);
    expect(found.length).toBeGreaterThan(0);
    expect(found.filter((reference) => find(ofGateway, reference) === undefined)).toEqual([]);
    expect(JSON.stringify(ofGateway)).not.toMatch(/#\/\$defs|"\$ref":"#"/);
  });

  test("of the whole gateway names each operation once and describes each parameter of its path", () => {
    for (const [path, methods] of Object.entries(ofGateway.paths)) {
      for (const operation of Object.values(methods)) {
        const inPath = (operation.parameters ?? [])
          .filter((parameter) => parameter.in === "path")
          .map(({ name }) => name);
        expect(inPath).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name));
        expect(operation.summary).not.toBe("");
        expect(operation.tags).not.toEqual([]);
      }
    }
  });
});

describe("lists in requests", () => {
  test("have an end, since each item that is checked and told of holds up everybody", () => {
    const found = Object.values(ofGateway.paths).flatMap((methods) =>
      Object.values(methods).flatMap(({ operationId, requestBody }) =>
        Object.values(requestBody?.content ?? {}).flatMap(({ schema }) => endlessLists(schema, operationId)),
      ),
    );
    expect(found).toEqual([]);
  });
});

describe("numbers in requests", () => {
  test("are as the document says they are: nothing else in a body is made one without a word", () => {
    const coerced = (schema: z.core.$ZodType, within = new Set<unknown>()): boolean => {
      if (within.has(schema)) return false;
      within.add(schema);
      const { def } = schema._zod;
      if ("coerce" in def && def.coerce === true) return true;
      const isSchema = (value: unknown): value is z.core.$ZodType =>
        typeof value === "object" && value !== null && "_zod" in value && "def" in (value._zod as object);
      const partsOf = (value: unknown): readonly unknown[] =>
        typeof value === "object" && value !== null && !isSchema(value) ? Object.values(value) : [value];
      return Object.values(def)
        .flatMap(partsOf)
        .some((part) => isSchema(part) && coerced(part, within));
    };
    const found = Object.entries(allRoutes).filter(
      ([, { request }]) => request.body !== undefined && coerced(request.body),
    );
    expect(found.map(([name]) => name)).toEqual([]);
  });
});

describe("examples of requests", () => {
  /** Takes a body, and one that may say something. */
  const takesBody = ({ request: { body, stream } }: RouteModule): boolean => {
    if (stream !== undefined)
      return stream.mediaTypes.every((type) => type.startsWith("text/")) || stream.json !== undefined;
    if (body === undefined) return false;
    const { properties = {}, type } = z.toJSONSchema(body, { io: "input", unrepresentable: "any" });
    return type !== "object" || Object.keys(properties).length > 0;
  };
  const named = new Map<string, RouteModule>(Object.entries(allRoutes));

  test("are there for every route that takes a body, and for no other name", () => {
    const wanting = [...named].filter(([, route]) => takesBody(route)).map(([name]) => name);
    expect(wanting.length).toBeGreaterThan(80);
    expect(wanting.filter((name) => requestExamples[name] === undefined)).toEqual([]);
    expect(Object.keys(requestExamples).filter((name) => !named.has(name))).toEqual([]);
  });

  test.each(Object.entries(requestExamples))("%s is taken by the route", (name, example) => {
    const { body, stream } = named.get(name)?.request ?? {};
    const problems = (body ?? stream?.json)?.safeParse(example).error?.issues ?? [];
    expect(problems).toEqual([]);
  });

  test("fit the schemas beside them", () => {
    const { paths, components } = ofGateway;
    const contents = Object.values(paths)
      .flatMap((methods) => Object.values(methods))
      .flatMap(({ operationId, requestBody }) =>
        Object.values(requestBody?.content ?? {}).map((content) => ({ operationId, ...content })),
      )
      .filter(({ example }) => example !== undefined);
    expect(contents.length).toBeGreaterThan(80);
    const problems = contents.flatMap(({ operationId, schema, example }) =>
      checkValue({ ...schema, components }, example as JsonValue).map((problem) => ({ operationId, ...problem })),
    );
    expect(problems).toEqual([]);
  });

  test("stand in the document, on the page and in no route that takes none", () => {
    expect(ofGateway.paths["/v1/agents"]?.["post"]?.requestBody?.content["application/json"]?.example).toMatchObject({
      name: "support",
    });
    expect(ofGateway.paths["/v1/human/tool"]?.["post"]?.requestBody?.content["text/plain"]?.example).toContain(
      "TOOL_REQUEST",
    );
    expect(ofGateway.paths["/v1/agents/{id}"]?.["get"]).not.toHaveProperty("requestBody");
    expect(renderDocs(ofGateway)).toContain(
      "&quot;base_url&quot;: &quot;https://crm.example.com/v1/customers/{id}/orders&quot;",
    );
  });
});

describe("the documentation for people and models", () => {
  test("says of every group of the gateway what it is for, what newcomers need first", () => {
    const { tags } = ofGateway;
    expect(tags.filter(({ description }) => description === undefined)).toEqual([]);
    expect(tags.slice(0, 3).map(({ name }) => name)).toEqual(["chat", "tools", "plugins"]);
    expect(document.tags).toEqual([{ name: "items" }]);
  });

  test("tells a model how a tool is made and called", () => {
    const text = renderLlmsText(ofGateway);
    expect(text.match(/^\d\. `\w+ [^`]+`/gm)).toEqual([
      "1. `PUT /v1/credentials/{name}`",
      "2. `POST /v1/plugins`",
      "3. `POST /v1/tools/explain`",
      "4. `POST /v1/tools/invoke`",
      "5. `POST /v1/chat/completions`",
    ]);
    expect(text).toContain(JSON.stringify(requestExamples["createPlugin"]));
    expect(text).toContain("http://x/openapi.json?tag=tool%20services");
  });

  test("escapes everything it shows", () => {
    const page = renderDocs(document);
    expect(page).toContain("Put &lt;an&gt; item");
    expect(page).toContain("&lt;b&gt;Free&lt;/b&gt; text");
    expect(page).toContain("<code>name</code> &amp; more");
    expect(page).not.toMatch(/<an>|<b>Free/);
  });

  test("loads nothing from elsewhere and runs nothing", () => {
    const page = renderDocs(document);
    expect(page).not.toMatch(/<script|<link|<img|src=|@import|url\(/);
    expect(docsPolicy).toMatch(/^default-src 'none'; style-src 'sha256-/);
  });

  test("outlines bodies down to their fields", () => {
    expect(renderDocs(document)).toContain("id: string");
    expect(renderDocs(document)).toContain("size?: integer (");
  });

  test("lists every route in llms.txt", () => {
    expect(renderLlmsText(document)).toContain("- `PUT /items/{id}`: Put <an> item");
  });

  test("shows what holds itself, named or not, once and then by name", () => {
    const tree: z.ZodType = z
      .object({
        get kids(): z.ZodType {
          return z.array(tree);
        },
      })
      .meta({ id: "Tree" });
    const json: z.ZodType = z.lazy(() => z.union([z.string(), z.array(json), z.record(z.string(), json)]));
    const routesOf = (schema: z.ZodType): Parameters<typeof toOpenApi>[0] => ({
      route: defineRoute({
        method: "get",
        path: "/tree",
        summary: "Tree",
        tags: ["tree"],
        scope: null,
        responses: { 200: { description: "", schema } },
        handler: (c) => c.text(""),
      }),
    });
    const render = (schema: z.ZodType): string =>
      renderDocs(toOpenApi(routesOf(schema), { version: "1", url: "http://x" }));
    expect(render(tree)).toContain("kids: Tree[]");
    expect(render(z.object({ value: json }))).toContain("value: string | route_output[] | object");
  });
});

describe("the open routes", () => {
  const app = createApp({ core: createFakeCore(), adminKeyHash: hashApiKey("operator"), version: "1.2.3" }, allRoutes);

  test.each([
    ["/openapi.json", "application/json"],
    ["/docs", "text/html; charset=utf-8"],
    ["/llms.txt", "text/plain; charset=utf-8"],
  ])("%s is %s, known by its tag, and needs no key", async (path, type) => {
    const answer = await app.request(path);
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, type]);
    expect(answer.headers.get("cache-control")).toBe("no-cache");
    const tag = answer.headers.get("etag") ?? "";
    const again = await app.request(path, { headers: { "if-none-match": tag } });
    expect([again.status, await again.text(), again.headers.get("etag")]).toEqual([304, "", tag]);
    expect((await app.request(path, { headers: { "if-none-match": '"other"' } })).status).toBe(200);
  });

  test("openapi.json is version 3.1 of this API", async () => {
    const document: unknown = await (await app.request("/openapi.json")).json();
    expect(document).toMatchObject({ openapi: "3.1.0", info: { title: "Toolyard", version: "1.2.3" } });
  });

  test("openapi.json of one group has that alone, and refers to nothing else", async () => {
    const answer = await app.request("/openapi.json?tag=tool%20services");
    const part = (await answer.json()) as OpenApiDocument;
    expect(
      Object.keys(part.paths).filter((path) => !/^\/v1\/(?:tool-services|descriptor-sets|sms)/.test(path)),
    ).toEqual([]);
    expect(part.paths["/v1/tool-services"]).toHaveProperty("post");
    expect(references(part).filter((reference) => find(part, reference) === undefined)).toEqual([]);
    const unknown = await app.request("/openapi.json?tag=tool");
    expect([unknown.status, await unknown.json()]).toMatchObject([
      400,
      {
        error: {
          code: "invalid_request",
          param: "tag",
          message: expect.stringContaining("tools, plugins, tool services"),
        },
      },
    ]);
  });

  test("the root leads to the documentation", async () => {
    const answer = await app.request("/");
    expect([answer.status, answer.headers.get("location")]).toEqual([302, "/docs"]);
  });

  test("security.txt has a contact and expires within a year", async () => {
    const text = await (await app.request("/.well-known/security.txt")).text();
    expect(text).toContain("Contact: http://127.0.0.1:8787/docs#security");
    const expires = Date.parse(/^Expires: (.+)$/m.exec(text)?.[1] ?? "");
    expect(expires).toBeGreaterThan(Date.now());
    expect(expires).toBeLessThan(Date.now() + 366 * 86_400_000);
  });

  test("/health is cheap: it asks no back end", async () => {
    for (const path of ["/health", "/health/live"]) {
      expect(await (await app.request(path)).json()).toEqual({ status: "ok", version: "1.2.3" });
    }
  });
});
