/**
 * The native tools, by name. One line for a new one; listing, the adapter and the mirror in
 * `sys_ai_plugin` follow (NATIVE-1).
 */
import type { NewPlugin } from "../../ports/plugins.ts";
import { analyzeData } from "./analyze-data.ts";
import { deepSearch } from "./deep-search.ts";
import { deleteFile } from "./delete-file.ts";
import { fetchUrl } from "./fetch.ts";
import { knowledgeSearch } from "./knowledge-search.ts";
import { listFiles } from "./list-files.ts";
import type { NativeTool } from "./native-tool.ts";
import { readFile } from "./read-file.ts";
import { readResult } from "./read-result.ts";
import { runCode } from "./run-code.ts";
import { writeFile } from "./write-file.ts";

export const nativeTools = {
  analyze_data: analyzeData,
  deep_search: deepSearch,
  delete_file: deleteFile,
  fetch: fetchUrl,
  knowledge_search: knowledgeSearch,
  list_files: listFiles,
  read_file: readFile,
  read_result: readResult,
  run_code: runCode,
  write_file: writeFile,
} as const satisfies Record<string, NativeTool>;

export function nativeTool(name: string): NativeTool | undefined {
  return Object.hasOwn(nativeTools, name) ? nativeTools[name as keyof typeof nativeTools] : undefined;
}

/** Rows of `sys_ai_plugin` for the migration step to write. */
export function nativePlugins(): NewPlugin[] {
  return Object.values(nativeTools).map((tool) => ({
    name: tool.name,
    title: tool.title,
    description: tool.description,
    iconUrl: null,
    type: "NATIVE",
    parameterSchema: tool.parameters,
    executionConfig: { class_name: tool.className },
    enabled: true,
    requiredCredentials: [],
    sensitive: false,
    roles: [],
    hash: tool.hash,
  }));
}
