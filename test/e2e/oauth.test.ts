/**
 * Tools with OAuth 2 client credentials, against a real authorization server: one token for all
 * instances, however many ask at once, and errors that name the tenant's setting.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { newId } from "@toolyard/core/ids";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  refuse,
  secretOf,
  startAuthorizationServer,
  type AuthorizationServer,
  type TokenAnswer,
} from "../support/authorization-server.ts";
import { startDatabaseProxy, type DatabaseProxy } from "../support/database-proxy.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, startGatewayProcess, type Gateway, type GatewayProcess } from "../support/gateway.ts";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";
import { filesBelow, findSecrets } from "../support/written-secrets.ts";

let first: Gateway;
let second: Gateway;
let authority: AuthorizationServer;
let backEnd: HttpStub;
/** Calls that the back end has carried out. */
let done: string[];

beforeAll(async () => {
  first = await startGateway();
  second = await startGateway({ sharedWith: first });
  authority = await startAuthorizationServer();
  backEnd = await startHttpStub(carryOut);
});
afterAll(async () => {
  await second.close();
  await first.close();
  await backEnd.close();
  await authority.close();
});
afterEach(() => {
  backEnd.answer = carryOut;
  authority.onToken = () => undefined;
  authority.before = () => false;
});

function carryOut({ headers, method, target }: RecordedRequest): StubReply {
  const token = String(headers.authorization).replace("Bearer ", "");
  if (!authority.accepts(token)) return { status: 401, body: '{"error":"invalid_token"}' };
  done.push(`${method} ${target}`);
  return { body: '{"ok":true}' };
}

const mapping = [
  { source: "CRM_ID", target: "client_id" },
  { source: "CRM_SECRET", target: "client_secret" },
  { source: "CRM_TOKEN_URL", target: "token_url" },
];

interface Bench {
  readonly tenant: TestTenant;
  /** Calls a tool on an instance; the first where none is named. */
  call(name?: string, gateway?: Gateway, options?: string): Promise<Reply>;
}

/** A tenant with a client of its own, and tools that read and write with it. */
async function newBench(auth: Json = {}, values: Readonly<Record<string, string>> = {}): Promise<Bench> {
  authority.asks.length = 0;
  done = [];
  backEnd.requests.length = 0;
  const tenant = await first.newTenant({ concurrent_tool_calls: 100 });
  const client = `client-${tenant.id}`;
  const all = { CRM_ID: client, CRM_SECRET: secretOf(client), CRM_TOKEN_URL: `${authority.url}/token`, ...values };
  for (const [name, value] of Object.entries(all)) await tenant.putCredential(name, value);
  const auth_config = { type: "oauth2", mapping, ...auth };
  await tenant.addPlugin({ ...readingTool(backEnd), auth_config });
  await tenant.addPlugin({ ...writingTool(backEnd), auth_config });
  return {
    tenant,
    call(name = "lookup", gateway = first, options = "") {
      const args = name === "lookup" ? { q: "x" } : { sku: "a" };
      const body = { uri: `plugin://${name}${options}`, arguments: args };
      return gateway.client(tenant.key).send("post", "/v1/tools/invoke", body);
    },
  };
}

const statusesOf = (replies: readonly Reply[]): readonly number[] => [...new Set(replies.map(({ status }) => status))];
const grantsAsked = (): readonly unknown[] => authority.asks.map(({ form }) => form["grant_type"]);
const both = (): readonly Gateway[] => [first, second];

/** Answers for as long as the token endpoint is held. */
function hold(): { readonly waiting: () => number; release(): void } {
  const gate = Promise.withResolvers<boolean>();
  let waiting = 0;
  authority.before = () => {
    waiting += 1;
    return gate.promise;
  };
  return {
    waiting: () => waiting,
    release() {
      authority.before = () => false;
      gate.resolve(false);
    },
  };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 20_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error("this did not come to be");
    await pause(5);
  }
}

