/** `analyze_data`: SQL over files of tables in the session's workspace (NATIVE-2). */
import * as z from "zod";
import { tableFormats, textEncodings } from "../../ports/data-tables.ts";
import { defineNativeTool } from "./native-tool.ts";

const input = () =>
  z.strictObject({
    files: z
      .array(z.string().min(1).max(1_024))
      .min(1)
      .max(16)
      .describe("Workspace files: CSV, XLSX, JSON or NDJSON, by path."),
    sql: z
      .string()
      .min(1)
      .max(65_536)
      .optional()
      .describe(
        "One SELECT in SQLite's dialect. A file is a table by its name without extension (a sheet: file_sheet). Absent: tables, columns and first rows are described.",
      ),
    describe: z
      .boolean()
      .default(false)
      .describe("Also count what is in each column: nulls, distinct values, range, mean."),
    limit: z.int().min(1).max(10_000).default(100).describe("Rows of the answer."),
    format: z.enum(tableFormats).optional().describe("Of the files; absent: by their names."),
    delimiter: z
      .string()
      .length(1)
      .refine((text) => !/["\r\n]/.test(text), "must not be a quote or the end of a line")
      .optional()
      .describe("Of CSV; absent: found out."),
    encoding: z.enum(textEncodings).optional().describe("Of text; absent: found out."),
    header: z.boolean().optional().describe("Does the first row name the columns? Absent: found out."),
  });
export type AnalyzeDataInput = z.output<ReturnType<typeof input>>;

export const analyzeData = defineNativeTool({
  name: "analyze_data",
  className: "DataAnalysisTool",
  title: "Analyze data",
  description:
    "Answers SQL (SQLite, SELECT only) over CSV, XLSX, JSON and NDJSON files of the session's workspace, also large ones; without SQL it describes their tables and columns.",
  input,
  effect: "read",
  repeat: "natural",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async (asked, run) => (await import("./data/analyze.ts")).analyze(asked, run),
});
