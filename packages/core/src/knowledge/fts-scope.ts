/**
 * The word by which `knowledge_fts` knows the chunks of one index of one base: a search asks for it beside its own
 * words, so that entries of other tenants, bases and indexes are not even read.
 */
export function ftsScope(knowledgeBase: string, indexVersion: number): string {
  return `${knowledgeBase.toLowerCase().replaceAll(/[^a-z0-9]/g, "")}i${indexVersion}`;
}
