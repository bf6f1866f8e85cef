/** Persistence of `sys_ai_plugin`. Rules and contract as in repos.ts. */
import type { PluginRecord } from "../blind/plugin.ts";
import type { Page, PageRequest } from "./page.ts";

export type NewPlugin = Omit<PluginRecord, "pluginId" | "createdAt" | "updatedAt">;

/** Many changes at once, as an import makes them. */
export interface PluginChanges {
  readonly create: readonly NewPlugin[];
  /** Keeps the name and whether it is enabled; written only where the row is still as it was when this was decided. */
  readonly update: readonly { readonly pluginId: number; readonly expectedHash: string; readonly plugin: NewPlugin }[];
  readonly delete: readonly number[];
}

/** `get` and `list` include the global NATIVE rows; no tenant can change those. Pages end at `plg_{pluginId}`. */
export interface PluginRepo {
  /** @throws GatewayError `conflict` (param `name`) for a taken name, or too many plugins */
  create(tenant: string, plugin: NewPlugin): Promise<PluginRecord>;
  /** @throws GatewayError `conflict` (param `name`) for a name taken by another plugin */
  update(tenant: string, pluginId: number, plugin: NewPlugin): Promise<PluginRecord | undefined>;
  setEnabled(tenant: string, pluginId: number, enabled: boolean): Promise<PluginRecord | undefined>;
  get(tenant: string, pluginId: number): Promise<PluginRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<PluginRecord>>;
  delete(tenant: string, pluginId: number): Promise<boolean>;
  /**
   * In as few round trips as the rows fit into: a batch of at most 250 rows and 1 MiB of text each, one
   * after the other. Returns the ids of those created or updated that are now as given, by name; one that
   * is absent was taken or changed by somebody else. Doing it again changes nothing more. Where there is no
   * room for all that is to be created, nothing is.
   * @throws GatewayError `conflict` (param `name`) for too many plugins
   */
  upsertMany(tenant: string, changes: PluginChanges): Promise<ReadonlyMap<string, number>>;
  /** Writes the global NATIVE rows (no tenant); part of migration. */
  mirrorNative(plugins: readonly NewPlugin[]): Promise<void>;
}
