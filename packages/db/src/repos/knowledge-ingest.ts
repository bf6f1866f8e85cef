/**
 * How documents come into the index. Whoever is at work is fenced by the call and the attempt that the document's row
 * names, so that a process that was given up for dead, and a document that is deleted or replaced meanwhile, change
 * nothing any more. What is written shows only with the statement that makes it the current version.
 */
import { ftsScope } from "@toolyard/core/knowledge/fts-scope";
import type { ChunkPlace, IngestFence, KnowledgeRepo, NewChunk } from "@toolyard/core/ports/knowledge";
import type { Database, Shards, SqlValue, Statement } from "../database.ts";
import { insertCallOfDocument, newRowArgs } from "./calls-rows.ts";
import { now } from "./fragments.ts";
import { baseOfDocument, isAtRest, isToBuild } from "./knowledge-fragments.ts";
import { selectBase, selectDocument, type KnowledgeReaders } from "./knowledge-rows.ts";
import { readFirst } from "./rows.ts";

const ownDocument = "d.tenant = ?1 AND d.knowledge_base = ?2 AND d.id = ?3";
const isOurs = `${ownDocument} AND d.call_id = ?4 AND d.attempt = ?5`;
const itsBase = `SELECT 1 FROM knowledge_bases AS b WHERE ${baseOfDocument}`;

function fenceArgs(tenant: string, { knowledgeBase, document, callId, attempt }: IngestFence): SqlValue[] {
  return [tenant, knowledgeBase, document, callId, attempt];
}

const open = `UPDATE knowledge_documents AS d SET attempt = ?5, updated_at = ${now}
  WHERE ${ownDocument} AND d.call_id = ?4 AND d.attempt <= ?5`;

const selectOthers = `SELECT COALESCE(SUM(d.chunk_count), 0) AS chunks FROM knowledge_documents AS d
  WHERE d.tenant = ?1 AND NOT (d.knowledge_base = ?2 AND d.id = ?3)`;

const change = `UPDATE knowledge_documents AS d SET state = ?6, progress_done = COALESCE(?7, progress_done),
    progress_total = COALESCE(?8, progress_total), characters = COALESCE(?9, characters),
    media_type = COALESCE(?10, media_type), bytes = COALESCE(?11, bytes),
    updated_at = ${now}
  WHERE ${isOurs}`;

/** Versions and indexes that somebody may still come to see; ?6 and ?7. */
const isWanted = `?6 IN (d.version, d.current_version)
  AND EXISTS (${itsBase} AND ?7 IN (b.index_version, b.next_index_version))`;

const place = `k.tenant = ?1 AND k.knowledge_base = ?2 AND k.document = ?3 AND k.document_version = ?6
  AND k.index_version = ?7`;

const insertChunk = `INSERT INTO knowledge_chunks (tenant, knowledge_base, document, document_version, index_version,
    ordinal, span_start, span_end, embedding, heading, text)
  SELECT ?1, ?2, ?3, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 FROM knowledge_documents AS d WHERE ${isOurs} AND ${isWanted}
  ON CONFLICT DO NOTHING`;

const insertWords = `INSERT INTO knowledge_fts (rowid, scope, text)
  SELECT k.id, ?9, ?10 FROM knowledge_chunks AS k JOIN knowledge_documents AS d ON ${isOurs}
  WHERE ${place} AND k.ordinal = ?8 AND NOT EXISTS (SELECT 1 FROM knowledge_fts WHERE rowid = k.id)`;

const tellProgress = `UPDATE knowledge_documents AS d SET progress_done = MAX(progress_done, ?8), updated_at = ${now}
  WHERE ${isOurs} AND ${isWanted}`;

const countPlace = `SELECT COUNT(*) AS chunks FROM knowledge_chunks AS k WHERE ?4 IS ?4 AND ?5 IS ?5 AND ${place}`;

const isWhole = `(SELECT COUNT(*) FROM knowledge_chunks AS k WHERE ${place}) = ?8`;

/** May version ?6 be what is searched in index ?7? */
const mayServe = `${isOurs} AND d.version = ?6 AND EXISTS (${itsBase} AND b.index_version = ?7) AND ${isWhole}`;

