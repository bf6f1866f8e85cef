import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import {
  encodePath,
  encodeQuery,
  presignQuery,
  sha256Hex,
  signRequest,
  type Pair,
  type SigningScope,
} from "./sigv4.ts";

/** The examples of Amazon's own documentation of the signature. */
const scope: SigningScope = {
  keys: { accessKeyId: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" },
  region: "us-east-1",
  now: Date.UTC(2013, 4, 24),
};
const host = "examplebucket.s3.amazonaws.com";

function headersOf(signed: readonly Pair[]): Readonly<Record<string, string>> {
  return Object.fromEntries(signed);
}

interface Example {
  readonly what: string;
  readonly method: string;
  readonly path: string;
  readonly query?: readonly Pair[];
  readonly headers?: readonly Pair[];
  readonly body?: string;
  readonly signedHeaders: string;
  readonly signature: string;
}

const examples: readonly Example[] = [
  {
    what: "GET with a range",
    method: "GET",
    path: "/test.txt",
    headers: [["Range", "bytes=0-9"]],
    signedHeaders: "host;range;x-amz-content-sha256;x-amz-date",
    signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
  },
  {
    what: "PUT of a key that is encoded",
    method: "PUT",
    path: encodePath("/test$file.text"),
    headers: [
      ["Date", "Fri, 24 May 2013 00:00:00 GMT"],
      ["x-amz-storage-class", "REDUCED_REDUNDANCY"],
    ],
    body: "Welcome to Amazon S3.",
    signedHeaders: "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
    signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
  },
  {
    what: "a listing, whose query comes in another order",
    method: "GET",
    path: "/",
    query: [
      ["prefix", "J"],
      ["max-keys", "2"],
    ],
    signedHeaders: "host;x-amz-content-sha256;x-amz-date",
    signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
  },
  {
    what: "a parameter without a value",
    method: "GET",
    path: "/",
    query: [["lifecycle", ""]],
    signedHeaders: "host;x-amz-content-sha256;x-amz-date",
    signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
  },
];

describe(`requests ${verifies("OSS-2")}`, () => {
  test.each(examples)("are signed as published: $what", (example) => {
    const { method, path, query = [], headers = [], body = "", signedHeaders, signature } = example;
    const signed = headersOf(signRequest({ method, host, path, query, headers }, sha256Hex(body), scope));
    expect(signed["x-amz-date"]).toBe("20130524T000000Z");
    expect(signed["authorization"]).toBe(
      `AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=${signedHeaders}, Signature=${signature}`,
    );
  });

  test("name a session token, and sign it", () => {
    const keys = { ...scope.keys, sessionToken: "token/of+a=session" };
    const request = { method: "GET", host, path: "/a", query: [], headers: [] };
    const signed = headersOf(signRequest(request, sha256Hex(""), { ...scope, keys }));
    expect(signed["x-amz-security-token"]).toBe(keys.sessionToken);
    expect(signed["authorization"]).toContain("x-amz-date;x-amz-security-token,");
  });
});

describe(`links ${verifies("OSS-1")}`, () => {
  test("are signed as published", () => {
    const request = { method: "GET", host, path: "/test.txt", query: [], headers: [] };
    expect(presignQuery(request, 86_400, scope)).toBe(
      "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
    );
  });

  test("hold no checksum and no name of an SDK's operation", () => {
    const request = { method: "PUT", host, path: "/a", query: [], headers: [["content-type", "image/png"]] as const };
    const query = new URLSearchParams(presignQuery(request, 60, scope));
    expect([...query.keys()].toSorted()).toEqual([
      "X-Amz-Algorithm",
      "X-Amz-Credential",
      "X-Amz-Date",
      "X-Amz-Expires",
      "X-Amz-Signature",
      "X-Amz-SignedHeaders",
    ]);
    expect(query.get("X-Amz-SignedHeaders")).toBe("content-type;host");
  });
});

describe("encoding", () => {
  test("leaves letters, digits and four signs", () => {
    expect(encodePath("/文 件/a+b!'()*~-._/%2e")).toBe("/%E6%96%87%20%E4%BB%B6/a%2Bb%21%27%28%29%2A~-._/%252e");
    expect(encodePath("half \ud800")).toBe("half%20%EF%BF%BD");
  });

  test("orders parameters by their encoded names, then values", () => {
    expect(
      encodeQuery([
        ["b", "2"],
        ["a", "ä"],
        ["a", "b"],
        ["a-", ""],
      ]),
    ).toBe("a=%C3%A4&a=b&a-=&b=2");
  });
});
