/** Rows of knowledge bases and their documents, as they are read. */
import {
  knowledgeAclSchema,
  knowledgeConfigSchema,
  type KnowledgeAcl,
  type KnowledgeConfig,
} from "@toolyard/core/knowledge/config";
import type { KnowledgeBase, KnowledgeDocument, KnowledgeGarbage } from "@toolyard/core/ports/knowledge";
import * as z from "zod";
import type { StatementResult } from "../database.ts";
import { knowledgeBases } from "../schema/knowledge-bases.ts";
import { knowledgeDocuments } from "../schema/knowledge-documents.ts";
import { knowledgeGarbage } from "../schema/knowledge-garbage.ts";
import { decodeRow } from "../sql.ts";
import { baseOfDocument, isToBuild, stateOfDocument } from "./knowledge-fragments.ts";

type Row = StatementResult["rows"][number];

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

function toConfig(text: string): KnowledgeConfig {
  return knowledgeConfigSchema.parse(JSON.parse(text));
}

/** @throws ZodError or SyntaxError where a column does not hold what it should */
export function toBase(row: Row): KnowledgeBase {
  const base = decodeRow(knowledgeBases, row);
  const { nextConfig, nextIndexVersion } = base;
  const counts = countsSchema.parse(JSON.parse(String(row["counts"])));
  return {
    id: base.id,
    name: base.name,
    config: toConfig(base.config),
    configVersion: base.configVersion,
    indexVersion: base.indexVersion,
    next:
      nextConfig === null || nextIndexVersion === null
        ? null
        : { config: toConfig(nextConfig), indexVersion: nextIndexVersion },
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

/** @throws ZodError or SyntaxError, likewise */
export function toDocument(row: Row): KnowledgeDocument {
  const {
    tenant: _tenant,
    builtChunkCount: _count,
    state,
    errorCode,
    errorMessage,
    metadata,
    acl,
    ...document
  } = decodeRow(knowledgeDocuments, row);
  const seen = row["seen_state"] === "failed" ? "failed" : state;
  return {
    ...document,
    state: seen,
    errorCode: seen === "failed" ? String(row["seen_code"]) : errorCode,
    errorMessage: seen === "failed" ? String(row["seen_message"]) : errorMessage,
    metadata: metadataSchema.parse(JSON.parse(metadata)),
    acl: toAcl(acl),
  };
}

function toAcl(text: string | null): KnowledgeAcl | null {
  return text === null ? null : knowledgeAclSchema.parse(JSON.parse(text));
}

export function toGarbage(row: Row): KnowledgeGarbage {
  const { dueAt: _dueAt, ...garbage } = decodeRow(knowledgeGarbage, row);
  return garbage;
}
