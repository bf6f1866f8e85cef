/** The sections of `npm run bench:vcp`, one line each. */
import type { Finding } from "../support/report.ts";
import { measurePlaceholders } from "./placeholders.ts";
import { measureScanner } from "./scanner.ts";
import { measureStdio } from "./stdio.ts";

export const sections = {
  scanner: measureScanner,
  placeholders: measurePlaceholders,
  stdio: measureStdio,
} as const satisfies Readonly<Record<string, () => readonly Finding[] | Promise<readonly Finding[]>>>;

export type SectionName = keyof typeof sections;
