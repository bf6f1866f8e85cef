/** A tenant's configuration as one document: exported, compared, applied elsewhere (docs/configuration.md). */
import { setTimeout as pause } from "node:timers/promises";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { apply, definition, flow, path, plan, refused, textOf } from "../support/configuration.ts";
import { allScopes, type Client, type Json, type TestTenant } from "../support/gateway-client.ts";
import { startGateway, startGatewayProcess, type Gateway } from "../support/gateway.ts";
import { anyTool, startMcpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";
import { importVcp, printing } from "../support/vcp-plugins.ts";

let gateway: Gateway;
/** Beside it, on the same database. */
let second: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ requestsOnly: true });
  second = await startGateway({ requestsOnly: true, sharedWith: gateway });
});
afterAll(async () => {
  await second.close();
  await gateway.close();
});

const actions = ({ resources }: Json): string[] =>
  resources
    .filter(({ action }: Json) => action !== "unchanged")
    .map(({ kind, name, action }: Json) => `${action} ${kind} ${name}`);
const versionOf = async ({ id }: TestTenant): Promise<unknown> =>
  (await gateway.operator.get(`/v1/tenants/${id}`)).config_version;

/** `message M {}  service S { rpc Get(M) returns (M); }`, as a compiler writes it. */
const descriptors = Buffer.from("CioKB3MucHJvdG8iAwoBTTISCgFTEg0KA0dldBICLk0aAi5NYgZwcm90bzM=", "base64");
const planted = ["hunter2-literal-token-0001", "hunter2-stored-value-0002", "hunter2-plugin-value-0003"] as const;

/** Everything that a document holds, and the secrets that it must not. Returns those. */
async function furnish({ client, putCredential, keyId }: TestTenant): Promise<readonly string[]> {
  await putCredential("CRM_KEY", planted[1]);
  await client.post("/v1/providers", {
    name: "main",
    kind: "openai",
    base_url: "https://models.example.com/v1",
    credential: "MODEL_KEY",
    models: { slow: "slow-1", fast: "fast-1" },
  });
  const uploaded = await client.expect("post", "/v1/descriptor-sets", undefined, {
    raw: descriptors,
    headers: { "content-type": "application/octet-stream" },
  });
  await client.post("/v1/tool-services", {
    scheme: "api",
    service_id: "crm",
    config: {
      base_url: "https://crm.example.com",
      headers: { "X-Tenant-Key": "public" },
      auth_type: "bearer",
      auth_config: { token: planted[0] },
      tools: { customer_list: { description: "Lists customers.", endpoint: "/customers" } },
    },
    not_secret: ["config.headers.X-Tenant-Key"],
  });
  await client.post("/v1/tool-services", {
    scheme: "svc",
    service_id: "loyalty",
    config: {
      protocol: "grpc",
      endpoints: [{ host: "loyalty.example.com", port: 443 }],
      grpc: { descriptor_set: uploaded.id },
    },
  });
  await client.post("/v1/tool-services", {
    scheme: "mq",
    service_id: "bus",
    config: { broker: "redis", servers: ["mq.example.com"], topics: { orders: {}, copies: {} } },
  });
  const auth = { type: "api_key", mapping: [{ source: "CRM_KEY", target: "x-key", location: "header" }] };
  await client.post("/v1/plugins", definition("lookup"));
  const guarded = await client.post("/v1/plugins", definition("guarded", { auth_config: auth, sensitive: true }));
  await client.expect("patch", `/v1/plugins/${guarded.id}`, { enabled: false });
  await client.post("/v1/knowledge/create", { name: "handbook", config: { top_k: 3 } });
  const { id: base } = await client.post("/v1/knowledge/create", { name: "wiki" });
  await client.post("/v1/vcp/variables", { kind: "var", name: "VarCity", content: "Paris", description: "A city" });
  await client.post("/v1/vcp/variables", { kind: "text", name: "long.txt", content: "long ".repeat(1_000) });
  await client.expect("put", "/v1/vcp/world_books/port", { entries: [{ keys: ["harbour"], content: "It freezes." }] });
  await client.expect("put", "/v1/vcp/characters/Ada", { name: "Ada", description: "A pilot." });
  await client.expect("put", "/v1/vcp/presets/brief", {
    rules: [{ type: "relative", target: "system", position: "after", content: "Be brief." }],
    world_books: ["port"],
    character: "Ada",
  });
  await client.post("/v1/agents", {
    name: "support",
    tools: ["lookup", "api://crm/*"],
    knowledge: [base],
    agents: ["helper"],
  });
  await client.post("/v1/agents", { name: "helper", limits: { rounds: 3 }, enabled: false });
  const room = await client.post("/v1/group_chats", {
    name: "Harbour",
    owner: "tenant",
    mode: "invited",
    moderator: "helper",
    members: [
      { kind: "agent", name: "support", display_name: "Ada" },
      { kind: "user", name: "ann" },
    ],
  });
  await client.post("/v1/group_chats", {
    name: "What somebody talks of",
    members: [{ kind: "agent", name: "helper" }],
  });
  const issuer = await client.post("/v1/issuers", {
    issuer: "https://login.example.com/",
    audience: "toolyard",
    jwks_url: "https://login.example.com/jwks.json",
    claims: { role: "realm.roles", business_unit: "unit" },
    default_scopes: ["tools", "chat", "tools"],
  });
  const made = await client.post("/v1/flows", { definition: flow("look_up"), publish: true });
  const hook = await client.post(`/v1/flows/${made.id}/hooks`, { name: "shop", signed: true });
  await client.expect("patch", `/v1/flows/${made.id}`, { definition: { ...flow("look_up"), description: "A draft." } });
  const webhook = await client.post("/v1/webhooks", {
    name: "ops",
    url: "https://hooks.example.com/a",
    events: ["call.failed", "call.completed"],
  });
  await client.post("/v1/webhooks", { name: "twin", url: "https://hooks.example.com/b" });
  await client.post("/v1/webhooks", { name: "twin", url: "https://hooks.example.com/c" });
  await client.post("/v1/subscriptions", {
    name: "orders",
    uri: "mq://bus/orders",
    target: { uri: "mq://bus/copies", arguments: { message: { $message: "/body" } } },
  });
  await client.post("/v1/schedule_task", {
    name: "nightly",
    cron: "0 3 * * *",
    task: { uri: "lookup", arguments: { id: "1" } },
    deliver: { webhook: webhook.id },
  });
  await client.post("/v1/schedule_task", { rate: "30 days", task: { uri: "api://crm/customer_list" }, paused: true });
  await client.post("/v1/schedule_task", { delay_ms: 86_400_000, task: { uri: "lookup" } });
  await client.post("/v1/budgets", { name: "All", period: "month", limit_micros: 5_000_000 });
  await client.post("/v1/budgets", { name: "Ann", scope: "user", scope_id: "ann", period: "day", limit_tokens: 1_000 });
  await client.post("/v1/budgets", { name: "Key", scope: "key", scope_id: keyId, period: "day", limit_tokens: 1_000 });
  await client.expect("put", "/v1/prices", {
    prices: [{ kind: "tool", pattern: "api_crm__*", per_call: 20 }],
  });
  await client.expect("patch", "/v1/settings", { rounds: 4, chat_knowledge_bases: [base], time_zone: "UTC" });
  return [...planted, hook.secret, hook.url.split("/").at(-1), webhook.secret, webhook.id, base, room.id, issuer.id];
}

