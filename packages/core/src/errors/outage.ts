/** Errors of what everything is kept with: they say nothing of the work that met them. */
import type { GatewayError } from "./gateway-error.ts";

/** It did nothing wrong, and is done later as it would have been done now. */
export function isOutage({ code }: GatewayError): boolean {
  return code === "database_unavailable" || code === "blobs_unavailable" || code === "master_key_unavailable";
}

/** Before another try. */
export const outageMs = 5_000;
