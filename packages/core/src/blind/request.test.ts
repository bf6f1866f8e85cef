import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { placeSecrets } from "./auth-mapping.ts";
import { executionSchema, type AuthConfig } from "./definition.ts";
import { buildRequest, compilePlan, type BuiltRequest } from "./request.ts";

interface Setup {
  readonly execution?: JsonObject;
  readonly properties?: JsonObject;
  readonly auth?: AuthConfig;
  readonly values?: Readonly<Record<string, string>>;
}

async function build(
  args: JsonObject,
  { execution = {}, properties = {}, auth, values = {} }: Setup = {},
): Promise<BuiltRequest> {
  const parsed = executionSchema.parse({
    method: "GET",
    base_url: "https://api.example.com/v1/items",
    param_placement: "query",
    ...execution,
  });
  const secrets = await placeSecrets(auth, {
    values: new Map(Object.entries(values)),
    accessToken: () => Promise.reject(new Error("no access token was expected to be needed")),
    hide: () => undefined,
  });
  return buildRequest(compilePlan(parsed, { type: "object", properties }), args, secrets);
}

const queryOf = ({ url }: BuiltRequest): string => new URL(url).search.slice(1);
const headerOf = ({ headers }: BuiltRequest, name: string): string | undefined =>
  headers.find(([header]) => header.toLowerCase() === name)?.[1];
const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe(`arguments in the query ${verifies("BLIND-2", "API-1")}`, () => {
  test("text, numbers and flags, falsy ones too, in the order of the arguments", async () => {
    const built = await build({ offset: 0, archived: false, prefix: "", limit: 20, q: "a b&c=d+e#é" });
    expect(queryOf(built)).toBe("offset=0&archived=false&prefix=&limit=20&q=a%20b%26c%3Dd%2Be%23%C3%A9");
    expect(built.body).toBeUndefined();
    expect(headerOf(built, "content-type")).toBeUndefined();
  });

  test("a query that base_url has already stays in front and cannot be overwritten", async () => {
    const execution = { base_url: "https://api.example.com/v1?action=list&v=2" };
    expect(queryOf(await build({ action: "delete", page: 1 }, { execution }))).toBe("action=list&v=2&page=1");
  });

  test("arrays repeat the key, objects are JSON, null is no value", async () => {
    const built = await build({ tag: ["x", "y"], filter: { min: 1 }, none: null, empty: [] });
    expect(queryOf(built)).toBe(`tag=x&tag=y&filter=${encodeURIComponent('{"min":1}')}`);
  });

  test("styles of OpenAPI where the definition asks for them", async () => {
    const execution = {
      param_styles: {
        fields: { style: "form", explode: false },
        days: { style: "pipeDelimited" },
        words: { style: "spaceDelimited" },
        filter: { style: "deepObject" },
        range: { style: "form" },
        point: { style: "form", explode: false },
        again: { style: "pipeDelimited", explode: true },
      },
    };
    const args = {
      fields: ["id", "a,b"],
      days: ["mon", "tue"],
      words: ["a b", "c"],
      filter: { min: 1, max: 5 },
      range: { from: 1, to: 2 },
      point: { x: 1, y: 2 },
      again: [1, 2],
    };
    expect(queryOf(await build(args, { execution })).split("&")).toEqual([
      "fields=id,a%2Cb",
      "days=mon%7Ctue",
      "words=a%20b%20c",
      "filter%5Bmin%5D=1",
      "filter%5Bmax%5D=5",
      "from=1",
      "to=2",
      "point=x,1,y,2",
      "again=1",
      "again=2",
    ]);
  });
});

