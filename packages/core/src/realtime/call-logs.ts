/**
 * Log lines about a call, for connections that listen to logs. Lines pass on to the log as ever; those that
 * name a tenant to whose logs somebody listens, and a call, are gathered and published. Only fields named
 * here go out: what is for the operator's eyes stays with the operator.
 */
import type { JsonObject } from "../json.ts";
import type { Log, LogFields, LogLevel } from "../ports/log.ts";
import type { Listening } from "./listening.ts";
import type { Publication } from "./publish.ts";

const shown = ["tool", "attempt", "code", "reason", "status", "duration_ms", "provider", "model", "count"] as const;
/** Lines kept while they cannot be written; more are dropped, oldest first. */
const mostLines = 500;

export interface CallLogsOptions {
  readonly log: Log;
  readonly listening: Listening;
  readonly write: (tenant: string, lines: readonly Publication[]) => Promise<unknown>;
  /** Called with the first line that waits. */
  readonly onLine?: () => void;
}

export class CallLogs implements Log {
  readonly #options: CallLogsOptions;
  #waiting: { readonly tenant: string; readonly line: Publication }[] = [];

  constructor(options: CallLogsOptions) {
    this.#options = options;
  }

  log(level: LogLevel, message: string, fields: LogFields = {}): void {
    const { log, listening, onLine } = this.#options;
    log.log(level, message, fields);
    const { tenant, call_id: callId } = fields;
    if (typeof tenant !== "string" || typeof callId !== "string" || !listening.hearsLogs(tenant)) return;
    this.#waiting.push({ tenant, line: toLine(level, message, { ...fields, call_id: callId }) });
    if (this.#waiting.length > mostLines) this.#waiting.shift();
    if (this.#waiting.length === 1) onLine?.();
  }

  /** Writes what waits. A line that cannot be written is lost; the log itself has it. */
  async flush(): Promise<void> {
    const waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    const byTenant = Map.groupBy(waiting, ({ tenant }) => tenant);
    await Promise.all(
      [...byTenant].map(async ([tenant, lines]) => {
        try {
          await this.#options.write(
            tenant,
            lines.map(({ line }) => line),
          );
        } catch {
          this.#options.log.log("warn", "log lines for connections were not written", { count: lines.length });
        }
      }),
    );
  }
}

function toLine(level: LogLevel, message: string, fields: LogFields & { readonly call_id: string }): Publication {
  const { call_id: callId, caller, session } = fields;
  const data: JsonObject = { call_id: callId, level, message };
  for (const name of shown) {
    const value = fields[name];
    if (typeof value === "string" || typeof value === "number") data[name] = value;
  }
  return {
    type: "call.log",
    audience: { kind: "logs" },
    data,
    callId,
    ...(typeof caller === "string" ? { callerId: caller } : {}),
    ...(typeof session === "string" ? { sessionId: session } : {}),
  };
}
