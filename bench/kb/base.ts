/** A knowledge base in a file of its own, filled at once, and searched as the product does it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { usualConfig } from "@toolyard/core/knowledge/config";
import { ftsScope } from "@toolyard/core/knowledge/fts-scope";
import { toFtsQuery, toFtsText } from "@toolyard/core/knowledge/fts-text";
import type { FoundChunk, KnowledgeSearchRepo, SearchList } from "@toolyard/core/ports/knowledge-search";
import { openDatabase } from "@toolyard/db/client";
import type { Statement } from "@toolyard/db/database";
import { migrate } from "@toolyard/db/migrate";
import { createRepos } from "@toolyard/db/repos/index";
import { openShards } from "@toolyard/db/shards";

export interface Chunk {
  readonly id: string;
  readonly text: string;
  readonly vector?: Float32Array;
}

export interface Base {
  readonly path: string;
  search(lists: readonly SearchList[], limit?: number): Promise<readonly FoundChunk[]>;
  close(): Promise<void>;
}

const tenant = "ten_bench";
const base = "kb_bench";
const atOnce = 500;
/** As many as a document of some pages has. */
const chunksPerDocument = 100;

export const byVector = (vector: Float32Array): SearchList => ({
  kind: "vector",
  bases: [base],
  vector,
  minSimilarity: -1,
  weight: 1,
});

export const byWords = (query: string): SearchList => ({
  kind: "full_text",
  bases: [base],
  match: toFtsQuery(query) ?? '""',
  weight: 1,
});

export async function openBase(chunks: Iterable<Chunk>): Promise<Base> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-kb-"));
  const path = join(directory, "bench.db");
  const database = await openDatabase({ url: `file:${path}`, budgetMs: 60_000 });
  await migrate(database);
  const shards = await openShards(database, (url) => openDatabase({ url }));
  const searches: KnowledgeSearchRepo = createRepos(shards).knowledgeSearch;
  await database.batch([
    {
      sql: "INSERT INTO knowledge_bases (id, tenant, name, config) VALUES (?1, ?2, 'bench', ?3)",
      args: [base, tenant, JSON.stringify(usualConfig)],
    },
  ]);
  let statements: Statement[] = [];
  let at = 0;
  for (const chunk of chunks) {
    at += 1;
    statements.push(...toStatements(chunk, at));
    if (at % atOnce !== 0) continue;
    await database.batch(statements);
    statements = [];
  }
  if (statements.length > 0) await database.batch(statements);
  return {
    path,
    search: async (lists, limit = 10) => {
      const { hits } = await searches.search(tenant, {
        bases: [base],
        reader: { all: false, role: "member", user: null, business_unit: null },
        conditions: [],
        lists,
        candidates: 4 * limit,
        limit,
      });
      return hits;
    },
    close: async () => {
      await shards.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

function toStatements({ id, text, vector }: Chunk, at: number): readonly Statement[] {
  const document = `d${Math.floor((at - 1) / chunksPerDocument)}`;
  const isFirst = (at - 1) % chunksPerDocument === 0;
  const bytes = vector === undefined ? null : new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength);
  return [
    ...(isFirst
      ? [
          {
            sql: `INSERT INTO knowledge_documents (tenant, knowledge_base, id, name, version, current_version, state, call_id,
                media_type, bytes, hash, blob_key, metadata) VALUES (?1, ?2, ?3, ?3, 1, 1, 'ready', 'c', 'text/plain', 1, 'h', 'k', '{}')`,
            args: [tenant, base, document],
          },
        ]
      : []),
    {
      sql: `INSERT INTO knowledge_chunks (id, tenant, knowledge_base, document, document_version, index_version, ordinal,
          span_start, span_end, embedding, heading, text) VALUES (?1, ?2, ?3, ?4, 1, 1, ?9, 0, ?5, ?6, ?7, ?8)`,
      args: [at, tenant, base, document, text.length, bytes, id, text, (at - 1) % chunksPerDocument],
    },
    {
      sql: "INSERT INTO knowledge_fts (rowid, scope, text) VALUES (?1, ?2, ?3)",
      args: [at, ftsScope(base, 1), toFtsText(text)],
    },
  ];
}
