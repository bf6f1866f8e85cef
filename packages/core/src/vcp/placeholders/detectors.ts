/**
 * Detectors (VCP protocol, s.8): texts that are replaced by others in messages that are otherwise ready, in the order
 * of their numbers. `Detector…` in system messages, `SuperDetector…` in messages of every role.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { Contents } from "./contents.ts";
import { mapText } from "../message-text.ts";
import type { VariableEntry } from "./variable.ts";

interface Detector {
  readonly name: string;
  readonly ofSystem: boolean;
  readonly entry: VariableEntry;
}

const ofConfigs = new WeakMap<TenantConfig, readonly Detector[]>();

/**
 * The messages after all detectors; a message in which nothing is found is the same object.
 * @throws GatewayError `placeholder_limit` naming the detector with which it is too much
 */
export async function applyDetectors(
  deps: Pick<CoreDeps, "repos">,
  { tenant, config }: Pick<CallContext, "tenant" | "config">,
  messages: readonly JsonObject[],
): Promise<readonly JsonObject[]> {
  const detectors = detectorsOf(config);
  if (detectors.length === 0) return messages;
  const contents = new Contents(deps.repos.variables, tenant);
  await contents.read(detectors.filter((each) => contents.of(each) === undefined));
  const found = detectors.map((each) => contents.of(each)?.text ?? "");
  let left = config.settings.placeholder_chars_max;
  return messages.map((message) =>
    mapText(message, (text) =>
      detectors.reduce((changed, { name, ofSystem, entry }, at) => {
        const wanted = found[at] ?? "";
        const applies = !ofSystem || message["role"] === "system" || message["role"] === "developer";
        if (!applies || wanted === "" || !changed.includes(wanted)) return changed;
        const replaced = changed.replaceAll(wanted, () => entry.options.output ?? "");
        left -= Math.max(0, replaced.length - changed.length);
        if (left < 0) throw tooMuch(name, config.settings.placeholder_chars_max);
        return replaced;
      }, text),
    ),
  );
}

function detectorsOf(config: TenantConfig): readonly Detector[] {
  let detectors = ofConfigs.get(config);
  if (detectors === undefined) {
    detectors = (["detector", "super_detector"] as const).flatMap((kind) =>
      config.variables
        .filter((entry) => entry.kind === kind)
        .map((entry) => ({ name: entry.name, ofSystem: kind === "detector", entry }))
        .sort((a, b) => numberOf(a.name) - numberOf(b.name)),
    );
    ofConfigs.set(config, detectors);
  }
  return detectors;
}

function numberOf(name: string): number {
  return Number(/\d+$/.exec(name)?.[0] ?? 0);
}

function tooMuch(name: string, limit: number): GatewayError {
  return new GatewayError(
    "placeholder_limit",
    `'${name}' lengthens the messages by more than ${limit} characters, the setting 'placeholder_chars_max'; change its output.`,
    { param: name },
  );
}
