/** What a held module gave after whoever waited for it had gone: it ends the call as it would have. */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { ToolReply } from "../../tools/adapter.ts";
import { outcomeOfResult } from "../plugins/outcome.ts";
import { toToolReply } from "../plugins/reply.ts";
import { ModuleFailed } from "./module-failed.ts";
import { httpAnswerSchema, readModuleAnswer } from "./node-wire.ts";

/** @throws GatewayError where the module failed */
export function readLateModuleAnswer(text: string, tool: string): ToolReply {
  const answer = readModuleAnswer(text);
  if (answer === undefined)
    throw new GatewayError("tool_failed", `The node gave no answer of the module of '${tool}'.`);
  if ("failed" in answer) throw new ModuleFailed(tool, answer.failed);
  const { result } = answer;
  if (httpAnswerSchema.safeParse(result).success)
    return { mediaType: "application/json", body: JSON.stringify(result) };
  return toToolReply(tool, outcomeOfResult({ name: tool, at: new Date() }, result));
}
