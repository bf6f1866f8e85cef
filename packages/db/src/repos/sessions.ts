/**
 * Sessions and the files of their workspaces (CHAT-8). Contract: `SessionRepo`. The space used is always
 * summed from the files, never kept as a number beside them, so it cannot drift; and since the sum and
 * the write are one statement, two writers on two instances cannot both take the last bytes.
 */
import type { Page, PageRequest } from "@toolyard/core/ports/page";
import type { Session, SessionRepo, WorkspaceFile } from "@toolyard/core/ports/sessions";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { everyShard } from "./every-shard.ts";
import { now, setting, underCaps } from "./fragments.ts";
import { requirePlace } from "./place.ts";
import {
  announcedBytes,
  expiredSession,
  hasPlaceFor,
  isExpired,
  isIdle,
  noSession,
  touchSession,
  usedBesides,
  usedBytes,
  usedFiles,
} from "./session-fragments.ts";

type Row = StatementResult["rows"][number];
type NewFile = Omit<WorkspaceFile, "updatedAt">;

/** How long an instance has to remove the files of a session that it took. */
const claimMs = 300_000;

const orders = { asc: { direction: "ASC", follows: ">" }, desc: { direction: "DESC", follows: "<" } } as const;

const sessionsOfTenant = underCaps(
  (
    caps,
  ) => `SELECT s.id, s.caller_id, s.created_at, s.last_used_at, ${usedBytes} AS bytes, ${isExpired(caps)} AS expired
  FROM sessions AS s JOIN tenants AS t ON t.id = s.tenant WHERE s.tenant = ?1`,
);

const readSession = underCaps((caps) => `${sessionsOfTenant(caps)} AND s.id = ?2`);

const readRoom = underCaps(
  (
    caps,
  ) => `SELECT s.id, s.caller_id, s.created_at, s.last_used_at, ${usedBytes} AS bytes, ${isExpired(caps)} AS expired,
    ${usedBytes} + ${announcedBytes} AS held, ${usedFiles} AS files
  FROM sessions AS s JOIN tenants AS t ON t.id = s.tenant WHERE s.tenant = ?1 AND s.id = ?2`,
);

export function createSessionRepo(shards: Shards, caps: SettingsCaps): SessionRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    get: async (tenant, id) => {
      const [found] = await of(tenant).batch([{ sql: readSession(caps), args: [tenant, id] }], { readonly: true });
      return found?.rows.map(toSession)[0];
    },
    list: (tenant, page, callerId) => list(of(tenant), tenant, { page, callerId, caps }),
    touch: (tenant, id, callerId, idleMs) => touch(of(tenant), tenant, { id, callerId, idleMs }),
    listFiles: async (tenant, session, prefix) => {
      const args = [tenant, session, prefix];
      const [found] = await of(tenant).batch([{ sql: listFiles, args }], { readonly: true });
      return (found?.rows ?? []).map(toFile);
    },
    pageFiles: (tenant, session, page) => pageFiles(of(tenant), tenant, { session, page }),
    getFile: async (tenant, session, path) => {
      const args = [tenant, session, path];
      const [found] = await of(tenant).batch([{ sql: readFile, args }], { readonly: true });
      return found?.rows.map(toFile)[0];
    },
    putFile: (tenant, session, file, limit) => putFile(of(tenant), tenant, { session, file, limit, caps }),
    deleteFile: async (tenant, session, path) => {
      const [deleted] = await of(tenant).batch([
        { sql: deleteFile, args: [tenant, session, path] },
        { sql: touchSession(caps), args: [tenant, session] },
      ]);
      return deleted?.rows.map((row) => String(row["blob_key"]))[0];
    },
    async deleteFiles(tenant, session, blobKeys) {
      const args = [tenant, session, JSON.stringify(blobKeys)];
      await of(tenant).batch([{ sql: deleteFiles, args }], { repeatable: true });
    },
    delete: (tenant, id) => remove(of(tenant), tenant, id),
    takeExpired: (limit) => takeExpired(shards, caps, limit),
  };
}

const readPlace = "SELECT id FROM sessions WHERE tenant = ?1 AND id = ?2";

