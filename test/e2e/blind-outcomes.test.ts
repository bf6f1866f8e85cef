/**
 * Blind execution at the gateway's edge: each shape of request on the wire, each end that one can come to, and
 * credentials that are missing, moved or changed. What models and callers learn of a tool's address: nothing.
 */
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { openDatabase } from "@toolyard/db/client";
import type { Database, SqlValue } from "@toolyard/db/database";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let database: Database;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  other = await startGateway({ sharedWith: gateway });
  database = await openDatabase({ url: gateway.databaseUrl });
});

afterAll(async () => {
  await database.close();
  await other.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await newTenant();
});

async function newTenant(settings: Json = {}): Promise<TestTenant> {
  const made = await gateway.newTenant(settings);
  await made.addProvider(llm.url);
  return made;
}

function invoke(client: Client, name: string, args: Json): Promise<Reply> {
  return client.send("post", "/v1/tools/invoke", { name, arguments: args });
}

function chat(client: Client, body: Json = {}, path = "/v1/chat/completions"): Promise<Reply> {
  return client.send("post", path, { messages: [{ role: "user", content: "go" }], ...body });
}

/** Its number by itself: within an id or a time, the same digits come by chance. */
function portOf({ port }: HttpStub): RegExp {
  return new RegExp(`(?<!\\w)${port}(?!\\w)`);
}

/** The model calls the tool; what it is told. */
async function byModel(client: Client, name: string, args: Json): Promise<string> {
  llm.script(calls({ name, arguments: args }), text("done"));
  const reply = await chat(client);
  expect(reply.status).toBe(200);
  const messages = llm.requests.at(-1)?.["messages"] as Json[];
  return messages.findLast(({ role }) => role === "tool")?.content;
}

