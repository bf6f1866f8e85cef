/**
 * Archives of calls past their retention. Contract: `ArchiveRepo`. A claim is a token in the archive's row and
 * a moment until which it holds; which calls belong to an archive is written into their rows once, so whoever
 * claims it next writes the same lines.
 */
import { randomUUID } from "node:crypto";
import type { Call } from "@toolyard/core/calls/call";
import { newId } from "@toolyard/core/ids";
import type { ArchiveRepo, CallArchive, ClaimedArchive } from "@toolyard/core/ports/archives";
import type { PageRequest } from "@toolyard/core/ports/page";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import { getTableColumns } from "drizzle-orm";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { calls } from "../schema/calls.ts";
import { ended, toCall } from "./calls-rows.ts";
import { everyShard } from "./every-shard.ts";
import { now, setting, underCaps } from "./fragments.ts";
import { requirePlace } from "./place.ts";

type Row = StatementResult["rows"][number];

const dayMs = 86_400_000;
/** How long an instance has to delete the archives that it took. */
const deletionMs = 300_000;

/**
 * From its end on, since it may have waited for longer. By its beginning it is found. What a run has called it looks up
 * as it goes on, however long it has waited.
 */
const isPast = (caps: SettingsCaps): string => {
  const before = `${now} - ${dayMs} * ${setting("calls_retention_days", caps)}`;
  return `old.state IN ${ended} AND old.created_at <= ${before} AND COALESCE(old.finished_at, 0) <= ${before}
    AND NOT EXISTS (SELECT 1 FROM calls AS above
      WHERE above.tenant = old.tenant AND above.id IN (old.parent_id, old.root_id) AND above.state NOT IN ${ended})`;
};

const takeUnfinished = `UPDATE call_archives SET claimed_by = ?1, claimed_until = ${now} + ?2
  WHERE rowid = (SELECT rowid FROM call_archives
    WHERE written_at IS NULL AND claimed_until <= ${now} ORDER BY claimed_until LIMIT 1)`;

/** Of what is claimed: few have an index of their own among all that there are. */
const unwritten = "a.written_at IS NULL";

/** Where nothing was taken: a new one, for the day of some call that is due. */
const begin = underCaps(
  (caps) => `INSERT INTO call_archives (tenant, id, day, created_at, claimed_by, claimed_until)
  SELECT old.tenant, ?3, old.created_at - old.created_at % ${dayMs}, ${now}, ?1, ${now} + ?2
  FROM tenants AS t CROSS JOIN calls AS old
  WHERE changes() = 0 AND old.tenant = t.id AND old.archive_id IS NULL AND ${isPast(caps)} LIMIT 1`,
);

/** The oldest of its day, the first one however large it is. */
const fill = underCaps(
  (caps) => `UPDATE calls SET archive_id = ?1 WHERE rowid IN (
  SELECT row FROM (
    SELECT old.rowid AS row, ROW_NUMBER() OVER oldest AS place,
      SUM(1000 + LENGTH(old.input_view) + LENGTH(old.caller_chain) + COALESCE(LENGTH(old.outcome_text), 0)
        + COALESCE(LENGTH(old.error), 0) + COALESCE(LENGTH(old.usage), 0)) OVER oldest AS size
    FROM call_archives AS a JOIN tenants AS t ON t.id = a.tenant CROSS JOIN calls AS old
    WHERE a.id = ?1 AND ${unwritten} AND old.tenant = a.tenant AND old.archive_id IS NULL AND ${isPast(caps)}
      AND old.created_at >= a.day AND old.created_at < a.day + ${dayMs}
    WINDOW oldest AS (ORDER BY old.created_at, old.id ROWS UNBOUNDED PRECEDING))
  WHERE place <= ?2 AND (place = 1 OR size <= ?3))`,
);

const readClaimed = underCaps(
  (caps) => `SELECT a.tenant, a.id, a.day, a.day > ${now} - ${dayMs} * ${setting("calls_archive_days", caps)} AS kept
  FROM call_archives AS a JOIN tenants AS t ON t.id = a.tenant
  WHERE a.claimed_by = ?1 AND ${unwritten}`,
);

/** The sealed input is in no archive, and may be as large as all the rest together. */
const archived = Object.values(getTableColumns(calls))
  .filter((column) => column !== calls.input)
  .map(({ name }) => `c.${name}`)
  .join(", ");

const readCalls = `SELECT ${archived} FROM call_archives AS a JOIN calls AS c ON c.tenant = a.tenant AND c.archive_id = a.id
  WHERE a.claimed_by = ?1 AND ${unwritten} ORDER BY c.created_at, c.id`;

const deleteCalls = "DELETE FROM calls WHERE tenant = ?1 AND archive_id = ?2";
const own = "tenant = ?1 AND id = ?2";

const takeExpired = underCaps(
  (caps) => `UPDATE call_archives SET claimed_until = ${now} + ${deletionMs}
  WHERE rowid IN (
    SELECT a.rowid FROM tenants AS t CROSS JOIN call_archives AS a
    WHERE a.tenant = t.id AND a.written_at IS NOT NULL
      AND a.day <= ${now} - ${dayMs} * ${setting("calls_archive_days", caps)} AND COALESCE(a.claimed_until, 0) <= ${now}
    LIMIT ?1)
  RETURNING tenant, id, day`,
);

