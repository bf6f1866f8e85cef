/** Tools as clients of other protocols expect them. Only what a model may know is in it (BLIND-6). */
import type { JsonObject } from "../json.ts";
import { compileTool } from "./compiled.ts";
import type { Tool } from "./tool.ts";

export interface McpTool {
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema?: JsonObject;
  readonly annotations: {
    readonly readOnlyHint: boolean;
    readonly idempotentHint: boolean;
    readonly openWorldHint: boolean;
  };
}

/** An entry of MCP's `tools/list` result. */
export function toMcpTool(tool: Tool): McpTool {
  return {
    name: tool.name,
    ...(tool.title === undefined ? {} : { title: tool.title }),
    description: tool.description,
    inputSchema: { type: "object", ...tool.parameters },
    ...(tool.outputSchema === undefined ? {} : { outputSchema: tool.outputSchema }),
    annotations: {
      readOnlyHint: tool.effect === "read",
      idempotentHint: tool.effect === "read" || tool.repeat !== "never",
      openWorldHint: tool.outputTrust === "outside",
    },
  };
}

export interface ListedTool {
  readonly id: string;
  readonly object: "tool";
  readonly uri: string;
  readonly name: string;
  readonly title: string | null;
  readonly description: string;
  readonly kind: Tool["kind"];
  readonly nodes: readonly string[];
  /** Of a VCP node. */
  readonly isDistributed: boolean;
  readonly serverId: string | null;
  readonly parameters: JsonObject;
  readonly effect: Tool["effect"];
  readonly needs_approval: boolean;
  readonly required_credentials: readonly string[];
  readonly missing_credentials: readonly string[];
  /** The name that models call it by. */
  readonly alias: string;
  /** What telling a model of it takes, estimated. */
  readonly tokens: number;
  readonly warnings: readonly string[];
}

/** For people and pickers: with what is needed to run it. */
export function toListedTool(tool: Tool, missing: readonly string[]): ListedTool {
  const { alias, tokens, warnings } = compileTool(tool);
  return {
    id: tool.name,
    object: "tool",
    uri: tool.uri,
    name: tool.name,
    title: tool.title ?? null,
    description: tool.description,
    kind: tool.kind,
    nodes: tool.nodes ?? [],
    isDistributed: tool.distributed !== undefined,
    serverId: tool.distributed?.serverId ?? null,
    parameters: tool.parameters,
    effect: tool.effect,
    needs_approval: tool.sensitive,
    required_credentials: tool.requiredCredentials,
    missing_credentials: missing,
    alias,
    tokens,
    warnings: warnings(),
  };
}
