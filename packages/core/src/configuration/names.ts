/** What stands in documents of a configuration, by its names. */

/** Another release may have another. */
export const documentFormat = 1;

/** In order of dependency: what is named comes before what names it. */
export const kindNames = [
  "settings",
  "providers",
  "descriptor_sets",
  "tool_services",
  "plugins",
  "vcp_plugins",
  "knowledge_bases",
  "vcp_variables",
  "world_books",
  "characters",
  "presets",
  "agents",
  "group_chats",
  "flows",
  "webhooks",
  "subscriptions",
  "schedules",
  "budgets",
  "prices",
  "preprocessor_order",
  "issuers",
] as const;
export type KindName = (typeof kindNames)[number];

/** Fields that hold one thing, and no list. */
export const wholeKinds: ReadonlySet<KindName> = new Set<KindName>(["settings", "prices", "preprocessor_order"]);
