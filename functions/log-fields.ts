/**
 * What a log line may hold. Only fields named here are written, so that a field with something private in it
 * cannot slip in by being passed along; which ones were left out is said by name.
 */
import type { LogFields } from "@toolyard/core/ports/log";

const allowed = new Set([
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
]);
const longestValue = 2_000;

export function choose(fields: LogFields): Record<string, unknown> {
  const chosen: Record<string, unknown> = {};
  const left: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    if (!allowed.has(name)) left.push(name);
    else chosen[name] = typeof value === "string" ? value.slice(0, longestValue) : value;
  }
  return left.length === 0 ? chosen : { ...chosen, fields_left_out: left };
}
