/**
 * Signatures of random requests against a vendor's own library, where somebody has installed it: with all that it
 * needs it is too large for everybody's `npm ci`. `npm i --no-save @alicloud/openapi-util@0.3.3`
 */
import { createRequire } from "node:module";
import fc from "fast-check";
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { sha256Hex, signAcs3 } from "./signing.ts";

interface OpenApiUtil {
  getAuthorization(
    request: {
      readonly method: string;
      readonly pathname: string;
      readonly query: Readonly<Record<string, string>>;
      readonly headers: Readonly<Record<string, string>>;
    },
    algorithm: string,
    payloadHash: string,
    id: string,
    secret: string,
  ): string;
}

function installed(name: string): { readonly default: OpenApiUtil } | undefined {
  try {
    return createRequire(import.meta.url)(name) as { readonly default: OpenApiUtil };
  } catch {
    return undefined;
  }
}

test(`Aliyun's own library signs alike ${verifies("SMS-3")}`, ({ skip }) => {
  const library = installed("@alicloud/openapi-util");
  skip(library === undefined, "@alicloud/openapi-util is not installed");
  const keys = { id: "LTAI-test", secret: "a secret" };
  // Names as the service has them: the library leaves them as they are.
  const name = fc.stringMatching(/^[A-Z][A-Za-z0-9]{0,11}$/);
  const query = fc.dictionary(name, fc.string({ minLength: 1, unit: "grapheme" }), { maxKeys: 6 });
  fc.assert(
    fc.property(query, fc.uuid(), (parameters, nonce) => {
      const signed = signAcs3(keys, {
        host: "dysmsapi.aliyuncs.com",
        action: "SendSms",
        version: "2017-05-25",
        date: "2026-11-27T08:00:00Z",
        nonce,
        query: parameters,
      });
      const { authorization, ...headers } = Object.fromEntries(signed);
      const request = { method: "POST", pathname: "/", query: parameters, headers };
      const { id, secret } = keys;
      expect(authorization).toBe(
        library?.default.getAuthorization(request, "ACS3-HMAC-SHA256", sha256Hex(""), id, secret),
      );
    }),
  );
});
