/** For calls that go on from what they have recorded: an outage of where that is kept is none of their failures. */
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isOutage, outageMs } from "../errors/outage.ts";
import { Parked } from "./tool-call.ts";

/** Undefined: it is no outage, or the call cannot wait, since what its request brought is nowhere else. */
export function waitForOutage(
  { runtimeConfig }: Pick<CallContext, "runtimeConfig">,
  thrown: unknown,
): Parked | undefined {
  const mayWait = runtimeConfig === undefined && thrown instanceof GatewayError && isOutage(thrown);
  return mayWait ? new Parked(outageMs) : undefined;
}
