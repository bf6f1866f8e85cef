/** The one client against each vendor's store, as that vendor has it: what it refuses is refused here. */
import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startVendorStore, type VendorStore } from "../../../../test/support/vendor-stores.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress } from "../ports/egress.ts";
import { readAll } from "../ports/blob-store.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { isPassing } from "../tools/policy.ts";
import { addressOf, type BucketPlace } from "./bucket-address.ts";
import { deleteObject, deleteObjects, getObject, headObject, listObjects, type ListPosition } from "./objects.ts";
import { S3Client } from "./s3-client.ts";
import { uploadObject, type Upload, type UploadSource } from "./upload.ts";
import { profileOf, vendors, type Vendor } from "./vendors.ts";

const partBytes = 5 * 1_024 ** 2;
const vendorNames = Object.keys(vendors) as readonly Vendor[];
const bucketOf = (vendor: Vendor): string => (vendor === "tencent_cos" ? "photos-1250000000" : "photos");

let egress: Egress;
beforeAll(() => {
  const here = [{ address: "127.0.0.1", family: 4 }];
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"], resolve: () => Promise.resolve(here) });
});
afterAll(() => egress.close());

interface Opened {
  readonly client: S3Client;
  readonly store: VendorStore;
}

function open(
  store: VendorStore,
  vendor: Vendor,
  change: Partial<BucketPlace> & { readonly now?: () => number; readonly signal?: AbortSignal } = {},
): S3Client {
  const { now = Date.now, signal, ...place } = change;
  const endpoint = `http://${store.domain}:${store.port}`;
  const address = addressOf({ vendor, bucket: store.bucket, region: store.region, endpoint, ...place });
  return new S3Client({
    egress,
    address,
    region: place.region ?? store.region,
    keys: store.credentials,
    sending: { timeoutMs: 20_000, ...(signal === undefined ? {} : { signal }) },
    toolName: "oss_photos__tool",
    redact: (text) => text,
    now,
  });
}

const ref = (key: string): { readonly key: string; readonly named: string } => ({ key, named: key });

function upload(key: string, body: UploadSource["body"], ifAbsent?: string): Upload {
  const condition = ifAbsent === undefined ? undefined : { mark: ifAbsent };
  const source = { body, contentType: "text/plain; charset=utf-8" };
  return { ...ref(key), open: () => Promise.resolve(source), ifAbsent: condition };
}

async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  const error: unknown = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof GatewayError) return error;
  throw error instanceof Error ? error : new Error("it did not fail");
}

