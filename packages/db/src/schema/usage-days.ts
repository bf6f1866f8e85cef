/**
 * Sums over calls that have ended, by UTC day, caller, user, model and tool; written by the meter
 * (migration `meter`) as a call's row ends. They outlive the calls.
 */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const usageDays = sqliteTable(
  "usage_days",
  {
    tenant: tenantColumn().notNull(),
    /** Start of the day. */
    day: time("day").notNull(),
    callerId: text("caller_id").notNull(),
    /** Empty: none. */
    userId: text("user_id").notNull(),
    /** Of a chat; empty for a tool call. */
    model: text("model").notNull(),
    /** Of a tool call; empty for a chat. */
    tool: text("tool").notNull(),
    calls: integer("calls").notNull(),
    tokens: integer("tokens").notNull(),
    promptTokens: integer("prompt_tokens").notNull(),
    completionTokens: integer("completion_tokens").notNull(),
    cachedTokens: integer("cached_tokens").notNull(),
    micros: integer("micros").notNull(),
    contextTokens: integer("context_tokens").notNull(),
    contextMicros: integer("context_micros").notNull(),
    estimatedCalls: integer("estimated_calls").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.day, table.callerId, table.userId, table.model, table.tool] }),
  ],
);
