/** What every blob store promises, whatever holds the bytes. */
import { randomBytes } from "node:crypto";
import { readAll, tenantKey, type BlobStore, type PresignedRequest } from "@toolyard/core/ports/blob-store";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";

const text = (value: string): Uint8Array => Buffer.from(value, "utf8");

async function contentOf(store: BlobStore, key: string, range?: { start: number; end?: number }): Promise<string> {
  const blob = await store.get(key, range);
  if (blob === undefined) throw new Error(`${key} is not there`);
  return Buffer.from(await readAll(blob.body)).toString("utf8");
}

async function* inParts(...parts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield text(part);
}

export interface BlobStoreHost {
  /** Sends what a link says; the default goes over the network. */
  readonly send?: (url: string, init: RequestInit) => Promise<Response>;
  /** False for a stand-in of a service that does not look at signatures and conditions of links, nor at names in them. */
  readonly checksLinks?: boolean;
}

/** @param make a fresh, empty store */
export function describeBlobStore(
  name: string,
  make: () => Promise<BlobStore>,
  { send = fetch, checksLinks = true }: BlobStoreHost = {},
): void {
  describe(`blob store: ${name}`, () => {
    test("gives back the bytes and the media type that were put", async () => {
      const store = await make();
      const bytes = randomBytes(300_000);
      expect(await store.put("ten_1/a", bytes, { mediaType: 'image/png; name="图"' })).toBe(true);
      const blob = await store.get("ten_1/a");
      expect(Buffer.compare(await readAll(blob?.body ?? inParts()), bytes)).toBe(0);
      expect(blob?.info).toMatchObject({ key: "ten_1/a", bytes: 300_000, mediaType: 'image/png; name="图"' });
      expect(await store.head("ten_1/a")).toEqual(blob?.info);
    });

    test("keeps a blob of no bytes, and takes unlabelled bytes for application/octet-stream", async () => {
      const store = await make();
      await store.put("ten_1/empty", text(""));
      expect(await store.head("ten_1/empty")).toMatchObject({ bytes: 0, mediaType: "application/octet-stream" });
      expect(await contentOf(store, "ten_1/empty")).toBe("");
    });

    test("knows nothing of what was never put or was deleted, and deletes twice without complaint", async () => {
      const store = await make();
      await store.put("ten_1/a", text("x"));
      await store.delete("ten_1/a");
      await store.delete("ten_1/a");
      expect(await store.get("ten_1/a")).toBeUndefined();
      expect(await store.head("ten_1/a")).toBeUndefined();
      expect(await store.list("")).toEqual([]);
    });

    test("replaces, with a new etag even for equal bytes", async () => {
      const store = await make();
      await store.put("ten_1/a", text("old"), { mediaType: "text/plain" });
      const before = await store.head("ten_1/a");
      await store.put("ten_1/a", text("old"));
      const after = await store.head("ten_1/a");
      expect(after?.etag).not.toBe(before?.etag);
      expect(after?.mediaType).toBe("application/octet-stream");
    });

    test("lets exactly one of 50 racing conditional writers win, and keeps the winner's bytes", async () => {
      const store = await make();
      const wins = await Promise.all(
        Array.from({ length: 50 }, (_, writer) => store.put("ten_1/r", text(`writer ${writer}`), { ifAbsent: true })),
      );
      expect(wins.filter(Boolean)).toHaveLength(1);
      expect(await contentOf(store, "ten_1/r")).toBe(`writer ${wins.indexOf(true)}`);
      expect(await store.put("ten_1/r", text("late"), { ifAbsent: true })).toBe(false);
    });

    test("writes conditionally again once the blob is deleted", async () => {
      const store = await make();
      await store.put("ten_1/a", text("1"), { ifAbsent: true });
      await store.delete("ten_1/a");
      expect(await store.put("ten_1/a", text("2"), { ifAbsent: true })).toBe(true);
    });

    test("takes a stream part by part", async () => {
      const store = await make();
      await store.put("ten_1/s", inParts("one ", "", "two"), { mediaType: "text/plain" });
      expect(await contentOf(store, "ten_1/s")).toBe("one two");
    });

    test("leaves nothing behind when the stream fails, and passes the stream's own error on", async () => {
      const store = await make();
      async function* failing(): AsyncGenerator<Uint8Array> {
        yield text("half");
        throw new Error("the source broke");
      }
      await store.put("ten_1/old", text("old"));
      await expect(store.put("ten_1/s", failing())).rejects.toThrow("the source broke");
      await expect(store.put("ten_1/s", failing(), { ifAbsent: true })).rejects.toThrow("the source broke");
      await expect(store.put("ten_1/old", failing())).rejects.toThrow("the source broke");
      expect(await store.head("ten_1/s")).toBeUndefined();
      expect((await store.list("")).map(({ key }) => key)).toEqual(["ten_1/old"]);
      expect(await contentOf(store, "ten_1/old")).toBe("old");
    });

    test.for([
      { range: { start: 0 }, part: "0123456789" },
      { range: { start: 3 }, part: "3456789" },
      { range: { start: 3, end: 6 }, part: "345" },
      { range: { start: 0, end: 10 }, part: "0123456789" },
      { range: { start: 8, end: 400 }, part: "89" },
      { range: { start: 5, end: 5 }, part: "" },
      { range: { start: 10 }, part: "" },
      { range: { start: 99 }, part: "" },
    ])("reads $range as '$part' and still tells the whole size", async ({ range, part }) => {
      const store = await make();
      await store.put("ten_1/a", text("0123456789"));
      expect(await contentOf(store, "ten_1/a", range)).toBe(part);
      expect((await store.get("ten_1/a", range))?.info.bytes).toBe(10);
    });

    test("reads a blob to its end although it is replaced or deleted meanwhile", async () => {
      const store = await make();
      const bytes = randomBytes(500_000);
      for (const disturb of [() => store.put("ten_1/a", text("new")), () => store.delete("ten_1/a")]) {
        await store.put("ten_1/a", bytes);
        const blob = await store.get("ten_1/a");
        await disturb();
        expect(Buffer.compare(await readAll(blob?.body ?? inParts()), bytes)).toBe(0);
      }
    });

    test("lets a reader leave early", async () => {
      const store = await make();
      await store.put("ten_1/a", randomBytes(500_000));
      let seen = 0;
      for await (const part of (await store.get("ten_1/a"))?.body ?? inParts()) {
        seen = part.byteLength;
        break;
      }
      expect(seen).toBeGreaterThan(0);
      await store.delete("ten_1/a");
    });

    test("is not changed by a caller who goes on using the buffer", async () => {
      const store = await make();
      const bytes = Buffer.from("before");
      await store.put("ten_1/a", bytes);
      bytes.write("after!");
      expect(await contentOf(store, "ten_1/a")).toBe("before");
    });

    test("lists the keys of a prefix in order, page by page, and nobody else's", async () => {
      const store = await make();
      const mine = ["ten_1/a", "ten_1/a-b", "ten_1/a/1", "ten_1/a/2", "ten_1/b", "ten_1/中"];
      for (const key of [...mine, "ten_10/a", "ten_2/a"].toReversed()) await store.put(key, text(key));
      const keys = async (prefix: string, options?: { after?: string; limit?: number }): Promise<string[]> =>
        (await store.list(prefix, options)).map(({ key }) => key);

      expect(await keys("ten_1/")).toEqual(mine);
      expect(await keys("ten_1/a")).toEqual(mine.slice(0, 4));
      expect(await keys("ten_1/a/")).toEqual(["ten_1/a/1", "ten_1/a/2"]);
      expect(await keys("ten_1/", { limit: 2 })).toEqual(mine.slice(0, 2));
      expect(await keys("ten_1/", { after: "ten_1/a-b", limit: 2 })).toEqual(mine.slice(2, 4));
      expect(await keys("ten_1/", { after: "ten_1/a0" })).toEqual(["ten_1/b", "ten_1/中"]);
      expect(await keys("ten_3/")).toEqual([]);
      const head = await store.head("ten_1/b");
      expect(await store.list("ten_1/b")).toMatchObject([
        { key: "ten_1/b", bytes: head?.bytes, modifiedAt: head?.modifiedAt },
      ]);
    });

    test("keeps keys apart that look alike to a file system", async () => {
      const store = await make();
      const long = "长".repeat(100);
      const keys = [
        "t/Draw-1",
        "t/draw-1",
        "t/a",
        "t/a/b",
        "t/a.blob",
        "t/a.blob/b",
        "t//a",
        "t/%2E%2E",
        "t/..",
        "t/../../outside",
        "/etc/passwd",
        "t/a\\b",
        "t/nul\0byte",
        tenantKey("t", "a/../b"),
        tenantKey("t", "a", "..", "b"),
        `t/${long}`,
        `t/${long}/below`,
        tenantKey("t", long),
      ];
      for (const key of keys) expect(await store.put(key, text(key), { ifAbsent: true })).toBe(true);
      for (const key of keys) expect(await contentOf(store, key)).toBe(key);
      expect((await store.list("")).map(({ key }) => key)).toEqual(keys.toSorted());
      for (const key of keys) await store.delete(key);
      expect(await store.list("")).toEqual([]);
    });

    test("puts and deletes neighbours at the same time without losing one", async () => {
      const store = await make();
      await Promise.all(
        Array.from({ length: 30 }, async (_, at) => {
          await store.put(`ten_1/shared/${at}`, text("x"));
          if (at % 2 === 0) await store.delete(`ten_1/shared/${at}`);
        }),
      );
      expect(await store.list("ten_1/shared/")).toHaveLength(15);
    });

    describe(`links ${verifies("CHAT-19")}`, () => {
      const minute = 60_000;
      interface Change {
        readonly method?: string;
        readonly body?: string;
        readonly headers?: Readonly<Record<string, string>>;
      }
      const follow = (link: PresignedRequest, change: Change = {}): Promise<Response> =>
        send(link.url, { method: link.method, ...change, headers: { ...link.headers, ...change.headers } });
      const upload = (store: BlobStore, key: string, bytes: number): Promise<PresignedRequest> =>
        store.presign(key, { method: "PUT", expiresInMs: minute, bytes, mediaType: "text/plain; charset=utf-8" });
      const key = tenantKey("ten_1", "workspaces", "会话 %2F", "a.b");

      test.runIf(checksLinks)("give it as an attachment of the name that they were made with", async () => {
        const store = await make();
        await store.put(key, text("0123456789"), { mediaType: "text/plain" });
        const link = await store.presign(key, { method: "GET", expiresInMs: minute, fileName: "报告 (终) 'a';.txt" });
        expect((await follow(link)).headers.get("content-disposition")).toMatch(
          /^attachment;.*filename\*=UTF-8''%E6%8A%A5%E5%91%8A%20%28%E7%BB%88%29%20%27a%27%3B.txt$/,
        );
      });

      test("give a blob without a key, whole or by range", async () => {
        const store = await make();
        await store.put(key, text("0123456789"), { mediaType: "text/plain" });
        const link = await store.presign(key, { method: "GET", expiresInMs: minute, fileName: "报告 (终) 'a';.txt" });
        expect(link).toMatchObject({ method: "GET", headers: {} });
        const whole = await follow(link);
        expect(whole.status).toBe(200);
        expect(await whole.text()).toBe("0123456789");
        expect(whole.headers.get("content-type")).toBe("text/plain");
        const part = await follow(link, { headers: { range: "bytes=2-4" } });
        expect({ status: part.status, body: await part.text() }).toEqual({ status: 206, body: "234" });
        expect(part.headers.get("content-range")).toBe("bytes 2-4/10");
      });

      test("to nothing lead to nothing", async () => {
        const store = await make();
        const link = await store.presign(key, { method: "GET", expiresInMs: minute });
        // Object stores say 403 where who signed may not list what there is.
        expect([403, 404]).toContain((await follow(link)).status);
      });

      test("take a blob without a key, with the type that was signed", async () => {
        const store = await make();
        const link = await upload(store, key, 6);
        expect(link.method).toBe("PUT");
        expect((await follow(link, { body: "你好" })).ok).toBe(true);
        expect(await contentOf(store, key)).toBe("你好");
        expect(await store.head(key)).toMatchObject({ bytes: 6, mediaType: "text/plain; charset=utf-8" });
      });

      test("take a blob of no bytes", async () => {
        const store = await make();
        expect((await follow(await upload(store, key, 0), { body: "" })).ok).toBe(true);
        expect(await store.head(key)).toMatchObject({ bytes: 0 });
      });

      describe.skipIf(!checksLinks)("are refused", () => {
        const isRefused = async (answer: Promise<Response>): Promise<boolean> => {
          const { status } = await answer;
          return status >= 400 && status < 500;
        };

        test("where they were changed", async () => {
          const store = await make();
          await store.put(key, text("mine"));
          await store.put(tenantKey("ten_2", "a"), text("theirs"));
          const link = await store.presign(key, { method: "GET", expiresInMs: minute });
          const swap = (at: number): string => {
            const other = link.url[at] === "A" ? "B" : "A";
            return link.url.slice(0, at) + other + link.url.slice(at + 1);
          };
          const start = new URL(link.url).origin.length + 1;
          // The last character of base64 may stand for bits that say nothing.
          for (let at = link.url.length - 1; at > start; at -= Math.ceil(link.url.length / 40)) {
            expect(await isRefused(send(swap(at), { method: "GET" }))).toBe(true);
          }
        });

        test("for another method", async () => {
          const store = await make();
          await store.put(key, text("mine"));
          const [get, put] = [
            await store.presign(key, { method: "GET", expiresInMs: minute }),
            await upload(store, key, 4),
          ];
          expect(await isRefused(follow(get, { method: "PUT", body: "over" }))).toBe(true);
          expect(await isRefused(follow(put, { method: "GET" }))).toBe(true);
          expect(await isRefused(follow(put, { method: "DELETE" }))).toBe(true);
          expect(await contentOf(store, key)).toBe("mine");
        });

        test("when their time is over", async () => {
          const store = await make();
          await store.put(key, text("mine"));
          const link = await store.presign(key, { method: "GET", expiresInMs: 1_000 });
          const late = await store.presign(`${key}2`, {
            method: "PUT",
            expiresInMs: 1_000,
            bytes: 1,
            mediaType: "a/b",
          });
          await new Promise((done) => setTimeout(done, 2_100));
          expect(await isRefused(follow(link))).toBe(true);
          expect(await isRefused(follow(late, { body: "x" }))).toBe(true);
          expect(await store.head(`${key}2`)).toBeUndefined();
        });

        test.for([
          { body: "12345", why: "too few bytes" },
          { body: "1234567", why: "too many bytes" },
          { body: "123456", type: "text/html", why: "another type" },
        ])("with $why", async ({ body, type }) => {
          const headers = type === undefined ? {} : { "content-type": type };
          const store = await make();
          expect(await isRefused(follow(await upload(store, key, 6), { body, headers }))).toBe(true);
          expect(await store.head(key)).toBeUndefined();
        });

        test("where a blob is there already, one of several at once excepted", async () => {
          const store = await make();
          const link = await upload(store, key, 1);
          const answers = await Promise.all(["a", "b", "c", "d"].map((body) => follow(link, { body })));
          expect(answers.filter(({ ok }) => ok)).toHaveLength(1);
          const won = await contentOf(store, key);
          expect(await isRefused(follow(link, { body: "e" }))).toBe(true);
          expect(await isRefused(follow(await upload(store, key, 1), { body: "f" }))).toBe(true);
          expect(await contentOf(store, key)).toBe(won);
        });
      });
    });
  });
}
