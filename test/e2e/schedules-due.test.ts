/** Ticks that find schedules due: in an outage, and where one tenant has many of them (VCP-18). */
import { tick } from "@toolyard/core/tick";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { ErrorCode } from "@toolyard/core/errors/catalog";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { ScheduleRepo } from "@toolyard/core/ports/schedules";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { unscripted } from "../support/fake-core.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

const minute = 60_000;
const day = 86_400_000;

let gateway: Gateway;
let database: Database;
beforeAll(async () => {
  // It ticks when a test says so, and nothing that is queued runs.
  gateway = await startGateway({ requestsOnly: true });
  database = await openDatabase({ url: gateway.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await gateway.close();
});

const path = "/v1/schedule_task";
const task = { uri: "native://list_files" };
const make = ({ client }: TestTenant, body: Json): Promise<Json> => client.post(path, { task, ...body });
const read = ({ client }: TestTenant, id: string): Promise<Json> => client.get(`${path}/${id}`);
const firings = async ({ client }: TestTenant, id: string): Promise<Json[]> =>
  (await client.get(`/v1/calls?parent_id=${id}`)).data;
/** As if the clock of the database had gone on. */
const dueIn = ({ id }: TestTenant, ms: number): Promise<unknown> => {
  const at = `CAST(unixepoch('subsec') * 1000 AS INTEGER) + ${ms}`;
  const sql = `UPDATE schedules SET next_at = ${at}, timing = CASE timing ->> '$.kind'
    WHEN 'rate' THEN json_set(timing, '$.first', ${at}) WHEN 'cron' THEN timing ELSE json_set(timing, '$.at', ${at}) END WHERE tenant = ?1`;
  return database.batch([{ sql, args: [id] }]);
};

/** The gateway without its master key. */
function withoutKeys(code: ErrorCode): CoreDeps {
  const away = (): Promise<never> => Promise.reject(new GatewayError(code, "It is away."));
  const vault = { currentKeyId: "away", wrap: away, unwrap: away };
  return { ...gateway.core, sealer: new Sealer(vault, gateway.core.clock) };
}

function withTake(take: ScheduleRepo["take"]): CoreDeps {
  const { repos } = gateway.core;
  const { schedules } = repos;
  const watched = { ...unscripted<ScheduleRepo>("schedules"), due: schedules.due, take };
  return { ...gateway.core, repos: { ...repos, schedules: watched } };
}

describe(`an outage while schedules are due ${verifies("VCP-18")}`, () => {
  test.each(["master_key_unavailable", "blobs_unavailable", "database_unavailable"] as const)(
    "of the kind '%s' leaves them to a later tick",
    async (code) => {
      const tenant = await gateway.newTenant();
      const once = await make(tenant, { delay_ms: day });
      const again = await make(tenant, { rate: "1 hour" });
      await dueIn(tenant, 0);
      await tick(withoutKeys(code));
      for (const { id } of [once, again]) {
        expect(await firings(tenant, id)).toEqual([]);
        expect(await read(tenant, id)).toMatchObject({ state: "active", fired: 0, last_error: null });
      }
      await gateway.tick();
      for (const { id } of [once, again]) expect(await firings(tenant, id)).toMatchObject([{ state: "queued" }]);
    },
  );
});

describe(`one tick ${verifies("VCP-18")}`, () => {
  test("makes up for much in batches of some hundreds", async () => {
    const tenant = await gateway.newTenant();
    for (let count = 0; count < 12; count += 1) await make(tenant, { rate: "1 minute", misfire: "all" });
    await dueIn(tenant, -day);
    const batches: number[] = [];
    const core = withTake((owner, takings) => {
      batches.push(takings.flatMap((taking) => taking.firings).length);
      return gateway.core.repos.schedules.take(owner, takings);
    });
    await tick(core);
    expect(Math.max(...batches)).toBeLessThanOrEqual(600);
    expect(batches.reduce((sum, each) => sum + each, 0)).toBeGreaterThan(1_200);
    const { data } = await tenant.client.get(path);
    for (const { fired } of data as Json[]) expect(fired).toBeGreaterThan(100);
  });

  test.each([
    ["a zone that this release's tables do not have", { time_zone: "Mars/Phobos" }],
    [
      "an expression of another release",
      { timing: JSON.stringify({ kind: "cron", expressions: ["cron(@solstice)"] }) },
    ],
  ])("leaves one with %s to a release that knows it, and fires the tenant's others", async (_what, columns) => {
    const tenant = await gateway.newTenant();
    const [strange, plain] = [await make(tenant, { cron: "0 9 * * *" }), await make(tenant, { delay_ms: day })];
    await dueIn(tenant, -minute);
    for (const [column, value] of Object.entries(columns))
      await database.batch([{ sql: `UPDATE schedules SET ${column} = ?1 WHERE id = ?2`, args: [value, strange.id] }]);
    await database.batch([{ sql: "UPDATE schedules SET next_at = next_at - 1000 WHERE id = ?1", args: [strange.id] }]);
    await gateway.tick();
    expect(await firings(tenant, plain.id)).toHaveLength(1);
    expect(await firings(tenant, strange.id)).toEqual([]);
    expect(gateway.logged).toContainEqual(
      expect.objectContaining({
        message: "a stored row cannot be read",
        fields: expect.objectContaining({ tenant: tenant.id, row: strange.id }),
      }),
    );
    const { data, unreadable } = await tenant.client.get(path);
    expect(data).toMatchObject([{ id: plain.id }]);
    const [column] = Object.keys(columns);
    expect(unreadable[0].message).toMatch(
      new RegExp(`^It cannot be read: '${column}(?:\\.expressions\\.0)?' is none that this release`),
    );
    expect((await tenant.client.send("delete", `${path}/${strange.id}`)).status).toBe(204);
  });

  test("makes up for what came due while its tenant was suspended as for what was missed", async () => {
    const tenant = await gateway.newTenant();
    const [once, all, skip] = await Promise.all(
      ["once", "all", "skip"].map((misfire) => make(tenant, { rate: "1 day", misfire })),
    );
    await dueIn(tenant, -29 * day - minute);
    const set = (status: string): Promise<Json> =>
      gateway.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status });
    await set("suspended");
    await gateway.tick();
    await set("active");
    await gateway.tick();
    const counts = await Promise.all([once, all, skip].map(async ({ id }: Json) => (await read(tenant, id)).fired));
    // The last of them is a minute late, which is not missed.
    expect(counts).toEqual([2, 30, 1]);
  });

  test("fires for others where those of one tenant cannot fire", async () => {
    const [stuck, other] = [await gateway.newTenant(), await gateway.newTenant()];
    const many = Array.from({ length: 201 }, () => make(stuck, { delay_ms: day }));
    await Promise.all(many);
    const { id } = await make(other, { delay_ms: day });
    await dueIn(stuck, -minute);
    await dueIn(other, 0);
    const tried: string[] = [];
    const core = withTake((owner, takings) => {
      tried.push(owner);
      if (owner === stuck.id) throw new GatewayError("database_unavailable", "Too much at once.");
      return gateway.core.repos.schedules.take(owner, takings);
    });
    await tick(core);
    expect(await firings(other, id)).toHaveLength(1);
    expect(tried.filter((owner) => owner === stuck.id)).toHaveLength(1);
  });
});