describe(`arguments in the path ${verifies("BLIND-2", "API-4")}`, () => {
  const execution = { base_url: "https://api.example.com/v1/users/{id}/profile", param_placement: "path" };
  const pathOf = async (id: JsonValue): Promise<string> => new URL((await build({ id }, { execution })).url).pathname;

  test.each([
    ["../../admin/keys?all=1#", "/v1/users/..%2F..%2Fadmin%2Fkeys%3Fall%3D1%23/profile"],
    ["%2e%2e", "/v1/users/%252e%252e/profile"],
    ["a/b", "/v1/users/a%2Fb/profile"],
    ["a\\b", "/v1/users/a%5Cb/profile"],
    ["张 三", "/v1/users/%E5%BC%A0%20%E4%B8%89/profile"],
    ["a;b=c", "/v1/users/a%3Bb%3Dc/profile"],
    ["...", "/v1/users/.../profile"],
    ["\r\nx", "/v1/users/%0D%0Ax/profile"],
    [0, "/v1/users/0/profile"],
    [false, "/v1/users/false/profile"],
    [["monday", "a,b"], "/v1/users/monday,a%2Cb/profile"],
    [{ role: "admin" }, "/v1/users/role,admin/profile"],
    ["\ud800", "/v1/users/%EF%BF%BD/profile"],
  ])("%j becomes %s", async (id, path) => {
    expect(await pathOf(id)).toBe(path);
  });

  test.each([[".."], ["."], [""], [null], [[]], [[".."]], [[""]]])(
    "%j is refused by the parameter's name",
    async (id) => {
      const error = await refusal(pathOf(id));
      expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "id" } });
    },
  );

  test("a dot segment cannot be put together from parts", async () => {
    const two = { base_url: "https://api.example.com/a/{x}{y}/b", param_placement: "path" };
    expect(await refusal(build({ x: ".", y: "." }, { execution: two }))).toMatchObject({ code: "invalid_arguments" });
    const encoded = { base_url: "https://api.example.com/a/%2e{x}/b", param_placement: "path" };
    expect(await refusal(build({ x: "." }, { execution: encoded }))).toMatchObject({ code: "invalid_arguments" });
  });

  test("each placeholder is filled in one pass: twice, overlapping, with text that looks like one", async () => {
    const teams = { base_url: "https://api.example.com/v1/orgs/{org}/teams/{team}/of/{org}", param_placement: "path" };
    expect((await build({ org: "{team}", team: "t$&1" }, { execution: teams })).url).toBe(
      "https://api.example.com/v1/orgs/%7Bteam%7D/teams/t%24%261/of/%7Bteam%7D",
    );
    const files = {
      base_url: "https://api.example.com/v1/files/{name}.{name2}/placeholder0x0e",
      param_placement: "path",
    };
    expect((await build({ name: "report", name2: "pdf" }, { execution: files })).url).toBe(
      "https://api.example.com/v1/files/report.pdf/placeholder0x0e",
    );
  });

  test("what is left over goes to the query for GET and DELETE, to the body for the others", async () => {
    for (const method of ["GET", "DELETE"]) {
      const built = await build({ id: 7, dry: true }, { execution: { ...execution, method } });
      expect(built).toMatchObject({ url: "https://api.example.com/v1/users/7/profile?dry=true", body: undefined });
    }
    for (const method of ["POST", "PUT", "PATCH"]) {
      const built = await build({ id: 7, dry: true }, { execution: { ...execution, method } });
      expect(built).toMatchObject({ url: "https://api.example.com/v1/users/7/profile", body: '{"dry":true}' });
    }
  });

  test("a placeholder is filled wherever the others go, in the query of base_url, too", async () => {
    const mixed = { base_url: "https://api.example.com/{id}?city={city}&v=1", param_placement: "query" };
    const built = await build({ id: "a", city: "北 京&x=1", page: 2 }, { execution: mixed });
    expect(built.url).toBe("https://api.example.com/a?city=%E5%8C%97%20%E4%BA%AC%26x%3D1&v=1&page=2");
  });

  test("single parameters may go elsewhere", async () => {
    const overrides = {
      method: "POST",
      base_url: "https://api.example.com/{id}",
      param_placement: "body",
      param_overrides: { "X-Region": "header", verbose: "query", id: "path" },
    };
    const built = await build({ id: "a", "X-Region": "eu", verbose: false, name: "n" }, { execution: overrides });
    expect(built).toMatchObject({ url: "https://api.example.com/a?verbose=false", body: '{"name":"n"}' });
    expect(headerOf(built, "x-region")).toBe("eu");
  });

  test.each(["a\r\nHost: evil", "a\nb", "a\0b", "北京"])("%j is refused in a header", async (value) => {
    const overrides = { param_overrides: { "X-Region": "header" } };
    const error = await refusal(build({ "X-Region": value }, { execution: overrides }));
    expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "X-Region" } });
  });
});

