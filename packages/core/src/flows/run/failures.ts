/** How steps fail, and what a failed run says. */
import type { CallError } from "../../calls/call.ts";
import { catalog, isErrorCode } from "../../errors/catalog.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import type { StepError } from "../../ports/flow-runs.ts";
import { withDelivery } from "../../tools/adapter.ts";
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

/** The error of a run: where it failed and what went wrong there (FLOW-1). */
export function runFailed(flow: string, failed: BodyFailed): GatewayError {
  const { path, node, error } = failed;
  const { code, message, details = {} } = error;
  const failure = { node, path, code, message, ...(details["call_id"] === undefined ? {} : { call_id: details["call_id"] }) };
  return withDelivery(
    new GatewayError("flow_failed", `Flow '${flow}' failed at '${path}': ${message}`, {
      extra: { flow, failure, ...(isErrorCode(code) ? {} : { flow_error: code }) },
    }),
    "answered",
  );
}
