/**
 * What a held module gave after whoever waited for it had gone: it ends the call as it would have. The values that
 * the module was given are told to the redactor first; of a plugin that is gone they are not known any more, so that
 * its words are withheld.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { ToolReply } from "../../tools/tool-call.ts";
import { openConfiguration, type ConfigurationContext, type ConfigurationDeps } from "../plugins/configuration.ts";
import { outcomeOfResult } from "../plugins/outcome.ts";
import { vcpPluginsOf } from "../plugins/plugin.ts";
import { toToolReply } from "../plugins/reply.ts";
import { ModuleFailed } from "./module-failed.ts";
import { httpAnswerSchema, readModuleAnswer } from "./node-wire.ts";

/** @throws GatewayError where the module failed, or its words cannot be shown */
export async function readLateModuleAnswer(
  deps: ConfigurationDeps,
  context: ConfigurationContext,
  { text, name }: { readonly text: string; readonly name: string },
): Promise<ToolReply> {
  const plugin = vcpPluginsOf(context.config).get(name);
  if (plugin === undefined)
    throw new GatewayError("tool_failed", `Plugin '${name}' is gone; what its module has answered is withheld.`);
  await openConfiguration(deps, context, plugin);
  const answer = readModuleAnswer(text);
  if (answer === undefined)
    throw new GatewayError("tool_failed", `The node gave no answer of the module of '${name}'.`);
  if ("failed" in answer) throw new ModuleFailed(name, answer.failed);
  const { result } = answer;
  if (httpAnswerSchema.safeParse(result).success)
    return { mediaType: "application/json", body: JSON.stringify(result) };
  return toToolReply(name, outcomeOfResult({ name, at: new Date(), redactor: context.redactor }, result));
}
