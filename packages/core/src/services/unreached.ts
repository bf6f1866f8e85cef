/** A back end that is not where a service's configuration says, told to whoever configures it. */
import { GatewayError } from "../errors/gateway-error.ts";
import type { ServiceRuntime } from "./scheme.ts";
import type { ToolService } from "./service.ts";

/** The error with the fields that say where the back end is, unless it names fields by itself. */
export function withFieldsToSee(runtime: ServiceRuntime, service: ToolService, error: GatewayError): GatewayError {
  if (!isNotThere(error) || error.details.param !== undefined || error.message.includes("'config.")) return error;
  const fields = runtime.reachedBy(service).map((field) => `config.${field}`);
  const [param] = fields;
  if (param === undefined) return error;
  const names = fields.map((field) => `'${field}'`).join(", ");
  const message = `${error.message.replace(/\.$/, "")}; see ${names}.`;
  return new GatewayError(error.code, message, { ...error.details, param, cause: error });
}

/** Nobody has answered, or somebody who has nothing at this address. */
function isNotThere({ code, details }: GatewayError): boolean {
  if (code === "tool_unreachable" || code === "tool_timeout") return true;
  const status = details.extra?.["status"];
  return code === "tool_failed" && (status === 404 || status === 405);
}
