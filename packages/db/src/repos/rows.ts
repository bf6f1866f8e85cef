/**
 * What all repositories do with rows: pages, and decoding that lets one broken row fail alone. A row is
 * broken where a column does not hold what its schema says, for example after a write by other software.
 */
import { and, asc, desc, gt, lt, sql, type InferSelectModel, type SQL } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { schemaProblems } from "@toolyard/core/errors/schema-problems";
import type { Page, PageRequest, UnreadableItem } from "@toolyard/core/ports/page";
import * as z from "zod";
import type { Statement, StatementResult } from "../database.ts";
import { tenants } from "../schema/tenants.ts";
import { BrokenColumn, build, decodeRow, statement } from "../sql.ts";

export interface BrokenRow {
  readonly table: string;
  readonly tenant: string;
  /** As its tenant knows it, or the setting's name for a setting. */
  readonly id: string;
  /** By which its tenant knows it. */
  readonly name?: string;
  /** Columns and what is wrong with them; no values. */
  readonly reason: string;
}
export type OnBrokenRow = (row: BrokenRow) => void;

export type Row = StatementResult["rows"][number];

/** A table as its repository reads it. */
export interface Reader<T extends SQLiteTable, R> {
  readonly table: T;
  readonly tableName: string;
  /** Primary key column. */
  readonly key: SQLiteColumn;
  /** Of ids, where that is a number: `plg`. */
  readonly prefix?: string;
  /** @param row with what was read beside the table's columns */
  readonly toRecord: (record: InferSelectModel<T>, row: Row) => R;
  readonly onBrokenRow: OnBrokenRow;
}

/** @throws GatewayError `internal_error` for a broken row */
export function readFirst<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  result: StatementResult | undefined,
): R | undefined {
  const row = result?.rows[0];
  return row === undefined ? undefined : readRow(reader, row);
}

/** Rows that are one thing together, which without one of them would be another. @throws GatewayError, likewise */
export function readWhole<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  result: StatementResult | undefined,
): readonly R[] {
  return (result?.rows ?? []).map((row) => readRow(reader, row));
}

function readRow<T extends SQLiteTable, R>(reader: Reader<T, R>, row: Row): R {
  try {
    return reader.toRecord(decodeRow(reader.table, row), row);
  } catch (error) {
    const broken = describeBroken(reader, row, error);
    throw new GatewayError(
      "internal_error",
      `Row '${broken.id}' of table ${broken.table} cannot be read (${broken.reason}); ${mayBeNewer}, else delete it and write it anew.`,
      { cause: error },
    );
  }
}

const mayBeNewer = "a newer release may have written it";

/** A sentence about what is left out, for its tenant. */
export function unreadableMessage({ reason }: BrokenRow): string {
  return `It cannot be read: ${reason}; ${mayBeNewer}.`;
}

/** The row that a write gives back; that there is none is a fault of ours. */
export function readWritten<T extends SQLiteTable, R>(reader: Reader<T, R>, result: StatementResult | undefined): R {
  const record = readFirst(reader, result);
  if (record === undefined) throw new Error(`A write to ${reader.tableName} gave no row back.`);
  return record;
}

/** All that can be read; the rest is reported and left out. */
export function readAll<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  result: StatementResult | undefined,
): readonly R[] {
  return readRows(reader, result?.rows ?? []).data;
}

/** @param result one row more than the page holds, where there is one. What cannot be read is named in the page. */
export function readPage<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  result: StatementResult | undefined,
  { limit }: PageRequest,
): Page<R> {
  const rows = result?.rows ?? [];
  return { ...readRows(reader, rows.slice(0, limit)), hasMore: rows.length > limit };
}

/** One row more than the page holds is asked for, to know whether there is more. */
export function selectPage<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  where: SQL | undefined,
  { limit, order, after }: { readonly limit: number; readonly order: "asc" | "desc"; readonly after?: string | number },
): Statement {
  const { key, table } = reader;
  const beyond = after === undefined ? undefined : order === "asc" ? gt(key, after) : lt(key, after);
  return statement(
    build
      .select()
      .from(table)
      .where(and(where, beyond))
      .orderBy(order === "asc" ? asc(key) : desc(key))
      .limit(limit + 1),
  );
}

/** The number in `{prefix}_{number}`, where a page starts. */
export function pageAfterNumber(
  page: PageRequest,
  prefix: string,
): { readonly limit: number; readonly order: "asc" | "desc"; readonly after?: number } {
  const { after, ...rest } = page;
  if (after === undefined) return rest;
  const digits = new RegExp(`^${prefix}_(\\d{1,15})$`).exec(after)?.[1];
  if (digits === undefined) {
    throw new GatewayError("invalid_request", `'after' must be an id like '${prefix}_12', as 'last_id' gives it.`, {
      param: "after",
    });
  }
  return { ...rest, after: Number(digits) };
}

/**
 * Raises the tenant's configuration version if the statement just before it, in the same batch, changed
 * something.
 */
export function raiseConfigVersion(tenant: string): Statement {
  const changed = sql`${tenants.id} = ${tenant} AND changes() > 0`;
  return statement(
    build
      .update(tenants)
      .set({ configVersion: sql`${tenants.configVersion} + 1` })
      .where(changed),
  );
}

/** What can be read, and what is wrong with the rest, which is reported as well. */
export function readRows<T extends SQLiteTable, R>(
  reader: Reader<T, R>,
  rows: readonly Row[],
): Pick<Page<R>, "data" | "unreadable"> {
  const data: R[] = [];
  const unreadable: UnreadableItem[] = [];
  for (const [at, row] of rows.entries()) {
    try {
      data.push(reader.toRecord(decodeRow(reader.table, row), row));
    } catch (error) {
      const broken = describeBroken(reader, row, error);
      reader.onBrokenRow(broken);
      unreadable.push({ id: broken.id, message: unreadableMessage(broken), at });
    }
  }
  return { data, ...(unreadable.length === 0 ? {} : { unreadable }) };
}

function describeBroken<T extends SQLiteTable, R>(reader: Reader<T, R>, row: Row, error: unknown): BrokenRow {
  const name = nameIn(row, "name");
  const id = nameIn(row, reader.key.name);
  return {
    table: reader.tableName,
    tenant: nameIn(row, "tenant"),
    id: reader.prefix === undefined ? id : `${reader.prefix}_${id}`,
    ...(name === "" ? {} : { name }),
    reason: reasonOf(error),
  };
}

function nameIn(row: Row, column: string): string {
  const value = row[column];
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

/** Of values nothing is said: they may be secrets, and the parser's own text quotes them. */
function reasonOf(error: unknown, at: readonly string[] = []): string {
  if (error instanceof BrokenColumn) return reasonOf(error.cause, [error.column]);
  if (error instanceof z.ZodError) {
    return schemaProblems(error)
      .map(({ path, says }) => `'${[...at, ...path].join(".")}' ${says}`.slice(0, 200))
      .join("; ");
  }
  const what = at.length === 0 ? "a column" : `'${at.join(".")}'`;
  return error instanceof SyntaxError ? `${what} holds no JSON` : `${what} holds a value of another kind`;
}

/** @param what the kind of thing, for example `variable` */
export function otherVersion(what: string, version: number, expected: number | undefined): GatewayError {
  return new GatewayError(
    "version_conflict",
    `The ${what} has version ${version} by now, not ${expected ?? "another"}; read it again and repeat the change.`,
    { param: "version", extra: { version } },
  );
}
