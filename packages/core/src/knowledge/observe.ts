/**
 * What is retrieved, for clients of the type `RAGObserver` (VCP specification 6): which documents a query met and how
 * well, never what they say. Like all that is about a call, it is for those who may see the calls of who asked.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { publish } from "../realtime/publish.ts";
import type { KnowledgeQuery, SearchResult } from "./query.ts";

const mostHits = 50;
const longestName = 200;
const longestQuery = 2_000;

export interface Retrieval {
  readonly query: Pick<KnowledgeQuery, "query" | "within">;
  readonly bases: readonly string[];
  readonly result: SearchResult;
}

/** Never throws: what was found is found, whether anybody is told or not. */
export async function tellObservers(core: CoreDeps, context: CallContext, retrieval: Retrieval): Promise<void> {
  const { tenant, caller, redactor } = context;
  const { within } = retrieval.query;
  const frame = frameOf(retrieval, context.traceId, (text) => redactor.redact(text));
  try {
    const heard = await publish(core, tenant, [
      {
        type: "RAG_RETRIEVAL_DETAILS",
        audience: { kind: "client_type", value: "RAGObserver" },
        data: frame,
        bare: true,
        callerId: caller.id,
        ...(within === undefined ? {} : { callId: within }),
      },
    ]);
    if (heard > 0) await core.tellNow();
  } catch (thrown) {
    core.log.log("warn", "observers were not told of a retrieval", { tenant, code: toGatewayError(thrown).code });
  }
}

function frameOf({ query, bases, result }: Retrieval, traceId: string, redact: (text: string) => string): JsonObject {
  const { mode, reason, hits } = result;
  return {
    type: "RAG_RETRIEVAL_DETAILS",
    trace_id: traceId,
    query: redact(query.query).slice(0, longestQuery),
    knowledge_bases: bases.slice(0, mostHits),
    mode,
    ...(reason === null ? {} : { reason: reason.code }),
    count: hits.length,
    results: hits.slice(0, mostHits).map((hit) => ({
      knowledge_base: hit.knowledge_base,
      document_id: hit.document_id.slice(0, longestName),
      document_name: hit.document_name.slice(0, longestName),
      chunk_id: hit.chunk_id,
      start: hit.start,
      end: hit.end,
      score: hit.score,
    })),
  };
}
