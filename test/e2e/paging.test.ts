/**
 * Every list route pages in the same way (conventions "Routes"): `limit`, `after`, `order`, `has_more`,
 * `first_id`, `last_id`. A list route without a way to fill it fails here.
 */
import { newId } from "@toolyard/core/ids";
import { openDatabase } from "@toolyard/db/client";
import type * as z from "zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RouteModule } from "../../functions/http/define-route.ts";
import { routes } from "../../functions/http/routes/index.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { ageCalls } from "../support/old-calls.ts";
import { descriptorSetNamed } from "../support/grpc-peer.ts";
import { registerNode } from "../support/registered-node.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;

/** How to add one more item to each list, as its owner or as the operator. */
const fillers: Readonly<Record<string, (client: Client, name: string, tenant: string) => Promise<unknown>>> = {
  "/v1/calls": (client, name) => client.send("post", "/v1/tools/invoke", { name: name.slice(0, 40), arguments: {} }),
  "/v1/call-archives": async (client, name, tenant) => {
    await client.send("post", "/v1/tools/invoke", { name: name.slice(0, 40), arguments: {} });
    await ageCalls(gateway, tenant, 40);
  },
  "/v1/plugins": (client, name) => client.post("/v1/plugins", definition(name)),
  "/v1/tools": (client, name) => client.post("/v1/plugins", definition(name)),
  "/v1/tool-services": (client, name) =>
    client.post("/v1/tool-services", {
      scheme: "api",
      service_id: name,
      config: { base_url: "https://api.example.com" },
    }),
  "/v1/descriptor-sets": (client, name) =>
    client.expect("post", "/v1/descriptor-sets", undefined, { raw: descriptorSetNamed(name) }),
  "/v1/credentials": (client, name) => client.expect("put", `/v1/credentials/${name}`, { value: "secret-value" }),
  "/v1/oauth/connections": (client, name) => addConnection(client, name),
  "/v1/sessions": (client, name) => client.expect("put", `/v1/sessions/${name}/files/a.json`, {}),
  "/v1/sessions/{id}/files": (client, name) => client.expect("put", `/v1/sessions/paged/files/${name}.json`, {}),
  "/v1/api-keys": (client, name) => client.post("/v1/api-keys", { name }),
  "/v1/issuers": (client, name) =>
    client.post("/v1/issuers", {
      issuer: "https://login.example.com",
      audience: name,
      jwks_url: "https://login.example.com/jwks",
    }),
  "/v1/agents": (client, name) => client.post("/v1/agents", { name: name.replaceAll(/[^a-zA-Z0-9_-]/g, "-") }),
  "/v1/providers": (client, name) =>
    client.post("/v1/providers", { name, kind: "openai", base_url: "https://models.example.com/v1" }),
  "/v1/budgets": (client, name) =>
    client.post("/v1/budgets", { name, scope: "user", scope_id: name, period: "day", limit_tokens: 1 }),
  "/v1/webhooks": (client, name) => client.post("/v1/webhooks", { ...webhook, name }),
  "/v1/webhooks/{id}/deliveries": async (client) => client.post(`/v1/webhooks/${await oneWebhook(client)}/test`),
  "/v1/usage": async (client, name) => {
    await client.post("/v1/plugins", { ...definition(name), execution: unreachable });
    await client.send("post", "/v1/tools/invoke", { name, arguments: {} });
  },
  "/v1/schedule_task": (client, name) =>
    client.post("/v1/schedule_task", {
      name,
      rate: "30 days",
      task: { uri: "native://list_files" },
      deliver: { session_id: "paged_schedules" },
    }),
  "/v1/runs": async (client) => {
    await client.send("post", "/v1/flows", { definition: flow("paged_runs"), publish: true });
    return client.post("/v1/run_workflow", { workflow_id: "paged_runs", stream: false, wait: false });
  },
  "/v1/flows": (client, name) => client.post("/v1/flows", { definition: flow(name) }),
  "/v1/flows/{id}/versions": async (client, name) => {
    const id = await oneFlow(client);
    await client.expect("patch", `/v1/flows/${id}`, { definition: { ...flow("one"), description: name } });
    return client.post(`/v1/flows/${id}/publish`);
  },
  "/v1/flows/{id}/hooks": async (client, name) => client.post(`/v1/flows/${await oneFlow(client)}/hooks`, { name }),
  "/v1/subscriptions": async (client, name) => {
    await oneMessageService(client);
    return client.post("/v1/subscriptions", { ...subscription, name });
  },
  "/v1/subscriptions/{id}/failed-messages": async (client, name, tenant) => {
    const id = await oneSubscription(client);
    const failure = { subscription: id, key: name, messageId: name, code: "invalid_json", message: "It is not JSON." };
    return gateway.core.repos.subscriptions.fail(tenant, { ...failure, id: newId("failedMessage"), maxAttempts: 3 });
  },
  "/v1/vcp/variables": (client, name) =>
    client.post("/v1/vcp/variables", { kind: "var", name: `Var${name}`, content: name }),
  "/v1/vcp/presets": (client, name) => client.expect("put", `/v1/vcp/presets/${name}`, { rules: [] }),
  "/v1/vcp/world_books": (client, name) => client.expect("put", `/v1/vcp/world_books/${name}`, { entries: [] }),
  "/v1/vcp/characters": (client, name) => client.expect("put", `/v1/vcp/characters/${name}`, { name }),
  "/v1/group_chats": (client, name) => client.post("/v1/group_chats", { name }),
  "/v1/group_chats/{id}/messages": async (client, name) => {
    await client.post(`/v1/group_chats/${await oneGroupChat(client)}/messages`, { content: name, wait: true });
  },
  "/v1/nodes": (_client, name, tenant) => registerNode(gateway, tenant, name),
  "/v1/tenants": (client, name) => client.post("/v1/tenants", { name }),
};