describe(`one token for all ${verifies("BLIND-3")}`, () => {
  test("fifty calls at once on two instances ask for it once", async () => {
    const { call } = await newBench();
    const held = hold();
    const calls = Array.from({ length: 50 }, (_none, at) =>
      call(at % 3 === 0 ? "create_order" : "lookup", both()[at % 2]),
    );
    await until(() => held.waiting() > 0);
    await pause(100);
    held.release();
    expect(statusesOf(await Promise.all(calls))).toEqual([200]);
    expect(grantsAsked()).toEqual(["client_credentials"]);
    expect(done).toHaveLength(50);
    expect(new Set(backEnd.requests.map(({ headers }) => headers.authorization)).size).toBe(1);
  });

  test("an instance that starts later uses it without asking, and so do tools of the same client", async () => {
    const { call, tenant } = await newBench();
    await call();
    const third = await startGateway({ sharedWith: first });
    await third.client(tenant.key).post("/v1/tools/invoke", { name: "create_order", arguments: { sku: "a" } });
    await third.close();
    expect(authority.asks).toHaveLength(1);
    expect(done).toHaveLength(2);
  });

  test("another client, scope or secret has another one; so has another tenant with the same client", async () => {
    const { call, tenant } = await newBench();
    await call();
    await tenant.putCredential("CRM_SECRET", secretOf(`client-${tenant.id}`));
    await call();
    expect(authority.asks).toHaveLength(2);
    const other = await first.newTenant();
    for (const [name, value] of Object.entries({
      CRM_ID: `client-${tenant.id}`,
      CRM_SECRET: secretOf(`client-${tenant.id}`),
      CRM_TOKEN_URL: `${authority.url}/token`,
    })) {
      await other.putCredential(name, value);
    }
    await other.addPlugin({ ...readingTool(backEnd), auth_config: { type: "oauth2", mapping } });
    await other.client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
    expect(authority.asks).toHaveLength(3);
  });

  test("a key that the back end wants beside it goes where its entry says", async () => {
    const key = { source: "APIM_KEY", target: "Ocp-Apim-Subscription-Key", type: "api_key" };
    const { tenant, call } = await newBench({ mapping: [...mapping, key] }, { APIM_KEY: "k-secret-7" });
    expect((await call()).status).toBe(200);
    const [request] = backEnd.requests;
    expect(request?.headers).toMatchObject({
      authorization: expect.stringMatching(/^Bearer ./),
      "ocp-apim-subscription-key": "k-secret-7",
    });
    const { request: shown } = await tenant.client.post("/v1/tools/explain", { name: "lookup", arguments: { q: "x" } });
    expect(JSON.stringify(shown)).toContain("***APIM_KEY");
    await tenant.client.expect("delete", "/v1/credentials/APIM_KEY");
    const without = await call();
    expect([without.status, without.json.error.code, without.json.error.param]).toEqual([
      400,
      "credential_missing",
      "APIM_KEY",
    ]);
  });

  test("a user's own client has one of its own, which nobody else's call carries", async () => {
    const { tenant } = await newBench();
    const own = "client-of-ann";
    await tenant.putCredential("CRM_ID", own, "ann");
    await tenant.putCredential("CRM_SECRET", secretOf(own), "ann");
    const sent: unknown[] = [];
    for (const user_id of ["ann", "bob", "ann"]) {
      const { client } = await tenant.newKey({ user_id, scopes: ["tools"] });
      await client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
      sent.push(backEnd.requests.at(-1)?.headers.authorization);
    }
    expect(authority.asks).toHaveLength(2);
    expect(sent[0]).toBe(sent[2]);
    expect(sent[0]).not.toBe(sent[1]);
  });

  test("a user who says where tokens come from brings the secret, too: the tenant's is not sent there", async () => {
    const { tenant } = await newBench();
    const own = await startHttpStub(() => ({ body: '{"access_token":"of-their-own-server"}' }));
    const { client } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    // Without any scope but that of the calls: it is the user's own.
    await client.expect("put", "/v1/credentials/CRM_TOKEN_URL", { value: `${own.url}/token`, user_id: "ann" });
    const lookUp = { name: "lookup", arguments: { q: "x" } };
    expect(await client.send("post", "/v1/tools/invoke", lookUp)).toMatchObject({
      status: 400,
      json: {
        error: { code: "credential_invalid", param: "CRM_TOKEN_URL", message: expect.stringContaining("'CRM_SECRET'") },
      },
    });
    expect(own.requests).toEqual([]);
    await client.expect("put", "/v1/credentials/CRM_SECRET", { value: "a-secret-of-ann", user_id: "ann" });
    await client.send("post", "/v1/tools/invoke", lookUp);
    const [asked] = own.requests;
    const basic = String(asked?.headers.authorization).replace("Basic ", "");
    expect(Buffer.from(basic, "base64").toString()).toBe(`client-${tenant.id}:a-secret-of-ann`);
    expect(backEnd.requests.at(-1)?.headers.authorization).toBe("Bearer of-their-own-server");
    await own.close();
  });

  test("a user who says what it is for brings the secret, too: the tenant's gets the tenant's own scope", async () => {
    const scope = { source: "CRM_SCOPE", target: "scope" };
    const { tenant } = await newBench({ mapping: [...mapping, scope] }, { CRM_SCOPE: "crm.read" });
    const { client } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const lookUp = { name: "lookup", arguments: { q: "x" } };
    await client.expect("put", "/v1/credentials/CRM_SCOPE", { value: "crm.admin", user_id: "ann" });
    expect(await client.send("post", "/v1/tools/invoke", lookUp)).toMatchObject({
      status: 400,
      json: { error: { code: "credential_invalid", param: "CRM_SCOPE" } },
    });
    expect(authority.asks).toEqual([]);
    await client.expect("put", "/v1/credentials/CRM_ID", { value: "client-of-ann", user_id: "ann" });
    await client.expect("put", "/v1/credentials/CRM_SECRET", { value: secretOf("client-of-ann"), user_id: "ann" });
    expect((await client.send("post", "/v1/tools/invoke", lookUp)).status).toBe(200);
    expect(authority.asks.map(({ form }) => form["scope"])).toEqual(["crm.admin"]);
  });

  test("it is nowhere to be read: not in answers, the log or a file", async () => {
    const { call, tenant } = await newBench();
    // Careless back ends repeat what they were sent.
    backEnd.answer = ({ headers }) => ({ body: JSON.stringify({ you_sent: headers.authorization }) });
    const replies = [await call(), await call(undefined, second)];
    const token = String(backEnd.requests.at(-1)?.headers.authorization).replace("Bearer ", "");
    expect(authority.accepts(token)).toBe(true);
    for (const path of ["/v1/calls", "/v1/oauth/connections", "/v1/credentials"]) {
      replies.push(await tenant.client.send("get", path));
    }
    const said = replies.map(({ bytes }, index) => ({ where: `answer ${index}`, bytes }));
    const logged = { where: "log", bytes: Buffer.from(JSON.stringify([first.logged, second.logged])) };
    // The first part of a token says of what kind it is.
    const secrets = [...token.split(".").slice(1), secretOf(`client-${tenant.id}`)];
    expect(findSecrets([...said, logged, ...(await filesBelow(first.dataDir))], secrets)).toEqual([]);
  });
});