const replacedChunks = `INSERT INTO knowledge_garbage
    (tenant, knowledge_base, document, up_to_version, has_chunks, blob_key, due_at)
  SELECT d.tenant, d.knowledge_base, d.id, ?6 - 1, 1, NULLIF(d.current_blob_key, d.blob_key), ${now}
  FROM knowledge_documents AS d WHERE ${mayServe} AND d.current_version IS NOT ?6`;

const serve = `UPDATE knowledge_documents AS d SET current_version = ?6, current_blob_key = blob_key, chunk_count = ?8,
    updated_at = ${now}
  WHERE ${mayServe}`;

const build = `UPDATE knowledge_documents AS d SET built_index_version = ?7, built_version = ?6, built_chunk_count = ?8,
    updated_at = ${now}
  WHERE ${isOurs} AND d.current_version = ?6 AND EXISTS (${itsBase} AND b.next_index_version = ?7) AND ${isWhole}`;

/** The index that is being built has all that serves. */
const isBuilt = `b.tenant = ?1 AND b.id = ?2 AND b.next_index_version IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM knowledge_documents AS d WHERE ${baseOfDocument} AND ${isToBuild})`;

const replacedIndex = `INSERT INTO knowledge_garbage (tenant, knowledge_base, index_version, has_chunks, due_at)
  SELECT b.tenant, b.id, b.index_version, 1, ${now} FROM knowledge_bases AS b WHERE ${isBuilt}`;

const swap = `UPDATE knowledge_bases AS b SET index_version = next_index_version, config = next_config,
    next_index_version = NULL, next_config = NULL, updated_at = ${now}
  WHERE ${isBuilt}`;

const countSwapped = `UPDATE knowledge_documents AS d SET chunk_count = built_chunk_count, built_index_version = NULL
  WHERE d.tenant = ?1 AND d.knowledge_base = ?2 AND d.built_version = d.current_version
    AND EXISTS (${itsBase} AND b.index_version = d.built_index_version)`;

/** The index that is being built takes the place of the one that serves, where nothing is to come any more. */
export function swapStatements(tenant: string, base: string): readonly Statement[] {
  return [replacedIndex, swap, countSwapped].map((sql) => ({ sql, args: [tenant, base] }));
}

const finish = `UPDATE knowledge_documents AS d SET state = ?9, error_code = ?6, error_message = ?7,
    ready_at = CASE ?9 WHEN 'ready' THEN ${now} ELSE ready_at END, updated_at = ${now}
  WHERE ${isOurs} AND (?9 = 'failed' OR d.current_version = d.version)
    AND NOT EXISTS (${itsBase} AND ${isToBuild} AND b.next_index_version IS NOT ?8)`;

const selectToBuild = `SELECT d.id FROM knowledge_documents AS d JOIN knowledge_bases AS b ON ${baseOfDocument}
  WHERE d.tenant = ?1 AND d.knowledge_base = ?2 AND ${isToBuild} AND ${isAtRest} ORDER BY d.id LIMIT ?3`;

const giveToBuild = `UPDATE knowledge_documents AS d SET call_id = ?4, attempt = 0, state = 'queued', progress_done = 0,
    progress_total = 0, error_code = NULL, error_message = NULL, updated_at = ${now}
  WHERE ${ownDocument} AND EXISTS (${itsBase} AND ${isToBuild}) AND ${isAtRest}`;

type IngestRepo = Pick<
  KnowledgeRepo,
  | "openIngest"
  | "changeIngest"
  | "countChunks"
  | "writeChunks"
  | "serveVersion"
  | "buildVersion"
  | "finishIngest"
  | "listToBuild"
  | "queueToBuild"
>;

