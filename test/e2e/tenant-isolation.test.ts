/**
 * Every route, driven as a stranger with the ids of somebody else's objects (design "Tenants, callers,
 * secrets"). A route without isolation data fails here.
 */
import { randomBytes } from "node:crypto";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { IsolatedRequest, IsolationDriver, RouteModule } from "../../functions/http/define-route.ts";
import { routes } from "../../functions/http/routes/index.ts";
import { allScopes, type Client, type Reply, type TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { ageCalls } from "../support/old-calls.ts";
import { registerNode } from "../support/registered-node.ts";
import { verifies } from "../support/verifies.ts";

const all: readonly (readonly [string, RouteModule])[] = Object.entries(routes);
const guarded = all.filter(([, route]) => route.admission !== "none");
const objectRoutes = guarded.filter(([, route]) => route.isolation?.kind === "object");
const listRoutes = guarded.filter(([, route]) => route.isolation?.kind === "list");

let gateway: Gateway;
let owner: TestTenant;
let stranger: TestTenant;
/** Requests for the owner's objects, by route. */
const arranged = new Map<string, IsolatedRequest>();
/** What the stranger was told while the owner was there. */
const told = new Map<string, Told>();

beforeAll(async () => {
  gateway = await startGateway();
  owner = await gateway.newTenant();
  stranger = await gateway.newTenant();
  for (const [name, { isolation }] of objectRoutes) {
    if (isolation?.kind === "object") arranged.set(name, await isolation.arrange(driverOf(owner)));
  }
});
afterAll(() => gateway.close());

function driverOf(tenant: TestTenant): IsolationDriver {
  return {
    send: async (method, path, body) => (await tenant.client.expect(method, path, body)) ?? {},
    upload: (path, bytes) => tenant.client.expect("post", path, undefined, { raw: bytes }),
    registerNode: (name) => registerNode(gateway, tenant.id, name),
    passDays: (days) => ageCalls(gateway, tenant.id, days),
  };
}

function pathOf(route: RouteModule, { params, query }: IsolatedRequest): string {
  const path = route.path.replaceAll(/\{(\w+)\+?\}/g, (_whole, name: string) =>
    (params[name] ?? `no-${name}`).split("/").map(encodeURIComponent).join("/"),
  );
  return query === undefined ? path : `${path}?${new URLSearchParams(query).toString()}`;
}

/** The route's request as far as it has been arranged, else one that names nothing. */
function send(client: Client, name: string, route: RouteModule): Promise<Reply> {
  const request = arranged.get(name) ?? { params: {} };
  const takesBody = route.request.body !== undefined || route.request.stream !== undefined;
  return client.send(route.method, pathOf(route, request), takesBody ? (request.body ?? {}) : undefined);
}

interface Told {
  readonly status: number;
  readonly body: unknown;
}

/** What is left when the parts that differ with every request are taken away. */
function toTold({ status, json }: Reply): Told {
  const { request_id: requestId, call_id: callId, ...error } = json.error;
  expect(requestId).toMatch(/^req_/);
  return { status, body: { ...error, hasCall: callId !== undefined } };
}

async function pageThrough(client: Client, path: string): Promise<readonly { readonly id: string }[]> {
  const found: { id: string }[] = [];
  for (let after = ""; ;) {
    const page = await client.get(`${path}?limit=100${after}`);
    found.push(...page.data);
    if (page.has_more !== true) return found;
    after = `&after=${encodeURIComponent(page.last_id)}`;
  }
}

/** All that a tenant can see of itself, and the files behind it. */
async function stateOf(tenant: TestTenant): Promise<unknown> {
  const lists: Record<string, unknown> = {};
  for (const [name, route] of guarded) {
    if (route.list && route.scope !== "operator" && !route.path.includes("{")) {
      lists[name] = await pageThrough(tenant.client, route.path);
    }
  }
  const blobs = await gateway.core.blobs.list(`${tenant.id}/`);
  return { lists, settings: await tenant.client.get("/v1/settings"), blobs };
}

describe(`every route ${verifies("BLIND-4", "CHAT-11")}`, () => {
  test.each(guarded)("%s says how it keeps tenants apart", (_name, route) => {
    expect(route.isolation).toBeDefined();
  });

  // What is put under a name is each tenant's own, and the operator's objects are nobody's.
  const putByName = new Set(["putCredential", "putPreset", "putWorldBook", "putCharacter"]);
  const named = guarded.filter(
    ([name, route]) => route.path.includes("{") && route.scope !== "operator" && !putByName.has(name),
  );

  test.each(named)("%s, which names an object, is driven with one", (_name, route) => {
    expect(route.isolation?.kind).toBe("object");
  });

  test.each(guarded)("%s refuses a request without a key", async (name, route) => {
    const reply = await send(gateway.nobody, name, route);
    expect(reply.status).toBe(401);
    expect(reply.json.error).toMatchObject({ code: "invalid_api_key", type: "authentication_error" });
    expect(reply.headers.get("www-authenticate")).toContain("Bearer");
  });

  test.each(guarded)("%s refuses a key that does not exist", async (name, route) => {
    const secret = randomBytes(32).toString("base64url");
    const ofOwner = owner.key.replace(/_[^_]*$/, "");
    for (const key of [
      `ty_${owner.id.slice(4)}_${secret}`,
      `ty_01jdnhz2v4x8mfkq3w7c5r9gta_${secret}`,
      "sk-nonsense",
      ofOwner,
    ]) {
      const reply = await send(gateway.client(key), name, route);
      expect({ key, status: reply.status }).toEqual({ key, status: 401 });
    }
  });

  test.each(guarded.filter(([, route]) => route.scope !== "operator"))(
    "%s refuses a stranger who names the owner as the tenant",
    async (name, route) => {
      const reply = await send(stranger.client.with({ "x-toolyard-tenant": owner.id }), name, route);
      expect(reply.status).toBe(401);
      expect(reply.json.error.code).toBe("invalid_api_key");
    },
  );

  const takesNothing = ({ method, request }: RouteModule): boolean =>
    method === "patch" && request.body?.safeParse({}).success === true;

  test.each(objectRoutes.filter(([, route]) => takesNothing(route)))(
    "%s is given nothing to change, and changes nothing",
    async (name, route) => {
      const client = route.scope === "operator" ? gateway.operator : owner.client;
      const path = pathOf(route, arranged.get(name) ?? { params: {} });
      const [first, again] = [await client.send("patch", path, {}), await client.send("patch", path, {})];
      expect([first.status, again.status]).toEqual([200, 200]);
      const told = ({ json: { updated_at: _at, version: _version, revision: _revision, ...said } }: Reply): unknown =>
        said;
      expect(told(again)).toEqual(told(first));
    },
  );

  test.each(guarded.filter(([, route]) => route.scope !== null))(
    "%s refuses a key without its scope",
    async (name, route) => {
      const scopes = allScopes.filter((scope) => scope !== route.scope);
      const { client } = await owner.newKey({ name: "lacks one", role: "admin", scopes });
      const reply = await send(client, name, route);
      expect(reply.status).toBe(403);
      expect(reply.json.error).toMatchObject({ code: "permission_denied", type: "permission_error" });
      expect(reply.json.error.param).toBe(route.scope === "operator" ? null : route.scope);
    },
  );
});

describe(`an object of another tenant ${verifies("BLIND-4", "CHAT-20")}`, () => {
  let before: unknown;

  beforeAll(async () => {
    before = await stateOf(owner);
  });

  test.each(objectRoutes)("%s does not know it", async (name, route) => {
    const reply = await send(stranger.client, name, route);
    expect(reply.status).toBe(404);
    told.set(name, toTold(reply));
    // Who has misspelt it is told which part of the request that is. A session is one in every route, and
    // what a plugin's module has registered is called by its address.
    const inPath = [...route.path.matchAll(/\{(\w+)\+?\}/g)].map(([, part = ""]) => part);
    const { query = {}, body } = arranged.get(name) ?? {};
    const words = route.path.startsWith("/v1/sessions/") ? ["session_id"] : route.tags.includes("vcp") ? ["uri"] : [];
    expect([...inPath, ...Object.keys({ ...query, ...Object(body) }), ...words]).toContain(
      reply.json.error.param?.split(".")[0],
    );
  });

  test("is as it was", async () => {
    expect(told.size).toBe(objectRoutes.length);
    expect(await stateOf(owner)).toEqual(before);
  });

  test.each(listRoutes)("%s does not list it", async (_name, route) => {
    const { isolation } = route;
    const giveaway = isolation?.kind === "list" ? await isolation.arrange(driverOf(owner)) : "";
    expect(giveaway).not.toBe("");
    const given = isolation?.kind === "list" ? isolation.query : undefined;
    const query = new URLSearchParams({ ...(route.list ? { limit: "100" } : {}), ...given }).toString();
    const path = query === "" ? route.path : `${route.path}?${query}`;
    expect((await owner.client.send("get", path)).text).toContain(giveaway);
    expect((await stranger.client.send("get", path)).text).not.toContain(giveaway);
  });

  test.each(["/v1/chat/completions", "/api/chat/completions"])(
    "is no session for a chat of another tenant on %s",
    async (path) => {
      await owner.client.expect("put", "/v1/sessions/of-owner/files/a.txt", { text: "mine" });
      const body = {
        model: "toolyard/scripted",
        messages: [{ role: "user", content: "hello" }],
        session_id: "of-owner",
      };
      const reply = await stranger.client.send("post", path, body);
      expect(reply.status).toBe(404);
      expect(reply.json.error).toMatchObject({ code: "session_not_found", param: "session_id" });
    },
  );

  test("is nothing that a stranger's list can start from", async () => {
    const [plugin] = await pageThrough(owner.client, "/v1/calls");
    const page = await stranger.client.send("get", `/v1/calls?after=${plugin?.id}`);
    const nowhere = await stranger.client.send("get", "/v1/calls?after=nothing");
    expect(toTold(page)).toEqual(toTold(nowhere));
    expect(page).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param: "after" } } });
  });

  test("does not take the name of one's own", async () => {
    await owner.putCredential("SHARED_NAME", "of the owner");
    await stranger.putCredential("SHARED_NAME", "of the stranger");
    const names = (await pageThrough(owner.client, "/v1/credentials")) as unknown as {
      name: string;
      version: number;
    }[];
    expect(names.filter(({ name }) => name === "SHARED_NAME")).toMatchObject([{ version: 1 }]);
    expect((await stranger.client.send("delete", "/v1/credentials/SHARED_NAME")).status).toBe(204);
    expect(await pageThrough(owner.client, "/v1/credentials")).toHaveLength(names.length);
  });

  // Last of the requests, since some of them delete what they name.
  test.each(objectRoutes.toSorted(([, a], [, b]) => rank(a) - rank(b)))(
    "%s knows it for its owner",
    async (name, route) => {
      const reply = await send(owner.client, name, route);
      expect(reply).not.toMatchObject({
        status: expect.toSatisfy((status: number) => status === 404 || status === 500),
      });
    },
  );
});