describe(`styles of OpenAPI in a path, a header and a cookie ${verifies("BLIND-2", "API-4")}`, () => {
  const pathOf = async (id: JsonValue, style: JsonObject): Promise<string> => {
    const execution = {
      base_url: "https://api.example.com/v1/{id}/x",
      param_placement: "path",
      param_styles: { id: style },
    };
    return new URL((await build({ id }, { execution })).url).pathname;
  };

  // The examples of the OpenAPI specification's table of styles, and text that would break out of it.
  const list = ["blue", "black"];
  const map = { R: 100, G: 200 };
  test.each([
    [{ style: "simple" }, list, "/v1/blue,black/x"],
    [{ style: "simple", explode: true }, map, "/v1/R=100,G=200/x"],
    [{ style: "simple" }, map, "/v1/R,100,G,200/x"],
    [{ style: "label" }, "blue", "/v1/.blue/x"],
    [{ style: "label" }, list, "/v1/.blue,black/x"],
    [{ style: "label", explode: true }, list, "/v1/.blue.black/x"],
    [{ style: "label", explode: true }, map, "/v1/.R=100.G=200/x"],
    [{ style: "matrix" }, "blue", "/v1/;id=blue/x"],
    [{ style: "matrix" }, list, "/v1/;id=blue,black/x"],
    [{ style: "matrix", explode: true }, list, "/v1/;id=blue;id=black/x"],
    [{ style: "matrix", explode: true }, map, "/v1/;R=100;G=200/x"],
    [{ style: "matrix" }, "a;b=c/d", "/v1/;id=a%3Bb%3Dc%2Fd/x"],
    [{ style: "matrix", explode: true }, { "a/../b": "?x" }, "/v1/;a%2F..%2Fb=%3Fx/x"],
    [{ style: "simple", explode: true }, { "..": "#" }, "/v1/..=%23/x"],
  ])("%j: %j is %s", async (style, value, path) => {
    expect(await pathOf(value, style)).toBe(path);
  });

  test.each([
    ["label", "."],
    ["label", ""],
    ["simple", ".."],
  ])("%s refuses %j, a dot segment", async (style, value) => {
    expect(await refusal(pathOf(value, { style }))).toMatchObject({ code: "invalid_arguments" });
  });

  test("a header joins lists and objects where a style is given, and is JSON without one", async () => {
    const execution = {
      param_overrides: { "X-Ids": "header", "X-Range": "header", "X-Pair": "header", "X-Old": "header" },
      param_styles: {
        "X-Ids": { style: "simple" },
        "X-Range": { style: "simple", explode: true },
        "X-Pair": { style: "simple" },
      },
    };
    const args = { "X-Ids": [1, "b"], "X-Range": { from: 1, to: 2 }, "X-Pair": { a: 1 }, "X-Old": [1] };
    const built = await build(args, { execution });
    expect(["x-ids", "x-range", "x-pair", "x-old"].map((name) => headerOf(built, name))).toEqual([
      "1,b",
      "from=1,to=2",
      "a,1",
      "[1]",
    ]);
    expect(await refusal(build({ "X-Ids": ["a\r\nb"] }, { execution }))).toMatchObject({ details: { param: "X-Ids" } });
  });

  test("cookies share one header, and nothing in a value starts another one", async () => {
    const execution = {
      param_overrides: { session_hint: "cookie", flags: "cookie", none: "cookie" },
      param_names: { session_hint: "session-hint" },
      param_styles: { flags: { style: "form", explode: false } },
    };
    const built = await build({ session_hint: "a; admin=1\r\n", flags: ["x", "y"], none: null }, { execution });
    expect(headerOf(built, "cookie")).toBe("session-hint=a%3B%20admin%3D1%0D%0A; flags=x,y");
    expect(headerOf(await build({ none: null }, { execution }), "cookie")).toBeUndefined();
  });

  test("a value may be JSON as a whole", async () => {
    const execution = { param_styles: { filter: { style: "json" }, tags: { style: "json" }, word: { style: "json" } } };
    expect(
      decodeURIComponent(queryOf(await build({ filter: { a: [1] }, tags: ["x"], word: "w" }, { execution }))),
    ).toBe('filter={"a":[1]}&tags=["x"]&word="w"');
  });

  test("deep objects go on in brackets where that is asked for", async () => {
    const value = { a: { b: [1, { c: "x y" }], none: null }, empty: {} };
    const nested = { param_styles: { q: { style: "deepObject", nested: true } } };
    expect(decodeURIComponent(queryOf(await build({ q: value }, { execution: nested })))).toBe(
      "q[a][b][0]=1&q[a][b][1][c]=x y",
    );
    const flat = { param_styles: { q: { style: "deepObject" } } };
    expect(decodeURIComponent(queryOf(await build({ q: { a: { b: 1 } } }, { execution: flat })))).toBe('q[a]={"b":1}');
  });
});

