/** What a tenant's VCP runtime holds (VCP specification s. 3.7; VCP-23), for people. */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { preprocessorsOf } from "../pipeline/preprocessor-order.ts";
import { vcpPluginsOf, type VcpPlugin } from "../plugins/plugin.ts";
import { staticValuesOf } from "../static/values.ts";
import { staticPluginsOf } from "../static/static-plugin.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { heldPlugins, holderOf } from "./hold.ts";
import { readReport } from "./reports.ts";
import { hasRoutes, isModule, residenceOf } from "./residence.ts";

export interface RuntimeView {
  readonly staticPlaceholderValues: Readonly<Record<string, string>>;
  readonly messagePreprocessors: readonly PreprocessorView[];
  readonly serviceModules: readonly ServiceModuleView[];
  readonly scheduledJobs: readonly ScheduledJobView[];
}

export interface PreprocessorView {
  readonly name: string;
  readonly displayName: string;
  readonly pluginType: string;
  /** In the chain, from 1. */
  readonly place: number;
  readonly runs: "box" | "node";
}

export interface ServiceModuleView {
  readonly name: string;
  readonly displayName: string;
  readonly pluginType: string;
  readonly hasApiRoutes: boolean;
  /**
   * `on_demand`: loaded for each call. `needs_node`: none that holds modules is connected. `starting`, `running`,
   * `failed`: as its node says. `disabled`: it is switched off, or something that it needs is missing.
   */
  readonly state: "on_demand" | "needs_node" | "starting" | "running" | "failed" | "disabled";
  readonly node: string | null;
  readonly message: string | null;
}

export interface ScheduledJobView {
  readonly plugin: string;
  readonly job: "refresh_static_placeholders";
  readonly cron: string;
}

export async function viewRuntime(deps: CoreDeps, context: CallContext): Promise<RuntimeView> {
  const { config, tenant } = context;
  const plugins = [...vcpPluginsOf(config).values()];
  const modules = plugins.filter((plugin) => isModule(plugin) && hasRoutes(plugin));
  const [values, holder] = await Promise.all([
    staticValuesOf(deps, context),
    modules.length === 0 ? undefined : holderOf(deps, tenant),
  ]);
  return {
    staticPlaceholderValues: Object.fromEntries([...values].map(([name, value]) => [name, value])),
    messagePreprocessors: preprocessorsOf(config).map((plugin, at) => ({
      name: plugin.name,
      displayName: plugin.displayName,
      pluginType: plugin.manifest.pluginType,
      place: at + 1,
      runs: residenceOf(plugin, config),
    })),
    serviceModules: await Promise.all(modules.map((plugin) => viewModule(deps, context, plugin, holder?.name))),
    scheduledJobs: staticPluginsOf(config).flatMap(
      ({
        name,
        plugin: {
          manifest: { refreshIntervalCron: cron },
        },
      }) => (cron === undefined ? [] : [{ plugin: name, job: "refresh_static_placeholders" as const, cron }]),
    ),
  };
}

async function viewModule(
  deps: CoreDeps,
  { config, tenant }: CallContext,
  plugin: VcpPlugin,
  holder: string | undefined,
): Promise<ServiceModuleView> {
  const { name, displayName, manifest, enabled, reason } = plugin;
  const view = { name, displayName, pluginType: manifest.pluginType, hasApiRoutes: manifest.hasApiRoutes };
  if (!enabled) return { ...view, state: "disabled", node: null, message: reason ?? null };
  if (holder === undefined || !heldPlugins(config).includes(plugin)) {
    const state = residenceOf(plugin, config) === "box" ? "on_demand" : "needs_node";
    return { ...view, state, node: null, message: null };
  }
  const report = await readReport(deps, tenant, name);
  const isOfNow = report?.node === holder && report.fingerprint === fingerprintOf(config, plugin);
  return isOfNow
    ? { ...view, state: report.state, node: holder, message: report.message }
    : { ...view, state: "starting", node: holder, message: null };
}
