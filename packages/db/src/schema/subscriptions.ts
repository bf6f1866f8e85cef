/** Subscriptions to topics of message services (MQ-3). */
import { subscriptionOptionsSchema, targetSchema } from "@toolyard/core/subscriptions/subscription";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

export const subscriptions = sqliteTable(
  "subscriptions",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    description: text("description"),
    serviceId: text("service_id").notNull(),
    topic: text("topic").notNull(),
    target: json("target", targetSchema).notNull(),
    options: json("options", subscriptionOptionsSchema).notNull(),
    enabled: flag("enabled").notNull(),
    role: text("role", { enum: ["admin", "member"] }).notNull(),
    version: integer("version").notNull().default(1),
    accepted: integer("accepted").notNull().default(0),
    duplicates: integer("duplicates").notNull().default(0),
    refused: integer("refused").notNull().default(0),
    dead: integer("dead").notNull().default(0),
    dropped: integer("dropped").notNull().default(0),
    lastMessageAt: time("last_message_at"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("subscriptions_tenant_name").on(table.tenant, table.name),
    index("subscriptions_tenant_id").on(table.tenant, table.id),
  ],
);
