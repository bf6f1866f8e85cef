/** The core's own signer against the SDK's: what one signs the other signs alike. */
import { Readable } from "node:stream";
import { encodePath, presignQuery, signRequest, type Pair } from "@toolyard/core/object-storage/sigv4";
import {
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
  type S3ClientConfig,
} from "@aws-sdk/client-s3";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";
import fc from "fast-check";
import { describe, expect, test } from "vitest";

const credentials = { accessKeyId: "AKIAEXAMPLE", secretAccessKey: "secret/+=" };
const region = "eu-west-1";

interface Sent {
  readonly method: string;
  readonly hostname: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
}

/** A client that keeps what it would have sent. */
function capturing(more: S3ClientConfig = {}): { readonly client: S3Client; readonly sent: Sent[] } {
  const sent: Sent[] = [];
  const client = new S3Client({
    region,
    credentials,
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    ...more,
    requestHandler: {
      handle: (request: Sent) => {
        sent.push(request);
        const body = Readable.from(["<ListBucketResult/>"]);
        return Promise.resolve({ response: { statusCode: 200, reason: "OK", headers: {}, body } });
      },
    },
  });
  return { client, sent };
}

function pairsOf(query: Sent["query"]): readonly Pair[] {
  return Object.entries(query).map(([name, value]) => [name, typeof value === "string" ? value : ""]);
}

/** Signs what the SDK sent once more. */
function authorizationOf(request: Sent): string | undefined {
  const { authorization = "", ...headers } = request.headers;
  const [, names = ""] = /SignedHeaders=([^,]+)/.exec(authorization) ?? [];
  const ours: readonly string[] = ["host", "x-amz-date", "x-amz-content-sha256"];
  const others = names.split(";").filter((name) => !ours.includes(name));
  const date = headers["x-amz-date"] ?? "";
  const signed = signRequest(
    {
      method: request.method,
      host: headers["host"] ?? request.hostname,
      path: request.path,
      query: pairsOf(request.query),
      headers: others.map((name): Pair => [name, headers[name] ?? ""]),
    },
    headers["x-amz-content-sha256"] ?? "",
    { keys: credentials, region, now: timeOf(date) },
  );
  return Object.fromEntries(signed)["authorization"];
}

function timeOf(text: string): number {
  return Date.parse(text.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
}

const keys = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 40 })
  .filter((key) => key.isWellFormed() && !key.split("/").some((part) => part === "." || part === ".."))
  .map((key) => `a${key}`);

describe("the signature of a request", () => {
  test("is the SDK's, whatever the key", async () => {
    const { client, sent } = capturing();
    await fc.assert(
      fc.asyncProperty(keys, fc.uint8Array({ maxLength: 64 }), async (Key, Body) => {
        sent.length = 0;
        await client.send(new PutObjectCommand({ Bucket: "bucket", Key, Body, ContentType: "text/plain" }));
        const [request] = sent;
        expect(request?.path).toBe(`/${encodePath(Key)}`);
        expect(request && authorizationOf(request)).toBe(request?.headers["authorization"]);
      }),
    );
  });

  test("is the SDK's, whatever the query", async () => {
    const { client, sent } = capturing({ forcePathStyle: true });
    await fc.assert(
      fc.asyncProperty(keys, keys, async (Prefix, StartAfter) => {
        sent.length = 0;
        await client.send(new ListObjectsV2Command({ Bucket: "bucket", Prefix, StartAfter, MaxKeys: 3 }));
        const [request] = sent;
        expect(request && authorizationOf(request)).toBe(request?.headers["authorization"]);
      }),
    );
  });
});

test("a link that says what the SDK's says is the SDK's link", async () => {
  const { client } = capturing();
  await fc.assert(
    fc.asyncProperty(keys, fc.integer({ min: 1, max: 604_800 }), async (Key, expiresIn) => {
      const theirs = new URL(
        await getSignedUrl(client, new GetObjectCommand({ Bucket: "bucket", Key }), { expiresIn }),
      );
      const own = [...theirs.searchParams].filter(([name]) => !ours.has(name));
      const query = presignQuery(
        { method: "GET", host: theirs.host, path: theirs.pathname, query: own, headers: [] },
        expiresIn,
        { keys: credentials, region, now: timeOf(theirs.searchParams.get("X-Amz-Date") ?? "") },
      );
      expect(new URLSearchParams(query).get("X-Amz-Signature")).toBe(theirs.searchParams.get("X-Amz-Signature"));
    }),
  );
});

/** What `presignQuery` adds by itself. */
const ours: ReadonlySet<string> = new Set([
  "X-Amz-Algorithm",
  "X-Amz-Credential",
  "X-Amz-Date",
  "X-Amz-Expires",
  "X-Amz-Signature",
  "X-Amz-SignedHeaders",
]);
