/** Files and results that pass the gateway by on links of the blob store (CHAT-19). */
import { randomBytes } from "node:crypto";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** A second instance; what one begins the other may end. */
let other: Gateway;
let tenant: TestTenant;
let member: Client;
let backEnd: HttpStub;

beforeAll(async () => {
  gateway = await startGateway();
  other = await startGateway({ sharedWith: gateway });
  backEnd = await startHttpStub();
  tenant = await gateway.newTenant();
  ({ client: member } = await tenant.newKey());
});
afterAll(async () => {
  await other.close();
  await gateway.close();
  await backEnd.close();
});

interface Change {
  readonly method?: string;
  readonly body?: string | ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Follows a link as its holder does: with nothing but what it says. */
function follow({ request }: Json, change: Change = {}): Promise<Response> {
  return fetch(request.url, {
    method: request.method,
    duplex: "half",
    ...change,
    headers: { ...request.headers, ...change.headers },
  });
}

const announce = (client: Client, session: string, body: Json): Promise<Reply> =>
  client.send("post", `/v1/sessions/${session}/uploads`, body);
const complete = (client: Client, session: string, id: string, body: Json = {}): Promise<Reply> =>
  client.send("post", `/v1/sessions/${session}/uploads/${id}/complete`, body);
const read = async (client: Client, session: string, path: string): Promise<string> =>
  (await client.send("get", `/v1/sessions/${session}/files/${encodeURIComponent(path)}`)).text;

describe(`an upload by link ${verifies("CHAT-19")}`, () => {
  test("becomes a file like any other, on every instance and for the tools", async () => {
    const path = "资料/二月 (终).txt";
    const announced = await announce(member, "up", { path, bytes: 6, media_type: "text/plain; charset=utf-8" });
    expect(announced).toMatchObject({
      status: 201,
      json: { object: "upload", path, bytes: 6, replaces: false, request: { method: "PUT" } },
    });
    const { id } = announced.json;
    expect(await complete(member, "up", id)).toMatchObject({
      status: 409,
      json: { error: { code: "upload_incomplete" } },
    });
    expect((await member.get("/v1/sessions/up/files")).data).toEqual([]);
    // The other instance takes the bytes: a link is not an instance's.
    const url = announced.json.request.url.replace(gateway.url, other.url);
    expect((await follow({ request: { ...announced.json.request, url } }, { body: "你好" })).status).toBe(201);
    expect(await complete(member, "up", id)).toMatchObject({
      status: 201,
      json: { object: "file", path, bytes: 6, media_type: "text/plain; charset=utf-8" },
    });
    expect(await complete(member, "up", id)).toMatchObject({ status: 201, json: { path } });
    expect(await read(member, "up", path)).toBe("你好");
    const told = await member.post("/v1/tools/invoke", { name: "read_file", arguments: { path }, session_id: "up" });
    expect(JSON.stringify(told)).toContain("你好");
    expect(await member.get("/v1/sessions/up")).toMatchObject({ bytes: 6 });
  });

  test("replaces what it knew of, and nothing that was written meanwhile", async () => {
    const put = (text: string): Promise<Json> =>
      member.expect("put", "/v1/sessions/over/files/a.txt", undefined, { raw: text });
    await put("first");
    const knowing = (await announce(member, "over", { path: "/a.txt", bytes: 6 })).json;
    expect(knowing).toMatchObject({ path: "a.txt", replaces: true });
    await follow(knowing, { body: "second" });
    expect(await complete(member, "over", knowing.id)).toMatchObject({ status: 200 });
    const unaware = (await announce(member, "over", { path: "a.txt", bytes: 5 })).json;
    await follow(unaware, { body: "third" });
    await put("by hand");
    expect(await complete(member, "over", unaware.id)).toMatchObject({
      status: 409,
      json: { error: { code: "conflict", param: "replace" } },
    });
    expect(await read(member, "over", "a.txt")).toBe("by hand");
    expect(await complete(member, "over", unaware.id, { replace: true })).toMatchObject({ status: 200 });
    expect(await read(member, "over", "a.txt")).toBe("third");
    expect(await gateway.core.blobs.list(`${tenant.id}/workspaces/over/`)).toHaveLength(1);
  });

  test("is refused where it is not what was announced", async () => {
    const { json } = await announce(member, "strict", { path: "a", bytes: 4, media_type: "text/plain" });
    const answers = [
      follow(json, { body: "12345" }),
      follow(json, { body: "123" }),
      follow(json, {
        body: new ReadableStream({ start: (c) => (c.enqueue(Buffer.from("123")), c.close()) }),
      }),
      follow(json, {
        body: new ReadableStream({ start: (c) => (c.enqueue(Buffer.alloc(9)), c.close()) }),
      }),
      follow(json, { body: "1234", headers: { "content-type": "text/html" } }),
      follow(json, { method: "GET" }),
    ];
    for (const answer of await Promise.all(answers)) {
      const { error } = (await answer.json()) as Json;
      expect([answer.status, error.code]).toEqual([403, "link_invalid"]);
    }
    expect((await follow(json, { body: "1234" })).status).toBe(201);
    const again = await follow(json, { body: "5678" });
    expect([again.status, ((await again.json()) as Json).error.code]).toEqual([409, "conflict"]);
    await complete(member, "strict", json.id);
    expect(await read(member, "strict", "a")).toBe("1234");
  });

  test.each(["../x", "a/../../x", "nul\u0000.txt", "dir/", "é".repeat(600)])(
    "to the path %j is refused",
    async (path) => {
      expect(await announce(member, "paths", { path, bytes: 1 })).toMatchObject({
        status: 400,
        json: { error: { code: "invalid_arguments", param: "path" } },
      });
    },
  );

  test.each([
    [{ path: "a" }, "bytes"],
    [{ path: "a", bytes: -1 }, "bytes"],
    [{ path: "a", bytes: 5_368_709_121 }, "bytes"],
    [{ path: "a", bytes: 1, media_type: "text/plain\r\nx: y" }, "media_type"],
    [{ path: "a", bytes: 1, expires_in_ms: 3_600_001 }, "expires_in_ms"],
    [{ bytes: 1 }, "path"],
  ])("announced as %j names '%s'", async (body, param) => {
    const reply = await announce(member, "bodies", body);
    expect([reply.status, reply.json.error.param]).toEqual([400, param]);
  });

  test("holds its room until it is given up", async () => {
    const small = await gateway.newTenant({ workspace_bytes: 2_000 });
    const { json } = await announce(small.client, "s", { path: "a", bytes: 1_500 });
    const full = { status: 413, json: { error: { code: "workspace_full" } } };
    expect(await announce(small.client, "s", { path: "b", bytes: 501 })).toMatchObject(full);
    expect(await announce(small.client, "s", { path: "b", bytes: 2_001 })).toMatchObject(full);
    expect(await small.client.send("put", "/v1/sessions/s/files/b", undefined, { raw: "b".repeat(501) })).toMatchObject(
      full,
    );
    await follow(json, { body: "a".repeat(1_500) });
    expect((await small.client.send("delete", `/v1/sessions/s/uploads/${json.id}`)).status).toBe(204);
    expect(await complete(small.client, "s", json.id)).toMatchObject({ status: 404 });
    expect(await gateway.core.blobs.list(`${small.id}/`)).toEqual([]);
    expect(await announce(small.client, "s", { path: "b", bytes: 2_000 })).toMatchObject({ status: 201 });
  });

  test("is for those who write, in sessions that are theirs", async () => {
    await announce(member, "mine", { path: "a", bytes: 1 });
    const { client: reader } = await tenant.newKey({ scopes: ["approve"] });
    expect(await announce(reader, "none", { path: "a", bytes: 1 })).toMatchObject({ status: 403 });
    const { client: colleague } = await tenant.newKey();
    const stranger = (await gateway.newTenant()).client;
    const { json } = await announce(member, "mine", { path: "a", bytes: 1 });
    for (const client of [colleague, stranger]) {
      for (const reply of [
        await announce(client, "mine", { path: "a", bytes: 1 }),
        await complete(client, "mine", json.id),
        await client.send("delete", `/v1/sessions/mine/uploads/${json.id}`),
        await client.send("post", "/v1/sessions/mine/downloads", { path: "a" }),
      ]) {
        expect([reply.status, reply.json.error.code]).toEqual([404, "session_not_found"]);
      }
    }
  });
});

describe(`an upload whose link ran out ${verifies("CHAT-19", "CHAT-8")}`, () => {
  const runOut = async (of: TestTenant): Promise<void> => {
    const database = await openDatabase({ url: gateway.databaseUrl });
    const sql = "UPDATE workspace_uploads SET expires_at = expires_at - 86400000 WHERE tenant = ?";
    await database.batch([{ sql, args: [of.id] }]);
    await database.close();
  };

  test("is a file where its bytes came, and nothing is left of the others", async () => {
    const owner = await gateway.newTenant();
    const { client } = owner;
    const [whole, absent, late, over] = await Promise.all(
      ["whole", "absent", "late", "over"].map(
        async (path) => (await announce(client, "late", { path, bytes: 5 })).json,
      ),
    );
    await follow(whole, { body: "whole" });
    await follow(over, { body: "upper" });
    await client.expect("put", "/v1/sessions/late/files/over", undefined, { raw: "by hand" });
    // Given up, and sent all the same.
    await client.expect("delete", `/v1/sessions/late/uploads/${late.id}`);
    await follow(late, { body: "later" });
    await runOut(owner);
    await Promise.all([gateway.tick(), other.tick()]);
    await gateway.tick();
    expect(await read(client, "late", "whole")).toBe("whole");
    expect(await read(client, "late", "over")).toBe("by hand");
    expect((await client.get("/v1/sessions/late/files")).data).toHaveLength(2);
    expect(await gateway.core.blobs.list(`${owner.id}/`)).toHaveLength(2);
    for (const { id } of [absent, over]) expect((await complete(client, "late", id)).status).toBe(404);
  });

  test("goes with its session", async () => {
    const owner = await gateway.newTenant();
    const { json } = await announce(owner.client, "ended", { path: "a", bytes: 1 });
    await follow(json, { body: "a" });
    await owner.client.expect("delete", "/v1/sessions/ended");
    await runOut(owner);
    await gateway.tick();
    expect(await gateway.core.blobs.list(`${owner.id}/`)).toEqual([]);
  });
});

describe(`a download by link ${verifies("CHAT-19")}`, () => {
  test("gives the file without a key, whole or by range", async () => {
    const bytes = randomBytes(300_000);
    const path = "图/大 'x'.png";
    await member.expect("put", `/v1/sessions/down/files/${encodeURIComponent(path)}`, undefined, {
      raw: Uint8Array.from(bytes),
      headers: { "content-type": "image/png" },
    });
    const link = await member.post("/v1/sessions/down/downloads", { path });
    expect(link).toMatchObject({
      object: "download",
      bytes: 300_000,
      media_type: "image/png",
      request: { method: "GET" },
    });
    const whole = await follow(link);
    expect(Buffer.compare(Buffer.from(await whole.arrayBuffer()), bytes)).toBe(0);
    expect(whole.headers.get("content-type")).toBe("image/png");
    expect(whole.headers.get("content-disposition")).toBe(`attachment; filename*=UTF-8''%E5%A4%A7%20%27x%27.png`);
    expect(whole.headers.get("content-security-policy")).toContain("sandbox");
    expect(whole.headers.get("cache-control")).toBe("private, no-store");
    const part = await follow(link, { headers: { range: "bytes=-10" } });
    expect([part.status, Buffer.from(await part.arrayBuffer())]).toEqual([206, bytes.subarray(-10)]);
    expect((await follow(link, { headers: { range: "bytes=300000-" } })).status).toBe(416);
    expect((await follow(link, { method: "PUT", body: "x" })).status).toBe(403);
    await member.expect("delete", `/v1/sessions/down/files/${encodeURIComponent(path)}`);
    expect((await follow(link)).status).toBe(404);
  });

  test("needs a file that is there", async () => {
    await member.expect("put", "/v1/sessions/gone/files/a", undefined, { raw: "a" });
    const reply = await member.send("post", "/v1/sessions/gone/downloads", { path: "b" });
    expect([reply.status, reply.json.error.code]).toEqual([404, "file_not_found"]);
  });

  test("is over with its time, and changed by nobody", async () => {
    await member.expect("put", "/v1/sessions/brief/files/a", undefined, { raw: "a" });
    const link = await member.post("/v1/sessions/brief/downloads", { path: "a", expires_in_ms: 1_000 });
    const [payload = "", signature = ""] = new URL(link.request.url).pathname.slice("/v1/blobs/".length).split(".");
    const claims: Json = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
    const forged = (change: Json, signed = signature): string =>
      `${gateway.url}/v1/blobs/${Buffer.from(JSON.stringify({ ...claims, ...change })).toString("base64url")}.${signed}`;
    const stranger = await gateway.newTenant();
    for (const url of [
      forged({ until: claims.until + 60_000 }),
      forged({ key: claims.key.replace(tenant.id, stranger.id) }),
      forged({ key: `${tenant.id}/results/x` }),
      forged({ key: "no-tenant" }),
      forged({ key: "%ff/x" }),
      forged({ method: "PUT" }),
      forged({}, ""),
      forged({}, signature.slice(0, -2)),
      forged({}, `${signature}.${signature}`),
      `${gateway.url}/v1/blobs/nonsense`,
      `${gateway.url}/v1/blobs/${"x".repeat(9_000)}`,
    ]) {
      const answer = await fetch(url);
      expect([url, answer.status, ((await answer.json()) as Json).error.code]).toEqual([url, 403, "link_invalid"]);
    }
    await new Promise((done) => setTimeout(done, 1_100));
    const late = await follow(link);
    expect([late.status, ((await late.json()) as Json).error.code]).toEqual([410, "link_expired"]);
  });

  test("ends when the tenant is suspended or erased", async () => {
    const brief = await gateway.newTenant();
    await brief.client.expect("put", "/v1/sessions/erased/files/a", undefined, { raw: "a" });
    const link = await brief.client.post("/v1/sessions/erased/downloads", { path: "a" });
    await gateway.operator.expect("patch", `/v1/tenants/${brief.id}`, { status: "suspended" });
    expect((await follow(link)).status).toBe(403);
    await gateway.operator.expect("patch", `/v1/tenants/${brief.id}`, { status: "active" });
    expect((await follow(link)).status).toBe(200);
    await gateway.operator.expect("delete", `/v1/tenants/${brief.id}`);
    expect((await follow(link)).status).toBe(403);
  });

  test("stands in no log line", async () => {
    await member.expect("put", "/v1/sessions/quiet/files/a", undefined, { raw: "a" });
    const link = await member.post("/v1/sessions/quiet/downloads", { path: "a" });
    const token = new URL(link.request.url).pathname.slice("/v1/blobs/".length);
    await follow(link);
    await follow(link, { method: "PUT", body: "x" });
    await follow(link, { method: "POST", body: "x" });
    await fetch(`${gateway.url}/v1/blobs/${token}x`);
    const lines = JSON.stringify(gateway.logged);
    expect(lines).toContain("/v1/blobs/{token}");
    expect(lines).not.toContain(token.slice(0, 40));
    expect(lines).not.toContain(token.slice(-40));
  });
});

describe(`a link to a result ${verifies("CHAT-19", "CHAT-13")}`, () => {
  test("gives a long result whole; a short one needs none", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    const invoke = async (body: string): Promise<string> => {
      backEnd.answer = () => ({ headers: { "content-type": "text/csv" }, body });
      return (await member.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } })).id as string;
    };
    const long = "行,of a result\n".repeat(20_000);
    const [large, small] = [await invoke(long), await invoke("short")];
    const link = await member.post(`/v1/calls/${large}/result/download`);
    expect(link).toMatchObject({ object: "download", bytes: Buffer.byteLength(long), media_type: "text/csv" });
    expect(await (await follow(link)).text()).toBe(long);
    expect(await member.send("post", `/v1/calls/${small}/result/download`, {})).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request" } },
    });
    const { client: colleague } = await tenant.newKey();
    for (const client of [colleague, (await gateway.newTenant()).client]) {
      expect((await client.send("post", `/v1/calls/${large}/result/download`, {})).status).toBe(404);
    }
  });
});
