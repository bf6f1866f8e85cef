/**
 * The tool for results that come after their call's answer, for clients that know no tasks. It is part of the
 * protocol's side, like asking about a task: what it tells is the record of another call, so it is none itself.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { compileArguments } from "../tools/arguments.ts";

export const resultToolName = "get_call_result";
export const longestWaitS = 50;

const inputSchema: JsonObject = {
  type: "object",
  properties: {
    call_id: { type: "string", minLength: 1, maxLength: 64, description: "As the earlier answer names it." },
    wait_s: {
      type: "integer",
      minimum: 0,
      maximum: longestWaitS,
      default: 0,
      description: "Seconds to wait for the result, if it is not there yet.",
    },
  },
  required: ["call_id"],
  additionalProperties: false,
};

export const resultTool: JsonObject = {
  name: resultToolName,
  title: "Result of an earlier call",
  description:
    "Gives the result of a tool call that was still running, or waited for a person, when it was answered; or what it asks by now.",
  inputSchema,
  annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
};

/** @throws GatewayError `invalid_arguments` */
export function readResultArguments(args: JsonObject): { readonly callId: string; readonly waitMs: number } {
  const checked = compileArguments(inputSchema).validate(args);
  if (checked.ok) {
    const { call_id: callId, wait_s: waitS } = checked.value;
    return { callId: typeof callId === "string" ? callId : "", waitMs: Number(waitS ?? 0) * 1_000 };
  }
  const list = checked.errors.map(({ pointer, message }) => `${pointer === "" ? "arguments" : pointer}: ${message}`);
  throw new GatewayError("invalid_arguments", `The arguments do not fit the schema. ${list.join("; ")}`, {
    param: "arguments",
    toolName: resultToolName,
  });
}
