/** Breakers of tool services, shared by all instances. Contract: `BreakerRepo`. */
import type { BreakerRepo, OpenBreaker } from "@toolyard/core/ports/tool-services";
import type { Shards, SqlValue, Statement } from "../database.ts";
import { now } from "./fragments.ts";

/** Services of tenant ?1 whose breaker is open, as JSON; null: none. */
export const openBreakers = `(SELECT NULLIF(json_group_array(json_array(service, version, open_until - ${now})), '[]')
  FROM service_breakers WHERE tenant = ?1) AS open_breakers`;

/** Reads `openBreakers`. */
export function toOpenBreakers(row: Readonly<Record<string, unknown>>): {
  readonly openBreakers?: readonly OpenBreaker[];
} {
  const text = row["open_breakers"];
  if (typeof text !== "string") return {};
  const open = JSON.parse(text) as readonly (readonly [string, number, number])[];
  return { openBreakers: open.map(([service, version, leftMs]) => ({ service, version, leftMs })) };
}

/** The breaker of a service that has changed or is gone. */
export function forgetBreaker(tenant: string, service: string): Statement {
  return { sql: "DELETE FROM service_breakers WHERE tenant = ?1 AND service = ?2", args: [tenant, service] };
}

const openBreaker = `INSERT INTO service_breakers (tenant, service, version, open_until)
  SELECT tenant, id, version, ${now} + ?4 FROM tool_services WHERE tenant = ?1 AND id = ?2 AND version = ?3
  ON CONFLICT (tenant, service) DO UPDATE SET
    version = excluded.version, open_until = excluded.open_until, trial_until = NULL`;

const claimTrial = `UPDATE service_breakers SET trial_until = ${now} + ?4
  WHERE tenant = ?1 AND service = ?2 AND version = ?3 AND open_until <= ${now} AND COALESCE(trial_until, 0) <= ${now}
  RETURNING service`;

const findOpen = "SELECT service FROM service_breakers WHERE tenant = ?1 AND service = ?2 AND version = ?3";

const releaseTrial = `UPDATE service_breakers SET trial_until = NULL
  WHERE tenant = ?1 AND service = ?2 AND version = ?3`;

const closeBreaker = "DELETE FROM service_breakers WHERE tenant = ?1 AND service = ?2 AND version = ?3";

export function createBreakerRepo(shards: Shards): BreakerRepo {
  const write = (tenant: string, sql: string, args: readonly SqlValue[]): Promise<unknown> =>
    shards.databaseFor(tenant).batch([{ sql, args }], { repeatable: true });
  return {
    async open(tenant, { service, version, openMs }) {
      await write(tenant, openBreaker, [tenant, service, version, openMs]);
    },
    async claimTrial(tenant, { service, version, trialMs }) {
      const [claimed, found] = await shards.databaseFor(tenant).batch([
        { sql: claimTrial, args: [tenant, service, version, trialMs] },
        { sql: findOpen, args: [tenant, service, version] },
      ]);
      if (claimed?.rows[0] !== undefined) return "claimed";
      return found?.rows[0] === undefined ? "closed" : "taken";
    },
    async releaseTrial(tenant, { service, version }) {
      await write(tenant, releaseTrial, [tenant, service, version]);
    },
    async close(tenant, { service, version }) {
      await write(tenant, closeBreaker, [tenant, service, version]);
    },
  };
}
