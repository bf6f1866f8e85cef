/**
 * What models and callers call a service's tool where they cannot write a URI: `api_crm__customer_list`.
 * Equal addresses have equal names everywhere and always, different ones different names.
 */
import { aliasOf } from "../tools/alias.ts";
import { formatToolUri, type ToolScheme } from "../tools/uri.ts";

const plainPart = /^[a-zA-Z0-9](?:[a-zA-Z0-9-]|_(?!_))*$/;

export function serviceToolName(scheme: ToolScheme, serviceId: string, toolId: string): string {
  const name = toolId === "" ? `${scheme}_${serviceId}` : `${scheme}_${serviceId}__${toolId}`;
  // The pieces can be told apart again, so no other address has this name.
  const isPlain = plainPart.test(serviceId) && !serviceId.endsWith("_") && (toolId === "" || plainPart.test(toolId));
  return isPlain && name.length <= longestName ? name : aliasOf(formatToolUri(scheme, serviceId, toolId));
}

const longestName = 64;
