/**
 * A tenant's values for its VCP plugins (VCP-2). They go in and never come out: what is shown is which keys there
 * are, what they take and where each value comes from.
 */
import { sealCredential } from "../../blind/credential-resolver.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isBlank } from "../../secrets/credential.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import type { ConfigSource } from "./configuration.ts";
import {
  configKeyPattern,
  credentialNamesOf,
  envFileNames,
  globalValueName,
  keysOf,
  ownValueName,
} from "./configuration-names.ts";
import type { ConfigKey } from "./manifest.ts";
import { vcpPluginsOf, type VcpPlugin } from "./plugin.ts";
import { authCodeKey } from "./run.ts";

export interface ShownKey {
  readonly key: string;
  readonly type: ConfigKey["type"];
  readonly required: boolean;
  readonly default: string | null;
  readonly description: string | null;
  /** Where its value comes from; null: it has none. */
  readonly source: ConfigSource | null;
}

export type GivenValues = Readonly<Record<string, string | number | boolean | null>>;

type ConfigureDeps = Pick<CoreDeps, "repos" | "sealer">;

/** Keys of the schema in its order; then those that only the plugin's files set. */
export function showKeys(plugin: VcpPlugin, config: TenantConfig): readonly ShownKey[] {
  const stored = storedNames(config);
  const keys = keysOf(plugin.manifest);
  const beside = [...new Set(Object.values(plugin.envKeys).flat())].filter(
    (key) => !keys.some((each) => each.key === key),
  );
  const shown = keys.map((key): ShownKey => ({
    key: key.key,
    type: key.type,
    required: key.required,
    default: key.default ?? null,
    description: key.description ?? null,
    source: sourceOf(plugin, key, stored),
  }));
  return [
    ...shown,
    ...beside.map((key): ShownKey => ({
      key,
      type: "text",
      required: false,
      default: null,
      description: null,
      source: fileOf(plugin, key),
    })),
  ];
}

function sourceOf(plugin: VcpPlugin, key: ConfigKey, stored: ReadonlySet<string>): ConfigSource | null {
  if (stored.has(ownValueName(plugin.name, key.key))) return "tenant";
  const file = fileOf(plugin, key.key);
  if (file !== null) return file;
  if (stored.has(globalValueName(key.key))) return "global";
  return key.default === undefined ? null : "default";
}

/** The later file wins. */
function fileOf({ envKeys }: VcpPlugin, key: string): (typeof envFileNames)[number] | null {
  return envFileNames.toReversed().find((file) => envKeys[file]?.includes(key)) ?? null;
}

function storedNames({ credentials }: TenantConfig): ReadonlySet<string> {
  return new Set(credentials.flatMap(({ level, name }) => (level === "tenant" ? [name] : [])));
}

/**
 * Sets the values given, takes away those that are null, and leaves the others.
 * @throws GatewayError `invalid_request` naming the key: unknown to the plugin, or a value of another type
 */
export async function setPluginValues(
  deps: ConfigureDeps,
  context: CallContext,
  plugin: VcpPlugin,
  given: GivenValues,
): Promise<void> {
  const keys = new Map(keysOf(plugin.manifest).map((key) => [key.key, key]));
  const texts = Object.entries(given).map(([key, value]) => {
    const known = keys.get(key);
    if (known === undefined) throw unknownKey(plugin, key, [...keys.keys()]);
    return { name: ownValueName(plugin.name, checkedKey(key)), text: toText(known, value) };
  });
  await store(deps, context, texts);
}

/** @throws GatewayError `invalid_request` naming the key */
export async function setGlobalValues(deps: ConfigureDeps, context: CallContext, given: GivenValues): Promise<void> {
  const texts = Object.entries(given).map(([key, value]) => ({
    name: globalValueName(checkedKey(key)),
    text: toText({ key, type: "text", required: false }, value),
  }));
  await store(deps, context, texts);
}

export interface GlobalKey {
  readonly key: string;
  readonly isSet: boolean;
  /** Plugins whose schema has it. */
  readonly plugins: readonly string[];
}

/** Keys that are set for the whole tenant, and those that plugins would take from there. */
export function showGlobalKeys(config: TenantConfig): readonly GlobalKey[] {
  const plugins = [...vcpPluginsOf(config).values()];
  const users = new Map<string, string[]>();
  for (const { name, manifest } of plugins) {
    const wanted = [...keysOf(manifest).map(({ key }) => key), ...(manifest.requiresAdmin ? [authCodeKey] : [])];
    for (const key of wanted) users.set(key, [...(users.get(key) ?? []), name]);
  }
  const stored = storedNames(config);
  const set = [...stored].flatMap((name) => /^vcp:([^:]+)$/.exec(name)?.[1] ?? []);
  return [...new Set([...users.keys(), ...set])]
    .sort()
    .map((key) => ({ key, isSet: stored.has(globalValueName(key)), plugins: users.get(key) ?? [] }));
}

/** What is stored for a plugin goes with it. */
export async function forgetPluginValues(
  { repos }: Pick<CoreDeps, "repos">,
  context: CallContext,
  plugin: VcpPlugin,
): Promise<void> {
  const stored = storedNames(context.config);
  for (const name of credentialNamesOf(plugin)) {
    if (stored.has(name)) await repos.credentials.delete(context.tenant, name, null);
  }
}

interface NewValue {
  readonly name: string;
  /** Null: to be taken away. */
  readonly text: string | null;
}

async function store(deps: ConfigureDeps, { tenant, config }: CallContext, values: readonly NewValue[]): Promise<void> {
  const { credentials } = deps.repos;
  for (const { name, text } of values) {
    if (text === null) await credentials.delete(tenant, name, null);
    else {
      await sealCredential(
        { sealer: deps.sealer, credentials },
        { tenant, wrappedKey: config.wrappedKey, name, value: text, userId: null },
      );
    }
  }
}

/** An empty text is no value. */
function toText({ key, type }: ConfigKey, value: string | number | boolean | null): string | null {
  if (value === null || value === "") return null;
  const text = String(value);
  if (isBlank(text)) throw invalid(key, "is nothing but blanks; null takes a value away");
  if (text.length > longestValue || text.includes("\0")) {
    throw invalid(key, `may have ${longestValue} characters, and no byte 0`);
  }
  if (type === "integer" && !/^\s*[+-]?\d{1,15}\s*$/.test(text)) throw invalid(key, "must be a whole number");
  if (type === "boolean" && !/^\s*(?:true|false)\s*$/i.test(text)) throw invalid(key, "must be true or false");
  return text;
}

const longestValue = 65_536;

function checkedKey(key: string): string {
  if (configKeyPattern.test(key)) return key;
  throw invalid(
    key,
    "may have 1 to 48 letters, digits, '_', '.' and '-' in its name; set it in the plugin's config.env",
  );
}

function unknownKey({ name }: VcpPlugin, key: string, known: readonly string[]): GatewayError {
  return invalid(
    key,
    `is no key of '${name}'; known: ${known.join(", ")}. Other keys come from the plugin's own files only`,
  );
}

function invalid(key: string, reason: string): GatewayError {
  const name = key.slice(0, 80);
  return new GatewayError("invalid_request", `'values.${name}' ${reason}.`, { param: `values.${name}` });
}
