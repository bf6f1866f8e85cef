/** The one error that crosses rooms. Foreign errors become one at the adapter that met them. */
import type { JsonValue } from "../json.ts";
import { catalog, type ErrorCode, type ErrorSpec } from "./catalog.ts";

export interface ErrorDetails {
  /** The field, option, header or setting at fault, as the caller spells it. */
  readonly param?: string;
  readonly toolName?: string;
  readonly retryAfterMs?: number;
  /** More for a machine to read, merged into the error body. Never secrets. */
  readonly extra?: { readonly [key: string]: JsonValue };
  readonly cause?: unknown;
}

export class GatewayError extends Error {
  override readonly name = "GatewayError";
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  /** @param message what happened, which knob by name, what to do; shown to callers and models */
  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.details = details;
  }

  get spec(): ErrorSpec {
    return catalog[this.code];
  }
}

/** Any thrown value as a `GatewayError`; unknown ones become `internal_error` without their text. */
export function toGatewayError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  return new GatewayError("internal_error", "Something went wrong on our side; the request id names the log entry.", {
    cause: thrown,
  });
}
