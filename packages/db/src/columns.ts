/**
 * Column kinds shared by all tables. JSON columns are written as text and read through their zod
 * schema, so that a row made by other code is noticed when it is read, not when it is used.
 */
import { sql, type SQL } from "drizzle-orm";
import {
  customType,
  integer,
  text,
  type ConvertCustomConfig,
  type SQLiteBooleanBuilderInitial,
  type SQLiteCustomColumnBuilder,
  type SQLiteIntegerBuilderInitial,
  type SQLiteTextBuilderInitial,
} from "drizzle-orm/sqlite-core";
import type * as z from "zod";

/** Epoch milliseconds of the database's own clock: the one clock that all instances share. */
export const nowMs: SQL<number> = sql<number>`(cast(unixepoch('subsec') * 1000 as integer))`;

/** A moment as epoch milliseconds. */
export function time<Name extends string>(name: Name): SQLiteIntegerBuilderInitial<Name> {
  return integer(name, { mode: "number" });
}

/** 0 or 1. */
export function flag<Name extends string>(name: Name): SQLiteBooleanBuilderInitial<Name> {
  return integer(name, { mode: "boolean" });
}

/** Owner of the row. Every table with this column is emptied of a tenant's rows by `erase`. */
export function tenantColumn(): SQLiteTextBuilderInitial<"tenant", [string, ...string[]], undefined> {
  return text("tenant");
}

/**
 * JSON text, parsed by `schema` on reading; a function makes the schema when a value is first read.
 * @throws ZodError on reading a value that the schema refuses, SyntaxError for text that is no JSON
 */
export function json<Schema extends z.ZodType>(
  name: string,
  schema: Schema | (() => Schema),
): SQLiteCustomColumnBuilder<ConvertCustomConfig<string, { data: z.output<Schema>; driverData: string }>> {
  return customType<{ data: z.output<Schema>; driverData: string }>({
    dataType: () => "text",
    toDriver: (value) => JSON.stringify(value),
    fromDriver: (value) => (typeof schema === "function" ? schema() : schema).parse(JSON.parse(value)),
  })(name);
}

/** Text that `schema` checks on reading. @throws ZodError on reading what it refuses */
export function checked<Schema extends z.ZodType<string>>(
  name: string,
  schema: Schema,
): SQLiteCustomColumnBuilder<ConvertCustomConfig<string, { data: string; driverData: string }>> {
  return customType<{ data: string; driverData: string }>({
    dataType: () => "text",
    fromDriver: (value) => schema.parse(value),
  })(name);
}
