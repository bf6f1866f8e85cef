/** Queries of knowledge bases (KB-1, KB-3). Found texts are told at once or, as `stream`, in the events of runs. */
import type { CallContext } from "@toolyard/core/context";
import { knowledgeFilterSchema, searchModes } from "@toolyard/core/knowledge/filter";
import { encodeQueryEvent, errorEvent, queryEventSchema, type QueryEvent } from "@toolyard/core/knowledge/query-events";
import type { KnowledgeQuery } from "@toolyard/core/knowledge/query";
import type { OpenedSearch } from "@toolyard/core/knowledge/search";
import * as z from "zod";
import { inEitherSpelling } from "../camel-names.ts";
import { defineRoute } from "../define-route.ts";
import { answerThroughSink, eventStreamHeaders, type ResponseSink } from "../sink.ts";

const baseName = z.string().min(1).max(128);

const queryFields = z.strictObject({
  knowledge_base: baseName.optional().meta({ description: "Name or id; this or `knowledge_bases`." }),
  knowledge_bases: z
    .array(baseName)
    .min(1)
    .max(16)
    .optional()
    .meta({ description: "Several of them, in place of `knowledge_base`." }),
  query: z.string().regex(/\S/, "must not be empty").max(8_000),
  top_k: z.int().min(1).max(100).optional().meta({ description: "Hits at most; else as the base is configured." }),
  mode: z.enum(searchModes).default("auto").meta({
    description:
      "`auto`: by vectors and by words where the base has an embedding model that answers, else by words, which the answer then says.",
  }),
  filter: knowledgeFilterSchema.optional(),
  document_ids: z.array(z.string().min(1).max(256)).min(1).max(100).optional().meta({ description: "Of these alone." }),
  stream: z.boolean().default(false).meta({ description: "Answer with the events of a run." }),
});

const bodySchema = queryFields.refine(
  (body) => (body.knowledge_base === undefined) !== (body.knowledge_bases === undefined),
  { error: "needs either 'knowledge_base' or 'knowledge_bases'", path: ["knowledge_base"] },
);
type QueryBody = z.output<typeof bodySchema>;

const hitSchema = z.object({
  knowledge_base: z.string(),
  document_id: z.string(),
  document_name: z.string(),
  chunk_id: z.string(),
  start: z.int().meta({ description: "UTF-16 offset in the document's extracted text." }),
  end: z.int(),
  heading: z.string().meta({ description: "Headings above it, joined by ` › `." }),
  text: z.string(),
  score: z.number().meta({ description: "Up to 1, which the first of every list has; of this answer only." }),
  similarity: z
    .number()
    .nullable()
    .meta({ description: "Cosine of its vector and the query's; null: found by words alone." }),
  source_url: z.string().nullable(),
  metadata: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
});

const answerSchema = z.object({
  mode: z.enum(["hybrid", "vector", "full_text"]),
  reason: z.object({ code: z.string(), message: z.string() }).optional().meta({
    description: "Why vectors of some or all of the bases were not searched.",
  }),
  hits: z.array(hitSchema),
  trace_id: z.string(),
});

export const queryKnowledge = defineRoute({
  method: "post",
  path: "/v1/knowledge/query",
  summary: "Search knowledge bases",
  description: "By meaning and by words, in what the caller may read. Every hit says where its text stands.",
  tags: ["knowledge"],
  scope: "tools",
  request: { body: inEitherSpelling(bodySchema), exact: ["filter"] },
  responses: {
    200: {
      description: "What was found, the best first.",
      schema: answerSchema,
      content: { "text/event-stream": queryEventSchema },
    },
  },
  isolation: {
    kind: "object",
    arrange: async (owner) => {
      await owner.send("post", "/v1/knowledge/create", { name: "isolated-query" });
      return { params: {}, body: { knowledge_base: "isolated-query", query: "anything" } };
    },
  },
  handler: (c, { core, context, body }) => {
    const { requestId } = c.get("exchange");
    return answerThroughSink(c, async (sink) => {
      const stop = new AbortController();
      sink.onClose((why) => stop.abort(why));
      const { openSearch } = await import("@toolyard/core/knowledge/search");
      const opened = await openSearch(core, context, toQuery(body, stop.signal));
      if (body.stream) await streamSearch(sink, opened, { body, context, requestId });
      else await answerSearch(sink, opened, context);
    });
  },
});

function toQuery(body: QueryBody, signal: AbortSignal): KnowledgeQuery {
  const { knowledge_base: one, knowledge_bases: several = [], query, top_k: topK, mode, filter } = body;
  const knowledgeBases = one === undefined ? several : [one];
  return { knowledgeBases, query, topK, mode, filter, documents: body.document_ids, signal };
}

async function answerSearch(sink: ResponseSink, opened: OpenedSearch, { traceId }: CallContext): Promise<void> {
  const { reason, ...found } = await opened.run();
  const bytes = Buffer.from(JSON.stringify({ ...found, ...(reason === null ? {} : { reason }), trace_id: traceId }));
  sink.head(200, { "content-type": "application/json", "content-length": String(bytes.length) });
  sink.end(bytes);
}

const tool = "knowledge_search";

async function streamSearch(
  sink: ResponseSink,
  opened: OpenedSearch,
  asked: { readonly body: QueryBody; readonly context: CallContext; readonly requestId: string },
): Promise<void> {
  const { body, context, requestId } = asked;
  const tell = async (event: QueryEvent): Promise<void> => sink.write(encodeQueryEvent(event, context.traceId));
  sink.head(200, eventStreamHeaders);
  await tell({ type: "tool_thinking", content: `Searching ${opened.names.join(", ")}.` });
  await tell({
    type: "tool_start",
    tool,
    arguments: { knowledge_bases: [...opened.names], query: body.query, mode: body.mode },
  });
  try {
    const { hits, mode, reason } = await opened.run();
    const found = { mode, ...(reason === null ? {} : { reason }), count: hits.length };
    await tell({ type: "tool_result", tool, success: true, ...found });
    for (const { text, metadata, ...place } of hits) {
      await tell({ type: "message_chunk", content: text, source: { ...place, metadata: { ...metadata } } });
    }
    await tell({ type: "done", ...found });
  } catch (thrown) {
    await tell({ type: "tool_result", tool, success: false });
    await tell(errorEvent(thrown, requestId));
  }
  sink.end();
}
