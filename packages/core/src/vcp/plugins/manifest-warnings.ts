/**
 * What a manifest says that counts for nothing (VCP-24). It is taken all the same, for there are many authors; but its
 * own author hears why a command or a placeholder is not there. Pure.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { withoutBraces } from "../static/static-plugin.ts";
import type { VcpManifest } from "./manifest.ts";
import { pluginTypes } from "./plugin-types.ts";

/** Entries of one list that are told of. */
const mostEntries = 10;

/** @param filledBy the plugin that fills a placeholder already, by its name without braces */
export function warningsOfManifest(
  manifest: VcpManifest,
  filledBy: (placeholder: string) => string | undefined,
): readonly string[] {
  const { source, pluginType, protocol, commands, placeholders } = manifest;
  const capabilities = isJsonObject(source["capabilities"]) ? source["capabilities"] : {};
  const fills = placeholders.map(({ placeholder }) => withoutBraces(placeholder));
  return [
    ...warningsOfTimeout(manifest),
    ...warningsOfList(capabilities, "invocationCommands", (entry) =>
      isJsonObject(entry) ? undefined : "is no object",
    ),
    ...(protocol === "stdio" && pluginTypes[pluginType].isTool && commands.length === 0
      ? ["Prompts say nothing of it: 'capabilities.invocationCommands' has no command."]
      : []),
    ...warningsOfList(capabilities, "systemPromptPlaceholders", whyNoPlaceholder),
    ...(pluginType === "static" && fills.length === 0
      ? ["It fills nothing: 'capabilities.systemPromptPlaceholders' names no placeholder."]
      : []),
    ...fills.flatMap((name) => {
      const other = pluginType === "static" ? filledBy(name) : undefined;
      return other === undefined ? [] : [`'{{${name}}}' is filled by '${other}', too; the last by name counts.`];
    }),
    ...warningsOfPush(source["webSocketPush"]),
  ];
}

function warningsOfTimeout({ source, timeoutMs }: VcpManifest): readonly string[] {
  const communication = isJsonObject(source["communication"]) ? source["communication"] : {};
  const { timeout } = communication;
  if (timeout === undefined || timeout === null || Number(timeout) >= 1) return [];
  return [`'communication.timeout' is no number of milliseconds; ${timeoutMs} are used.`];
}

function warningsOfList(
  capabilities: JsonObject,
  key: string,
  whyNone: (entry: JsonValue) => string | undefined,
): readonly string[] {
  const [list, field] = [capabilities[key], `capabilities.${key}`];
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) return [`'${field}' is no list and was left out.`];
  const reasons = list.map((entry, index) => ({ index, reason: whyNone(entry) }));
  return reasons
    .flatMap(({ index, reason }) => (reason === undefined ? [] : [`'${field}[${index}]' ${reason}.`]))
    .slice(0, mostEntries);
}

function whyNoPlaceholder(entry: JsonValue): string | undefined {
  const text = isJsonObject(entry) ? entry["placeholder"] : entry;
  if (typeof text !== "string" || text.trim() === "") return "names no 'placeholder' and was left out";
  return /[{}\n]/.test(withoutBraces(text)) ? "is no placeholder: a name stands in two braces, '{{Name}}'" : undefined;
}

function warningsOfPush(push: JsonValue | undefined): readonly string[] {
  const enabled = isJsonObject(push) ? push["enabled"] : undefined;
  if (enabled === undefined || typeof enabled === "boolean") return [];
  return ["'webSocketPush.enabled' is neither true nor false; nothing is pushed."];
}
