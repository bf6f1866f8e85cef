/**
 * Uploads by link (CHAT-19). Contract: `UploadRepo`. What an upload becomes is decided once, by whoever sets
 * `settled_at`; the file and the end of its upload are one transaction.
 */
import type { FullWorkspace, UploadRepo, WorkspaceUpload } from "@toolyard/core/ports/sessions";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Database, Shards, StatementResult } from "../database.ts";
import { everyShard } from "./every-shard.ts";
import { now, setting, underCaps } from "./fragments.ts";
import {
  announcedBytes,
  expiredSession,
  hasPlaceFor,
  isExpired,
  noSession,
  touchSession,
  usedBesides,
  usedBytes,
  usedFiles,
} from "./session-fragments.ts";

type Row = StatementResult["rows"][number];

/** How long an instance has to clear away the uploads that it took. */
const claimMs = 300_000;

/** What is at the path of an upload in this table or under this alias. */
const fileFor = (upload: string): string => `(SELECT blob_key FROM workspace_files AS f
  WHERE f.tenant = ${upload}.tenant AND f.session_id = ${upload}.session_id AND f.path = ${upload}.path)`;

const fileOf = fileFor("u");

const readUpload = `SELECT u.*, ${fileOf} AS current FROM workspace_uploads AS u
  WHERE u.tenant = ?1 AND u.session_id = ?2 AND u.id = ?3`;

const readRoom = underCaps(
  (caps) => `SELECT ${isExpired(caps)} AS expired, ${usedBytes} + ${announcedBytes} AS held, ${usedFiles} AS files
  FROM sessions AS s JOIN tenants AS t ON t.id = s.tenant WHERE s.tenant = ?1 AND s.id = ?2`,
);

const insertUpload = underCaps(
  (caps) => `INSERT INTO workspace_uploads
    (tenant, session_id, id, path, bytes, media_type, blob_key, replaces_blob_key, created_at, expires_at)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7,
    (SELECT blob_key FROM workspace_files WHERE tenant = ?1 AND session_id = ?2 AND path = ?4), ${now}, ${now} + ?8
  FROM sessions AS s JOIN tenants AS t ON t.id = s.tenant
  WHERE s.tenant = ?1 AND s.id = ?2 AND NOT ${isExpired(caps)}
    AND ?5 + ${usedBesides("?4")} + ${announcedBytes} <= ${setting("workspace_bytes", caps)} AND ${hasPlaceFor("?4")}
  ON CONFLICT DO NOTHING`,
);

/** Its own bytes are among the announced ones. */
const putFile = underCaps(
  (caps) => `INSERT INTO workspace_files (tenant, session_id, path, bytes, media_type, blob_key, updated_at)
  SELECT u.tenant, u.session_id, u.path, u.bytes, u.media_type, u.blob_key, ${now}
  FROM workspace_uploads AS u JOIN sessions AS s ON s.tenant = u.tenant AND s.id = u.session_id
    JOIN tenants AS t ON t.id = u.tenant
  WHERE u.tenant = ?1 AND u.session_id = ?2 AND u.id = ?3 AND u.settled_at IS NULL AND NOT ${isExpired(caps)}
    AND (?4 OR ${fileOf} IS u.replaces_blob_key)
    AND ${usedBesides("u.path")} + ${announcedBytes} <= ${setting("workspace_bytes", caps)} AND ${hasPlaceFor("u.path")}
  ON CONFLICT (tenant, session_id, path) DO UPDATE SET
    bytes = excluded.bytes, media_type = excluded.media_type, updated_at = excluded.updated_at,
    previous_blob_key = blob_key, blob_key = excluded.blob_key`,
);

const settleCompleted = `UPDATE workspace_uploads AS u SET settled_at = ${now}
  WHERE u.tenant = ?1 AND u.session_id = ?2 AND u.id = ?3 AND u.settled_at IS NULL AND ${fileOf} = u.blob_key`;

const readFile = `SELECT f.* FROM workspace_files AS f JOIN workspace_uploads AS u
    ON f.tenant = u.tenant AND f.session_id = u.session_id AND f.path = u.path AND f.blob_key = u.blob_key
  WHERE u.tenant = ?1 AND u.session_id = ?2 AND u.id = ?3`;

const giveUp = `UPDATE workspace_uploads SET settled_at = ${now}
  WHERE tenant = ?1 AND session_id = ?2 AND id = ?3 AND settled_at IS NULL`;

const takeExpired = `UPDATE workspace_uploads SET claimed_until = ${now} + ${claimMs}
  WHERE rowid IN (SELECT rowid FROM workspace_uploads
    WHERE expires_at <= ${now} - ?2 AND COALESCE(claimed_until, 0) <= ${now} ORDER BY expires_at LIMIT ?1)
  RETURNING *, ${fileFor("workspace_uploads")} AS current`;

const endUpload = `UPDATE workspace_uploads SET settled_at = COALESCE(settled_at, ${now})
  WHERE tenant = ?1 AND id = ?2`;

