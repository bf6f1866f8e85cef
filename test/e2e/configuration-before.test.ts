/** What a plan says before anything is written: what apply would be refused for, and which secrets a document shows. */
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { apply, definition, flow, plan, refused, textOf } from "../support/configuration.ts";
import type { Json } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ requestsOnly: true });
});
afterAll(() => gateway.close());

const placesOf = ({ problems }: Json): string[] => problems.map(({ code, path }: Json) => `${code} ${path}`);

describe(`what apply would be refused for ${verifies("CFG-1", "CFG-4")}`, () => {
  const service = (id: string): Json => ({
    scheme: "mq",
    service_id: id,
    config: { broker: "redis", servers: ["mq.example.com"], topics: { t: {}, in: {} } },
  });
  /** All that may use a service, or an agent, without being a part of the configuration that every call has at hand. */
  const users = ({ of, agent, isOther = false }: { of: string; agent: string; isOther?: boolean }): Json => {
    const task = { uri: `mq://${of}/t`, arguments: { message: "m" } };
    const step = { kind: "tool", ...task };
    return {
      group_chats: [{ name: "r", topic: isOther ? "led" : "Ships", members: [{ kind: "agent", name: agent }] }],
      flows: [{ definition: { ...flow("f"), description: isOther ? "Sends." : "Looks.", nodes: { look: step } } }],
      subscriptions: [{ name: "s", uri: `mq://${of}/in`, target: task, enabled: !isOther }],
      schedules: [{ name: "n", rate: "1 hour", task, paused: isOther }],
    };
  };
  const ada = { name: "ada" };
  const led = { name: "led" };

  test("what is changed and goes on using what goes, wherever that is kept", async () => {
    const { client } = await gateway.newTenant();
    const services = [service("old"), service("new")];
    await apply(client, { agents: [ada, led], tool_services: services, ...users({ of: "old", agent: "led" }) });
    const before = await textOf(client);
    const still = users({ of: "old", agent: "led", isOther: true });
    const cut = { agents: [ada], tool_services: [service("new")] };
    const error = await refused(client, { ...cut, ...still }, { remove_missing: true });
    expect(placesOf(error)).toEqual(["service_referenced agents", "service_referenced tool_services"]);
    for (const by of ["flow 'f'", "subscription 's'", "schedule 'n'"]) expect(error.problems[1].message).toContain(by);
    expect(error.problems[0].message).toContain("group_chat 'r'");
    expect(await textOf(client)).toBe(before);
  });

  test("what moves to another frees what it has used, though an earlier version of a flow has it", async () => {
    const { client } = await gateway.newTenant();
    const services = [service("old"), service("new")];
    await apply(client, { agents: [ada, led], tool_services: services, ...users({ of: "old", agent: "led" }) });
    const moved = {
      agents: [ada],
      tool_services: [service("new")],
      ...users({ of: "new", agent: "ada", isOther: true }),
    };
    expect(await apply(client, moved, { remove_missing: true })).toMatchObject({ complete: true });
    expect((await plan(client, moved, { remove_missing: true })).in_sync).toBe(true);
    // In two documents as well: the service goes when the flow has moved long since.
    const other = (await gateway.newTenant()).client;
    const task = (of: string): Json => ({ kind: "tool", uri: `mq://${of}/t`, arguments: {} });
    const flows = (of: string): Json => [{ definition: { ...flow("f"), nodes: { look: task(of) } } }];
    await apply(other, { tool_services: services, flows: flows("old") });
    await apply(other, { flows: flows("new") });
    const last = { tool_services: [service("new")], flows: flows("new") };
    expect(await apply(other, last, { remove_missing: true })).toMatchObject({ complete: true });
  });

  test("what lacks a part of its name, by its place and not by the half of it", async () => {
    const { client } = await gateway.newTenant();
    const said = await plan(client, {
      issuers: [{ issuer: "https://login.example.com/", jwks_url: "https://login.example.com/jwks.json" }],
      vcp_variables: [{ name: "VarCity", content: "Paris" }],
      tool_services: [{ scheme: "mq", config: {} }],
      budgets: [{ period: "day" }, { name: "All", limit_tokens: 1 }],
    });
    expect(said.resources.map(({ name, action }: Json) => [action, name])).toEqual([
      ["invalid", "tool_services[0]"],
      ["invalid", "vcp_variables[0]"],
      ["invalid", "budgets[1]"],
      ["invalid", "tenant/day/Budget"],
      ["invalid", "issuers[0]"],
    ]);
    expect(said.problems.at(-1)).toMatchObject({
      path: "issuers[0].audience",
      message: expect.stringMatching(/audience/),
    });
  });

  test("no flow that was never published: its draft makes room for the one of the document", async () => {
    const { client } = await gateway.newTenant();
    const draft = await client.post("/v1/flows", { definition: { ...flow("f"), description: "A draft." } });
    const flows = [{ definition: flow("f") }];
    expect(await apply(client, { flows })).toMatchObject({ complete: true });
    expect((await plan(client, { flows }, { remove_missing: true })).in_sync).toBe(true);
    expect((await client.get("/v1/flows")).data.map(({ id }: Json) => id)).toEqual([draft.id]);
  });

  test("the operator's caps, of what is asked for and of what was stored before them", async () => {
    const tenant = await gateway.newTenant();
    await tenant.client.expect("patch", "/v1/settings", { knowledge_bases: 3 });
    const env = { TOOLYARD_SETTINGS_CAPS: '{"knowledge_bases":1,"rounds":9}' };
    const capped = await startGateway({ requestsOnly: true, sharedWith: gateway, env });
    const client = capped.client(tenant.key);
    expect(placesOf(await plan(client, { settings: { rounds: 10 } }))).toEqual(["invalid_request settings.rounds"]);
    const knowledge_bases = ["a", "b"].map((name) => ({ name }));
    const said = await plan(client, { settings: { knowledge_bases: 3, rounds: 9 }, knowledge_bases });
    expect(said.problems).toMatchObject([
      { path: "knowledge_bases", message: expect.stringContaining("at most 1 knowledge bases") },
    ]);
    await capped.close();
  });

  test("half a character, which the database would keep as another, so that it would be made anew each time", async () => {
    const { client } = await gateway.newTenant();
    const text = (content: string): Json => ({ kind: "text", name: "a.txt", content, position: 1 });
    const document = {
      settings: { default_model: "\ud800" },
      vcp_variables: [text("\ud83e\udd8a and \udd8a")],
      webhooks: [{ name: "\ud83e", url: "https://hooks.example.com" }],
    };
    expect(placesOf(await plan(client, document))).toEqual([
      "invalid_request settings.default_model",
      "invalid_request vcp_variables[0].content",
      "invalid_request webhooks[0].name",
    ]);
    const whole = { vcp_variables: [text("\ud83e\udd8a \u0000\u2028\u202e")] };
    await apply(client, whole);
    expect((await plan(client, whole)).in_sync).toBe(true);
  });
});

