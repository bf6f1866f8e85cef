/**
 * A plugin's configuration at the moment of a run (VCP-2): schema default < tenant-wide value < `config.env` <
 * `.env` < the tenant's value for this plugin. Each value has the type of its key; text where none is said.
 */
import { credentialAad, type StoredCredential } from "../../secrets/credential.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Sealer } from "../../secrets/sealer.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { withDelivery } from "../../errors/delivery.ts";
import {
  envFileCredentialName,
  envFileNames,
  globalValueName,
  keysOf,
  ownValueName,
  type EnvFileName,
} from "./configuration-names.ts";
import { parseEnvFile } from "./env-file.ts";
import type { ConfigKey } from "./manifest.ts";
import type { VcpPlugin } from "./plugin.ts";

export type ConfigValue = string | number | boolean;

export type ConfigSource = "default" | "global" | EnvFileName | "tenant";

export interface PluginConfiguration {
  /** For modules: by key, typed. */
  readonly values: Readonly<Record<string, ConfigValue>>;
  /** For processes: the same as text. */
  readonly environment: Readonly<Record<string, string>>;
  /** Its own `config.env` and `.env`, which many plugins read by themselves. */
  readonly envFiles: readonly { readonly path: EnvFileName; readonly body: Uint8Array }[];
}

export interface ConfigurationDeps {
  readonly sealer: Pick<Sealer, "open">;
}

export type ConfigurationContext = Pick<CallContext, "tenant" | "config" | "redactor">;

/** One key's values by layer, the last one wins. */
export interface Layers {
  readonly global: ReadonlyMap<string, string>;
  readonly files: readonly { readonly name: EnvFileName; readonly values: ReadonlyMap<string, string> }[];
  readonly own: ReadonlyMap<string, string>;
}

/** Pure: which value each key has, and where it comes from. Keys beside the schema come from files only. */
export function resolveKeys(
  keys: readonly ConfigKey[],
  { global, files, own }: Layers,
): ReadonlyMap<string, { readonly value: ConfigValue; readonly source: ConfigSource }> {
  const resolved = new Map<string, { value: ConfigValue; source: ConfigSource }>();
  const known = new Set(keys.map(({ key }) => key));
  for (const { name, values } of files) {
    for (const [key, value] of values) if (!known.has(key)) resolved.set(key, { value, source: name });
  }
  for (const key of keys) {
    const found = [
      { source: "tenant" as const, text: own.get(key.key) },
      ...files.toReversed().map(({ name, values }) => ({ source: name, text: values.get(key.key) })),
      { source: "global" as const, text: global.get(key.key) },
      { source: "default" as const, text: key.default },
    ].flatMap(({ source, text }) => {
      const value = text === undefined ? undefined : toTyped(key, text);
      return value === undefined ? [] : [{ source, value }];
    });
    // What is empty is no value, where another layer has one.
    const best = found.find(({ value }) => value !== "") ?? found[0];
    if (best !== undefined) resolved.set(key.key, best);
  }
  return resolved;
}

/** Whether a text of a file gives this key a value: one that is left empty, or of another type, does not. */
export function givesValue(key: ConfigKey | undefined, text: string): boolean {
  return key === undefined || (text !== "" && toTyped(key, text) !== undefined);
}

/** Undefined for a text that is no such value: the layer below holds then. */
function toTyped({ type }: ConfigKey, text: string): ConfigValue | undefined {
  switch (type) {
    case "integer": {
      const value = Number.parseInt(text, 10);
      return Number.isNaN(value) ? undefined : value;
    }
    case "boolean": {
      const word = text.trim().toLowerCase();
      return word === "" ? undefined : word === "true";
    }
    case "text":
      return text;
    default:
      return type satisfies never;
  }
}

/**
 * Opens what is stored for this plugin. Values of keys that sound secret are told to the redactor first.
 * @throws GatewayError `credential_unreadable` naming the value: not sent
 */
export async function openConfiguration(
  deps: ConfigurationDeps,
  context: ConfigurationContext,
  plugin: Pick<VcpPlugin, "name" | "manifest">,
): Promise<PluginConfiguration> {
  const keys = keysOf(plugin.manifest);
  const open = (name: string): Promise<string | undefined> => openValue(deps, context, name);
  const [texts, own, global] = await Promise.all([
    Promise.all(
      envFileNames.map(async (name) => ({ name, text: await open(envFileCredentialName(plugin.name, name)) })),
    ),
    openEach(keys, (key) => open(ownValueName(plugin.name, key))),
    openEach(keys, (key) => open(globalValueName(key))),
  ]);
  const files = texts.flatMap(({ name, text }) =>
    text === undefined ? [] : [{ name, text, values: parseEnvFile(text) }],
  );
  const resolved = resolveKeys(keys, { own, global, files });
  for (const [key, { value, source }] of resolved) {
    if (source !== "default" && typeof value === "string" && soundsSecret(key, value)) context.redactor.add(value);
  }
  return {
    values: Object.fromEntries([...resolved].map(([key, { value }]) => [key, value])),
    environment: Object.fromEntries([...resolved].map(([key, { value }]) => [key, String(value)])),
    envFiles: files.map(({ name, text }) => ({ path: name, body: Buffer.from(text, "utf8") })),
  };
}

async function openEach(
  keys: readonly ConfigKey[],
  open: (key: string) => Promise<string | undefined>,
): Promise<ReadonlyMap<string, string>> {
  const opened = await Promise.all(keys.map(async ({ key }) => [key, await open(key)] as const));
  return new Map(opened.flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])));
}

type ByName = ReadonlyMap<string, StoredCredential>;

const tenantLevel = new WeakMap<TenantConfig, ByName>();

/** The tenant's own ones only: what a plugin is told must not depend on who calls it. */
function storedValues(config: TenantConfig): ByName {
  let stored = tenantLevel.get(config);
  if (stored === undefined) {
    stored = new Map(
      config.credentials.flatMap((each) => (each.level === "tenant" ? [[each.name, each] as const] : [])),
    );
    tenantLevel.set(config, stored);
  }
  return stored;
}

/** A stored value of the tenant, whatever it is for. */
export async function openValue(
  { sealer }: ConfigurationDeps,
  { tenant, config }: ConfigurationContext,
  name: string,
): Promise<string | undefined> {
  const stored = storedValues(config).get(name);
  if (stored === undefined) return undefined;
  try {
    return await sealer.open(tenant, config.wrappedKey, credentialAad(stored), stored.sealed);
  } catch (cause) {
    if (!(cause instanceof GatewayError) || cause.code !== "credential_unreadable") throw cause;
    const message = `The configuration value '${name}' (version ${stored.version}) cannot be opened with this tenant's key; set it again.`;
    throw withDelivery(new GatewayError("credential_unreadable", message, { param: name, cause }), "not_sent");
  }
}

const secretWords = /key|token|secret|passw|pwd|auth|cookie|credential|session/i;
const shortestSecret = 8;

/** Cutting `true` or `1024x1024` out of every text would harm more than it hides. */
function soundsSecret(key: string, value: string): boolean {
  return value.length >= shortestSecret && secretWords.test(key);
}
