/**
 * How far a call is, as its back end tells: a line of the log, which connections that listen to the tenant's calls
 * or logs are told (realtime/call-logs.ts). Nothing is stored of it, and nothing waits for it.
 */
import type { Log } from "../ports/log.ts";

export interface CallProgress {
  readonly tenant: string;
  readonly callId: string;
  readonly tool: string;
  readonly callerId: string | undefined;
  readonly sessionId: string | undefined;
  readonly progress: number;
  readonly total: number | undefined;
  /** For people; redacted. */
  readonly message: string | undefined;
}

const longestMessage = 200;

export function tellProgress(log: Log, call: CallProgress): void {
  const { tenant, callId, tool, callerId, sessionId, progress, total, message } = call;
  log.log("debug", "a tool tells how far it is", {
    tenant,
    call_id: callId,
    caller: callerId,
    session: sessionId,
    tool,
    progress,
    total,
    note: message?.slice(0, longestMessage),
  });
}
