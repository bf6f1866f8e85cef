/**
 * `POST /v1/human/tool`: a person writes one request as a model would, and gets the bare result. The first block
 * counts, whatever stands around it; the call is recorded, permitted and limited like any other (VCP-10).
 */
import { identify } from "../../calls/admit.ts";
import { invokeTool, type InvokeRequest, type Invoked } from "../../calls/invoke.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonValue } from "../../json.ts";
import type { ToolOutcome } from "../../tools/outcome.ts";
import { planCall, type PlannedCall } from "./plan-call.ts";
import { readRequest } from "./read-request.ts";
import { resultOf } from "./results.ts";
import type { ToolRequest } from "./tool-request.ts";
import { wholeOf } from "./whole-result.ts";

export type HumanToolRequest = Omit<InvokeRequest, "target" | "isUri" | "arguments" | "async">;

export interface HumanToolAnswer {
  readonly status: 200 | 202 | 400 | 500;
  readonly body: JsonValue;
  /** Undefined where there was nothing to call. */
  readonly invoked?: Invoked;
}

/** @throws GatewayError what keeps anybody from calling: authentication, limits, idempotency */
export async function callByHand(deps: CoreDeps, text: string, request: HumanToolRequest): Promise<HumanToolAnswer> {
  const asked = readRequest(text);
  if (typeof asked === "string") {
    // What is wrong is told to callers only.
    await identify(deps, request, ["tools"]);
    return { status: 400, body: { error: asked } };
  }
  let planned: PlannedCall | undefined;
  const plan = async (context: CallContext): Promise<PlannedCall["item"]> => {
    planned = await planCall(deps, asked, { context, hasSession: request.sessionId !== undefined });
    return planned.item;
  };
  try {
    const invoked = await invokeTool(deps, {
      ...request,
      target: plan,
      arguments: asked.args,
      async: false,
      route: "human.tool",
    });
    const { outcome, context } = invoked;
    const whole = await wholeOf(deps, context, { outcome, isWanted: true });
    return { ...answerOf(deps, { asked, planned, outcome, whole }), invoked };
  } catch (error) {
    // Refused, and on record: what kept the call from running is its answer.
    if (!(error instanceof GatewayError) || error.details.extra?.["call_id"] === undefined) throw error;
    const { code, message, details } = error;
    const outcome: ToolOutcome = { kind: "rejected", code, message, details: details.extra ?? {} };
    return answerOf(deps, { asked, planned, outcome });
  }
}

interface Called {
  readonly asked: ToolRequest;
  readonly planned: PlannedCall | undefined;
  readonly outcome: ToolOutcome;
  readonly whole?: string | undefined;
}

function answerOf(deps: CoreDeps, { asked, planned, outcome, whole }: Called): HumanToolAnswer {
  const { name } = asked;
  if (outcome.kind === "rejected" && outcome.code === "tool_not_found") {
    const details = `[PluginManager] Plugin "${name}" not found for tool call.`;
    return { status: 500, body: { error: "Internal Server Error", details } };
  }
  // What works on has answered first, and that is the result here as it is for a model.
  if (outcome.kind === "pending" && outcome.first === undefined) {
    const { callId, reason } = outcome;
    const url = `${deps.publicUrl}/v1/calls/${callId}`;
    return { status: 202, body: { status: "pending", reason, call_id: callId, url } };
  }
  const result = resultOf({
    name,
    outcome,
    whole,
    maid: asked.args["maid"],
    isOfPlugin: planned?.isOfPlugin ?? false,
    isText: planned?.isText ?? false,
    at: new Date(deps.clock.now()),
  });
  const { end, value } = planned?.finish?.(result) ?? result;
  return { status: end === "succeeded" || outcome.kind === "completed" ? 200 : 500, body: value };
}
