/**
 * Where a module runs (VCP-6, VCP-7). In the plugin box it is loaded for one call and gone with it; on a node of the
 * tenant's it stays, with its routes, connections and timers. The rule, the first that fits:
 *
 * 1. `service`: a node. It has nothing but routes and connections.
 * 2. The manifest says `"stateless": false` (a node) or `"stateless": true` (the box; only its routes need a node).
 * 3. `hasApiRoutes`: a node.
 * 4. `hybridservice`: a node, where one that holds modules is registered; else the box.
 * 5. Everything else, which is `messagePreprocessor`: the box.
 *
 * What turns out to leave something open in the box (a server, a connection, a watched file, a program, a timer that
 * repeats) is refused there with `node_required`, unless its manifest says that it is stateless.
 */
import type { TenantConfig } from "../../tenant-config.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";

export type Residence = "box" | "node";

export function residenceOf({ manifest }: Pick<VcpPlugin, "manifest">, config: Pick<TenantConfig, "nodes">): Residence {
  if (manifest.pluginType === "service") return "node";
  const stateless = manifest.source["stateless"];
  if (typeof stateless === "boolean") return stateless ? "box" : "node";
  if (manifest.hasApiRoutes) return "node";
  return manifest.pluginType === "hybridservice" && holdersOf(config).length > 0 ? "node" : "box";
}

/** Nodes that hold modules, in the order in which they are asked. */
function holdersOf({ nodes }: Pick<TenantConfig, "nodes">): readonly string[] {
  return nodes.filter(({ tools }) => tools.some(({ kind }) => kind === "modules")).map(({ name }) => name);
}

/** Of those types whose modules are spoken to directly. */
export function isModule({ manifest }: Pick<VcpPlugin, "manifest">): boolean {
  return manifest.protocol === "direct";
}

/** Of those types whose modules may register routes, which only a node answers. */
export function hasRoutes({ manifest }: Pick<VcpPlugin, "manifest">): boolean {
  return manifest.pluginType === "service" || manifest.pluginType === "hybridservice";
}
