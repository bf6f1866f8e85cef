import { GatewayError } from "@toolyard/core/errors/gateway-error";

/** Of a fault of ours what it came from says more to whoever sits at the terminal: no log has it. */
export function originOf(error: unknown): unknown {
  return error instanceof GatewayError && error.code === "internal_error" ? (error.cause ?? error) : error;
}
