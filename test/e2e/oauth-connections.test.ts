/**
 * Tools that act with their user's own access, against a real authorization server: the link when it is
 * missing, the way through the browser, and that nobody ever acts as somebody else.
 */
import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  refuse,
  secretOf,
  startAuthorizationServer,
  type AuthorizationServer,
} from "../support/authorization-server.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls as toolCalls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { anyTool, startMcpStub, textResult, type McpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";
import { filesBelow, findSecrets } from "../support/written-secrets.ts";

let gateway: Gateway;
let second: Gateway;
let authority: AuthorizationServer;
let backEnd: HttpStub;
let model: LlmStub;
let database: Database;

beforeAll(async () => {
  gateway = await startGateway();
  second = await startGateway({ sharedWith: gateway });
  authority = await startAuthorizationServer();
  model = await startLlmStub();
  database = await openDatabase({ url: gateway.databaseUrl });
  // Says whose token it was called with.
  backEnd = await startHttpStub(({ headers }) => {
    const token = String(headers.authorization).replace("Bearer ", "");
    if (!authority.accepts(token)) return { status: 401, body: '{"error":"invalid_token"}' };
    return { body: JSON.stringify({ account: authority.ownerOf(token) }) };
  });
});
afterAll(async () => {
  await database.close();
  await second.close();
  await gateway.close();
  await backEnd.close();
  await model.close();
  await authority.close();
});
afterEach(() => {
  authority.onToken = () => undefined;
  authority.onReturn = () => undefined;
});

const definition = (change: Json = {}): Json => ({
  type: "oauth2",
  grant: "authorization_code",
  authorization_url: `${authority.url}/authorize?prompt=consent`,
  mapping: [
    { source: "MAIL_ID", target: "client_id" },
    { source: "MAIL_SECRET", target: "client_secret" },
    { source: "MAIL_TOKEN_URL", target: "token_url" },
    { source: "MAIL_SCOPE", target: "scope" },
    { source: "MAIL_REVOCATION_URL", target: "revocation_url" },
  ],
  ...change,
});

interface Office {
  readonly tenant: TestTenant;
  readonly ann: Client;
  readonly bob: Client;
}

async function newOffice(change: Json = {}, id = "mail-client"): Promise<Office> {
  authority.asks.length = 0;
  authority.revoked.length = 0;
  const tenant = await gateway.newTenant({ concurrent_tool_calls: 100 });
  const values = {
    MAIL_ID: id,
    MAIL_SECRET: secretOf(id),
    MAIL_TOKEN_URL: `${authority.url}/token`,
    MAIL_SCOPE: "mail.read mail.send",
    MAIL_REVOCATION_URL: `${authority.url}/revoke`,
  };
  for (const [name, value] of Object.entries(values)) await tenant.putCredential(name, value);
  await tenant.addPlugin({ ...readingTool(backEnd, "read_mail"), auth_config: definition(change) });
  await tenant.addPlugin({ ...writingTool(backEnd, "send_mail"), auth_config: definition(change) });
  await tenant.addProvider(model.url);
  const scopes = ["tools", "chat"];
  return {
    tenant,
    ann: (await tenant.newKey({ user_id: "ann", scopes })).client,
    bob: (await tenant.newKey({ user_id: "bob", scopes })).client,
  };
}

const call = (client: Client, name = "read_mail"): Promise<Reply> =>
  client.send("post", "/v1/tools/invoke", {
    name,
    arguments: name === "read_mail" ? { q: "x" } : { sku: "a" },
  });

const missing = { code: "credential_missing", type: "invalid_request_error" };

/** The database is away for the tries at keeping a token that this tells, until the test is over. */
function failToStore(isAway: (tries: number) => boolean): { readonly tries: number } {
  const { repos } = gateway.core;
  const { oauth } = repos;
  const seen = { tries: 0 };
  const store: typeof oauth.store = (...token) => {
    seen.tries += 1;
    return isAway(seen.tries)
      ? Promise.reject(new GatewayError("database_unavailable", "away"))
      : oauth.store(...token);
  };
  const put = (value: typeof oauth): unknown => Object.defineProperty(repos, "oauth", { value, configurable: true });
  put(new Proxy(oauth, { get: (target, name) => (name === "store" ? store : Reflect.get(target, name)) }));
  onTestFinished(() => void put(oauth));
  return seen;
}

async function linkFor(client: Client, name?: string): Promise<string> {
  const { status, json } = await call(client, name);
  expect({ status, error: json.error }).toMatchObject({ status: 400, error: missing });
  return json.error.connect_url as string;
}

interface Visit {
  readonly status: number;
  readonly location: URL | undefined;
  readonly text: string;
  readonly headers: Headers;
}

/** What a browser does with an address, up to the first redirect. */
async function visit(url: string | URL): Promise<Visit> {
  const response = await fetch(url, { redirect: "manual", headers: { accept: "text/html,*/*" } });
  const location = response.headers.get("location");
  return {
    status: response.status,
    location: location === null ? undefined : new URL(location, url),
    text: await response.text(),
    headers: response.headers,
  };
}

function next({ location, status, text: body }: Visit): URL {
  if (location === undefined) throw new Error(`no redirect but ${status}: ${body}`);
  return location;
}

/** Follows a link through the authorization server; where the browser is then sent. */
async function authorize(link: string): Promise<URL> {
  return next(await visit(next(await visit(link))));
}

/** The whole way; the account that the user has connected, as the back end knows it. */
async function connect(link: string): Promise<string> {
  const callback = await authorize(link);
  expect(await visit(callback)).toMatchObject({ status: 200, text: expect.stringContaining("Connected") });
  return callback.searchParams.get("code") ?? "";
}

