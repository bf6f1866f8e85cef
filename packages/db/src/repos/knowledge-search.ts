/**
 * Searches of knowledge bases. Contract: `KnowledgeSearchRepo`. One statement: who may see what, which version is
 * current, both kinds of search, their fusion and the texts of what is left belong to one moment.
 */
import type {
  FoundChunk,
  KnowledgeSearch,
  KnowledgeSearchRepo,
  MetadataCondition,
  SearchableBase,
  SearchList,
  UnlikeVectors,
} from "@toolyard/core/ports/knowledge-search";
import type { Shards, SqlValue, Statement } from "../database.ts";
import { isLive } from "./live-connections.ts";
import { mayRead, metadataOfDocument } from "./knowledge-fragments.ts";
import { knowledgeReaders, toConfig, toMetadata } from "./knowledge-rows.ts";
import { readAll, type OnBrokenRow, type Row } from "./rows.ts";

/** The word of a base and its index in full text (core/knowledge/fts-scope.ts); ids hold nothing else that it leaves out. */
const scope = "replace(b.id, '_', '') || 'i' || b.index_version";

/** How much the first places of a list count more than those after them (Cormack, Clarke, Büttcher 2009). */
const damping = 60;

export function createKnowledgeSearchRepo(shards: Shards, onBrokenRow: OnBrokenRow): KnowledgeSearchRepo {
  const { bases: ofBases, documents: ofDocuments } = knowledgeReaders(onBrokenRow);
  const baseReader = { ...ofBases, toRecord: toBase };
  const hitReader = { ...ofDocuments, toRecord: toHit };
  return {
    find: async (tenant, names) => {
      const [bases, observers] = await shards.databaseFor(tenant).batch(
        [
          { sql: selectBases, args: [tenant, names === "all" ? null : JSON.stringify(names)] },
          { sql: selectObservers, args: [tenant] },
        ],
        { readonly: true },
      );
      return {
        bases: readAll(baseReader, bases),
        isObserved: (observers?.rows.length ?? 0) > 0,
      };
    },

    search: async (tenant, search) => {
      if (search.lists.length === 0 || search.limit < 1) return { hits: [], unlike: [] };
      const vectors = search.lists.filter((list) => list.kind === "vector");
      const [found, ...unlike] = await shards
        .databaseFor(tenant)
        .batch([selectHits(tenant, search), ...vectors.map((list) => selectUnlike(tenant, search, list))], {
          readonly: true,
          long: { owner: tenant, signal: search.signal },
        });
      return {
        hits: readAll(hitReader, found),
        unlike: unlike.flatMap(({ rows }, at) => rows.map((row) => toUnlike(row, vectors[at]?.vector.length ?? 0))),
      };
    },
  };
}

const selectBases = `SELECT b.id, b.tenant, b.name, b.config, (SELECT COALESCE(SUM(d.chunk_count), 0) FROM knowledge_documents AS d
    WHERE d.tenant = ?1 AND d.knowledge_base = b.id AND d.current_version IS NOT NULL) AS chunks
  FROM knowledge_bases AS b
  WHERE b.tenant = ?1 AND (?2 IS NULL OR b.name IN (SELECT value FROM json_each(?2)) OR b.id IN (SELECT value FROM json_each(?2)))
  ORDER BY b.name`;

const selectObservers = `SELECT 1 FROM connections AS c
  WHERE c.tenant = ?1 AND c.client_type = 'RAGObserver' AND ${isLive} LIMIT 1`;

/** Arguments by number, each bound once. */
class Arguments {
  readonly values: SqlValue[] = [];

  bind(value: SqlValue): string {
    this.values.push(value);
    return `?${this.values.length}`;
  }

  list(values: readonly (string | number)[]): string {
    return `(SELECT value FROM json_each(${this.bind(JSON.stringify(values))}))`;
  }
}

