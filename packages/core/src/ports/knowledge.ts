/** Persistence of knowledge bases. Rules as in repos.ts. Contract: test/contract/knowledge-repo.ts. */

export const documentStates = ["queued", "extracting", "chunking", "embedding", "ready", "failed"] as const;
export type DocumentState = (typeof documentStates)[number];
