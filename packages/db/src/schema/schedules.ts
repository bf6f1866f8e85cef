/**
 * Tool calls for later and again (VCP-18). What became of their firings is written by triggers on `calls`, in the
 * transaction that ends one (migration `schedules`).
 */
import { callStates } from "@toolyard/core/calls/call";
import { callerSchema } from "@toolyard/core/realtime/connection";
import { misfirePolicies } from "@toolyard/core/schedules/plan";
import { deliverSchema } from "@toolyard/core/schedules/schedule";
import { timingSchema, zoneSchema } from "@toolyard/core/schedules/timeline";
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import * as z from "zod";
import { checked, flag, json, nowMs, tenantColumn, time } from "../columns.ts";

const givenSchema = z.object({ field: z.enum(["at", "delay_ms", "cron", "rate"]), value: z.string() });
const errorSchema = z.object({ code: z.string(), message: z.string() });

/** Of a row: an expression of the index `schedules_session`, to be asked for in these words. */
export const deliveredSession = "deliver ->> '$.session_id'";

export const schedules = sqliteTable(
  "schedules",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name"),
    taskId: text("task_id"),
    given: json("given", givenSchema).notNull(),
    timing: json("timing", timingSchema).notNull(),
    timeZone: checked("time_zone", zoneSchema).notNull(),
    startAt: time("start_at"),
    endAt: time("end_at"),
    misfire: text("misfire", { enum: misfirePolicies }).notNull(),
    target: text("target").notNull(),
    /** JWE. */
    task: text("task").notNull(),
    deliver: json("deliver", deliverSchema).notNull(),
    caller: json("caller", callerSchema).notNull(),
    callerId: text("caller_id").notNull(),
    paused: flag("paused").notNull(),
    /** When it is due; null: never again. */
    nextAt: time("next_at"),
    /** The latest time that a firing is on record for. */
    takenAt: time("taken_at"),
    missedAt: time("missed_at"),
    fired: integer("fired").notNull().default(0),
    lastCallId: text("last_call_id"),
    lastState: text("last_state", { enum: callStates }),
    lastError: json("last_error", errorSchema),
    lastEndedAt: time("last_ended_at"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    index("schedules_tenant").on(table.tenant, table.id),
    index("schedules_tenant_caller").on(table.tenant, table.callerId, table.id),
    uniqueIndex("schedules_tenant_task")
      .on(table.tenant, table.taskId)
      .where(sql`task_id is not null`),
    // All that the tick looks at, once a minute.
    index("schedules_due")
      .on(table.nextAt)
      .where(sql`next_at is not null and paused = 0`),
    // Sessions that may still be delivered to do not expire.
    index("schedules_session")
      .on(table.tenant, sql.raw(deliveredSession))
      .where(sql`next_at is not null`),
    index("schedules_ended")
      .on(table.updatedAt)
      .where(sql`next_at is null`),
  ],
);
