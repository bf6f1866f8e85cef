/** What work for frames of VCP's clients has in common: there is no request, and so no context of one. */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import type { JsonObject } from "../../json.ts";
import type { Connection } from "../../realtime/connection.ts";
import { Redactor } from "../../secrets/redactor.ts";

export function malformed(what: string): GatewayError {
  return new GatewayError("invalid_request", `The frame cannot be used: ${what}.`, { param: "frame" });
}

/** For people, too: whatever a client has sent. */
export function typeOf({ type }: JsonObject): string {
  return typeof type === "string" ? type.slice(0, 64) : "";
}

/** The tenant as it is now, for what a client does without a request. @throws GatewayError `not_found` */
export async function contextOf(deps: CoreDeps, { tenant, caller }: Connection): Promise<CallContext> {
  const row = await deps.repos.tenants.get(tenant);
  if (row === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  const config = await deps.configs.get(tenant, row.configVersion);
  return { tenant, caller, config, requestId: newId("request"), traceId: "", redactor: new Redactor() };
}