describe(`the document of a tenant with everything ${verifies("CFG-1", "CFG-3", "BLIND-5")}`, () => {
  let tenant: TestTenant;
  let secrets: readonly string[];
  let text: string;
  let document: Json;

  beforeAll(async () => {
    tenant = await gateway.newTenant();
    secrets = await furnish(tenant);
    text = await textOf(tenant.client);
    document = JSON.parse(text);
  });

  test("holds something of every kind, in one order, and the same bytes each time", async () => {
    const empty = Object.entries(document).filter(([, value]) => Array.isArray(value) && value.length === 0);
    expect(empty.map(([kind]) => kind)).toEqual(["vcp_plugins", "preprocessor_order"]);
    expect(document.agents.map(({ name }: Json) => name)).toEqual(["helper", "support"]);
    expect(document.webhooks.map(({ url }: Json) => url.at(-1))).toEqual(["a", "b", "c"]);
    expect(await textOf(second.client(tenant.key))).toBe(text);
  });

  test("names what it refers to, and needs, and tells no id and no secret", () => {
    expect(document.schedules.map(({ deliver }: Json) => deliver)).toContainEqual({ webhook: "ops" });
    expect(document.agents[1].knowledge).toEqual(["wiki"]);
    expect(document.group_chats.map(({ name, members }: Json) => [name, members])).toEqual([
      ["Harbour", [{ kind: "agent", name: "support", display_name: "Ada" }]],
    ]);
    expect(document.settings).toMatchObject({ chat_knowledge_bases: ["wiki"], rounds: 4 });
    expect(document.flows[0].definition.description).toBe("Looks up.");
    expect(document.credentials).toEqual([
      { name: "CRM_KEY", used_by: ["plugins/guarded"] },
      { name: "MODEL_KEY", used_by: ["providers/main"] },
      { name: "api.crm.auth_config.token", used_by: ["tool_services/api://crm"] },
    ]);
    for (const secret of secrets) expect(text).not.toContain(secret);
    expect(text).not.toMatch(/(?:svc|kb|whk|flow|agt|sub|sched|plg|bud|prv|var|tav|fhk|key)_[0-9a-z]{26}/);
  });

  test("is no change where it comes from, and applied there it writes nothing", async () => {
    const said = await plan(tenant.client, document, { remove_missing: true });
    expect(said).toMatchObject({ in_sync: true, problems: [] });
    expect(said.missing_credentials.map(({ name }: Json) => name)).toEqual(["MODEL_KEY"]);
    const version = await versionOf(tenant);
    const done = await apply(tenant.client, document, { remove_missing: true, plan: said.plan });
    expect(done).toMatchObject({ complete: true, applied: [], not_applied: [] });
    expect(await versionOf(tenant)).toBe(version);
  });

  test("applied to an empty tenant is the same document there, and applied again changes nothing", async () => {
    const other = await gateway.newTenant();
    const first = await plan(other.client, document);
    const needed = ["CRM_KEY", "MODEL_KEY", "api.crm.auth_config.token"];
    expect(first.missing_credentials.map(({ name }: Json) => name)).toEqual(needed);
    // As its own route says: what could not be called is not scheduled.
    expect(first.problems).toMatchObject([{ code: "credential_missing", path: "schedules[0].task" }]);
    for (const name of needed) await other.putCredential(name, "of the other tenant");
    const [before, empty] = [await versionOf(other), await textOf(other.client)];
    const said = await plan(other.client, document);
    expect(said).toMatchObject({ problems: [], missing_credentials: [], in_sync: false });
    expect([await versionOf(other), await textOf(other.client)]).toEqual([before, empty]);
    expect(await apply(other.client, document, { plan: said.plan })).toMatchObject({ complete: true });
    expect(await textOf(other.client)).toBe(text);
    // The first model is the one of requests that name none.
    const [provider] = (await other.client.get("/v1/providers")).data;
    expect(Object.keys(provider.models)).toEqual(["slow", "fast"]);
    const version = await versionOf(other);
    expect((await apply(other.client, document)).applied).toEqual([]);
    expect(await versionOf(other)).toBe(version);
    const [hook] = (await other.client.get(`/v1/flows/${(await other.client.get("/v1/flows")).data[0].id}/hooks`)).data;
    expect(hook).toMatchObject({ name: "shop", signed: true });
  });

  test("tells of what has drifted, field by field, and takes it back", async () => {
    const { client } = tenant;
    const [helper] = (await client.get("/v1/agents")).data.filter(({ name }: Json) => name === "helper");
    await client.expect("patch", `/v1/agents/${helper.id}`, { enabled: true, limits: { rounds: 9 } });
    await client.post("/v1/agents", { name: "stray" });
    const said = await plan(client, document);
    expect(actions(said)).toEqual(["changed agents helper", "kept agents stray"]);
    expect(said.resources.find(({ action }: Json) => action === "changed").fields).toEqual([
      { field: "enabled", before: true, after: false },
      { field: "limits.rounds", before: 9, after: 3 },
    ]);
    expect(said.in_sync).toBe(false);
    const done = await apply(client, document, { remove_missing: true });
    expect(done.applied).toEqual([
      { kind: "agents", name: "helper", action: "changed" },
      { kind: "agents", name: "stray", action: "removed" },
    ]);
    expect(await textOf(client)).toBe(text);
  });

  test("changes one of every kind, in place", async () => {
    const { client } = tenant;
    const changed = structuredClone(document);
    changed.settings.rounds = 5;
    changed.providers[0].priority = 7;
    changed.tool_services.find(({ service_id: id }: Json) => id === "crm").config.timeout_ms = 1_234;
    changed.plugins.find(({ definition: { name } }: Json) => name === "guarded").definition.description = "Guards.";
    changed.knowledge_bases[0].config.top_k = 4;
    changed.vcp_variables.find(({ name }: Json) => name === "VarCity").content = "Rome";
    delete changed.vcp_variables.find(({ name }: Json) => name === "VarCity").description;
    changed.world_books[0].content.entries[0].content = "It thaws.";
    changed.agents[0].description = "Helps.";
    changed.flows[0].definition.description = "Looks it up.";
    changed.flows[0].hooks = [{ name: "shop" }];
    changed.webhooks[0].enabled = false;
    changed.subscriptions[0].enabled = false;
    changed.schedules.find(({ name }: Json) => name === "nightly").cron = "0 4 * * *";
    changed.group_chats[0].topic = "Ships";
    changed.group_chats[0].members = [
      { kind: "agent", name: "helper" },
      { kind: "agent", name: "support" },
    ];
    changed.issuers[0].claims = {};
    changed.budgets[0].limit_tokens = 5;
    changed.prices[0].per_call = 30;
    const ids = async (): Promise<Json> => [
      (await client.get("/v1/tool-services")).data.map(({ id, config }: Json) => [id, config.auth_config]),
      (await client.get("/v1/agents")).data.map(({ id }: Json) => id),
      (await client.get("/v1/group_chats")).data.map(({ id }: Json) => id),
      (await client.get("/v1/issuers")).data.map(({ id }: Json) => id),
    ];
    const before = await ids();
    const done = await apply(client, changed, { remove_missing: true });
    expect(done.applied.map(({ action }: Json) => action)).toEqual(Array.from({ length: 16 }, () => "changed"));
    expect(await ids()).toEqual(before);
    changed.flows[0].hooks = [{ name: "shop", signed: false, enabled: true }];
    expect(JSON.parse(await textOf(client))).toEqual(changed);
    await apply(client, document, { remove_missing: true });
    expect(await textOf(client)).toBe(text);
  });

  test("leaves a service its own secrets, also for what the same document has call it", async () => {
    const changed = structuredClone(document);
    const service = changed.tool_services.find(({ service_id: id }: Json) => id === "crm");
    service.config.timeout_ms = 4_321;
    changed.schedules.push({ name: "hourly", rate: "1 hour", task: { uri: "api://crm/customer_list" } });
    expect((await plan(tenant.client, changed)).problems).toEqual([]);
    expect((await apply(tenant.client, changed)).applied).toHaveLength(2);
    expect((await plan(tenant.client, changed, { remove_missing: true })).in_sync).toBe(true);
    await apply(tenant.client, document, { remove_missing: true });
    expect(await textOf(tenant.client)).toBe(text);
    service.not_secret = [];
    expect(await refused(tenant.client, changed)).toMatchObject({
      code: "invalid_definition",
      param: expect.stringMatching(/^configuration\.tool_services\[\d\]\.config\.headers\.X-Tenant-Key$/),
    });
  });

  test("without anything removes all that it names, those that use others first", async () => {
    const other = await gateway.newTenant();
    await other.putCredential("api.crm.auth_config.token", "of the other tenant");
    await apply(other.client, document);
    const bare = Object.fromEntries(
      Object.entries(document).map(([kind, value]) => [
        kind,
        kind === "settings" ? {} : Array.isArray(value) ? [] : value,
      ]),
    );
    const kept = await apply(other.client, { ...bare, agents: undefined });
    expect(kept.applied).toEqual([]);
    const said = await plan(other.client, bare, { remove_missing: true });
    expect(said.problems).toEqual([]);
    expect(await apply(other.client, bare, { remove_missing: true })).toMatchObject({ complete: true });
    expect(JSON.parse(await textOf(other.client))).toEqual({ ...bare, credentials: [] });
  });
});

