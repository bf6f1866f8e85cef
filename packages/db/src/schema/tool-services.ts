/** Configured back ends behind tool URIs (tool management specification, "工具服务配置管理"; CFG-1). */
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import { discoveredSchema } from "@toolyard/core/services/service";
import * as z from "zod";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

/** Each scheme reads its own; see core/services/scheme.ts. */
const configSchema = z.custom<JsonObject>(isJsonObject, "must be a JSON object");

export const toolServices = sqliteTable(
  "tool_services",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    scheme: text("scheme").notNull(),
    serviceId: text("service_id").notNull(),
    displayName: text("display_name"),
    description: text("description"),
    config: json("config", configSchema).notNull(),
    enabled: flag("enabled").notNull(),
    version: integer("version").notNull().default(1),
    /** What its back end said of its tools; null: never asked. */
    discovered: json("discovered", discoveredSchema),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("tool_services_tenant_scheme_service").on(table.tenant, table.scheme, table.serviceId),
    index("tool_services_tenant_id").on(table.tenant, table.id),
  ],
);