function selectHits(tenant: string, search: KnowledgeSearch): Statement {
  const args = new Arguments();
  const owner = args.bind(tenant);
  const most = args.bind(search.candidates);
  const lists = search.lists.map((list) => selectList(list, { args, owner, most }));
  const best = search.lists.reduce((sum, { weight }) => sum + weight / (damping + 1), 0);
  const sql = `WITH visible AS MATERIALIZED (${selectVisible(search, args, owner)}),
    hits (id, weight, place, similarity, relevance) AS (${lists.join("\n    UNION ALL ")}),
    fused AS (SELECT id, SUM(weight / (${damping}.0 + place)) AS score, MAX(similarity) AS similarity, MAX(relevance) AS relevance
      FROM hits GROUP BY id ORDER BY score DESC, id LIMIT ${args.bind(search.limit)})
    SELECT c.id AS chunk, c.tenant, c.knowledge_base, b.name AS knowledge_base_name, c.document AS id, d.name AS document_name,
      c.document_version, d.source_url, d.metadata, c.ordinal, c.span_start, c.span_end, c.heading, c.text,
      fused.score / ${args.bind(best === 0 ? 1 : best)} AS score, fused.similarity, fused.relevance
    FROM fused CROSS JOIN knowledge_chunks AS c ON c.id = fused.id
      CROSS JOIN knowledge_documents AS d ON d.tenant = ${owner} AND d.knowledge_base = c.knowledge_base AND d.id = c.document
      CROSS JOIN knowledge_bases AS b ON b.id = c.knowledge_base AND b.tenant = ${owner}
    ORDER BY fused.score DESC, c.id`;
  return { sql, args: args.values };
}

/** Documents that the reader may see and the conditions let through, as they are now. */
function selectVisible(
  { bases, reader, documents, conditions }: KnowledgeSearch,
  args: Arguments,
  owner: string,
): string {
  const wanted = [
    `d.tenant = ${owner}`,
    "d.knowledge_base = b.id",
    "d.current_version IS NOT NULL",
    mayRead(args.bind(JSON.stringify(reader))),
    ...(documents === undefined ? [] : [`d.id IN ${args.list(documents)}`]),
    ...conditions.map((condition) => meets(condition, args)),
  ];
  return `SELECT b.id AS base, b.index_version, d.id AS document, d.current_version AS version
    FROM knowledge_bases AS b CROSS JOIN knowledge_documents AS d
    WHERE b.tenant = ${owner} AND b.id IN ${args.list(bases)} AND ${wanted.join("\n      AND ")}`;
}

const comparisons = { eq: "=", ne: "<>", gt: ">", gte: ">=", lt: "<", lte: "<=" } as const;

/** Values of one kind only are compared: to SQLite every number is less than every text. */
function meets(condition: MetadataCondition, args: Arguments): string {
  const one = (test: string): string =>
    `EXISTS (SELECT 1 FROM json_each(${metadataOfDocument}) AS m WHERE m.key = ${args.bind(condition.key)} AND (${test}))`;
  if (condition.is === "in") {
    const tests = condition.values.map((value) => compared("=", value, args));
    return one(tests.length === 0 ? "FALSE" : tests.join(" OR "));
  }
  return one(compared(comparisons[condition.is], condition.value, args));
}

function compared(comparison: string, value: string | number | boolean, args: Arguments): string {
  if (typeof value === "boolean") {
    return `m.type IN ('true', 'false') AND m.atom ${comparison} ${args.bind(value ? 1 : 0)}`;
  }
  const types = typeof value === "number" ? "'integer', 'real'" : "'text'";
  return `m.type IN (${types}) AND m.atom ${comparison} ${args.bind(value)}`;
}

interface ListParts {
  readonly args: Arguments;
  readonly owner: string;
  readonly most: string;
}

function selectList(list: SearchList, parts: ListParts): string {
  return list.kind === "vector" ? selectByVector(list, parts) : selectByText(list, parts);
}

type VectorList = Extract<SearchList, { kind: "vector" }>;

/** Of document `v`, chunks `c` that are current. */
const ofVisible = (
  owner: string,
): string => `c.tenant = ${owner} AND c.knowledge_base = v.base AND c.document = v.document
          AND c.document_version = v.version AND c.index_version = v.index_version`;

