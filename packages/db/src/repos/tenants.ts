/**
 * Tenants. A tenant's row lies in the database that holds its other rows, so that every change of its
 * configuration raises `config_version` in the same batch. For a tenant on a shard of its own, the
 * directory keeps a row too, which only says where.
 */
import { and, eq, getTableColumns, getTableName, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Page, PageRequest } from "@toolyard/core/ports/page";
import type { Tenant, TenantRepo, WrappedKeySample } from "@toolyard/core/ports/tenants";
import { afterErasure } from "@toolyard/core/ports/task-queue";
import type { Shards, Statement, StatementResult } from "../database.ts";
import * as schema from "../schema/index.ts";
import { parseOwnSettings } from "../settings.ts";
import { build, statement } from "../sql.ts";
import { everyShard, mostChanges } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { endConnections } from "./live-connections.ts";
import { readFirst, readPage, readWritten, selectPage, type OnBrokenRow, type Reader } from "./rows.ts";

const { tenants } = schema;

/** What is queued stays so, and nobody claims it (`isActive`). */
const cancelRunning = `UPDATE calls SET cancel_requested = 1
  WHERE tenant = ?1 AND state = 'running' AND EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND status = 'suspended')`;

/** Behind the change. */
const suspensions = [cancelRunning, endConnections];

const holdApply = `UPDATE tenants SET applier = ?2, apply_until = ${now} + ?3
  WHERE id = ?1 AND (applier = ?2 OR COALESCE(apply_until, 0) <= ${now}) RETURNING id`;

/** Up to the second dot, or to the one that there is: what vaults put before a wrapped key says which master key it was. */
const wrappedBy = `SUBSTR(t.wrapped_key, 1, INSTR(t.wrapped_key, '.')
  + INSTR(SUBSTR(t.wrapped_key, INSTR(t.wrapped_key, '.') + 1), '.'))`;

/** @param which in the directory, the rows that only say where a tenant's own row is are not its */
const sampleWrappedKeys = (which: string): string => `SELECT id, wrapped_key, wrapped_by FROM (
    SELECT t.id, t.wrapped_key, ${wrappedBy} AS wrapped_by,
      ROW_NUMBER() OVER (PARTITION BY ${wrappedBy} ORDER BY t.id) AS place
    FROM tenants AS t WHERE ${which})
  WHERE place <= ?1`;
const sampleDirectory = sampleWrappedKeys(
  "t.shard IS NULL OR t.shard IN (SELECT here.id FROM shards AS here WHERE here.url IS NULL)",
);
const sampleShard = sampleWrappedKeys("true");

/** Rows of a table that one batch of an erasure removes: no more than others can well wait for. */
const erasedAtOnce = 250;

