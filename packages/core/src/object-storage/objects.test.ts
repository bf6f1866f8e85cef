/** What becomes of answers that are not what a store was asked for (OSS-1, OSS-2). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Egress, EgressRequest, EgressResponse } from "../ports/egress.ts";
import { readAll } from "../ports/blob-store.ts";
import { deleteObjects, getObject, listObjects, type ByteRange } from "./objects.ts";
import { S3Client } from "./s3-client.ts";
import { bucketTools, type BucketRun } from "./tools.ts";
import { uploadObject } from "./upload.ts";
import { profileOf, type Vendor } from "./vendors.ts";

const address = { origin: "https://photos.example.com", host: "photos.example.com", basePath: "" };
const ref = { key: "a.txt", named: "a.txt" };

interface Answer {
  readonly status?: number;
  readonly headers?: EgressResponse["headers"];
  readonly body: AsyncIterable<Uint8Array>;
}

/** A bucket that gives the same answer to everything. */
function bucketThat({ status = 200, headers = {}, body }: Answer): { client: S3Client; asked: EgressRequest[] } {
  const asked: EgressRequest[] = [];
  const egress = {
    request: (request: EgressRequest) => {
      asked.push(request);
      return Promise.resolve({ status, headers, body, url: request.url, trailers: () => ({}) });
    },
  } as unknown as Egress;
  const client = new S3Client({
    egress,
    address,
    region: "eu",
    keys: { accessKeyId: "id", secretAccessKey: "secret" },
    sending: { timeoutMs: 1_000 },
    toolName: "oss_photos__load",
    redact: (text) => text,
    now: Date.now,
  });
  return { client, asked };
}

