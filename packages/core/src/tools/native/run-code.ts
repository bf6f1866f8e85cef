/**
 * `run_code`: a program of the model's, in a box without a network, beside the files of the session (NATIVE-2). The
 * work itself is in `code/`, which is read with the first call.
 */
import * as z from "zod";
import { defineNativeTool } from "./native-tool.ts";

const input = () =>
  z.strictObject({
    language: z.enum(["python", "javascript"]).describe("Python 3, or JavaScript for Node.js."),
    code: z
      .string()
      .min(1)
      .max(262_144)
      .describe("The whole program. Print what you want to see; save pictures and other results as files."),
    files: z
      .array(z.string().min(1).max(1_024))
      .max(256)
      .optional()
      .describe("Workspace files that it reads, by path; a directory ends in '/'. Absent: the whole workspace."),
    timeout_ms: z.int().min(100).max(840_000).optional().describe("Milliseconds that it may run; absent: 30000."),
  });
export type RunCodeInput = z.output<ReturnType<typeof input>>;

export const runCode = defineNativeTool({
  name: "run_code",
  className: "CodeSandboxTool",
  title: "Run code",
  description:
    "Runs a Python or JavaScript program in a sandbox without network. The session's files are in its working directory; files that it creates or changes there are kept. Answers with exit code, output, files and pictures.",
  input,
  // Files of the session, and nothing else: the box has no way out.
  effect: "write",
  repeat: "never",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async (asked, run) => (await import("./code/run.ts")).runInBox(asked, run),
});