describe(`how long it is used ${verifies("BLIND-3")}`, () => {
  const answering = (expires_in: unknown): void => {
    authority.onToken = (answer) => {
      if (answer.body !== "") answer.body = { ...answer.body, expires_in };
    };
  };

  test.each([
    ["an hour", 3_600],
    ["a number written as text", "3600"],
    ["nothing, which is taken for some minutes", undefined],
    ["more than there is time for", 1e300],
  ])("a server that says %s is asked once by either instance", async (_what, expiresIn) => {
    const { call } = await newBench();
    answering(expiresIn);
    for (const gateway of [...both(), ...both()]) expect((await call("lookup", gateway)).status).toBe(200);
    expect(authority.asks).toHaveLength(1);
  });

  test("when it has run out, it is fetched again before the back end has to say so", async () => {
    const { call } = await newBench();
    answering(2);
    await call();
    await call("lookup", second);
    expect(authority.asks).toHaveLength(1);
    await pause(1_050);
    expect(statusesOf(await Promise.all(both().map((gateway) => call("lookup", gateway))))).toEqual([200]);
    expect(authority.asks).toHaveLength(2);
    expect(backEnd.requests.every(({ headers }) => headers.authorization !== undefined)).toBe(true);
    expect(done).toHaveLength(4);
  });

  test.each([0, -5, "0"])(
    "one that is over at once (%j) serves those who waited for it, and no longer",
    async (value) => {
      const { call } = await newBench();
      answering(value);
      const held = hold();
      const calls = Array.from({ length: 10 }, (_none, at) => call("lookup", both()[at % 2]));
      await until(() => held.waiting() > 0);
      await pause(100);
      held.release();
      expect(statusesOf(await Promise.all(calls))).toEqual([200]);
      expect(authority.asks).toHaveLength(1);
      await call();
      expect(authority.asks).toHaveLength(2);
    },
  );

  test("the server's clock does not matter", async () => {
    const { call } = await newBench();
    authority.before = (_request, response) => {
      response.setHeader("date", "Mon, 01 Jan 2001 00:00:00 GMT");
      response.sendDate = false;
      return false;
    };
    await call();
    await call("lookup", second);
    expect(authority.asks).toHaveLength(1);
  });
});

