/**
 * Processes of asynchronous plugins that have answered and work on. Nobody waits for them; where this process sees
 * one end badly, its call need not look as if it were under way until its time is over.
 */
import { recordEnd } from "../../calls/record-end.ts";
import type { Call } from "../../calls/call.ts";
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import type { CallAttempt } from "../../ports/vcp-callbacks.ts";
import { quote } from "../plugins/outcome.ts";

type EndDeps = Pick<AdapterDeps, "repos" | "blobs" | "queue" | "log" | "tellNow">;

export interface WorkingPlugin {
  readonly plugin: string;
  readonly attempt: CallAttempt;
  readonly run: Promise<PluginExit>;
  readonly stop: () => void;
}

/** Of this process, by call. */
const working = new Map<string, () => void>();

export function letWorkOn(deps: EndDeps, context: CallContext, { plugin, attempt, run, stop }: WorkingPlugin): void {
  const { callId } = attempt;
  const about = { tenant: context.tenant, plugin, call_id: callId };
  working.set(callId, stop);
  run
    .then((exit) => endBadly(deps, context, { plugin, attempt, exit }))
    .catch((thrown: unknown) => {
      const { code } = toGatewayError(thrown);
      deps.log.log("warn", "nothing is known of an asynchronous plugin after its answer", { ...about, code });
    })
    .finally(() => working.delete(callId));
}

/** A callback that comes all the same ends the call as ever. */
async function endBadly(
  deps: EndDeps,
  { tenant, redactor }: CallContext,
  { plugin, attempt, exit }: Pick<WorkingPlugin, "plugin" | "attempt"> & { readonly exit: PluginExit },
): Promise<void> {
  const { ended, exitCode } = exit;
  if (ended === "aborted" || (ended === "exit" && exitCode === 0)) return;
  const { callId: id } = attempt;
  const reason = quote(exit.stderr, redactor);
  deps.log.log("warn", "an asynchronous plugin ended badly after its answer", {
    tenant,
    plugin,
    call_id: id,
    ended,
    exit: exitCode,
    reason,
  });
  const how = ended === "timeout" ? "was stopped at its time limit" : `ended with code ${exitCode}`;
  const complained = reason === "" ? "" : ` Stderr: ${reason}`;
  const message = `'${plugin}' has answered first, and ${how} before it said what came of it; a callback would still be taken.${complained}`;
  const parentId = (await deps.repos.calls.get(tenant, id))?.parentId ?? null;
  const row = { tenant, id, attempt: attempt.attempt, repeat: "never", parentId } as const;
  await recordEnd(deps, row, { state: "unknown", error: { code: "outcome_unknown", message } });
  await deps.tellNow();
}

/** A call whose plugin has answered is held by nobody: it ends here. A process elsewhere works on unheard. */
export async function stopWorkingOn(deps: EndDeps, call: Call): Promise<Call> {
  const { tenant, id, attempt, repeat, parentId } = call;
  if (!(await deps.repos.vcpCallbacks.isAnswered(tenant, id))) return call;
  working.get(id)?.();
  const message = `'${call.tool}' was cancelled after its first answer; what it has begun elsewhere may go on.`;
  const finish = { state: "cancelled", error: { code: "call_cancelled", message } } as const;
  await recordEnd(deps, { tenant, id, attempt, repeat, parentId }, finish);
  return (await deps.repos.calls.get(tenant, id)) ?? call;
}