describe(`arguments that the back end calls otherwise ${verifies("BLIND-2")}`, () => {
  test("go out under its names, the same name in every place", async () => {
    const execution = {
      method: "POST",
      base_url: "https://api.example.com/items/{id}",
      param_placement: "body",
      param_overrides: { query_id: "query", header_id: "header", cookie_id: "cookie" },
      param_names: { query_id: "id", header_id: "id", cookie_id: "id", body_id: "id", page_size: "page[size]" },
    };
    const args = { id: "p", query_id: "q", header_id: "h", cookie_id: "c", body_id: "b", page_size: 1 };
    const built = await build(args, { execution });
    expect(built).toMatchObject({ url: "https://api.example.com/items/p?id=q", body: '{"id":"b","page[size]":1}' });
    expect([headerOf(built, "id"), headerOf(built, "cookie")]).toEqual(["h", "id=c"]);
  });

  test("credentials beat them by the back end's name", async () => {
    const auth: AuthConfig = { type: "api_key", mapping: [{ source: "KEY", target: "key", location: "query" }] };
    const execution = { param_names: { mine: "key" } };
    expect(queryOf(await build({ mine: "1", q: 2 }, { execution, auth, values: { KEY: "secret" } }))).toBe(
      "q=2&key=secret",
    );
  });

  test("a file part is found by its argument", async () => {
    const execution = {
      method: "POST",
      param_placement: "body",
      content_type: "multipart/form-data",
      param_names: { photo: "image[0]", note: "meta" },
      part_types: { note: "text/csv" },
    };
    const properties = { photo: { type: "string", format: "binary" }, note: { type: "string" } };
    const built = await build({ photo: "aGk=", note: "a,b" }, { execution, properties });
    const text = Buffer.from(built.body ?? "").toString("latin1");
    expect(text).toContain('name="image[0]"; filename="photo"\r\ncontent-type: application/octet-stream\r\n\r\nhi\r\n');
    expect(text).toContain('name="meta"\r\ncontent-type: text/csv\r\n\r\na,b\r\n');
    expect(await refusal(build({ photo: "no base64!" }, { execution, properties }))).toMatchObject({
      details: { param: "photo" },
    });
  });
});

