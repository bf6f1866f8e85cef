/** API keys: only a hash is kept, and what the key may do. Read by `admit` with every request. */
import { integer, sqliteTable, text, uniqueIndex, index } from "drizzle-orm/sqlite-core";
import { scopes } from "@toolyard/core/callers/caller";
import { knownValues } from "@toolyard/core/known-values";
import * as z from "zod";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const apiKeys = sqliteTable(
  "api_keys",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    /** Hex SHA-256 of the whole key. */
    hash: text("hash").notNull(),
    name: text("name").notNull(),
    role: text("role", { enum: ["admin", "member"] }).notNull(),
    scopes: json("scopes", knownValues(scopes)).notNull(),
    /** Tool-name patterns; null: all enabled tools. */
    tools: json("tools", z.array(z.string())),
    userId: text("user_id"),
    businessUnit: text("business_unit"),
    requestsPerMinute: integer("requests_per_minute"),
    concurrentRequests: integer("concurrent_requests"),
    hint: text("hint").notNull(),
    expiresAt: time("expires_at"),
    revokedAt: time("revoked_at"),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [uniqueIndex("api_keys_hash").on(table.hash), index("api_keys_tenant_id").on(table.tenant, table.id)],
);