describe(`a back end that no longer takes it ${verifies("BLIND-3")}`, () => {
  test.each(["lookup", "create_order"])("%s: gets a new one, once, and the call succeeds", async (tool) => {
    const { call } = await newBench();
    await call();
    authority.withdrawTokens();
    done = [];
    expect((await call(tool)).status).toBe(200);
    expect(done).toHaveLength(1);
    expect(authority.asks).toHaveLength(2);
    expect((await call(tool, second)).status).toBe(200);
    expect(authority.asks).toHaveLength(2);
  });

  test("of many calls that are refused at once on two instances, one asks for the new one", async () => {
    const { call } = await newBench();
    await call();
    await call("lookup", second);
    authority.withdrawTokens();
    const calls = Array.from({ length: 30 }, (_none, at) =>
      call(at % 2 === 0 ? "lookup" : "create_order", both()[at % 2]),
    );
    expect(statusesOf(await Promise.all(calls))).toEqual([200]);
    expect(authority.asks).toHaveLength(2);
  });

  test("and does not take the new one either: the call fails after two sends, with what the back end said", async () => {
    const { call } = await newBench();
    await call();
    authority.withdrawTokens();
    authority.onToken = (answer) => {
      if (answer.body !== "") answer.body = { ...answer.body, access_token: "never-given" };
      setImmediate(() => authority.withdrawTokens());
    };
    backEnd.requests.length = 0;
    const { status, json } = await call("create_order");
    expect({ status, error: json.error }).toMatchObject({ status: 502, error: { code: "tool_failed", status: 401 } });
    expect(backEnd.requests).toHaveLength(2);
    expect(authority.asks).toHaveLength(2);
  });

  test("and takes none from the start: a token that was just made is not asked for again", async () => {
    const { call } = await newBench();
    authority.onToken = (answer) => {
      if (answer.body !== "") answer.body = { ...answer.body, access_token: "never-given" };
      setImmediate(() => authority.withdrawTokens());
    };
    const { json } = await call();
    expect(json.error).toMatchObject({ code: "tool_failed", status: 401 });
    expect(backEnd.requests).toHaveLength(1);
    expect(authority.asks).toHaveLength(1);
  });

  test("the renewal fails for a passing reason: the call says so, and the next one may succeed", async () => {
    const { call } = await newBench();
    await call();
    authority.withdrawTokens();
    authority.onToken = (answer) => void Object.assign(answer, { statusCode: 503, body: { error: "oops" } });
    done = [];
    const failed = await call("create_order");
    expect(failed.json.error).toMatchObject({
      code: expect.stringMatching(/tool_failed|credential_invalid/),
      message: expect.stringContaining("CRM_TOKEN_URL"),
    });
    authority.onToken = () => undefined;
    await pause(1_050);
    expect((await call("create_order")).status).toBe(200);
    expect(done).toHaveLength(1);
  });
});