describe(`a body that is one argument ${verifies("BLIND-2")}`, () => {
  const send = (body: JsonValue, contentType: string, schema: JsonObject = {}): Promise<BuiltRequest> =>
    build(
      { body, dry: true },
      {
        execution: {
          method: "POST",
          param_placement: "query",
          content_type: contentType,
          body_param: "body",
          xml_root: contentType.endsWith("xml") ? "order" : undefined,
        } as JsonObject,
        properties: { body: schema, dry: { type: "boolean" } },
      },
    );
  const file = { type: "string", format: "binary" };

  test.each([
    [[1, { a: null }], "application/json", '[1,{"a":null}]'],
    ["text", "application/json", '"text"'],
    [null, "application/json", "null"],
    ["line 1\nline 2", "text/plain", "line 1\nline 2"],
    ["a,b", "text/csv", "a,b"],
    ['{"a":1}\n{"a":2}', "application/x-ndjson", '{"a":1}\n{"a":2}'],
    ["<order/>", "application/xml", "<order/>"],
    [{ id: 1 }, "application/xml", '<?xml version="1.0" encoding="UTF-8"?>\n<order><id>1</id></order>'],
    [[1, 2], "text/xml", '<?xml version="1.0" encoding="UTF-8"?>\n<order>1</order><order>2</order>'],
    ["a=1&b=2", "application/x-www-form-urlencoded", "a=1&b=2"],
    [{ a: [1, 2] }, "application/x-www-form-urlencoded", "a=1&a=2"],
  ])("%j as %s", async (value, contentType, body) => {
    const built = await send(value, contentType);
    expect(built).toMatchObject({ url: "https://api.example.com/v1/items?dry=true", body });
    expect(headerOf(built, "content-type")).toBe(contentType);
  });

  test("a file is sent byte for byte, given as base64 or as a data URI", async () => {
    const bytes = Buffer.from([0, 255, 10, 13]);
    for (const text of [bytes.toString("base64"), `data:image/png;base64,${bytes.toString("base64")}`]) {
      expect(Buffer.from((await send(text, "application/octet-stream", file)).body ?? "")).toEqual(bytes);
    }
    expect(await refusal(send("no base64!", "application/octet-stream", file))).toMatchObject({
      details: { param: "body" },
    });
  });

  test("without the argument there is no body", async () => {
    const execution = { method: "POST", param_placement: "body", body_param: "body", param_overrides: { q: "query" } };
    const built = await build({ q: 1 }, { execution });
    expect(built.body).toBeUndefined();
    expect(headerOf(built, "content-type")).toBeUndefined();
  });

  test("other arguments have no place in it", async () => {
    const execution = { method: "POST", param_placement: "body", body_param: "body" };
    expect(await refusal(build({ body: [], more: 1 }, { execution }))).toMatchObject({
      code: "invalid_arguments",
      details: { param: "more" },
    });
    expect(await refusal(send("text", "multipart/form-data"))).toMatchObject({ details: { param: "body" } });
  });
});

test("a form writes values in the style that they are given", async () => {
  const execution = {
    method: "POST",
    param_placement: "body",
    content_type: "application/x-www-form-urlencoded",
    param_styles: { items: { style: "deepObject", nested: true }, ids: { style: "form", explode: false } },
  };
  const args = { a: "x y", items: [{ price: "p&1" }], ids: [1, 2], empty: [] };
  expect((await build(args, { execution })).body).toBe("a=x+y&items%5B0%5D%5Bprice%5D=p%261&ids=1,2");
});

