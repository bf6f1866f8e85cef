/** Flows that every tenant has from the start; one of the tenant's own with the same name takes its place. One line each. */
import deepSearch from "./deep_search.json" with { type: "json" };
import knowledgeRag from "./knowledge_rag.json" with { type: "json" };

export const shippedFlows = { knowledge_rag: knowledgeRag, deep_search: deepSearch } as const;
