/** Every kind of thing that documents of a configuration hold: one line each (decision 0052). */
import type { Kinds } from "@toolyard/core/configuration/kind";
import { budgets, schedules, subscriptions, webhooks } from "./events.ts";
import { flows } from "./flows.ts";
import { agents, characters, knowledgeBases, presets, vcpVariables, worldBooks } from "./prompts.ts";
import { preprocessorOrder, prices, settings } from "./tenant-wide.ts";
import { descriptorSets, plugins, providers, toolServices, vcpPlugins } from "./tools.ts";

export const kinds: Kinds = {
  settings,
  providers,
  descriptor_sets: descriptorSets,
  tool_services: toolServices,
  plugins,
  vcp_plugins: vcpPlugins,
  knowledge_bases: knowledgeBases,
  vcp_variables: vcpVariables,
  world_books: worldBooks,
  characters,
  presets,
  agents,
  flows,
  webhooks,
  subscriptions,
  schedules,
  budgets,
  prices,
  preprocessor_order: preprocessorOrder,
};
