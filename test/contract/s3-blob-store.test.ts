/** Blobs in S3, by the real client, against a server that keeps S3's rules; then with what goes wrong on the way. */
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { readAll, type BlobStore } from "@toolyard/core/ports/blob-store";
import { createS3BlobStore } from "@toolyard/platform/aws/s3-blob-store";
import { afterAll, describe, expect, test } from "vitest";
import type { AwsFault, AwsRequest } from "../support/aws/aws-server.ts";
import { newSigner } from "../support/aws/aws-server.ts";
import { startS3Server, type S3Server } from "../support/aws/s3-server.ts";
import { describeBlobStore } from "./blob-store.ts";

const closing: S3Server[] = [];
afterAll(() => Promise.all(closing.map((server) => server.close())));

const partBytes = 5 * 1024 ** 2;

async function start(latencyMs = 0): Promise<{ readonly server: S3Server; readonly store: BlobStore }> {
  const server = await startS3Server();
  server.latencyMs = latencyMs;
  closing.push(server);
  return { server, store: storeAt(server) };
}

function storeAt(server: S3Server, prefix = "gateway/blobs"): BlobStore {
  return createS3BlobStore({ bucket: server.bucket, prefix, pathStyle: true, client: server.client, partBytes });
}

const failure = (status: number, code: string): AwsFault => ({
  kind: "reply",
  reply: { status, headers: { "content-type": "application/xml" }, body: `<Error><Code>${code}</Code></Error>` },
});
const on = (fault: AwsFault, method: string, part = ""): AwsFault => ({
  ...fault,
  when: (request: AwsRequest) => request.method === method && request.target.includes(part),
});

