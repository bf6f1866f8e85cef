/**
 * Tables made of files and asked in SQL (NATIVE-2): laid down in a database of the call's own, in a process of its
 * own, and gone with the answer. Memory is bounded however large the files are.
 */
import type { JsonValue } from "../json.ts";

export const tableFormats = ["csv", "json", "ndjson", "xlsx"] as const;
export type TableFormat = (typeof tableFormats)[number];

export const textEncodings = ["utf-8", "gbk", "utf-16le", "utf-16be", "latin1"] as const;
export type TextEncoding = (typeof textEncodings)[number];

export interface TableSource {
  /** Path of the file, for names of tables and for errors. */
  readonly name: string;
  readonly format: TableFormat;
  readonly body: AsyncIterable<Uint8Array>;
}

export interface TableJob {
  readonly sources: readonly TableSource[];
  /** Of CSV; absent: found out. */
  readonly delimiter?: string;
  /** Of CSV and JSON; absent: found out. */
  readonly encoding?: TextEncoding;
  /** Of CSV and XLSX: whether the first row names the columns; absent: found out. */
  readonly header?: boolean;
  /** One statement that reads; absent: the tables are described. */
  readonly sql?: string;
  /** What is in each column is counted as well. */
  readonly describe: boolean;
  readonly maxRows: number;
  /** Of the answer. */
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export interface TableColumn {
  readonly name: string;
  /** What its values are: `integer`, `real`, `date`, `datetime`, `text`, `json`. */
  readonly type: string;
  /** Values that are of another kind, and the line of the first. */
  readonly exceptions?: { readonly count: number; readonly first_line: number };
  readonly stats?: { readonly [name: string]: JsonValue };
}

export interface TableDescription {
  readonly name: string;
  readonly file: string;
  readonly rows: number;
  readonly columns: readonly TableColumn[];
  readonly notes?: readonly string[];
  readonly sample?: readonly (readonly JsonValue[])[];
}

export interface TableAnswer {
  readonly tables: readonly TableDescription[];
  readonly result?: {
    readonly columns: readonly { readonly name: string; readonly type: string }[];
    readonly rows: readonly (readonly JsonValue[])[];
    /** There were more, or they came to too many bytes. */
    readonly truncated: boolean;
  };
}

export interface DataTables {
  /**
   * @throws GatewayError `invalid_arguments` for what the files or the SQL are; `tool_timeout`, `tool_output_too_large`,
   *   `tool_failed` where a limit ended it
   */
  answer(job: TableJob): Promise<TableAnswer>;
}
