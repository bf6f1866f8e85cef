/** Calls that a client has made and asks about again, and their results. */
import type { Call } from "../calls/call.ts";
import { openOwnResult, openResult } from "../calls/result-store.ts";
import type { JsonObject } from "../json.ts";
import type { ToolOutcome } from "../tools/outcome.ts";
import { toCallReply } from "./call-reply.ts";
import type { AdmittedExchange } from "./exchange.ts";

/** A tool call of this caller; undefined for what is anybody else's, or nobody's. */
export async function ownCall({ deps, context }: AdmittedExchange, id: string): Promise<Call | undefined> {
  const call = await deps.repos.calls.get(context.tenant, id);
  return call?.kind === "tool" && call.callerId === context.caller.id ? call : undefined;
}

interface Told {
  readonly outcome: ToolOutcome;
  /** Its row, where it has been read. */
  readonly call?: Call;
  /** That the client was given for the tool's results. */
  readonly outputSchema: JsonObject | undefined;
}

export function replyOf(
  { deps, context, peer }: AdmittedExchange,
  callId: string,
  { outcome, call, outputSchema }: Told,
): Promise<JsonObject> {
  return toCallReply(outcome, {
    callId,
    peer,
    outputSchema,
    publicUrl: deps.publicUrl,
    mostText: context.config.settings.result_bytes,
    open: () => (call === undefined ? openOwnResult(deps, context, callId) : openResult(deps, context.tenant, call)),
  });
}
