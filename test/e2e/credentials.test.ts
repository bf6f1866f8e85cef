/** Secrets go in and never come out: not in an answer, a log line, a file, or another tenant's call. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  // Echoes what it was sent, as careless back ends do.
  backEnd = await startHttpStub(({ headers }) => ({ body: JSON.stringify({ you_sent: headers.authorization }) }));
  tenant = await gateway.newTenant();
  await tenant.addPlugin({
    name: "whoami",
    execution: { method: "GET", base_url: `${backEnd.url}/me`, param_placement: "query" },
    auth_config: { type: "bearer", mapping: [{ source: "API_TOKEN" }] },
  });
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});

/** What the back end was sent by a call of this caller. */
async function sentBy(client: Client): Promise<unknown> {
  await client.post("/v1/tools/invoke", { name: "whoami" });
  return backEnd.requests.at(-1)?.headers.authorization;
}

describe(`a credential ${verifies("BLIND-5", "BLIND-6")}`, () => {
  test("is made, replaced and deleted by its name, with versions instead of values", async () => {
    const put = (value: string): Promise<Json> => tenant.client.send("put", "/v1/credentials/API_TOKEN", { value });
    expect(await put("first-value")).toMatchObject({
      status: 201,
      json: {
        id: expect.stringMatching(/^cred_\d+$/),
        object: "credential",
        name: "API_TOKEN",
        level: "tenant",
        user_id: null,
        version: 1,
      },
    });
    expect(await sentBy(tenant.client)).toBe("Bearer first-value");
    expect(await put("second-value")).toMatchObject({ status: 200, json: { version: 2, last_used_at: null } });
    expect(await sentBy(tenant.client)).toBe("Bearer second-value");
    expect((await tenant.client.get("/v1/credentials")).data).toMatchObject([
      { name: "API_TOKEN", version: 2, last_used_at: expect.stringMatching(/Z$/) },
    ]);
    expect((await tenant.client.send("delete", "/v1/credentials/API_TOKEN")).status).toBe(204);
    expect((await tenant.client.send("delete", "/v1/credentials/API_TOKEN")).status).toBe(404);
  });

  test("that is missing stops the call before anything is sent, saying how to add it", async () => {
    const before = backEnd.requests.length;
    const { status, json } = await tenant.client.send("post", "/v1/tools/invoke", { name: "whoami" });
    expect(status).toBe(400);
    expect(json.error).toMatchObject({
      code: "credential_missing",
      message: expect.stringContaining("PUT /v1/credentials/API_TOKEN"),
    });
    expect(backEnd.requests).toHaveLength(before);
  });

  test("appears nowhere but in the request that needs it", async () => {
    const sentinel = "sk-SENTINEL-7f3a9c51";
    const replies: string[] = [];
    const look = async (method: string, path: string, body?: unknown): Promise<void> => {
      const { text, headers } = await tenant.client.send(method, path, body);
      replies.push(text, JSON.stringify([...headers]));
    };
    await look("put", "/v1/credentials/API_TOKEN", { value: sentinel });
    expect(await sentBy(tenant.client)).toBe(`Bearer ${sentinel}`);
    await look("post", "/v1/tools/invoke", { name: "whoami" });
    await look("post", "/v1/tools/explain", { name: "whoami" });
    for (const path of ["/v1/credentials", "/v1/calls", "/v1/plugins", "/v1/tools", "/v1/settings"])
      await look("get", path);
    const [call] = (await tenant.client.get("/v1/calls")).data;
    await look("get", `/v1/calls/${call.id}`);
    await look("get", `/v1/calls/${call.id}/result`);
    await look("put", "/v1/credentials/API_TOKEN", { value: `${sentinel}\n` });
    expect(replies.filter((text) => text.includes(sentinel))).toEqual([]);
    expect(replies.some((text) => text.includes("[redacted]"))).toBe(true);
    expect(JSON.stringify(gateway.logged)).not.toContain(sentinel);
    expect(await filesWith(gateway.dataDir, sentinel)).toEqual([]);
  });

  test.each([
    ["", "value"],
    [" \t", "value"],
    ["a\n", "value"],
    ["\r\na", "value"],
    ["a\u0000b", "value"],
    ["x".repeat(65_537), "value"],
    [7, "value"],
    [null, "value"],
  ])("has no value like %j", async (value, param) => {
    const reply = await tenant.client.send("put", "/v1/credentials/ODD", { value });
    expect(reply).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param } } });
    expect((await tenant.client.get("/v1/credentials")).data).not.toContainEqual(
      expect.objectContaining({ name: "ODD" }),
    );
  });

  test.each(["a b", "a%2Fb", "%0d%0aX", "x".repeat(129), "a%22b"])("has no name like %s", async (name) => {
    const reply = await tenant.client.send("put", `/v1/credentials/${name}`, { value: "v" });
    expect(reply).toMatchObject({ status: 400, json: { error: { param: "name" } } });
  });

  test("takes no field that it does not know", async () => {
    const reply = await tenant.client.send("put", "/v1/credentials/ODD", { value: "v", level: "user" });
    expect(reply).toMatchObject({ status: 400, json: { error: { param: "level" } } });
  });

  test("that many set at once ends with as many versions", async () => {
    const values = Array.from({ length: 4 }, (_unused, index) => `value-${index}`);
    await Promise.all(values.map((value) => tenant.client.send("put", "/v1/credentials/BUSY", { value })));
    const { data } = await tenant.client.get("/v1/credentials?limit=100");
    expect(data.find(({ name }: Json) => name === "BUSY").version).toBe(values.length);
  });
});