describe(`a request on the wire ${verifies("BLIND-2")}`, () => {
  const args = { id: "a b/c", n: 0, off: false, word: "字 &=", list: [1, "b"], tree: { k: null } };
  const properties = { id: {}, n: {}, off: {}, word: {}, list: {}, tree: {}, unset: { default: "" } };
  const filled = { ...args, unset: "" };
  const { id: _id, ...withoutId } = filled;

  /** Each value as text, those of a list one by one. */
  function itemsOf(names: Json): (readonly [name: string, text: string, isObject: boolean])[] {
    return Object.entries(names as Record<string, Json>).flatMap(([name, value]) =>
      (Array.isArray(value) ? value : [value]).map(
        (item: Json) =>
          [name, typeof item === "string" ? item : JSON.stringify(item), typeof item === "object"] as const,
      ),
    );
  }

  const query = (names: Json): string =>
    itemsOf(names)
      .map(([name, item]) => `${name}=${encodeURIComponent(item)}`)
      .join("&");

  /** Body of these arguments by content type, written out. */
  const bodies: Readonly<Record<string, (names: Json) => string>> = {
    "application/json": (names) => JSON.stringify(names),
    "application/merge-patch+json": (names) => JSON.stringify(names),
    "application/x-www-form-urlencoded": (names) => query(names).replaceAll("%20", "+"),
    "multipart/form-data": (names) =>
      `${itemsOf(names)
        .map(([name, item, isObject]) => {
          const type = isObject ? "\r\ncontent-type: application/json" : "";
          return `--BOUNDARY\r\ncontent-disposition: form-data; name="${name}"${type}\r\n\r\n${item}\r\n`;
        })
        .join("")}--BOUNDARY--\r\n`,
    "application/xml": (names) =>
      `<?xml version="1.0" encoding="UTF-8"?>\n<request>${"id" in names ? "<id>a b/c</id>" : ""}<n>0</n><off>false</off><word>字 &amp;=</word><list>1</list><list>b</list><tree><k/></tree><unset></unset></request>`,
  };
  const methods = ["GET", "POST", "PUT", "DELETE", "PATCH"];
  const placements = ["query", "body", "path"];
  const table = methods.flatMap((method) =>
    placements.flatMap((placement) => Object.keys(bodies).map((type) => [method, placement, type] as const)),
  );

  /** Everything that came over the socket, what differs from call to call made equal. */
  function onTheWire(): string {
    const [request] = backEnd.requests;
    const boundary = /boundary=(\S+)/.exec(String(request?.headers["content-type"]))?.[1] ?? "BOUNDARY";
    return (request?.raw.toString("utf8") ?? "")
      .replaceAll(boundary, "BOUNDARY")
      .replace(/traceparent: 00-[0-9a-f]{32}-[0-9a-f]{16}-01/, "traceparent: TRACE");
  }

  function wire(
    method: string,
    target: string,
    written: { readonly type: string; readonly body: string } | undefined,
    first: readonly string[] = [],
  ): string {
    const boundaryLength = backEnd.requests[0]?.headers["content-type"]?.length ?? 0;
    const type = written?.type === "multipart/form-data" ? `${written.type}; boundary=BOUNDARY` : written?.type;
    // Each of the markers stands for a boundary that is longer.
    const longer = written?.type === "multipart/form-data" ? boundaryLength - (type?.length ?? 0) : 0;
    const marks = written?.body.split("BOUNDARY").length ?? 1;
    const length = Buffer.byteLength(written?.body ?? "") + longer * (marks - 1);
    return [
      `${method} ${target} HTTP/1.1`,
      `host: 127.0.0.1:${backEnd.port}`,
      "connection: keep-alive",
      ...first,
      ...(type === undefined ? [] : [`content-type: ${type}`]),
      "accept: application/json, text/*;q=0.9, */*;q=0.8",
      "user-agent: toolyard",
      "accept-encoding: gzip, deflate, br",
      "traceparent: TRACE",
      ...(written !== undefined || !["GET", "DELETE"].includes(method) ? [`content-length: ${length}`] : []),
      "",
      written?.body ?? "",
    ].join("\r\n");
  }

  test.each(table)("%s with %s and %s is exactly this", async (method, placement, type) => {
    await tenant.addPlugin({
      name: "shaped",
      parameters: { type: "object", properties },
      execution: {
        method,
        base_url: `${backEnd.url}/v1/things${placement === "path" ? "/{id}/parts" : ""}`,
        content_type: type,
        param_placement: placement,
      },
      ...(placement === "path" ? { parameters: { type: "object", properties, required: ["id"] } } : {}),
    });
    expect((await invoke(tenant.client, "shaped", args)).json).toMatchObject({ content: '{"ok":true}' });
    const path = placement === "path" ? "/v1/things/a%20b%2Fc/parts" : "/v1/things";
    const rest = placement === "path" ? withoutId : filled;
    const inQuery = placement === "query" || (placement === "path" && ["GET", "DELETE"].includes(method));
    const write = bodies[type] ?? String;
    expect(onTheWire()).toBe(
      inQuery ? wire(method, `${path}?${query(rest)}`, undefined) : wire(method, path, { type, body: write(rest) }),
    );
  });

  test.each(methods)("%s: single parameters go where their override says, whatever the others do", async (method) => {
    await tenant.addPlugin({
      name: "scattered",
      parameters: {
        type: "object",
        properties: { id: { type: "string" }, q: {}, b: {}, "X-Region": { type: "string" }, rest: {} },
        required: ["id"],
      },
      execution: {
        method,
        base_url: `${backEnd.url}/{id}?fixed=1`,
        content_type: "application/json",
        param_placement: "query",
        param_overrides: { b: "body", "X-Region": "header" },
        headers: { "X-Version": "2024-01" },
      },
      auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "X-Key" }] },
    });
    await tenant.putCredential("KEY", "value-1234");
    await invoke(tenant.client, "scattered", { id: "7", q: "?", b: { deep: [0] }, "X-Region": "eu", rest: true });
    const sent = backEnd.requests[0];
    expect([sent?.method, sent?.target, sent?.body.toString()]).toEqual([
      method,
      "/7?fixed=1&q=%3F&rest=true",
      '{"b":{"deep":[0]}}',
    ]);
    expect(sent?.headers).toMatchObject({ "x-region": "eu", "x-key": "value-1234", "x-version": "2024-01" });
  });

  test("credentials and fixed parts win over arguments of the same name, once and in every place", async () => {
    await tenant.putCredential("KEY", "the-credential");
    await tenant.addPlugin({
      name: "open_ended",
      // Anything goes: names that the definition did not foresee.
      parameters: { type: "object", properties: { "X-Extra": { type: "string" } } },
      execution: {
        method: "GET",
        base_url: `${backEnd.url}/x?v=1`,
        param_placement: "query",
        param_overrides: { "X-Extra": "header" },
      },
      auth_config: {
        type: "api_key",
        mapping: [
          { source: "KEY", target: "token", location: "query" },
          { source: "KEY", target: "X-Token" },
        ],
      },
    });
    await invoke(tenant.client, "open_ended", { token: "mine", v: "2", "X-Token": "mine", q: "x", "X-Extra": "e" });
    const sent = backEnd.requests[0];
    expect(sent?.target).toBe("/x?v=1&X-Token=mine&q=x&token=the-credential");
    const tokens = sent?.rawHeaders.filter((_value, at, all) => /^x-token$/i.test(all[at - 1] ?? ""));
    expect(tokens).toEqual(["the-credential"]);
  });
});

