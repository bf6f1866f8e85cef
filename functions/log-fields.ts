/**
 * What a log line may hold. Only fields named here are written, so that a field with something private in it
 * cannot slip in by being passed along; which ones were left out is said by name.
 */
import type { LogFields } from "@toolyard/core/ports/log";

const allowed = new Set([
  "at",
  "attempt",
  "call",
  "call_id",
  "caller",
  "check",
  "code",
  "count",
  "duration_ms",
  "error",
  "host",
  "key_id",
  "message_id",
  "method",
  "model",
  "node",
  "plugin",
  "port",
  "provider",
  "queue",
  "reason",
  "receives",
  "request_id",
  "route",
  "row",
  "session",
  "signal",
  "status",
  "subscription",
  "table",
  "tenant",
  "tool",
  "trace_id",
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