export function createTenantRepo(shards: Shards, onBrokenRow: OnBrokenRow): TenantRepo {
  const reader: Reader<typeof tenants, Tenant> = {
    table: tenants,
    tableName: getTableName(tenants),
    key: tenants.id,
    onBrokenRow,
    toRecord: ({ id, name, status, configVersion, settings, wrappedKey, createdAt }) => ({
      id,
      name,
      status,
      configVersion,
      settings: parseOwnSettings(settings, (key) =>
        onBrokenRow({ table: "tenants", tenant: id, id: key, reason: "is not a value that this setting takes" }),
      ),
      wrappedKey,
      createdAt,
    }),
  };
  const select = (id: string): Statement => statement(build.select().from(tenants).where(eq(tenants.id, id)));

  const get = async (id: string): Promise<Tenant | undefined> => {
    const [found] = await shards.databaseFor(id).batch([select(id)], { readonly: true });
    return readFirst(reader, found);
  };

  return {
    get,

    create: async ({ id, name, wrappedKey, settings }) => {
      const values = { id, name, wrappedKey, settings: JSON.stringify(settings) };
      const [, found] = await shards
        .databaseFor(id)
        .batch([statement(build.insert(tenants).values(values).onConflictDoNothing()), select(id)], {
          repeatable: true,
        });
      const tenant = readWritten(reader, found);
      // The key is random: with another one, the row is not this call's.
      if (tenant.wrappedKey !== wrappedKey) {
        throw new GatewayError("conflict", `There is a tenant '${id}' already.`, { param: "id" });
      }
      return tenant;
    },

    list: async (page: PageRequest): Promise<Page<Tenant>> => {
      const [found] = await shards.directory.batch([selectPage(reader, undefined, page)], { readonly: true });
      const listed = readPage(reader, found, page);
      const data = await Promise.all(
        listed.data.map(async (tenant) =>
          shards.databaseFor(tenant.id) === shards.directory ? tenant : ((await get(tenant.id)) ?? tenant),
        ),
      );
      return { data, hasMore: listed.hasMore };
    },

    sampleWrappedKeys: async (ofEach) => {
      const sampled = await everyShard(shards, (database) => {
        const sql = database === shards.directory ? sampleDirectory : sampleShard;
        return database.batch([{ sql, args: [ofEach] }], { readonly: true });
      });
      return sampled.flatMap(([found]) => (found?.rows ?? []).map(toSample));
    },

    update: async (id, { settings, expectedConfigVersion, ...change }) => {
      const values = {
        ...change,
        ...(settings === undefined ? {} : { settings: JSON.stringify(settings) }),
        configVersion: sql`${tenants.configVersion} + 1`,
      };
      const expected =
        expectedConfigVersion === undefined ? undefined : eq(tenants.configVersion, expectedConfigVersion);
      const where = and(eq(tenants.id, id), expected);
      const [written] = await shards
        .databaseFor(id)
        .batch(
          [
            statement(build.update(tenants).set(values).where(where).returning()),
            ...(change.status === "suspended" ? suspensions.map((sql) => ({ sql, args: [id] })) : []),
          ],
          { repeatable: expected === undefined },
        );
      return readFirst(reader, written);
    },

    holdApply: async (id, applier, forMs) => {
      const statements = [{ sql: holdApply, args: [id, applier, forMs] }];
      const [held] = await shards.databaseFor(id).batch(statements, { repeatable: true });
      return held?.rows[0] !== undefined;
    },

    erase: async (id, { everywhere = false } = {}) => {
      const others = everywhere ? shards.all() : [shards.databaseFor(id)];
      const databases = [...others.filter((database) => database !== shards.directory), shards.directory];
      let erased = false;
      // The directory comes last: while its row stands, an erasure that was cut off can be repeated.
      for (const database of databases) {
        for (let left = true; left;) {
          const results = await database.batch(eraseSome(id), { repeatable: true });
          left = mostChanges([results.slice(0, -1)]) === erasedAtOnce;
          erased ||= (results.at(-1)?.changes ?? 0) > 0;
        }
      }
      return erased;
    },
  };
}

function toSample(row: StatementResult["rows"][number]): WrappedKeySample {
  return {
    tenant: String(row["id"]),
    wrappedKey: String(row["wrapped_key"]),
    wrappedBy: String(row["wrapped_by"]),
  };
}

/** Of every table that has a tenant some rows; and the tenant itself, where those were the last. */
function eraseSome(id: string): readonly Statement[] {
  const tables = Object.values<SQLiteTable>(schema).filter((table) => getTableColumns(table)["tenant"] !== undefined);
  const rowsOf = (table: SQLiteTable): string => {
    const kept = table === schema.queueMessages ? ` AND call_id <> '${afterErasure}'` : "";
    return `FROM "${getTableName(table)}" WHERE tenant = ?1${kept}`;
  };
  const some = (table: SQLiteTable): string =>
    `DELETE FROM "${getTableName(table)}" WHERE rowid IN (SELECT rowid ${rowsOf(table)} LIMIT ${erasedAtOnce})`;
  const isEmpty = (table: SQLiteTable): string => `NOT EXISTS (SELECT 1 ${rowsOf(table)})`;
  const last = `DELETE FROM tenants WHERE id = ?1 AND ${tables.map(isEmpty).join(" AND ")}`;
  return [...tables.map(some), last].map((sql) => ({ sql, args: [id] }));
}
