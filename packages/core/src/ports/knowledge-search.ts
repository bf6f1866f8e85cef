/** Searching knowledge bases. Rules as in repos.ts. Contract: test/contract/knowledge-search-repo.ts. */
import type { KnowledgeConfig, KnowledgeReader } from "../knowledge/config.ts";
import type { MetadataValue } from "./knowledge.ts";

/** A base as a search has to know it. */
export interface SearchableBase {
  readonly id: string;
  readonly name: string;
  readonly config: KnowledgeConfig;
  /** That are searched, of all its documents. */
  readonly chunks: number;
}

export interface SearchableBases {
  /** In order of their names. */
  readonly bases: readonly SearchableBase[];
  /** Somebody watches what is retrieved: a client of the type `RAGObserver` is connected. */
  readonly isObserved: boolean;
}

export type ComparedValue = string | number | boolean;

/** Of a value that documents have among their metadata. One of another type fits none. */
export type MetadataCondition =
  | { readonly key: string; readonly is: "eq" | "ne"; readonly value: ComparedValue }
  | { readonly key: string; readonly is: "gt" | "gte" | "lt" | "lte"; readonly value: string | number }
  | { readonly key: string; readonly is: "in"; readonly values: readonly ComparedValue[] };

/** Chunks in order of how near they are to the query, by one measure. */
export type SearchList =
  | {
      readonly kind: "vector";
      readonly bases: readonly string[];
      readonly vector: Float32Array;
      /** Cosine similarity that a chunk must have. */
      readonly minSimilarity: number;
      readonly weight: number;
    }
  /** `match`: see knowledge/fts-text.ts. */
  | {
      readonly kind: "full_text";
      readonly bases: readonly string[];
      readonly match: string;
      readonly weight: number;
    };

export interface KnowledgeSearch {
  readonly bases: readonly string[];
  readonly reader: KnowledgeReader;
  /** All of them have to be met. */
  readonly conditions: readonly MetadataCondition[];
  /** Of these alone. */
  readonly documents?: readonly string[] | undefined;
  readonly lists: readonly SearchList[];
  /** Of each list that are looked at. */
  readonly candidates: number;
  readonly limit: number;
  /** Nobody waits any more. */
  readonly signal?: AbortSignal | undefined;
}

export interface FoundChunk {
  readonly id: number;
  readonly knowledgeBase: string;
  readonly knowledgeBaseName: string;
  readonly document: string;
  readonly documentName: string;
  readonly documentVersion: number;
  readonly sourceUrl: string | null;
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  readonly ordinal: number;
  readonly spanStart: number;
  readonly spanEnd: number;
  readonly heading: string;
  readonly text: string;
  /** 1 where it is the first of every list. */
  readonly score: number;
  /** Of its vector to the query's, by the cosine; null: it is on no list of vectors. */
  readonly similarity: number | null;
  /** BM25, higher is better; null: it is on no list of full text. */
  readonly relevance: number | null;
}

/** Documents of a base on a list of vectors that have none of the query's size, so that they cannot be on it. */
export interface UnlikeVectors {
  /** The base's name. */
  readonly knowledgeBase: string;
  readonly documents: number;
  /** That the largest of theirs have; null: they have no vectors. */
  readonly dimensions: number | null;
  /** Of the query's vector. */
  readonly asked: number;
}

export interface KnowledgeFound {
  readonly hits: readonly FoundChunk[];
  /** Among what the reader may see and the conditions let through. */
  readonly unlike: readonly UnlikeVectors[];
}

export interface KnowledgeSearchRepo {
  /** Those that there are. @param names ids or names */
  find(tenant: string, names: readonly string[] | "all"): Promise<SearchableBases>;
  /**
   * The best of all lists, by reciprocal rank fusion. What the reader may not see, what is not current and what the
   * conditions leave out is on no list. Searches of different tenants take turns where one is made after the other.
   * @throws GatewayError `concurrency_limited` where too many of the tenant's wait, `call_cancelled`
   */
  search(tenant: string, search: KnowledgeSearch): Promise<KnowledgeFound>;
}
