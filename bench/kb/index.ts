/** The sections of `npm run bench:kb`, one line each. */
import type { Finding } from "../support/report.ts";
import { measureFullText } from "./full-text.ts";
import { measureRecall } from "./recall.ts";
import { measureVectors } from "./vectors.ts";

export const sections = {
  recall: measureRecall,
  vectors: measureVectors,
  "full-text": measureFullText,
} as const satisfies Readonly<Record<string, () => Promise<readonly Finding[]>>>;

export type SectionName = keyof typeof sections;