const orders = { asc: { direction: "ASC", follows: ">" }, desc: { direction: "DESC", follows: "<" } } as const;

export function createArchiveRepo(shards: Shards, caps: SettingsCaps): ArchiveRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    claim: async (options) => (await everyShard(shards, (database) => claim(database, caps, options))).flat(),
    async finish(tenant, id, { bytes, calls }) {
      const args = [tenant, id];
      const isWritten = `EXISTS (SELECT 1 FROM call_archives WHERE ${own} AND written_at IS NOT NULL)`;
      const [, , found] = await of(tenant).batch(
        [
          {
            sql: `UPDATE call_archives SET written_at = ${now}, claimed_until = NULL, bytes = ?3, calls = ?4
              WHERE ${own} AND written_at IS NULL`,
            args: [...args, bytes, calls],
          },
          { sql: `${deleteCalls} AND ${isWritten}`, args },
          { sql: `SELECT id FROM call_archives WHERE ${own}`, args },
        ],
        { repeatable: true },
      );
      return (found?.rows.length ?? 0) > 0;
    },
    async discard(tenant, id) {
      const args = [tenant, id];
      await of(tenant).batch(
        [
          { sql: deleteCalls, args },
          { sql: `DELETE FROM call_archives WHERE ${own}`, args },
        ],
        { repeatable: true },
      );
    },
    async get(tenant, id) {
      const sql = `SELECT * FROM call_archives WHERE ${own} AND written_at IS NOT NULL`;
      const [found] = await of(tenant).batch([{ sql, args: [tenant, id] }], { readonly: true });
      return found?.rows.map(toArchive)[0];
    },
    list: (tenant, page) => list(of(tenant), tenant, page),
    takeExpired: async (limit) => {
      const taken = await everyShard(shards, async (database) => {
        const [rows] = await database.batch([{ sql: takeExpired(caps), args: [limit] }]);
        return rows?.rows ?? [];
      });
      return taken.flat().map(toPlace);
    },
  };
}

async function claim(
  database: Database,
  caps: SettingsCaps,
  { limit, bytes, leaseMs }: Parameters<ArchiveRepo["claim"]>[0],
): Promise<readonly ClaimedArchive[]> {
  const [token, id] = [randomUUID(), newId("archive")];
  const [, , , archives, calls] = await database.batch([
    { sql: takeUnfinished, args: [token, leaseMs] },
    { sql: begin(caps), args: [token, leaseMs, id] },
    { sql: fill(caps), args: [id, limit, bytes] },
    { sql: readClaimed(caps), args: [token] },
    { sql: readCalls, args: [token] },
  ]);
  const rows = (calls?.rows ?? []).map((row) => ({
    id: String(row["id"]),
    call: readable(row),
    blobKey: typeof row["outcome_blob_key"] === "string" ? row["outcome_blob_key"] : undefined,
  }));
  return (archives?.rows ?? []).map((row) => ({ ...toPlace(row), kept: row["kept"] === 1, calls: rows }));
}

/** One row that other code has broken must not keep all others from their archive. */
function readable(row: Row): Call | undefined {
  try {
    return toCall(row);
  } catch {
    return undefined;
  }
}

const readPlace = "SELECT id FROM call_archives WHERE tenant = ?1 AND id = ?2";

/** In the order of their days; several of one day as they were begun. */
async function list(database: Database, tenant: string, page: PageRequest): ReturnType<ArchiveRepo["list"]> {
  const { direction, follows } = orders[page.order];
  const args: SqlValue[] = [tenant, page.limit + 1];
  let beyond = "";
  if (page.after !== undefined) {
    beyond = `AND (day, id) ${follows} (SELECT day, id FROM call_archives WHERE tenant = ?1 AND id = ?3)`;
    args.push(page.after);
  }
  const sql = `SELECT * FROM call_archives WHERE tenant = ?1 AND written_at IS NOT NULL ${beyond}
    ORDER BY day ${direction}, id ${direction} LIMIT ?2`;
  const statements: Statement[] = [{ sql, args }];
  if (page.after !== undefined) statements.push({ sql: readPlace, args: [tenant, page.after] });
  const [found, place] = await database.batch(statements, { readonly: true });
  requirePlace(place);
  const rows = found?.rows ?? [];
  return { data: rows.slice(0, page.limit).map(toArchive), hasMore: rows.length > page.limit };
}

function toPlace(row: Row): { readonly tenant: string; readonly id: string; readonly day: number } {
  return { tenant: String(row["tenant"]), id: String(row["id"]), day: Number(row["day"]) };
}

function toArchive(row: Row): CallArchive {
  return {
    id: String(row["id"]),
    day: Number(row["day"]),
    calls: Number(row["calls"]),
    bytes: Number(row["bytes"]),
    writtenAt: Number(row["written_at"]),
  };
}
