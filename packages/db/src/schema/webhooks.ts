/** Addresses of a tenant that hear of its calls. Read by the triggers on `calls` (migration `webhook_events`). */
import { index, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { knownValues } from "@toolyard/core/known-values";
import { webhookEventSchema } from "@toolyard/core/webhooks/webhook";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

export const webhooks = sqliteTable(
  "webhooks",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    url: text("url").notNull(),
    events: json("events", knownValues(webhookEventSchema.options)).notNull(),
    enabled: flag("enabled").notNull(),
    /** Why it was disabled by us; null: by its tenant, or not at all. */
    disabledReason: text("disabled_reason"),
    /** JWE of the secret, see core/secrets/sealer.ts. */
    sealed: text("sealed").notNull(),
    /** The secret before; signs as well until `previous_until`. */
    previousSealed: text("previous_sealed"),
    previousUntil: time("previous_until"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [index("webhooks_tenant_id").on(table.tenant, table.id)],
);
