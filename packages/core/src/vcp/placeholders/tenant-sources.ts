/** What placeholders stand for at a tenant: values of its plugins and nodes, results of its tasks, its tools. */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonValue } from "../../json.ts";
import { readAsyncText } from "../async/results.ts";
import { vcpPluginsOf, type VcpPlugin } from "../plugins/plugin.ts";
import { toolTextsOf } from "../plugins/tool-text.ts";
import { staticValuesOf } from "../static/values.ts";
import type { PlaceholderSources, ToolText } from "./sources.ts";

export type SourceDeps = Pick<CoreDeps, "adapters" | "repos" | "blobs" | "queue" | "clock" | "log">;

export function tenantSources(deps: SourceDeps, context: CallContext): PlaceholderSources {
  return {
    staticValues: () => staticValuesOf(deps, context),
    asyncText: (plugin, taskId) => readAsyncText(deps, context, plugin, taskId),
    toolTexts: async () => {
      const plugins = vcpPluginsOf(context.config);
      return [...toolTextsOf(deps.adapters, context)].map(([name, text]) => toToolText(name, text, plugins.get(name)));
    },
  };
}

function toToolText(name: string, text: string, plugin: VcpPlugin | undefined): ToolText {
  return {
    name,
    displayName: plugin?.displayName ?? name,
    summary: plugin?.manifest.description.split("\n", 1)[0] ?? "",
    categories: plugin === undefined ? [] : categoriesOf(plugin),
    text,
  };
}

/** What authors count their plugins among stands in fields that nobody has agreed on. */
function categoriesOf({ record: { executionConfig } }: VcpPlugin): readonly string[] {
  if (!("vcp" in executionConfig)) return [];
  const { category, tags } = executionConfig.vcp.manifest;
  const named: readonly (JsonValue | undefined)[] = [category, ...(Array.isArray(tags) ? tags : [])];
  return named.filter((each): each is string => typeof each === "string");
}