describe(`a user's own credential ${verifies("BLIND-5")}`, () => {
  let ann: Client;
  let bob: Client;

  beforeAll(async () => {
    await tenant.putCredential("API_TOKEN", "of-the-tenant");
    ann = (await tenant.newKey({ user_id: "ann", scopes: ["tools"] })).client;
    bob = (await tenant.newKey({ user_id: "bob", scopes: ["tools"] })).client;
  });

  test("is set by the user without further scope, and beats the tenant's for that user alone", async () => {
    const reply = await ann.send("put", "/v1/credentials/API_TOKEN", { value: "of-ann", user_id: "ann" });
    expect(reply).toMatchObject({ status: 201, json: { level: "user", user_id: "ann", version: 1 } });
    expect(await sentBy(ann)).toBe("Bearer of-ann");
    expect(await sentBy(bob)).toBe("Bearer of-the-tenant");
    expect(await sentBy(tenant.client)).toBe("Bearer of-the-tenant");
  });

  test("is nobody else's to set or delete, unless they manage the tenant", async () => {
    for (const body of [{ value: "stolen", user_id: "ann" }, { value: "stolen" }]) {
      expect(await bob.send("put", "/v1/credentials/API_TOKEN", body)).toMatchObject({
        status: 403,
        json: { error: { param: "manage" } },
      });
    }
    for (const query of ["?user_id=ann", ""]) {
      expect((await bob.send("delete", `/v1/credentials/API_TOKEN${query}`)).status).toBe(403);
    }
    expect(await sentBy(ann)).toBe("Bearer of-ann");
    await tenant.putCredential("API_TOKEN", "of-ann-by-admin", "ann");
    expect(await sentBy(ann)).toBe("Bearer of-ann-by-admin");
  });

  test("is listed to its user, who sees neither the tenant's nor those of others", async () => {
    await tenant.putCredential("SIGNATURE", "of-ann", "ann");
    await tenant.putCredential("API_TOKEN", "of-bob", "bob");
    const list = async (client: Client, query = ""): Promise<readonly string[]> =>
      (await client.get(`/v1/credentials${query}`)).data.map(
        ({ name, user_id }: Json) => `${name} of ${user_id ?? "all"}`,
      );
    expect(await list(ann)).toEqual(expect.arrayContaining(["API_TOKEN of ann", "SIGNATURE of ann"]));
    expect(await list(ann)).toHaveLength(2);
    expect(await list(ann, "?limit=1")).toHaveLength(1);
    expect(await list(bob)).toEqual(["API_TOKEN of bob"]);
    expect(await list(tenant.client)).toEqual(
      expect.arrayContaining(["API_TOKEN of all", "API_TOKEN of ann", "API_TOKEN of bob"]),
    );
    const nobody = await (await tenant.newKey({ scopes: ["tools"] })).client.send("get", "/v1/credentials");
    expect(nobody).toMatchObject({ status: 403, json: { error: { param: "manage" } } });
    expect((await bob.send("delete", "/v1/credentials/API_TOKEN?user_id=bob")).status).toBe(204);
  });

  test("leaves the tenant's in use when it is deleted", async () => {
    expect((await ann.send("delete", "/v1/credentials/API_TOKEN?user_id=ann")).status).toBe(204);
    expect(await sentBy(ann)).toBe("Bearer of-the-tenant");
  });

  test("is not taken for a key without a user", async () => {
    const { client } = await tenant.newKey({ scopes: ["tools"] });
    expect((await client.send("put", "/v1/credentials/API_TOKEN", { value: "x", user_id: "ann" })).status).toBe(403);
    expect((await client.send("put", "/v1/credentials/API_TOKEN", { value: "x", user_id: "" })).status).toBe(400);
  });
});

/** Files below a directory that hold a text. */
async function filesWith(directory: string, text: string): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    if ((await readFile(path)).includes(text)) found.push(path);
  }
  return found;
}
