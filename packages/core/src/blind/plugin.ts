/** A row of `sys_ai_plugin` (BLIND-4), decoded. */
import type { Role } from "../callers/caller.ts";
import type { JsonObject } from "../json.ts";
import type { VcpExecutionConfig } from "../vcp/plugins/stored-plugin.ts";
import type { AuthConfig, Execution, ImportSource } from "./definition.ts";

export interface ExecutionConfig {
  readonly schema_version: "v1";
  readonly execution: Execution;
  readonly auth_config?: AuthConfig | undefined;
  /** Only of imported plugins. */
  readonly source?: ImportSource | undefined;
}

export interface NativeExecutionConfig {
  readonly class_name: string;
}

export interface PluginRecord {
  /** Integer key of the table; `plg_{id}` on the wire. */
  readonly pluginId: number;
  readonly name: string;
  readonly title: string | null;
  readonly description: string;
  readonly iconUrl: string | null;
  readonly type: "HTTP" | "NATIVE" | "MCP" | "VCP";
  readonly parameterSchema: JsonObject;
  /** `{schema_version, execution, auth_config}` for HTTP, `{schema_version, vcp}` for VCP. */
  readonly executionConfig: ExecutionConfig | NativeExecutionConfig | VcpExecutionConfig;
  readonly enabled: boolean;
  readonly requiredCredentials: readonly string[];
  readonly sensitive: boolean;
  readonly roles: readonly Role[];
  /** SHA-256 of the canonical definition. */
  readonly hash: string;
  readonly createdAt: number;
  readonly updatedAt: number;
}
