import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { deliveryOf } from "../tools/adapter.ts";
import {
  authSlots,
  mappingProblems,
  maskSecrets,
  placeSecrets,
  type OAuthClient,
  type PlaceSecretsOptions,
} from "./auth-mapping.ts";
import { authConfigSchema, type AuthConfig } from "./definition.ts";

const config = (type: string, ...mapping: readonly object[]): AuthConfig => authConfigSchema.parse({ type, mapping });

function place(auth: AuthConfig, values: Readonly<Record<string, string>>, more: Partial<PlaceSecretsOptions> = {}) {
  return placeSecrets(auth, {
    values: new Map(Object.entries(values)),
    tenant: "ten_a",
    signal: new AbortController().signal,
    hide: () => undefined,
    ...more,
  });
}
const shown = async (work: ReturnType<typeof place>) =>
  (await work).map(({ location, name, value }) => [location, name, value]);
const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe(`credentials in their places ${verifies("BLIND-3")}`, () => {
  test("api_key: every entry, header or query, as it is", async () => {
    const auth = config(
      "api_key",
      { source: "QCC_KEY", target: "Token", location: "header" },
      { source: "QCC_SECRET", target: "Timespan", location: "header" },
      { source: "SIGN", target: "sign", location: "query" },
    );
    expect(await shown(place(auth, { QCC_KEY: "sk-123", QCC_SECRET: "t", SIGN: "北京" }))).toEqual([
      ["header", "Token", "sk-123"],
      ["header", "Timespan", "t"],
      ["query", "sign", "北京"],
    ]);
  });

  test("bearer: Authorization by default, another header or the query on demand, the word never twice", async () => {
    expect(await shown(place(config("bearer", { source: "T" }), { T: "abc" }))).toEqual([
      ["header", "Authorization", "Bearer abc"],
    ]);
    expect(await shown(place(config("bearer", { source: "T", target: "X-Auth" }), { T: "bearer abc" }))).toEqual([
      ["header", "X-Auth", "Bearer abc"],
    ]);
    expect(await shown(place(config("bearer", { source: "T", location: "query" }), { T: "abc" }))).toEqual([
      ["query", "access_token", "abc"],
    ]);
  });

  test("basic: user name and password, in any order, UTF-8", async () => {
    const auth = config("basic", { source: "P", target: "password" }, { source: "U", target: "username" });
    const [secret] = await place(auth, { U: "käthe", P: "pä:ss" });
    expect(secret?.value).toBe(`Basic ${Buffer.from("käthe:pä:ss", "utf8").toString("base64")}`);
    const keyOnly = config("basic", { source: "K", target: "username" });
    expect(await shown(place(keyOnly, { K: "sk_live" }))).toEqual([
      ["header", "Authorization", `Basic ${Buffer.from("sk_live:").toString("base64")}`],
    ]);
  });

  test("basic: a user name with a colon is refused, since nobody could tell the two apart", async () => {
    const auth = config("basic", { source: "U", target: "username" }, { source: "P", target: "password" });
    expect(await refusal(place(auth, { U: "a:b", P: "c" }))).toMatchObject({
      code: "credential_invalid",
      details: { param: "U" },
    });
  });

  const oauth = config(
    "oauth2",
    { source: "ID", target: "client_id" },
    { source: "SECRET", target: "client_secret" },
    { source: "URL", target: "token_url" },
    { source: "SCOPE", target: "scope" },
  );
  const values = { ID: "id", SECRET: "secret", URL: "https://auth.example.com/token", SCOPE: "read" };

  test("oauth2: the token source gets the client, the request gets the token", async () => {
    const asked: OAuthClient[] = [];
    const tokens = {
      accessToken: (client: OAuthClient) => {
        asked.push(client);
        return Promise.resolve("token-1");
      },
    };
    expect(await shown(place(oauth, values, { tokens }))).toEqual([["header", "Authorization", "Bearer token-1"]]);
    expect(asked[0]).toMatchObject({ clientId: "id", clientSecret: "secret", tokenUrl: values.URL, scope: "read" });
  });

  test("oauth2 without a token source is a clear error and nothing is sent", async () => {
    const error = await refusal(place(oauth, values));
    expect(error).toMatchObject({ code: "tool_failed" });
    expect(String(error)).toContain("oauth2");
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test(`each secret is hidden in the forms that go out, ordinary words are not ${verifies("BLIND-6")}`, async () => {
    const hidden: string[] = [];
    const hide = (secret: string): void => void hidden.push(secret);
    const basic = config("basic", { source: "U", target: "username" }, { source: "P", target: "password" });
    await place(basic, { U: "admin", P: "pass-1" }, { hide });
    expect(hidden).toEqual(["pass-1", Buffer.from("admin:pass-1").toString("base64")]);
    hidden.length = 0;
    await place(basic, { U: "service-account", P: "pass-1" }, { hide });
    expect(hidden).toContain("service-account");
    hidden.length = 0;
    await place(config("basic", { source: "U", target: "username" }), { U: "sk" }, { hide });
    expect(hidden).toContain("sk");
    hidden.length = 0;
    const known: string[] = [];
    const tokens = {
      accessToken: () => {
        known.push(...hidden);
        return Promise.resolve("token-1");
      },
    };
    await place(oauth, values, { hide, tokens });
    // The client's secret before it is sent for a token, the token after.
    expect(known).toEqual(["secret"]);
    expect(hidden).toEqual(["secret", "token-1"]);
  });

  test("a definition without auth_config places nothing", async () => {
    expect(
      await placeSecrets(undefined, {
        values: new Map(),
        tenant: "t",
        signal: new AbortController().signal,
        hide: () => undefined,
      }),
    ).toEqual([]);
  });
});

describe(`credentials that cannot be used ${verifies("BLIND-5", "BLIND-10")}`, () => {
  const auth = config("api_key", { source: "QCC_KEY", target: "Token" });

  test.each([{}, { QCC_KEY: "" }])("missing or empty (%j): names the key and how to add it", async (values) => {
    const error = await refusal(place(auth, values));
    expect(error).toMatchObject({ code: "credential_missing", details: { param: "QCC_KEY" } });
    expect(String(error)).toContain("PUT /v1/credentials/QCC_KEY");
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test.each(["a\r\nX-Evil: 1", "a\n", "a\rb", "a\0b", "密钥", "a\u007fb"])(
    "%j is refused in a header, and never shown",
    async (value) => {
      const error = await refusal(place(auth, { QCC_KEY: value }));
      expect(error).toMatchObject({ code: "credential_invalid", details: { param: "QCC_KEY" } });
      expect(String(error)).not.toContain(value);
      expect(deliveryOf(error)).toBe("not_sent");
    },
  );

  test("a line break is refused in the query and inside basic, too", async () => {
    const query = config("api_key", { source: "K", target: "k", location: "query" });
    const basic = config("basic", { source: "K", target: "username" });
    for (const one of [query, basic]) {
      expect(await refusal(place(one, { K: "a\nb" }))).toMatchObject({ code: "credential_invalid" });
    }
  });
});

describe(`what registration finds in a mapping ${verifies("BLIND-10")}`, () => {
  test.each([
    ["api_key without target", config("api_key", { source: "A" }), "mapping.0.target"],
    ["basic without target", config("basic", { source: "A" }), "mapping.0.target"],
    ["basic with another target", config("basic", { source: "A", target: "user" }), "mapping.0.target"],
    ["basic without user name", config("basic", { source: "A", target: "password" }), "mapping"],
    [
      "oauth2 without token_url",
      config("oauth2", { source: "A", target: "client_id" }, { source: "B", target: "client_secret" }),
      "mapping",
    ],
    [
      "the same header twice",
      config("api_key", { source: "A", target: "X-Key" }, { source: "B", target: "x-key" }),
      "mapping.1.target",
    ],
    ["two bearers", config("bearer", { source: "A" }, { source: "B" }), "mapping.1.target"],
    ["a header of the connection", config("api_key", { source: "A", target: "Transfer-Encoding" }), "mapping.0.target"],
    ["host", config("api_key", { source: "A", target: "host" }), "mapping.0.target"],
    ["no header name", config("api_key", { source: "A", target: "X Key:" }), "mapping.0.target"],
  ])("%s", (_what, auth, path) => {
    expect(mappingProblems(auth).map((problem) => problem.path)).toContain(path);
  });

  test.each([
    config("api_key", { source: "A", target: "Authorization" }),
    config(
      "api_key",
      { source: "A", target: "key", location: "query" },
      { source: "B", target: "Key", location: "query" },
    ),
    config("bearer", { source: "A" }),
    config("basic", { source: "A", target: "username" }, { source: "B", target: "password" }),
  ])("nothing in %j", (auth) => {
    expect(mappingProblems(auth)).toEqual([]);
  });

  test("names the places that a type fills", () => {
    expect(authSlots(config("basic", { source: "A", target: "username" }))).toEqual([
      { location: "header", name: "Authorization" },
    ]);
    expect(authSlots(config("bearer", { source: "A", location: "query" }))).toEqual([
      { location: "query", name: "access_token" },
    ]);
  });
});

test("masks show which credential stands where, and hold no value", async () => {
  const masked = async (auth: AuthConfig) => (await maskSecrets(auth)).map(({ value }) => value);
  expect(await masked(config("api_key", { source: "K", target: "Token" }))).toEqual(["***K"]);
  expect(await masked(config("bearer", { source: "K" }))).toEqual(["Bearer ***K"]);
  expect(
    await masked(config("basic", { source: "U", target: "username" }, { source: "P", target: "password" })),
  ).toEqual(["Basic ***U:***P"]);
});