const accountOf = (reply: Reply): unknown => {
  expect(reply.status).toBe(200);
  return JSON.parse(reply.json.content).account;
};

/** An MCP server that tells nobody anything, its tools neither, without the token of an account. */
async function newServer(): Promise<{ readonly stub: McpStub; readonly office: Office; readonly id: string }> {
  const stub = await startMcpStub({
    tools: [anyTool("whoami")],
    authorization: (given) => authority.accepts(given.replace("Bearer ", "")),
    onCall: ({ request }) => {
      const token = String(request.headers["authorization"]).replace("Bearer ", "");
      return textResult(JSON.stringify({ account: authority.ownerOf(token) }));
    },
  });
  onTestFinished(() => stub.close());
  const office = await newOffice();
  const config = { url: stub.url, auth_type: "mapping", auth_config: definition() };
  const made = await office.tenant.client.send("post", "/v1/tool-services", {
    scheme: "mcp",
    service_id: "desk",
    config,
  });
  expect(made.status).toBe(201);
  return { stub, office, id: made.json.id as string };
}

describe(`an MCP server that wants its user's own access ${verifies("BLIND-3", "MCP-3")}`, () => {
  const whoami = (client: Client): Promise<Reply> =>
    client.send("post", "/v1/tools/invoke", { uri: "mcp://desk/whoami", arguments: {} });

  test("is reached with it, though nobody has been told its tools before", async () => {
    const { office } = await newServer();
    const { json } = await whoami(office.ann);
    expect(json.error).toMatchObject({ ...missing, tool_name: "mcp_desk__whoami" });
    const account = await connect(json.error.connect_url);
    expect(accountOf(await whoami(office.ann))).toBe(account);
    expect((await whoami(office.bob)).json.error).toMatchObject(missing);
  });

  test("has a link on demand", async () => {
    const { office } = await newServer();
    const { status, json } = await office.ann.send("post", "/v1/oauth/connections", { tool: "mcp://desk/whoami" });
    expect(status).toBe(201);
    const account = await connect(json.connect_url);
    expect(accountOf(await whoami(office.ann))).toBe(account);
  });

  test("names its tools to whoever manages and has connected, and models are offered them", async () => {
    const { office, id } = await newServer();
    const { client: keeper } = await office.tenant.newKey({
      user_id: "kim",
      role: "admin",
      scopes: ["chat", "tools", "manage"],
    });
    const asked = await keeper.send("get", `/v1/tool-services/${id}/tools`);
    expect(asked.json.error).toMatchObject(missing);
    const account = await connect(asked.json.error.connect_url);
    const listed = await keeper.send("get", `/v1/tool-services/${id}/tools`);
    expect(listed.json.data).toMatchObject([{ uri: "mcp://desk/whoami" }]);
    model.script(toolCalls({ name: "mcp_desk__whoami", arguments: {} }), text("You."));
    const answer = await keeper.send("post", "/v1/chat/completions", {
      messages: [{ role: "user", content: "Who am I?" }],
    });
    expect(answer.json.choices[0].message.content).toBe("You.");
    const heard: Json = model.requests.at(-1);
    expect(JSON.parse(heard.messages.at(-1).content)).toEqual({ account });
    // A link to a connection that has ended leads there again.
    const [connection] = (await keeper.get("/v1/oauth/connections")).data;
    expect((await keeper.send("delete", `/v1/oauth/connections/${connection.id}`)).status).toBeLessThan(300);
    expect(authority.revoked.length).toBeGreaterThan(0);
    const again = await keeper.send("get", `/v1/tool-services/${id}/tools?refresh=true`);
    await connect(again.json.error.connect_url);
    expect((await keeper.send("get", `/v1/tool-services/${id}/tools?refresh=true`)).status).toBe(200);
  });
});

