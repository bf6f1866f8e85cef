/** Databases that hold tenants' rows (design "Tenants, callers, secrets"). Read in the directory only. */
import { sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, time } from "../columns.ts";

export const shards = sqliteTable("shards", {
  id: text("id").primaryKey(),
  /** Null: the database that this row is in. */
  url: text("url"),
  createdAt: time("created_at").notNull().default(nowMs),
});
