/** Begins a run: its row, then a message; any worker takes it (FLOW-2). */
import { enqueue } from "../../calls/enqueue.ts";
import { newToolCall, type CallPlace } from "../../calls/new-call.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { loadScheme } from "../../tools/catalog.ts";
import { toErrorDetails } from "../../tools/outcome.ts";
import { prepareCall, type PreparedCall } from "../../tools/prepare.ts";
import { formatToolUri } from "../../tools/uri.ts";

export interface NewRun {
  readonly name: string;
  /** Absent: the latest published. */
  readonly version?: number | undefined;
  readonly input: JsonObject;
  readonly place: CallPlace;
  /** The caller's, on the place's route: the same key is the same run. */
  readonly idempotencyKey?: string | undefined;
}

/**
 * @returns the run's id, which is its call's; on record once this returns
 * @throws GatewayError `flow_not_found`, `tool_not_found`, `permission_denied`, `invalid_arguments`, `service_disabled`;
 * `idempotency_key_reused`
 */
export async function startFlow(
  deps: CoreDeps,
  context: CallContext,
  run: NewRun,
): Promise<{ readonly callId: string; readonly replayed: boolean }> {
  const call = await prepareRun(deps, context, run);
  const row = await newToolCall(deps, context, call, {
    ...run.place,
    state: "queued",
    async: true,
    slots: 1,
    delivery: "none",
    ...(run.idempotencyKey === undefined ? {} : { idempotencyKey: run.idempotencyKey }),
  });
  const [recorded] = await deps.repos.calls.record(context.tenant, context.caller.id, [row]);
  if (recorded?.kind === "existing") {
    if (recorded.call.inputHash === row.inputHash) return { callId: recorded.call.id, replayed: true };
    throw keyReused();
  }
  deps.reach("async.recorded");
  await enqueue(deps, { tenant: context.tenant, callId: row.id, expectedMs: call.timeoutMs });
  deps.reach("async.queued");
  return { callId: row.id, replayed: false };
}

export function keyReused(): GatewayError {
  return new GatewayError(
    "idempotency_key_reused",
    "This Idempotency-Key was used for another request; take a new key.",
    { param: "Idempotency-Key" },
  );
}

/** @throws GatewayError whatever keeps the flow from being run */
async function prepareRun(
  deps: CoreDeps,
  context: CallContext,
  { name, version, input }: Pick<NewRun, "name" | "version" | "input">,
): Promise<PreparedCall> {
  await loadScheme(deps.adapters, "flow://");
  const target = `${formatToolUri("flow", name)}${version === undefined ? "" : `?version=${version}`}`;
  const prepared = prepareCall(
    deps.adapters,
    context,
    { target, isUri: true, arguments: input },
    { hasReadOutside: false },
  );
  if (prepared.kind !== "refused") return prepared.call;
  const { code, message, details } = prepared.outcome;
  throw new GatewayError(code, message, { toolName: name, ...toErrorDetails(details) });
}
