/** Tenants. `config_version` rises with every write that changes what a request may see. */
import { sqliteTable, text, integer } from "drizzle-orm/sqlite-core";
import { nowMs, time } from "../columns.ts";

export const tenants = sqliteTable("tenants", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  status: text("status", { enum: ["active", "suspended"] })
    .notNull()
    .default("active"),
  configVersion: integer("config_version").notNull().default(1),
  /** JSON of the settings that differ from the defaults; read by settings.ts, key by key. */
  settings: text("settings").notNull().default("{}"),
  /** The tenant's data key, wrapped by the key vault. */
  wrappedKey: text("wrapped_key").notNull(),
  /** Shard that holds the tenant's rows; null: the default one. */
  shard: text("shard"),
  /** Who applies a document of its configuration just now, and until when nobody else may; null: nobody has. */
  applier: text("applier"),
  applyUntil: integer("apply_until"),
  createdAt: time("created_at").notNull().default(nowMs),
});
