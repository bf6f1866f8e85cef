/** Knowledge bases and their documents. Contract: `KnowledgeRepo`; how documents come in is knowledge-ingest.ts. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { KnowledgeRepo } from "@toolyard/core/ports/knowledge";
import type { PageRequest } from "@toolyard/core/ports/page";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { insertCallAfterChange, insertCallOfDocument, newRowArgs } from "./calls-rows.ts";
import { everyShard } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { createIngestRepo, swapStatements } from "./knowledge-ingest.ts";
import { baseOfDocument, isAtRest, mayRead, stateOfDocument } from "./knowledge-fragments.ts";
import { knowledgeReaders, selectBase, selectDocument, toGarbage } from "./knowledge-rows.ts";
import { readFirst, readPage, type OnBrokenRow } from "./rows.ts";

const ownBase = "WHERE b.tenant = ?1 AND b.id = ?2";
const ownDocument = "WHERE d.tenant = ?1 AND d.knowledge_base = ?2 AND d.id = ?3";

const insertBase = `INSERT INTO knowledge_bases (tenant, id, name, config) SELECT ?1, ?2, ?3, ?4
  WHERE (SELECT COUNT(*) FROM knowledge_bases WHERE tenant = ?1) < ?5 ON CONFLICT DO NOTHING`;

const selectNamed = `SELECT EXISTS (SELECT 1 FROM knowledge_bases WHERE tenant = ?1 AND name = ?2) AS is_taken`;

const givenUpIndex = `INSERT INTO knowledge_garbage (tenant, knowledge_base, index_version, has_chunks, due_at)
  SELECT b.tenant, b.id, b.next_index_version, 1, ${now} FROM knowledge_bases AS b
  ${ownBase} AND b.config_version = ?3 AND b.next_index_version IS NOT NULL`;

/** What only the index that is given up has failed for is as it was: what serves of it is its newest version. */
const failedForIt = `UPDATE knowledge_documents AS d SET state = 'ready', error_code = NULL, error_message = NULL,
    updated_at = ${now}
  WHERE d.tenant = ?1 AND d.knowledge_base = ?2 AND d.current_version = d.version AND ${stateOfDocument} = 'failed'
    AND EXISTS (SELECT 1 FROM knowledge_bases AS b
      ${ownBase} AND b.config_version = ?3 AND b.next_index_version IS NOT NULL)`;

/** ?5: 'drop', 'keep' or 'begin' the index that is being built. */
const changeBase = `UPDATE knowledge_bases AS b SET config = ?4, config_version = config_version + 1, next_config = ?6,
    next_index_version = CASE ?5 WHEN 'drop' THEN NULL WHEN 'keep' THEN next_index_version
      ELSE last_index_version + 1 END,
    last_index_version = last_index_version + (?5 = 'begin'), updated_at = ${now}
  ${ownBase} AND b.config_version = ?3`;

const blobsOf = (where: string): string => `INSERT INTO knowledge_garbage
    (tenant, knowledge_base, has_chunks, blob_key, due_at)
  SELECT d.tenant, d.knowledge_base, 0, d.blob_key, ${now} FROM knowledge_documents AS d ${where}
  UNION SELECT d.tenant, d.knowledge_base, 0, d.current_blob_key, ${now} FROM knowledge_documents AS d ${where}
    AND d.current_blob_key IS NOT NULL`;

const documentsOfBase = "WHERE d.tenant = ?1 AND d.knowledge_base = ?2";
const isThere = "AND EXISTS (SELECT 1 FROM knowledge_bases AS b WHERE b.tenant = ?1 AND b.id = ?2)";

const chunksOfBase = `INSERT INTO knowledge_garbage (tenant, knowledge_base, has_chunks, due_at)
  SELECT b.tenant, b.id, 1, ${now} FROM knowledge_bases AS b ${ownBase}`;

const chunksOfDocument = `INSERT INTO knowledge_garbage
    (tenant, knowledge_base, document, up_to_version, has_chunks, due_at)
  SELECT d.tenant, d.knowledge_base, d.id, b.last_document_version, 1, ${now}
  FROM knowledge_documents AS d JOIN knowledge_bases AS b ON ${baseOfDocument} ${ownDocument}`;

const announce = `INSERT INTO knowledge_garbage (tenant, knowledge_base, has_chunks, blob_key, due_at)
  VALUES (?1, ?2, 0, ?3, ${now} + ?4)`;

const countVersion =
  "UPDATE knowledge_bases SET last_document_version = last_document_version + 1 WHERE tenant = ?1 AND id = ?2";

