/**
 * A tool service: a configured back end behind a scheme, `scheme://service-id/…` (tool management
 * specification, "工具服务配置管理"; CFG-1 to CFG-4). Part of the tenant's snapshot, so a change reaches
 * every instance with its next request and a call in flight keeps what it started with.
 */
import * as z from "zod";
import { isJsonObject, type JsonObject } from "../json.ts";
import type { ToolScheme } from "../tools/uri.ts";

/** What stands between `//` and the next `/` of a tool URI; case counts. */
export const serviceIdSchema = z
  .string()
  .regex(
    /^[\p{L}\p{N}][\p{L}\p{N}._-]{0,63}$/u,
    "must be 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
  );

const jsonObject = z.custom<JsonObject>(isJsonObject, "must be a JSON object");

/** What a back end claims of a tool's effect; believed only where the service's configuration says so. */
const toolHintsSchema = z.strictObject({
  read_only: z.boolean().optional(),
  destructive: z.boolean().optional(),
  idempotent: z.boolean().optional(),
});
export type ToolHints = z.infer<typeof toolHintsSchema>;

/** A hash of each part of a definition: equal ones are the same to a model, others show which part changed. */
const definitionPinSchema = z.record(z.string(), z.string());
export type DefinitionPin = z.infer<typeof definitionPinSchema>;

/** A tool as its back end describes it, kept so that listing and chat need not ask again. */
export const discoveredToolSchema = z.strictObject({
  id: z.string().min(1),
  title: z.string().optional(),
  description: z.string(),
  parameters: jsonObject,
  /** Schema of structured results, where the back end gives one. */
  outputSchema: jsonObject.optional(),
  effect: z.enum(["read", "write"]),
  repeat: z.enum(["never", "natural", "key"]).optional(),
  hints: toolHintsSchema.optional(),
});
export type DiscoveredTool = z.infer<typeof discoveredToolSchema>;

export const discoveredSchema = z.strictObject({
  tools: z.array(discoveredToolSchema),
  /** Epoch milliseconds. */
  at: z.number(),
  /** What was left out, for people. */
  warnings: z.array(z.string()).optional(),
  /**
   * By tool id: the definition that was accepted, of tools that are gone too, so that none comes back as
   * another. A tool whose definition is not the accepted one is quarantined.
   */
  pins: z.record(z.string(), definitionPinSchema).optional(),
});
export type Discovered = z.infer<typeof discoveredSchema>;

export interface ToolService {
  /** `svc_…` */
  readonly id: string;
  readonly scheme: ToolScheme;
  /** Unique within tenant and scheme. */
  readonly serviceId: string;
  readonly displayName: string | null;
  readonly description: string | null;
  /** As the scheme's schema has made it; secrets are references to credentials. */
  readonly config: JsonObject;
  readonly enabled: boolean;
  /** Counts changes of what is configured; held connections end with their version. */
  readonly version: number;
  /** Null: never asked for, or the scheme's tools are all configured. */
  readonly discovered: Discovered | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export type NewToolService = Omit<ToolService, "version" | "discovered" | "createdAt" | "updatedAt">;

export type ToolServiceChange = Partial<Pick<ToolService, "displayName" | "description" | "config" | "enabled">>;
