import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startHttpStub, type HttpStub, type StubReply } from "../../../../test/support/http-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress } from "../ports/egress.ts";
import type { OAuthClient } from "./client.ts";
import { challengeOf, newVerifier } from "./pkce.ts";
import { basicAuthorization, oauthErrorOf, requestToken, revokeToken, type TokenForm } from "./token-endpoint.ts";

let server: HttpStub;
let egress: Egress;
beforeAll(async () => {
  server = await startHttpStub();
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
});
afterAll(async () => {
  await egress.close();
  await server.close();
});

const clientAt = (change: Partial<OAuthClient> = {}): OAuthClient => ({
  grant: "client_credentials",
  clientId: "the-client-id",
  clientSecret: "the-client-secret",
  tokenUrl: `${server.url}/token`,
  sources: { client_id: "ID", client_secret: "SECRET", token_url: "URL" },
  ...change,
});

function ask(
  reply: StubReply,
  change: Partial<OAuthClient> = {},
  form: TokenForm = { grant_type: "client_credentials" },
) {
  server.requests.length = 0;
  server.answer = () => reply;
  return requestToken(egress, clientAt(change), { form, clientAuth: undefined });
}

const json = (body: unknown): StubReply => ({ body: JSON.stringify(body) });
const failureOf = async (work: Promise<unknown>): Promise<GatewayError> => {
  const error = await work.catch((thrown: unknown) => thrown);
  if (!(error instanceof GatewayError)) throw new Error("it did not fail");
  return error;
};

