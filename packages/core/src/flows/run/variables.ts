/** For whom a flow runs, and with what (FLOW-3). */
import { hasScope, type Caller } from "../../callers/caller.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { compileArguments } from "../../tools/arguments.ts";
import type { FlowDefinition } from "../definition.ts";

/** Arguments that every flow takes beside its own. */
export const contextArguments = {
  tenantId: { type: "string", description: "The tenant for whom the flow runs; it is the caller's own." },
  buCode: { type: "string", description: "Business unit for which the flow runs; absent: the caller's." },
} as const;

type Asking = Pick<CallContext, "tenant" | "caller">;

/** @throws GatewayError `permission_denied` for another tenant, or a unit that the caller may not act for */
export function requireOwnContext({ tenant, caller }: Asking, { tenantId, buCode }: JsonObject): void {
  if (tenantId !== undefined && tenantId !== null && tenantId !== tenant) {
    throw denied("tenantId", "A flow runs for its caller's tenant; 'tenantId' cannot be another one's.");
  }
  if (buCode === undefined || buCode === null || mayActFor(caller, buCode)) return;
  throw denied(
    "buCode",
    "The caller may not act for this business unit; its own is the one of its key ('business_unit') or of its token's claim.",
  );
}

/** Who is bound to no unit and manages the tenant acts for each of them. */
function mayActFor(caller: Caller, unit: JsonValue): boolean {
  if (caller.businessUnit !== undefined) return caller.businessUnit === unit;
  return hasScope(caller, "manage");
}

function denied(param: string, message: string): GatewayError {
  return withDelivery(new GatewayError("permission_denied", message, { param }), "answered");
}

export interface FlowVariables {
  readonly context: JsonObject;
  readonly input: JsonObject;
}

/** @throws GatewayError `permission_denied` */
export function flowVariables(asking: Asking, given: JsonObject): FlowVariables {
  requireOwnContext(asking, given);
  const { buCode } = given;
  const unit = typeof buCode === "string" ? buCode : asking.caller.businessUnit;
  return { context: { tenantId: asking.tenant, ...(unit === undefined ? {} : { buCode: unit }) }, input: given };
}

/** The flow's own arguments, with defaults. @throws GatewayError `invalid_arguments` */
export function requireInput({ name, input: schema }: FlowDefinition, given: JsonObject): JsonObject {
  const own = isJsonObject(schema["properties"]) ? schema["properties"] : {};
  const input: JsonObject = Object.fromEntries(
    Object.entries(given).filter(([key]) => Object.hasOwn(own, key) || !Object.hasOwn(contextArguments, key)),
  );
  const checked = compileArguments(schema).validate(input);
  if (checked.ok) return checked.value;
  const list = checked.errors.map(({ pointer, message }) => `${pointer === "" ? "arguments" : pointer}: ${message}`);
  throw withDelivery(
    new GatewayError("invalid_arguments", `The arguments do not fit the input of flow '${name}'. ${list.join("; ")}`, {
      param: "arguments",
    }),
    "answered",
  );
}