describe(`bodies ${verifies("BLIND-2", "API-2")}`, () => {
  const post = (contentType: string, more: JsonObject = {}): JsonObject => ({
    method: "POST",
    param_placement: "body",
    content_type: contentType,
    ...more,
  });

  test("JSON keeps each value and its type", async () => {
    const args = {
      ids: [1, 2, 3],
      meta: { a: { b: true } },
      note: "[1,2]",
      zero: 0,
      off: false,
      none: null,
      big: 2 ** 53,
    };
    const built = await build(args, { execution: post("application/json") });
    expect(built.body).toBe(
      '{"ids":[1,2,3],"meta":{"a":{"b":true}},"note":"[1,2]","zero":0,"off":false,"none":null,"big":9007199254740992}',
    );
    expect(headerOf(built, "content-type")).toBe("application/json");
  });

  test("a JSON body without arguments is an empty object", async () => {
    expect((await build({}, { execution: post("application/json") })).body).toBe("{}");
  });

  test("a merge patch keeps its type and its null", async () => {
    const built = await build(
      { title: null },
      { execution: { ...post("application/merge-patch+json"), method: "PATCH" } },
    );
    expect(built.body).toBe('{"title":null}');
    expect(headerOf(built, "content-type")).toBe("application/merge-patch+json");
  });

  test("a name like __proto__ is a name", async () => {
    const args = JSON.parse('{"__proto__":{"a":1},"b":2}') as JsonObject;
    expect((await build(args, { execution: post("application/json") })).body).toBe('{"__proto__":{"a":1},"b":2}');
  });

  test("a form repeats arrays, writes objects as JSON and encodes what would split a field", async () => {
    const args = { amount: 100, memo: "测试 a&b=c", live: false, tag: ["x", "y"], meta: { a: 1 }, none: null };
    const built = await build(args, { execution: post("application/x-www-form-urlencoded") });
    expect(built.body).toBe(
      `amount=100&memo=%E6%B5%8B%E8%AF%95+a%26b%3Dc&live=false&tag=x&tag=y&meta=${encodeURIComponent('{"a":1}')}`,
    );
    expect(headerOf(built, "content-type")).toBe("application/x-www-form-urlencoded");
  });

  test("multipart sends fields, files byte for byte, and names that cannot break out", async () => {
    const bytes = Buffer.from([0, 255, 13, 10, 45, 45]);
    const properties = {
      photo: { type: "string", contentEncoding: "base64", contentMediaType: "image/png" },
      named: { type: "string", format: "binary" },
      'a"\r\nb': { type: "string" },
    };
    const args = {
      photo: bytes.toString("base64"),
      named: `data:text/plain;name=${encodeURIComponent('re"port.txt')};base64,${Buffer.from("hi").toString("base64")}`,
      'a"\r\nb': "v",
      meta: { k: [1] },
      tag: ["x", "y"],
    };
    const built = await build(args, { execution: post("multipart/form-data"), properties });
    const boundary = /^multipart\/form-data; boundary=([\w-]+)$/.exec(headerOf(built, "content-type") ?? "")?.[1] ?? "";
    const body = Buffer.from(built.body ?? "").toString("latin1");
    const parts = body.split(`--${boundary}`);
    expect(parts.at(-1)).toBe("--\r\n");
    expect(parts.slice(1, -1)).toEqual([
      `\r\ncontent-disposition: form-data; name="photo"; filename="photo"\r\ncontent-type: image/png\r\n\r\n${bytes.toString("latin1")}\r\n`,
      '\r\ncontent-disposition: form-data; name="named"; filename="re%22port.txt"\r\ncontent-type: text/plain\r\n\r\nhi\r\n',
      '\r\ncontent-disposition: form-data; name="a%22%0D%0Ab"\r\n\r\nv\r\n',
      '\r\ncontent-disposition: form-data; name="meta"\r\ncontent-type: application/json\r\n\r\n{"k":[1]}\r\n',
      '\r\ncontent-disposition: form-data; name="tag"\r\n\r\nx\r\n',
      '\r\ncontent-disposition: form-data; name="tag"\r\n\r\ny\r\n',
    ]);
    const another = await build(args, { execution: post("multipart/form-data"), properties });
    expect(headerOf(another, "content-type")).not.toContain(boundary);
  });

  test("a file that is no base64 is refused by name", async () => {
    const properties = { photo: { type: "string", contentEncoding: "base64" } };
    for (const photo of ["no base64!", "aGkab"]) {
      const error = await refusal(build({ photo }, { execution: post("multipart/form-data"), properties }));
      expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "photo" } });
    }
  });

  test("XML makes elements of keys and items, and text stays text", async () => {
    const args = { order: { id: 1, item: [{ sku: "a<b&c" }, { sku: "]]>" }], note: null, paid: false } };
    const built = await build(args, { execution: post("text/xml", { xml_root: "xml" }) });
    expect(built.body).toBe(
      '<?xml version="1.0" encoding="UTF-8"?>\n<xml><order><id>1</id><item><sku>a&lt;b&amp;c</sku></item>' +
        "<item><sku>]]&gt;</sku></item><note/><paid>false</paid></order></xml>",
    );
    expect(headerOf(built, "content-type")).toBe("text/xml");
  });

  test.each([[{ "a b": 1 }], [{ "a><b": 1 }], [{ "x:y": 1 }], [{ "": 1 }], [{ a: "\u0001" }]])(
    "XML refuses %j, which it cannot carry",
    async (args) => {
      expect(await refusal(build(args, { execution: post("application/xml") }))).toMatchObject({
        code: "invalid_arguments",
      });
    },
  );

  test("text is the one argument as it stands, and a second is refused by name", async () => {
    const execution = post("text/plain; charset=utf-8");
    const built = await build({ text: "多行\n文本" }, { execution });
    expect(built.body).toBe("多行\n文本");
    expect(headerOf(built, "content-type")).toBe("text/plain; charset=utf-8");
    expect(await refusal(build({ text: "a", more: 1 }, { execution }))).toMatchObject({ details: { param: "more" } });
  });

  test("endless nesting is an error of the arguments", async () => {
    let deep: JsonValue = 1;
    for (let level = 0; level < 200_000; level += 1) deep = [deep];
    for (const type of ["application/json", "application/x-www-form-urlencoded", "application/xml"]) {
      expect(await refusal(build({ deep }, { execution: post(type) }))).toMatchObject({ code: "invalid_arguments" });
    }
  });
});