describe(`the end of a call ${verifies("BLIND-8", "BLIND-6")}`, () => {
  /** Neither host, port nor path of a tool is anybody's to know but the one who registered it. */
  function requireSilence(...told: readonly string[]): void {
    for (const one of told) {
      expect(one).not.toMatch(portOf(backEnd));
      expect(one).not.toMatch(/127\.0\.0\.1|localhost|ECONN|base_url|secret-path/);
    }
  }

  interface Ends {
    readonly model: Json;
    readonly direct: Reply;
    /** The record of the direct call. */
    readonly row: Json;
  }

  /** The same call by a model and directly. */
  async function endsOf(of: TestTenant, name: string, args: Json): Promise<Ends> {
    const told = await byModel(of.client, name, args);
    const direct = await invoke(of.client, name, args);
    const row = await of.client.get(`/v1/calls/${direct.json.id ?? direct.json.error.call_id}`);
    requireSilence(told, direct.text, JSON.stringify(row));
    const parsed: Json = told.startsWith('{"error"') ? JSON.parse(told).error : undefined;
    return { model: parsed ?? told, direct, row };
  }

  async function addReader(of: TestTenant, execution: Json = {}): Promise<void> {
    await of.addPlugin(readingTool(backEnd, "lookup", { base_url: `${backEnd.url}/secret-path`, ...execution }));
  }

  async function addWriter(of: TestTenant, execution: Json = {}): Promise<void> {
    await of.addPlugin(writingTool(backEnd, "order", { base_url: `${backEnd.url}/secret-path`, ...execution }));
  }

  test("bytes that are no text come whole behind a handle", async () => {
    const image = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 255, 254, 10]);
    await addReader(tenant);
    backEnd.answer = () => ({ headers: { "content-type": "image/png" }, body: image });
    const { model, direct, row } = await endsOf(tenant, "lookup", { q: "x" });
    expect(model).toMatch(/^\[binary result: image\/png, 12 bytes; .*\/v1\/calls\/call_\w+\/result\]$/);
    expect(direct.json).toMatchObject({ status: "completed", media_type: "image/png", handle: { bytes: 12 } });
    expect(row).toMatchObject({ state: "completed", result: { media_type: "image/png", bytes: 12, complete: false } });
    const [id] = /call_\w+/.exec(model) ?? [];
    for (const call of [id, direct.json.id]) {
      const whole = await tenant.client.send("get", `/v1/calls/${call}/result`);
      expect([whole.headers.get("content-type"), whole.bytes.equals(image)]).toEqual(["image/png", true]);
    }
  });

  test.each([300, 304, 305, 418])("a %i is a failure with its status, even where it has no words", async (status) => {
    await addReader(tenant);
    backEnd.answer = () => ({ status, body: "" });
    const { model, direct, row } = await endsOf(tenant, "lookup", { q: "x" });
    expect([model.code, model.details.status]).toEqual(["tool_failed", status]);
    expect([direct.status, direct.json.error.code, direct.json.error.status]).toEqual([502, "tool_failed", status]);
    expect(row).toMatchObject({ state: "failed", error: { code: "tool_failed", details: { status } } });
  });

  test("silence ends a read with its time and what to raise, a write as unknown", async () => {
    await addReader(tenant, { timeout_ms: 60 });
    await addWriter(tenant, { timeout_ms: 60 });
    backEnd.answer = () => ({ delayMs: 400, body: "late" });
    const read = await endsOf(tenant, "lookup", { q: "x" });
    expect(read.model.code).toBe("tool_timeout");
    expect([read.direct.status, read.row.state]).toEqual([504, "failed"]);
    expect(read.direct.json.error.message).toMatch(/60 ms.*timeout_ms/);
    const write = await endsOf(tenant, "order", { sku: "S1" });
    expect(write.model.code).toBe("outcome_unknown");
    expect([write.direct.status, write.row.state, write.direct.headers.get("x-should-retry")]).toEqual([
      502,
      "unknown",
      "false",
    ]);
  });

  test("a body that drips beyond the time is cut, though its head was there in time", async () => {
    await addReader(tenant, { timeout_ms: 150 });
    backEnd.answer = async (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      for (let part = 0; part < 40 && !response.destroyed; part += 1) {
        response.write(" ");
        await sleep(20);
      }
      response.end("{}");
      return undefined;
    };
    const { model, direct } = await endsOf(tenant, "lookup", { q: "x" });
    expect([model.code, direct.json.error.code]).toEqual(["tool_timeout", "tool_timeout"]);
  });

  test("redirects are followed three times, checked each time, and lose the credential at another origin", async () => {
    const elsewhere = await startHttpStub(() => ({ body: '"elsewhere"' }));
    try {
      await tenant.putCredential("KEY", "value-1234");
      await tenant.addPlugin({
        ...readingTool(backEnd, "lookup", { base_url: `${backEnd.url}/hop/3`, max_attempts: 1 }),
        auth_config: { type: "bearer", mapping: [{ source: "KEY" }] },
      });
      const hops = (last: string) => () => {
        const left = 3 - backEnd.requests.length;
        return { status: 302, headers: { location: left < 0 ? last : `/hop/${left}` }, body: "" };
      };
      const ends = async (last: string): Promise<Json> => {
        backEnd.requests.length = 0;
        backEnd.answer = hops(last);
        return (await invoke(tenant.client, "lookup", { q: "x" })).json;
      };
      // Three hops stay, the fourth answer is one redirect too many.
      expect((await ends(elsewhere.url)).error).toMatchObject({ code: "tool_failed" });
      backEnd.answer = () => ({ status: 307, headers: { location: `http://localhost:${elsewhere.port}/y?z=1` } });
      const { model, direct } = await endsOf(tenant, "lookup", { q: "x" });
      expect([model, direct.json.content]).toEqual(['"elsewhere"', '"elsewhere"']);
      expect(elsewhere.requests.map(({ target, headers }) => [target, headers.authorization])).toEqual([
        ["/y?z=1", undefined],
        ["/y?z=1", undefined],
      ]);
      for (const location of [
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "//[::ffff:10.0.0.1]/",
        "file:///etc/passwd",
        "http://u:p@127.0.0.1/",
        "http://[",
      ]) {
        backEnd.answer = () => ({ status: 302, headers: { location } });
        const denied = await endsOf(tenant, "lookup", { q: "x" });
        expect([location, denied.model.code, denied.direct.status]).toEqual([location, "egress_denied", 403]);
        expect(denied.model.message).toMatch(/^The (?:host|URL) of 'lookup' may not be reached: /);
      }
    } finally {
      await elsewhere.close();
    }
  });

  test("a loop of redirects ends, and a write that was redirected is not told to be undone", async () => {
    await addReader(tenant);
    await addWriter(tenant);
    backEnd.answer = ({ target }) => ({ status: 302, headers: { location: target } });
    expect((await endsOf(tenant, "lookup", { q: "x" })).model.code).toBe("tool_failed");
    expect(backEnd.requests).toHaveLength(8);
    // 303: done, and here is a page about it.
    backEnd.answer = ({ method, target }) =>
      method === "POST" ? { status: 303, headers: { location: `${target}?done` } } : { body: '"done"' };
    backEnd.requests.length = 0;
    expect((await endsOf(tenant, "order", { sku: "S1" })).model).toBe('"done"');
    expect(backEnd.requests.map(({ method, body }) => [method, body.length])).toEqual([
      ["POST", 12],
      ["GET", 0],
      ["POST", 12],
      ["GET", 0],
    ]);
    backEnd.answer = ({ method }) =>
      method === "POST" ? { status: 303, headers: { location: "http://10.0.0.1/" } } : {};
    expect((await endsOf(tenant, "order", { sku: "S2" })).row.state).toBe("unknown");
    backEnd.answer = ({ target }) =>
      target.endsWith("moved") ? { body: '"moved"' } : { status: 308, headers: { location: "/secret-path/moved" } };
    backEnd.requests.length = 0;
    expect((await endsOf(tenant, "order", { sku: "S3" })).model).toBe('"moved"');
    expect(backEnd.requests.map(({ method, body }) => [method, body.toString()])).toEqual(
      Array(4).fill(["POST", '{"sku":"S3"}']),
    );
  });

  test("more than the tenant keeps is refused while it comes, said or not, and the back end is let go", async () => {
    const small = await newTenant({ result_max_bytes: 50_000, result_bytes: 1_000 });
    await addReader(small);
    backEnd.answer = () => ({ body: "x".repeat(50_001) });
    const said = await endsOf(small, "lookup", { q: "x" });
    expect([said.model.code, said.direct.json.error.code]).toEqual(["tool_output_too_large", "tool_output_too_large"]);
    expect(said.model.message).toContain("result_max_bytes");
    let [written, left] = [0, 0];
    backEnd.answer = async (_request, response) => {
      response.writeHead(200, { "content-type": "text/plain" });
      const closed = once(response, "close").then(() => (left += 1));
      while (!response.destroyed && written < 10_000) {
        written += 1;
        if (!response.write("y".repeat(10_000))) await Promise.race([once(response, "drain"), closed]);
      }
      return undefined;
    };
    const endless = await endsOf(small, "lookup", { q: "y" });
    expect(endless.direct.status).toBe(502);
    await expect.poll(() => left, { timeout: 5_000 }).toBe(2);
    expect(written).toBeLessThan(10_000);
    backEnd.answer = () => ({ body: "z".repeat(50_000) });
    expect((await endsOf(small, "lookup", { q: "z" })).row.result.bytes).toBe(50_000);
  });

  test("compressed replies are read as what they are, and a bomb does not go off", async () => {
    const small = await newTenant({ result_max_bytes: 1_000_000 });
    await addReader(small);
    const body = JSON.stringify({ words: "字".repeat(5_000) });
    for (const [encoding, compressed] of [
      ["gzip", gzipSync(body)],
      ["br", brotliCompressSync(body)],
    ] as const) {
      backEnd.answer = () => ({ headers: { "content-encoding": encoding }, body: compressed });
      const { model } = await endsOf(small, "lookup", { q: encoding });
      expect([encoding, model]).toEqual([encoding, body]);
    }
    const bomb = gzipSync(Buffer.alloc(200_000_000));
    const twice = gzipSync(bomb);
    const before = process.memoryUsage.rss();
    for (const [encoding, compressed] of [
      ["gzip", bomb],
      ["gzip, gzip", twice],
    ] as const) {
      backEnd.answer = () => ({
        headers: { "content-encoding": encoding, "content-type": "text/plain" },
        body: compressed,
      });
      expect((await endsOf(small, "lookup", { q: encoding })).model.code).toBe("tool_output_too_large");
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(150_000_000);
    backEnd.answer = () => ({ headers: { "content-encoding": "gzip" }, body: "no gzip at all" });
    expect((await endsOf(small, "lookup", { q: "broken" })).model.code).toBe("tool_failed");
    backEnd.answer = () => ({ headers: { "content-encoding": "gzip" }, body: gzipSync(body).subarray(0, 40) });
    expect((await endsOf(small, "lookup", { q: "cut" })).model.code).toBe("tool_failed");
  });

  test.each<[what: string, act: (socket: Socket) => void, read: string, write: string]>([
    ["hangs up without an answer", (socket) => socket.destroy(), "tool_unreachable", "outcome_unknown"],
    [
      "hangs up in the middle",
      (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
      "tool_unreachable",
      "outcome_unknown",
    ],
    [
      "speaks another language",
      (socket) => socket.end("220 smtp.example ESMTP\r\n"),
      "tool_unreachable",
      "outcome_unknown",
    ],
    [
      "sends headers without end",
      (socket) => socket.write(`HTTP/1.1 200 OK\r\nx: ${"a".repeat(100_000)}`),
      "tool_unreachable",
      "outcome_unknown",
    ],
  ])("a back end that %s leaves a read unreachable and a write unknown", async (_what, act, read, write) => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => act(socket));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    try {
      const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/secret-path`;
      await addReader(tenant, { base_url });
      await addWriter(tenant, { base_url });
      const reading = await endsOf(tenant, "lookup", { q: "x" });
      expect([reading.model.code, reading.direct.json.error.code]).toEqual([read, read]);
      const writing = await endsOf(tenant, "order", { sku: "x" });
      expect([writing.model.code, writing.direct.json.error.code, writing.row.state]).toEqual([
        write,
        write,
        "unknown",
      ]);
    } finally {
      server.close();
    }
  });

  test.each([
    ["a name that does not resolve", "http://secret-path.invalid/secret-path"],
    ["a port where nobody listens", "http://127.0.0.1:1/secret-path"],
  ])("%s is no write at all: the tool is named, its address is not", async (_what, base_url) => {
    await addReader(tenant, { base_url });
    await addWriter(tenant, { base_url });
    for (const [name, args] of [
      ["lookup", { q: "x" }],
      ["order", { sku: "x" }],
    ] as const) {
      const { model, direct, row } = await endsOf(tenant, name, args);
      expect([model.code, direct.status, row.state]).toEqual(["tool_unreachable", 502, "failed"]);
      expect(model.message).toMatch(new RegExp(`^The host of '${name}' (cannot be resolved|refused the connection)`));
    }
  });

  test("a secret in the words of an error is taken out of each of them, whatever stands around it", async () => {
    const secret = 'back\\slash"and\\';
    await tenant.putCredential("KEY", secret);
    await tenant.addPlugin({
      ...readingTool(backEnd),
      auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "X-Key" }] },
    });
    const words = [
      `key ${secret}" is wrong`,
      `{"key":${JSON.stringify(secret)}}`,
      `${secret}\\"`,
      JSON.stringify({ a: `${secret}"` }),
    ];
    for (const body of words) {
      backEnd.answer = () => ({ status: 400, headers: { "content-type": "text/plain" }, body });
      const { model, direct } = await endsOf(tenant, "lookup", { q: "x" });
      expect([model.code, direct.json.error.code]).toEqual(["tool_failed", "tool_failed"]);
      expect(model.details.body).toContain("[redacted]");
      expect(JSON.stringify(model) + direct.text).not.toMatch(/back|slash/);
    }
    backEnd.answer = () => ({ status: 302, headers: { location: `http://${"sk-hidden-9f3a"}.10.0.0.1.invalid/` } });
    await tenant.putCredential("KEY", "sk-hidden-9f3a");
    const { model, direct } = await endsOf(tenant, "lookup", { q: "x" });
    expect(JSON.stringify(model) + direct.text).not.toContain("sk-hidden");
  });
});

