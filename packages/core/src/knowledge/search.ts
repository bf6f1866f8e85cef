/**
 * Searching knowledge bases (KB-1, KB-3): by meaning and by words, fused into one list. Where there are no vectors,
 * for whatever reason, words alone are searched, and the answer says so and why.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { FoundChunk, SearchableBase, SearchList, UnlikeVectors } from "../ports/knowledge-search.ts";
import { readerOf } from "./config.ts";
import { embedTexts } from "./embed.ts";
import { toConditions } from "./filter.ts";
import { toFtsQuery } from "./fts-text.ts";
import { tellObservers } from "./observe.ts";
import type { KnowledgeQuery, SearchHit, SearchResult } from "./query.ts";

const fewestCandidates = 40;

const candidatesPerHit = 4;

/** A search of bases that are there. */
export interface OpenedSearch {
  readonly names: readonly string[];
  /**
   * @throws GatewayError where the mode asks for vectors, why there are none: `embedding_missing`,
   * `embedding_mismatch`, `knowledge_too_large`, or what the model's back end came to; `concurrency_limited`
   */
  run(): Promise<SearchResult>;
}

/** @throws GatewayError `not_found` for a base that the tenant does not have */
export async function openSearch(core: CoreDeps, context: CallContext, query: KnowledgeQuery): Promise<OpenedSearch> {
  const { bases, isObserved } = await core.repos.knowledgeSearch.find(context.tenant, query.knowledgeBases);
  const missing = missingBase(query.knowledgeBases, bases);
  if (missing !== undefined && query.isOptional !== true) throw missing;
  const names = bases.map(({ name }) => name);
  return {
    names,
    run: async () => {
      const result = await searchBases(core, context, query, bases);
      if (isObserved) await tellObservers(core, context, { query, bases: names, result });
      return result;
    },
  };
}

/** @throws GatewayError as `openSearch` and its `run` */
export async function searchKnowledge(
  core: CoreDeps,
  context: CallContext,
  query: KnowledgeQuery,
): Promise<SearchResult> {
  return (await openSearch(core, context, query)).run();
}

async function searchBases(
  core: CoreDeps,
  context: CallContext,
  query: KnowledgeQuery,
  bases: readonly SearchableBase[],
): Promise<SearchResult> {
  const plan = await planLists(core, context, query, bases);
  const limit = query.topK ?? Math.max(1, ...bases.map(({ config }) => config.top_k));
  const { hits, unlike } = await core.repos.knowledgeSearch.search(context.tenant, {
    bases: bases.map(({ id }) => id),
    reader: readerOf(context.caller),
    conditions: toConditions(query.filter ?? {}),
    documents: query.documents,
    lists: plan.lists,
    candidates: Math.max(fewestCandidates, limit * candidatesPerHit),
    limit,
    signal: query.signal,
  });
  const mismatch = unlike.map(toMismatch)[0];
  if (mismatch !== undefined && query.mode !== undefined && query.mode !== "auto") throw mismatch;
  const wasCompared = mismatch === undefined || hits.some(({ similarity }) => similarity !== null);
  return {
    mode: wasCompared ? modeOf(plan.lists) : "full_text",
    reason: plan.reason ?? toReason(mismatch),
    hits: hits.map(toHit),
  };
}

function missingBase(
  asked: KnowledgeQuery["knowledgeBases"],
  bases: readonly SearchableBase[],
): GatewayError | undefined {
  if (asked === "all") return undefined;
  const known = new Set(bases.flatMap(({ id, name }) => [id, name]));
  const missing = asked.find((name) => !known.has(name));
  if (missing === undefined) return undefined;
  return new GatewayError(
    "not_found",
    `There is no knowledge base '${missing}'; POST /v1/knowledge/list tells which there are, POST /v1/knowledge/create makes one.`,
    { param: "knowledge_base" },
  );
}

interface Plan {
  readonly lists: readonly SearchList[];
  readonly reason: SearchResult["reason"];
}

async function planLists(
  core: CoreDeps,
  context: CallContext,
  query: KnowledgeQuery,
  bases: readonly SearchableBase[],
): Promise<Plan> {
  const { mode = "auto" } = query;
  const weights = weightsOf(bases);
  const match = mode === "vector" ? undefined : toFtsQuery(query.query);
  const words: readonly SearchList[] =
    match === undefined
      ? []
      : [{ kind: "full_text", bases: bases.map(({ id }) => id), match, weight: weights.full_text }];
  if (bases.length === 0) return { lists: words, reason: toReason(missingBase(query.knowledgeBases, bases)) };
  if (mode === "full_text") return { lists: words, reason: null };
  const vectors = await vectorLists(core, context, query, { bases, weight: weights.vector });
  if (vectors.failure !== undefined && mode !== "auto") throw vectors.failure;
  return { lists: [...vectors.lists, ...words], reason: toReason(vectors.failure) };
}

