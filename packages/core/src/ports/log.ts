/** Structured log lines. Only named fields are written; values pass the redactor of the call. */
import type { JsonValue } from "../json.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

/** What a log line may hold: nothing private can slip in by being passed along under another name. */
export const logFieldNames = [
  "added",
  "archive",
  "at",
  "attempt",
  "attempts",
  "call",
  "call_id",
  "caller",
  "changed",
  "check",
  "code",
  "connection",
  "count",
  "directory",
  "document",
  "duration_ms",
  "ended",
  "error",
  "exit",
  "folder",
  "group_chat",
  "host",
  "instances",
  "issuer",
  "key_id",
  "knowledge_base",
  "message_id",
  "method",
  "model",
  "node",
  "plugin",
  "port",
  "progress",
  "provider",
  "queue",
  "reason",
  "receives",
  "registry",
  "request_id",
  "route",
  "row",
  "schedule",
  "service",
  "session",
  "signal",
  "skipped",
  "source",
  "status",
  "subscription",
  "table",
  "task",
  "tenant",
  "tool",
  "total",
  "trace_id",
  "unchanged",
  "upload",
] as const;

/** What connections that listen hear, and the log does not hold: words of a tool. */
export const spokenFieldNames = ["note"] as const;

type LogFieldName = (typeof logFieldNames)[number] | (typeof spokenFieldNames)[number];

export type LogFields = { readonly [Name in LogFieldName]?: JsonValue | undefined };

export interface Log {
  log(level: LogLevel, message: string, fields?: LogFields): void;
}