describe(`a tool that acts for its user ${verifies("BLIND-3", "BLIND-5")}`, () => {
  test("is refused with a link before anything is sent, follows it, and acts with that account", async () => {
    const { ann } = await newOffice();
    const before = backEnd.requests.length;
    const { json } = await call(ann);
    expect(json.error).toMatchObject({
      ...missing,
      tool_name: "read_mail",
      connection_id: expect.stringMatching(/^conn_/),
      connect_until: expect.stringMatching(/Z$/),
    });
    expect(json.error.message).toContain("connect_url");
    expect(backEnd.requests).toHaveLength(before);
    const account = await connect(json.error.connect_url);
    expect(accountOf(await call(ann))).toBe(account);
    // Tools of one client need one connection.
    expect(accountOf(await call(ann, "send_mail"))).toBe(account);
    expect(authority.asks.map(({ form }) => form["grant_type"])).toEqual(["authorization_code"]);
  });

  test("sends the browser with a challenge and nothing secret, and redeems the code with the verifier", async () => {
    const { tenant, ann } = await newOffice({ audience: "mail", resource: "https://mail.example.com/" });
    const link = await linkFor(ann);
    expect(link.startsWith(`${gateway.url}/v1/oauth/connect/`)).toBe(true);
    const { status, location, headers } = await visit(link);
    expect(status).toBe(302);
    expect(headers.get("referrer-policy")).toBe("no-referrer");
    expect(headers.get("cache-control")).toContain("no-store");
    const sent = Object.fromEntries(location?.searchParams ?? []);
    expect(sent).toEqual({
      prompt: "consent",
      response_type: "code",
      client_id: "mail-client",
      redirect_uri: `${gateway.url}/v1/oauth/callback`,
      scope: "mail.read mail.send",
      audience: "mail",
      resource: "https://mail.example.com/",
      state: link.split("/").at(-1),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: "S256",
    });
    expect(`${link} ${location?.href}`).not.toMatch(new RegExp(`${secretOf("mail-client")}|ann|${tenant.key}`));
    // Looking at the link, as previews do, spends nothing.
    expect((await visit(link)).location?.href).toBe(location?.href);
    await connect(link);
    const [ask] = authority.asks;
    expect(ask?.form).toMatchObject({
      grant_type: "authorization_code",
      redirect_uri: sent["redirect_uri"],
      code_verifier: expect.stringMatching(/^[\w-]{43}$/),
    });
    const verifier = ask?.form["code_verifier"] ?? "";
    expect(createHash("sha256").update(verifier).digest("base64url")).toBe(sent["code_challenge"]);
    expect(ask?.form["client_secret"]).toBeUndefined();
  });

  test("gives everybody who is refused the same link, as long as it has time left", async () => {
    const { ann, bob } = await newOffice();
    const links = await Promise.all([linkFor(ann), linkFor(ann, "send_mail"), linkFor(ann)]);
    expect(new Set(links).size).toBe(1);
    expect(await linkFor(bob)).not.toBe(links[0]);
  });

  test("works with a client that has no secret", async () => {
    const mapping = [
      { source: "MAIL_ID", target: "client_id" },
      { source: "MAIL_TOKEN_URL", target: "token_url" },
      { source: "MAIL_AUTHORIZATION_URL", target: "authorization_url" },
    ];
    const { authorization_url: _fixed, ...rest } = definition({ mapping });
    const { tenant, ann } = await newOffice({}, "public-client");
    await tenant.putCredential("MAIL_AUTHORIZATION_URL", `${authority.url}/authorize`);
    await tenant.addPlugin({ ...readingTool(backEnd, "read_news"), auth_config: rest });
    const link = (await ann.send("post", "/v1/tools/invoke", { name: "read_news", arguments: { q: "x" } })).json.error
      .connect_url;
    await connect(link);
    expect(authority.asks.at(-1)).toMatchObject({
      authorization: undefined,
      form: { client_id: "public-client" },
    });
  });

  test("keeps a chat from the model until it is connected, and a call in it acts for the one who chats", async () => {
    const { ann } = await newOffice();
    const body = { model: "stub-1", messages: [{ role: "user", content: "my mail?" }] };
    model.requests.length = 0;
    const refused = await ann.send("post", "/v1/chat/completions", body);
    expect({ status: refused.status, error: refused.json.error }).toMatchObject({ status: 400, error: missing });
    expect(model.requests).toHaveLength(0);
    const account = await connect(refused.json.error.connect_url);
    model.script(toolCalls({ name: "read_mail", arguments: { q: "x" } }), text("done"));
    expect((await ann.send("post", "/v1/chat/completions", body)).status).toBe(200);
    expect(JSON.stringify(model.requests.at(-1))).toContain(account);
    expect(JSON.stringify(model.requests)).not.toMatch(/authorize|oauth2|MAIL_/);
  });

  test("needs a user: a key without one is told so and gets no link", async () => {
    const { tenant } = await newOffice();
    const { json } = await call(tenant.client);
    expect(json.error).toMatchObject({ ...missing, param: "user_id" });
    expect(json.error.connect_url).toBeUndefined();
  });

  test("is refused with the name of a credential while its client is not set up", async () => {
    const { tenant, ann } = await newOffice();
    await tenant.client.send("delete", "/v1/credentials/MAIL_SECRET");
    expect((await call(ann)).json.error).toMatchObject({ ...missing, param: "MAIL_SECRET" });
  });

  test.each(["javascript:alert(1)", "file:///etc/passwd", "/authorize", "https://me:word@login.example.com/"])(
    "sends nobody to %s",
    async (address) => {
      const { tenant, ann } = await newOffice();
      await tenant.putCredential("MAIL_AUTHORIZATION_URL", address);
      const { authorization_url: _fixed, mapping, ...rest } = definition();
      const auth_config = {
        ...rest,
        mapping: [...mapping, { source: "MAIL_AUTHORIZATION_URL", target: "authorization_url" }],
      };
      await tenant.addPlugin({ ...readingTool(backEnd, "read_news"), auth_config });
      for (const reply of [
        await ann.send("post", "/v1/tools/invoke", { name: "read_news", arguments: { q: "x" } }),
        await ann.send("post", "/v1/oauth/connections", { tool: "read_news" }),
      ]) {
        expect(reply).toMatchObject({
          status: 400,
          json: { error: { code: "credential_invalid", param: "MAIL_AUTHORIZATION_URL" } },
        });
        expect(reply.text).not.toContain(address);
      }
    },
  );

  test(`is none that a request can bring along ${verifies("BLIND-7")}`, async () => {
    const { tenant, ann } = await newOffice();
    const plugin = {
      schema_version: "v1",
      description: "A tool of this request.",
      ...readingTool(backEnd, "read_all"),
      auth_config: definition(),
    };
    const inline = await tenant.client.send("post", "/v1/tools/invoke", {
      name: "read_all",
      arguments: { q: "x" },
      runtime_config: { plugins: [plugin] },
    });
    expect(inline.json.error).toMatchObject({
      code: "invalid_definition",
      param: "runtime_config.plugins[0].auth_config.grant",
    });
    await connect(await linkFor(ann));
    const { client } = await tenant.newKey({ user_id: "ann", scopes: ["tools", "runtime_config"] });
    const other = await client.send("post", "/v1/tools/invoke", {
      name: "read_mail",
      arguments: { q: "x" },
      runtime_config: { credentials: { MAIL_TOKEN_URL: `${backEnd.url}/steal` } },
    });
    expect(other.json.error).toMatchObject({ code: "credential_invalid", param: "MAIL_TOKEN_URL" });
  });
});