describe(`the proof of a client ${verifies("BLIND-3")}`, () => {
  test("form-encodes both halves before they are joined", () => {
    expect(basicAuthorization({ ...clientAt(), clientId: "a:b c", clientSecret: "p%ss/ü" })).toBe(
      "Basic YSUzQWIrYzpwJTI1c3MlMkYlQzMlQkM=",
    );
  });

  test("of an authorization code: the challenge is the hash of a verifier that nobody can guess", () => {
    expect(challengeOf("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")).toBe(
      "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    );
    const verifiers = Array.from({ length: 50 }, newVerifier);
    expect(new Set(verifiers).size).toBe(50);
    for (const verifier of verifiers) expect(verifier).toMatch(/^[A-Za-z0-9._~-]{43,128}$/);
  });

  test("is not asked for anew where the definition says how", async () => {
    const refused = { status: 401, body: '{"error":"invalid_client"}' };
    expect(oauthErrorOf(await failureOf(ask(refused, { clientAuth: "basic" })))).toBe("invalid_client");
    expect(server.requests).toHaveLength(1);
    expect(oauthErrorOf(await failureOf(ask(refused)))).toBe("invalid_client");
    expect(server.requests).toHaveLength(2);
  });

  test.each([
    ["401 without a word", { status: 401, headers: { "www-authenticate": "Basic" } }],
    ["401 in words of its own", { status: 401, body: '{"message":"Unauthorized"}' }],
    ["a missing parameter", { status: 400, body: '{"error":"invalid_request","error_description":"client_id?"}' }],
    ["Auth0's denial", { status: 401, body: '{"error":"access_denied","error_description":"Unauthorized"}' }],
    ["Facebook's", { status: 400, body: '{"error":{"message":"Missing client_id parameter.","code":101}}' }],
    ["Twitch's", { status: 400, body: '{"status":400,"message":"missing client id"}' }],
  ])("goes into the body where a server that looks for it there says %s", async (_what, refusal) => {
    server.requests.length = 0;
    server.answer = ({ headers }) => (headers.authorization === undefined ? json({ access_token: "t" }) : refusal);
    const form = { grant_type: "client_credentials" } as const;
    const reply = await requestToken(egress, clientAt(), { form, clientAuth: undefined });
    expect(reply).toMatchObject({ accessToken: "t", clientAuth: "post" });
    expect(server.requests).toHaveLength(2);
  });

  test.each([
    [
      "basic",
      { status: 401, body: '{"error":"invalid_client"}' },
      { status: 400, body: '{"error":"invalid_request"}' },
    ],
    ["post", { status: 400, body: '{"error":"invalid_request"}' }, { status: 401, body: '{"error":"invalid_client"}' }],
  ])("that is wrong is told as such by a server that takes %s only", async (_taken, basic, post) => {
    server.answer = ({ headers }): StubReply => (headers.authorization === undefined ? post : basic);
    const form = { grant_type: "client_credentials" } as const;
    const error = await failureOf(requestToken(egress, clientAt(), { form, clientAuth: undefined }));
    expect(oauthErrorOf(error)).toBe("invalid_client");
  });

  test.each(["invalid_grant", "bad_refresh_token", "invalid_scope", "unauthorized_client"])(
    "is taken where the server goes on to say %s",
    async (error) => {
      await failureOf(ask({ status: 400, ...json({ error }) }));
      expect(server.requests).toHaveLength(1);
    },
  );

  test("that is refused without a word is at fault, not the address", async () => {
    const error = await failureOf(ask({ status: 401 }));
    expect(error).toMatchObject({ code: "credential_invalid", details: { param: "SECRET" } });
    expect(error.message).toContain("check credential 'ID' (client_id), set with PUT /v1/credentials/ID");
  });

  test("a client without a secret only names itself", async () => {
    await ask(
      json({ access_token: "t" }),
      { clientSecret: undefined },
      { grant_type: "refresh_token", refresh_token: "r" },
    );
    const [request] = server.requests;
    expect(request?.headers.authorization).toBeUndefined();
    expect(request?.body.toString()).toBe("grant_type=refresh_token&refresh_token=r&client_id=the-client-id");
  });
});

describe(`what a token endpoint may answer ${verifies("BLIND-3", "BLIND-8")}`, () => {
  const token = { access_token: "t", token_type: "Bearer" };

  test.each([
    [
      "all there is",
      { ...token, expires_in: 60, refresh_token: "r", scope: "a b" },
      { expiresIn: 60, refreshToken: "r", scope: "a b" },
    ],
    ["a type in small letters", { ...token, token_type: "bearer" }, { accessToken: "t" }],
    ["no type", { access_token: "t" }, { accessToken: "t" }],
    ["Slack's types", { ok: true, access_token: "xoxb-1", token_type: "bot" }, { accessToken: "xoxb-1" }],
    ["a span as text", { ...token, expires_in: "60" }, { expiresIn: 60 }],
    ["a span that is none", { ...token, expires_in: "soon" }, { expiresIn: undefined }],
    [
      "null where nothing is meant",
      { ...token, expires_in: null, refresh_token: null, scope: null },
      { expiresIn: undefined, refreshToken: undefined, scope: undefined },
    ],
  ])("%s", async (_what, body, expected) => {
    expect(await ask(json(body))).toMatchObject(expected);
  });

  test("a form, as in the early days", async () => {
    const body = "access_token=t&token_type=bearer&expires_in=60&scope=a%20b";
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    expect(await ask({ body, headers })).toMatchObject({ accessToken: "t", expiresIn: 60, scope: "a b" });
  });

  test.each([
    ["a list", json([token])],
    ["text", json("token")],
    ["a number for a token", json({ access_token: 7 })],
    ["an empty token", json({ access_token: "" })],
    ["nothing", { body: "" }],
    ["a page", { body: "<html>access_token=t</html>", headers: { "content-type": "text/html" } }],
    ["a prototype for an error", { status: 400, ...json({ error: "__proto__" }) }],
    ["an object for an error", { status: 400, ...json({ error: { code: 1 } }) }],
  ])("%s is no token, and the error names the setting", async (_what, reply) => {
    const error = await failureOf(ask(reply));
    expect(error).toMatchObject({ code: "credential_invalid", details: { param: "URL" } });
    expect(error.message).toContain("PUT /v1/credentials/URL");
  });

  test("more than any token takes is not read to the end", async () => {
    const error = await failureOf(ask({ body: `{"access_token":"${"t".repeat(1_000_000)}"}` }));
    expect(error.code).toBe("credential_invalid");
    expect(error.message.length).toBeLessThan(500);
  });

  test("the server's words are cut, put on one line and rid of secrets", async () => {
    const description = `the-client-secret\n\u0007${"very ".repeat(200)}long`;
    const error = await failureOf(
      ask({ status: 400, ...json({ error: "invalid_scope", error_description: description }) }),
    );
    expect(error.message).toContain('"[redacted] very very');
    expect(error.message).not.toMatch(/the-client-secret|\p{Cc}/u);
    expect(error.message.length).toBeLessThan(600);
  });

  test.each([
    [429, { "retry-after": "7" }, 7_000],
    [503, {}, undefined],
    [500, {}, undefined],
  ])("status %i may pass, and says when", async (status, headers, retryAfterMs) => {
    const error = await failureOf(ask({ status, body: "<h1>busy</h1>", headers }));
    expect(error).toMatchObject({ code: "tool_failed", details: { extra: { status }, param: "URL" } });
    expect(error.details.retryAfterMs).toBe(retryAfterMs);
    expect(oauthErrorOf(error)).toBeUndefined();
  });

  test.each([429, 500])(
    "status %i may pass with a word of the server's own as well, and is not asked twice",
    async (status) => {
      const busy = json({ error: "too_many_requests", error_description: "Global limit has been reached" });
      const error = await failureOf(ask({ status, ...busy, headers: { ...busy.headers, "retry-after": "7" } }));
      expect(error).toMatchObject({ code: "tool_failed", details: { extra: { status }, retryAfterMs: 7_000 } });
      expect(error.message).toContain("too_many_requests");
      expect(oauthErrorOf(error)).toBeUndefined();
      expect(server.requests).toHaveLength(1);
    },
  );

  test("'temporarily_unavailable' is not the client's fault, whatever the status", async () => {
    const error = await failureOf(ask({ status: 400, ...json({ error: "temporarily_unavailable" }) }));
    expect(error.code).toBe("tool_failed");
  });

  test("a code that a server spent on a refused client is not what the error is about", async () => {
    server.requests.length = 0;
    server.answer = ({ headers }) =>
      headers.authorization === undefined
        ? { status: 400, body: '{"error":"invalid_grant"}' }
        : { status: 401, body: '{"error":"invalid_client"}' };
    const form = { grant_type: "authorization_code", code: "c", redirect_uri: "u", code_verifier: "v" } as const;
    const work = requestToken(egress, clientAt({ grant: "authorization_code" }), { form, clientAuth: undefined });
    expect(oauthErrorOf(await failureOf(work))).toBe("invalid_client");
  });
});

describe("revocation", () => {
  const token = { value: "r", hint: "refresh_token", clientAuth: "basic" } as const;

  test("sends the token and what it is, with the client's proof", async () => {
    server.requests.length = 0;
    server.answer = () => ({ body: "" });
    await revokeToken(egress, clientAt({ revocationUrl: `${server.url}/revoke` }), token);
    const [request] = server.requests;
    expect(request?.body.toString()).toBe("token=r&token_type_hint=refresh_token");
    expect(request?.headers.authorization).toMatch(/^Basic /);
  });

  test("asks nobody where the server offers none, and says so where the server refuses", async () => {
    server.requests.length = 0;
    await revokeToken(egress, clientAt(), token);
    expect(server.requests).toHaveLength(0);
    server.answer = () => ({ status: 503 });
    const error = await failureOf(revokeToken(egress, clientAt({ revocationUrl: `${server.url}/revoke` }), token));
    expect(error).toMatchObject({ code: "tool_failed", details: { extra: { status: 503 } } });
  });
});