export function createIngestRepo(shards: Shards, readers: KnowledgeReaders): IngestRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    async openIngest(tenant, fence) {
      const own = [tenant, fence.knowledgeBase];
      const [, found, base, others] = await of(tenant).batch(
        [
          { sql: open, args: fenceArgs(tenant, fence) },
          { sql: `${selectDocument} WHERE ${isOurs}`, args: fenceArgs(tenant, fence) },
          { sql: `${selectBase} WHERE b.tenant = ?1 AND b.id = ?2`, args: own },
          { sql: selectOthers, args: [...own, fence.document] },
        ],
        { repeatable: true },
      );
      const [document, itsOwn] = [readFirst(readers.documents, found), readFirst(readers.bases, base)];
      if (document === undefined || itsOwn === undefined) return undefined;
      return { document, base: itsOwn, otherChunks: Number(others?.rows[0]?.["chunks"]) };
    },

    async changeIngest(tenant, fence, { state, progressDone, progressTotal, characters, mediaType, bytes }) {
      const values = [progressDone, progressTotal, characters, mediaType, bytes].map((value) => value ?? null);
      const args = [...fenceArgs(tenant, fence), state, ...values];
      const [changed] = await of(tenant).batch([{ sql: change, args }], { repeatable: true });
      return (changed?.changes ?? 0) > 0;
    },

    async countChunks(tenant, fence, { documentVersion, indexVersion }) {
      const args = [...fenceArgs(tenant, fence), documentVersion, indexVersion];
      const [counted] = await of(tenant).batch([{ sql: countPlace, args }], { readonly: true });
      return Number(counted?.rows[0]?.["chunks"]);
    },

    async writeChunks(tenant, fence, where, chunks) {
      const own = [...fenceArgs(tenant, fence), where.documentVersion, where.indexVersion];
      const scope = ftsScope(fence.knowledgeBase, where.indexVersion);
      const done = (chunks.at(-1)?.ordinal ?? -1) + 1;
      const results = await of(tenant).batch(
        [
          ...chunks.flatMap((chunk) => [
            { sql: insertChunk, args: [...own, ...chunkArgs(chunk)] },
            { sql: insertWords, args: [...own, chunk.ordinal, scope, chunk.ftsText] },
          ]),
          { sql: tellProgress, args: [...own, done] },
        ],
        { repeatable: true },
      );
      return (results.at(-1)?.changes ?? 0) > 0;
    },

    async serveVersion(tenant, fence, where, chunks) {
      const args = placeArgs(tenant, fence, { where, chunks });
      const [, served] = await of(tenant).batch(
        [
          { sql: replacedChunks, args },
          { sql: serve, args },
        ],
        { repeatable: true },
      );
      return (served?.changes ?? 0) > 0;
    },

    async buildVersion(tenant, fence, where, chunks) {
      const [built] = await of(tenant).batch([
        { sql: build, args: placeArgs(tenant, fence, { where, chunks }) },
        ...swapStatements(tenant, fence.knowledgeBase),
      ]);
      return (built?.changes ?? 0) > 0;
    },

    async finishIngest(tenant, fence, { error, lacking, failedIndex }) {
      const said = error ?? lacking;
      const state = error === null ? "ready" : "failed";
      const args = [...fenceArgs(tenant, fence), said?.code ?? null, said?.message ?? null, failedIndex ?? null, state];
      const [finished] = await of(tenant).batch([{ sql: finish, args }], { repeatable: true });
      return (finished?.changes ?? 0) > 0;
    },

    async listToBuild(tenant, base, limit) {
      const [found] = await of(tenant).batch([{ sql: selectToBuild, args: [tenant, base, limit] }], { readonly: true });
      return (found?.rows ?? []).map((row) => String(row["id"]));
    },

    async queueToBuild(tenant, base, ingests, callerId) {
      const statements = ingests.flatMap(({ document, call }) => [
        { sql: giveToBuild, args: [tenant, base, document, call.id] },
        { sql: insertCallOfDocument, args: newRowArgs(tenant, callerId, call) },
      ]);
      await of(tenant).batch(statements, { repeatable: true });
    },
  };
}

function placeArgs(
  tenant: string,
  fence: IngestFence,
  { where, chunks }: { readonly where: ChunkPlace; readonly chunks: number },
): SqlValue[] {
  return [...fenceArgs(tenant, fence), where.documentVersion, where.indexVersion, chunks];
}

function chunkArgs({ ordinal, spanStart, spanEnd, embedding, heading, text }: NewChunk): SqlValue[] {
  return [ordinal, spanStart, spanEnd, embedding === null ? null : toBytes(embedding), heading, text];
}

/** As the processors we run on have them: little endian. */
function toBytes({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
