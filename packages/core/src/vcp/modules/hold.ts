/**
 * Which modules a node is to hold, and with what (VCP-7). The first connected node by name holds all of a tenant's;
 * others stand by. A node asks from time to time, and ends what it was not told of again within the lease.
 */
import type { CallContext } from "../../context.ts";
import { currentConfig } from "../../current-config.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { openConfiguration } from "../plugins/configuration.ts";
import { pluginFilesKey } from "../plugins/files.ts";
import { vcpPluginsOf, type VcpPlugin } from "../plugins/plugin.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { keepReports, type ModuleReport } from "./reports.ts";
import { hasRoutes, isModule, residenceOf } from "./residence.ts";
import { specOf } from "./run-once.ts";
import type { ModuleSpec } from "./wire.ts";

export interface AssignedModule {
  readonly plugin: string;
  readonly fingerprint: string;
}

const linkLifetimeMs = 900_000;
const mostNodes = 100;

/** @throws GatewayError `not_found` where the tenant is gone */
export async function assignModules(
  deps: CoreDeps,
  tenant: string,
  {
    node,
    instance,
    reports,
  }: { readonly node: string; readonly instance: string; readonly reports: readonly ModuleReport[] },
): Promise<readonly AssignedModule[]> {
  const [config, holder] = await Promise.all([configOf(deps, tenant), holderOf(deps, tenant)]);
  if (holder?.name !== node || holder.instance !== instance) return [];
  const held = heldPlugins(config);
  await keepReports(
    deps,
    tenant,
    node,
    reports.filter(({ plugin }) => held.some(({ name }) => name === plugin)),
  );
  return held.map((plugin) => ({ plugin: plugin.name, fingerprint: fingerprintOf(config, plugin) }));
}

/** Modules that are at home on a node; what is switched off is held by nobody. */
export function heldPlugins(config: TenantConfig): readonly VcpPlugin[] {
  return [...vcpPluginsOf(config).values()].filter(
    (plugin) => plugin.enabled && isModule(plugin) && (hasRoutes(plugin) || residenceOf(plugin, config) === "node"),
  );
}

/** The node that holds the tenant's modules now. */
export async function holderOf(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
): Promise<{ readonly name: string; readonly instance: string } | undefined> {
  const { data } = await repos.nodes.list(tenant, { limit: mostNodes, order: "asc" });
  return data
    .filter(({ connected, tools }) => connected && tools.some(({ kind }) => kind === "modules"))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))[0];
}

export interface OpenedModule extends AssignedModule {
  readonly spec: ModuleSpec;
  readonly envFiles: readonly { readonly path: string; readonly base64: string }[];
  /** Of the folder as a zip; null: it has no files. */
  readonly filesUrl: string | null;
  readonly filesHash: string;
  readonly maxBytes: number;
}

/** @throws GatewayError `not_found` for what this node does not hold, `credential_unreadable` */
export async function openModule(
  deps: CoreDeps,
  tenant: string,
  { plugin: name, node, instance }: { readonly plugin: string; readonly node: string; readonly instance: string },
): Promise<OpenedModule> {
  const [config, holder] = await Promise.all([configOf(deps, tenant), holderOf(deps, tenant)]);
  const plugin = heldPlugins(config).find((each) => each.name === name);
  if (plugin === undefined || holder?.name !== node || holder.instance !== instance) {
    throw new GatewayError("not_found", `This node does not hold a module of plugin '${name}'.`, { param: "plugin" });
  }
  const context = { tenant, config, redactor: new Redactor() } satisfies Partial<CallContext>;
  const [configuration, link] = await Promise.all([
    openConfiguration(deps, context, plugin),
    plugin.files === null
      ? undefined
      : deps.blobs.presign(pluginFilesKey(tenant, plugin.files.hash), { method: "GET", expiresInMs: linkLifetimeMs }),
  ]);
  return {
    plugin: name,
    fingerprint: fingerprintOf(config, plugin),
    spec: specOf(deps, plugin, configuration),
    envFiles: configuration.envFiles.map(({ path, body }) => ({ path, base64: Buffer.from(body).toString("base64") })),
    filesUrl: link?.url ?? null,
    filesHash: plugin.files?.hash ?? "none",
    maxBytes: config.settings.result_max_bytes,
  };
}

async function configOf(deps: CoreDeps, tenant: string): Promise<TenantConfig> {
  const config = await currentConfig(deps, tenant);
  if (config === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  return config;
}
