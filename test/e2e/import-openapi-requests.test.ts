/** What is sent by tools that were OpenAPI documents: parameters in their styles, bodies, and what a model is told of them. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { definitionOf, importsOf, ok, pluginsOf, text } from "../support/imports.ts";
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

const { call, documentOf, importing } = importsOf(() => ({ tenant, backEnd }));

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
