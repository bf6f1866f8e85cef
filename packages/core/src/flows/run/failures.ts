/** How steps fail, and what a failed run says. */
import type { CallError } from "../../calls/call.ts";
import { catalog, isErrorCode } from "../../errors/catalog.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import type { StepError } from "../../ports/flow-runs.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { toOutcomeDetails } from "../../tools/outcome.ts";

/** A step has come to nothing; its node's `on_error` says where that leads. */
export class StepFailed extends Error {
  override readonly name = "StepFailed";
  readonly error: StepError;
  /** Trying again may help, where the node's `retry` says so. */
  readonly mayRetry: boolean;

  constructor(error: StepError, mayRetry = false) {
    super(error.message);
    this.error = error;
    this.mayRetry = mayRetry;
  }

  static of(thrown: unknown): StepFailed {
    const error = toGatewayError(thrown);
    const details = toOutcomeDetails(error);
    return new StepFailed({ code: error.code, message: error.message, ...(details === undefined ? {} : { details }) });
  }
}

/** @param why what is to be said of its call: nobody is asked about a write whose fate is not known */
export function stepTimeout(path: string, callId: unknown, why?: string): StepFailed {
  const late = `'${path}' was not done in time ('timeout_ms' of the node or of one around it).`;
  return new StepFailed({
    code: "flow_step_timeout",
    message: why === undefined ? late : `${late} ${why}`,
    ...(typeof callId === "string" ? { details: { call_id: callId } } : {}),
  });
}

/** Of a step whose time is over. What is ended while it is under way says so: a call, a call by its own time, a chat. */
export function asTimeout(failed: StepFailed, path: string): StepFailed {
  const { code, details } = failed.error;
  const isStopped = ["call_cancelled", "tool_timeout", "request_cancelled"].includes(code);
  return isStopped ? stepTimeout(path, details?.["call_id"]) : failed;
}

/** A body has failed at one of its nodes, and nothing in it has taken care of that. */
export class BodyFailed extends StepFailed {
  readonly path: string;
  readonly node: string;

  constructor(error: StepError, at: { readonly path: string; readonly node: string }) {
    super(error);
    this.path = at.path;
    this.node = at.node;
  }
}

/** Of a run that would have to go on where what its request brought is not known (BLIND-7). */
export function boundToRequest(at: { readonly path: string; readonly node: string }): BodyFailed {
  const { error } = StepFailed.of(
    new GatewayError(
      "runtime_config_required",
      `'${at.path}' has to wait or to run later, when the inline 'runtime_config' is gone, since it is never stored; store the plugins and credentials that the flow needs, and run it without one.`,
      { param: "runtime_config" },
    ),
  );
  return new BodyFailed(error, at);
}

/** What a call came to that did not complete. */
export function callFailed(id: string, state: string, error: CallError | null): StepFailed {
  const { code, message, details } = error ?? {
    code: "call_cancelled" as const,
    message: `Its call ended as '${state}'.`,
    details: undefined,
  };
  const mayRetry = state === "failed" || (state === "rejected" && catalog[code].retryable);
  return new StepFailed({ code, message, details: { ...details, call_id: id } }, mayRetry);
}

/**
 * The error of a run: where it failed and what went wrong there (FLOW-1). Of a flow within it the failure is the
 * cause; the message is that of the innermost, once.
 */
export function runFailed(flow: string, failed: BodyFailed): GatewayError {
  const { path, node, error } = failed;
  const { code, message, details = {} } = error;
  // How deep flows are within each other is no matter of the node that is one too many.
  const own = code === "flow_depth_exceeded" ? code : "flow_failed";
  const within = code === own && isJsonObject(details["failure"]) ? details["failure"] : undefined;
  const said = typeof within?.["message"] === "string" ? within["message"] : message;
  const failure: JsonObject = {
    node,
    path,
    code,
    message: said,
    ...(details["call_id"] === undefined ? {} : { call_id: details["call_id"] }),
    // Within a branch or an item: the very place.
    ...(details["failed_at"] === undefined ? {} : { failed_at: details["failed_at"] }),
    ...(within === undefined ? {} : { cause: within }),
  };
  return withDelivery(
    new GatewayError(own, `Flow '${flow}' failed at '${path}': ${said}`, {
      extra: { flow, failure, ...(isErrorCode(code) ? {} : { flow_error: code }) },
    }),
    "answered",
  );
}
