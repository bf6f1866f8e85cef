/**
 * What reaches a back end, and what comes back from it, called directly and by a model: no argument
 * changes the route, every value keeps its type, defaults that are falsy are defaults, and text in any
 * charset is text.
 */
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  tenant = await gateway.newTenant({ identical_calls: 100 });
  await tenant.addProvider(llm.url);
  await tenant.putCredential("DEMO_KEY", "sk-demo-0123456789");
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
});

const secret = {
  type: "api_key",
  mapping: [{ source: "DEMO_KEY", target: "X-Api-Key", location: "header" }],
};

let tools = 0;
const registered: string[] = [];

afterEach(async () => {
  for (const id of registered.splice(0)) await tenant.client.expect("delete", `/v1/plugins/${id}`);
});

/** Registers a tool under a name of its own. */
async function addTool(execution: Json, properties: Json = {}, more: Json = {}): Promise<string> {
  tools += 1;
  const name = `tool_${tools}`;
  const id = await tenant.addPlugin({
    name,
    parameters: { type: "object", properties, ...more.parameters },
    execution: {
      content_type: "application/json",
      ...execution,
      base_url: backEnd.url + (execution.path ?? "/"),
      path: undefined,
    },
    ...(more.auth === undefined ? {} : { auth_config: more.auth }),
  });
  registered.push(id);
  return name;
}

function invoke(name: string, args: Json): Promise<Reply> {
  return tenant.client.send("post", "/v1/tools/invoke", { name, arguments: args });
}

/** The result as the model is told it, for arguments as the model writes them. */
async function callFromChat(name: string, args: unknown): Promise<string> {
  llm.requests.length = 0;
  llm.script(calls({ name, arguments: args }), text("done"));
  const reply = await tenant.client.send("post", "/api/chat/completions", {
    messages: [{ role: "user", content: "go" }],
  });
  expect(reply.status).toBe(200);
  const told: Json = llm.requests[1];
  return told.messages.at(-1).content;
}

function jsonOf(request: RecordedRequest | undefined): unknown {
  return JSON.parse(request?.body.toString("utf8") ?? "");
}

