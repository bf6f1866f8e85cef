/**
 * Tenants' and users' secrets, sealed (blind-execution specification, "sys_user_credential"; BLIND-5).
 * `sealed` opens only with the AAD made from this row, so a value copied to another row stays shut.
 */
import { integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const sysUserCredential = sqliteTable(
  "sys_user_credential",
  {
    credentialId: integer("credential_id").primaryKey({ autoIncrement: true }),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    /** Empty for the tenant's own value: a null would escape the unique index. */
    userId: text("user_id").notNull().default(""),
    version: integer("version").notNull(),
    /** JWE, see core/secrets/sealer.ts. */
    sealed: text("sealed").notNull(),
    lastUsedAt: time("last_used_at"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [uniqueIndex("sys_user_credential_tenant_name_user").on(table.tenant, table.name, table.userId)],
);
