/** Model back ends of a tenant. */
import { integer, sqliteTable, text, uniqueIndex, index } from "drizzle-orm/sqlite-core";
import { schemaFamilies } from "@toolyard/core/tools/schema-projection";
import * as z from "zod";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

export const providers = sqliteTable(
  "providers",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    kind: text("kind").notNull(),
    baseUrl: text("base_url").notNull(),
    /** Name of the credential with the key; null: the back end asks for none. */
    credential: text("credential"),
    models: json("models", z.record(z.string(), z.string())).notNull(),
    passthroughModels: flag("passthrough_models").notNull(),
    /** Null: as the names of its models say. */
    schemaFamily: text("schema_family", { enum: schemaFamilies }),
    priority: integer("priority").notNull(),
    enabled: flag("enabled").notNull(),
    maxAttempts: integer("max_attempts").notNull(),
    timeoutMs: integer("timeout_ms").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("providers_tenant_name").on(table.tenant, table.name),
    index("providers_tenant_id").on(table.tenant, table.id),
  ],
);