describe(`what single routes refuse ${verifies("CFG-1", "CFG-4")}`, () => {
  let tenant: TestTenant;
  let client: Client;

  beforeAll(async () => {
    tenant = await gateway.newTenant();
    ({ client } = tenant);
  });

  test("is refused, all of it at once and by its place, and nothing is written", async () => {
    const document = {
      providers: [
        { name: "inner", kind: "openai", base_url: "http://169.254.169.254/v1" },
        { name: "fine", kind: "openai", base_url: "https://models.example.com/v1" },
      ],
      agents: [{ name: "a", limits: { rounds: 0 } }, { name: "b", colour: "red" }, { name: "c" }, { name: "c" }],
      subscriptions: [{ name: "s", uri: "mq://nowhere/t", target: { uri: "lookup" } }],
      schedules: [{ name: "s", cron: "0 3 * * *", task: { uri: "nothing" } }],
      flows: [{ definition: { ...flow("f"), nodes: { look: { kind: "dance" } } } }],
      budgets: [{ name: "none", period: "day" }],
    };
    const said = await plan(client, document);
    expect(said.problems.map(({ code, path: at }: Json) => `${code} ${at}`)).toEqual([
      "egress_denied providers[0].base_url",
      "invalid_request agents[0].limits.rounds",
      "invalid_request agents[1].colour",
      "conflict agents[3]",
      "flow_invalid flows[0].definition.nodes.look.kind",
      "tool_not_found subscriptions[0].uri",
      "tool_not_found schedules[0].task",
      "invalid_request budgets[0].limit_tokens",
    ]);
    const version = await versionOf(tenant);
    expect(await refused(client, document)).toMatchObject({
      code: "egress_denied",
      param: "configuration.providers[0].base_url",
      problems: said.problems,
    });
    expect(await versionOf(tenant)).toBe(version);
  });

  test("a kind or a field that there is not is refused by its name", async () => {
    expect(await refused(client, { agnets: [] })).toMatchObject({
      code: "invalid_request",
      param: "configuration.agnets",
      message: expect.stringContaining("'agents' may be meant"),
    });
    expect(await refused(client, { settings: { ronds: 3 } })).toMatchObject({ param: "configuration.settings.ronds" });
    expect(await refused(client, { format: 2 })).toMatchObject({
      param: "configuration.format",
      message: expect.stringContaining("must be 1, which is what this release reads"),
    });
  });

  test("a webhook that a schedule names has to be one", async () => {
    await client.post("/v1/plugins", definition("sched_tool"));
    const schedule = { name: "s", rate: "5 minutes", task: { uri: "sched_tool" }, deliver: { webhook: "ops" } };
    const place = "configuration.schedules[0].deliver.webhook";
    expect(await refused(client, { schedules: [schedule] })).toMatchObject({ code: "invalid_request", param: place });
    const hook = (url: string): Json => ({ name: "ops", url: `https://hooks.example.com/${url}`, enabled: false });
    const twice = { schedules: [schedule], webhooks: [hook("a"), hook("b")] };
    expect(await refused(client, twice)).toMatchObject({ param: place });
    const brought = { schedules: [schedule], webhooks: [hook("a")] };
    expect((await apply(client, brought)).applied).toHaveLength(2);
    expect((await plan(client, brought)).in_sync).toBe(true);
    expect(
      await refused(
        client,
        { schedules: [{ ...schedule, rate: "6 minutes" }], webhooks: [] },
        { remove_missing: true },
      ),
    ).toMatchObject({ param: place });
  });

  test("a service that others need stays, unless those go as well", async () => {
    const service = {
      scheme: "mq",
      service_id: "bus",
      config: { broker: "redis", servers: ["mq.example.com"], topics: { in: {}, out: {} } },
    };
    const subscription = {
      name: "s",
      uri: "mq://bus/in",
      target: { uri: "mq://bus/out", arguments: { message: { $message: "/body" } } },
    };
    // The service is not there before: what the document brings is what counts.
    await apply(client, { tool_services: [service], subscriptions: [subscription] });
    expect(await refused(client, { tool_services: [] }, { remove_missing: true })).toMatchObject({
      code: "service_referenced",
    });
    const both = { tool_services: [], subscriptions: [] };
    expect((await apply(client, both, { remove_missing: true })).applied.map(({ kind }: Json) => kind)).toEqual([
      "subscriptions",
      "tool_services",
    ]);
  });

  test("what is changed and goes on using what goes is found before anything is written", async () => {
    const other = await gateway.newTenant();
    const uses = { name: "uses", tools: ["api://crm/*"], agents: ["used"] };
    const service = { scheme: "api", service_id: "crm", config: { base_url: "https://crm.example.com", tools: {} } };
    const toolsets = (...tools: string[]): Json => ({ mcp_toolsets: { all: { tools: ["api://crm/*", ...tools] } } });
    await apply(other.client, {
      settings: toolsets(),
      tool_services: [service],
      agents: [uses, { name: "used" }],
    });
    const [version, without] = [await versionOf(other), { ...uses, description: "Still." }];
    const cut = { settings: toolsets("other"), tool_services: [], agents: [without] };
    const error = await refused(other.client, cut, { remove_missing: true });
    expect(error.problems.map(({ code, path: at }: Json) => `${code} ${at}`)).toEqual([
      "service_referenced agents",
      "service_referenced tool_services",
    ]);
    expect(await versionOf(other)).toBe(version);
    const last = { settings: {}, tool_services: [], agents: [{ name: "uses", description: "No more." }] };
    expect(await apply(other.client, last, { remove_missing: true })).toMatchObject({ complete: true });
  });

  test("a secret in a document is refused, and told to nobody", async () => {
    const config = { base_url: "https://x.example.com", auth_type: "bearer", auth_config: { token: planted[0] } };
    const services = [{ scheme: "api", service_id: "x", config: { ...config, tools: {} } }];
    const plugins = [
      {
        definition: definition("leaky", {
          execution: {
            method: "GET",
            base_url: "https://x.example.com",
            param_placement: "query",
            headers: { "X-Api-Key": "sk-0123456789abcdef0123456789abcdef" },
          },
        }),
      },
    ];
    for (const what of ["plan", "apply"]) {
      const reply = await client.send("post", `${path}/${what}`, {
        configuration: { tool_services: services, plugins },
      });
      expect(reply.text).toContain("tool_services[0].config.auth_config.token");
      expect(reply.text).toContain("is a secret, which no document holds");
      expect(reply.text).toContain("plugins[0].definition.execution.headers.X-Api-Key");
      expect(reply.text).not.toContain(planted[0]);
      expect(reply.text).not.toContain("sk-0123456789");
    }
  });

  test("what a key may not do elsewhere, it may not do here", async () => {
    for (const [scopes, missing] of [
      [["manage", "chat"], "tools"],
      [["tools", "chat"], "manage"],
      [["manage", "tools"], "chat"],
    ] as const) {
      const key = await tenant.newKey({ scopes });
      for (const [method, at] of [
        ["get", path],
        ["post", `${path}/plan`],
        ["post", `${path}/apply`],
      ] as const) {
        const reply = await key.client.send(method, at, method === "get" ? undefined : { configuration: {} });
        expect(reply.json.error).toMatchObject({ code: "permission_denied", param: missing });
      }
    }
    const trusts = { issuer: "https://login.example.com/", audience: "a", jwks_url: "https://login.example.com/jwks" };
    const keyOf = await tenant.newKey({ role: "admin", scopes: ["manage", "tools", "chat"] });
    expect(await refused(keyOf.client, { issuers: [{ ...trusts, claims: { scopes: "scope" } }] })).toMatchObject({
      code: "permission_denied",
      param: "configuration.issuers[0].scopes",
    });
    const bound = await tenant.newKey({ scopes: ["manage", "tools", "chat"], tools: ["lookup"] });
    const hooked = { flows: [{ definition: flow("hooked"), hooks: [{ name: "h" }] }] };
    expect(await refused(bound.client, hooked)).toMatchObject({ code: "permission_denied" });
    expect((await client.get("/v1/flows")).data).toEqual([]);
  });

  test("a room of the tenant has agents that there are, and its people and what was said are left alone", async () => {
    const other = await gateway.newTenant();
    const agent = (name: string, more: Json = {}): Json => ({ kind: "agent", name, ...more });
    const room = (members: readonly Json[], more: Json = {}): Json => ({ name: "Harbour", members, ...more });
    const agents = ["ada", "bob", "cleo"].map((name) => ({ name }));
    const wrong = await plan(other.client, {
      agents,
      group_chats: [
        room([agent("dora")]),
        room([{ kind: "user", name: "ann" }]),
        room([], { owner: "caller" }),
        room([], { mode: "invited" }),
      ],
    });
    expect(wrong.problems.map(({ path: at }: Json) => at)).toEqual([
      "group_chats[1].members.0.kind",
      "group_chats[2].owner",
      "group_chats[3].moderator",
      "group_chats[0].members",
    ]);
    const both = [agent("ada"), agent("bob"), agent("ada")];
    await apply(other.client, { agents, group_chats: [room(both), room([agent("cleo")], { mode: "mentioned" })] });
    expect(JSON.parse(await textOf(other.client)).group_chats.map(({ members }: Json) => members)).toEqual([
      [agent("ada"), agent("bob")],
      [agent("cleo")],
    ]);
    const [{ id }] = (await other.client.get("/v1/group_chats")).data.filter(({ mode }: Json) => mode === "sequential");
    const ann = await other.newKey({ scopes: ["chat"], user_id: "ann" });
    await ann.client.post(`/v1/group_chats/${id}/members`, {});
    await ann.client.post(`/v1/group_chats/${id}/messages`, { content: "Hello", wait: true });
    // Whose conversation it is not may not make it the tenant's, nor change what is.
    for (const [method, at] of [
      ["post", "/v1/group_chats"],
      ["patch", `/v1/group_chats/${id}`],
    ] as const) {
      const taken = await ann.client.send(method, at, { name: "mine", owner: "tenant" });
      expect(taken).toMatchObject({ status: 403, json: { error: { param: "manage" } } });
    }
    const turned = { group_chats: [room([agent("bob"), agent("ada", { display_name: "Ada" })], { topic: "Ships" })] };
    const refusal = room([agent("bob"), agent("dora")], { topic: "None" });
    expect((await plan(other.client, { group_chats: [refusal] })).problems).toMatchObject([
      { path: "group_chats[0].members" },
    ]);
    await apply(other.client, turned);
    expect(await other.client.get(`/v1/group_chats/${id}`)).toMatchObject({
      topic: "Ships",
      owner: "tenant",
      members: [{ name: "ann" }, { name: "bob" }, { display_name: "Ada" }],
    });
    expect((await other.client.get(`/v1/group_chats/${id}/messages`)).data.length).toBeGreaterThan(1);
    await ann.client.post("/v1/group_chats", { name: "Harbour" });
    const done = await apply(other.client, { group_chats: [] }, { remove_missing: true });
    expect(done.applied.map(({ action }: Json) => action)).toEqual(["removed", "removed"]);
    expect((await other.client.get("/v1/group_chats")).data).toMatchObject([{ name: "Harbour", members: [] }]);
  });

  test("more than a tenant may have changes nothing", async () => {
    const version = await versionOf(tenant);
    const webhooks = Array.from({ length: 51 }, (_, at) => ({ name: `w${at}`, url: "https://hooks.example.com" }));
    const error = await refused(client, { settings: { rounds: 9 }, webhooks });
    expect(error).toMatchObject({ code: "conflict", message: expect.stringContaining("at most 50 webhooks") });
    expect(await versionOf(tenant)).toBe(version);
  });

  test("a key of one user has its own schedules left to it", async () => {
    const ann = await tenant.newKey({ scopes: ["tools"], user_id: "ann" });
    await ann.client.post("/v1/schedule_task", { name: "hers", rate: "5 minutes", task: { uri: "sched_tool" } });
    const { schedules } = JSON.parse(await textOf(client));
    expect(schedules.map(({ name }: Json) => name)).toEqual(["s"]);
  });

  test("and makes none by a document, which would not have them and make them again each time", async () => {
    const other = await gateway.newTenant();
    const ann = await other.newKey({ scopes: ["manage", "tools", "chat"], user_id: "ann" });
    const tools = { plugins: [{ definition: definition("looked_up") }] };
    const schedule = { name: "nightly", cron: "0 3 * * *", task: { uri: "looked_up" } };
    await apply(ann.client, tools);
    const said = await plan(ann.client, { schedules: [schedule] });
    expect(said.problems).toMatchObject([{ code: "permission_denied", path: "schedules[0]" }]);
    await apply(other.client, { schedules: [schedule] });
    expect((await plan(ann.client, { schedules: [schedule] })).in_sync).toBe(true);
    expect(await refused(ann.client, { schedules: [{ ...schedule, cron: "0 4 * * *" }] })).toMatchObject({
      code: "permission_denied",
    });
    await apply(ann.client, { schedules: [{ ...schedule, paused: true }] });
    expect(JSON.parse(await textOf(other.client)).schedules).toMatchObject([{ name: "nightly", paused: true }]);
  });

  test("however much is wrong, others have their turn meanwhile", async () => {
    const flows = Array.from({ length: 1_000 }, (_, at) => ({ definition: flow(`f_${at}`) }));
    const since = performance.now();
    let [last, longest, isOver] = [since, 0, false];
    const turn = (): void => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
      if (!isOver) setImmediate(turn);
    };
    turn();
    const said = await plan(client, { flows });
    isOver = true;
    expect(said.problems).toMatchObject([{ code: "conflict", path: "flows" }]);
    expect(longest).toBeLessThan((performance.now() - since) / 2);
  });
});