describe(`credentials in a request ${verifies("BLIND-2", "BLIND-3")}`, () => {
  const auth: AuthConfig = {
    type: "api_key",
    mapping: [
      { source: "KEY", target: "X-Api-Key", location: "header" },
      { source: "SIGN", target: "sign", location: "query" },
    ],
  };
  const values = { KEY: "key-1", SIGN: "a b&c" };

  test("beat arguments of the same name, whatever their case", async () => {
    const execution = { param_overrides: { "x-api-key": "header" }, headers: { "X-API-KEY": "fixed" } };
    const built = await build({ "x-api-key": "mine", sign: "mine", q: 1 }, { execution, auth, values });
    expect(built.headers.filter(([name]) => name.toLowerCase() === "x-api-key")).toEqual([["X-Api-Key", "key-1"]]);
    expect(queryOf(built)).toBe("q=1&sign=a%20b%26c");
    expect(built.secretHeaders).toEqual(["x-api-key"]);
  });

  test("beat names that an object argument brings", async () => {
    const execution = { param_styles: { extra: { style: "form" } } };
    expect(queryOf(await build({ extra: { sign: "mine", a: 1 } }, { execution, auth, values }))).toBe(
      "a=1&sign=a%20b%26c",
    );
  });
});

describe(`credentials in path and body ${verifies("BLIND-2", "BLIND-3")}`, () => {
  const path = { base_url: "https://api.example.com/bot{TOKEN}/{method}", param_placement: "path" };
  const inPath: AuthConfig = { type: "api_key", mapping: [{ source: "BOT", target: "TOKEN", location: "path" }] };
  const inBody: AuthConfig = {
    type: "api_key",
    mapping: [
      { source: "ID", target: "client_id", location: "body" },
      { source: "SECRET", target: "secret", location: "body" },
    ],
  };
  const values = { ID: "c-1", SECRET: 's"<&\u00e9 +' };
  const post = (contentType: string): Setup => ({
    execution: { method: "POST", content_type: contentType, param_placement: "body" },
    auth: inBody,
    values,
  });

  test("a field further in a body of JSON beats what an argument says of it, and leaves it the rest", async () => {
    const auth: AuthConfig = {
      type: "api_key",
      mapping: [
        { source: "ID", target: "/merchant/~1id", location: "body" },
        { source: "SECRET", target: "/head/__proto__/key", location: "body" },
      ],
    };
    const given = { ...post("application/json"), auth };
    const args = { merchant: { "/id": "mine", name: "ann" }, head: "mine", a: 1 };
    expect((await build(args, given)).body).toBe(
      `{"a":1,"merchant":{"name":"ann","/id":"c-1"},"head":{"__proto__":{"key":${JSON.stringify(values.SECRET)}}}}`,
    );
    const numbers = { ...given, properties: { head: { type: ["object", "integer"] } } };
    const inPlaceOfOne = await build({ head: "9007199254740993" }, numbers);
    expect(JSON.parse(String(inPlaceOfOne.body))).toEqual(JSON.parse(String((await build({}, given)).body)));
    expect((await build({}, given)).hasSecretBody).toBe(true);
    // Elsewhere it is a name like others.
    const form = await build({}, { ...post("application/x-www-form-urlencoded"), auth });
    expect(form.body).toContain("%2Fmerchant%2F%7E1id=c-1");
  });

  test("a part of the path stands as people paste it, and ends no segment", async () => {
    const args = { method: "send Message", TOKEN: "mine" };
    const built = await build(args, { execution: path, auth: inPath, values: { BOT: "123:AA-b_C" } });
    expect(built.url).toBe("https://api.example.com/bot123:AA-b_C/send%20Message");
    expect([built.secretHeaders, built.hasSecretBody]).toEqual([[], false]);
    const odd = await build(args, { execution: path, auth: inPath, values: { BOT: "a/../b?c#d%2f;e" } });
    expect(odd.url).toBe("https://api.example.com/bota%2F..%2Fb%3Fc%23d%252f%3Be/send%20Message");
  });

  test("a placeholder in the query is filled as well", async () => {
    const execution = { base_url: "https://api.example.com/v1?k={TOKEN}&v=2" };
    const built = await build({}, { execution, auth: inPath, values: { BOT: "a&b=c:d+e" } });
    expect(new URL(built.url).search).toBe("?k=a%26b=c:d%2Be&v=2");
    expect(new URL(built.url).searchParams.get("k")).toBe("a&b=c:d+e");
  });

  test.each([".", ".."])("'%s' is refused by the name of the credential", async (value) => {
    const execution = { base_url: "https://api.example.com/{TOKEN}/x", param_placement: "path" };
    const error = await refusal(build({}, { execution, auth: inPath, values: { BOT: value } }));
    expect(error).toMatchObject({ code: "credential_invalid", details: { param: "BOT" } });
  });

  test("a field of a JSON body beats an argument of its name", async () => {
    const built = await build({ amount: 1, secret: "mine" }, post("application/json"));
    expect(JSON.parse(String(built.body))).toEqual({ amount: 1, client_id: "c-1", secret: values.SECRET });
    expect([built.secretHeaders, built.hasSecretBody]).toEqual([[], true]);
  });

  test("a field of a form, once", async () => {
    const built = await build({ amount: 1, secret: ["mine", "too"] }, post("application/x-www-form-urlencoded"));
    expect([...new URLSearchParams(String(built.body))]).toEqual([
      ["amount", "1"],
      ["client_id", "c-1"],
      ["secret", values.SECRET],
    ]);
  });

  test("a part of a multipart body, an element of XML", async () => {
    const multipart = await build({ amount: 1 }, post("multipart/form-data"));
    const form = await new Response(multipart.body as Uint8Array<ArrayBuffer>, {
      headers: { "content-type": headerOf(multipart, "content-type") ?? "" },
    }).formData();
    expect(form.get("secret")).toBe(values.SECRET);
    const xml = await build({ amount: 1 }, post("application/xml"));
    expect(xml.body).toContain("<secret>s&quot;&lt;&amp;\u00e9 +</secret></request>");
  });

  test("a body that has nothing else, whatever the method", async () => {
    const built = await build({ q: "x" }, { auth: inBody, values });
    expect([queryOf(built), JSON.parse(String(built.body))]).toEqual([
      "q=x",
      { client_id: "c-1", secret: values.SECRET },
    ]);
  });
});

