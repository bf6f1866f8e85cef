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
    tenant: "ten_a",
    signal: new AbortController().signal,
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
    const error = await refusal(build({ photo: "no base64!" }, { execution: post("multipart/form-data"), properties }));
    expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "photo" } });
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
    expect(built.secretSlots).toEqual([
      { location: "header", name: "X-Api-Key", sources: ["KEY"] },
      { location: "query", name: "sign", sources: ["SIGN"] },
    ]);
  });

  test("beat names that an object argument brings", async () => {
    const execution = { param_styles: { extra: { style: "form" } } };
    expect(queryOf(await build({ extra: { sign: "mine", a: 1 } }, { execution, auth, values }))).toBe(
      "a=1&sign=a%20b%26c",
    );
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
          id: fc.oneof(json, fc.constantFrom("..", "/", "?", "#", "\\", "%2e%2e", "@evil.example", ".")),
          more: anything,
        }),
        async (placement, method, { id, more }) => {
          const execution = {
            method,
            base_url: "https://api.example.com/v1/a.{id}/{id}/end",
            param_placement: placement,
            content_type: contentType,
            param_overrides: { h: "header" },
          };
          const outcome = await build({ ...more, id }, { execution }).then(routeOf, (error: unknown) => error);
          const isRefused = outcome instanceof GatewayError && outcome.code === "invalid_arguments";
          expect(isRefused ? "as it should be" : outcome).toBe("as it should be");
        },
      ),
      { numRuns: 150 },
    );
  });
});
