/**
 * The order in which a tenant's preprocessors work on a conversation (VCP-6, VCP-8): those that the setting
 * `preprocessor_order` names first, then the others in order of their names.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { vcpPluginsOf, type VcpPlugin } from "../plugins/plugin.ts";

/**
 * Plugins of upstream that are steps of the pipeline here. An order may name them, as upstream's does, but
 * their places are fixed, and a tenant's plugin of such a name is not run beside the step.
 */
const builtInSteps: ReadonlySet<string> = new Set(["VCPTavern", "ImageProcessor", "MultiModalProcessor"]);

/** Those that can run, in their order. */
export function preprocessorsOf(config: TenantConfig): readonly VcpPlugin[] {
  const places = new Map(config.settings.preprocessor_order.map((name, at) => [name, at]));
  const placeOf = ({ name }: VcpPlugin): number => places.get(name) ?? Number.MAX_SAFE_INTEGER;
  // By name before; sorting keeps the order of equals.
  return knownPreprocessors(config)
    .filter(({ enabled }) => enabled)
    .sort((a, b) => placeOf(a) - placeOf(b));
}

/** By name; those that are switched off, too: their place waits for them. */
function knownPreprocessors(config: TenantConfig): VcpPlugin[] {
  return [...vcpPluginsOf(config).values()].filter(({ type, name }) => type.isPreprocessor && !builtInSteps.has(name));
}

/** @throws GatewayError `invalid_request` naming what is unknown or named twice */
export function checkPreprocessorOrder(config: TenantConfig, order: readonly string[]): void {
  const known = new Set([...builtInSteps, ...knownPreprocessors(config).map(({ name }) => name)]);
  const unknown = [...new Set(order.filter((name) => !known.has(name)))];
  const repeated = [...new Set(order.filter((name, at) => order.indexOf(name) !== at))];
  if (unknown.length + repeated.length === 0) return;
  const say = (names: readonly string[]): string =>
    names
      .slice(0, 10)
      .map((name) => `'${name}'`)
      .join(", ");
  const reasons = [
    ...(unknown.length === 0 ? [] : [`no preprocessor is called ${say(unknown)}`]),
    ...(repeated.length === 0 ? [] : [`${say(repeated)} is named more than once`]),
  ];
  throw new GatewayError("invalid_request", `The order was not changed: ${reasons.join("; ")}.`, {
    param: "preprocessor_order",
    extra: { unknown, repeated },
  });
}