describe(`VCP plugins ${verifies("CFG-3")}`, () => {
  test("bring their folder themselves: what the tenant decides about them is in the document", async () => {
    const [from, to] = [await gateway.newTenant(), await gateway.newTenant()];
    const plugin = printing("Weather", '{"status":"success","result":"sunny"}');
    const { plugin_id: id } = await importVcp(from.client, plugin);
    await from.client.expect("patch", `/v1/plugins/${id}`, { sensitive: true, roles: ["admin"] });
    const document = JSON.parse(await textOf(from.client));
    expect(document.vcp_plugins).toEqual([{ name: "Weather", enabled: true, sensitive: true, roles: ["admin"] }]);
    expect(await refused(to.client, document)).toMatchObject({
      code: "not_found",
      param: "configuration.vcp_plugins[0].name",
    });
    await importVcp(to.client, plugin);
    await apply(to.client, document);
    expect(await textOf(to.client)).toBe(await textOf(from.client));
  });
});

describe(`applying ${verifies("CFG-1", "CFG-3")}`, () => {
  test("a plan that is old is refused", async () => {
    const { client } = await gateway.newTenant();
    const document = { agents: [{ name: "a" }] };
    const { plan: old } = await plan(client, document);
    await client.post("/v1/agents", { name: "b" });
    expect(await refused(client, document, { plan: old })).toMatchObject({ code: "conflict", param: "plan" });
    const { plan: now } = await plan(client, document);
    expect(await refused(client, { agents: [{ name: "c" }] }, { plan: now })).toMatchObject({ param: "plan" });
    expect((await client.get("/v1/agents")).data).toHaveLength(1);
    await apply(client, document, { plan: now });
  });

  test("two at once do not mix: one waits for its turn", async () => {
    const tenant = await gateway.newTenant();
    const named = (prefix: string): Json => ({
      agents: Array.from({ length: 40 }, (_, at) => ({ name: `${prefix}-${at}` })),
    });
    const send = (client: Client, prefix: string) =>
      client.send("post", `${path}/apply`, { configuration: named(prefix), remove_missing: true });
    const replies = await Promise.all([
      send(tenant.client, "one"),
      send(second.client(tenant.key), "two"),
      send(tenant.client, "three"),
    ]);
    const done = replies.filter(({ status }) => status === 200);
    expect(done.length).toBeGreaterThan(0);
    for (const { status, json } of replies.filter((reply) => !done.includes(reply))) {
      expect([status, json.error.code]).toEqual([409, "conflict"]);
    }
    const { agents } = JSON.parse(await textOf(tenant.client));
    expect(new Set(agents.map(({ name }: Json) => name.split("-")[0])).size).toBe(1);
    expect(agents).toHaveLength(40);
  });

  test("what it wrote stays where it stops, it says how far it came, and again it does the rest", async () => {
    const tenant = await gateway.newTenant();
    const document = { agents: [{ name: "first" }], webhooks: [{ name: "w", url: "https://hooks.example.com" }] };
    const database = await openDatabase({ url: gateway.databaseUrl });
    const run = (sql: string) => database.batch([{ sql, args: [] }]);
    await run(
      `CREATE TRIGGER no_webhook BEFORE INSERT ON webhooks WHEN NEW.tenant = '${tenant.id}' BEGIN SELECT RAISE(ABORT, 'no'); END`,
    );
    const error = await refused(tenant.client, document);
    expect(error).toMatchObject({
      param: "configuration.webhooks[0]",
      applied: [{ kind: "agents", name: "first", action: "added" }],
      not_applied: [{ kind: "webhooks", name: "w", action: "added" }],
    });
    await run("DROP TRIGGER no_webhook");
    expect((await apply(tenant.client, document)).applied).toEqual([{ kind: "webhooks", name: "w", action: "added" }]);
    await database.close();
  });

  test("a new service's back end is asked for its tools before what calls them is made", async () => {
    const stub = await startMcpStub({ tools: [anyTool("sweep")] });
    const { client } = await gateway.newTenant();
    const calling = (tool: string): Json => ({
      tool_services: [{ scheme: "mcp", service_id: "crm", config: { url: stub.url } }],
      schedules: [{ name: tool, rate: "1 hour", task: { uri: `mcp://crm/${tool}` } }],
    });
    // What it has cannot be known before, so what it has not is found out on the way.
    expect((await plan(client, calling("dust"))).problems).toEqual([]);
    expect(await refused(client, calling("dust"))).toMatchObject({
      code: "tool_not_found",
      param: "configuration.schedules[0].task",
      applied: [{ kind: "tool_services", name: "mcp://crm", action: "added" }],
    });
    expect((await apply(client, calling("sweep"))).applied).toMatchObject([{ kind: "schedules", action: "added" }]);
    expect((await plan(client, calling("dust"))).problems).toMatchObject([{ code: "tool_not_found" }]);
    await stub.close();
  });

  test("ends with the key that it was sent with", async () => {
    const stub = await startMcpStub();
    const tenant = await gateway.newTenant();
    const { id, client } = await tenant.newKey({ name: "of CI", role: "admin", scopes: allScopes });
    const answer = stub.http.answer;
    let isRevoked = false;
    stub.http.answer = async (request, response) => {
      if (!isRevoked) {
        isRevoked = true;
        await tenant.client.expect("delete", `/v1/api-keys/${id}`);
        await pause(1_500);
      }
      return answer(request, response);
    };
    const document = {
      tool_services: [{ scheme: "mcp", service_id: "crm", config: { url: stub.url } }],
      agents: [{ name: "a" }],
    };
    const reply = await client.send("post", `${path}/apply`, { configuration: document });
    expect(reply.status).toBe(401);
    expect(reply.json.error).toMatchObject({
      code: "invalid_api_key",
      applied: [{ kind: "tool_services", name: "mcp://crm", action: "added" }],
      not_applied: [{ kind: "agents", name: "a", action: "added" }],
    });
    expect((await tenant.client.get("/v1/agents")).data).toEqual([]);
    await stub.close();
  });

  test("of a process that died midway is done to its end by another", async () => {
    const dying = await startGatewayProcess();
    const beside = await startGateway({ requestsOnly: true, sharedWith: dying });
    const tenant = await beside.newTenant();
    const agents = Array.from({ length: 400 }, (_, at) => ({ name: `a-${at}`, description: "of many" }));
    const cut = dying
      .client(tenant.key)
      .send("post", `${path}/apply`, { configuration: { agents } })
      .then(
        ({ status }) => `answered ${status}`,
        () => "cut off",
      );
    const count = async (): Promise<number> => JSON.parse(await textOf(tenant.client)).agents.length;
    await expect.poll(count, { timeout: 20_000, interval: 5 }).toBeGreaterThan(5);
    await dying.stop("SIGKILL");
    expect(await cut).toBe("cut off");
    expect(await count()).toBeLessThan(400);
    // Until its sign of life is old, it might still be at it.
    expect(await refused(tenant.client, { agents })).toMatchObject({ code: "conflict" });
    const database = await openDatabase({ url: beside.databaseUrl });
    await database.batch([{ sql: "UPDATE tenants SET apply_until = 0 WHERE id = ?1", args: [tenant.id] }]);
    await database.close();
    expect(await apply(tenant.client, { agents }, { remove_missing: true })).toMatchObject({ complete: true });
    expect(await count()).toBe(400);
    expect((await plan(tenant.client, { agents }, { remove_missing: true })).in_sync).toBe(true);
    await beside.close();
    await dying.close();
  });
});