/** What is called there fails, but it has been called. */
const unreachable = { method: "GET", base_url: "http://127.0.0.1:9/x", param_placement: "query" };

/** Sends nothing meanwhile. */
const webhook = { url: "https://hooks.example.com/calls", enabled: false };

/** The only webhook of a tenant, made at first. */
async function oneWebhook(client: Client): Promise<string> {
  const [known] = (await client.get("/v1/webhooks")).data;
  return (known ?? (await client.post("/v1/webhooks", { ...webhook, name: "one" }))).id as string;
}

const flow = (name: string) => ({
  schema_version: 1,
  name,
  description: "A flow.",
  start: "done",
  nodes: { done: { kind: "end" } },
});

async function oneFlow(client: Client): Promise<string> {
  const [known] = (await client.get("/v1/flows")).data;
  return (known ?? (await client.post("/v1/flows", { definition: flow("one") }))).id as string;
}

const subscription = {
  uri: "mq://bus/orders",
  target: { uri: "mq://bus/copies", arguments: { message: { $message: "/body" } } },
};

async function oneMessageService(client: Client): Promise<void> {
  if ((await client.get("/v1/tool-services?scheme=mq")).data.length > 0) return;
  const config = { broker: "redis", servers: ["mq.example.com"], topics: { orders: {}, copies: {} } };
  await client.post("/v1/tool-services", { scheme: "mq", service_id: "bus", config });
}

/** The only subscription of a tenant, made at first. */
async function oneSubscription(client: Client): Promise<string> {
  const [known] = (await client.get("/v1/subscriptions")).data;
  await oneMessageService(client);
  return (known ?? (await client.post("/v1/subscriptions", { ...subscription, name: "one" }))).id as string;
}

/** The only group chat of a tenant, made at first. */
async function oneGroupChat(client: Client): Promise<string> {
  const [known] = (await client.get("/v1/group_chats")).data;
  return (known ?? (await client.post("/v1/group_chats", { name: "one" }))).id as string;
}