async function* inChunks(bytes: Uint8Array, size = 300_000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

async function contentOf(store: BlobStore, key: string): Promise<Buffer> {
  const blob = await store.get(key);
  if (blob === undefined) throw new Error(`${key} is not there`);
  return Buffer.from(await readAll(blob.body));
}

describeBlobStore("S3", async () => (await start()).store);
describeBlobStore("S3 that is 20 ms away", async () => (await start(20)).store);

describe("blobs in S3", () => {
  test("lie under the prefix and carry their media type, encrypted as the bucket says", async () => {
    const { server, store } = await start();
    await store.put("ten_1/a", Buffer.from("x"), { mediaType: "text/plain; charset=utf-8" });
    expect([...server.objects.keys()]).toEqual(["gateway/blobs/ten_1/a"]);
    expect(server.objects.get("gateway/blobs/ten_1/a")?.headers).toMatchObject({
      "content-type": "text/plain; charset=utf-8",
    });
    expect(Object.keys(server.requests[0]?.headers ?? {})).not.toContain("x-amz-server-side-encryption");
    const other = storeAt(server, "gateway");
    expect((await other.list("")).map(({ key }) => key)).toEqual(["blobs/ten_1/a"]);
    expect(await storeAt(server, "").list("gateway/")).toHaveLength(1);
  });

  test("of others are read with what S3 knows of them", async () => {
    const { server, store } = await start();
    await store.put("ten_1/a", Buffer.from("x"));
    const [key = "", object] = [...server.objects][0] ?? [];
    if (object !== undefined) (server.objects as Map<string, unknown>).set(key, { ...object, headers: {} });
    expect(await store.head("ten_1/a")).toMatchObject({
      mediaType: "application/octet-stream",
      etag: createHash("md5").update("x").digest("hex"),
    });
  });

  test("are uploaded in parts where they are large, and are one object afterwards", async () => {
    const { server, store } = await start();
    const bytes = randomBytes(2 * partBytes + 1_234);
    expect(await store.put("ten_1/large", inChunks(bytes), { mediaType: "video/mp4" })).toBe(true);
    expect(await store.put("ten_1/whole", bytes)).toBe(true);
    for (const key of ["ten_1/large", "ten_1/whole"])
      expect(Buffer.compare(await contentOf(store, key), bytes)).toBe(0);
    expect(await store.head("ten_1/large")).toMatchObject({ bytes: bytes.byteLength, mediaType: "video/mp4" });
    expect(server.uploads.size).toBe(0);
    expect(server.requests.filter(({ query }) => query.has("partNumber"))).toHaveLength(6);
  });

  test("of exactly one part's size need no upload in parts", async () => {
    const { server, store } = await start();
    await store.put("ten_1/a", inChunks(randomBytes(partBytes)));
    expect(server.requests.map(({ method, query }) => [method, query.size > 1])).toEqual([["PUT", false]]);
    expect((await store.head("ten_1/a"))?.bytes).toBe(partBytes);
  });

  test("that fail half-way leave no upload behind, and the stream's own error passes", async () => {
    const { server, store } = await start();
    async function* failing(): AsyncGenerator<Uint8Array> {
      yield* inChunks(randomBytes(partBytes + 1));
      throw new Error("the source broke");
    }
    await expect(store.put("ten_1/a", failing())).rejects.toThrow("the source broke");
    server.faults.push(on(failure(403, "AccessDenied"), "PUT", "partNumber=2"));
    await expect(store.put("ten_1/a", inChunks(randomBytes(3 * partBytes)))).rejects.toMatchObject({
      code: "blobs_unavailable",
    });
    expect(server.uploads.size).toBe(0);
    expect(await store.list("")).toEqual([]);
  });

  test("that fail while their source is slow are told by the write alone", async () => {
    const { server, store } = await start();
    async function* slow(): AsyncGenerator<Uint8Array> {
      yield* inChunks(randomBytes(2 * partBytes + 1));
      await sleep(100);
      yield* inChunks(randomBytes(partBytes));
    }
    server.faults.push(on(failure(403, "AccessDenied"), "PUT", "partNumber=2"));
    await expect(store.put("ten_1/a", slow())).rejects.toMatchObject({ code: "blobs_unavailable" });
    expect(server.uploads.size).toBe(0);
  });

  test("of one of many conditional writers in parts are there, and the losers' uploads are not", async () => {
    const { server, store } = await start(5);
    const bodies = Array.from({ length: 4 }, () => randomBytes(partBytes + 1));
    const wins = await Promise.all(bodies.map((body) => store.put("ten_1/r", inChunks(body), { ifAbsent: true })));
    expect(wins.filter(Boolean)).toHaveLength(1);
    expect(Buffer.compare(await contentOf(store, "ten_1/r"), bodies[wins.indexOf(true)] ?? Buffer.alloc(0))).toBe(0);
    expect(server.uploads.size).toBe(0);
    const before = server.requests.length;
    expect(await store.put("ten_1/r", inChunks(randomBytes(2 * partBytes)), { ifAbsent: true })).toBe(false);
    expect(server.requests.slice(before).map(({ method }) => method)).toEqual(["HEAD"]);
  });

  test("listed by the thousand come page by page", async () => {
    const { server, store } = await start();
    for (let at = 0; at < 2_100; at += 1) {
      const object = { body: Buffer.from("x"), etag: '"e"', modified: new Date(0), headers: {} };
      (server.objects as Map<string, unknown>).set(`gateway/blobs/t/${String(at).padStart(5, "0")}`, object);
    }
    expect(await store.list("t/", { limit: 5_000 })).toHaveLength(2_100);
    expect(server.requests).toHaveLength(3);
    const rest = await store.list("t/", { after: "t/02094" });
    expect(rest.map(({ key }) => key)).toEqual(["t/02095", "t/02096", "t/02097", "t/02098", "t/02099"]);
  });

  test("of 200 MB are written and read without being held in memory", async () => {
    const { server } = await start();
    const options = { bucket: server.bucket, pathStyle: true, client: server.client };
    const source = `
      import { createHash } from "node:crypto";
      import { createS3BlobStore } from "@toolyard/platform/aws/s3-blob-store";
      const store = createS3BlobStore(${JSON.stringify(options)});
      const part = Buffer.alloc(1024 * 1024, 7);
      await store.put("warm", Buffer.alloc(20 * 1024 * 1024));
      const before = process.memoryUsage.rss();
      let peak = before;
      const look = () => { peak = Math.max(peak, process.memoryUsage.rss()); };
      async function* large() { for (let at = 0; at < 200; at += 1) { look(); yield part; } }
      await store.put("large", large());
      const hash = createHash("sha256");
      for await (const chunk of (await store.get("large")).body) { look(); hash.update(chunk); }
      console.log(JSON.stringify({ grew: peak - before, hash: hash.digest("hex") }));
      process.exit(0);`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", source]);
    const { grew, hash } = JSON.parse(stdout) as { grew: number; hash: string };
    expect(hash).toBe(
      createHash("sha256")
        .update(Buffer.alloc(200 * 1024 ** 2, 7))
        .digest("hex"),
    );
    // A few parts, and those that a busy machine has not collected yet.
    expect(grew).toBeLessThan(120 * 1024 ** 2);
  });
});

describe("an S3 that has its troubles", () => {
  test.for([
    ["is busy", failure(503, "SlowDown")],
    ["fails inside", failure(500, "InternalError")],
    ["cuts connections", { kind: "reset" } satisfies AwsFault],
    ["cuts connections after its work", { kind: "lost" } satisfies AwsFault],
  ] as const)("and %s for a moment is asked again", async ([, fault]) => {
    const { server, store } = await start();
    server.faults.push(on(fault, "PUT"), on(fault, "GET", "/ten_1/"), on(fault, "HEAD"), on(fault, "GET", "list-type"));
    expect(await store.put("ten_1/a", Buffer.from("x"))).toBe(true);
    expect((await contentOf(store, "ten_1/a")).toString()).toBe("x");
    expect((await store.head("ten_1/a"))?.bytes).toBe(1);
    expect(await store.list("")).toHaveLength(1);
    server.faults.push(on(fault, "DELETE"));
    await store.delete("ten_1/a");
    expect(server.faults).toEqual([]);
    expect(server.objects.size).toBe(0);
  });

  test("tells a conditional writer whose answer was lost that it has won, whole or in parts", async () => {
    const { server, store } = await start();
    for (const body of [Buffer.from("mine"), randomBytes(partBytes + 1)]) {
      const key = `ten_1/${body.byteLength}`;
      server.faults.push({ kind: "lost", when: ({ headers }) => headers["if-none-match"] === "*" });
      expect(await store.put(key, body, { ifAbsent: true })).toBe(true);
      expect(server.faults).toEqual([]);
      expect(await store.put(key, body, { ifAbsent: true })).toBe(false);
      expect(Buffer.compare(await contentOf(store, key), body)).toBe(0);
    }
  });

  test("tells one that lost although its own request was repeated that it has lost", async () => {
    const { server, store } = await start();
    await store.put("ten_1/a", Buffer.from("theirs"));
    server.faults.push({ kind: "lost", when: ({ method }) => method === "PUT" });
    expect(await store.put("ten_1/a", Buffer.from("mine"), { ifAbsent: true })).toBe(false);
    expect((await contentOf(store, "ten_1/a")).toString()).toBe("theirs");
  });

  test("and answers that conditional writers collided is asked until one has won", async () => {
    const { server, store } = await start();
    const conflict = failure(409, "ConditionalRequestConflict");
    server.faults.push(on(conflict, "PUT"), on(conflict, "PUT"), on(conflict, "POST", "uploadId"));
    expect(await store.put("ten_1/a", Buffer.from("x"), { ifAbsent: true })).toBe(true);
    expect(await store.put("ten_1/b", randomBytes(partBytes + 1), { ifAbsent: true })).toBe(true);
    for (let times = 0; times < 8; times += 1) server.faults.push(on(conflict, "PUT"));
    await expect(store.put("ten_1/c", Buffer.from("x"), { ifAbsent: true })).rejects.toMatchObject({
      code: "blobs_unavailable",
    });
  });

  test("and breaks a reply off is read on from there, of the same object only", async () => {
    const { server, store } = await start();
    const bytes = randomBytes(400_000);
    await store.put("ten_1/a", bytes);
    server.faults.push({ kind: "cut", after: 100_000 }, { kind: "cut", after: 50_000 });
    expect(Buffer.compare(await contentOf(store, "ten_1/a"), bytes)).toBe(0);

    server.faults.push({ kind: "cut", after: 7 });
    const part = await store.get("ten_1/a", { start: 10, end: 60 });
    expect(Buffer.from(await readAll(part?.body ?? inChunks(Buffer.alloc(0))))).toEqual(bytes.subarray(10, 60));

    server.faults.push({ kind: "cut", after: 100_000 });
    const changing = await store.get("ten_1/a");
    await store.put("ten_1/a", Buffer.from("other"));
    await expect(readAll(changing?.body ?? inChunks(Buffer.alloc(0)))).rejects.toMatchObject({
      code: "blobs_unavailable",
    });
  });

  test.for([
    [403, "AccessDenied"],
    [404, "NoSuchBucket"],
    [503, "SlowDown"],
  ] as const)(
    "and goes on answering %d %s is unavailable, by the setting's name and without the bucket's",
    async ([status, code]) => {
      const { server, store } = await start();
      for (let times = 0; times < 20; times += 1) server.faults.push(failure(status, code));
      // Each takes its time where it is asked to slow down.
      const attempts =
        status === 503
          ? [() => store.get("ten_1/a")]
          : [() => store.put("ten_1/a", Buffer.from("x")), () => store.get("ten_1/a"), () => store.list("")];
      for (const attempt of attempts) {
        const failed: unknown = await attempt().catch((error: unknown) => error);
        expect(failed).toMatchObject({ code: "blobs_unavailable" });
        expect(String(failed)).toContain(`(${code})`);
        expect(String(failed)).toContain("BLOBS_URL");
        expect(String(failed)).not.toContain(server.bucket);
      }
    },
  );

  test("and is not there at all is unavailable", async () => {
    const { server, store } = await start();
    await server.close();
    await expect(store.head("ten_1/a")).rejects.toMatchObject({ code: "blobs_unavailable" });
  });

  test("refuses who has another secret", async () => {
    const { server } = await start();
    const credentials = { ...newSigner(), accessKeyId: server.credentials.accessKeyId };
    const store = createS3BlobStore({
      bucket: server.bucket,
      pathStyle: true,
      client: { ...server.client, credentials },
    });
    await expect(store.put("ten_1/a", Buffer.from("x"))).rejects.toThrow("(SignatureDoesNotMatch)");
    expect(server.objects.size).toBe(0);
  });
});
