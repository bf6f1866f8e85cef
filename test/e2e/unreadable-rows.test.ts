/** Rows that this release cannot read, as after going back to it: left alone, in nobody's way, and deleted where asked. */
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { publishFlow } from "../support/flows.ts";
import { descriptorSetNamed } from "../support/grpc-peer.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let database: Database;
beforeAll(async () => {
  gateway = await startGateway();
  database = await openDatabase({ url: gateway.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await gateway.close();
});

const newer = '{"of":"tomorrow"}';

/** Writes as a newer release may have, or other software. */
async function write(owner: string, sql: string, ...args: readonly string[]): Promise<void> {
  await database.batch([
    { sql, args: [owner, ...args] },
    { sql: "UPDATE tenants SET config_version = config_version + 1 WHERE id = ?1", args: [owner] },
  ]);
}

interface Kind {
  readonly path: string;
  readonly table: string;
  readonly column: string;
  readonly body: (name: string) => Json;
}

const kinds: readonly Kind[] = [
  {
    path: "/v1/agents",
    table: "agents",
    column: "definition",
    body: (name) => ({ name, instructions: "Be brief." }),
  },
  {
    path: "/v1/tool-services",
    table: "tool_services",
    column: "discovered",
    body: (id) => ({
      scheme: "mcp",
      service_id: id,
      config: { url: "http://127.0.0.1:1/mcp", auth_type: "bearer", auth_config: { token: "a-literal-secret" } },
    }),
  },
];

describe(`a row of a newer release ${verifies("CFG-4")}`, () => {
  test.each(kinds)("in $table can be deleted, and the others are listed", async ({ path, table, column, body }) => {
    const { client, id: owner } = await gateway.newTenant();
    const [strange, plain] = [await client.post(path, body("strange")), await client.post(path, body("plain"))];
    await write(owner, `UPDATE ${table} SET ${column} = '${newer}' WHERE tenant = ?1 AND id = ?2`, strange.id);
    expect((await client.get(path)).data.map(({ id }: Json) => id)).toEqual([plain.id]);
    expect((await client.send("get", `${path}/${strange.id}`)).json.error.message).toContain("newer release");
    expect((await client.send("delete", `${path}/${strange.id}`)).status).toBe(204);
    expect((await client.send("get", `${path}/${strange.id}`)).status).toBe(404);
    expect((await client.send("delete", `${path}/${strange.id}`)).status).toBe(404);
    const secrets = (await client.get("/v1/credentials")).data.map(({ name }: Json) => name);
    expect(secrets.filter((name: string) => name.startsWith(strange.id))).toEqual([]);
    await client.post(path, body("strange"));
  });
});

const step = { start: "find", nodes: { find: { kind: "tool", uri: "api://other/list" } } };
const prices = [{ kind: "tool", pattern: "other", per_call: 5 }];

/** What can name a tool service, as it is made, and the write that makes it unreadable. */
const users: readonly {
  readonly kind: string;
  readonly make: (tenant: TestTenant) => Promise<string>;
  readonly sql: string;
  readonly told: string;
}[] = [
  {
    kind: "flow",
    make: (tenant) => publishFlow(tenant, { name: "daily", ...step }),
    sql: `UPDATE flow_versions SET refs = '${newer}' WHERE tenant = ?1 AND flow_id = ?2`,
    told: "flow 'daily' (It cannot be read: 'refs' ",
  },
  {
    kind: "flow",
    make: async ({ client }) =>
      (await client.post("/v1/flows", { definition: { schema_version: 1, name: "draft", description: "A.", ...step } }))
        .id,
    sql: "UPDATE flows SET draft_refs = 'no JSON' WHERE tenant = ?1 AND id = ?2",
    told: "flow 'draft' (It cannot be read: 'refs' holds no JSON; a newer release may have written it)",
  },
  {
    kind: "agent",
    make: async ({ client }) => (await client.post("/v1/agents", { name: "clerk", instructions: "x" })).id,
    sql: `UPDATE agents SET definition = '${newer}' WHERE tenant = ?1 AND id = ?2`,
    told: "agent 'clerk' (It cannot be read: 'definition.",
  },
  {
    kind: "api_key",
    make: async (tenant) => (await tenant.newKey({ name: "reporting" })).id,
    sql: `UPDATE api_keys SET tools = '${newer}' WHERE tenant = ?1 AND id = ?2`,
    told: "(It cannot be read: 'tools' ",
  },
  {
    kind: "subscription",
    make: async ({ client }) => {
      const broker = {
        broker: "redis",
        servers: ["127.0.0.1:9"],
        security: "none",
        allow_unencrypted: true,
        topics: { orders: {} },
      };
      await client.post("/v1/tool-services", { scheme: "mq", service_id: "log", config: broker });
      const target = { uri: "native://list_files", arguments: {} };
      return (await client.post("/v1/subscriptions", { name: "orders", uri: "mq://log/orders", target })).id;
    },
    sql: `UPDATE subscriptions SET target = '${newer}' WHERE tenant = ?1 AND id = ?2`,
    told: "(It cannot be read: 'target",
  },
  {
    kind: "tool_price",
    make: async ({ client }) => {
      await client.expect("put", "/v1/prices", { prices });
      return "0";
    },
    sql: `UPDATE price_tables SET prices = '[${newer}]' WHERE tenant = ?1 AND ?2 <> ''`,
    told: "tool_price '0' (It cannot be read: is no price",
  },
  {
    kind: "setting",
    make: async ({ client }) => {
      await client.expect("patch", "/v1/settings", { mcp_toolsets: { sales: { tools: ["api://other/*"] } } });
      return "mcp_toolsets";
    },
    sql: `UPDATE tenants SET settings = json_set(settings, '$.' || ?2, 'all') WHERE id = ?1`,
    told: "setting 'mcp_toolsets' (It cannot be read: is not a value that this setting takes",
  },
];

describe(`whoever may use a tool service and cannot be read ${verifies("CFG-4")}`, () => {
  const config = { base_url: "http://127.0.0.1:9", tools: { ping: { description: "Pings.", endpoint: "/ping" } } };

  test.each(users)("counts as one that does: $told", async ({ kind, make, sql, told }) => {
    const tenant = await gateway.newTenant();
    const { client } = tenant;
    const { id } = await client.post("/v1/tool-services", { scheme: "api", service_id: "crm", config });
    const user = await make(tenant);
    const references = async (): Promise<Json> => (await client.get(`/v1/tool-services/${id}/references`)).data;
    expect(await references()).toEqual([]);
    await write(tenant.id, sql, user);
    const expected = { kind, id: user, value: "", unreadable: expect.stringContaining("newer release") };
    expect(await references()).toEqual([expect.objectContaining(expected)]);
    const { status, json } = await client.send("delete", `/v1/tool-services/${id}`);
    expect([status, json.error.code]).toEqual([409, "service_referenced"]);
    expect(json.error.message).toContain(`'api://crm' may be used by ${kind} '`);
    expect(json.error.message).toContain(told);
    expect(json.error.references).toEqual(await references());
    expect((await client.send("delete", `/v1/tool-services/${id}?force=true`)).status).toBe(204);
  });

  test("counts beside those that can be read, and is in nobody's way who goes", async () => {
    const tenant = await gateway.newTenant();
    const { client } = tenant;
    const { id } = await client.post("/v1/tool-services", { scheme: "api", service_id: "crm", config });
    await client.post("/v1/agents", { name: "clerk", instructions: "x", tools: ["api://crm/ping"] });
    const flow = await publishFlow(tenant, { name: "daily", ...step });
    await write(tenant.id, `UPDATE flow_versions SET refs = '${newer}' WHERE tenant = ?1 AND flow_id = ?2`, flow);
    const { json } = await client.send("delete", `/v1/tool-services/${id}`);
    expect(json.error.message).toMatch(
      /^'api:\/\/crm' is used by agent 'clerk', and may be used by flow 'daily' \(.*\); change those first, or repeat/,
    );
    expect((await client.send("delete", `/v1/flows/${flow}`)).status).toBe(204);
    const { data } = await client.get(`/v1/tool-services/${id}/references`);
    expect(data.map((each: Json) => each.kind)).toEqual(["agent"]);
  });

  test("keeps a set of descriptors, which says whose it may be", async () => {
    const { client, id: owner } = await gateway.newTenant();
    const raw = descriptorSetNamed("kept");
    const { json } = await client.send("post", "/v1/descriptor-sets", undefined, { raw });
    const { id } = await client.post("/v1/tool-services", { scheme: "api", service_id: "crm", config });
    await write(owner, "UPDATE tool_services SET config = 'no JSON' WHERE tenant = ?1 AND id = ?2", id);
    const refused = await client.send("delete", `/v1/descriptor-sets/${json.id}`);
    expect([refused.status, refused.json.error.code]).toEqual([409, "conflict"]);
    expect(refused.json.error.message).toContain(
      `may be used by the tool service '${id}'. It cannot be read: 'config'`,
    );
    expect((await client.send("delete", `/v1/tool-services/${id}`)).status).toBe(204);
    expect((await client.send("delete", `/v1/descriptor-sets/${json.id}`)).status).toBe(204);
  });
});