/** Documents are embedded as a whole, so the first chunk tells what the vectors of all are like. */
function selectUnlike(tenant: string, search: KnowledgeSearch, { bases, vector }: VectorList): Statement {
  const args = new Arguments();
  const owner = args.bind(tenant);
  const sql = `WITH visible AS MATERIALIZED (${selectVisible(search, args, owner)})
    SELECT b.name, COUNT(*) AS documents, MAX(length(c.embedding)) / 4 AS dimensions
    FROM visible AS v CROSS JOIN knowledge_chunks AS c ON ${ofVisible(owner)} AND c.ordinal = 0
      CROSS JOIN knowledge_bases AS b ON b.id = v.base AND b.tenant = ${owner}
    WHERE v.base IN ${args.list(bases)} AND length(c.embedding) IS NOT ${args.bind(vector.byteLength)}
    GROUP BY b.id, b.name ORDER BY b.name`;
  return { sql, args: args.values };
}

/** Every visible chunk is measured: nothing is found approximately, and nobody else's rows take a place. */
function selectByVector(list: VectorList, { args, owner, most }: ListParts): string {
  const { vector } = list;
  const bytes = new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength);
  return `SELECT id, ${args.bind(list.weight)}, ROW_NUMBER() OVER (ORDER BY distance, id), 1 - distance, NULL FROM (
      SELECT c.id, vector_distance_cos(c.embedding, vector32(${args.bind(bytes)})) AS distance
      FROM visible AS v CROSS JOIN knowledge_chunks AS c
        ON ${ofVisible(owner)}
      WHERE v.base IN ${args.list(list.bases)} AND length(c.embedding) = ${args.bind(bytes.byteLength)}
      ORDER BY distance NULLS LAST, c.id LIMIT ${most})
    WHERE distance <= ${args.bind(1 - list.minSimilarity)}`;
}

/** The index gives its entries in order of their rank, so those that are not visible are left out before the limit. */
function selectByText(list: Extract<SearchList, { kind: "full_text" }>, { args, owner, most }: ListParts): string {
  return `SELECT id, ${args.bind(list.weight)}, ROW_NUMBER() OVER (ORDER BY rank, id), NULL, -rank FROM (
      SELECT c.id, f.rank AS rank
      FROM knowledge_fts AS f CROSS JOIN knowledge_chunks AS c ON c.id = f.rowid AND c.tenant = ${owner}
        CROSS JOIN visible AS v ON v.base = c.knowledge_base AND v.document = c.document
          AND v.version = c.document_version AND v.index_version = c.index_version
      WHERE f.knowledge_fts MATCH (SELECT COALESCE('scope : (' || group_concat('"' || ${scope} || '"', ' OR ') || ') AND text : (' || ${args.bind(list.match)} || ')', '""')
          FROM knowledge_bases AS b WHERE b.tenant = ${owner} AND b.id IN ${args.list(list.bases)})
        AND f.rank MATCH 'bm25(0.0, 1.0)'
      ORDER BY f.rank LIMIT ${most})`;
}

function toBase(_base: unknown, row: Row): SearchableBase {
  return {
    id: String(row["id"]),
    name: String(row["name"]),
    config: toConfig("config", String(row["config"])),
    chunks: Number(row["chunks"]),
  };
}

function toUnlike(row: Row, asked: number): UnlikeVectors {
  const dimensions = row["dimensions"];
  return {
    knowledgeBase: String(row["name"]),
    documents: Number(row["documents"]),
    dimensions: dimensions === null ? null : Number(dimensions),
    asked,
  };
}

function toHit(_document: unknown, row: Row): FoundChunk {
  const text = (name: string): string => String(row[name]);
  const number = (name: string): number => Number(row[name]);
  const measure = (name: string): number | null => (row[name] === null ? null : number(name));
  return {
    id: number("chunk"),
    knowledgeBase: text("knowledge_base"),
    knowledgeBaseName: text("knowledge_base_name"),
    document: text("id"),
    documentName: text("document_name"),
    documentVersion: number("document_version"),
    sourceUrl: row["source_url"] === null ? null : text("source_url"),
    metadata: toMetadata(text("metadata")),
    ordinal: number("ordinal"),
    spanStart: number("span_start"),
    spanEnd: number("span_end"),
    heading: text("heading"),
    text: text("text"),
    score: number("score"),
    similarity: measure("similarity"),
    relevance: measure("relevance"),
  };
}