describe(`values in the path ${verifies("BLIND-2", "API-4")}`, () => {
  const hostile: readonly unknown[] = [
    "../../admin/keys?all=1#",
    "..",
    ".",
    "...",
    "%2e%2e",
    "%2E%2e",
    ".%2e",
    "%252e%252e",
    "%2f..%2f",
    "..%2f..%2fadmin",
    "..;/",
    "..\\..\\admin",
    "\\..\\",
    "a/b",
    "/",
    "//evil.example.com/",
    "\\\\evil.example.com",
    "@evil.example.com/",
    ":8080/",
    "http://evil.example.com/",
    "x?admin=1",
    "x#y",
    "x&y=1",
    "张 三",
    "a;b=c",
    "a:b@c",
    "a+b c",
    " ..",
    ".. ",
    "\t..\n",
    ".\t.",
    ".\n.",
    "a\r\nX-Evil: 1\r\n\r\nGET /admin HTTP/1.1",
    "\u0000",
    "\uff0e\uff0e",
    "\u3002\u3002",
    "．．／admin",
    "\u2024\u2024",
    "\ud800",
    "😀",
    "{id}",
    "$&$1$`$'",
    "%",
    "%zz",
    "%00",
    "x".repeat(4_000),
    "",
    7,
    -1,
    0,
    1.5,
    true,
    false,
    null,
    [],
    [".."],
    ["a", "../b"],
    ["", ""],
    {},
    { "..": "/" },
    { "../x": ".." },
  ];

  const target = /^\/v1\/users\/([^/?#]+)\/profile(?:\?|$)/;

  /** Every request that arrived stayed on its route, with one segment in the place of the value. */
  function checkTargets(): void {
    for (const { target: raw, rawHeaders, headers } of backEnd.requests) {
      const segment = target.exec(raw)?.[1] ?? `off the route: ${raw}`;
      expect(segment).not.toMatch(/^(?:\.|%2e){1,2}$|off the route/i);
      expect(new URL(raw, "http://host").pathname).toBe(raw.split("?")[0]);
      expect(headers["x-evil"]).toBeUndefined();
      expect(rawHeaders.filter((name) => name.toLowerCase() === "x-api-key")).toHaveLength(1);
    }
  }

  test.each(["GET", "DELETE", "POST", "PUT", "PATCH"])("never change the route of a %s", async (method) => {
    const name = await addTool(
      { method, path: "/v1/users/{id}/profile", param_placement: "path" },
      { id: {} },
      { parameters: { required: ["id"] }, auth: secret },
    );
    for (const id of hostile) {
      backEnd.requests.length = 0;
      const reply = await invoke(name, { id });
      const sent = reply.status === 200 ? 1 : 0;
      const code = reply.json.error?.code;
      expect([id, reply.status, code, backEnd.requests.length]).toEqual([
        id,
        sent === 1 ? 200 : 400,
        sent === 1 ? undefined : "invalid_arguments",
        sent,
      ]);
      checkTargets();
    }
  });

  test.each([
    ["../../admin/keys?all=1#", "..%2F..%2Fadmin%2Fkeys%3Fall%3D1%23"],
    ["%2e%2e", "%252e%252e"],
    ["a/b", "a%2Fb"],
    ["张 三", "%E5%BC%A0%20%E4%B8%89"],
    ["a;b=c", "a%3Bb%3Dc"],
    ["a+b", "a%2Bb"],
    ["a,b", "a%2Cb"],
    ["~-._", "~-._"],
    ["...", "..."],
  ])("%j is sent as %s, whoever calls", async (id, encoded) => {
    const name = await addTool(
      { method: "GET", path: "/v1/users/{id}/profile", param_placement: "path" },
      { id: { type: "string" } },
      { parameters: { required: ["id"] }, auth: secret },
    );
    await invoke(name, { id });
    await callFromChat(name, { id });
    expect(backEnd.requests.map((request) => request.target)).toEqual([
      `/v1/users/${encoded}/profile`,
      `/v1/users/${encoded}/profile`,
    ]);
    checkTargets();
  });

  test.each(["..", ".", ""])("%j is refused with nothing sent, and the model is told", async (id) => {
    const name = await addTool(
      { method: "GET", path: "/v1/users/{id}/profile", param_placement: "path" },
      { id: { type: "string" } },
      { parameters: { required: ["id"] }, auth: secret },
    );
    const reply = await invoke(name, { id });
    expect([reply.status, reply.json.error.code]).toEqual([400, "invalid_arguments"]);
    const { error } = JSON.parse(await callFromChat(name, { id }));
    expect([error.code, error.message.includes("'id'")]).toEqual(["invalid_arguments", true]);
    expect(backEnd.requests).toHaveLength(0);
  });

  test.each([
    ["/v1/{a}{b}/end", { a: ".", b: "." }],
    ["/v1/.{a}/end", { a: "." }],
    ["/v1/{a}./end", { a: "." }],
    ["/v1/%2e{a}/end", { a: "." }],
    ["/v1/%2E{a}/end", { a: "%2e" }],
    ["/v1/{a}", { a: ".." }],
    ["/v1/{a}/", { a: ".." }],
    ["/{a}/{b}", { a: "..", b: ".." }],
    ["/v1/x{a}", { a: "/../../admin" }],
    ["/v1/{a}.json", { a: "../../admin" }],
    ["/v1/{a},{b}/end", { a: "..", b: ".." }],
  ])("%s with %j never leaves its place", async (path, args) => {
    const properties = { a: { type: "string" }, b: { type: "string", default: "b" } };
    const name = await addTool({ method: "GET", path, param_placement: "path" }, properties, {
      parameters: { required: ["a"] },
    });
    const reply = await invoke(name, args);
    const places = path.split("/").length;
    for (const { target: raw } of backEnd.requests) {
      const [pathname = ""] = raw.split("?");
      expect(pathname.split("/")).toHaveLength(places);
      expect(new URL(raw, "http://host").pathname).toBe(pathname);
    }
    expect([200, 400]).toContain(reply.status);
  });

  test("a placeholder in the query of the address is a value there, too", async () => {
    const name = await addTool(
      { method: "GET", path: "/search?q={q}&fixed=1", param_placement: "query" },
      { q: { type: "string" } },
      { parameters: { required: ["q"] } },
    );
    await invoke(name, { q: "x&fixed=2#y?z=1" });
    expect(backEnd.requests[0]?.target).toBe("/search?q=x%26fixed%3D2%23y%3Fz%3D1&fixed=1");
  });

  test("a default that is falsy fills its place", async () => {
    const properties = { page: { type: "integer", default: 0 }, all: { type: "boolean", default: false } };
    const name = await addTool({ method: "GET", path: "/pages/{page}/{all}", param_placement: "path" }, properties);
    await invoke(name, {});
    expect(backEnd.requests[0]?.target).toBe("/pages/0/false");
  });
});

describe(`values in the body ${verifies("BLIND-2", "API-2", "CHAT-18")}`, () => {
  const batch = {
    ids: { type: "array", items: { type: "integer" } },
    meta: { type: "object", properties: { a: { type: "object", properties: { b: { type: "boolean" } } } } },
    note: { type: "string" },
  };
  const given = { ids: [1, 2, 3], meta: { a: { b: true } }, note: "[1,2]" };

  test.each(["POST", "PUT", "PATCH", "DELETE"])("keep their types and their nesting in a %s", async (method) => {
    const name = await addTool({ method, path: "/batch", param_placement: "body" }, batch);
    await invoke(name, given);
    await callFromChat(name, given);
    for (const request of backEnd.requests) {
      expect([request.method, request.headers["content-type"], jsonOf(request)]).toEqual([
        method,
        "application/json",
        given,
      ]);
    }
    expect(backEnd.requests).toHaveLength(2);
  });

  test.each([
    [{ ids: "[1,2,3]" }, { ids: [1, 2, 3] }],
    [{ ids: ["1", "2"] }, { ids: [1, 2] }],
    [{ meta: '{"a":{"b":true}}' }, { meta: { a: { b: true } } }],
    [{ meta: { a: '{"b":"true"}' } }, { meta: { a: { b: true } } }],
    [{ meta: { a: { b: "true" } } }, { meta: { a: { b: true } } }],
    [{ note: "7" }, { note: "7" }],
    [{ note: "true" }, { note: "true" }],
    [{ note: '{"x":1}' }, { note: '{"x":1}' }],
    [{ note: "null" }, { note: "null" }],
  ])("%j is sent as %j", async (args, sent) => {
    const name = await addTool({ method: "POST", path: "/batch", param_placement: "body" }, batch);
    await callFromChat(name, args);
    expect(jsonOf(backEnd.requests[0])).toEqual(sent);
  });

  test("that are refused name the place", async () => {
    const name = await addTool({ method: "POST", path: "/batch", param_placement: "body" }, batch);
    for (const args of [
      { ids: "1,2" },
      { ids: 1 },
      { ids: [1.5] },
      { ids: ["x"] },
      { meta: [] },
      { meta: { a: { b: "maybe" } } },
      { note: 7 },
      { note: ["x"] },
      { note: { x: 1 } },
    ]) {
      const { error } = JSON.parse(await callFromChat(name, args));
      expect([args, error.code]).toEqual([args, "invalid_arguments"]);
      expect(error.details.errors[0].pointer).toMatch(/^\/(?:ids|meta|note)/);
    }
    expect(backEnd.requests).toHaveLength(0);
  });

  test.each<[Json]>([
    [{ any: [] }],
    [{ any: {} }],
    [{ any: [[], [[]], {}] }],
    [{ any: [null, 0, false, "", { a: null }] }],
    [{ any: { "a.b": 1, "a[0]": 2, "": 3, "a b": 4, ключ: 5, "💥": 6 } }],
    [{ any: JSON.parse('{"__proto__":{"x":1},"constructor":1,"toString":2}') }],
    [{ any: [{ id: 1, tags: ["x", { y: [true] }] }] }],
    [{ any: 0 }],
    [{ any: false }],
    [{ any: "" }],
    [{ any: null }],
    [{ any: 9_007_199_254_740_991 }],
    [{ any: -0.5 }],
    [{ any: 1e21 }],
    [{ any: '\u0000\u001f\u2028\u2029\ud83d\ude00"\\/' }],
    [{ any: "\r\n--boundary\r\n" }],
  ])("%j arrives as it is", async (args) => {
    const name = await addTool({ method: "POST", path: "/any", param_placement: "body" }, { any: {} });
    await callFromChat(name, args);
    expect(jsonOf(backEnd.requests[0])).toEqual(args);
  });

  test("numbers with more digits than a double arrive so, as text where no schema says that they are numbers", async () => {
    const properties = { any: {}, id: { type: "integer" } };
    const name = await addTool({ method: "POST", path: "/any", param_placement: "body" }, properties);
    await callFromChat(name, '{"any":12345678901234567891,"id":12345678901234567891}');
    expect(backEnd.requests[0]?.body.toString()).toBe('{"any":"12345678901234567891","id":12345678901234567891}');
  });

  test("a form repeats a list and never nests it", async () => {
    const name = await addTool(
      { method: "POST", path: "/form", param_placement: "body", content_type: "application/x-www-form-urlencoded" },
      { ...batch, all: { type: "boolean" } },
    );
    await invoke(name, { ...given, note: "a=b&c=d\r\n+%", all: false });
    const body = new URLSearchParams(backEnd.requests[0]?.body.toString("utf8"));
    expect([...body]).toEqual([
      ["ids", "1"],
      ["ids", "2"],
      ["ids", "3"],
      ["meta", '{"a":{"b":true}}'],
      ["note", "a=b&c=d\r\n+%"],
      ["all", "false"],
    ]);
    expect(backEnd.requests[0]?.headers["content-type"]).toBe("application/x-www-form-urlencoded");
  });

  test("a query repeats a list, and what splits a query does not split a value", async () => {
    const name = await addTool({ method: "GET", path: "/query", param_placement: "query" }, batch);
    await invoke(name, { ...given, note: "a=b&c=d#e?f+g h" });
    const { searchParams } = new URL(backEnd.requests[0]?.target ?? "", "http://host");
    expect([...searchParams]).toEqual([
      ["ids", "1"],
      ["ids", "2"],
      ["ids", "3"],
      ["meta", '{"a":{"b":true}}'],
      ["note", "a=b&c=d#e?f+g h"],
    ]);
  });
});

describe(`values in headers ${verifies("BLIND-2", "BLIND-10")}`, () => {
  test.each(["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "北京", "\u0085", "\u2028X-Evil: 1", "é"])(
    "%j is refused, and nothing is sent",
    async (value) => {
      const name = await addTool(
        { method: "GET", path: "/h", param_placement: "query", param_overrides: { "X-Note": "header" } },
        { "X-Note": { type: "string" } },
      );
      const reply = await invoke(name, { "X-Note": value });
      expect([reply.status, reply.json.error.code]).toEqual([400, "invalid_arguments"]);
      expect(await callFromChat(name, { "X-Note": value })).toContain("invalid_arguments");
      expect(backEnd.requests).toHaveLength(0);
    },
  );

  test("falsy ones and lists arrive", async () => {
    const name = await addTool(
      {
        method: "GET",
        path: "/h",
        param_placement: "query",
        param_overrides: { "X-Zero": "header", "X-No": "header" },
      },
      { "X-Zero": { type: "integer", default: 0 }, "X-No": { type: "boolean" } },
    );
    await invoke(name, { "X-No": false });
    expect(backEnd.requests[0]?.headers).toMatchObject({ "x-zero": "0", "x-no": "false" });
  });

  test.each(["sk\r\nX-Evil: 1", "sk\0x", "ключ"])("a credential of %j is refused by name", async (value) => {
    await tenant.putCredential("BAD_KEY", value).catch(() => undefined);
    const name = await addTool(
      { method: "GET", path: "/h", param_placement: "query" },
      {},
      { auth: { type: "api_key", mapping: [{ source: "BAD_KEY", target: "X-Api-Key", location: "header" }] } },
    );
    const reply = await invoke(name, {});
    expect(reply.status).toBe(400);
    expect(reply.json.error.code).toMatch(/^credential_(?:invalid|missing)$/);
    expect(reply.text).not.toContain("X-Evil");
    expect(backEnd.requests).toHaveLength(0);
    await tenant.client.send("delete", "/v1/credentials/BAD_KEY");
  });
});

describe(`defaults ${verifies("BLIND-2", "CHAT-18")}`, () => {
  const items = {
    offset: { type: "integer", default: 0 },
    archived: { type: "boolean", default: false },
    prefix: { type: "string", default: "" },
    limit: { type: "integer", default: 20 },
  };

  test.each([
    [{}, "offset=0&archived=false&prefix=&limit=20"],
    [{ limit: 0 }, "limit=0&offset=0&archived=false&prefix="],
    [{ archived: true, offset: 0 }, "archived=true&offset=0&prefix=&limit=20"],
    [{ prefix: "x", archived: false }, "prefix=x&archived=false&offset=0&limit=20"],
  ])("%j becomes the query %s", async (args, query) => {
    const name = await addTool({ method: "GET", path: "/items", param_placement: "query" }, items);
    await invoke(name, args);
    await callFromChat(name, args);
    expect(backEnd.requests).toHaveLength(2);
    for (const request of backEnd.requests) {
      const sent = new URLSearchParams(request.target.split("?")[1]);
      const wanted = new URLSearchParams(query);
      sent.sort();
      wanted.sort();
      expect(sent.toString()).toBe(wanted.toString());
    }
  });

  test.each([
    [{}, { offset: 0, archived: false, prefix: "", limit: 20 }],
    [{ limit: 0 }, { offset: 0, archived: false, prefix: "", limit: 0 }],
    [
      { archived: true, offset: 0 },
      { offset: 0, archived: true, prefix: "", limit: 20 },
    ],
  ])("%j becomes the body %j", async (args, body) => {
    const name = await addTool({ method: "POST", path: "/items/search", param_placement: "body" }, items);
    await invoke(name, args);
    await callFromChat(name, args);
    expect(backEnd.requests.map(jsonOf)).toEqual([body, body]);
  });

  test("falsy ones count where a parameter is required, and in every format", async () => {
    const required = { required: ["offset", "archived"] };
    for (const [contentType, expected] of [
      ["application/x-www-form-urlencoded", "offset=0&archived=false"],
      ["application/json", '{"offset":0,"archived":false}'],
      [
        "application/xml",
        '<?xml version="1.0" encoding="UTF-8"?>\n<request><offset>0</offset><archived>false</archived></request>',
      ],
    ]) {
      backEnd.requests.length = 0;
      const name = await addTool(
        { method: "POST", path: "/items", param_placement: "body", content_type: contentType },
        { offset: items.offset, archived: items.archived },
        { parameters: required },
      );
      const reply = await invoke(name, {});
      expect([contentType, reply.status, backEnd.requests[0]?.body.toString("utf8")]).toEqual([
        contentType,
        200,
        expected,
      ]);
    }
  });

  test("of lists and objects, nested ones, and those behind a reference", async () => {
    const properties = {
      list: { type: "array", items: { type: "integer" }, default: [] },
      object: { type: "object", default: {} },
      nothing: { type: ["string", "null"], default: null },
      filter: {
        type: "object",
        properties: { deep: { type: "boolean", default: false }, depth: { type: "integer", default: 0 } },
        default: {},
      },
      page: { $ref: "#/$defs/page" },
    };
    const name = await addTool({ method: "POST", path: "/items", param_placement: "body" }, properties, {
      parameters: { $defs: { page: { type: "integer", default: 0 } } },
    });
    await invoke(name, {});
    expect(jsonOf(backEnd.requests[0])).toMatchObject({
      list: [],
      object: {},
      nothing: null,
      filter: { deep: false, depth: 0 },
      page: 0,
    });
  });

  test("do not replace what was given, falsy or null", async () => {
    const properties = {
      a: { type: ["integer", "null"], default: 5 },
      b: { type: "boolean", default: true },
      c: { type: "string", default: "c" },
    };
    const name = await addTool({ method: "POST", path: "/items", param_placement: "body" }, properties);
    await invoke(name, { a: null, b: false, c: "" });
    expect(jsonOf(backEnd.requests[0])).toEqual({ a: null, b: false, c: "" });
  });
});

describe(`charsets of replies ${verifies("BLIND-8")}`, () => {
  const hex = (digits: string): Buffer => Buffer.from(digits.replaceAll(" ", ""), "hex");
  const quoted = (key: string, value: Buffer): Buffer =>
    Buffer.concat([Buffer.from(`{"${key}":"`), value, Buffer.from('"}')]);
  const gbk = hex("7b2263697479223a22b1b1bea9222c226d7367223a22b2e9d1afb3c9b9a6227d");
  const utf8 = Buffer.from('{"city":"北京","msg":"查询成功"}');
  const wide = (content: string, order: "le" | "be", mark: boolean): Buffer => {
    const bytes = Buffer.from((mark ? "\ufeff" : "") + content, "utf16le");
    return order === "le" ? bytes : bytes.swap16();
  };
  const both = '{"city":"北京","msg":"查询成功"}';

  test.each<[string, Buffer, string]>([
    ["application/json; charset=GBK", gbk, both],
    ["application/json;charset=gbk", gbk, both],
    ['application/json; charset="GBK"', gbk, both],
    ["application/json; charset='gbk'", gbk, both],
    ["application/json ; Charset = GBK", gbk, both],
    ["APPLICATION/JSON; CHARSET=gb2312", gbk, both],
    ["application/json; version=1; charset=GB18030", gbk, both],
    ["application/problem+json; charset=x-gbk", gbk, both],
    ["text/html; charset=gb2312", hex("3c7469746c653eb1b1bea93c2f7469746c653e"), "<title>北京</title>"],
    [
      "text/html",
      Buffer.concat([Buffer.from('<meta charset="gbk"><p>'), hex("b1b1bea9")]),
      '<meta charset="gbk"><p>北京',
    ],
    [
      "application/xml",
      Buffer.concat([Buffer.from('<?xml version="1.0" encoding="GBK"?><a>'), hex("b1b1bea9"), Buffer.from("</a>")]),
      '<?xml version="1.0" encoding="GBK"?><a>北京</a>',
    ],
    ["text/csv; charset=gbk", hex("b1b1bea92c31"), "北京,1"],
    ['application/json; charset="utf-8"', Buffer.concat([hex("efbbbf"), utf8]), both],
    ["application/json", Buffer.concat([hex("efbbbf"), utf8]), both],
    ["application/json; charset=gbk", Buffer.concat([hex("efbbbf"), utf8]), both],
    ["application/json; charset=x-no-such", utf8, both],
    ["application/json; charset=", utf8, both],
    ["application/json; charset", utf8, both],
    ["application/json; charset=utf8", utf8, both],
    ["application/json; charset=UTF-8; charset=gbk", utf8, both],
    ["application/json; charset=gb18030", quoted("c", hex("9439fc36")), '{"c":"😀"}'],
    ["application/json; charset=big5", quoted("c", hex("a55fa8ca")), '{"c":"北京"}'],
    ["application/json; charset=Shift_JIS", quoted("c", hex("966b8b9e")), '{"c":"北京"}'],
    ["application/json; charset=euc-jp", quoted("c", hex("cbccb5fe")), '{"c":"北京"}'],
    ["application/json; charset=euc-kr", quoted("c", hex("bacfb0e6")), '{"c":"북경"}'],
    ["application/json; charset=windows-1252", quoted("c", hex("80e9")), '{"c":"€é"}'],
    ["application/json; charset=iso-8859-1", quoted("c", hex("e9")), '{"c":"é"}'],
    ["application/json; charset=koi8-r", quoted("c", hex("f0c5cbc9ce")), '{"c":"Пекин"}'],
    ["application/json; charset=utf-16", wide(both, "le", true), both],
    ["application/json; charset=utf-16be", wide(both, "be", false), both],
    ["application/json", wide(both, "be", true), both],
    ["text/plain; charset=gbk", Buffer.alloc(0), ""],
  ])("%s reads as it was meant", async (contentType, body, expected) => {
    const name = await addTool({ method: "GET", path: "/c", param_placement: "query" });
    backEnd.answer = () => ({ headers: { "content-type": contentType }, body });
    expect(await callFromChat(name, {})).toBe(expected);
    expect((await invoke(name, {})).json.content).toBe(expected);
  });

  test("a character split between two packets, and a compressed reply, read as they were meant", async () => {
    const name = await addTool({ method: "GET", path: "/c", param_placement: "query" });
    for (let cut = 9; cut < 14; cut += 1) {
      backEnd.answer = (_request, response) => {
        response.writeHead(200, { "content-type": "application/json; charset=gbk" });
        response.write(gbk.subarray(0, cut), () => setTimeout(() => response.end(gbk.subarray(cut)), 5));
        return undefined;
      };
      expect((await invoke(name, {})).json.content).toBe(both);
    }
    backEnd.answer = () => ({
      headers: { "content-type": "application/json; charset=gbk", "content-encoding": "gzip" },
      body: gzipSync(gbk),
    });
    expect((await invoke(name, {})).json.content).toBe(both);
  });

  test.each<[string, Buffer]>([
    ["gzip", gzipSync(utf8)],
    ["x-gzip", gzipSync(utf8)],
    ["GZIP", gzipSync(utf8)],
    ["br", brotliCompressSync(utf8)],
    ["deflate", deflateSync(utf8)],
    ["deflate", deflateRawSync(utf8)],
    ["zstd", zstdCompressSync(utf8)],
    ["gzip, br", brotliCompressSync(gzipSync(utf8))],
    ["identity", utf8],
    ["utf-8", utf8],
    ["", utf8],
  ])("a reply encoded as '%s' is read", async (encoding, body) => {
    const name = await addTool({ method: "GET", path: "/c", param_placement: "query" });
    backEnd.answer = () => ({ headers: { "content-encoding": encoding }, body });
    expect((await invoke(name, {})).json.content).toBe(both);
  });

  test("an error's body is text in its charset, too", async () => {
    const name = await addTool({ method: "GET", path: "/c", param_placement: "query" });
    backEnd.answer = () => ({ status: 500, headers: { "content-type": "application/json; charset=GBK" }, body: gbk });
    const { error } = JSON.parse(await callFromChat(name, {}));
    expect([error.code, error.details.status, error.details.body]).toEqual(["tool_failed", 500, both]);
    expect((await invoke(name, {})).json.error).toMatchObject({ status: 500, body: both });
  });
});

describe(`replies as they are ${verifies("BLIND-8")}`, () => {
  test.each([
    ['{"id":12345678901234567890,"x":1.0,"y":1e400}', "application/json"],
    ['{"a":1,"a":2}', "application/json"],
    [' \n{ "b" : 1 ,\t"a":[ ] }\r\n', "application/json"],
    ["{not json", "application/json"],
    ["null", "application/json"],
    ["0", "application/json"],
    ['""', "application/json"],
    ["false", "application/json"],
    ["[]", "application/json"],
    ['{"k":"\\u0000\\ud800"}', "application/json"],
    ["data: [DONE]\n\n", "text/event-stream"],
    ["a,b\n1,2\n", "text/csv"],
    ["<a>1</a>", "application/xml"],
    ["{{VarX}} <<<[TOOL_REQUEST]>>>", "text/plain"],
    ["$& $1 $$", "text/plain"],
  ])("%j of type %s reaches the model byte for byte", async (body, contentType) => {
    const name = await addTool({ method: "GET", path: "/r", param_placement: "query" });
    backEnd.answer = () => ({ headers: { "content-type": contentType }, body });
    expect(await callFromChat(name, {})).toBe(body);
    expect((await invoke(name, {})).json.content).toBe(body);
  });

  const endings: Readonly<Record<string, HttpStub["answer"]>> = {
    "is shorter than it says": (_request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
      response.write('{"ok":true}', () => response.destroy());
      return undefined;
    },
    "breaks off": (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.write('{"ok":true}', () => response.destroy());
      return undefined;
    },
    "does not end in time": (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.write('{"ok":true}');
      return undefined;
    },
    "is not what its encoding says": () => ({ headers: { "content-encoding": "gzip" }, body: '{"ok":true}' }),
    "is a compressed half": () => ({
      headers: { "content-encoding": "gzip" },
      body: gzipSync('{"ok":true}').subarray(0, 18),
    }),
  };

  test.each(Object.entries(endings))(
    "a reply that %s is no result; of a write, nobody knows",
    async (_what, answer) => {
      const read = await addTool({ method: "GET", path: "/r", param_placement: "query", timeout_ms: 400 });
      const write = await addTool({
        method: "POST",
        path: "/w",
        param_placement: "body",
        timeout_ms: 400,
        max_attempts: 3,
      });
      backEnd.answer = answer;
      expect((await invoke(read, {})).json.error.code).toMatch(/^tool_(?:unreachable|timeout|failed)$/);
      backEnd.requests.length = 0;
      expect((await invoke(write, {})).json.error.code).toBe("outcome_unknown");
      expect(JSON.parse(await callFromChat(write, {})).error.code).toBe("outcome_unknown");
      expect(backEnd.requests).toHaveLength(2);
    },
  );

  test("a reply that unpacks to more than it may is refused while it is read", async () => {
    const name = await addTool({ method: "GET", path: "/r", param_placement: "query" });
    const bomb = gzipSync(Buffer.alloc(150_000_000));
    backEnd.answer = () => ({ headers: { "content-encoding": "gzip" }, body: bomb });
    expect((await invoke(name, {})).json.error.code).toBe("tool_output_too_large");
  });

  test("a cookie is not kept for the next call", async () => {
    const name = await addTool({ method: "GET", path: "/r", param_placement: "query" });
    backEnd.answer = () => ({ headers: { "set-cookie": "sid=1; Path=/" }, body: "{}" });
    await invoke(name, {});
    await invoke(name, {});
    expect(backEnd.requests.map((request) => request.headers.cookie)).toEqual([undefined, undefined]);
  });

  test.each([201, 202, 204, 206])("a %i without a body is an empty result, not an error", async (status) => {
    const name = await addTool({ method: "POST", path: "/r", param_placement: "body" });
    backEnd.answer = (_request, response) => {
      response.writeHead(status).end();
      return undefined;
    };
    const reply = await invoke(name, {});
    expect([reply.status, reply.json.content]).toEqual([200, ""]);
  });

  test.each([301, 302, 303, 307, 308])("a %i to another host does not take the credential along", async (status) => {
    const other = await startHttpStub(() => ({ body: '{"stolen":true}' }));
    try {
      const name = await addTool({ method: "GET", path: "/r", param_placement: "query" }, {}, { auth: secret });
      backEnd.answer = () => ({ status, headers: { location: `http://localhost:${other.port}/take` }, body: "" });
      await invoke(name, {});
      expect(other.requests.flatMap((request) => request.rawHeaders)).not.toContain("sk-demo-0123456789");
      expect(JSON.stringify(other.requests.map((request) => request.headers))).not.toContain("sk-demo");
    } finally {
      await other.close();
    }
  });

  test.each([400, 401, 403, 404, 409, 422, 429, 500, 502, 503])(
    "a %i is a failure with its status and words",
    async (status) => {
      const name = await addTool({ method: "GET", path: "/r", param_placement: "query", max_attempts: 1 });
      backEnd.answer = () => ({ status, body: '{"why":"because"}' });
      const reply = await invoke(name, {});
      expect(reply.json.error).toMatchObject({
        code: "tool_failed",
        tool_name: name,
        status,
        body: '{"why":"because"}',
      });
      expect(JSON.parse(await callFromChat(name, {})).error.details).toMatchObject({
        status,
        body: '{"why":"because"}',
      });
    },
  );
});
