/** Rows that this release cannot read, as after going back to it: left alone, in nobody's way, and deleted where asked. */
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
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
    const write = `UPDATE ${table} SET ${column} = '{"of":"tomorrow"}' WHERE tenant = ?1 AND id = ?2`;
    await database.batch([
      { sql: write, args: [owner, strange.id] },
      { sql: "UPDATE tenants SET config_version = config_version + 1 WHERE id = ?1", args: [owner] },
    ]);
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
