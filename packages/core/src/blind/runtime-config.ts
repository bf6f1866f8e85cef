/** Plugins and credentials sent with the request by a trusted caller instead of being stored (BLIND-7). */
import * as z from "zod";
import { describedBy } from "../described-by.ts";
import { pluginDefinitionSchema } from "./definition.ts";

export const runtimeConfigSchema = z.strictObject({
  plugins: z.array(pluginDefinitionSchema).max(128).default([]),
  credentials: z.record(z.string(), z.string()).default({}),
});
export type RuntimeConfig = z.infer<typeof runtimeConfigSchema>;

/**
 * The field in a request's body: described as what it is, and let through for `parseRuntimeConfig`, which
 * also checks what a schema cannot say.
 */
export const runtimeConfigField = z
  .unknown()
  .optional()
  .meta({
    ...describedBy(() => runtimeConfigSchema),
    description: "Plugins and credentials for this request only, never stored; scope `runtime_config`.",
  });