describe(`nobody acts as somebody else ${verifies("BLIND-3", "BLIND-5", "BLIND-6")}`, () => {
  test("two users of a tenant have an account each, on every instance", async () => {
    const { ann, bob } = await newOffice();
    const annsAccount = await connect(await linkFor(ann));
    const bobsLink = await linkFor(bob);
    expect(accountOf(await call(ann))).toBe(annsAccount);
    const bobsAccount = await connect(bobsLink);
    expect(bobsAccount).not.toBe(annsAccount);
    for (let round = 0; round < 3; round += 1) {
      const accounts = await Promise.all([call(ann), call(bob), call(ann, "send_mail"), call(bob, "send_mail")]);
      expect(accounts.map(accountOf)).toEqual([annsAccount, bobsAccount, annsAccount, bobsAccount]);
    }
  });

  test("the tenant's own access is not used for a user, nor a user's for the tenant", async () => {
    const { tenant, ann } = await newOffice();
    const { mapping } = definition();
    await tenant.addPlugin({
      ...readingTool(backEnd, "read_archive"),
      auth_config: { type: "oauth2", mapping: mapping.slice(0, 4) },
    });
    const archive = (client: Client): Promise<Reply> =>
      client.send("post", "/v1/tools/invoke", { name: "read_archive", arguments: { q: "x" } });
    expect(accountOf(await archive(ann))).toBe("client");
    const account = await connect(await linkFor(ann));
    expect(accountOf(await call(ann))).toBe(account);
    expect(accountOf(await archive(ann))).toBe("client");
  });

  test("a token moved to another user's row does not open", async () => {
    const { tenant, ann, bob } = await newOffice();
    await connect(await linkFor(ann));
    await connect(await linkFor(bob));
    await database.batch([
      {
        sql: `UPDATE oauth_grants SET sealed = (SELECT sealed FROM oauth_grants WHERE tenant = ?1 AND user_id = 'ann')
          WHERE tenant = ?1 AND user_id = 'bob'`,
        args: [tenant.id],
      },
    ]);
    const { json } = await call(bob);
    expect(json.error).toMatchObject({
      code: "credential_unreadable",
      message: expect.stringMatching(/DELETE \/v1\/oauth\/connections\/conn_/),
    });
  });

  test("tokens, verifiers and codes are not to be read anywhere", async () => {
    const { tenant, ann } = await newOffice();
    const given: string[] = [];
    authority.onToken = ({ body }, { form }) => {
      if (body === "") return;
      const { access_token: token, refresh_token: refresh } = body as Record<string, string>;
      given.push(...(token ?? "").split(".").slice(1), refresh ?? "", form["code_verifier"] ?? "");
    };
    const callback = await authorize(await linkFor(ann));
    const page = await visit(callback);
    const replies = [await call(ann), await tenant.client.send("get", "/v1/oauth/connections")];
    for (const path of ["/v1/calls", "/v1/plugins"]) replies.push(await tenant.client.send("get", path));
    const said = [page.text, ...replies.map((reply) => reply.text)];
    expect(given.filter((secret) => secret !== "").length).toBeGreaterThan(3);
    const written = [
      ...said.map((answer, index) => ({ where: `answer ${index}`, bytes: Buffer.from(answer) })),
      { where: "log", bytes: Buffer.from(JSON.stringify([gateway.logged, second.logged])) },
      ...(await filesBelow(gateway.dataDir)),
    ];
    const secrets = [...given.filter((secret) => secret !== ""), callback.searchParams.get("state")?.slice(-40) ?? ""];
    expect(findSecrets(written, secrets)).toEqual([]);
  });
});