async function list(
  database: Database,
  tenant: string,
  {
    page,
    callerId,
    caps,
  }: { readonly page: PageRequest; readonly callerId: string | undefined; readonly caps: SettingsCaps },
): Promise<Page<Session>> {
  const { direction, follows } = orders[page.order];
  const args: SqlValue[] = [tenant, page.limit + 1, callerId ?? null];
  let beyond = "";
  if (page.after !== undefined) {
    beyond = `AND (s.created_at, s.id) ${follows} (SELECT created_at, id FROM sessions WHERE tenant = ?1 AND id = ?4)`;
    args.push(page.after);
  }
  const sql = `${sessionsOfTenant(caps)} AND s.cleared_at IS NULL AND s.caller_id = COALESCE(?3, s.caller_id) ${beyond}
    ORDER BY s.created_at ${direction}, s.id ${direction} LIMIT ?2`;
  const statements: Statement[] = [{ sql, args }];
  if (page.after !== undefined) statements.push({ sql: readPlace, args: [tenant, page.after] });
  const [found, place] = await database.batch(statements, { readonly: true });
  requirePlace(place);
  return toPage(found?.rows.map(toSession) ?? [], page);
}

const createOrTouch = `INSERT INTO sessions (id, tenant, caller_id, created_by, created_at, last_used_at)
  VALUES (?2, ?1, ?3, '', ${now}, ${now})
  ON CONFLICT (id) DO UPDATE SET last_used_at = excluded.last_used_at
    WHERE tenant = excluded.tenant AND expired_at IS NULL AND NOT ${isIdle("sessions", "?4")}`;

const readTouched = `SELECT s.id, s.caller_id, s.created_at, s.last_used_at, ${usedBytes} AS bytes,
    (s.expired_at IS NOT NULL OR ${isIdle("s", "?3")}) AS expired
  FROM sessions AS s WHERE s.tenant = ?1 AND s.id = ?2`;

/** @throws GatewayError `session_not_found` for the id of another tenant's session */
async function touch(
  database: Database,
  tenant: string,
  { id, callerId, idleMs }: { readonly id: string; readonly callerId: string; readonly idleMs: number },
): Promise<Session> {
  const [, found] = await database.batch(
    [
      { sql: createOrTouch, args: [tenant, id, callerId, idleMs] },
      { sql: readTouched, args: [tenant, id, idleMs] },
    ],
    { repeatable: true },
  );
  const session = found?.rows.map(toSession)[0];
  if (session === undefined) throw noSession(id);
  return session;
}

const files = "SELECT path, bytes, media_type, blob_key, updated_at FROM workspace_files";
const readFile = `${files} WHERE tenant = ?1 AND session_id = ?2 AND path = ?3`;
// Texts compare by their bytes; U+10FFFF is the last character there is.
const listFiles = `${files} WHERE tenant = ?1 AND session_id = ?2 AND path >= ?3 AND path < ?3 || char(0x10FFFF) ORDER BY path`;
const deleteFiles = `DELETE FROM workspace_files WHERE tenant = ?1 AND session_id = ?2
  AND blob_key IN (SELECT value FROM json_each(?3))`;
const deleteFile = "DELETE FROM workspace_files WHERE tenant = ?1 AND session_id = ?2 AND path = ?3 RETURNING blob_key";

async function pageFiles(
  database: Database,
  tenant: string,
  { session, page }: { readonly session: string; readonly page: PageRequest },
): Promise<Page<WorkspaceFile>> {
  const { direction, follows } = orders[page.order];
  const args: SqlValue[] = [tenant, session, page.limit + 1];
  if (page.after !== undefined) args.push(page.after);
  const sql = `${files} WHERE tenant = ?1 AND session_id = ?2 ${page.after === undefined ? "" : `AND path ${follows} ?4`}
    ORDER BY path ${direction} LIMIT ?3`;
  const [found] = await database.batch([{ sql, args }], { readonly: true });
  return toPage(found?.rows.map(toFile) ?? [], page);
}

/** `previous_blob_key` stays where the row is this very write's already: then its first reply was lost. */
const putFileRow = underCaps(
  (caps) => `INSERT INTO workspace_files (tenant, session_id, path, bytes, media_type, blob_key, updated_at)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ${now} FROM sessions AS s JOIN tenants AS t ON t.id = s.tenant
  WHERE s.tenant = ?1 AND s.id = ?2 AND NOT ${isExpired(caps)}
    AND ?4 + ${usedBesides("?3")} + ${announcedBytes} <= ?7 AND ${hasPlaceFor("?3")}
  ON CONFLICT (tenant, session_id, path) DO UPDATE SET
    bytes = excluded.bytes, media_type = excluded.media_type, updated_at = excluded.updated_at,
    previous_blob_key = CASE blob_key WHEN excluded.blob_key THEN previous_blob_key ELSE blob_key END,
    blob_key = excluded.blob_key
  RETURNING previous_blob_key`,
);

