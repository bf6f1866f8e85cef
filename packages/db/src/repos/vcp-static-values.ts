/** Values of static VCP plugins and of nodes. Contract: `VcpStaticValueRepo`. */
import type { StoredStaticValue, VcpStaticValueRepo } from "@toolyard/core/ports/vcp-static-values";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { isEagerPlugin } from "../schema/sys-ai-plugin.ts";
import { vcpStaticValues } from "../schema/vcp-static-values.ts";
import { decodeRow } from "../sql.ts";
import { everyShard } from "./every-shard.ts";
import { now } from "./fragments.ts";

const isLeased = `COALESCE(lease_until, 0) > ${now}`;
const columns = `*, ${isLeased} AS leased, ${now} AS now`;

const listValues = `SELECT ${columns} FROM vcp_static_values WHERE tenant = ?1 ORDER BY source, key`;
const readNow = `SELECT ${now} AS now`;

/** One statement: of all that come at once, one changes the row. */
const claimRefresh = `INSERT INTO vcp_static_values (tenant, source, key, version, lease_until)
  VALUES (?1, ?2, '', ?3, ${now} + ?4)
  ON CONFLICT (tenant, source, key) DO UPDATE SET lease_until = excluded.lease_until
  WHERE NOT COALESCE(vcp_static_values.lease_until, 0) > ${now}
    AND (vcp_static_values.version <> ?3 OR COALESCE(vcp_static_values.refreshed_at, 0) < ?5)
  RETURNING ${columns}`;

const readBlobKey = "SELECT blob_key FROM vcp_static_values WHERE tenant = ?1 AND source = ?2 AND key = ''";
const storeValue = `UPDATE vcp_static_values SET version = ?3, error = ?4, refreshed_at = ${now}, lease_until = NULL,
    next_at = ?5, value = CASE WHEN ?6 THEN ?7 ELSE value END, blob_key = CASE WHEN ?6 THEN ?8 ELSE blob_key END
  WHERE tenant = ?1 AND source = ?2 AND key = ''`;

const forgetValues = "DELETE FROM vcp_static_values WHERE tenant = ?1 AND source = ?2";
const tellValues = `INSERT INTO vcp_static_values (tenant, source, key, value, version, refreshed_at)
  SELECT ?1, ?2, key, value, '', ${now} FROM json_each(?3) WHERE true
  ON CONFLICT (tenant, source, key) DO UPDATE SET value = excluded.value, refreshed_at = excluded.refreshed_at`;

/** Plugins that are to be run on schedule and have never been. */
const addEager = `INSERT INTO vcp_static_values (tenant, source, key, version, next_at)
  SELECT tenant, 'plugin:' || (execution_config ->> '$.vcp.manifest.name'), '', '', ${now} FROM sys_ai_plugin
  WHERE ${isEagerPlugin}
  ON CONFLICT DO NOTHING`;
const takeDue = `UPDATE vcp_static_values SET next_at = ${now} + ?2
  WHERE rowid IN (SELECT rowid FROM vcp_static_values WHERE next_at IS NOT NULL AND next_at <= ${now} LIMIT ?1)
  RETURNING tenant, source`;

export function createVcpStaticValueRepo(shards: Shards): VcpStaticValueRepo {
  const ask = (tenant: string, ...statements: readonly Statement[]): Promise<readonly StatementResult[]> =>
    shards.databaseFor(tenant).batch(statements, { repeatable: true });

  return {
    list: async (tenant) => {
      const [found, clock] = await ask(tenant, { sql: listValues, args: [tenant] }, { sql: readNow, args: [] });
      return { values: (found?.rows ?? []).map(toValue), now: Number(clock?.rows[0]?.["now"]) };
    },

    claim: async (tenant, { source, version, leaseMs, freshSince }) => {
      const claim = { sql: claimRefresh, args: [tenant, source, version, leaseMs, freshSince] };
      // Sent twice, the second sending would find the first one's lease: then the lease runs out by itself.
      const [claimed] = await shards.databaseFor(tenant).batch([claim]);
      return claimed?.rows.map(toValue)[0];
    },

    store: async (tenant, { source, version, value, error, nextAt }) => {
      const isGiven = value === undefined ? 0 : 1;
      const [before] = await ask(
        tenant,
        { sql: readBlobKey, args: [tenant, source] },
        {
          sql: storeValue,
          args: [tenant, source, version, error, nextAt, isGiven, value?.value ?? null, value?.blobKey ?? null],
        },
      );
      const old = before?.rows[0]?.["blob_key"];
      return isGiven === 1 && typeof old === "string" && old !== value?.blobKey ? old : undefined;
    },

    replace: async (tenant, source, values) => {
      await ask(
        tenant,
        { sql: forgetValues, args: [tenant, source] },
        { sql: tellValues, args: [tenant, source, JSON.stringify(Object.fromEntries(values))] },
      );
    },

    remove: async (tenant, source) => {
      await ask(tenant, { sql: forgetValues, args: [tenant, source] });
    },

    due: async ({ limit, offerAgainMs }) => {
      const statements = [
        { sql: addEager, args: [] },
        { sql: takeDue, args: [limit, offerAgainMs] },
      ];
      const answers = await everyShard(shards, (database) => database.batch(statements));
      return answers.flatMap(([, found]) =>
        (found?.rows ?? []).map((row) => ({ tenant: String(row["tenant"]), source: String(row["source"]) })),
      );
    },
  };
}

function toValue(row: StatementResult["rows"][number]): StoredStaticValue {
  const { source, key, value, blobKey, version, refreshedAt, error } = decodeRow(vcpStaticValues, row);
  return { source, key, value, blobKey, version, refreshedAt, error, leased: row["leased"] === 1 };
}