/** Numbers are those of `documentArgs`. One that failed, or whose call is over, is tried again, whatever it holds. */
const isSame = `(d.call_id = ?12 OR (?6 <> '' AND d.hash = ?6 AND ${stateOfDocument} <> 'failed'))`;

const replacedBlob = `INSERT INTO knowledge_garbage (tenant, knowledge_base, has_chunks, blob_key, due_at)
  SELECT d.tenant, d.knowledge_base, 0, d.blob_key, ${now} FROM knowledge_documents AS d
  ${ownDocument} AND NOT ${isSame} AND d.blob_key <> ?7 AND d.blob_key IS NOT d.current_blob_key`;

const anew = (column: string): string =>
  `${column} = CASE WHEN ${isSame.replaceAll("d.", "knowledge_documents.")} THEN ${column} ELSE excluded.${column} END`;

const putDocument = `INSERT INTO knowledge_documents (tenant, knowledge_base, id, name, media_type, hash, blob_key,
    bytes, source_url, metadata, acl, call_id, fetch_url, version, state)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?15, b.last_document_version, 'queued'
  FROM knowledge_bases AS b ${ownBase}
    AND (SELECT COUNT(*) FROM knowledge_documents AS d
      WHERE d.tenant = ?1 AND NOT (d.knowledge_base = ?2 AND d.id = ?3)) < ?13
    AND ?8 + (SELECT COALESCE(SUM(d.bytes), 0) FROM knowledge_documents AS d
      WHERE d.tenant = ?1 AND NOT (d.knowledge_base = ?2 AND d.id = ?3)) <= ?14
  ON CONFLICT (tenant, knowledge_base, id) DO UPDATE SET name = excluded.name, source_url = excluded.source_url,
    metadata = excluded.metadata, acl = excluded.acl, updated_at = ${now}, ${[
      "media_type",
      "hash",
      "blob_key",
      "fetch_url",
      "bytes",
      "version",
      "state",
      "call_id",
      "attempt",
      "progress_done",
      "progress_total",
      "error_code",
      "error_message",
    ]
      .map(anew)
      .join(", ")}`;

const takeBlob = `DELETE FROM knowledge_garbage WHERE tenant = ?1 AND blob_key = ?4
  AND EXISTS (SELECT 1 FROM knowledge_documents AS d ${ownDocument} AND d.blob_key = ?4)`;

/** Nobody has taken it. */
const releaseBlob = `UPDATE knowledge_garbage SET due_at = ${now} WHERE tenant = ?1 AND blob_key = ?2 AND due_at > ${now}`;

const selectRoom = `SELECT (SELECT COUNT(*) FROM knowledge_bases AS b ${ownBase}) AS bases, COUNT(*) AS documents,
  COALESCE(SUM(d.bytes), 0) AS bytes FROM knowledge_documents AS d WHERE d.tenant = ?1`;

/** What serves of document `d` has pieces without the vectors that its base wants. */
const lacksVectors = `(d.current_version = d.version AND EXISTS (SELECT 1 FROM knowledge_bases AS b
  JOIN knowledge_chunks AS k ON k.tenant = d.tenant AND k.knowledge_base = d.knowledge_base AND k.document = d.id
    AND k.document_version = d.current_version AND k.index_version = b.index_version AND k.embedding IS NULL
  WHERE ${baseOfDocument} AND json_extract(b.config, '$.embedding.model') IS NOT NULL))`;

const retry = `UPDATE knowledge_documents AS d SET version = CASE WHEN ${lacksVectors}
      THEN (SELECT b.last_document_version FROM knowledge_bases AS b WHERE ${baseOfDocument}) ELSE d.version END,
    call_id = ?4, attempt = 0, state = 'queued', progress_done = 0,
    progress_total = 0, error_code = NULL, error_message = NULL, updated_at = ${now}
  ${ownDocument} AND ${isAtRest}`;