/** Whether a request goes to `/v1/a.{id}/{id}/end` of the example, else where it goes. */
function routeOf({ url, headers }: BuiltRequest): string {
  const { origin, pathname, hash } = new URL(url);
  const isRoute = origin === "https://api.example.com" && /^\/v1\/a\.[^/]+\/[^/]+\/end$/.test(pathname) && hash === "";
  return isRoute && !headers.flat().some((text) => /[\r\n\0]/.test(text)) ? "as it should be" : url;
}

describe(`any arguments ${verifies("BLIND-2")}`, () => {
  const json = fc.jsonValue({ maxDepth: 3 }).map((value) => value as JsonValue);
  const anything = fc.dictionary(
    fc.string(),
    fc.oneof(
      json,
      fc.string({ unit: "binary" }).map((text): JsonValue => text),
    ),
  );

  test.each([
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/xml",
    "text/plain",
  ])("go to the definition's origin and route, or are refused as arguments: %s", async (contentType) => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom("query", "body", "path"),
        fc.constantFrom("GET", "POST", "DELETE"),
        fc.record({
          style: fc.constantFrom("simple", "label", "matrix"),
          explode: fc.boolean(),
          id: fc.oneof(json, fc.constantFrom("..", "/", "?", "#", "\\", "%2e%2e", "@evil.example", ".")),
          more: anything,
        }),
        async (placement, method, { id, more, style, explode }) => {
          const execution = {
            method,
            base_url: "https://api.example.com/v1/a.{id}/{id}/end",
            param_placement: placement,
            content_type: contentType,
            param_overrides: { h: "header", c: "cookie" },
            param_names: { h: "x-h" },
            param_styles: { id: { style, explode }, c: { style: "form", explode }, h: { style: "simple", explode } },
          };
          const outcome = await build({ ...more, id }, { execution }).then(routeOf, (error: unknown) => error);
          const isRefused = outcome instanceof GatewayError && outcome.code === "invalid_arguments";
          expect(isRefused ? "as it should be" : outcome).toBe("as it should be");
        },
      ),
    );
  });
});
