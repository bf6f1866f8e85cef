/** `oss://` over real sockets: five tools, five vendors, and what no key and no configuration may do. */
import { randomBytes } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { vendors, type Vendor } from "@toolyard/core/object-storage/vendors";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { startVendorStore, type VendorStore } from "../support/vendor-stores.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
let store: VendorStore;

beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50 } });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  session = newId("session");
  tenant = await gateway.newTenant();
  store = await startVendorStore("minio", "sample-bucket");
});
afterEach(() => store.close());

function configOf(at: VendorStore, change: Json = {}): Json {
  return {
    vendor: "minio",
    bucket: at.bucket,
    endpoint: at.url,
    region: at.region,
    access_key_id: at.credentials.accessKeyId,
    secret_access_key: at.credentials.secretAccessKey,
    ...change,
  };
}

function addService(config: Json = {}, serviceId = "sample-bucket"): Promise<Json> {
  const service = { scheme: "oss", service_id: serviceId, config: configOf(store, config) };
  return tenant.client.post("/v1/tool-services", service);
}

/** A name of each test's own: names of sessions are for all tenants. */
let session: string;

function invoke(tool: string, args: Json, uri = `oss://sample-bucket/${tool}`): Promise<Reply> {
  return tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, session_id: session });
}

/** What the tool says, parsed. */
async function done(tool: string, args: Json, uri?: string): Promise<Json> {
  const { status, json, text: answer } = await invoke(tool, args, uri);
  expect(status, answer).toBe(200);
  return JSON.parse(json.content);
}

async function failed(tool: string, args: Json, uri?: string): Promise<Json> {
  const { status, json } = await invoke(tool, args, uri);
  expect(json.error, JSON.stringify(json)).toBeDefined();
  return { status, ...json.error };
}

function putFile(path: string, raw: Uint8Array, type = "application/octet-stream"): Promise<Json> {
  return tenant.client.expect("put", `/v1/sessions/${session}/files/${path}`, undefined, {
    raw: new Uint8Array(raw),
    headers: { "content-type": type },
  });
}

async function getFile(path: string): Promise<Buffer> {
  return (await tenant.client.send("get", `/v1/sessions/${session}/files/${path}`)).bytes;
}

const stored = (key: string): Buffer | undefined => store.objects.get(key)?.body;