describe(`a state ${verifies("BLIND-3")}`, () => {
  let office: Office;
  let callback: URL;
  beforeEach(async () => {
    office = await newOffice();
    callback = await authorize(await linkFor(office.ann));
  });

  const program = async (url: string | URL): Promise<Json> => {
    const response = await fetch(url, { redirect: "manual" });
    const { error } = (await response.json()) as Json;
    const { request_id: _id, ...rest } = error;
    return { status: response.status, ...rest };
  };

  const unknown = {
    status: 404,
    code: "not_found",
    type: "not_found_error",
    param: "state",
    message: "This link cannot be used; ask for a new one where it came from.",
  };

  test("works once: neither link nor callback answers again", async () => {
    const state = callback.searchParams.get("state");
    expect((await visit(callback)).status).toBe(200);
    expect(await program(callback)).toEqual(unknown);
    expect(await program(`${gateway.url}/v1/oauth/connect/${state}`)).toEqual(unknown);
    expect(authority.asks).toHaveLength(1);
    expect(accountOf(await call(office.ann))).toBe(callback.searchParams.get("code"));
  });

  test("outlives an outage of our own while its answer is taken", async () => {
    const { configs, sealer } = gateway.core;
    const outages = [
      () => vi.spyOn(configs, "get").mockRejectedValue(new GatewayError("database_unavailable", "away")),
      () => vi.spyOn(sealer, "hash").mockRejectedValue(new GatewayError("master_key_unavailable", "away")),
      () => vi.spyOn(sealer, "open").mockRejectedValue(new GatewayError("master_key_unavailable", "away")),
    ];
    for (const begin of outages) {
      const outage = begin();
      expect((await visit(callback)).status).toBe(503);
      outage.mockRestore();
    }
    expect(authority.asks).toHaveLength(0);
    const outage = failToStore((tries) => tries === 1);
    expect((await visit(callback)).status).toBe(200);
    expect([outage.tries, authority.asks.length]).toEqual([2, 1]);
  });

  test("works once for two who come at the same time, on two instances", async () => {
    const other = new URL(callback.pathname + callback.search, second.url);
    const visits = await Promise.all([visit(callback), visit(other), visit(callback), visit(other)]);
    expect(visits.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 404, 404, 404]);
    expect(authority.asks).toHaveLength(1);
  });

  test("that is over, of another tenant, forged or no state at all: the same answer, and nothing is asked", async () => {
    const state = callback.searchParams.get("state") ?? "";
    const [tenant = ""] = state.split("_", 1);
    // It may begin with the same sign.
    const secret = state.slice(tenant.length + 1);
    const stranger = await newOffice();
    const states = [
      `${stranger.tenant.id.slice(4)}_${secret}`,
      `${tenant}_${"A".repeat(43)}`,
      `nobody_${"A".repeat(43)}`,
      state.slice(0, -1),
      `${state}x`,
      secret,
      "",
      "../../etc/passwd",
      "%00",
    ];
    for (const wrong of states) {
      const url = new URL(callback);
      url.searchParams.set("state", wrong);
      expect(await program(url)).toEqual(unknown);
    }
    for (const wrong of states.slice(0, 6)) {
      expect(await program(`${gateway.url}/v1/oauth/connect/${wrong}`)).toEqual(unknown);
    }
    await database.batch([
      { sql: "UPDATE oauth_grants SET link_until = link_until - 3600000 WHERE tenant = ?", args: [office.tenant.id] },
    ]);
    expect(await program(callback)).toEqual(unknown);
    expect(await program(`${gateway.url}/v1/oauth/connect/${state}`)).toEqual(unknown);
    expect(authority.asks).toHaveLength(0);
    const fresh = await linkFor(office.ann);
    expect(fresh.endsWith(state)).toBe(false);
    await connect(fresh);
  });

  test("belongs to the client that it was made for: another one is not connected to", async () => {
    await office.tenant.putCredential("MAIL_ID", "another-client");
    expect(await program(callback)).toEqual(unknown);
    expect(authority.asks).toHaveLength(0);
  });

  test("leads nowhere when its tool is disabled or its tenant suspended", async () => {
    const [plugin] = (await office.tenant.client.get("/v1/plugins?order=asc")).data.filter(
      ({ name }: Json) => name === "read_mail",
    );
    await office.tenant.client.expect("patch", `/v1/plugins/${plugin.id}`, { enabled: false });
    const state = callback.searchParams.get("state");
    expect(await program(`${gateway.url}/v1/oauth/connect/${state}`)).toEqual(unknown);
    await office.tenant.client.expect("patch", `/v1/plugins/${plugin.id}`, { enabled: true });
    expect((await visit(`${gateway.url}/v1/oauth/connect/${state}`)).status).toBe(302);
    await gateway.operator.expect("patch", `/v1/tenants/${office.tenant.id}`, { status: "suspended" });
    expect(await program(callback)).toEqual(unknown);
  });

  test("given twice, or with a code given twice, is nobody's answer", async () => {
    for (const name of ["state", "code"]) {
      const url = new URL(callback);
      url.searchParams.append(name, "another");
      const response = await fetch(url);
      expect(response.status).toBe(400);
    }
    expect(authority.asks).toHaveLength(0);
  });
});

describe(`what comes back from the server ${verifies("BLIND-3")}`, () => {
  const returned = async (change: (url: URL) => void, more: Json = {}): Promise<{ office: Office; page: Visit }> => {
    const office = await newOffice(more);
    authority.onReturn = change;
    return { office, page: await visit(await authorize(await linkFor(office.ann))) };
  };

  test("a refusal is told to the user, and a new link can be had", async () => {
    const { office, page } = await returned((url) => {
      url.searchParams.delete("code");
      url.searchParams.set("error", "access_denied");
      url.searchParams.set("error_description", "<script>alert(1)</script>");
    });
    expect(page.status).toBe(400);
    expect(page.text).toContain("access_denied");
    expect(page.text).not.toContain("<script>");
    authority.onReturn = () => undefined;
    await connect(await linkFor(office.ann));
  });

  test("words that are no error code are not repeated on the page", async () => {
    const { page } = await returned((url) => {
      url.searchParams.delete("code");
      url.searchParams.set("error", '"><img src=x onerror=alert(1)>');
    });
    expect(page.status).toBe(400);
    expect(page.text).not.toContain("img");
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
  });

  test("its own name is looked at: right, at the right origin, or not there", async () => {
    const right = await returned((url) => url.searchParams.set("iss", authority.url));
    expect(right.page.status).toBe(200);
    const exact = await returned((url) => url.searchParams.set("iss", "https://login.example.com"), {
      issuer: "https://login.example.com",
    });
    expect(exact.page.status).toBe(200);
  });

  test.each([
    ["another server's", "https://evil.example.com", {}],
    ["no address", "mail", {}],
    ["nearly the expected one", "https://login.example.com/", { issuer: "https://login.example.com" }],
  ])("%s name: the code is not used", async (_what, issuer, more) => {
    const { page, office } = await returned((url) => url.searchParams.set("iss", issuer), more);
    expect(page.status).toBe(400);
    expect(page.text).not.toContain("evil");
    expect(authority.asks).toHaveLength(0);
    await linkFor(office.ann);
  });

  test("without a code there is nothing to redeem", async () => {
    const { page } = await returned((url) => url.searchParams.delete("code"));
    expect(page.status).toBe(400);
    expect(authority.asks).toHaveLength(0);
  });

  test("a code that the token endpoint refuses: the page names no setting, the log does", async () => {
    authority.onToken = (answer) => refuse(answer, 401, "invalid_client");
    const { page } = await returned(() => undefined);
    expect(page.status).toBe(400);
    expect(page.text).not.toContain("MAIL_");
    expect(JSON.stringify(gateway.logged)).toContain("MAIL_SECRET");
  });
});