const rank = (route: RouteModule): number => (route.method === "delete" ? 1 : 0);

describe(`a tenant that is erased ${verifies("BLIND-5")}`, () => {
  let database: Database;

  beforeAll(async () => {
    database = await openDatabase({ url: gateway.databaseUrl });
  });
  afterAll(() => database.close());

  test("leaves no row and no blob", async () => {
    await owner.client.expect("put", "/v1/sessions/last/files/a.txt", { text: "still here" });
    expect(await rowsOf(database, owner.id)).not.toEqual([]);
    const reply = await gateway.operator.send("delete", `/v1/tenants/${owner.id}`);
    expect(reply.status).toBe(204);
    // But for the message by which a worker looks once more.
    expect(await rowsOf(database, owner.id)).toEqual(["queue_messages"]);
    expect(await gateway.core.blobs.list(`${owner.id}/`)).toEqual([]);
    expect((await gateway.operator.send("delete", `/v1/tenants/${owner.id}`)).status).toBe(404);
  });

  test("takes its keys along", async () => {
    expect((await owner.client.send("get", "/v1/tools")).status).toBe(401);
  });

  test("leaves the others alone", async () => {
    expect(await stranger.client.get("/v1/settings")).toMatchObject({ object: "settings" });
  });

  // Now that nothing of the owner exists, a stranger is told the same as when it did.
  test.each(
    objectRoutes.filter(([, route]) => route.isolation?.kind === "object" && route.isolation.createsMissing !== true),
  )("%s answers as it did when the object was there", async (name, route) => {
    expect(toTold(await send(stranger.client, name, route))).toEqual(told.get(name));
  });
});

/** Names of the tables that still hold something of a tenant. */
async function rowsOf(database: Database, tenant: string): Promise<string[]> {
  const [tables] = await database.batch([
    {
      sql: "SELECT m.name AS name, c.name AS col FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND (c.name = 'tenant' OR (m.name = 'tenants' AND c.name = 'id'))",
      args: [],
    },
  ]);
  const found: string[] = [];
  for (const row of tables?.rows ?? []) {
    const [counted] = await database.batch([
      { sql: `SELECT COUNT(*) AS n FROM "${String(row["name"])}" WHERE "${String(row["col"])}" = ?`, args: [tenant] },
    ]);
    if (counted?.rows[0]?.["n"] !== 0) found.push(String(row["name"]));
  }
  return found;
}
