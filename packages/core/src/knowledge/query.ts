/** What is asked of knowledge bases, and what is found. */
import type { FoundChunk } from "../ports/knowledge-search.ts";
import type { EmbedOptions } from "./embed.ts";
import type { KnowledgeFilter, SearchMode } from "./filter.ts";

export interface KnowledgeQuery extends EmbedOptions {
  /** Names or ids; `all`: whatever the tenant has. */
  readonly knowledgeBases: readonly string[] | "all";
  /** Bases that are not there are none; else they are refused. */
  readonly isOptional?: boolean | undefined;
  readonly query: string;
  /** Absent: as the bases say. */
  readonly topK?: number | undefined;
  /** `auto`: hybrid where that is possible. */
  readonly mode?: SearchMode | undefined;
  readonly filter?: KnowledgeFilter | undefined;
  readonly documents?: readonly string[] | undefined;
}

/** Where a text stands, and what it says. */
export interface SearchHit {
  readonly knowledge_base: string;
  readonly document_id: string;
  readonly document_name: string;
  readonly chunk_id: string;
  /** UTF-16 offsets in the extracted text. */
  readonly start: number;
  readonly end: number;
  /** Headings above it, outermost first, joined by ` › `. */
  readonly heading: string;
  readonly text: string;
  /** From 0 to 1, of this search only: the first of every list has 1. */
  readonly score: number;
  readonly similarity: number | null;
  readonly source_url: string | null;
  readonly metadata: FoundChunk["metadata"];
}

export interface SearchResult {
  readonly mode: Exclude<SearchMode, "auto">;
  /** Why words alone were searched, in all bases or some of them. */
  readonly reason: { readonly code: string; readonly message: string } | null;
  readonly hits: readonly SearchHit[];
}