describe(`a server that gives none ${verifies("BLIND-3", "BLIND-6")}`, () => {
  interface Failure {
    readonly what: string;
    readonly answer: (answer: TokenAnswer) => void;
    readonly code: string;
    readonly says: readonly string[];
  }

  const failures: readonly Failure[] = [
    {
      what: "a wrong secret",
      answer: (answer) => refuse(answer, 401, "invalid_client", "Client authentication failed"),
      code: "credential_invalid",
      says: ["CRM_ID", "CRM_SECRET", "client_secret", "PUT /v1/credentials/", "Client authentication failed"],
    },
    {
      what: "a client that may not do this",
      answer: (answer) => refuse(answer, 400, "unauthorized_client"),
      code: "credential_invalid",
      says: ["CRM_ID", "client_credentials"],
    },
    {
      what: "a scope that there is not",
      answer: (answer) => refuse(answer, 400, "invalid_scope"),
      code: "credential_invalid",
      says: ["'scope'"],
    },
    {
      what: "an unknown audience",
      answer: (answer) => refuse(answer, 400, "invalid_target"),
      code: "credential_invalid",
      says: ["auth_config.audience", "auth_config.resource"],
    },
    {
      what: "an error nobody has heard of",
      answer: (answer) => refuse(answer, 418, "out_of_tea"),
      code: "credential_invalid",
      says: ["out_of_tea", "CRM_TOKEN_URL"],
    },
    {
      what: "an error with status 200",
      answer: (answer) => refuse(answer, 200, "invalid_client"),
      code: "credential_invalid",
      says: ["CRM_SECRET"],
    },
    {
      what: "a success without a token",
      answer: (answer) => void (answer.body = { ok: true }),
      code: "credential_invalid",
      says: ["CRM_TOKEN_URL", "status 200"],
    },
    {
      what: "a token of another kind",
      answer: (answer) => {
        if (answer.body !== "") answer.body = { ...answer.body, token_type: "mac" };
      },
      code: "tool_failed",
      says: ["bearer"],
    },
    {
      what: "a token that would break out of the header",
      answer: (answer) => {
        if (answer.body !== "") answer.body = { ...answer.body, access_token: "abc\r\nx-evil: 1" };
      },
      code: "tool_failed",
      says: ["CRM_TOKEN_URL"],
    },
  ];

  test.each(failures)("$what: the error names the setting, nothing is sent", async ({ answer, code, says }) => {
    const { call } = await newBench();
    authority.onToken = answer;
    const { json, text } = await call();
    expect(json.error.code).toBe(code);
    for (const word of says) expect(json.error.message).toContain(word);
    expect(text).not.toContain(authority.url.slice("http://".length));
    expect(backEnd.requests).toHaveLength(0);
  });

  test.each([
    ["a page", 404, "text/html", "<!doctype html><h1>Not found</h1>"],
    ["a page that says all is well", 200, "text/html", "<h1>Log in</h1>"],
    ["a redirect", 302, "text/plain", ""],
    ["nothing", 400, "application/json", ""],
  ])("%s instead of an answer: the error names the address's setting", async (_what, status, type, body) => {
    const { call } = await newBench();
    authority.before = (_request, response) => {
      response.writeHead(status, { "content-type": type, location: "http://169.254.169.254/" }).end(body);
      return true;
    };
    const { json } = await call();
    expect(json.error).toMatchObject({ code: "credential_invalid", param: "CRM_TOKEN_URL" });
    for (const word of [String(status), type, "CRM_TOKEN_URL"]) expect(json.error.message).toContain(word);
  });

  test("what the server repeats of our secrets is not shown", async () => {
    const { call, tenant } = await newBench();
    const client = `client-${tenant.id}`;
    authority.onToken = (answer, { authorization }) =>
      refuse(answer, 400, "invalid_request", `${client} sent ${secretOf(client)} in ${String(authorization)}`);
    const { text, json } = await call();
    expect(json.error.message).toContain("[redacted]");
    for (const secret of [client, secretOf(client), Buffer.from(`${client}:${secretOf(client)}`).toString("base64")]) {
      expect(text).not.toContain(secret);
    }
  });

  test("an overloaded one is asked again as the tool's attempts allow", async () => {
    const { call } = await newBench();
    let asked = 0;
    authority.before = (_request, response) => {
      asked += 1;
      if (asked > 2) return false;
      response.writeHead(503, { "retry-after": "0" }).end();
      return true;
    };
    const refused = await call();
    expect(refused.json.error).toMatchObject({ code: "tool_failed", status: 503 });
    expect((await call("create_order", first, "?max-attempts=3")).status).toBe(200);
    expect(asked).toBe(3);
    expect(done).toHaveLength(1);
  });

  test.each([
    ["is not an address", "not an address", "credential_invalid"],
    ["is a file", "file:///etc/passwd", "credential_invalid"],
    ["has a user in it", "https://me:pass-word-1@login.example.com/token", "credential_invalid"],
    ["is not to be reached", "http://169.254.169.254/token", "egress_denied"],
    ["is closed", "http://127.0.0.1:1/token", "tool_unreachable"],
  ])("a token_url that %s: the error names the credential, never its value", async (_what, url, code) => {
    const { call } = await newBench({}, { CRM_TOKEN_URL: url });
    const { json, text } = await call();
    expect(json.error).toMatchObject({ code, param: "CRM_TOKEN_URL" });
    expect(json.error.message).toContain("CRM_TOKEN_URL");
    expect(text).not.toContain(url);
    expect(text).not.toMatch(/pass-word-1|169\.254/);
  });

  test("a right secret after a wrong one works at once", async () => {
    const { call, tenant } = await newBench({}, { CRM_SECRET: "wrong-secret" });
    expect((await call()).json.error.code).toBe("credential_invalid");
    await tenant.putCredential("CRM_SECRET", secretOf(`client-${tenant.id}`));
    expect((await call()).status).toBe(200);
  });

  test("many calls with a wrong secret do not become as many requests", async () => {
    const { call } = await newBench({ client_auth: "basic" }, { CRM_SECRET: "wrong-secret" });
    const replies = await Promise.all(Array.from({ length: 20 }, () => call()));
    expect(new Set(replies.map(({ json }) => json.error.code))).toEqual(new Set(["credential_invalid"]));
    expect(authority.asks.length).toBeLessThan(4);
  });
});

