/** Which knowledge a chat draws on: as its request says, else as the tenant has set. */
import * as z from "zod";
import { knowledgeFilterSchema, searchModes } from "./filter.ts";

const baseName = z.string().min(1).max(128);
const bases = z.array(baseName).min(1).max(16);

const searchSchema = z.strictObject({
  knowledge_bases: bases,
  top_k: z.int().min(1).max(50).optional(),
  mode: z.enum(searchModes).optional(),
  filter: knowledgeFilterSchema.optional(),
});

/** Of a chat request. */
export const knowledgeField = z
  .union([z.literal(false), baseName.transform((name) => [name]), bases, searchSchema])
  .optional()
  .describe(
    "Knowledge bases, by name or id, whose passages about the last user message are given to the model; `false`: none, whatever the tenant has set.",
  );

export interface AskedKnowledge {
  readonly knowledgeBases: readonly string[];
  readonly topK?: number | undefined;
  readonly mode?: z.output<typeof searchSchema>["mode"];
  readonly filter?: z.output<typeof searchSchema>["filter"];
  /** A base that is not there is no fault of the request. */
  readonly isOptional: boolean;
}

/** `undefined`: none. */
export function knowledgeOf(
  asked: z.output<typeof knowledgeField>,
  usual: readonly string[],
): AskedKnowledge | undefined {
  if (asked === false || (asked === undefined && usual.length === 0)) return undefined;
  if (asked === undefined) return { knowledgeBases: usual, isOptional: true };
  if (Array.isArray(asked)) return { knowledgeBases: asked, isOptional: false };
  const { knowledge_bases: knowledgeBases, top_k: topK, mode, filter } = asked;
  return { knowledgeBases, topK, mode, filter, isOptional: false };
}