export function createKnowledgeRepo(shards: Shards, onBrokenRow: OnBrokenRow): KnowledgeRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  const readers = knowledgeReaders(onBrokenRow);
  const read = async (tenant: string, sql: string, args: readonly SqlValue[]): Promise<StatementResult | undefined> =>
    (await of(tenant).batch([{ sql, args: [tenant, ...args] }], { readonly: true }))[0];
  return {
    ...createIngestRepo(shards, readers),

    async createBase(tenant, { id, name, config }, most) {
      const [, found, named] = await of(tenant).batch(
        [
          { sql: insertBase, args: [tenant, id, name, JSON.stringify(config), most] },
          { sql: `${selectBase} ${ownBase}`, args: [tenant, id] },
          { sql: selectNamed, args: [tenant, name] },
        ],
        { repeatable: true },
      );
      const base = readFirst(readers.bases, found);
      if (base !== undefined) return base;
      if (named?.rows[0]?.["is_taken"] === 1) {
        throw new GatewayError("conflict", `There is a knowledge base '${name}' already.`, { param: "name" });
      }
      throw full(`has ${most} knowledge bases, as many as it may ('knowledge_bases')`);
    },

    async getBase(tenant, base) {
      const sql = `${selectBase} WHERE b.tenant = ?1 AND (b.id = ?2 OR b.name = ?2) ORDER BY b.id = ?2 DESC LIMIT 1`;
      return readFirst(readers.bases, await read(tenant, sql, [base]));
    },

    async listBases(tenant, page) {
      const { sql, args } = paged(`${selectBase} WHERE b.tenant = ?1`, "b.id", { page, args: [tenant] });
      const [found] = await of(tenant).batch([{ sql, args }], { readonly: true });
      return readPage(readers.bases, found, page);
    },

    async updateBase(tenant, id, { expectedConfigVersion, config, nextConfig, rebuild }) {
      const how = nextConfig === null ? "drop" : rebuild === null ? "keep" : "begin";
      const texts = [JSON.stringify(config), how, nextConfig === null ? null : JSON.stringify(nextConfig)];
      const own = [tenant, id, expectedConfigVersion];
      const change = { sql: changeBase, args: [...own, ...texts] };
      const before = { keep: [], begin: [givenUpIndex], drop: [givenUpIndex, failedForIt] }[how];
      const results = await of(tenant).batch([
        ...before.map((sql) => ({ sql, args: own })),
        change,
        ...(rebuild === null
          ? []
          : [{ sql: insertCallAfterChange, args: newRowArgs(tenant, rebuild.callerId, rebuild.call) }]),
        ...swapStatements(tenant, id),
        { sql: `${selectBase} ${ownBase}`, args: [tenant, id] },
      ]);
      const changed = results[before.length];
      return (changed?.changes ?? 0) === 0 ? undefined : readFirst(readers.bases, results.at(-1));
    },

    async deleteBase(tenant, id) {
      const own = [tenant, id];
      const [, , documents, deleted] = await of(tenant).batch([
        { sql: chunksOfBase, args: own },
        { sql: blobsOf(`${documentsOfBase} ${isThere}`), args: own },
        { sql: "DELETE FROM knowledge_documents WHERE tenant = ?1 AND knowledge_base = ?2", args: own },
        { sql: "DELETE FROM knowledge_bases WHERE tenant = ?1 AND id = ?2", args: own },
      ]);
      return (deleted?.changes ?? 0) === 0 ? undefined : { documents: documents?.changes ?? 0 };
    },

    async announceBlob(tenant, base, blobKey, withinMs) {
      await of(tenant).batch([{ sql: announce, args: [tenant, base, blobKey, withinMs] }], { repeatable: true });
    },

    async putDocument(tenant, base, document, { call, callerId, most }) {
      const { id, name, mediaType, hash, blobKey, bytes, sourceUrl, fetchUrl, metadata, acl } = document;
      const own = [tenant, base, id];
      const said = [JSON.stringify(metadata), acl === null ? null : JSON.stringify(acl)];
      const content = [name, mediaType, hash, blobKey, bytes, sourceUrl, ...said, call.id];
      const [, , , , , , found, room] = await of(tenant).batch(
        [
          { sql: countVersion, args: [tenant, base] },
          { sql: replacedBlob, args: [...own, ...content] },
          { sql: putDocument, args: [...own, ...content, most.documents, most.bytes, fetchUrl] },
          { sql: takeBlob, args: [...own, blobKey] },
          { sql: releaseBlob, args: [tenant, blobKey] },
          { sql: insertCallOfDocument, args: newRowArgs(tenant, callerId, call) },
          { sql: `${selectDocument} ${ownDocument}`, args: own },
          { sql: selectRoom, args: [tenant, base] },
        ],
        { repeatable: true },
      );
      const put = readFirst(readers.documents, found);
      const held = room?.rows[0];
      // Where it was refused, the one that is there is as it was.
      const isPut = put !== undefined && (put.callId === call.id || (hash !== "" && put.hash === hash));
      if (isPut) return { document: put, isQueued: put.callId === call.id };
      if (held?.["bases"] === 0) throw new GatewayError("not_found", `There is no knowledge base '${base}'.`);
      throw full(
        Number(held?.["documents"]) >= most.documents && put === undefined
          ? `has ${most.documents} documents, as many as it may ('knowledge_documents')`
          : `has ${Number(held?.["bytes"])} bytes of documents; with ${bytes} more it would have more than the ${most.bytes} that it may ('knowledge_bytes')`,
      );
    },

    async getDocument(tenant, base, id, reader) {
      const found = await read(tenant, `${selectDocument} ${ownDocument} AND ${mayRead("?4")}`, [
        base,
        id,
        JSON.stringify(reader),
      ]);
      return readFirst(readers.documents, found);
    },

    async listDocuments(tenant, base, { reader, state, ...page }) {
      const where = `${documentsOfBase} AND ${mayRead("?3")} AND (?4 IS NULL OR ${stateOfDocument} = ?4)`;
      const args = [tenant, base, JSON.stringify(reader), state ?? null];
      const selected = paged(`${selectDocument} ${where}`, "d.id", { page, args });
      const [found] = await of(tenant).batch([selected], { readonly: true });
      return readPage(readers.documents, found, page);
    },

    async deleteDocument(tenant, base, id) {
      const own = [tenant, base, id];
      const [, , deleted] = await of(tenant).batch([
        { sql: chunksOfDocument, args: own },
        { sql: blobsOf(ownDocument), args: own },
        { sql: "DELETE FROM knowledge_documents WHERE tenant = ?1 AND knowledge_base = ?2 AND id = ?3", args: own },
        // It may have been the last that the next index lacked.
        ...swapStatements(tenant, base),
      ]);
      return (deleted?.changes ?? 0) > 0;
    },

    async retryDocument(tenant, base, id, { call, callerId }) {
      const own = [tenant, base, id];
      const [, , , found] = await of(tenant).batch(
        [
          { sql: countVersion, args: [tenant, base] },
          { sql: retry, args: [...own, call.id] },
          { sql: insertCallOfDocument, args: newRowArgs(tenant, callerId, call) },
          { sql: `${selectDocument} ${ownDocument}`, args: own },
        ],
        { repeatable: true },
      );
      return readFirst(readers.documents, found);
    },

    async takeGarbage({ of: owner, limit, claimMs }) {
      const whose = owner === undefined ? "" : "AND tenant = ?3 AND knowledge_base = ?4";
      const sql = `UPDATE knowledge_garbage SET due_at = ${now} + ?2 WHERE id IN (
        SELECT id FROM knowledge_garbage WHERE due_at <= ${now} ${whose} ORDER BY due_at LIMIT ?1) RETURNING *`;
      const args = [limit, claimMs, ...(owner === undefined ? [] : [owner.tenant, owner.knowledgeBase])];
      const take = (database: Database): ReturnType<Database["batch"]> => database.batch([{ sql, args }]);
      const taken = owner === undefined ? await everyShard(shards, take) : [await take(of(owner.tenant))];
      return taken.flatMap(([found]) => (found?.rows ?? []).map(toGarbage));
    },

    async deleteGarbageChunks({ tenant, knowledgeBase, document, upToVersion, indexVersion }, limit) {
      const conditions = ["tenant = ?1", "knowledge_base = ?2"];
      if (document !== null) conditions.push("document = ?4");
      if (upToVersion !== null) conditions.push("document_version <= ?5");
      if (indexVersion !== null) conditions.push("index_version = ?6");
      const sql = `DELETE FROM knowledge_chunks WHERE id IN (
        SELECT id FROM knowledge_chunks WHERE ?4 IS ?4 AND ?5 IS ?5 AND ?6 IS ?6 AND ${conditions.join(" AND ")}
        LIMIT ?3) RETURNING id`;
      const args = [tenant, knowledgeBase, limit, document, upToVersion, indexVersion];
      const [deleted] = await of(tenant).batch([{ sql, args }], { repeatable: true });
      return deleted?.rows.length ?? 0;
    },

    async deleteGarbage({ tenant, id }) {
      const sql = "DELETE FROM knowledge_garbage WHERE tenant = ?1 AND id = ?2";
      await of(tenant).batch([{ sql, args: [tenant, id] }], { repeatable: true });
    },
  };
}

function full(what: string): GatewayError {
  return new GatewayError(
    "knowledge_full",
    `This tenant ${what}; delete some, or raise that setting with PATCH /v1/settings.`,
  );
}

/** One row more than the page holds is asked for, to know whether there is more. */
function paged(
  select: string,
  key: string,
  { page, args }: { readonly page: PageRequest; readonly args: readonly SqlValue[] },
): Statement {
  const { limit, after, order } = page;
  const beyond = after === undefined ? "" : ` AND ${key} ${order === "asc" ? ">" : "<"} ?${args.length + 2}`;
  return {
    sql: `${select}${beyond} ORDER BY ${key} ${order} LIMIT ?${args.length + 1}`,
    args: [...args, limit + 1, ...(after === undefined ? [] : [after])],
  };
}
