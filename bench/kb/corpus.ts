/** The corpus as it lies beside this file. */
import { readFileSync } from "node:fs";
import * as z from "zod";

const passageSchema = z.object({
  id: z.string(),
  language: z.enum(["en", "zh"]),
  title: z.string(),
  text: z.string(),
});
const questionSchema = z.object({
  question: z.string(),
  passage: z.string(),
  language: z.enum(["en", "zh"]),
  /** `named`: says what it is about; `described`: only what is known of it; `blurred`: as people mistype it. */
  kind: z.enum(["named", "described", "blurred"]),
});
export type Passage = z.output<typeof passageSchema>;
export type Question = z.output<typeof questionSchema>;

export const readPassages = (): readonly Passage[] => read("corpus.jsonl", passageSchema);
export const readQuestions = (): readonly Question[] => read("questions.jsonl", questionSchema);

function read<Schema extends z.ZodType>(name: string, schema: Schema): readonly z.output<Schema>[] {
  const lines = readFileSync(new URL(name, import.meta.url), "utf8")
    .trimEnd()
    .split("\n");
  return lines.map((line) => schema.parse(JSON.parse(line)));
}