describe(`the specified calls ${verifies("OSS-1")}`, () => {
  beforeEach(() => addService());

  test("save stores the content, and answers with its address and metadata", async () => {
    const answer = await done("save", { key: "files/说 明.md", content: "# 你好", contentType: "text/markdown" });
    expect(answer).toEqual({
      key: "files/说 明.md",
      url: `${store.url}/sample-bucket/files/%E8%AF%B4%20%E6%98%8E.md`,
      size: 8,
      contentType: "text/markdown",
      etag: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    expect(store.objects.get("files/说 明.md")).toMatchObject({ headers: { "content-type": "text/markdown" } });
    expect(stored("files/说 明.md")?.toString()).toBe("# 你好");
  });

  test("load gives text with its metadata", async () => {
    await done("save", { key: "files/doc.txt", content: "hello 你好" });
    expect(await done("load", { key: "files/doc.txt" })).toMatchObject({
      key: "files/doc.txt",
      content: "hello 你好",
      contentType: "text/plain; charset=utf-8",
      size: 12,
      etag: expect.any(String),
      lastModified: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    expect(await done("load", { key: "files/doc.txt", offset: 6, length: 3 })).toMatchObject({
      content: "你",
      offset: 6,
      size: 12,
    });
  });

  test("load gives nothing of an object without bytes, whatever part of it", async () => {
    await done("save", { key: "empty", content: "" });
    expect(await done("load", { key: "empty" })).toMatchObject({ content: "", size: 0 });
    expect(await done("load", { key: "empty", offset: 0, length: 100 })).toMatchObject({ content: "", size: 0 });
    expect(await failed("load", { key: "empty", offset: 1 })).toMatchObject({ param: "offset" });
  });

  test("list gives key, size and lastModified, a page at a time", async () => {
    for (const key of ["files/a.txt", "files/b.txt", "files/c.txt", "other"]) await done("save", { key, content: key });
    const first = await done("list", { prefix: "files/", maxKeys: 2 });
    expect(first.objects.map(({ key }: Json) => key)).toEqual(["files/a.txt", "files/b.txt"]);
    expect(first.objects[0]).toMatchObject({ size: 11, lastModified: expect.any(String) });
    expect(first.truncated).toBe(true);
    const { continuationToken } = first;
    const second = await done("list", { prefix: "files/", maxKeys: 2, continuationToken });
    expect(second.objects.map(({ key }: Json) => key)).toEqual(["files/c.txt"]);
    expect([second.truncated, second.continuationToken]).toEqual([false, undefined]);
    expect((await done("list", { delimiter: "/" })).prefixes).toEqual(["files/"]);
    const forged = await failed("list", { continuationToken: "e30" });
    expect(forged).toMatchObject({ status: 400, code: "invalid_arguments", param: "continuationToken" });
  });

  test("delete removes one object or several, there or not", async () => {
    for (const key of ["a", "b", "c", "d.locked"]) await done("save", { key, content: key });
    expect(await done("delete", { key: "a" })).toEqual({ key: "a", deleted: true });
    expect(await done("delete", { key: "a" })).toEqual({ key: "a", deleted: true });
    expect(await done("delete", { keys: ["b", "d.locked"] })).toEqual({
      deleted: ["b"],
      errors: [{ key: "d.locked", reason: "AccessDenied", message: "Access Denied" }],
    });
    expect(await failed("delete", { keys: ["d.locked"] })).toMatchObject({ status: 502, code: "tool_failed" });
    expect([...store.objects.keys()]).toEqual(["c", "d.locked"]);
  });

  test("presign gives a URL that works for as long as was asked", async () => {
    await done("save", { key: "files/doc.txt", content: "linked" });
    const before = Date.now();
    const { url, expiresAt, method } = await done("presign", { key: "files/doc.txt", expires: 3_600 });
    expect(method).toBe("GET");
    expect(Date.parse(expiresAt)).toBeGreaterThanOrEqual(before + 3_600_000);
    expect(new URL(url).searchParams.get("X-Amz-Expires")).toBe("3600");
    const answer = await fetch(url);
    expect([answer.status, await answer.text()]).toEqual([200, "linked"]);
    const named = await done("presign", { key: "files/doc.txt", fileName: "报告.txt" });
    expect((await fetch(named.url)).headers.get("content-disposition")).toContain("filename*=UTF-8''%E6%8A%A5");
    const put = await done("presign", { key: "up.png", method: "PUT", contentType: "image/png" });
    expect((await fetch(put.url, { method: "PUT", headers: put.headers, body: "pixels" })).status).toBe(200);
    expect((await fetch(put.url, { method: "PUT", headers: { "content-type": "text/html" }, body: "x" })).status).toBe(
      403,
    );
    expect(stored("up.png")?.toString()).toBe("pixels");
  });

  test("are reads and writes as they should be", async () => {
    const { data } = await tenant.client.get("/v1/tools");
    const effects = Object.fromEntries(data.map(({ uri, effect }: Json) => [uri, effect]));
    expect(effects).toMatchObject({
      "oss://sample-bucket/save": "write",
      "oss://sample-bucket/load": "read",
      "oss://sample-bucket/list": "read",
      "oss://sample-bucket/delete": "write",
      "oss://sample-bucket/presign": "write",
    });
    const effectOf = async (args: Json): Promise<string> => {
      const { json } = await invoke("presign", args);
      return (await tenant.client.get(`/v1/calls/${json.id}`)).effect;
    };
    expect([await effectOf({ key: "a" }), await effectOf({ key: "a", method: "PUT" })]).toEqual(["read", "write"]);
  });
});

describe("refusals", () => {
  beforeEach(() => addService({ prefix: "team-a" }));

  test.each([
    ["save", { content: "x" }, "arguments"],
    ["load", {}, "arguments"],
    ["presign", { key: "a", expires: 604_801 }, "arguments"],
    ["presign", { key: "a", expires: 0 }, "arguments"],
    ["list", { maxKeys: 1_001 }, "arguments"],
    ["load", { key: "../team-b/secret" }, "key"],
    ["load", { key: "/team-b/secret" }, "key"],
    ["delete", { key: "a/../../team-b/secret" }, "key"],
    ["delete", { keys: ["fine", "..\\x"] }, "keys[1]"],
    ["delete", {}, "key"],
    ["list", { prefix: "../" }, "prefix"],
    ["save", { key: "a" }, "content"],
    ["save", { key: "a", content: "x", fromFile: "y" }, "content"],
    ["save", { key: "a", content: "*", encoding: "base64" }, "content"],
    ["save", { key: "a", content: "aGkab", encoding: "base64" }, "content"],
    ["save", { key: "a", content: "x", contentType: "text/plain; a=\u00e4" }, "contentType"],
    ["presign", { key: "a", fileName: "x", method: "PUT" }, "fileName"],
  ])(`of %s with %j reach no store ${verifies("OSS-1", "SVCERR-1")}`, async (tool, args, param) => {
    const error = await failed(tool, args);
    expect(error).toMatchObject({ status: 400, code: "invalid_arguments", param });
    expect(store.requests).toEqual([]);
  });

  test(`what is missing is said to be missing ${verifies("SVCERR-1")}`, async () => {
    expect(await failed("load", { key: "no.txt" })).toMatchObject({
      status: 404,
      code: "object_not_found",
      param: "key",
    });
    expect(await failed("save", { key: "a", fromFile: "no.txt" })).toMatchObject({
      status: 404,
      code: "file_not_found",
    });
    expect(await failed("save", { key: "a", fromResult: "call_none" })).toMatchObject({
      status: 404,
      code: "not_found",
    });
    expect([...store.objects.keys()]).toEqual([]);
  });

  test(`a prefix is where the service ends ${verifies("OSS-1")}`, async () => {
    await addService({}, "whole");
    await done("save", { key: "team-b/secret", content: "theirs" }, "oss://whole/save");
    await done("save", { key: "x", content: "ours" });
    await done("save", { key: "team-a/", content: "" }, "oss://whole/save");
    expect(stored("team-a/x")?.toString()).toBe("ours");
    expect((await done("list", {})).objects.map(({ key }: Json) => key)).toEqual(["x"]);
    expect(await failed("load", { key: "team-b/secret" })).toMatchObject({ code: "object_not_found" });
  });

  test("an object that is there stays where 'ifAbsent' says so", async () => {
    await done("save", { key: "x", content: "first", ifAbsent: true });
    expect(await failed("save", { key: "x", content: "second", ifAbsent: true })).toMatchObject({
      status: 409,
      code: "conflict",
      param: "ifAbsent",
    });
    expect(stored("team-a/x")?.toString()).toBe("first");
  });
});

describe(`bytes go by handle ${verifies("OSS-1")}`, () => {
  beforeEach(() => addService());

  test("of a file of the session, in parts and without being held", async () => {
    const bytes = randomBytes(20 * 1_024 ** 2 + 3);
    await putFile("big.bin", bytes);
    const saved = await done("save", { key: "big.bin", fromFile: "big.bin" });
    expect(saved).toMatchObject({ size: bytes.byteLength, contentType: "application/octet-stream" });
    expect(stored("big.bin")?.equals(bytes)).toBe(true);
    expect(Math.max(...store.requests.map(({ body }) => body.byteLength))).toBe(8 * 1_024 ** 2);

    const tooLarge = await failed("load", { key: "big.bin" });
    expect(tooLarge).toMatchObject({ code: "tool_output_too_large" });
    expect(tooLarge.message).toContain("'toFile'");
    expect(await done("load", { key: "big.bin", toFile: "back/big.bin" })).toMatchObject({
      file: "back/big.bin",
      bytes: bytes.byteLength,
      replaced: false,
    });
    expect((await getFile("back/big.bin")).equals(bytes)).toBe(true);
  });

  test("of an earlier result", async () => {
    const bytes = Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47]), randomBytes(50_000)]);
    await done("save", {
      key: "a.png",
      content: bytes.toString("base64"),
      encoding: "base64",
      contentType: "image/png",
    });
    const { json } = await invoke("load", { key: "a.png" });
    expect(json).toMatchObject({ handle: { bytes: bytes.byteLength, media_type: "image/png" } });
    expect(json.content).toMatch(/^\[binary result: image\/png, 50004 bytes; /);
    expect(JSON.parse(json.content.split("\n")[1])).toMatchObject({
      key: "a.png",
      size: 50_004,
      contentType: "image/png",
    });
    await done("save", { key: "copy.png", fromResult: json.id });
    expect(store.objects.get("copy.png")).toMatchObject({ headers: { "content-type": "image/png" } });
    expect(stored("copy.png")?.equals(bytes)).toBe(true);
    const stranger = await tenant.newKey();
    const theirs = { uri: "oss://sample-bucket/save", arguments: { key: "stolen", fromResult: json.id } };
    expect((await stranger.client.send("post", "/v1/tools/invoke", theirs)).json.error).toMatchObject({
      code: "not_found",
    });
  });

  test("of a file that does not fit, which leaves nothing behind", async () => {
    await done("save", { key: "a", content: "x".repeat(20_000) });
    session = newId("session");
    const small = await gateway.newTenant({ workspace_bytes: 10_000 });
    await small.client.post("/v1/tool-services", {
      scheme: "oss",
      service_id: "sample-bucket",
      config: configOf(store),
    });
    const call = { uri: "oss://sample-bucket/load", arguments: { key: "a", toFile: "a" }, session_id: session };
    const { json } = await small.client.send("post", "/v1/tools/invoke", call);
    expect(json.error).toMatchObject({ code: "workspace_full" });
    expect((await small.client.send("get", `/v1/sessions/${session}/files/a`)).status).toBe(404);
  });
});

describe.each(Object.keys(vendors) as readonly Vendor[])(`%s through the gateway ${verifies("OSS-2")}`, (vendor) => {
  test("saves, loads, lists and deletes without what the vendor refuses", async () => {
    const bucket = vendor === "tencent_cos" ? "sample-1250000000" : "sample";
    const theirs = await startVendorStore(vendor, bucket);
    const addressing = vendor === "minio" ? "path" : "custom_domain";
    const config = configOf(theirs, { vendor, addressing });
    const made = await tenant.client.post("/v1/tool-services", { scheme: "oss", service_id: "v", config });
    expect(await tenant.client.post(`/v1/tool-services/${made.id}/test`)).toMatchObject({
      ok: true,
      detail: expect.stringContaining(vendors[vendor].title),
    });
    const at = (tool: string): string => `oss://v/${tool}`;
    const large = randomBytes(6 * 1_024 ** 2);
    await done("save", { key: "files/doc.txt", content: "hello 你好", contentType: "text/plain" }, at("save"));
    await done(
      "save",
      { key: "b", content: Buffer.from([0, 1, 2]).toString("base64"), encoding: "base64" },
      at("save"),
    );
    await putFile("large", large);
    await done("save", { key: "large", fromFile: "large" }, at("save"));
    expect(theirs.objects.get("files/doc.txt")?.body.toString()).toBe("hello 你好");
    expect(theirs.objects.get("b")?.body).toEqual(Buffer.from([0, 1, 2]));
    expect(theirs.objects.get("large")?.body.equals(large)).toBe(true);
    expect((await done("load", { key: "files/doc.txt" }, at("load"))).content).toBe("hello 你好");
    const page = await done("list", { maxKeys: 2 }, at("list"));
    const rest = await done("list", { maxKeys: 2, continuationToken: page.continuationToken }, at("list"));
    expect([...page.objects, ...rest.objects].map(({ key }: Json) => key)).toEqual(["b", "files/doc.txt", "large"]);
    const { url } = await done("presign", { key: "files/doc.txt" }, at("presign"));
    expect((await fetch(url)).status).toBe(200);
    await done("delete", { key: "b" }, at("delete"));
    await done("delete", { keys: ["files/doc.txt", "large"] }, at("delete"));
    expect(theirs.objects.size).toBe(0);
    await theirs.close();
  });
});

describe(`configurations ${verifies("CFG-1", "OSS-2")}`, () => {
  test.each([
    [{ vendor: "dropbox" }, "config.vendor", "aliyun_oss"],
    [{ bucket: "Not_A_Bucket" }, "config.bucket", "lower-case"],
    [{ vendor: "tencent_cos" }, "config.bucket", "APPID"],
    [{ vendor: "aws_s3", region: undefined }, "config.region", "required for AWS S3"],
    [{ vendor: "aliyun_oss", region: "oss-cn-hangzhou" }, "config.region", "write 'cn-hangzhou'"],
    [{ endpoint: undefined }, "config.endpoint", "required for MinIO"],
    [
      { vendor: "aws_s3", endpoint: "https://sample-bucket.s3.eu-west-1.amazonaws.com" },
      "config.endpoint",
      "leave the bucket out",
    ],
    [{ vendor: "aws_s3", endpoint: undefined, addressing: "custom_domain" }, "config.endpoint", "the bucket's domain"],
    [{ endpoint: "http://store.example/?x=1" }, "config.endpoint", "query"],
    [{ addressing: "virtual", endpoint: "http://10.0.0.5:9000" }, "config.endpoint", "must not be an IP address"],
    [{ addressing: "virtual", endpoint: "http://[fd00::1]:9000" }, "config.endpoint", "must not be an IP address"],
    [{ endpoint: "ftp://store.example" }, "config.endpoint", "http"],
    [{ vendor: "aliyun_oss", addressing: "path" }, "config.addressing", "refuses buckets in paths"],
    [{ prefix: "../other" }, "config.prefix", "'..'"],
    [{ secret_access_key: undefined }, "config.secret_access_key", ""],
    [{ colour: "red" }, "config.colour", "not a known field"],
  ])("with %j are refused, naming the field", async (change, param, why) => {
    const service = { scheme: "oss", service_id: "bad", config: configOf(store, change) };
    const { status, json } = await tenant.client.send("post", "/v1/tool-services", service);
    expect([status, json.error.code, json.error.param]).toEqual([400, "invalid_definition", param]);
    expect(json.error.message).toContain(why);
  });

  test("have a form for pickers", async () => {
    const { data } = await tenant.client.get("/v1/tool-services/schemes");
    const { fields, title } = data.find(({ scheme }: Json) => scheme === "oss");
    const types = Object.fromEntries(fields.map(({ name, type }: Json) => [name, type]));
    expect(title).toBe("Object storage");
    expect(types).toMatchObject({
      vendor: "choice",
      bucket: "text",
      region: "text",
      endpoint: "url",
      addressing: "choice",
      access_key_id: "secret",
      secret_access_key: "secret",
      session_token: "secret",
      prefix: "text",
      max_attempts: "number",
    });
    const required = fields.filter((field: Json) => field.required).map(({ name }: Json) => name);
    expect(required).toEqual(["vendor", "bucket", "access_key_id", "secret_access_key"]);
    expect(fields.every(({ description }: Json) => typeof description === "string")).toBe(true);
  });

  test("do not lead to where nobody may go", async () => {
    const service = {
      scheme: "oss",
      service_id: "bad",
      config: configOf(store, { endpoint: "http://169.254.169.254" }),
    };
    const { json } = await tenant.client.send("post", "/v1/tool-services", service);
    expect(json.error).toMatchObject({ code: "egress_denied", param: "config.endpoint" });
  });

  test("with wrong keys are told so by a test, and by calls", async () => {
    const unknown = await addService({ access_key_id: "AKIANOBODY" }, "unknown");
    expect(await tenant.client.post(`/v1/tool-services/${unknown.id}/test`)).toMatchObject({
      ok: false,
      error: { code: "credential_invalid", param: "config.access_key_id" },
    });
    const { id } = await addService({ secret_access_key: "not-the-secret" });
    expect(await tenant.client.post(`/v1/tool-services/${id}/test`)).toMatchObject({
      ok: false,
      detail: expect.stringContaining("config.secret_access_key"),
      error: { code: "credential_invalid", param: "config.secret_access_key" },
    });
    const error = await failed("list", {});
    expect(error).toMatchObject({ code: "tool_failed", reason: "SignatureDoesNotMatch" });
    expect(JSON.stringify(error)).not.toContain(store.url);
  });

  test("refer to credentials, new values of which count at once", async () => {
    await tenant.putCredential("STORE_ID", "AKIANOBODY");
    await tenant.putCredential("STORE_SECRET", "of nobody");
    await addService({ access_key_id: { credential: "STORE_ID" }, secret_access_key: { credential: "STORE_SECRET" } });
    expect(await failed("list", {})).toMatchObject({ code: "credential_invalid" });
    await tenant.putCredential("STORE_ID", store.credentials.accessKeyId);
    await tenant.putCredential("STORE_SECRET", ` ${store.credentials.secretAccessKey} `);
    expect((await done("list", {})).objects).toEqual([]);
  });

  test("with temporary keys sign the token, which shows in links only", async () => {
    await addService({ session_token: "sentinel/session+token" });
    await done("save", { key: "a", content: "sentinel/session+token" });
    expect(store.requests.at(-1)?.headers["x-amz-security-token"]).toBe("sentinel/session+token");
    expect((await done("load", { key: "a" })).content).toBe("[redacted]");
    const { url } = await done("presign", { key: "a" });
    expect(new URL(url).searchParams.get("X-Amz-Security-Token")).toBe("sentinel/session+token");
  });

  test("name other addresses for readers and for links", async () => {
    await addService({ public_url: "https://cdn.example.com/files/", presign_endpoint: "https://store.example.com" });
    expect((await done("save", { key: "a b", content: "x" })).url).toBe("https://cdn.example.com/files/a%20b");
    const { url } = await done("presign", { key: "a b" });
    expect(url).toMatch(/^https:\/\/store\.example\.com\/sample-bucket\/a%20b\?/);
  });
});

describe("what stores answer", () => {
  beforeEach(() => addService());
  const refuse = (status: number, code: string, headers: Record<string, string> = {}): void => {
    const body = `<Error><Code>${code}</Code><Message>At ${store.credentials.secretAccessKey}.</Message></Error>`;
    store.faults.push({ kind: "reply", reply: { status, headers, body } });
  };

  test("when it is busy is asked for again, also of writes", async () => {
    refuse(503, "SlowDown");
    await done("save", { key: "a", content: "x" });
    expect(store.requests.map(({ method }) => method)).toEqual(["PUT", "PUT"]);
    expect(stored("a")?.toString()).toBe("x");
  });

  test("of a write that was cut off is asked for again", async () => {
    store.faults.push({ kind: "lost" });
    await done("save", { key: "a", content: "x", ifAbsent: true });
    expect(stored("a")?.toString()).toBe("x");
  });

  test("of another region names the region, and no secret", async () => {
    refuse(301, "PermanentRedirect", { "x-amz-bucket-region": "eu-central-1" });
    const error = await failed("load", { key: "a" });
    expect(error).toMatchObject({ code: "tool_failed", region: "eu-central-1" });
    expect(error.message).toContain("'config.region'");
    expect(JSON.stringify(error)).not.toContain(store.credentials.secretAccessKey);
  });
});

describe(`in a chat ${verifies("OSS-1")}`, () => {
  let llm: LlmStub;
  beforeAll(async () => {
    llm = await startLlmStub();
  });
  afterAll(() => llm.close());

  test("a model saves, and reads what it saved", async () => {
    await addService();
    await tenant.addProvider(llm.url);
    llm.script(
      calls({ name: "oss_sample-bucket__save", arguments: { key: "notes/今日.md", content: "记得" } }),
      calls({ name: "oss_sample-bucket__load", arguments: { key: "notes/今日.md" } }),
      text("done"),
    );
    const body = { model: "stub-1", messages: [{ role: "user", content: "note it" }] };
    const answer = await tenant.client.post("/v1/chat/completions", body);
    expect(answer.choices[0].message.content).toBe("done");
    const messages = (llm.requests.at(-1)?.["messages"] ?? []) as Json[];
    const [saved, loaded] = messages
      .filter(({ role }) => role === "tool")
      .map(({ content }): Json => JSON.parse(content));
    expect(saved).toMatchObject({ key: "notes/今日.md", size: 6 });
    expect(loaded).toMatchObject({ key: "notes/今日.md", content: "记得" });
    expect(JSON.stringify(llm.requests)).not.toContain(store.credentials.secretAccessKey);
  });
});
