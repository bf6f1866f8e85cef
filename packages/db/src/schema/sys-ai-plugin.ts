/**
 * Plugin definitions (blind-execution specification, "sys_ai_plugin"; BLIND-4). Rows without a tenant
 * are the NATIVE tools of this release, written by migration and the same for everybody.
 */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { authConfigSchema, executionSchema, importSourceSchema } from "@toolyard/core/blind/definition";
import { roleSchema } from "@toolyard/core/callers/caller";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import * as z from "zod";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

const parameterSchema = z.custom<JsonObject>(isJsonObject, "must be a JSON object");

const executionConfigSchema = z.union([
  z.strictObject({
    schema_version: z.literal("v1"),
    /** Definitions written by other software call the address `url`. */
    execution: z.preprocess(urlAsBaseUrl, executionSchema),
    auth_config: authConfigSchema.optional(),
    source: importSourceSchema.optional(),
  }),
  z.strictObject({ class_name: z.string().min(1) }),
  z.strictObject({
    schema_version: z.literal("v1"),
    vcp: z.strictObject({
      manifest: z.custom<JsonObject>(isJsonObject, "must be a JSON object"),
      files: z
        .strictObject({
          hash: z.string().regex(/^[0-9a-f]{64}$/),
          bytes: z.int().nonnegative(),
          count: z.int().nonnegative(),
        })
        .nullable(),
      env_keys: z.record(z.string(), z.array(z.string()).readonly()).readonly(),
    }),
  }),
]);

function urlAsBaseUrl(value: unknown): unknown {
  if (!isJsonObject(value) || value["base_url"] !== undefined || value["url"] === undefined) return value;
  const { url, ...rest } = value;
  return { ...rest, base_url: url };
}

/** Word for word what a query has to ask for if it is to be answered from the index of that name. */
export const isEagerPlugin = `type = 'VCP' AND status = '0' AND json_valid(execution_config)
  AND execution_config ->> '$.vcp.manifest.pluginType' = 'static' AND execution_config ->> '$.vcp.manifest.eager' = 1`;

export const sysAiPlugin = sqliteTable(
  "sys_ai_plugin",
  {
    pluginId: integer("plugin_id").primaryKey({ autoIncrement: true }),
    /** Null for NATIVE rows only. */
    tenant: tenantColumn(),
    name: text("name").notNull(),
    title: text("title"),
    description: text("description").notNull(),
    iconUrl: text("icon_url"),
    type: text("type", { enum: ["HTTP", "NATIVE", "MCP", "VCP"] }).notNull(),
    parameterSchema: json("parameter_schema", parameterSchema).notNull(),
    executionConfig: json("execution_config", executionConfigSchema).notNull(),
    /** `0` enabled, `1` disabled. */
    status: text("status", { enum: ["0", "1"] })
      .notNull()
      .default("0"),
    requiredCredentials: json("required_credentials", z.array(z.string())).notNull(),
    sensitive: flag("sensitive").notNull().default(false),
    /** Roles that may use it; empty: every role. */
    roles: json("roles", z.array(roleSchema)).notNull(),
    hash: text("hash").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("sys_ai_plugin_tenant_name").on(table.tenant, table.name),
    // SQLite holds nulls to be different from each other, so global names need an index of their own.
    uniqueIndex("sys_ai_plugin_native_name")
      .on(table.name)
      .where(sql`tenant is null`),
    index("sys_ai_plugin_tenant_id").on(table.tenant, table.pluginId),
    // Of all tenants: the few that are run by schedule without being asked, which the tick looks for every minute.
    index("sys_ai_plugin_eager").on(table.tenant).where(sql.raw(isEagerPlugin)),
  ],
);