describe(`a credential that a tool needs ${verifies("BLIND-5", "BLIND-10")}`, () => {
  const keyed = (name: string, source = "KEY"): Json => ({
    ...readingTool(backEnd, name),
    auth_config: { type: "bearer", mapping: [{ source }] },
  });
  const sentKeys = (): unknown[] => backEnd.requests.map(({ headers }) => headers.authorization);

  test("and that is missing is asked for before the model is, by its name, with the way to add it", async () => {
    await tenant.addPlugin(keyed("guarded"));
    for (const [path, stream] of [
      ["/v1/chat/completions", false],
      ["/v1/chat/completions", true],
      ["/api/chat/completions", true],
    ] as const) {
      const reply = await chat(tenant.client, { stream }, path);
      expect(reply).toMatchObject({
        status: 400,
        json: {
          error: { code: "credential_missing", param: "KEY", tool_name: "guarded", type: "invalid_request_error" },
        },
      });
      expect(reply.json.error.message).toContain("PUT /v1/credentials/KEY");
    }
    expect(llm.requests).toHaveLength(0);
    const { client: bound } = await tenant.newKey({ tools: ["something_else"] });
    llm.script(text("ok"));
    expect((await chat(bound)).status).toBe(200);
    await tenant.putCredential("KEY", "value-1234");
    expect(await byModel(tenant.client, "guarded", { q: "x" })).toBe('{"ok":true}');
    await tenant.client.expect("delete", "/v1/credentials/KEY");
    expect((await chat(other.client(tenant.key))).json.error.code).toBe("credential_missing");
  });

  test("is required where the definition says so, though nothing maps it", async () => {
    await tenant.addPlugin({ ...readingTool(backEnd, "declared"), required_credentials: ["EXTRA_KEY"] });
    expect((await chat(tenant.client)).json.error).toMatchObject({ code: "credential_missing", param: "EXTRA_KEY" });
    expect((await invoke(tenant.client, "declared", { q: "x" })).json.error).toMatchObject({
      code: "credential_missing",
      param: "EXTRA_KEY",
    });
  });

  test("is the user's own before the tenant's, in chats as in calls, and nobody else's", async () => {
    await tenant.addPlugin(keyed("guarded"));
    await tenant.putCredential("KEY", "of-the-tenant");
    await tenant.putCredential("KEY", "of-ann-only", "ann");
    const { client: ann } = await tenant.newKey({ user_id: "ann" });
    const { client: bob } = await tenant.newKey({ user_id: "bob" });
    for (const client of [ann, bob, tenant.client]) await byModel(client, "guarded", { q: "x" });
    expect(sentKeys()).toEqual(["Bearer of-ann-only", "Bearer of-the-tenant", "Bearer of-the-tenant"]);
    await tenant.client.expect("delete", "/v1/credentials/KEY");
    backEnd.requests.length = 0;
    await byModel(ann, "guarded", { q: "x" });
    expect((await chat(bob)).json.error.code).toBe("credential_missing");
    expect(sentKeys()).toEqual(["Bearer of-ann-only"]);
  });

  test("that is replaced counts for the next call on every instance, a call under way keeps the one it has", async () => {
    await tenant.addPlugin(keyed("guarded"));
    const there = other.client(tenant.key);
    for (let version = 1; version <= 5; version += 1) {
      await tenant.putCredential("KEY", `value-${version}000`);
      backEnd.requests.length = 0;
      await invoke(there, "guarded", { q: "x" });
      await byModel(there, "guarded", { q: "x" });
      await invoke(tenant.client, "guarded", { q: "x" });
      expect(new Set(sentKeys())).toEqual(new Set([`Bearer value-${version}000`]));
      expect(backEnd.requests).toHaveLength(3);
    }
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    backEnd.requests.length = 0;
    backEnd.answer = async () => {
      await held;
      return { body: '{"ok":true}' };
    };
    const running = invoke(there, "guarded", { q: "held" });
    await expect.poll(() => backEnd.requests.length, { timeout: 5_000 }).toBe(1);
    await tenant.putCredential("KEY", "value-6000");
    release();
    expect((await running).status).toBe(200);
    await invoke(there, "guarded", { q: "next" });
    expect(sentKeys()).toEqual(["Bearer value-5000", "Bearer value-6000"]);
  });

  test.each(["a\r\nX-Evil: 1", "a\nb", "a\0b"])(
    "with a line break in it, however it got there, sends nothing: %j",
    async (value) => {
      await tenant.addPlugin(keyed("guarded"));
      await tenant.putCredential("KEY", "for-now");
      // What no route takes, written as the product writes it.
      const { wrappedKey } = (await gateway.core.repos.tenants.get(tenant.id)) ?? { wrappedKey: "" };
      const sealed = await gateway.core.sealer.seal(tenant.id, wrappedKey, ["tenant", "", "KEY", "1"], value);
      await tamper("UPDATE sys_user_credential SET sealed = ?2 WHERE tenant = ?1", sealed);
      const told = JSON.parse(await byModel(tenant.client, "guarded", { q: "x" })).error;
      expect(told).toMatchObject({ code: "credential_invalid", details: { param: "KEY" } });
      expect(await invoke(tenant.client, "guarded", { q: "x" })).toMatchObject({
        status: 400,
        json: { error: { code: "credential_invalid", param: "KEY" } },
      });
      expect(backEnd.requests).toHaveLength(0);
    },
  );

  /** Changes rows behind the product's back; the next request loads them. */
  async function tamper(sql: string, ...args: SqlValue[]): Promise<void> {
    await database.batch([{ sql, args: [tenant.id, ...args] }]);
    await tenant.client.expect("patch", "/v1/settings", { identical_calls: 50 });
  }

  const moves: readonly (readonly [what: string, sql: string])[] = [
    [
      "swapped with another of the tenant's",
      `UPDATE sys_user_credential SET sealed = (SELECT other.sealed FROM sys_user_credential AS other
         WHERE other.tenant = ?1 AND other.name = 'OTHER_KEY') WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''`,
    ],
    [
      "another tenant's of the same name",
      `UPDATE sys_user_credential SET sealed = (SELECT other.sealed FROM sys_user_credential AS other
         WHERE other.tenant <> ?1 AND other.name = 'KEY' ORDER BY credential_id DESC) WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''`,
    ],
    [
      "a user's, put in the tenant's place",
      `UPDATE sys_user_credential SET sealed = (SELECT other.sealed FROM sys_user_credential AS other
         WHERE other.tenant = ?1 AND other.name = 'KEY' AND other.user_id = 'ann') WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''`,
    ],
    [
      "an older version's",
      "UPDATE sys_user_credential SET version = version + 1 WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''",
    ],
    ["given another name", "UPDATE sys_user_credential SET name = 'KEY' WHERE tenant = ?1 AND name = 'OTHER_KEY'"],
    [
      "cut",
      "UPDATE sys_user_credential SET sealed = substr(sealed, 1, 40) WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''",
    ],
    ["nonsense", "UPDATE sys_user_credential SET sealed = '{}' WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''"],
    [
      "changed in one character",
      "UPDATE sys_user_credential SET sealed = replace(sealed, '\"tag\":\"', '\"tag\":\"A') WHERE tenant = ?1 AND name = 'KEY' AND user_id = ''",
    ],
  ];

  test.each(moves)("that is %s opens nowhere, fails its own calls by name, and nothing else", async (what, sql) => {
    const neighbour = await newTenant();
    for (const owner of [neighbour, tenant]) {
      await owner.addPlugin(keyed("guarded"));
      await owner.addPlugin(readingTool(backEnd, "plain"));
      await owner.putCredential("KEY", `value-of-${owner.id}`);
    }
    await tenant.addPlugin(keyed("second", "SECOND_KEY"));
    await tenant.putCredential("SECOND_KEY", "second-value");
    if (what === "given another name") await tenant.client.expect("delete", "/v1/credentials/KEY");
    await tenant.putCredential("OTHER_KEY", "other-value");
    await tenant.putCredential("KEY", "value-of-ann", "ann");
    const { client: ann } = await tenant.newKey({ user_id: "ann" });
    await tamper(sql);

    for (const instance of [gateway, other]) {
      const client = instance.client(tenant.key);
      const direct = await invoke(client, "guarded", { q: "x" });
      expect(direct).toMatchObject({
        status: 500,
        json: { error: { code: "credential_unreadable", param: "KEY", tool_name: "guarded" } },
      });
      expect(direct.json.error.message).toContain("PUT /v1/credentials/KEY");
      const refused = await chat(client, { stream: true }, "/api/chat/completions");
      expect(refused).toMatchObject({ status: 500, json: { error: { code: "credential_unreadable", param: "KEY" } } });
    }
    expect([llm.requests.length, backEnd.requests.length]).toEqual([0, 0]);
    // A value that a request brings along is readable, and says nothing of the row.
    llm.script(text("ok"));
    const brought = await chat(tenant.client, { runtime_config: { credentials: { KEY: "of-the-request" } } });
    expect(brought.status).toBe(200);
    expect((await chat(tenant.client)).json.error).toMatchObject({ code: "credential_unreadable", param: "KEY" });
    // Everything that does not need this very row goes on.
    expect((await invoke(tenant.client, "plain", { q: "x" })).status).toBe(200);
    expect((await invoke(tenant.client, "second", { q: "x" })).status).toBe(200);
    expect((await invoke(ann, "guarded", { q: "x" })).status).toBe(200);
    expect((await invoke(neighbour.client, "guarded", { q: "x" })).status).toBe(200);
    const { client: bound } = await tenant.newKey({ tools: ["plain", "second"] });
    expect(await byModel(bound, "second", { q: "x" })).toBe('{"ok":true}');
    expect(sentKeys()).toEqual([
      undefined,
      "Bearer second-value",
      "Bearer value-of-ann",
      `Bearer value-of-${neighbour.id}`,
      "Bearer second-value",
    ]);
    // Operators see it; the process is not taken out for it.
    await expect
      .poll(async () => (await gateway.nobody.send("get", "/health/ready")).json, { timeout: 5_000, interval: 200 })
      .toMatchObject({
        status: "degraded",
        checks: expect.arrayContaining([expect.objectContaining({ name: "credentials", ok: false })]),
      });
    expect((await gateway.nobody.send("get", "/health/ready")).status).toBe(200);
    const row = (await tenant.client.get("/v1/calls?kind=tool&state=failed")).data[0];
    expect(row).toMatchObject({ tool: "guarded", error: { code: "credential_unreadable" } });
    // Setting it again mends it.
    await tenant.putCredential("KEY", "set-anew-1");
    expect((await invoke(other.client(tenant.key), "guarded", { q: "x" })).status).toBe(200);
    expect(sentKeys().at(-1)).toBe("Bearer set-anew-1");
    const deleted = what === "given another name" ? [] : ["OTHER_KEY"];
    for (const name of [...deleted, "SECOND_KEY"]) await tenant.client.expect("delete", `/v1/credentials/${name}`);
  });

  test("is shown sound again in readiness when all of them open", async () => {
    await expect
      .poll(async () => (await gateway.nobody.send("get", "/health/ready")).json.status, {
        timeout: 6_000,
        interval: 300,
      })
      .toBe("ok");
  });
});

