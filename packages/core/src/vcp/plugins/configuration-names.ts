/**
 * Under which names a plugin's values are sealed (VCP-2): every value that a tenant gives is a credential, so that
 * none is ever listed, and rotation, erasure and unreadable ones are what they are for every other secret.
 */
import type { ConfigKey, VcpManifest } from "./manifest.ts";

/** Files of a plugin's folder that hold values; the later one wins. They are sealed whole. */
export const envFileNames = ["config.env", ".env"] as const;
export type EnvFileName = (typeof envFileNames)[number];

/** Always set, whatever the schema says: file, else tenant-wide, else false. */
const debugMode: ConfigKey = { key: "DebugMode", type: "boolean", required: false, default: "false" };

/** Keys that have a value beside those of the files: no colon, for names are joined with it. */
export const configKeyPattern = /^[\p{L}\p{N}_.-]{1,48}$/u;

/** Value of one plugin. */
export function ownValueName(plugin: string, key: string): string {
  return `vcp:${plugin}:${key}`;
}

/** Value for the key in every plugin of the tenant that has no other. */
export function globalValueName(key: string): string {
  return `vcp:${key}`;
}

/** The sealed text of a file. */
export function envFileCredentialName(plugin: string, file: EnvFileName): string {
  return `vcp:${plugin}:${file}`;
}

export function keysOf({ configSchema }: Pick<VcpManifest, "configSchema">): readonly ConfigKey[] {
  const own = configSchema.find(({ key }) => key === debugMode.key);
  if (own === undefined) return [...configSchema, debugMode];
  // Most schemas that name it give it no default, and some no type.
  const meant = { ...debugMode, ...own, type: debugMode.type };
  return configSchema.map((key) => (key === own ? meant : key));
}

interface Named {
  readonly name: string;
  readonly manifest: Pick<VcpManifest, "configSchema">;
}

/** Everything that may be stored for one plugin. */
export function credentialNamesOf({ name, manifest }: Named): readonly string[] {
  return [
    ...envFileNames.map((file) => envFileCredentialName(name, file)),
    ...keysOf(manifest).map(({ key }) => ownValueName(name, key)),
  ];
}

type EnvKeys = { readonly [file: string]: readonly string[] };

/** Keys that the manifest requires and nobody gives. @param stored names of the tenant's credentials */
export function missingKeys(
  manifest: Pick<VcpManifest, "name" | "configSchema">,
  envKeys: EnvKeys,
  stored: ReadonlySet<string>,
): readonly string[] {
  const inFiles = new Set(Object.values(envKeys).flat());
  return manifest.configSchema
    .filter(({ required, default: fallback }) => required && (fallback === undefined || fallback === ""))
    .map(({ key }) => key)
    .filter(
      (key) => !inFiles.has(key) && !stored.has(ownValueName(manifest.name, key)) && !stored.has(globalValueName(key)),
    );
}