/** One list for all bases whose vectors can be compared with the same one. `failure`: why some base is on none. */
async function vectorLists(
  core: CoreDeps,
  context: CallContext,
  { query, within, signal }: KnowledgeQuery,
  { bases, weight }: { readonly bases: readonly SearchableBase[]; readonly weight: number },
): Promise<{ readonly lists: readonly SearchList[]; readonly failure: GatewayError | undefined }> {
  const most = context.config.settings.knowledge_vector_chunks;
  const reasons = bases.map((base) => whyNoVectors(base, most));
  let failure = reasons.find((error) => error !== undefined);
  const able = bases.filter((_, at) => reasons[at] === undefined);
  const groups = Map.groupBy(able, ({ config: { embedding, min_score: least } }) =>
    JSON.stringify([embedding.model, embedding.dimensions, least]),
  );
  const lists: SearchList[] = [];
  for (const group of groups.values()) {
    const [first] = group;
    if (first === undefined) continue;
    try {
      const [vector] = await embedTexts(core, context, { ...first, within, signal }, [query]);
      if (vector === undefined) continue;
      const minSimilarity = first.config.min_score;
      lists.push({ kind: "vector", bases: group.map(({ id }) => id), vector, minSimilarity, weight });
    } catch (thrown) {
      if (signal?.aborted === true) throw thrown;
      failure = toGatewayError(thrown);
    }
  }
  return { lists, failure };
}

function whyNoVectors({ name, config, chunks }: SearchableBase, most: number): GatewayError | undefined {
  if (config.embedding.model === null) {
    return new GatewayError(
      "embedding_missing",
      `Knowledge base '${name}' has no embedding model, so only words are searched; set 'embedding.model' with POST /v1/knowledge/update_config.`,
      { param: "embedding.model" },
    );
  }
  if (chunks <= most) return undefined;
  return new GatewayError(
    "knowledge_too_large",
    `Knowledge base '${name}' has ${chunks} chunks, and vectors are searched in bases of at most ${most} (setting 'knowledge_vector_chunks'); divide its documents among several bases, raise 'chunk.size' or that setting. Full text has no such limit.`,
    { param: "mode", extra: { chunks, limit: most } },
  );
}

function toMismatch({ knowledgeBase, documents, dimensions, asked }: UnlikeVectors): GatewayError {
  const [theirs, remedy] =
    dimensions === null
      ? ["no vectors", "have them ingested again with POST /v1/knowledge/retry_doc"]
      : [
          `vectors of other than the ${asked} dimensions that the embedding model makes now (up to ${dimensions})`,
          `set 'embedding.dimensions' to ${asked}, or another 'embedding.model', with POST /v1/knowledge/update_config, and all documents are embedded anew`,
        ];
  return new GatewayError(
    "embedding_mismatch",
    `In knowledge base '${knowledgeBase}', ${documents} document(s) have ${theirs}, so they are found by words alone; ${remedy}.`,
    { param: "embedding", extra: { documents, dimensions, expected: asked } },
  );
}

function toReason(failure: GatewayError | undefined): SearchResult["reason"] {
  return failure === undefined ? null : { code: failure.code, message: failure.message };
}

/** Those of the bases where they agree. */
function weightsOf(bases: readonly SearchableBase[]): SearchableBase["config"]["weights"] {
  const [first, ...others] = bases.map(({ config }) => config.weights);
  const agree = others.every(({ vector, full_text: words }) => vector === first?.vector && words === first.full_text);
  return first !== undefined && agree ? first : { vector: 1, full_text: 1 };
}

function modeOf(lists: readonly SearchList[]): SearchResult["mode"] {
  const hasVectors = lists.some(({ kind }) => kind === "vector");
  if (!hasVectors) return "full_text";
  return lists.some(({ kind }) => kind === "full_text") ? "hybrid" : "vector";
}

function toHit(chunk: FoundChunk): SearchHit {
  return {
    knowledge_base: chunk.knowledgeBaseName,
    document_id: chunk.document,
    document_name: chunk.documentName,
    chunk_id: String(chunk.id),
    start: chunk.spanStart,
    end: chunk.spanEnd,
    heading: chunk.heading,
    text: chunk.text,
    score: round(chunk.score),
    similarity: chunk.similarity === null ? null : round(chunk.similarity),
    source_url: chunk.sourceUrl,
    metadata: chunk.metadata,
  };
}

function round(value: number): number {
  return Math.round(value * 1e6) / 1e6;
}