/** @throws GatewayError `session_not_found`, `session_expired` */
async function putFile(
  database: Database,
  tenant: string,
  {
    session,
    file,
    limit,
    caps,
  }: { readonly session: string; readonly file: NewFile; readonly limit: number; readonly caps: SettingsCaps },
): ReturnType<SessionRepo["putFile"]> {
  const { path, bytes, mediaType, blobKey } = file;
  const [put, , found] = await database.batch(
    [
      { sql: putFileRow(caps), args: [tenant, session, path, bytes, mediaType, blobKey, limit] },
      { sql: touchSession(caps), args: [tenant, session] },
      { sql: readRoom(caps), args: [tenant, session] },
    ],
    { repeatable: true },
  );
  const row = put?.rows[0];
  if (row !== undefined) {
    const previous = row["previous_blob_key"];
    return { kind: "stored", replaced: typeof previous === "string" ? previous : undefined };
  }
  const state = found?.rows.map(toSession)[0];
  if (state === undefined) throw noSession(session);
  if (state.expired) throw expiredSession(session);
  const held = found?.rows[0];
  return { kind: "full", bytes: Number(held?.["held"]), files: Number(held?.["files"]) };
}

const removal = [
  "SELECT id FROM sessions WHERE tenant = ?1 AND id = ?2 AND cleared_at IS NULL",
  "DELETE FROM workspace_files WHERE tenant = ?1 AND session_id = ?2 RETURNING blob_key",
  // Whoever begins a session of this name anew must not find what was meant for the old one.
  `UPDATE workspace_uploads SET settled_at = ${now} WHERE tenant = ?1 AND session_id = ?2 AND settled_at IS NULL`,
  `UPDATE sessions SET cleared_at = ${now}
    WHERE tenant = ?1 AND id = ?2 AND expired_at IS NOT NULL AND cleared_at IS NULL`,
  "DELETE FROM sessions WHERE tenant = ?1 AND id = ?2 AND expired_at IS NULL",
];

/** The id of a session that was deleted is free again; that of one that expired is not. */
async function remove(database: Database, tenant: string, id: string): Promise<readonly string[] | undefined> {
  const statements = removal.map((sql): Statement => ({ sql, args: [tenant, id] }));
  const [session, deleted] = await database.batch(statements);
  if (session === undefined || session.rows.length === 0) return undefined;
  return (deleted?.rows ?? []).map((row) => String(row["blob_key"]));
}

const takeIdle = underCaps(
  (caps) => `UPDATE sessions SET expired_at = COALESCE(expired_at, ${now}), claimed_until = ${now} + ${claimMs}
  WHERE id IN (
    SELECT s.id FROM tenants AS t CROSS JOIN sessions AS s
    WHERE s.tenant = t.id AND s.cleared_at IS NULL AND ${isIdle("s", setting("session_idle_ms", caps))}
      AND COALESCE(s.claimed_until, 0) <= ${now}
    LIMIT ?1)
  RETURNING tenant, id`,
);

async function takeExpired(shards: Shards, caps: SettingsCaps, limit: number): ReturnType<SessionRepo["takeExpired"]> {
  const taken = await everyShard(shards, (database) => database.batch([{ sql: takeIdle(caps), args: [limit] }]));
  return taken.flatMap(([idle]) =>
    (idle?.rows ?? []).map((row) => ({ tenant: String(row["tenant"]), id: String(row["id"]) })),
  );
}

function toPage<T>(rows: readonly T[], { limit }: PageRequest): Page<T> {
  return { data: rows.slice(0, limit), hasMore: rows.length > limit };
}

function toSession(row: Row): Session {
  return {
    id: String(row["id"]),
    callerId: String(row["caller_id"]),
    bytes: Number(row["bytes"]),
    createdAt: Number(row["created_at"]),
    lastUsedAt: Number(row["last_used_at"]),
    expired: row["expired"] === 1,
  };
}

function toFile(row: Row): WorkspaceFile {
  return {
    path: String(row["path"]),
    bytes: Number(row["bytes"]),
    mediaType: String(row["media_type"]),
    blobKey: String(row["blob_key"]),
    updatedAt: Number(row["updated_at"]),
  };
}