describe.each(vendorNames)(`%s ${verifies("OSS-1", "OSS-2")}`, (vendor) => {
  const options = { profile: profileOf(vendor), partBytes };
  const { listing } = profileOf(vendor);
  let opened: Opened;
  beforeEach(async () => {
    const store = await startVendorStore(vendor, bucketOf(vendor));
    opened = { store, client: open(store, vendor) };
  });
  afterEach(() => opened.store.close());

  test("keeps text byte for byte, with its type, and gives it back", async () => {
    const { client, store } = opened;
    const bytes = Buffer.from("hello 你好");
    const { size, etag } = await uploadObject(client, upload("files/文 档+1.txt", bytes), options);
    expect([size, etag]).toEqual([bytes.byteLength, expect.stringMatching(/^[0-9a-f]{32}$/)]);
    expect(store.objects.get("files/文 档+1.txt")?.body).toEqual(bytes);
    const { info, response } = await getObject(client, ref("files/文 档+1.txt"));
    expect(Buffer.from(await readAll(response.body))).toEqual(bytes);
    expect(info).toMatchObject({ size: bytes.byteLength, contentType: "text/plain; charset=utf-8", etag });
  });

  test("sends bodies whole: with a length, an MD5 and a SHA-256, without chunks, checksums and ACLs", async () => {
    const { client, store } = opened;
    await uploadObject(client, upload("a", inPieces(randomBytes(300_000), 1_000)), options);
    const headers = store.requests.at(-1)?.headers ?? {};
    expect(headers).toMatchObject({
      "content-length": "300000",
      "content-md5": expect.any(String),
      "x-amz-content-sha256": expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(Object.keys(headers).filter((name) => /transfer|checksum|trailer|acl|content-encoding/.test(name))).toEqual(
      [],
    );
  });

  test("takes large bodies in parts, of which it keeps no rest", async () => {
    const { client, store } = opened;
    const bytes = randomBytes(partBytes + 17);
    const { size } = await uploadObject(client, upload("large", inPieces(bytes, 700_000)), options);
    expect(size).toBe(bytes.byteLength);
    expect(store.objects.get("large")?.body.equals(bytes)).toBe(true);
    expect(store.uploads.size).toBe(0);
  });

  test("clears away parts of a body that broke off", async () => {
    const { client, store } = opened;
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield randomBytes(partBytes + 1);
      throw new Error("the source broke");
    }
    await expect(uploadObject(client, upload("large", broken()), options)).rejects.toThrow("the source broke");
    expect([store.uploads.size, store.objects.size]).toEqual([0, 0]);
  });

  test("does not overwrite where it must not, and knows its own object again", async () => {
    const { client, store } = opened;
    await uploadObject(client, upload("a", Buffer.from("mine"), "call_1"), options);
    const again = await uploadObject(client, upload("a", Buffer.from("mine"), "call_1"), options);
    expect(again.size).toBe(4);
    const error = await failureOf(uploadObject(client, upload("a", Buffer.from("other"), "call_2"), options));
    expect([error.code, deliveryOf(error)]).toEqual(["conflict", "answered"]);
    expect(store.objects.get("a")?.body.toString()).toBe("mine");
    await uploadObject(client, upload("a", Buffer.from("newer")), options);
    expect(store.objects.get("a")?.body.toString()).toBe("newer");
  });

  test("takes a write whose answer was lost for done when it is repeated", async () => {
    const { client, store } = opened;
    store.faults.push({ kind: "lost", when: ({ method }) => method === "PUT" });
    const error = await failureOf(uploadObject(client, upload("a", Buffer.from("mine"), "call_1"), options));
    expect([error.code, deliveryOf(error)]).toEqual(["tool_unreachable", "uncertain"]);
    expect((await uploadObject(client, upload("a", Buffer.from("mine"), "call_1"), options)).size).toBe(4);
  });

  test("lists page by page, by keys with all kinds of characters", async () => {
    const { client } = opened;
    const keys = [
      "files/a b.txt",
      "files/a+b.txt",
      "files/a&<b>.txt",
      "files/%41.txt",
      "files/文档.txt",
      "files/z/1",
      "other",
    ];
    for (const key of keys) await uploadObject(client, upload(key, Buffer.from(key)), options);
    const found: string[] = [];
    let from: ListPosition | undefined;
    do {
      const page = await listObjects(client, { prefix: "files/", maxKeys: 2, from }, listing);
      found.push(...page.objects.map(({ key }) => key));
      expect(page.objects.length).toBeLessThanOrEqual(2);
      from = page.next;
    } while (from !== undefined);
    expect(found.toSorted()).toEqual(keys.slice(0, -1).toSorted());
    const page = await listObjects(client, { prefix: "files/", maxKeys: 1_000, delimiter: "/" }, listing);
    expect(page.prefixes).toEqual(["files/z/"]);
    expect(page.objects[0]).toMatchObject({ size: expect.any(Number), lastModified: expect.stringMatching(/Z$/) });
  });

  test("pages through directories as through keys", async () => {
    const { client } = opened;
    for (const key of ["a/1", "a/2", "b", "c/1"]) await uploadObject(client, upload(key, Buffer.from("")), options);
    const found: string[] = [];
    let from: ListPosition | undefined;
    do {
      const page = await listObjects(client, { prefix: "", maxKeys: 1, delimiter: "/", from }, listing);
      found.push(...page.prefixes, ...page.objects.map(({ key }) => key));
      from = page.next;
    } while (from !== undefined);
    expect(found).toEqual(["a/", "b", "c/"]);
  });

  test("deletes one and many, and says which were left", async () => {
    const { client, store } = opened;
    for (const key of ["a", "b & <c>", "d.locked"]) await uploadObject(client, upload(key, Buffer.from("x")), options);
    await deleteObject(client, ref("a"));
    await deleteObject(client, ref("never there"));
    expect(await deleteObjects(client, ["b & <c>", "d.locked", "never there"].map(ref))).toEqual([
      { key: "d.locked", reason: "AccessDenied", message: "Access Denied" },
    ]);
    expect([...store.objects.keys()]).toEqual(["d.locked"]);
  });

  test("reads a range", async () => {
    const { client } = opened;
    await uploadObject(client, upload("a", Buffer.from("0123456789")), options);
    const { info, response } = await getObject(client, ref("a"), { offset: 2, length: 3 });
    expect(Buffer.from(await readAll(response.body)).toString()).toBe("234");
    expect(info.size).toBe(10);
    expect((await failureOf(getObject(client, ref("a"), { offset: 99 }))).code).toBe("invalid_arguments");
  });

  test("says that an object is missing", async () => {
    const { client } = opened;
    const error = await failureOf(getObject(client, ref("files/no.txt")));
    expect([error.code, deliveryOf(error)]).toEqual(["object_not_found", "answered"]);
    expect(error.message).toContain("'files/no.txt'");
    expect(await headObject(client, ref("files/no.txt"))).toBeUndefined();
  });

  test("answers links for reading and for storing, without a key", async () => {
    const { client, store } = opened;
    await uploadObject(client, upload("a b", Buffer.from("linked")), options);
    const got = await followed(client.presign({ method: "GET", ...ref("a b") }, 60));
    expect(got).toBe("200 linked");
    const headers = [["content-type", "image/png"]] as const;
    const link = client.presign({ method: "PUT", ...ref("new"), headers }, 60);
    expect(await followed(link, { method: "PUT", headers, body: "pixels" })).toMatch(/^200/);
    expect(store.objects.get("new")).toMatchObject({ headers: { "content-type": "image/png" } });
    expect(await followed(link, { method: "PUT", headers: [["content-type", "text/html"]], body: "x" })).toMatch(
      /^403/,
    );
  });

  test("is asked again with its own time where the clocks differ", async () => {
    const { store } = opened;
    const slow = open(store, vendor, { now: () => Date.now() - 3_600_000 });
    await uploadObject(slow, upload("a", Buffer.from("x")), options);
    expect(store.requests).toHaveLength(2);
    expect(store.objects.has("a")).toBe(true);
  });

  test("says what it refuses, and with what it may be asked again", async () => {
    const { client, store } = opened;
    const body = (code: string): string =>
      `<?xml version="1.0"?><Error><Code>${code}</Code><Message>No.</Message></Error>`;
    const refusedWith = async (
      status: number,
      code: string,
      headers: Record<string, string> = {},
    ): Promise<GatewayError> => {
      store.faults.push({ kind: "reply", reply: { status, headers, body: body(code) } });
      return failureOf(getObject(client, ref("a")));
    };
    const slow = await refusedWith(503, "SlowDown", { "retry-after": "2" });
    expect([slow.code, isPassing(slow), slow.details.retryAfterMs]).toEqual(["tool_failed", true, 2_000]);
    expect(isPassing(await refusedWith(400, "RequestTimeout"))).toBe(true);
    const denied = await refusedWith(403, "AccessDenied");
    expect([denied.code, isPassing(denied)]).toEqual(["tool_failed", false]);
    expect(denied.message).toMatch(/403 AccessDenied \(No\.\); check what the access key may do/);
    const moved = await refusedWith(301, "PermanentRedirect", { "x-amz-bucket-region": "eu-central-1" });
    expect(moved.message).toContain("the bucket is in region 'eu-central-1'; set 'config.region' to it");
    expect(moved.details.extra).toMatchObject({ status: 301, reason: "PermanentRedirect", region: "eu-central-1" });
    expect((await refusedWith(307, "TemporaryRedirect")).message).toContain("config.region");
    expect((await refusedWith(404, "NoSuchBucket")).message).toContain("config.bucket");
  });
});

interface Following {
  readonly method: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

async function followed(url: string, request?: Following): Promise<string> {
  const sent = request ?? { method: "GET", headers: [] };
  const { status, body } = await egress.request({ ...sent, url, timeoutMs: 5_000 });
  return `${status} ${Buffer.from(await readAll(body)).toString()}`;
}

describe(`addresses ${verifies("OSS-2")}`, () => {
  test.each([
    ["aws_s3", { region: "eu-west-1" }, "https://photos.s3.eu-west-1.amazonaws.com"],
    ["aws_s3", { region: "cn-north-1" }, "https://photos.s3.cn-north-1.amazonaws.com.cn"],
    [
      "aws_s3",
      { region: "eu-west-1", bucket: "photos.example.com" },
      "https://s3.eu-west-1.amazonaws.com/photos.example.com",
    ],
    ["aliyun_oss", { region: "cn-hangzhou" }, "https://photos.s3.oss-cn-hangzhou.aliyuncs.com"],
    ["tencent_cos", { region: "ap-guangzhou" }, "https://photos.cos.ap-guangzhou.myqcloud.com"],
    ["huawei_obs", { region: "cn-north-4" }, "https://photos.obs.cn-north-4.myhuaweicloud.com"],
    ["minio", { endpoint: "http://minio.local:9000/" }, "http://minio.local:9000/photos"],
    ["minio", { endpoint: "https://x.example/storage/v1/s3" }, "https://x.example/storage/v1/s3/photos"],
    ["aliyun_oss", { endpoint: "https://cdn.example.com", addressing: "custom_domain" }, "https://cdn.example.com"],
  ] as const)("of %s with %o", (vendor, change, address) => {
    const { origin, basePath } = addressOf({ vendor, bucket: "photos", region: "", ...change });
    expect(origin + basePath).toBe(address);
  });

  test.each(["aliyun_oss", "tencent_cos"] as const)(
    "%s refuses a bucket in the path, and is said to",
    async (vendor) => {
      const store = await startVendorStore(vendor, bucketOf(vendor));
      const client = open(store, vendor, { addressing: "path" });
      const error = await failureOf(getObject(client, ref("a")));
      expect(error.message).toContain("set 'config.addressing' to 'virtual'");
      await store.close();
    },
  );
});

test("a store that goes round in circles is not followed", async () => {
  const store = await startVendorStore("huawei_obs", "photos");
  const client = open(store, "huawei_obs");
  const body =
    "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>";
  store.faults.push({ kind: "reply", reply: { status: 200, body } });
  const error = await failureOf(listObjects(client, { prefix: "", maxKeys: 1, from: { after: "a" } }, 1));
  expect(error.message).toContain("lists the same keys again");
  await store.close();
});

test("an upload that is given up leaves no parts behind", async () => {
  const store = await startVendorStore("aws_s3", "photos");
  const controller = new AbortController();
  const client = open(store, "aws_s3", { signal: controller.signal });
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (let sent = 0; sent < 40; sent += 1) {
      yield randomBytes(1_024 ** 2);
      if (store.requests.some(({ query }) => query.has("partNumber"))) controller.abort();
    }
  }
  const error = await failureOf(
    uploadObject(client, upload("large", endless()), { profile: profileOf("aws_s3"), partBytes }),
  );
  expect(error.code).toBe("call_cancelled");
  expect([store.uploads.size, store.objects.size]).toEqual([0, 0]);
  await store.close();
});

test("an error that comes after the status of a completed upload is an error", async () => {
  const store = await startVendorStore("aws_s3", "photos");
  const client = open(store, "aws_s3");
  const body = "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>";
  const when = ({ method, query }: { readonly method: string; readonly query: URLSearchParams }): boolean =>
    method === "POST" && query.has("uploadId");
  store.faults.push({ kind: "reply", when, reply: { status: 200, body } });
  const large = upload("large", inPieces(randomBytes(partBytes + 1), 500_000));
  const error = await failureOf(uploadObject(client, large, { profile: profileOf("aws_s3"), partBytes }));
  expect([error.code, isPassing(error), error.details.extra?.["reason"]]).toEqual([
    "tool_failed",
    true,
    "InternalError",
  ]);
  expect(store.uploads.size).toBe(0);
  await store.close();
});
