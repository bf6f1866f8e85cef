import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { OAuthClient } from "../oauth/client.ts";
import { deliveryOf } from "../errors/delivery.ts";
import {
  authSlots,
  mappingProblems,
  maskSecrets,
  placeSecrets,
  userClientFrom,
  type PlaceSecretsOptions,
} from "./auth-mapping.ts";
import { authConfigSchema, type AuthConfig } from "./definition.ts";

const config = (type: string, ...mapping: readonly object[]): AuthConfig => authConfigSchema.parse({ type, mapping });

function place(auth: AuthConfig, values: Readonly<Record<string, string>>, more: Partial<PlaceSecretsOptions> = {}) {
  return placeSecrets(auth, {
    values: new Map(Object.entries(values)),
    accessToken: () => Promise.reject(new Error("no access token was expected to be needed")),
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

const oauthOf = (fields: object, ...targets: readonly string[]): AuthConfig =>
  authConfigSchema.parse({
    type: "oauth2",
    mapping: targets.map((target) => ({ source: target.toUpperCase(), target })),
    ...fields,
  });

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
    const accessToken = (client: OAuthClient): Promise<string> => {
      asked.push(client);
      return Promise.resolve("token-1");
    };
    expect(await shown(place(oauth, values, { accessToken }))).toEqual([["header", "Authorization", "Bearer token-1"]]);
    expect(asked).toEqual([
      expect.objectContaining({
        grant: "client_credentials",
        clientId: "id",
        clientSecret: "secret",
        tokenUrl: values.URL,
        scope: "read",
        sources: { client_id: "ID", client_secret: "SECRET", token_url: "URL", scope: "SCOPE" },
      }),
    ]);
  });

  test("oauth2 of a user: fixed addresses of the definition and credentials together make the client", () => {
    const fixed = { grant: "authorization_code", authorization_url: "https://auth.example.com/authorize" };
    const auth = authConfigSchema.parse({
      type: "oauth2",
      ...fixed,
      audience: "https://crm.example.com",
      mapping: [
        { source: "ID", target: "client_id" },
        { source: "URL", target: "token_url" },
      ],
    });
    expect(mappingProblems(auth)).toEqual([]);
    expect(userClientFrom(auth, new Map(Object.entries(values)))).toMatchObject({
      grant: "authorization_code",
      clientId: "id",
      clientSecret: undefined,
      authorizationUrl: fixed.authorization_url,
      audience: "https://crm.example.com",
    });
    expect(userClientFrom(oauth, new Map(Object.entries(values)))).toBeUndefined();
    expect(userClientFrom(undefined, new Map())).toBeUndefined();
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
    const accessToken = (): Promise<string> => {
      known.push(...hidden);
      return Promise.resolve("token-1");
    };
    await place(oauth, values, { hide, accessToken });
    // The client's secret before it is sent for a token, the token after.
    expect(known).toEqual(["secret"]);
    expect(hidden).toEqual(["secret", "token-1"]);
  });

  test.each([
    [
      "oauth2",
      ["client_id", "client_secret", "token_url"].map((target) => ({ source: target.toUpperCase(), target })),
      "Bearer token-1",
      "Bearer ***CLIENT_ID:***CLIENT_SECRET:***TOKEN_URL",
    ],
    ["bearer", [{ source: "CLIENT_SECRET" }], "Bearer secret-1", "Bearer ***CLIENT_SECRET"],
    [
      "basic",
      [
        { source: "CLIENT_ID", target: "username" },
        { source: "CLIENT_SECRET", target: "password" },
      ],
      `Basic ${Buffer.from("id-1:secret-1").toString("base64")}`,
      "Basic ***CLIENT_ID:***CLIENT_SECRET",
    ],
  ])("%s with keys beside it: each in its own place", async (type, own, authorization, masked) => {
    const auth = config(type, { source: "APIM_KEY", target: "Ocp-Apim-Subscription-Key", type: "api_key" }, ...own, {
      source: "APP",
      target: "client_id",
      location: "query",
      type: "api_key",
    });
    const values = {
      CLIENT_ID: "id-1",
      CLIENT_SECRET: "secret-1",
      TOKEN_URL: "https://id.example/t",
      APIM_KEY: "k-1234",
      APP: "a-1234",
    };
    const hidden: string[] = [];
    const accessToken = ({ clientId }: OAuthClient): Promise<string> =>
      Promise.resolve(clientId === "id-1" ? "token-1" : "");
    const placed = place(auth, values, { accessToken, hide: (secret) => void hidden.push(secret) });
    expect(await shown(placed)).toEqual([
      ["header", "Authorization", authorization],
      ["header", "Ocp-Apim-Subscription-Key", "k-1234"],
      ["query", "client_id", "a-1234"],
    ]);
    expect(hidden).toEqual(expect.arrayContaining(["k-1234", "a-1234"]));
    expect((await maskSecrets(auth)).map(({ value }) => value)).toEqual([masked, "***APIM_KEY", "***APP"]);
    expect(authSlots(auth).map(({ name }) => name)).toEqual([
      "Authorization",
      "Ocp-Apim-Subscription-Key",
      "client_id",
    ]);
  });

  test("a definition without auth_config places nothing", async () => {
    expect(
      await placeSecrets(undefined, {
        values: new Map(),
        accessToken: () => Promise.reject(new Error("not expected")),
        hide: () => undefined,
      }),
    ).toEqual([]);
  });
});

