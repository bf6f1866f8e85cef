/** Every kind of thing that documents of a configuration hold: one line each (decision 0052). */
import type { Kind, Kinds } from "@toolyard/core/configuration/kind";
import type { KindName } from "@toolyard/core/configuration/names";
import type { RouteModule } from "../define-route.ts";
import type { RouteOf } from "./part.ts";
import { budgets, schedules, subscriptions, webhooks } from "./events.ts";
import { flows } from "./flows.ts";
import { issuers } from "./issuers.ts";
import { agents, characters, knowledgeBases, presets, vcpVariables, worldBooks } from "./prompts.ts";
import { groupChats } from "./rooms.ts";
import { preprocessorOrder, prices, settings } from "./tenant-wide.ts";
import { descriptorSets, plugins, providers, toolServices, vcpPlugins } from "./tools.ts";

const makers = {
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
  group_chats: groupChats,
  flows,
  webhooks,
  subscriptions,
  schedules,
  budgets,
  prices,
  preprocessor_order: preprocessorOrder,
  issuers,
} satisfies { readonly [Name in KindName]: (route: RouteOf<string>) => Kind };

/** The routes that kinds ask for; routes/index.ts is held to have them. */
export type AskedRoute = {
  [Name in KindName]: Parameters<(typeof makers)[Name]> extends [RouteOf<infer Asked>] ? Asked : never;
}[KindName];

/** @param routes those of the app, all of them */
export function kindsOver(routes: Readonly<Record<string, RouteModule>>): Kinds {
  const route: RouteOf<AskedRoute> = (name) => {
    const found = routes[name];
    if (found === undefined) throw new TypeError(`This app has no route '${name}'.`);
    return found;
  };
  return Object.fromEntries(Object.entries(makers).map(([name, make]) => [name, make(route)])) as unknown as Kinds;
}