describe(`a connection over time ${verifies("BLIND-3")}`, () => {
  const lasting = (seconds: number): void => {
    authority.onToken = (answer) => {
      if (answer.body !== "") answer.body = { ...answer.body, expires_in: seconds };
    };
  };

  test("is refreshed once for all when its token has run out, with a refresh token that changes", async () => {
    const { tenant, ann } = await newOffice();
    lasting(2);
    const account = await connect(await linkFor(ann));
    for (let round = 0; round < 2; round += 1) {
      await pause(1_050);
      const calls = Array.from({ length: 20 }, (_none, at) => call(ann, at % 2 === 0 ? "read_mail" : "send_mail"));
      expect(new Set((await Promise.all(calls)).map(accountOf))).toEqual(new Set([account]));
    }
    expect(authority.asks.map(({ form }) => form["grant_type"])).toEqual([
      "authorization_code",
      "refresh_token",
      "refresh_token",
    ]);
    const { data } = await tenant.client.get("/v1/oauth/connections");
    expect(data).toMatchObject([{ user_id: "ann", status: "connected", scope: "dummy" }]);
  });

  test("is refreshed when the back end no longer takes its token, by one instance for both", async () => {
    const { tenant, ann } = await newOffice();
    const { key } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const account = await connect(await linkFor(ann));
    await call(ann);
    await call(second.client(key));
    authority.withdrawTokens();
    const calls = Array.from({ length: 20 }, (_none, at) => call(at % 2 === 0 ? ann : second.client(key), "send_mail"));
    expect(new Set((await Promise.all(calls)).map(accountOf))).toEqual(new Set([account]));
    expect(authority.asks).toHaveLength(2);
  });

  test("that was withdrawn at the server ends in a new link, for this user alone", async () => {
    const { ann, bob, tenant } = await newOffice();
    await connect(await linkFor(bob));
    await connect(await linkFor(ann));
    authority.withdrawTokens();
    authority.withdrawRefreshTokens();
    const calls = await Promise.all([call(ann), call(ann, "send_mail"), call(ann)]);
    for (const { json } of calls) expect(json.error).toMatchObject(missing);
    expect(authority.asks.filter(({ form }) => form["grant_type"] === "refresh_token")).toHaveLength(1);
    const { data } = await tenant.client.get("/v1/oauth/connections?order=asc");
    expect(data.map(({ user_id, status }: Json) => [user_id, status]).sort()).toEqual([
      ["ann", "pending"],
      ["bob", "connected"],
    ]);
    const account = await connect(calls[0]?.json.error.connect_url);
    expect(accountOf(await call(ann))).toBe(account);
  });

  test.each(["bad_refresh_token", "invalid_refresh_token"])(
    "that ends in the words of GitHub or Slack, '%s' with status 200, ends in a new link",
    async (error) => {
      const { ann } = await newOffice();
      await connect(await linkFor(ann));
      authority.withdrawTokens();
      authority.onToken = (answer, { form }) => {
        if (form["grant_type"] === "refresh_token") refuse(answer, 200, error);
      };
      const { json } = await call(ann);
      expect(json.error).toMatchObject(missing);
      const account = await connect(json.error.connect_url);
      expect(accountOf(await call(ann))).toBe(account);
    },
  );

  test("outlives a server that cannot be reached or is out of order", async () => {
    const { ann } = await newOffice();
    const account = await connect(await linkFor(ann));
    authority.withdrawTokens();
    authority.onToken = (answer) => void Object.assign(answer, { statusCode: 503, body: { error: "server_error" } });
    expect((await call(ann)).json.error).toMatchObject({ code: "tool_failed", status: 503 });
    authority.onToken = (answer) => refuse(answer, 401, "invalid_client");
    expect((await call(ann)).json.error).toMatchObject({ code: "credential_invalid" });
    authority.onToken = () => undefined;
    await pause(1_050);
    expect(accountOf(await call(ann))).toBe(account);
  });

  describe("refreshed while the database is away", () => {
    test("is kept once it is back: the old refresh token is spent", async () => {
      const { ann } = await newOffice();
      const account = await connect(await linkFor(ann));
      authority.withdrawTokens();
      const outage = failToStore((tries) => tries <= 2);
      expect(accountOf(await call(ann))).toBe(account);
      expect([outage.tries, authority.asks.length]).toEqual([3, 2]);
    });

    test("is kept by the next who asks where that takes longer than anybody waits", async () => {
      const { ann } = await newOffice();
      const account = await connect(await linkFor(ann));
      authority.withdrawTokens();
      const { clock } = gateway.core;
      const now = clock.now.bind(clock);
      onTestFinished(() => void vi.restoreAllMocks());
      const outage = failToStore((tries) => {
        vi.spyOn(clock, "now").mockImplementation(() => now() + tries * 60_000);
        return tries === 1;
      });
      expect((await call(ann)).json.error).toMatchObject({ code: "database_unavailable" });
      expect(accountOf(await call(ann))).toBe(account);
      expect([outage.tries, authority.asks.length]).toEqual([2, 2]);
    });
  });

  test("without a refresh token lasts until its token is refused", async () => {
    const { ann } = await newOffice();
    authority.onToken = ({ body }) => {
      if (body === "") return;
      delete body["refresh_token"];
      delete body["expires_in"];
    };
    await connect(await linkFor(ann));
    expect((await call(ann)).status).toBe(200);
    authority.withdrawTokens();
    const { json } = await call(ann, "send_mail");
    expect(json.error).toMatchObject(missing);
    await connect(json.error.connect_url);
    expect((await call(ann, "send_mail")).status).toBe(200);
  });

  test("keeps a chat going: the model reads of the link when it ends in the middle", async () => {
    const { ann } = await newOffice();
    await connect(await linkFor(ann));
    authority.withdrawTokens();
    authority.withdrawRefreshTokens();
    model.requests.length = 0;
    model.script(toolCalls({ name: "read_mail", arguments: { q: "x" } }), text("connect, please"));
    const body = { model: "stub-1", messages: [{ role: "user", content: "my mail?" }] };
    expect((await ann.send("post", "/v1/chat/completions", body)).status).toBe(200);
    expect(JSON.stringify(model.requests.at(-1))).toContain("/v1/oauth/connect/");
  });

  test("is another account's after connecting anew, on every instance at once", async () => {
    const { tenant, ann } = await newOffice();
    const { key } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const before = await connect(await linkFor(ann));
    expect(accountOf(await call(second.client(key)))).toBe(before);
    const link = await ann.post("/v1/oauth/connections", { tool: "read_mail" });
    const after = await connect(link.connect_url);
    expect(after).not.toBe(before);
    expect(accountOf(await call(second.client(key)))).toBe(after);
    expect(accountOf(await call(ann))).toBe(after);
  });
});