describe(`what the server is sent ${verifies("BLIND-3")}`, () => {
  test("basic authentication unless the definition says otherwise, and nothing twice", async () => {
    const { call, tenant } = await newBench();
    await call();
    const [ask] = authority.asks;
    expect(ask?.form).toEqual({ grant_type: "client_credentials" });
    const pair = Buffer.from(String(ask?.authorization).slice(6), "base64").toString("utf8");
    expect(pair).toBe(`client-${tenant.id}:${secretOf(`client-${tenant.id}`)}`);
  });

  test("the client in the body, the scope, audience and resource of the definition", async () => {
    const { call, tenant } = await newBench(
      {
        client_auth: "post",
        audience: "crm",
        resource: "https://crm.example.com/",
        mapping: [...mapping, { source: "CRM_SCOPE", target: "scope" }],
      },
      { CRM_SCOPE: "orders:read orders:write" },
    );
    expect((await call()).status).toBe(200);
    expect(authority.asks).toEqual([
      {
        authorization: undefined,
        form: {
          grant_type: "client_credentials",
          client_id: `client-${tenant.id}`,
          client_secret: secretOf(`client-${tenant.id}`),
          scope: "orders:read orders:write",
          audience: "crm",
          resource: "https://crm.example.com/",
        },
      },
    ]);
  });

  test("a server that does not take basic is asked with the body, and that is remembered", async () => {
    const { call } = await newBench();
    authority.onToken = (answer, { authorization }) => {
      if (authorization !== undefined) refuse(answer, 401, "invalid_client");
    };
    expect((await call()).status).toBe(200);
    expect(authority.asks.map(({ authorization }) => authorization !== undefined)).toEqual([true, false]);
    authority.withdrawTokens();
    expect((await call("lookup", second)).status).toBe(200);
    expect(authority.asks.map(({ authorization }) => authorization !== undefined)).toEqual([true, false, false]);
  });

  test("its refresh token where it gave one; one that it withdrew leaves the client's own credentials", async () => {
    const { call } = await newBench();
    authority.onToken = (answer) => {
      if (answer.statusCode === 200 && answer.body !== "") {
        answer.body = { ...answer.body, refresh_token: `refresh-${authority.asks.length}-0123456789` };
      }
    };
    await call();
    authority.withdrawTokens();
    expect((await call()).status).toBe(200);
    expect(grantsAsked()).toEqual(["client_credentials", "refresh_token"]);
    authority.withdrawTokens();
    authority.withdrawRefreshTokens();
    expect((await call("lookup", second)).status).toBe(200);
    expect(grantsAsked().slice(2)).toEqual(["refresh_token", "client_credentials"]);
  });
});

