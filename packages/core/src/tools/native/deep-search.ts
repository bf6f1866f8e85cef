/**
 * `deep_search`: a question is searched for by several tools, what they find is read, and the answer cites it
 * (NATIVE-2). Model and tools are asked by calls of their own below this one.
 */
import * as z from "zod";
import { defineNativeTool } from "./native-tool.ts";

/** Longer than tools usually take: it is many calls, one after the other. */
const timeoutMs = 240_000;

const input = () =>
  z.strictObject({
    question: z.string().min(1).max(8_000).describe("What is to be found out, as a whole question."),
    sources: z
      .array(z.string().min(1).max(512))
      .min(1)
      .max(8)
      .optional()
      .describe("Tools to search by, by name or URI; absent: those that the tenant has configured."),
    max_rounds: z
      .int()
      .min(1)
      .max(5)
      .default(2)
      .describe("How often to search anew where the findings do not suffice."),
    budget: z
      .strictObject({
        tokens: z.int().min(500).max(1_000_000).default(80_000),
        calls: z.int().min(1).max(200).default(30).describe("Calls of tools, for searching and reading."),
        ms: z.int().min(1_000).max(800_000).optional().describe("Milliseconds; absent: what the call has."),
      })
      .optional()
      .describe("Where it ends at the latest, with what it has until then."),
  });
export type DeepSearchInput = z.output<ReturnType<typeof input>>;

export const deepSearch = defineNativeTool({
  name: "deep_search",
  className: "DeepSearchTool",
  title: "Deep search",
  description:
    "Researches a question: plans queries, searches several sources, reads what they find, searches again where that does not suffice, and answers with citations [1] of sources it has read.",
  input,
  effect: "read",
  repeat: "natural",
  // Whatever it says, others have written it.
  outputTrust: "outside",
  timeoutMs,
  needsNoSession: true,
  invoke: async (asked, run) => (await import("./search/research.ts")).research(asked, run),
});