describe(`credentials that cannot be used ${verifies("BLIND-5", "BLIND-10")}`, () => {
  const auth = config("api_key", { source: "QCC_KEY", target: "Token" });

  test.each([{}, { QCC_KEY: "" }, { QCC_KEY: "  " }])(
    "missing or empty (%j): names the key and how to add it",
    async (values) => {
      const error = await refusal(place(auth, values));
      expect(error).toMatchObject({ code: "credential_missing", details: { param: "QCC_KEY" } });
      expect(String(error)).toContain("PUT /v1/credentials/QCC_KEY");
      expect(deliveryOf(error)).toBe("not_sent");
    },
  );

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
    [
      "a part of the client with a wrong name",
      oauthOf({}, "client_id", "client_secret", "token_url", "scop"),
      "mapping.3.target",
    ],
    [
      "a key beside without target",
      config("bearer", { source: "A" }, { source: "B", type: "api_key" }),
      "mapping.1.target",
    ],
    ["nothing but keys beside", config("bearer", { source: "A", target: "X-Key", type: "api_key" }), "mapping"],
    [
      "a key beside in the place of the token",
      config("basic", { source: "A", target: "username" }, { source: "B", target: "authorization", type: "api_key" }),
      "mapping.1.target",
    ],
    [
      "the client's parts as keys beside",
      config(
        "oauth2",
        ...["client_id", "client_secret", "token_url"].map((target) => ({ source: "A", target, type: "api_key" })),
      ),
      "mapping",
    ],
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
      "a user's oauth2 without a place to send users",
      oauthOf({ grant: "authorization_code" }, "client_id", "token_url"),
      "mapping",
    ],
    [
      "a user's oauth2 with that place given twice",
      oauthOf(
        { grant: "authorization_code", authorization_url: "https://a.example/" },
        "client_id",
        "token_url",
        "authorization_url",
      ),
      "authorization_url",
    ],
    [
      "a script as that place",
      oauthOf({ grant: "authorization_code", authorization_url: "javascript:alert(1)" }, "client_id", "token_url"),
      "authorization_url",
    ],
    [
      "a place for users of a tenant's oauth2",
      oauthOf({ authorization_url: "https://a.example/" }, "client_id", "client_secret", "token_url"),
      "authorization_url",
    ],
    [
      "a mapped place for users of a tenant's oauth2",
      oauthOf({}, "client_id", "client_secret", "token_url", "authorization_url"),
      "mapping.3.target",
    ],
    [
      "client authentication of a client without secret",
      oauthOf(
        { grant: "authorization_code", authorization_url: "https://a.example/", client_auth: "post" },
        "client_id",
        "token_url",
      ),
      "client_auth",
    ],
    ["a relative resource", oauthOf({ resource: "/crm" }, "client_id", "client_secret", "token_url"), "resource"],
    [
      "a resource with a fragment",
      oauthOf({ resource: "https://crm.example/#x" }, "client_id", "client_secret", "token_url"),
      "resource",
    ],
    [
      "a grant of another type",
      authConfigSchema.parse({ ...config("bearer", { source: "A" }), grant: "client_credentials" }),
      "grant",
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
    config("api_key", { source: "A", target: "X-Key", type: "api_key" }),
    config(
      "api_key",
      { source: "A", target: "key", location: "query" },
      { source: "B", target: "Key", location: "query" },
    ),
    config("bearer", { source: "A" }),
    config("bearer", { source: "A" }, { source: "B", target: "X-Key", type: "api_key" }),
    config("basic", { source: "A", target: "username" }, { source: "B", target: "username", type: "api_key" }),
    config("basic", { source: "A", target: "username" }, { source: "B", target: "password" }),
    oauthOf({ client_auth: "post", audience: "crm", resource: "urn:crm" }, "client_id", "client_secret", "token_url"),
    oauthOf(
      { grant: "authorization_code", issuer: "https://a.example" },
      "client_id",
      "token_url",
      "authorization_url",
    ),
  ])("nothing in %j", (auth) => {
    expect(mappingProblems(auth)).toEqual([]);
  });

  test("says of a key in the place of the token that its type fills that itself", () => {
    const user = { source: "A", target: "username" };
    const auth = config("basic", { source: "B", target: "authorization", type: "api_key" }, user);
    expect(mappingProblems(auth)).toEqual([
      { path: "mapping.0.target", message: "is 'authorization', which type 'basic' fills itself" },
    ]);
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