/** Whose items a list is, where its path names that. */
const owners: Readonly<Record<string, (client: Client) => Promise<string>>> = {
  "/v1/sessions/{id}/files": () => Promise.resolve("paged"),
  "/v1/webhooks/{id}/deliveries": oneWebhook,
  "/v1/flows/{id}/versions": oneFlow,
  "/v1/flows/{id}/hooks": oneFlow,
  "/v1/subscriptions/{id}/failed-messages": oneSubscription,
  "/v1/group_chats/{id}/messages": oneGroupChat,
};

/** One more user who has yet to follow a link. */
async function addConnection(client: Client, userId: string): Promise<void> {
  await client.expect("put", "/v1/credentials/CLIENT_ID", { value: "toolyard" });
  await client.expect("put", "/v1/credentials/TOKEN_URL", { value: "https://login.example.com/token" });
  const auth_config = {
    type: "oauth2",
    grant: "authorization_code",
    authorization_url: "https://login.example.com/authorize",
    mapping: [
      { source: "CLIENT_ID", target: "client_id" },
      { source: "TOKEN_URL", target: "token_url" },
    ],
  };
  const { status } = await client.send("post", "/v1/plugins", { ...definition("connected"), auth_config });
  expect([201, 409]).toContain(status);
  await client.post("/v1/oauth/connections", { tool: "connected", user_id: userId });
}

function definition(name: string): Json {
  return {
    schema_version: "v1",
    name,
    description: "A tool.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: "https://api.example.com/x", param_placement: "query" },
  };
}

const lists = Object.values(routes as Readonly<Record<string, RouteModule>>).filter((route) => route.list);
const cases = lists.map((route) => [route.path, route] as const);
/** Bodies are checked against what OpenAPI says of them. */
const schemaOf = (route: RouteModule): z.ZodType | undefined => route.responses[200]?.schema;

interface List {
  readonly path: string;
  /** What the route needs to list the items one by one. */
  readonly query: Readonly<Record<string, string>>;
  readonly client: Client;
  readonly schema: z.ZodType | undefined;
  add(): Promise<void>;
}

const some = 7;
const filled = new Map<string, List>();

beforeAll(async () => {
  gateway = await startGateway();
  for (const route of lists) {
    const tenant = await gateway.newTenant();
    const list = await listOf(route, tenant);
    for (let count = 0; count < some; count += 1) await list.add();
    filled.set(route.path, list);
  }
});
afterAll(() => gateway.close());

async function listOf(route: RouteModule, tenant: TestTenant): Promise<List> {
  const client = route.scope === "operator" ? gateway.operator : tenant.client;
  const fill = fillers[route.path];
  const owner = (await owners[route.path]?.(client)) ?? "";
  return {
    path: route.path.replace("{id}", owner),
    query: (route.isolation?.kind === "list" ? route.isolation.query : undefined) ?? {},
    client,
    schema: schemaOf(route),
    async add() {
      await fill?.(client, newId("request"), tenant.id);
    },
  };
}

function filledList(path: string): List {
  const list = filled.get(path);
  if (list === undefined) throw new Error(`${path} was not filled`);
  return list;
}