describe(`its price where the database is far away ${verifies("BLIND-3")}`, () => {
  let directory: string;
  let server: HranaServer;
  let proxy: DatabaseProxy;
  let remote: Gateway;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "toolyard-oauth-"));
    server = await startHranaServer({ file: join(directory, "remote.db") });
    proxy = await startDatabaseProxy({ target: server.url });
    remote = await startGateway({ env: { DATABASE_URL: proxy.url }, requestsOnly: true });
  });
  afterAll(async () => {
    await remote.close();
    await proxy.close();
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });

  test("is two trips for the first call, and none once the token is there", async () => {
    const tenant = await remote.newTenant();
    const client = `client-${tenant.id}`;
    await tenant.putCredential("CRM_ID", client);
    await tenant.putCredential("CRM_SECRET", secretOf(client));
    await tenant.putCredential("CRM_TOKEN_URL", `${authority.url}/token`);
    await tenant.addPlugin({ ...readingTool(backEnd), auth_config: { type: "oauth2", mapping } });
    await tenant.addPlugin({
      ...readingTool(backEnd, "plain"),
      auth_config: { type: "api_key", mapping: [{ source: "CRM_SECRET", target: "x-key" }] },
    });
    const tripsOf = async (name: string): Promise<number> => {
      const before = proxy.trips();
      // With a key the answer comes after the last trip.
      const headers = { "idempotency-key": newId("request") };
      await tenant.client.send("post", "/v1/tools/invoke", { name, arguments: { q: "x" } }, { headers });
      return proxy.trips() - before;
    };
    await tripsOf("plain");
    const plain = await tripsOf("plain");
    expect(await tripsOf("lookup")).toBe(plain + 2);
    expect(await tripsOf("lookup")).toBe(plain);
  });
});

describe(`a slow server ${verifies("BLIND-3", "BLIND-8")}`, () => {
  test("costs a call no more than its own time; what it answers in the end serves the next", async () => {
    const { call } = await newBench();
    const held = hold();
    const replies = await Promise.all([
      call("lookup", first, "?timeout=300"),
      call("create_order", first, "?timeout=300"),
      call("lookup", second, "?timeout=300"),
    ]);
    for (const { status, json } of replies) {
      expect({ status, error: json.error }).toMatchObject({
        status: 504,
        error: { code: "tool_timeout", message: expect.stringContaining("CRM_TOKEN_URL") },
      });
    }
    expect(backEnd.requests).toHaveLength(0);
    held.release();
    expect(statusesOf(await Promise.all(both().map((gateway) => call("create_order", gateway))))).toEqual([200]);
    expect(authority.asks).toHaveLength(1);
  });

  test("keeps its holder's lease alive for as long as the request takes", async () => {
    const other = await startGateway({ sharedWith: first, timing: { leaseMs: 400, heartbeatMs: 100 } });
    try {
      const { call } = await newBench();
      const held = hold();
      const waiting = [call("lookup", other), call("lookup", second)];
      await until(() => held.waiting() > 0);
      await pause(1_500);
      expect(held.waiting()).toBe(1);
      held.release();
      expect(statusesOf(await Promise.all(waiting))).toEqual([200]);
      expect(authority.asks).toHaveLength(1);
    } finally {
      await other.close();
    }
  });
});