describe(`a holder that stood still and comes back ${verifies("BLIND-3")}`, () => {
  let frozen: Gateway;
  let heir: Gateway;
  beforeAll(async () => {
    // A lease that nobody extends, as that of a process that is not given the processor.
    frozen = await startGateway({ sharedWith: gateway, timing: { leaseMs: 300, heartbeatMs: 3_600_000 } });
    heir = await startGateway({ sharedWith: gateway });
  });
  afterAll(async () => {
    await frozen.close();
    await heir.close();
  });
  afterEach(() => {
    authority.before = () => false;
  });

  /** Both instances are at the token endpoint, the first one with a lease that has lapsed. */
  async function bothAsk(key: string): Promise<{ readonly replies: Promise<Reply>[]; readonly gates: (() => void)[] }> {
    const gates: (() => void)[] = [];
    authority.before = () => new Promise((resolve) => gates.push(() => resolve(false)));
    const replies = [call(frozen.client(key))];
    while (gates.length < 1) await pause(5);
    replies.push(call(heir.client(key), "send_mail"));
    while (gates.length < 2) await pause(5);
    return { replies, gates };
  }

  const stateOf = async (tenant: TestTenant): Promise<unknown> => {
    const sql = "SELECT generation, lease_by, sealed IS NOT NULL AS held FROM oauth_grants WHERE tenant = ?";
    const [rows] = await database.batch([{ sql, args: [tenant.id] }]);
    return rows?.rows[0];
  };

  test("finds its refresh token spent, and uses what the other one got instead of ending the connection", async () => {
    const { tenant, ann } = await newOffice();
    const { key } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const account = await connect(await linkFor(ann));
    await call(frozen.client(key));
    await call(heir.client(key));
    authority.withdrawTokens();
    const { replies, gates } = await bothAsk(key);
    gates[1]?.();
    expect(accountOf((await replies[1]) as Reply)).toBe(account);
    gates[0]?.();
    expect(accountOf((await replies[0]) as Reply)).toBe(account);
    expect(authority.asks.map(({ form }) => form["grant_type"])).toEqual([
      "authorization_code",
      "refresh_token",
      "refresh_token",
    ]);
    expect(await stateOf(tenant)).toEqual({ generation: 2, lease_by: null, held: 1 });
  });

  test("and was the first after all: the good token is kept, and the other one is not told to connect", async () => {
    const { tenant, ann } = await newOffice();
    const { key } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const account = await connect(await linkFor(ann));
    await call(frozen.client(key));
    await call(heir.client(key));
    authority.withdrawTokens();
    const { replies, gates } = await bothAsk(key);
    gates[0]?.();
    expect(accountOf((await replies[0]) as Reply)).toBe(account);
    gates[1]?.();
    expect(accountOf((await replies[1]) as Reply)).toBe(account);
    expect(await stateOf(tenant)).toEqual({ generation: 2, lease_by: null, held: 1 });
  });
});

