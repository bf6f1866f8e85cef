/**
 * Log lines about a call, for connections that listen to logs. Lines pass on to the log as ever; those that
 * name a tenant to whose logs somebody listens, and a call, are gathered and published. Only fields named
 * here go out: what is for the operator's eyes stays with the operator.
 */
import type { JsonObject } from "../json.ts";
import type { Log, LogFields, LogLevel } from "../ports/log.ts";
import type { Listening } from "./listening.ts";
import type { Publication, FrameSink } from "./publication.ts";

const shown = [
  "tool",
  "attempt",
  "code",
  "reason",
  "status",
  "duration_ms",
  "provider",
  "model",
  "count",
  "progress",
  "total",
  "note",
] as const;

/** Lines kept while they cannot be written; more are dropped, oldest first. */
const mostLines = 500;

export interface CallLogsOptions {
  readonly log: Log;
  readonly listening: Listening;
  readonly write: (tenant: string, lines: readonly Publication[]) => Promise<unknown>;
  /** Called with the first line that waits. */
  readonly onLine?: () => void;
}

export class CallLogs implements Log, FrameSink {
  readonly #options: CallLogsOptions;
  #waiting: { readonly tenant: string; readonly line: Publication }[] = [];

  constructor(options: CallLogsOptions) {
    this.#options = options;
  }

  log(level: LogLevel, message: string, fields: LogFields = {}): void {
    const { log, listening, onLine } = this.#options;
    log.log(level, message, fields);
    const { tenant, call_id: callId } = fields;
    if (typeof tenant !== "string" || typeof callId !== "string") return;
    const wasEmpty = this.#waiting.length === 0;
    const named = { ...fields, call_id: callId };
    if (listening.hearsLogs(tenant)) this.#keep(tenant, toLine(level, message, named));
    if (typeof fields["progress"] === "number" && listening.hearsCalls(tenant)) this.#keepLast(tenant, named);
    if (wasEmpty && this.#waiting.length > 0) onLine?.();
  }

  hearsVcp(tenant: string): boolean {
    return this.#options.listening.hearsVcp(tenant);
  }

  tell(tenant: string, publication: Publication): void {
    const wasEmpty = this.#waiting.length === 0;
    this.#keep(tenant, publication);
    if (wasEmpty) this.#options.onLine?.();
  }

  #keep(tenant: string, line: Publication): void {
    this.#waiting.push({ tenant, line });
    if (this.#waiting.length > mostLines) this.#waiting.shift();
  }

  /** Of how far a call is, only the last is worth telling. */
  #keepLast(tenant: string, fields: NamedFields): void {
    const line = toProgress(fields);
    this.#waiting = this.#waiting.filter(
      (waiting) => waiting.line.type !== line.type || waiting.line.callId !== line.callId,
    );
    this.#keep(tenant, line);
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

type NamedFields = LogFields & { readonly call_id: string };

function toLine(level: LogLevel, message: string, fields: NamedFields): Publication {
  const data: JsonObject = { call_id: fields.call_id, level, message };
  for (const name of shown) {
    const value = fields[name];
    if (typeof value === "string" || typeof value === "number") data[name] = value;
  }
  return { type: "call.log", audience: { kind: "logs" }, data, ...whose(fields) };
}

function toProgress(fields: NamedFields): Publication {
  const { call_id: id, tool = null, progress = null, total = null, note = null } = fields;
  const data = { id, object: "call", kind: "tool", state: "running", tool, progress, total, message: note };
  return { type: "call.progress", audience: { kind: "calls" }, data, ...whose(fields) };
}

function whose({
  call_id: callId,
  caller,
  session,
}: NamedFields): Pick<Publication, "callId" | "callerId" | "sessionId"> {
  return {
    callId,
    ...(typeof caller === "string" ? { callerId: caller } : {}),
    ...(typeof session === "string" ? { sessionId: session } : {}),
  };
}
