/** Plugins and credentials sent with the request by a trusted caller instead of being stored (BLIND-7). */
import * as z from "zod";
import { pluginDefinitionSchema } from "./definition.ts";

export const runtimeConfigSchema = z.strictObject({
  plugins: z.array(pluginDefinitionSchema).max(128).default([]),
  credentials: z.record(z.string(), z.string()).default({}),
});
export type RuntimeConfig = z.infer<typeof runtimeConfigSchema>;
