/** `tool_result` of a VCP node, read as what any plugin says (VCP-15): the same unwrapping, the same errors. */
import { isJsonObject, parseJson } from "../../json.ts";
import type { ToolReply } from "../../tools/adapter.ts";
import { failedToRun, outcomeOfAnswer } from "../plugins/outcome.ts";
import { toToolReply } from "../plugins/reply.ts";

/**
 * @param text JSON of `{status, result?, error?, maid?}`
 * @throws GatewayError where the plugin says that it failed
 */
export function readNodeAnswer(text: string, name: string): ToolReply {
  const answer = parseJson(text);
  const { maid, ...said } = isJsonObject(answer) ? answer : {};
  const speaker = { name, at: new Date(), maid };
  const outcome = isJsonObject(answer)
    ? outcomeOfAnswer(speaker, said)
    : failedToRun(speaker, "crashed", `The node's answer to "${name}" cannot be read.`);
  return toToolReply(name, outcome);
}
