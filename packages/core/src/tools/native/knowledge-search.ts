/**
 * `knowledge_search`: passages of the tenant's knowledge bases that the caller may read (NATIVE-2, KB-3). What they say
 * was written by others, so it counts as content from outside.
 */
import * as z from "zod";
import { knowledgeFilterSchema, searchModes } from "../../knowledge/filter.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Caller } from "../../callers/caller.ts";
import { answered, defineNativeTool, jsonReply } from "./native-tool.ts";

export const knowledgeSearch = defineNativeTool({
  name: "knowledge_search",
  className: "KnowledgeSearchTool",
  title: "Search knowledge",
  description:
    "Searches the knowledge bases for passages about something. Cite a passage by its 'cite', for example [1], and name its document.",
  input: () =>
    z.strictObject({
      query: z.string().min(1).max(8_000).describe("What to look for: a question, or words."),
      knowledge_bases: z
        .array(z.string().min(1).max(128))
        .min(1)
        .max(16)
        .optional()
        .describe("Names of knowledge bases; absent: all of them."),
      top_k: z.int().min(1).max(50).optional().describe("Passages at most; absent: as the bases are configured."),
      mode: z.enum(searchModes).default("auto").describe("By meaning, by words, or both."),
      filter: knowledgeFilterSchema.optional(),
    }),
  effect: "read",
  repeat: "natural",
  outputTrust: "outside",
  needsNoSession: true,
  invoke: async (asked, { deps, call, context }) => {
    const { searchKnowledge } = await import("../../knowledge/search.ts");
    const { mode, reason, hits } = await answered(
      searchKnowledge(deps, context, {
        ...basesFor(context.caller, asked.knowledge_bases),
        query: asked.query,
        topK: asked.top_k,
        mode: asked.mode,
        filter: asked.filter,
        within: call.id,
        signal: context.signal,
      }),
    );
    return jsonReply({
      mode,
      ...(reason === null ? {} : { reason }),
      passages: hits.map((hit, at) => ({ cite: `[${at + 1}]`, ...hit, metadata: { ...hit.metadata } })),
    });
  },
});

/** An agent searches the bases that it is bound to, where it is bound to some. */
function basesFor(
  { bound }: Caller,
  asked: readonly string[] | undefined,
): { readonly knowledgeBases: readonly string[] | "all"; readonly isOptional?: boolean } {
  const own = bound?.knowledge ?? [];
  if (own.length === 0) return { knowledgeBases: asked ?? "all" };
  if (asked === undefined) return { knowledgeBases: own, isOptional: true };
  const other = asked.find((name) => !own.includes(name));
  if (other === undefined) return { knowledgeBases: asked };
  throw new GatewayError(
    "tool_not_bound",
    `'${other}' is none of the knowledge bases of agent '${bound?.path.at(-1) ?? ""}'; it has ${own.join(", ")}.`,
    { param: "knowledge_bases" },
  );
}
