/** The answer of a held server that came when nobody waited for it any more, as the reply of its call. */
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery, type ToolReply } from "../tools/adapter.ts";
import { toToolReply } from "./call-result.ts";
import { readMcpAnswer } from "./node-messages.ts";

/** @throws GatewayError `tool_failed`, answered */
export function toLateReply(text: string, toolName: string): ToolReply {
  const answer = readMcpAnswer(text);
  const result = answer !== undefined && "result" in answer ? answer.result : undefined;
  if (result !== undefined && (result["resultType"] ?? "complete") === "complete") {
    return toToolReply(result, { toolName, outputSchema: undefined });
  }
  const said = answer !== undefined && "error" in answer ? answer.error.message : "it asks for input";
  throw withDelivery(new GatewayError("tool_failed", `'${toolName}' failed: ${said}`), "answered");
}
