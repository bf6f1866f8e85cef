/** Secrets where they do not belong: in the place of a name, in a header or an address. Everybody would be told of them. */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

const key = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z";

let gateway: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
});
afterAll(() => gateway.close());

const send = (path: string, body: Json): Promise<Reply> => tenant.client.send("post", path, body);

const plugin = (execution: Json, auth?: Json): Promise<Reply> =>
  send("/v1/plugins", {
    schema_version: "v1",
    name: "crm",
    description: "Customers.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: "https://crm.example.com/x", param_placement: "query", ...execution },
    ...(auth === undefined ? {} : { auth_config: auth }),
  });
const service = (config: Json): Promise<Reply> =>
  send("/v1/tool-services", {
    scheme: "api",
    service_id: "crm",
    config: { base_url: "https://crm.example.com", tools: { list: { description: "L.", endpoint: "/l" } }, ...config },
  });

describe(`A secret where everybody would be told of it ${verifies("BLIND-5", "BLIND-6")}`, () => {
  test.each<readonly [string, string, () => Promise<Reply>]>([
    [
      "a provider's credential",
      "credential",
      () =>
        send("/v1/providers", { name: "p", kind: "openai", base_url: "https://llm.example.com/v1", credential: key }),
    ],
    ["a credential's own name", "name", () => tenant.client.send("put", `/v1/credentials/${key}`, { value: "x" })],
    [
      "a plugin's source",
      "auth_config.mapping.0.source",
      () => plugin({}, { type: "bearer", mapping: [{ source: key }] }),
    ],
    [
      "a plugin's fixed header",
      "execution.headers.X-Api-Key",
      () => plugin({ headers: { "X-Api-Key": "abc-123-def" } }),
    ],
    ["a plugin's header by any name", "execution.headers.X-Custom", () => plugin({ headers: { "X-Custom": key } })],
    [
      "a plugin's address",
      "execution.base_url",
      () => plugin({ base_url: "https://crm.example.com/x?api_key=abc-123-def" }),
    ],
    [
      "a service's reference",
      "config.auth_config.token.credential",
      () => service({ auth_type: "bearer", auth_config: { token: { credential: key } } }),
    ],
    [
      "a service's mapping",
      "config.auth_config.mapping.0.source",
      () => service({ auth_type: "mapping", auth_config: { type: "bearer", mapping: [{ source: key }] } }),
    ],
    ["a service's header", "config.headers.X-Custom", () => service({ headers: { "X-Custom": key } })],
    [
      "a service's endpoint",
      "config.tools.list.endpoint",
      () => service({ tools: { list: { description: "L.", endpoint: `/l?api_key=${key}` } } }),
    ],
    [
      "the endpoint of a tool that is called as a field is",
      "config.tools.query.endpoint",
      () => service({ tools: { query: { description: "Q.", endpoint: "/q?apikey=abc" } } }),
    ],
    ["a service's query", "config.query.q", () => service({ query: { q: key } })],
    ["a service's query by its name", "config.query.apikey", () => service({ query: { apikey: "abc" } })],
    ...[
      ["headers.X-Token", "Passw0rd!2024"],
      ["headers.X-Signature", "s3cr3t"],
      ["headers.X-Master-Key", "abc"],
      ["headers.Cookie", "JSESSIONID=A1B2C3D4"],
      ["headers.Cookie", "session=abcdefghijklmnopqrstuvwx"],
      ["headers.X-Api-Key", "a{x}b9d8f7a6c5"],
      ["query.token", "abcdefghijklmnopqrstuvwxyz"],
      ["query.token", "123456789012345678901234"],
      ["query.access_token", "p{abc}ss"],
    ].map(([field = "", value = ""]): readonly [string, string, () => Promise<Reply>] => {
      const [place = "", name = ""] = field.split(".");
      return [
        `a service's ${name} that says ${value}`,
        `config.${field}`,
        () => service({ [place]: { [name]: value } }),
      ];
    }),
    [
      "a service's address with a short one",
      "config.base_url",
      () => service({ base_url: "https://crm.example.com/?token=abcdef" }),
    ],
    [
      "a server's address with a short one",
      "config.url",
      () =>
        send("/v1/tool-services", {
          scheme: "mcp",
          service_id: "maps",
          config: { url: "https://mcp.example.com/mcp?token=abcdef" },
        }),
    ],
    [
      "a service's address",
      "config.base_url",
      () => service({ base_url: `https://crm.example.com/?tavilyApiKey=${key}` }),
    ],
    [
      "the path that a service is tested by",
      "config.probe_endpoint",
      () => service({ probe_endpoint: `/me?key=${key}` }),
    ],
    [
      "a server's address",
      "config.url",
      () =>
        send("/v1/tool-services", {
          scheme: "mcp",
          service_id: "maps",
          config: { url: "https://mcp.amap.com/mcp?key=0123456789abcdef0123456789abcdef" },
        }),
    ],
  ])("is refused as %s, and not repeated", async (_what, param, attempt) => {
    const { status, json } = await attempt();
    expect(status).toBe(400);
    expect(json).toMatchObject({
      error: { param, message: expect.stringMatching(/PUT \/v1\/credentials/) },
    });
    expect(JSON.stringify(json)).not.toContain(key);
  });

  test("may be said not to be one, where nothing but its name tells so", async () => {
    const headers = { "X-Tenant-Key": "acme" };
    const config = { base_url: "https://crm.example.com/v1?token=eu", headers, tools: {} };
    const made = { scheme: "api", service_id: "plain" };
    const { json } = await send("/v1/tool-services", { ...made, config });
    expect(json.error.message).toContain("where it is none, name 'config.base_url' in 'not_secret'");
    const first = { ...made, config, not_secret: ["config.base_url"] };
    expect((await send("/v1/tool-services", first)).json.error.param).toBe("config.headers.X-Tenant-Key");
    const both = ["config.base_url", "config.headers.X-Tenant-Key"];
    const { id, config: stored } = await tenant.client.post("/v1/tool-services", { ...first, not_secret: both });
    expect(stored).toMatchObject({ base_url: config.base_url, headers });
    const patch = (change: Json): Promise<Reply> => tenant.client.send("patch", `/v1/tool-services/${id}`, change);
    const session = { config: { headers: { "X-Session": "eu-1" } } };
    expect((await patch(session)).status).toBe(400);
    expect((await patch({ ...session, not_secret: ["config.headers.X-Session"] })).status).toBe(200);
    const plainly = { config: { headers: { "X-Custom": key } }, not_secret: ["config.headers.X-Custom"] };
    expect((await patch(plainly)).status).toBe(400);
  });

  test.each<readonly [string, Json, string]>([
    ["GitHub", { "X-GitHub-Api-Version": "2022-11-28" }, "hide_secret=true&secret_type=mailchimp_api_key"],
    ["Jira", { "X-Atlassian-Token": "no-check" }, "maxResults=50"],
    ["SAP", { "X-CSRF-Token": "Fetch" }, "sap-client=100"],
    ["NASA", {}, "api_key=DEMO_KEY"],
    ["a page in one language", { Cookie: "lang=en" }, "max_tokens=100&secret_shares=5&projectKey=ABC&api_key="],
    ["an exchange of tokens", {}, "buyToken=0x6b175474e89094c44da98b954eedeac495271d0f&token_type=erc20"],
    ["Anthropic", { "anthropic-beta": "token-efficient-tools-2025-02-19" }, "page_token=CAUQAA1234567890"],
  ])("is not seen in what only has the word in its name: %s", async (_whose, headers, query) => {
    const made = await gateway.newTenant();
    const post = (path: string, body: Json): Promise<Reply> => made.client.send("post", path, body);
    const execution = {
      method: "GET",
      base_url: `https://a.example.com/x?${query}`,
      param_placement: "query",
      headers,
    };
    const parameters = { type: "object", properties: {} };
    const definition = { schema_version: "v1", name: "tool", description: "T.", parameters, execution };
    expect(await post("/v1/plugins", definition)).toMatchObject({ status: 201 });
    // Tools may be called as the fields of a service are.
    const tools = { query: { description: "Basic information", endpoint: `/q?${query}`, headers } };
    const config = {
      base_url: "https://a.example.com",
      tools,
      headers,
      query: Object.fromEntries(new URLSearchParams(query)),
    };
    const fresh = { ...tools, query: { ...tools.query, endpoint: "/q" } };
    expect(
      await post("/v1/tool-services", { scheme: "api", service_id: "a", config: { ...config, tools: fresh } }),
    ).toMatchObject({ status: 201 });
    const { query: _query, ...plain } = config;
    expect(await post("/v1/tool-services", { scheme: "api", service_id: "b", config: plain })).toMatchObject({
      status: 201,
    });
    const mcp = { url: `https://a.example.com/mcp?${query}`, headers };
    expect(await post("/v1/tool-services", { scheme: "mcp", service_id: "c", config: mcp })).toMatchObject({
      status: 201,
    });
  });

  test("stays where an older version has stored it, and may be changed around it", async () => {
    const url = `https://a.example.com/mcp?exaApiKey=${key}`;
    const headers = { "X-Custom": key };
    const { repos } = gateway.core;
    const { id: owner, client } = await gateway.newTenant();
    const id = newId("toolService");
    const texts = { displayName: "Exa", description: null };
    const fresh = { id, scheme: "mcp" as const, serviceId: "exa", ...texts, config: { url, headers }, enabled: true };
    await repos.services.create(owner, fresh);
    const path = `/v1/tool-services/${id}`;
    expect(await client.send("patch", path, { config: { timeout_ms: 5_000 } })).toMatchObject({ status: 200 });
    const changed = await client.send("patch", path, { config: { headers: { "X-Other": `${key}0` } } });
    expect(changed).toMatchObject({ status: 400, json: { error: { param: "config.headers.X-Other" } } });
  });

  test("stays the name of a credential that an older version has stored: for the tenant, and for each user", async () => {
    const made = await gateway.newTenant();
    const ann = await made.newKey({ user_id: "ann", scopes: ["tools"] });
    const path = `/v1/credentials/${key}`;
    expect((await ann.client.send("put", path, { value: "x", user_id: "ann" })).status).toBe(400);
    await gateway.core.repos.credentials.put(made.id, { name: key, level: "tenant", version: 1, sealed: "sealed" });
    expect((await ann.client.send("put", path, { value: "x", user_id: "ann" })).status).toBe(201);
    expect((await made.client.send("put", path, { value: "y" })).status).toBe(200);
  });

  test("is taken with a request's own definitions, which nobody else sees", async () => {
    const definition = {
      schema_version: "v1",
      name: "inline",
      description: "Customers.",
      parameters: { type: "object", properties: {} },
      execution: {
        method: "GET",
        base_url: "http://127.0.0.1:9/x?token=1",
        param_placement: "query",
        headers: { "X-Api-Key": key },
      },
      auth_config: { type: "bearer", mapping: [{ source: key }] },
    };
    const runtime = { plugins: [definition], credentials: { [key]: "value" } };
    const { json } = await send("/v1/tools/invoke", { name: "inline", runtime_config: runtime });
    expect(json).toMatchObject({ error: { code: "tool_unreachable" } });
  });

  test("is taken as a literal where a service takes secrets, and told to nobody", async () => {
    const { status } = await service({ auth_type: "bearer", auth_config: { token: key } });
    expect(status).toBe(201);
    expect(JSON.stringify(await tenant.client.get("/v1/tool-services"))).not.toContain(key);
  });
});