async function page(list: List, query: Readonly<Record<string, string | number>>): Promise<Json> {
  const text = new URLSearchParams(
    Object.entries({ ...list.query, ...query }).map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();
  const body = await list.client.get(`${list.path}?${text}`);
  list.schema?.parse(body);
  expect(
    Object.keys(body)
      .filter((key) => key !== "unreadable")
      .sort(),
  ).toEqual(["data", "first_id", "has_more", "last_id", "object"]);
  expect(body.object).toBe("list");
  const ends = [body.data.at(0)?.id ?? null, body.data.at(-1)?.id ?? null];
  const place = expect.any(String);
  expect([body.first_id, body.last_id]).toEqual(body.unreadable === undefined ? ends : [place, place]);
  return body;
}

/** Ids over all pages; `between` runs after each page that has a next one. */
async function walk(
  list: List,
  query: Readonly<Record<string, string | number>>,
  between?: () => Promise<void>,
): Promise<string[]> {
  const ids: string[] = [];
  for (let after: Readonly<Record<string, string>> = {}; ;) {
    const body = await page(list, { ...query, ...after });
    ids.push(...body.data.map((item: { id: string }) => item.id));
    if (!body.has_more) return ids;
    expect(body.data.length + (body.unreadable?.length ?? 0)).toBe(Number(query["limit"]));
    after = { after: body.last_id };
    await between?.();
  }
}

describe(`every list ${verifies("CHAT-13", "CHAT-16")}`, () => {
  test.each(cases)("%s has a way to be filled", (path) => {
    expect(Object.keys(fillers)).toContain(path);
  });

  test.each(cases)("%s gives as many as are asked for, and says whether there are more", async (path) => {
    const list = filledList(path);
    const whole = await walk(list, { limit: 100 });
    expect(whole.length).toBeGreaterThanOrEqual(some);
    expect(new Set(whole).size).toBe(whole.length);
    const few = await page(list, { limit: 3 });
    expect(few).toMatchObject({ has_more: true, data: { length: 3 } });
    const exact = await page(list, { limit: Math.min(whole.length, 100) });
    expect(exact.has_more).toBe(whole.length > 100);
  });

  test.each(cases)("%s is the same backwards", async (path) => {
    const list = filledList(path);
    const ascending = await walk(list, { order: "asc", limit: 3 });
    expect(await walk(list, { order: "desc", limit: 4 })).toEqual(ascending.toReversed());
  });

  test.each(cases)("%s has an empty page after its last item", async (path) => {
    const list = filledList(path);
    const last = (await walk(list, { order: "asc", limit: 100 })).at(-1) ?? "";
    const body = await page(list, { order: "asc", after: last });
    expect(body).toEqual({ object: "list", data: [], has_more: false, first_id: null, last_id: null });
  });

  test.each(cases)("%s loses and repeats nothing while items are added", async (path) => {
    const list = filledList(path);
    for (const order of ["asc", "desc"]) {
      const before = await walk(list, { order, limit: 100 });
      const meanwhile = await walk(list, { order, limit: 2 }, addAtMost(list, 3));
      expect(new Set(meanwhile).size).toBe(meanwhile.length);
      const known = new Set(before);
      expect(meanwhile.filter((id) => known.has(id))).toEqual(before);
    }
  });

  test.each(cases)("%s takes any text as the place to go on from, or refuses it by name", async (path) => {
    const list = filledList(path);
    for (const after of [
      "nothing",
      "plg_999999999",
      "cred_0",
      "call_01jdnhz2v4x8mfkq3w7c5r9gta",
      "' OR 1=1 --",
      "a\0b",
    ]) {
      const { status, json } = await list.client.send("get", `${list.path}?after=${encodeURIComponent(after)}`);
      expect({ after, status, param: json.error?.param ?? "after" }).toEqual({
        after,
        status: status === 400 ? 400 : 200,
        param: "after",
      });
    }
  });

  const wrong: readonly (readonly [query: string, param: string])[] = [
    ["limit=0", "limit"],
    ["limit=1001", "limit"],
    ["limit=-1", "limit"],
    ["limit=1.5", "limit"],
    ["limit=ten", "limit"],
    ["limit=", "limit"],
    ["limit=2&limit=3", "limit"],
    ["order=up", "order"],
    ["order=ASC", "order"],
    ["after=", "after"],
    [`after=${"x".repeat(2_000)}`, "after"],
    ["limits=3", "limits"],
  ];

  test.each(cases)("%s refuses what it does not understand, by name", async (path) => {
    const list = filledList(path);
    for (const [query, param] of wrong) {
      const reply = await list.client.send("get", `${list.path}?${query}`);
      expect({ query, status: reply.status, ...reply.json?.error }).toMatchObject({
        query,
        status: 400,
        code: "invalid_request",
        param,
      });
    }
  });
});

/** Adds while a list is walked, but not for ever. */
function addAtMost(list: List, times: number): () => Promise<void> {
  let left = times;
  return async () => {
    left -= 1;
    if (left >= 0) await list.add();
  };
}

/** What lists are read from, and the columns that other software may have left in a form that this release does not know. */
const columns: Readonly<Record<string, readonly [table: string, ...columns: string[]]>> = {
  "/v1/calls": ["calls", "caller_chain", "error", "usage", "cost", "approval"],
  "/v1/runs": ["calls", "caller_chain", "error"],
  "/v1/plugins": ["sys_ai_plugin", "parameter_schema", "execution_config", "required_credentials", "roles"],
  "/v1/tool-services": ["tool_services", "config", "discovered"],
  "/v1/api-keys": ["api_keys", "scopes", "tools"],
  "/v1/issuers": ["jwt_issuers", "claims", "default_scopes"],
  "/v1/agents": ["agents", "definition"],
  "/v1/providers": ["providers", "models"],
  "/v1/webhooks": ["webhooks", "events"],
  "/v1/schedule_task": ["schedules", "given", "timing", "deliver", "caller", "last_error"],
  "/v1/subscriptions": ["subscriptions", "target", "options"],
  "/v1/group_chats": ["group_chats", "limits"],
  "/v1/group_chats/{id}/messages": ["group_chat_messages", "error"],
  "/v1/nodes": ["nodes", "tools"],
};
/** Neither is told of; the second where the database itself looks into the column as it is written. */
const [broken, inJson] = ['{"hunter2', '"hunter2"'];
const places = Object.entries(columns).flatMap(([path, [table, ...names]]) =>
  names.map((column) => [path, table, column] as const),
);

describe(`a row that cannot be read ${verifies("CHAT-13", "CFG-3")}`, () => {
  test.each(places)("leaves %s whole, which names it: %s.%s", async (path, table, column) => {
    const list = filledList(path);
    const all = await walk(list, { limit: 100 });
    const [id = ""] = all;
    const key = table === "sys_ai_plugin" ? "plugin_id" : "id";
    const database = await openDatabase({ url: gateway.databaseUrl });
    const own = id.replace(/^plg_/, "");
    const ask = async (sql: string, ...args: readonly (string | null)[]) => (await database.batch([{ sql, args }]))[0];
    const before = (await ask(`SELECT ${column} AS text FROM ${table} WHERE ${key} = ?`, own))?.rows[0]?.["text"];
    try {
      await ask(`UPDATE ${table} SET ${column} = ?2 WHERE ${key} = ?1`, own, column === "deliver" ? inJson : broken);
      const told = { id, message: expect.stringContaining(`'${column}'`) };
      for (const limit of [1, 2, 100]) {
        const body = await page(list, { limit });
        expect(body.unreadable).toEqual([told]);
        expect(JSON.stringify(body)).not.toContain("hunter2");
        expect(body.first_id).toBe(id);
        expect(await walk(list, { limit })).toEqual(all.slice(1));
        expect(await walk(list, { limit, order: "asc" })).toEqual(all.slice(1).toReversed());
      }
    } finally {
      await ask(`UPDATE ${table} SET ${column} = ? WHERE ${key} = ?`, typeof before === "string" ? before : null, own);
      await database.close();
    }
    expect(await walk(list, { limit: 100 })).toEqual(all);
  });
});

describe(`an empty list ${verifies("CHAT-13")}`, () => {
  test.each(["/v1/calls", "/v1/credentials", "/v1/sessions", "/v1/issuers", "/v1/providers"])("%s", async (path) => {
    const { client } = await gateway.newTenant();
    expect(await client.get(path)).toEqual({
      object: "list",
      data: [],
      has_more: false,
      first_id: null,
      last_id: null,
    });
  });

  test("the models of a tenant without providers are those that are built in", async () => {
    const { client } = await gateway.newTenant();
    expect(await client.get("/v1/models")).toMatchObject({
      object: "list",
      data: [{ object: "model" }],
      has_more: false,
    });
  });
});
