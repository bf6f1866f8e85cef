/** Pages of a listing at stores that are not AWS's: what they say of where to go on is theirs, and not always right. */
import { createEgress } from "@toolyard/core/blind/egress";
import { addressOf } from "@toolyard/core/object-storage/bucket-address";
import { listObjects } from "@toolyard/core/object-storage/objects";
import { S3Client } from "@toolyard/core/object-storage/s3-client";
import type { Egress } from "@toolyard/core/ports/egress";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let store: HttpStub;
let egress: Egress;
let client: S3Client;

beforeAll(async () => {
  store = await startHttpStub();
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
});
afterAll(() => Promise.all([store.close(), egress.close()]));
beforeEach(() => {
  store.requests.length = 0;
  client = new S3Client({
    egress,
    address: addressOf({ vendor: "minio", bucket: "shop", region: "us-east-1", endpoint: store.url }),
    region: "us-east-1",
    keys: { accessKeyId: "id", secretAccessKey: "secret" },
    sending: { timeoutMs: 5_000 },
    toolName: "oss_shop__list",
    redact: (text) => text,
    now: Date.now,
  });
});

/** @returns with which `continuation-token` the second page was asked for */
async function tokenAfter(token: string): Promise<string | null> {
  const keys = ["a%2Bb", "%E6%96%87"].map((key) => `<Contents><Key>${key}</Key><Size>1</Size></Contents>`).join("");
  const more = `<IsTruncated>true</IsTruncated><NextContinuationToken>${token}</NextContinuationToken>`;
  store.answer = () => ({
    body: `<ListBucketResult><EncodingType>url</EncodingType>${keys}${more}</ListBucketResult>`,
    headers: { "content-type": "application/xml" },
  });
  const first = await listObjects(client, { prefix: "", maxKeys: 2, delimiter: undefined }, 2);
  expect(first.objects.map(({ key }) => key)).toEqual(["a+b", "文"]);
  await listObjects(client, { prefix: "", maxKeys: 2, delimiter: undefined, from: first.next }, 2);
  return new URL(store.requests.at(-1)?.target ?? "", store.url).searchParams.get("continuation-token");
}

describe(`the next page ${verifies("OSS-1")}`, () => {
  test.each([
    [
      "a token as it came",
      "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=",
      "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=",
    ],
    ["a token that looks encoded as it came", "abc%2Bdef", "abc%2Bdef"],
    ["the last key where the token is that, encoded: it is compared as it is", "%E6%96%87", "文"],
    ["the last key where the token is that", "文", "文"],
  ])("is asked for with %s", async (_what, token, sent) => {
    expect(await tokenAfter(token)).toBe(sent);
  });
});
