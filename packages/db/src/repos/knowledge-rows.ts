/** Rows of knowledge bases and their documents, as they are read. */
import { getTableName, type InferSelectModel } from "drizzle-orm";
import {
  knowledgeAclSchema,
  knowledgeConfigSchema,
  type KnowledgeAcl,
  type KnowledgeConfig,
} from "@toolyard/core/knowledge/config";
import type { KnowledgeBase, KnowledgeDocument, KnowledgeGarbage } from "@toolyard/core/ports/knowledge";
import * as z from "zod";
import { knowledgeBases } from "../schema/knowledge-bases.ts";
import { knowledgeDocuments } from "../schema/knowledge-documents.ts";
import { knowledgeGarbage } from "../schema/knowledge-garbage.ts";
import { decodeRow, readColumn } from "../sql.ts";
import { baseOfDocument, isToBuild, stateOfDocument } from "./knowledge-fragments.ts";
import type { OnBrokenRow, Reader, Row } from "./rows.ts";

const ofBase = "FROM knowledge_documents AS d WHERE d.tenant = b.tenant AND d.knowledge_base = b.id";
const isBuilt = "d.built_index_version IS b.next_index_version AND d.built_version IS d.current_version";

/** A base with its counts. */
export const selectBase = `SELECT b.*, (SELECT json_object('documents', COUNT(*),
    'ready', SUM(d.state = 'ready'), 'failed', SUM(${stateOfDocument} = 'failed'), 'chunks', SUM(d.chunk_count),
    'bytes', SUM(d.bytes), 'built', SUM(b.next_index_version IS NOT NULL AND ${isBuilt}),
    'toBuild', SUM(${isToBuild})) ${ofBase}) AS counts
  FROM knowledge_bases AS b`;

const callError = (field: string): string =>
  `(SELECT c.error ->> '$.${field}' FROM calls AS c WHERE c.tenant = d.tenant AND c.id = d.call_id)`;

const stoppedMessage = "The call that was to ingest it is over; give it to another with POST /v1/knowledge/retry_doc.";

/** A document; where its call has ended without a word of it, with what is known of that. */
export const selectDocument = `SELECT d.*, ${stateOfDocument} AS seen_state,
    COALESCE(d.error_code, ${callError("code")}, 'call_interrupted') AS seen_code,
    COALESCE(d.error_message, ${callError("message")}, '${stoppedMessage}') AS seen_message
  FROM knowledge_documents AS d JOIN knowledge_bases AS b ON ${baseOfDocument}`;

const countsSchema = z.object({
  documents: z.number(),
  ready: z.number().nullable(),
  failed: z.number().nullable(),
  chunks: z.number().nullable(),
  bytes: z.number().nullable(),
  built: z.number().nullable(),
  toBuild: z.number().nullable(),
});

const metadataSchema = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]));

/** @throws BrokenColumn */
export function toConfig(column: string, text: string): KnowledgeConfig {
  return readColumn(column, () => knowledgeConfigSchema.parse(JSON.parse(text)));
}

/** @throws BrokenColumn */
export function toMetadata(text: string): z.output<typeof metadataSchema> {
  return readColumn("metadata", () => metadataSchema.parse(JSON.parse(text)));
}

function baseOf(base: InferSelectModel<typeof knowledgeBases>, row: Row): KnowledgeBase {
  const { nextConfig, nextIndexVersion } = base;
  const counts = readColumn("counts", () => countsSchema.parse(JSON.parse(String(row["counts"]))));
  return {
    id: base.id,
    name: base.name,
    config: toConfig("config", base.config),
    configVersion: base.configVersion,
    indexVersion: base.indexVersion,
    next:
      nextConfig === null || nextIndexVersion === null
        ? null
        : { config: toConfig("next_config", nextConfig), indexVersion: nextIndexVersion },
    createdAt: base.createdAt,
    updatedAt: base.updatedAt,
    counts: {
      documents: counts.documents,
      ready: counts.ready ?? 0,
      failed: counts.failed ?? 0,
      chunks: counts.chunks ?? 0,
      bytes: counts.bytes ?? 0,
      built: counts.built ?? 0,
      toBuild: counts.toBuild ?? 0,
    },
  };
}

function documentOf(record: InferSelectModel<typeof knowledgeDocuments>, row: Row): KnowledgeDocument {
  const {
    tenant: _tenant,
    builtChunkCount: _count,
    state,
    errorCode,
    errorMessage,
    metadata,
    acl,
    ...document
  } = record;
  const seen = row["seen_state"] === "failed" ? "failed" : state;
  return {
    ...document,
    state: seen,
    errorCode: seen === "failed" ? String(row["seen_code"]) : errorCode,
    errorMessage: seen === "failed" ? String(row["seen_message"]) : errorMessage,
    metadata: toMetadata(metadata),
    acl: toAcl(acl),
  };
}

function toAcl(text: string | null): KnowledgeAcl | null {
  return text === null ? null : readColumn("acl", () => knowledgeAclSchema.parse(JSON.parse(text)));
}

export interface KnowledgeReaders {
  readonly bases: Reader<typeof knowledgeBases, KnowledgeBase>;
  readonly documents: Reader<typeof knowledgeDocuments, KnowledgeDocument>;
}

export function knowledgeReaders(onBrokenRow: OnBrokenRow): KnowledgeReaders {
  return {
    bases: {
      table: knowledgeBases,
      tableName: getTableName(knowledgeBases),
      key: knowledgeBases.id,
      onBrokenRow,
      toRecord: baseOf,
    },
    documents: {
      table: knowledgeDocuments,
      tableName: getTableName(knowledgeDocuments),
      key: knowledgeDocuments.id,
      onBrokenRow,
      toRecord: documentOf,
    },
  };
}

export function toGarbage(row: Row): KnowledgeGarbage {
  const { dueAt: _dueAt, ...garbage } = decodeRow(knowledgeGarbage, row);
  return garbage;
}
