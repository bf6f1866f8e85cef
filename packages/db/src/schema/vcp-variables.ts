/** What placeholders in prompts stand for (VCP specification 11; VCP-19). */
import { variableKinds, variableOptionsSchema, type VariableKind } from "@toolyard/core/vcp/placeholders/variable";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

const kinds = Object.keys(variableKinds) as [VariableKind, ...VariableKind[]];

export const vcpVariables = sqliteTable(
  "vcp_variables",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    kind: text("kind", { enum: kinds }).notNull(),
    name: text("name").notNull(),
    options: json("options", variableOptionsSchema).notNull(),
    position: integer("position").notNull(),
    /** SHA-256 of the content, by which instances know what they have read. */
    hash: text("hash").notNull(),
    bytes: integer("bytes").notNull(),
    content: text("content").notNull(),
    version: integer("version").notNull().default(1),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("vcp_variables_tenant_kind_name").on(table.tenant, table.kind, table.name),
    index("vcp_variables_tenant_id").on(table.tenant, table.id),
  ],
);
