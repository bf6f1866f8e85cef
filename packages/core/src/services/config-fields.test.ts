import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import { verifies } from "../../../../test/support/verifies.ts";
import { isSecretName } from "../secrets/secret-shape.ts";
import { credentialsIn, headersField, httpUrlField, liftSecrets, queryField, secretField } from "./config-fields.ts";

const schema = z.strictObject({
  url: httpUrlField("Address."),
  headers: headersField().optional(),
  query: queryField().optional(),
  auth: z.strictObject({ keys: z.array(secretField("A key.")) }).optional(),
});

function problemOf(input: unknown): string | undefined {
  const issue = schema.safeParse(input).error?.issues[0];
  return issue === undefined ? undefined : `${issue.path.join(".")} ${issue.message}`;
}

describe(`secrets in configurations ${verifies("API-3")}`, () => {
  test("given as literals are taken out and referred to, references stay", () => {
    const parsed = schema.parse({ url: "https://a.example", auth: { keys: ["one", { credential: "TWO" }, "three"] } });
    const { config, secrets } = liftSecrets(parsed, (path) => `svc_1.${path}`);
    expect(config).toEqual({
      url: "https://a.example",
      auth: { keys: [{ credential: "svc_1.auth.keys.0" }, { credential: "TWO" }, { credential: "svc_1.auth.keys.2" }] },
    });
    expect(secrets).toEqual([
      { path: "auth.keys.0", value: "one", credential: "svc_1.auth.keys.0" },
      { path: "auth.keys.2", value: "three", credential: "svc_1.auth.keys.2" },
    ]);
    expect(credentialsIn(config)).toEqual(["svc_1.auth.keys.0", "TWO", "svc_1.auth.keys.2"]);
    expect(schema.parse(config)).toEqual(config);
  });

  test("show in no text that is made of a parsed configuration", () => {
    const parsed = schema.parse({ url: "https://a.example", auth: { keys: ["sentinel"] } });
    expect(JSON.stringify(parsed)).not.toContain("sentinel");
    expect(inspect(parsed, { depth: 9, showHidden: true })).not.toContain("sentinel");
  });

  test.each([
    [{ url: "https://a.example", headers: { Authorization: "x" } }, "headers.Authorization"],
    [{ url: "https://u:p@a.example" }, "url"],
  ])("are refused elsewhere: %j", (input, field) => {
    expect(problemOf(input)).toContain(`${field} `);
    expect(problemOf(input)).toContain("PUT /v1/credentials/{name}");
  });

  test.each([
    ["X-API-Key", true],
    ["api_key", true],
    ["apikey", true],
    ["access_token", true],
    ["Proxy-Authorization", true],
    ["client-secret", true],
    ["Set-Cookie", true],
    ["password", true],
    ["X-Request-Id", false],
    ["keyword", false],
    ["author", false],
    ["monkey", false],
    ["X-Tokens-Per-Page", false],
    ["Accept", false],
  ])("the name %s is one: %s", (name, expected) => {
    expect(isSecretName(name)).toBe(expected);
  });

  test.each([
    [{ url: "https://a.example", headers: { "bad name": "x" } }, "is not a header name"],
    [{ url: "https://a.example", headers: { "x-a": "1", "X-A": "2" } }, "is given twice"],
    [{ url: "https://a.example", headers: { Host: "b.example" } }, "only the gateway sets"],
    [{ url: "https://a.example", headers: { "x-a": "a\r\nb: c" } }, "visible ASCII"],
    [{ url: "ftp://a.example" }, "http or https"],
    [{ url: "https://a.example#x" }, "'#'"],
  ])("nothing that would break a request is taken: %j", (input, problem) => {
    expect(problemOf(input)).toContain(problem);
  });
});
