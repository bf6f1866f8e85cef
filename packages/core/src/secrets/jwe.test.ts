import { createSecretKey, randomBytes } from "node:crypto";
import fc from "fast-check";
import { FlattenedEncrypt, flattenedDecrypt, type FlattenedJWE } from "jose";
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { decryptJwe, encodeHeader, encryptJwe } from "./jwe.ts";

const bytes = randomBytes(32);
const key = createSecretKey(bytes);
const header = encodeHeader("key-1");
const aad = Buffer.from("7:ten_abc|4:name");

test(`what is sealed here opens with jose, and the other way round ${verifies("BLIND-5")}`, async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: "grapheme" }), async (text) => {
      const ours = JSON.parse(encryptJwe(text, { key, header, aad })) as FlattenedJWE;
      const opened = await flattenedDecrypt({ ...ours, aad: aad.toString("base64url") }, bytes);
      expect(Buffer.from(opened.plaintext).toString("utf8")).toBe(text);
      expect(opened.protectedHeader).toEqual({ alg: "dir", enc: "A256GCM", kid: "key-1" });
      const theirs = await new FlattenedEncrypt(Buffer.from(text, "utf8"))
        .setProtectedHeader({ alg: "dir", enc: "A256GCM", kid: "key-0" })
        .setAdditionalAuthenticatedData(aad)
        .encrypt(bytes);
      expect(decryptJwe(JSON.stringify(theirs), { key, aad })).toBe(text);
    }),
    { numRuns: 50 },
  );
});

test("a changed part, another key and another place do not open", () => {
  const sealed = encryptJwe("secret", { key, header, aad });
  const jwe = JSON.parse(sealed) as Record<string, string>;
  const change = (part: string, value: string): string => JSON.stringify({ ...jwe, [part]: value });
  const flipped = (text = ""): string => `${text.startsWith("A") ? "B" : "A"}${text.slice(1)}`;
  const others = [
    ...Object.keys(jwe).map((part) => change(part, flipped(jwe[part]))),
    change("protected", encodeHeader("key-2")),
    change(
      "tag",
      Buffer.from(jwe["tag"] ?? "", "base64url")
        .subarray(0, 12)
        .toString("base64url"),
    ),
    change("iv", ""),
    JSON.stringify({ ...jwe, ciphertext: undefined }),
    "[]",
    "no JSON",
  ];
  const refusal = /authenticate|JWE|length|another way/;
  for (const other of others) expect(() => decryptJwe(other, { key, aad }), other).toThrow(refusal);
  expect(() => decryptJwe(sealed, { key: createSecretKey(randomBytes(32)), aad })).toThrow(refusal);
  expect(() => decryptJwe(sealed, { key, aad: Buffer.from("7:ten_abd|4:name") })).toThrow(refusal);
});

test("no other way of sealing is taken", () => {
  const fields = [
    { alg: "A256KW", enc: "A256GCM" },
    { alg: "dir", enc: "A128GCM" },
    { alg: "dir", enc: "A256GCM", zip: "DEF" },
    { alg: "dir", enc: "A256GCM", crit: ["exp"] },
  ];
  for (const each of fields) {
    const other = Buffer.from(JSON.stringify(each)).toString("base64url");
    expect(() => decryptJwe(encryptJwe("secret", { key, header: other, aad }), { key, aad })).toThrow("another way");
  }
});
