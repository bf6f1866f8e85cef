/** The answer of a held server that came when nobody waited for it any more, as the reply of its call. */
import { GatewayError } from "../errors/gateway-error.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { toToolReply, type ResultOptions } from "./call-result.ts";
import { readMcpAnswer } from "./node-messages.ts";

/**
 * Of a tool that is no more: nobody knows what in its words is a secret.
 * @throws GatewayError `tool_failed`, answered
 */
export function toWithheldReply(text: string, toolName: string): ToolReply {
  try {
    toLateReply(text, { toolName, outputSchema: undefined, redactor: new Redactor() });
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw withDelivery(new GatewayError("tool_failed", `'${toolName}' failed; ${withheld}`), deliveryOf(error));
  }
  return { mediaType: "text/plain", body: `'${toolName}' was carried out; ${withheld}` };
}

const withheld = "what it said is not kept, because its service was changed or deleted meanwhile.";

/** @throws GatewayError `tool_failed`, answered */
export function toLateReply(text: string, options: ResultOptions): ToolReply {
  const { toolName } = options;
  const answer = readMcpAnswer(text, toolName);
  const result = answer !== undefined && "result" in answer ? answer.result : undefined;
  if (result !== undefined && (result["resultType"] ?? "complete") === "complete") {
    return toToolReply(result, options);
  }
  const said = answer !== undefined && "error" in answer ? answer.error.message : "it asks for input";
  throw withDelivery(new GatewayError("tool_failed", `'${toolName}' failed: ${said}`), "answered");
}