const unusedBlob = `SELECT u.blob_key FROM workspace_uploads AS u WHERE u.tenant = ?1 AND u.id = ?2
  AND NOT EXISTS (SELECT 1 FROM workspace_files AS f
    WHERE f.tenant = u.tenant AND f.session_id = u.session_id AND f.blob_key = u.blob_key)`;

export function createUploadRepo(shards: Shards, caps: SettingsCaps): UploadRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    async open(tenant, session, { id, path, bytes, mediaType, blobKey }, expiresInMs) {
      const args = [tenant, session, id, path, bytes, mediaType, blobKey, expiresInMs];
      const [, , found, room] = await of(tenant).batch(
        [
          { sql: insertUpload(caps), args },
          { sql: touchSession(caps), args: [tenant, session] },
          { sql: readUpload, args: [tenant, session, id] },
          { sql: readRoom(caps), args: [tenant, session] },
        ],
        { repeatable: true },
      );
      const upload = found?.rows.map(toUpload)[0];
      return upload === undefined ? fullWorkspace(room, session) : { kind: "open", upload };
    },
    async get(tenant, session, id) {
      const [found] = await of(tenant).batch([{ sql: readUpload, args: [tenant, session, id] }], { readonly: true });
      return found?.rows.map(toUpload)[0];
    },
    async complete(tenant, session, id, { replace }) {
      const args = [tenant, session, id];
      const [, , , upload, file, room] = await of(tenant).batch(
        [
          { sql: putFile(caps), args: [...args, replace ? 1 : 0] },
          { sql: settleCompleted, args },
          { sql: touchSession(caps), args: [tenant, session] },
          { sql: readUpload, args },
          { sql: readFile, args },
          { sql: readRoom(caps), args: [tenant, session] },
        ],
        { repeatable: true },
      );
      const row = upload?.rows[0];
      if (row === undefined) return { kind: "missing" };
      const stored = file?.rows[0];
      if (stored !== undefined) return toStored(stored);
      if (row["settled_at"] !== null) return { kind: "over" };
      const full = fullWorkspace(room, session);
      const isChanged = !replace && row["current"] !== row["replaces_blob_key"];
      return isChanged ? { kind: "changed" } : full;
    },
    async giveUp(tenant, session, id) {
      const args = [tenant, session, id];
      const [, found] = await of(tenant).batch(
        [
          { sql: giveUp, args },
          { sql: readUpload, args },
        ],
        { repeatable: true },
      );
      return found?.rows.map(toUpload)[0];
    },
    takeExpired: ({ limit, afterMs }) => takeFromAll(shards, [limit, afterMs]),
    async end(tenant, id) {
      const args = [tenant, id];
      const [, unused] = await of(tenant).batch(
        [
          { sql: endUpload, args },
          { sql: unusedBlob, args },
        ],
        { repeatable: true },
      );
      return unused?.rows.map((row) => String(row["blob_key"]))[0];
    },
    async delete(tenant, id) {
      const sql = "DELETE FROM workspace_uploads WHERE tenant = ?1 AND id = ?2";
      await of(tenant).batch([{ sql, args: [tenant, id] }], { repeatable: true });
    },
  };
}

async function takeFromAll(shards: Shards, args: readonly number[]): ReturnType<UploadRepo["takeExpired"]> {
  const taken = await everyShard(shards, (database) => database.batch([{ sql: takeExpired, args: [...args] }]));
  return taken.flatMap(([expired]) =>
    (expired?.rows ?? []).map((row) => ({ ...toUpload(row), tenant: String(row["tenant"]) })),
  );
}

/** @throws GatewayError `session_not_found`, `session_expired` */
function fullWorkspace(room: StatementResult | undefined, session: string): FullWorkspace {
  const row = room?.rows[0];
  if (row === undefined) throw noSession(session);
  if (row["expired"] === 1) throw expiredSession(session);
  return { kind: "full", bytes: Number(row["held"]), files: Number(row["files"]) };
}

function toStored(row: Row): Extract<Awaited<ReturnType<UploadRepo["complete"]>>, { readonly kind: "stored" }> {
  const previous = row["previous_blob_key"];
  return {
    kind: "stored",
    file: {
      path: String(row["path"]),
      bytes: Number(row["bytes"]),
      mediaType: String(row["media_type"]),
      blobKey: String(row["blob_key"]),
      updatedAt: Number(row["updated_at"]),
    },
    replaced: typeof previous === "string" ? previous : undefined,
  };
}

function toUpload(row: Row): WorkspaceUpload {
  const isFile = row["settled_at"] !== null && row["current"] === row["blob_key"];
  return {
    id: String(row["id"]),
    session: String(row["session_id"]),
    path: String(row["path"]),
    bytes: Number(row["bytes"]),
    mediaType: String(row["media_type"]),
    blobKey: String(row["blob_key"]),
    replaces: row["replaces_blob_key"] !== null,
    expiresAt: Number(row["expires_at"]),
    state: row["settled_at"] === null ? "open" : isFile ? "file" : "over",
  };
}
