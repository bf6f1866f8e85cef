/**
 * Tools as text for models that call by `TOOL_REQUEST` blocks (VCP-3, `{{VCP<Name>}}`, `{{VCPAllTools}}`). A VCP
 * plugin's text is upstream's, letter by letter; other tools are told in the same form, so that one dialect
 * reaches them all.
 */
import { mayUseTool } from "../../callers/caller.ts";
import type { CallContext } from "../../context.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { listTools, type Adapters } from "../../tools/catalog.ts";
import type { Tool } from "../../tools/tool.ts";
import { distributedToolsOf, type DistributedTool } from "../nodes/distributed-tools.ts";
import type { InvocationCommand } from "./manifest.ts";
import { vcpPluginsOf, type VcpPlugin } from "./plugin.ts";

export const noToolText = "没有可用的VCP工具描述信息";
const between = "\n\n---\n\n";

/** By tool name, in order of names: the tools that this caller may use and that there is something to say of. */
export function toolTextsOf(adapters: Adapters, context: CallContext): ReadonlyMap<string, string> {
  const plugins = vcpPluginsOf(context.config);
  const tools = listTools(adapters, context).filter((tool) => mayUseTool(context.caller, tool));
  const ofNodes = distributedToolsOf(context.config);
  const texts = tools.map((tool) => {
    const distributed = tool.distributed === undefined ? undefined : ofNodes.get(tool.name);
    return [
      tool.name,
      distributed === undefined ? textOfTool(tool, plugins.get(tool.name)) : textOfNode(distributed),
    ] as const;
  });
  return new Map(texts.filter(([, text]) => text !== ""));
}

/** What `{{VCPAllTools}}` stands for. */
export function allToolsText(texts: Iterable<string>): string {
  const joined = [...texts].filter((text) => text !== "").join(between);
  return joined === "" ? noToolText : joined;
}

export function textOfTool(tool: Tool, plugin: VcpPlugin | undefined): string {
  return tool.kind === "VCP" && plugin !== undefined ? textOfPlugin(plugin) : textOfOther(tool);
}

/** A plugin of a node, as upstream tells of it. */
function textOfNode({ name, displayName, commands }: DistributedTool): string {
  return textOfCommands(`${displayName} (${name})`, commands);
}

/** Empty for a plugin without commands. */
export function textOfPlugin({
  name,
  displayName,
  manifest,
}: Pick<VcpPlugin, "name" | "displayName" | "manifest">): string {
  return textOfCommands(`${displayName} (${name})`, manifest.commands);
}

type ToldCommand = Pick<InvocationCommand, "command" | "description" | "example">;

function textOfCommands(title: string, commands: readonly ToldCommand[]): string {
  return commands
    .filter(({ description }) => description !== "")
    .map((command) => textOfCommand(title, command))
    .join("\n\n");
}

function textOfCommand(title: string, { command, description, example }: ToldCommand): string {
  const head = `- ${title} - 命令: ${command ?? "N/A"}:\n${indented(description)}`;
  return example === undefined || example === "" ? head : `${head}\n  调用示例:\n${indented(example)}`;
}

function indented(text: string): string {
  return text
    .split("\n")
    .map((line) => `    ${line}`)
    .join("\n");
}

function textOfOther(tool: Tool): string {
  const properties = isJsonObject(tool.parameters["properties"]) ? tool.parameters["properties"] : {};
  const required = tool.parameters["required"];
  const fields = Object.entries(properties).map(
    ([name, schema]) =>
      `${name}:「始」${describeField(schema, Array.isArray(required) && required.includes(name))}「末」`,
  );
  const request = [`tool_name:「始」${tool.name}「末」`, ...fields].join(",\n");
  const text = `${tool.description}\n<<<[TOOL_REQUEST]>>>\n${request}\n<<<[END_TOOL_REQUEST]>>>`;
  return `- ${tool.title ?? tool.name} (${tool.name}) - 命令: N/A:\n${indented(text)}`;
}

/** Markers of the grammar would end the block that they stand in. */
function describeField(schema: JsonValue, isRequired: boolean): string {
  const { description, type } = isJsonObject(schema) ? schema : ({} as JsonObject);
  const kind = typeof type === "string" && type !== "string" ? `, ${type === "object" ? "JSON" : type}` : "";
  const words = typeof description === "string" ? ` ${description.replaceAll(/[「」]|<<<|>>>/g, "")}` : "";
  return `(${isRequired ? "必需" : "可选"}${kind})${words}`;
}
