/** What queries say besides what they look for, as requests and tools write it. */
import * as z from "zod";
import type { MetadataCondition } from "../ports/knowledge-search.ts";

export const searchModes = ["auto", "hybrid", "vector", "full_text"] as const;
export type SearchMode = (typeof searchModes)[number];

const scalar = z.union([z.string().max(1_000), z.number(), z.boolean()]);
const ordered = z.union([z.string().max(1_000), z.number()]);

const comparisonSchema = z
  .strictObject({
    eq: scalar.exactOptional(),
    ne: scalar.exactOptional(),
    gt: ordered.exactOptional(),
    gte: ordered.exactOptional(),
    lt: ordered.exactOptional(),
    lte: ordered.exactOptional(),
    in: z.array(scalar).max(100).exactOptional(),
  })
  .refine((comparison) => Object.keys(comparison).length > 0, "needs one of eq, ne, gt, gte, lt, lte, in");

export const knowledgeFilterSchema = z
  .record(z.string().min(1).max(200), z.union([scalar, comparisonSchema]))
  .refine((filter) => Object.keys(filter).length <= 16, "has at most 16 names")
  .describe(
    "Of the documents' metadata: a name and the value that it must have, or comparisons: eq, ne, gt, gte, lt, lte, in.",
  );
export type KnowledgeFilter = z.output<typeof knowledgeFilterSchema>;

export function toConditions(filter: KnowledgeFilter): readonly MetadataCondition[] {
  return Object.entries(filter).flatMap(([key, wanted]): readonly MetadataCondition[] => {
    if (typeof wanted !== "object") return [{ key, is: "eq", value: wanted }];
    const { eq, ne, gt, gte, lt, lte, in: values } = wanted;
    return [
      ...(eq === undefined ? [] : [{ key, is: "eq", value: eq } as const]),
      ...(ne === undefined ? [] : [{ key, is: "ne", value: ne } as const]),
      ...(gt === undefined ? [] : [{ key, is: "gt", value: gt } as const]),
      ...(gte === undefined ? [] : [{ key, is: "gte", value: gte } as const]),
      ...(lt === undefined ? [] : [{ key, is: "lt", value: lt } as const]),
      ...(lte === undefined ? [] : [{ key, is: "lte", value: lte } as const]),
      ...(values === undefined ? [] : [{ key, is: "in", values } as const]),
    ];
  });
}
