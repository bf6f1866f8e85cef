/** Addresses that a tenant configures are looked at when they are stored, not only when they are used. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Egress } from "@toolyard/core/ports/egress";

/** @throws GatewayError `egress_denied` or `invalid_request`, naming the field */
export function requireReachable(egress: Egress, url: string, param: string): void {
  try {
    egress.checkUrl(url);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param, cause: error });
  }
}