describe(`what the model and the stream are told of a tool ${verifies("BLIND-6")}`, () => {
  test("is its name, description and parameters; neither stream shows address, auth or values", async () => {
    await tenant.putCredential("KEY", "sk-sentinel-5511");
    await tenant.addPlugin({
      ...writingTool(backEnd, "order", { headers: { "X-Sentinel-Header": "fixed-sentinel" } }),
      auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "X-Sentinel-Target" }] },
    });
    backEnd.answer = ({ headers }) => ({ status: 500, body: JSON.stringify({ got: headers["x-sentinel-target"] }) });
    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      llm.requests.length = 0;
      llm.script(calls({ name: "order", arguments: { sku: "S1" } }), text("sorry"));
      const reply = await tenant.client
        .with({ "x-toolyard-events": "1" })
        .send("post", path, { messages: [{ role: "user", content: "go" }], stream: true });
      expect(sseEvents(reply.text).at(-1)).toBe("[DONE]");
      const [offered] = (llm.requests[0]?.["tools"] ?? []) as Json[];
      expect(Object.keys(offered.function).sort()).toEqual(["description", "name", "parameters"]);
      for (const seen of [reply.text, JSON.stringify(llm.requests), JSON.stringify(gateway.logged)]) {
        expect(seen).not.toMatch(/sentinel|Sentinel/);
        expect(seen).not.toMatch(portOf(backEnd));
      }
      expect(JSON.stringify(llm.requests)).toContain("[redacted]");
    }
  });
});