describe(`a process that dies while it gets a token ${verifies("BLIND-3")}`, () => {
  let dying: GatewayProcess;
  let heir: GatewayProcess;
  beforeAll(async () => {
    dying = await startGatewayProcess();
    heir = await startGatewayProcess({ sharedWith: dying });
  });
  afterAll(async () => {
    await heir.close();
    await dying.close();
  });

  test("leaves the work to another when its lease has lapsed", async () => {
    const tenant = await heir.newTenant();
    const client = `client-${tenant.id}`;
    await tenant.putCredential("CRM_ID", client);
    await tenant.putCredential("CRM_SECRET", secretOf(client));
    await tenant.putCredential("CRM_TOKEN_URL", `${authority.url}/token`);
    await tenant.addPlugin({ ...readingTool(backEnd), auth_config: { type: "oauth2", mapping } });
    authority.asks.length = 0;
    done = [];
    const held = hold();
    const body = { name: "lookup", arguments: { q: "x" } };
    const lost = dying.client(tenant.key).send("post", "/v1/tools/invoke", body);
    lost.catch(() => undefined);
    await until(() => held.waiting() === 1);
    const inherited = heir.client(tenant.key).send("post", "/v1/tools/invoke", body);
    await pause(200);
    await dying.stop("SIGKILL");
    await expect(lost).rejects.toThrow("fetch failed");
    expect(held.waiting()).toBe(1);
    await until(() => held.waiting() === 2);
    held.release();
    expect((await inherited).status).toBe(200);
    expect(done).toHaveLength(1);
  });
});

describe(`a client that comes with the request ${verifies("BLIND-7")}`, () => {
  let database: Database;
  beforeAll(async () => {
    database = await openDatabase({ url: first.databaseUrl });
  });
  afterAll(() => database.close());

  const stored = async (tenant: string): Promise<unknown> => {
    const [counted] = await database.batch([
      { sql: "SELECT count(*) AS n FROM oauth_grants WHERE tenant = ?", args: [tenant] },
    ]);
    return counted?.rows[0]?.["n"];
  };

  test("gets a token that is kept in memory only, for this client alone", async () => {
    authority.asks.length = 0;
    done = [];
    const { id, client } = await first.newTenant();
    const invoke = (credentials: Json): Promise<Reply> =>
      client.send("post", "/v1/tools/invoke", {
        name: "lookup",
        arguments: { q: "x" },
        runtime_config: {
          plugins: [
            {
              schema_version: "v1",
              description: "A tool of this request.",
              ...readingTool(backEnd),
              auth_config: { type: "oauth2", mapping },
            },
          ],
          credentials: { CRM_TOKEN_URL: `${authority.url}/token`, ...credentials },
        },
      });
    const own = { CRM_ID: "inline-one", CRM_SECRET: secretOf("inline-one") };
    expect((await invoke(own)).status).toBe(200);
    expect((await invoke(own)).status).toBe(200);
    expect(authority.asks).toHaveLength(1);
    expect((await invoke({ CRM_ID: "inline-two", CRM_SECRET: secretOf("inline-two") })).status).toBe(200);
    expect(authority.asks).toHaveLength(2);
    authority.withdrawTokens();
    expect((await invoke(own)).status).toBe(200);
    expect(authority.asks).toHaveLength(3);
    expect(await stored(id)).toBe(0);
    expect(findSecrets(await filesBelow(first.dataDir), ["inline-one", secretOf("inline-one")])).toEqual([]);
  });

  test("leaves what is stored for the tenant's own client as the only rows", async () => {
    const { call, tenant } = await newBench();
    await call();
    expect(await stored(tenant.id)).toBe(1);
  });
});