describe(`the routes of connections ${verifies("BLIND-3", "BLIND-6")}`, () => {
  test("make a link for oneself, and for others with 'manage' only", async () => {
    const { tenant, ann } = await newOffice();
    const made = await ann.send("post", "/v1/oauth/connections", { tool: "plugin://read_mail" });
    expect(made).toMatchObject({
      status: 201,
      json: {
        object: "connection",
        status: "pending",
        user_id: "ann",
        tool: "plugin://read_mail",
        scope: null,
        link_until: expect.stringMatching(/Z$/),
      },
    });
    const forBob = { tool: "read_mail", user_id: "bob" };
    expect(await ann.send("post", "/v1/oauth/connections", forBob)).toMatchObject({
      status: 403,
      json: { error: { param: "manage" } },
    });
    expect((await tenant.client.send("post", "/v1/oauth/connections", forBob)).status).toBe(201);
    expect(await tenant.client.send("post", "/v1/oauth/connections", { tool: "read_mail" })).toMatchObject({
      status: 400,
      json: { error: { param: "user_id" } },
    });
  });

  test.each([
    ["no tool", "nothing", 404, "tool_not_found"],
    ["a tool without connections", "plain", 400, "invalid_request"],
    ["a tool of the release", "read_file", 400, "invalid_request"],
  ])("make none for %s", async (_what, tool, status, code) => {
    const { tenant, ann } = await newOffice();
    await tenant.addPlugin(readingTool(backEnd, "plain"));
    expect(await ann.send("post", "/v1/oauth/connections", { tool })).toMatchObject({
      status,
      json: { error: { code } },
    });
  });

  test("make none for a tool that the caller may not use", async () => {
    const { tenant } = await newOffice();
    const { client } = await tenant.newKey({ user_id: "ann", scopes: ["tools"], tools: ["send_mail"] });
    const reply = await client.send("post", "/v1/oauth/connections", { tool: "read_mail" });
    expect(reply).toMatchObject({ status: 404, json: { error: { code: "tool_not_found" } } });
  });

  test("list one's own, or everybody's with 'manage'", async () => {
    const { tenant, ann, bob } = await newOffice();
    await connect(await linkFor(ann));
    await linkFor(bob);
    const seen = async (client: Client): Promise<Json> =>
      (await client.get("/v1/oauth/connections")).data.map(({ user_id, status }: Json) => [user_id, status]);
    expect(await seen(ann)).toEqual([["ann", "connected"]]);
    expect(await seen(bob)).toEqual([["bob", "pending"]]);
    expect((await seen(tenant.client)).sort()).toEqual([
      ["ann", "connected"],
      ["bob", "pending"],
    ]);
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    expect((await client.send("get", "/v1/oauth/connections")).status).toBe(403);
  });

  test("end one's own at once everywhere, and at the server", async () => {
    const { tenant, ann, bob } = await newOffice();
    const { key } = await tenant.newKey({ user_id: "ann", scopes: ["tools"] });
    const refreshTokens: unknown[] = [];
    authority.onToken = ({ body }) => void (body === "" || refreshTokens.push(body["refresh_token"]));
    await connect(await linkFor(ann));
    await call(ann);
    await call(second.client(key));
    const [{ id }] = (await ann.get("/v1/oauth/connections")).data;
    expect((await bob.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(404);
    expect((await call(ann)).status).toBe(200);
    expect((await ann.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(204);
    expect(authority.revoked).toEqual([{ token: refreshTokens[0], token_type_hint: "refresh_token" }]);
    const before = backEnd.requests.length;
    expect((await call(second.client(key))).json.error).toMatchObject(missing);
    expect((await call(ann)).json.error).toMatchObject(missing);
    expect(backEnd.requests).toHaveLength(before);
    expect((await ann.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(404);
  });

  test("end one although the server does not want to know of it", async () => {
    const { tenant, ann } = await newOffice();
    await tenant.putCredential("MAIL_REVOCATION_URL", "http://127.0.0.1:1/revoke");
    await connect(await linkFor(ann));
    const [{ id }] = (await ann.get("/v1/oauth/connections")).data;
    expect((await tenant.client.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(204);
    expect((await call(ann)).json.error).toMatchObject(missing);
    expect(gateway.logged).toContainEqual(
      expect.objectContaining({ message: "a token was not revoked at its server" }),
    );
  });

  test.each(["MAIL_TOKEN_URL", "MAIL_REVOCATION_URL"])(
    "show the tenant's secret to no address that a user has set, as %s",
    async (name) => {
      const { tenant, ann } = await newOffice();
      await connect(await linkFor(ann));
      const [{ id }] = (await ann.get("/v1/oauth/connections")).data;
      const own = await startHttpStub(() => ({ body: "{}" }));
      await ann.expect("put", `/v1/credentials/${name}`, { value: own.url, user_id: "ann" });
      const refused = { status: 400, json: { error: { code: "credential_invalid", param: name } } };
      expect(await call(ann)).toMatchObject(refused);
      expect(await ann.send("post", "/v1/oauth/connections", { tool: "read_mail" })).toMatchObject(refused);
      expect((await tenant.client.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(204);
      expect(own.requests).toEqual([]);
      await own.close();
    },
  );

  test("the tenant's own tokens are no connections", async () => {
    const { tenant, ann } = await newOffice();
    const { mapping } = definition();
    await tenant.addPlugin({
      ...readingTool(backEnd, "read_archive"),
      auth_config: { type: "oauth2", mapping: mapping.slice(0, 3) },
    });
    await ann.post("/v1/tools/invoke", { name: "read_archive", arguments: { q: "x" } });
    expect((await tenant.client.get("/v1/oauth/connections")).data).toEqual([]);
    const [rows] = await database.batch([{ sql: "SELECT id FROM oauth_grants WHERE tenant = ?", args: [tenant.id] }]);
    const id = String(rows?.rows[0]?.["id"]);
    expect((await tenant.client.send("delete", `/v1/oauth/connections/${id}`)).status).toBe(404);
  });
});

describe(`the tick ${verifies("BLIND-5")}`, () => {
  test("clears away links that nobody followed and tokens that nobody needs, and leaves the rest", async () => {
    const { tenant, ann, bob } = await newOffice();
    await connect(await linkFor(ann));
    await linkFor(bob);
    const { mapping } = definition();
    await tenant.addPlugin({
      ...readingTool(backEnd, "read_archive"),
      auth_config: { type: "oauth2", mapping: mapping.slice(0, 3) },
    });
    await ann.post("/v1/tools/invoke", { name: "read_archive", arguments: { q: "x" } });
    const left = async (): Promise<unknown> => {
      const sql = "SELECT kind, user_id FROM oauth_grants WHERE tenant = ? ORDER BY kind, user_id";
      const [rows] = await database.batch([{ sql, args: [tenant.id] }]);
      return rows?.rows.map((row) => `${String(row["kind"])} ${String(row["user_id"])}`);
    };
    await gateway.tick();
    expect(await left()).toEqual(["authorization_code ann", "authorization_code bob", "client_credentials "]);
    const age = "updated_at = updated_at - ?1, link_until = link_until - ?1, expires_at = expires_at - ?1";
    const days = 40 * 86_400_000;
    await database.batch([{ sql: `UPDATE oauth_grants SET ${age} WHERE tenant = ?2`, args: [days, tenant.id] }]);
    await gateway.tick();
    expect(await left()).toEqual(["authorization_code ann"]);
  });
});