async function* pieces(...texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

const whole = { headers: { "content-length": "10", "content-type": "text/plain" } };

describe(`a store that answers a range with the whole object ${verifies("OSS-1", "OSS-2")}`, () => {
  test.each<[ByteRange, string]>([
    [{ offset: 2, length: 3 }, "234"],
    [{ offset: 8, length: 50 }, "89"],
    [{ offset: 5 }, "56789"],
    [{ offset: 0, length: 1 }, "0"],
  ])("gets %j cut out of it", async (range, expected) => {
    const { client } = bucketThat({ ...whole, body: pieces("0123", "456", "789") });
    const { info, response } = await getObject(client, ref, range);
    expect(Buffer.from(await readAll(response.body)).toString()).toBe(expected);
    expect([info.size, response.headers["content-length"]]).toEqual([10, undefined]);
  });

  test("has nothing beyond its end", async () => {
    const { client } = bucketThat({ ...whole, body: pieces("0123456789") });
    const { response } = await getObject(client, ref, { offset: 10, length: 5 });
    await expect(readAll(response.body)).rejects.toMatchObject({
      code: "invalid_arguments",
      details: { param: "offset" },
    });
  });

  test("is read from its beginning although it has no bytes", async () => {
    const { client } = bucketThat({ ...whole, body: pieces() });
    const { response } = await getObject(client, ref, { offset: 0, length: 5 });
    expect(await readAll(response.body)).toHaveLength(0);
  });

  test("is closed where nobody reads it", async () => {
    let isClosed = false;
    const { client } = bucketThat({
      ...whole,
      body: {
        [Symbol.asyncIterator]: () => ({
          next: () => Promise.reject(new Error("nobody reads it")),
          return: () => {
            isClosed = true;
            return Promise.resolve({ done: true, value: undefined });
          },
        }),
      },
    });
    const { response } = await getObject(client, ref, { offset: 5 });
    await response.body[Symbol.asyncIterator]().return?.();
    expect(isClosed).toBe(true);
  });

  test.each<[Vendor, string | undefined]>([
    ["aliyun_oss", "standard"],
    ["aws_s3", undefined],
  ])("is told by %s how to take one: %s", async (vendor, expected) => {
    const { client, asked } = bucketThat({ ...whole, status: 206, body: pieces("89") });
    const load = bucketTools.find(({ id }) => id === "load");
    const run = {
      client,
      profile: profileOf(vendor),
      rules: { prefix: "", keyBytes: 1_023 },
      address,
      call: { tool: { name: "oss_photos__load" } },
      context: { config: { settings: { result_max_bytes: 1_000 } }, redactor: { redact: (text: string) => text } },
    } as unknown as BucketRun;
    await load?.run({ key: "a.txt", offset: 8, length: 50 }, run);
    const headers = new Map(asked[0]?.headers);
    expect([headers.get("range"), headers.get("x-oss-range-behavior")]).toEqual(["bytes=8-57", expected]);
    expect(headers.get("authorization")?.includes("x-oss-range-behavior")).toBe(expected !== undefined);
  });
});

describe(`a store that lists more than it was asked for ${verifies("OSS-1")}`, () => {
  test.each(["<Contents><Key>a</Key></Contents>", "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"])(
    "is refused: %s",
    async (entry) => {
      const xml = `<ListBucketResult><IsTruncated>true</IsTruncated>${entry.repeat(3)}</ListBucketResult>`;
      const listed = listObjects(bucketThat({ body: pieces(xml) }).client, { prefix: "", maxKeys: 2 }, 2);
      await expect(listed).rejects.toMatchObject({ code: "tool_failed", message: expect.stringContaining("2 keys") });
    },
  );
});

describe(`an answer to something else ${verifies("OSS-1")}`, () => {
  const services = "<?xml version='1.0'?>\n<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>";
  const page = "<!DOCTYPE html><html><body>Welcome to <a>ListBucketResult</a></body></html>";
  const open = (): Promise<{ body: Uint8Array; contentType: string }> =>
    Promise.resolve({ body: Buffer.alloc(30), contentType: "text/plain" });

  test.each<[string, (client: S3Client) => Promise<unknown>, string]>([
    ["a list", (client) => listObjects(client, { prefix: "", maxKeys: 2 }, 2), services],
    ["a list", (client) => listObjects(client, { prefix: "", maxKeys: 2 }, 1), page],
    ["what was deleted", (client) => deleteObjects(client, [ref]), page],
    [
      "the beginning of an upload",
      (client) => uploadObject(client, { ...ref, open }, { profile: profileOf("aws_s3"), partBytes: 10 }),
      page,
    ],
  ])("is not taken for %s", async (_what, ask, body) => {
    const { client } = bucketThat({ body: pieces(body) });
    await expect(ask(client)).rejects.toMatchObject({
      code: "tool_failed",
      message: expect.stringContaining("check 'config.endpoint', 'config.bucket' and 'config.addressing'"),
    });
  });

  test("is none where nothing is said of keys that were deleted", async () => {
    expect(await deleteObjects(bucketThat({ body: pieces() }).client, [ref])).toEqual([]);
  });
});

describe(`a store that takes no upload in parts ${verifies("OSS-1")}`, () => {
  test("has its source closed", async () => {
    let isClosed = false;
    async function* source(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield Buffer.alloc(100_000);
      } finally {
        isClosed = true;
      }
    }
    const { client } = bucketThat({ status: 403, body: pieces("<Error><Code>AccessDenied</Code></Error>") });
    const open = (): Promise<{ body: AsyncIterable<Uint8Array>; contentType: string }> =>
      Promise.resolve({ body: source(), contentType: "text/plain" });
    const options = { profile: profileOf("aws_s3"), partBytes: 200_000 };
    await expect(uploadObject(client, { ...ref, open }, options)).rejects.toMatchObject({ code: expect.any(String) });
    expect(isClosed).toBe(true);
  });
});

describe(`an address at which there is no store ${verifies("OSS-1")}`, () => {
  test.each([
    ["PUT", "tool_failed", /answered 404; check 'config.bucket', 'config.endpoint'/],
    ["GET", "object_not_found", /There is no object 'a.txt'/],
  ] as const)("has nothing missing of what is to be written, only its place (%s)", async (method, code, said) => {
    const { client } = bucketThat({ status: 404, body: pieces("Not Found") });
    await expect(client.send({ method, ...ref })).rejects.toMatchObject({
      code,
      message: expect.stringMatching(said),
    });
  });
});