describe(`secrets that a document shows as they are ${verifies("BLIND-5")}`, () => {
  const token = "sk-proj-4f9Qm2Zt8Lw1Xc7Vb3Nh6Rd5";

  test("are told of by their place, in the document and in a plan of it, and keep it from nothing", async () => {
    const tenant = await gateway.newTenant();
    const { client } = tenant;
    const shown = {
      tool_services: [
        {
          scheme: "api",
          service_id: "crm",
          config: { base_url: "https://crm.example.com", headers: { "X-Key": "k" }, tools: {} },
        },
      ],
      plugins: [{ definition: definition("lookup") }],
      vcp_variables: [{ kind: "var", name: "VarNote", content: `The key is ${token}.`, position: 1 }],
      flows: [
        {
          definition: {
            ...flow("f"),
            nodes: {
              look: {
                kind: "tool",
                uri: "api://crm/list",
                arguments: { api_key: "hunter2", city: "Paris", page: "{{input.page}}" },
              },
            },
          },
        },
      ],
      webhooks: [
        { name: "a", url: "https://hooks.example.com/t/9f8Ge7D6c5B4a3Z2y1X0w9" },
        { name: "b", url: "https://example.com/told?access_token=9f8Ge7D6c5B4a3" },
        { name: "bb", url: "https://example.com/told?room=ops&token=s3cr3t" },
        { name: "c", url: "https://example.com/teams/0b0e8a7c-6d5f-4e3a-9b2c-1d0e9f8a7b6c/told?page=2" },
      ],
    };
    const places = [
      "vcp_variables[0].content",
      "flows[0].definition.nodes.look.arguments.api_key",
      "webhooks[0].url",
      "webhooks[1].url",
      "webhooks[2].url",
    ];
    await apply(client, {
      ...shown,
      tool_services: shown.tool_services.map((each) => ({ ...each, not_secret: ["config.headers.X-Key"] })),
    });
    const document = JSON.parse(await textOf(client));
    const pathsIn = ({ warnings }: Json): string[] => warnings.map(({ path }: Json) => path);
    expect(pathsIn(document)).toEqual(places);
    const said = await plan(client, document, { remove_missing: true });
    expect(said).toMatchObject({ in_sync: true, warnings: document.warnings });
    expect(JSON.stringify(document.warnings)).not.toContain(token);
    // As an older release stored it: nothing refuses it where it is, and elsewhere the route does.
    const database = await openDatabase({ url: gateway.databaseUrl });
    const write = (sql: string) => database.batch([{ sql, args: [tenant.id, token] }]);
    await write(
      `UPDATE tool_services SET config = json_set(config, '$.headers."X-Api-Key"', ?2), version = version + 1 WHERE tenant = ?1`,
    );
    await write("UPDATE tenants SET config_version = config_version + 1 WHERE id = ?1 AND ?2 <> ''");
    await database.close();
    const old = JSON.parse(await textOf(client));
    expect(pathsIn(old)).toEqual(["tool_services[0].config.headers.X-Api-Key", ...places]);
    expect(await plan(client, old, { remove_missing: true })).toMatchObject({ in_sync: true });
    const { client: elsewhere } = await gateway.newTenant();
    expect(placesOf(await plan(elsewhere, old))).toEqual([
      "invalid_definition tool_services[0].config.headers.X-Api-Key",
    ]);
  });

  test("are none in a document that has none", async () => {
    const { client } = await gateway.newTenant();
    await apply(client, {
      agents: [{ name: "a", instructions: "Ask for the api_key." }],
      plugins: [{ definition: definition("lookup") }],
    });
    expect(await textOf(client)).not.toContain("warnings");
    expect((await plan(client, {})).warnings).toEqual([]);
  });
});
