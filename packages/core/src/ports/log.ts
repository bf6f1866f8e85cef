/** Structured log lines. Only named fields are written; values pass the redactor of the call. */
import type { JsonValue } from "../json.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, JsonValue | undefined>>;

export interface Log {
  log(level: LogLevel, message: string, fields?: LogFields): void;
}
