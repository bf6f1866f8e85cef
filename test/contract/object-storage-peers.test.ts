/**
 * The client of `oss://` against stores that are not ours: moto (PyPI), where it is installed or TOOLYARD_MOTO_URL
 * names one, and a store that checks signatures as moto does not: S3Proxy, whose jars Maven fetches, or whichever
 * TOOLYARD_S3_URL names as `http://id:secret@host:port`.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { createEgress } from "@toolyard/core/blind/egress";
import { addressOf } from "@toolyard/core/object-storage/bucket-address";
import {
  deleteObject,
  deleteObjects,
  getObject,
  headObject,
  listObjects,
  type ListPosition,
  type ObjectRef,
} from "@toolyard/core/object-storage/objects";
import { S3Client } from "@toolyard/core/object-storage/s3-client";
import { uploadObject, type UploadedObject } from "@toolyard/core/object-storage/upload";
import { profileOf } from "@toolyard/core/object-storage/vendors";
import type { Egress } from "@toolyard/core/ports/egress";
import { readAll } from "@toolyard/core/ports/blob-store";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startMoto } from "../support/moto.ts";
import { startSigningStore } from "../support/signing-store.ts";
import { verifies } from "../support/verifies.ts";

const [moto, signed] = await Promise.all([startMoto(), startSigningStore()]);
const peers = [
  { name: "moto", peer: moto },
  { name: "a store that checks signatures", peer: signed },
];
for (const { name, peer } of peers) {
  if (typeof peer === "string") console.log(`Skipped: oss:// against ${name}; ${peer}.`);
  else afterAll(() => peer.close());
}

const partBytes = 5 * 1_024 ** 2;

for (const { name, peer } of peers) {
  const why = typeof peer === "string" ? ` (skipped: ${peer})` : "";
  describe.skipIf(why !== "")(`${name}${why} ${verifies("OSS-1", "OSS-2")}`, { timeout: 60_000 }, () => {
    describePeer(typeof peer === "string" ? null : new URL(peer.url));
  });
}

function describePeer(url: URL | null): void {
  let egress: Egress;
  let client: S3Client;

  beforeAll(() => {
    egress = createEgress({ allowCidrs: ["127.0.0.0/8", "::1/128"] });
  });
  afterAll(() => egress.close());
  beforeEach(async () => {
    if (url === null) return;
    const bucket = `t-${randomUUID()}`;
    client = new S3Client({
      egress,
      address: addressOf({ vendor: "minio", bucket, region: "us-east-1", endpoint: url.origin }),
      region: "us-east-1",
      keys: { accessKeyId: url.username || "test", secretAccessKey: url.password || "test" },
      sending: { timeoutMs: 20_000 },
      toolName: "oss_peer__tool",
      redact: (text) => text,
      now: Date.now,
    });
    await client.send({ method: "PUT" });
  });

  const ref = (key: string): ObjectRef => ({ key, named: key });

  function put(key: string, body: Uint8Array, mark?: string): Promise<UploadedObject> {
    const ifAbsent = mark === undefined ? undefined : { mark };
    const open = async (): ReturnType<Parameters<typeof uploadObject>[1]["open"]> => ({
      body,
      contentType: "text/plain",
    });
    return uploadObject(client, { ...ref(key), open, ifAbsent }, { profile: profileOf("aws_s3"), partBytes });
  }

  async function listed(version: 1 | 2, delimiter?: string): Promise<readonly string[]> {
    const found: string[] = [];
    let from: ListPosition | undefined;
    do {
      const page = await listObjects(client, { prefix: "", maxKeys: 2, delimiter, from }, version);
      found.push(...page.prefixes, ...page.objects.map(({ key }) => key));
      from = page.next;
    } while (from !== undefined);
    return found.toSorted();
  }

  test("keeps objects of all keys and sizes", async () => {
    for (const key of ["文档/报告 1+2.md", "a&<b>'\"", "100%/%41"]) {
      const bytes = randomBytes(1_000);
      await put(key, bytes);
      const { info, response } = await getObject(client, ref(key));
      expect(Buffer.from(await readAll(response.body)).equals(bytes)).toBe(true);
      expect(info).toMatchObject({ size: 1_000, contentType: "text/plain" });
    }
    const large = randomBytes(2 * partBytes + 3);
    expect((await put("large", large)).size).toBe(large.byteLength);
    const { response } = await getObject(client, ref("large"));
    expect(Buffer.from(await readAll(response.body)).equals(large)).toBe(true);
    const part = await getObject(client, ref("large"), { offset: 5, length: 5 });
    expect(Buffer.from(await readAll(part.response.body)).equals(large.subarray(5, 10))).toBe(true);
  });

  test("lists them in both versions", async () => {
    const keys = ["a b", "a+b", "a/1", "a/2", "b&<c>", "文"];
    for (const key of keys) await put(key, Buffer.from("x"));
    expect(await listed(2)).toEqual(keys.toSorted());
    expect(await listed(1)).toEqual(keys.toSorted());
    expect(await listed(2, "/")).toEqual(["a b", "a+b", "a/", "b&<c>", "文"]);
  });

  test("deletes them, and says what is missing", async () => {
    for (const key of ["a", "b & <c>", "d"]) await put(key, Buffer.from("x"));
    await deleteObject(client, ref("a"));
    expect(await deleteObjects(client, ["b & <c>", "d", "never there"].map(ref))).toEqual([]);
    expect(await listed(2)).toEqual([]);
    expect(await headObject(client, ref("a"))).toBeUndefined();
    await expect(getObject(client, ref("a"))).rejects.toMatchObject({ code: "object_not_found" });
  });

  test("does not overwrite where it must not", async () => {
    await put("a", Buffer.from("mine"), "call_1");
    await put("a", Buffer.from("mine"), "call_1");
    await expect(put("a", Buffer.from("other"), "call_2")).rejects.toMatchObject({ code: "conflict" });
    const { response } = await getObject(client, ref("a"));
    expect(Buffer.from(await readAll(response.body)).toString()).toBe("mine");
  });

  test("answers links", async () => {
    await put("a b+文", Buffer.from("linked"));
    const answer = await fetch(client.presign({ method: "GET", ...ref("a b+文") }, 60));
    expect([answer.status, await answer.text()]).toEqual([200, "linked"]);
    const headers = [["content-type", "image/png"]] as const;
    const link = client.presign({ method: "PUT", ...ref("new"), headers }, 60);
    expect((await fetch(link, { method: "PUT", headers: Object.fromEntries(headers), body: "pixels" })).status).toBe(
      200,
    );
    expect((await headObject(client, ref("new")))?.contentType).toBe("image/png");
  });
}
