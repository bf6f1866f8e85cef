/**
 * Imports VCP plugins (VCP-1, VCP-24): a folder becomes a row of `sys_ai_plugin`, its files a blob, its `config.env`
 * and `.env` sealed values. Importing the same again changes nothing; what cannot be imported is told and logged,
 * and leaves what is there as it was.
 */
import { sealCredential } from "../../blind/credential-resolver.ts";
import type { PluginRecord } from "../../blind/plugin.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import {
  emptyOperation,
  type ImportedOperation,
  type ImportResult,
  type NeededCredential,
} from "../../import/result.ts";
import { canonicalJson } from "../../json.ts";
import type { NewPlugin } from "../../ports/plugins.ts";
import { givesValue, openValue } from "./configuration.ts";
import { hashOfPlugin } from "./decide.ts";
import { envFileCredentialName, envFileNames, keysOf, ownValueName, globalValueName } from "./configuration-names.ts";
import { parseEnvFile } from "./env-file.ts";
import { packPluginFiles, storePluginFiles, type PackedFolder } from "./files.ts";
import type { PluginFolder, ReadFolders } from "./folders.ts";
import { blockedFileName } from "./manifest.ts";
import { warningsOfManifest } from "./manifest-warnings.ts";
import { describeTool } from "./parameters.ts";
import { staticPluginsOf } from "../static/static-plugin.ts";
import type { ZipFile } from "../../zip.ts";

export type VcpImportDeps = Pick<CoreDeps, "repos" | "blobs" | "sealer" | "adapters" | "log">;

export interface VcpImportOptions {
  readonly dryRun: boolean;
  /** New plugins are switched off until somebody switches them on. */
  readonly startsDisabled?: boolean;
}

interface Planned {
  readonly folder: PluginFolder;
  readonly plugin: NewPlugin;
  readonly packed: PackedFolder | null;
  readonly envFiles: readonly EnvFile[];
  readonly existing: PluginRecord | undefined;
  readonly changedFields: readonly string[];
  readonly warnings: readonly string[];
}

interface EnvFile {
  readonly name: (typeof envFileNames)[number];
  readonly text: string;
}

/** @throws GatewayError `conflict` where somebody else changed the same plugins meanwhile */
export async function importVcpFolders(
  deps: VcpImportDeps,
  context: CallContext,
  read: ReadFolders,
  { dryRun, startsDisabled = false }: VcpImportOptions,
): Promise<ImportResult> {
  const { planned, skipped } = await plan(deps, context, { ...read, startsDisabled });
  for (const { operation, reason } of skipped) {
    deps.log.log("warn", "a VCP plugin was not imported", { tenant: context.tenant, folder: operation, reason });
  }
  const ids = dryRun ? new Map<string, number>() : await apply(deps, context, planned);
  return {
    document: null,
    dryRun,
    operations: [...planned.map((each) => toOperation(each, ids)), ...skipped],
    credentials: planned.flatMap((each) => neededValues(each, context)),
    credentialsFound: planned.flatMap(({ plugin, envFiles }) =>
      envFiles.map(({ name }) => envFileCredentialName(plugin.name, name)),
    ),
    confirmations: [],
    warnings: read.strays.slice(0, 20).map((path) => `'${path}' belongs to no plugin and was left out.`),
  };
}

async function plan(
  deps: VcpImportDeps,
  context: CallContext,
  { folders, unusable, startsDisabled }: ReadFolders & { readonly startsDisabled: boolean },
): Promise<{ readonly planned: readonly Planned[]; readonly skipped: readonly ImportedOperation[] }> {
  const planned: Planned[] = [];
  const skipped = unusable.map(({ label, reason }) => skippedFolder(label, reason));
  const taken = new Map<string, string>();
  for (const folder of folders) {
    const { name } = folder.manifest;
    const first = taken.get(name);
    const reason =
      first === undefined
        ? whyTaken(deps, context, name)
        : `its name '${name}' is that of the plugin in '${first}', which was taken`;
    if (reason !== undefined) {
      skipped.push(skippedFolder(folder.label, reason, name));
      continue;
    }
    taken.set(name, folder.label);
    try {
      planned.push(await planFolder(context, folder, startsDisabled));
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      skipped.push(skippedFolder(folder.label, error.message, name));
    }
  }
  return { planned, skipped };
}

/** Models call tools by their bare names, so no name may mean two. */
function whyTaken({ adapters }: VcpImportDeps, context: CallContext, name: string): string | undefined {
  const { vcp: _vcp, ...others } = adapters;
  for (const adapter of Object.values(others)) {
    const tool = adapter.find?.(name, context);
    if (tool !== undefined) return `its name '${name}' is that of the tool '${tool.uri}'`;
  }
  return undefined;
}

async function planFolder(context: CallContext, folder: PluginFolder, startsDisabled: boolean): Promise<Planned> {
  const { manifest } = folder;
  const envFiles = folder.files.flatMap(toEnvFile);
  const files = folder.files.filter((file) => toEnvFile(file).length === 0 && file.path !== blockedFileName);
  const packed = await packPluginFiles(files);
  const existing = context.config.plugins.find(({ name }) => name === manifest.name);
  const content = {
    name: manifest.name,
    title: manifest.displayName,
    description: manifest.description,
    iconUrl: null,
    type: "VCP",
    parameterSchema: describeTool(manifest).parameters,
    executionConfig: {
      schema_version: "v1",
      vcp: {
        manifest: manifest.source,
        files: packed?.described ?? null,
        env_keys: Object.fromEntries(envFiles.map(({ name, text }) => [name, keysGiven(manifest, text)])),
      },
    },
    requiredCredentials: [],
    // Decisions of the tenant, not of the plugin's author.
    sensitive: existing?.sensitive ?? false,
    roles: existing?.roles ?? [],
  } as const;
  const hash = hashOfPlugin(content);
  const plugin: NewPlugin = { ...content, enabled: existing?.enabled ?? !(folder.isBlocked || startsDisabled), hash };
  const changedFields = existing === undefined || existing.hash === hash ? [] : fieldsChanged(existing, plugin);
  return { folder, plugin, packed, envFiles, existing, changedFields, warnings: warningsOf(context, folder) };
}

/** Keys of a file's lines that have a value. */
function keysGiven(manifest: PluginFolder["manifest"], text: string): readonly string[] {
  const keys = new Map(keysOf(manifest).map((key) => [key.key, key]));
  return [...parseEnvFile(text)].filter(([key, value]) => givesValue(keys.get(key), value)).map(([key]) => key);
}

/** @throws GatewayError `invalid_definition` for a file that is too long to be sealed */
function toEnvFile({ path, body }: ZipFile): readonly EnvFile[] {
  const name = envFileNames.find((each) => each === path);
  if (name === undefined || body.byteLength === 0) return [];
  if (body.byteLength > longestEnvFile) {
    throw new GatewayError("invalid_definition", `'${path}' has more than ${longestEnvFile} bytes.`, { param: path });
  }
  return [{ name, text: Buffer.from(body).toString("utf8") }];
}

/** What a sealed value may have. */
const longestEnvFile = 65_536;

function fieldsChanged(existing: PluginRecord, plugin: NewPlugin): readonly string[] {
  const fields = ["title", "description", "parameterSchema", "executionConfig"] as const;
  const changed = fields.filter((field) => canonicalJson(existing[field]) !== canonicalJson(plugin[field]));
  return changed.length === 0 ? ["definition"] : changed;
}

function warningsOf({ config }: CallContext, { manifest, files }: PluginFolder): readonly string[] {
  const others = staticPluginsOf(config).filter(({ name }) => name !== manifest.name);
  const filledBy = (placeholder: string): string | undefined =>
    others.findLast(({ placeholders }) => placeholders.includes(placeholder))?.name;
  const { script } = manifest.entryPoint;
  const isMissing =
    manifest.protocol === "direct" &&
    script !== undefined &&
    files.every(({ path }) => path !== script.replace(/^\.\//, ""));
  return [
    ...(isMissing ? [`Its module '${script}' is not among its files.`] : []),
    ...warningsOfManifest(manifest, filledBy),
  ];
}

/** Values before rows: from the moment that a row is there, its plugin can run. */
async function apply(
  deps: VcpImportDeps,
  context: CallContext,
  planned: readonly Planned[],
): Promise<ReadonlyMap<string, number>> {
  const { tenant } = context;
  for (const each of planned) {
    if (each.packed !== null) await storePluginFiles(deps, tenant, each.packed);
    await storeEnvFiles(deps, context, each);
  }
  const changes = {
    create: planned.flatMap(({ plugin, existing }) => (existing === undefined ? [plugin] : [])),
    update: planned.flatMap(({ plugin, existing }) =>
      existing === undefined || existing.hash === plugin.hash
        ? []
        : [{ pluginId: existing.pluginId, expectedHash: existing.hash, plugin }],
    ),
    delete: [],
  };
  const written = [...changes.create, ...changes.update.map(({ plugin }) => plugin)];
  const ids = written.length === 0 ? new Map<string, number>() : await deps.repos.plugins.upsertMany(tenant, changes);
  const lost = written.find(({ name }) => !ids.has(name));
  if (lost !== undefined) {
    throw new GatewayError("conflict", `Plugin '${lost.name}' was changed by somebody else just now; import again.`, {
      param: "name",
    });
  }
  await block(deps, tenant, planned);
  return ids;
}

/** A manifest that was renamed switches its plugin off; the other way round is the tenant's to say. */
async function block({ repos }: VcpImportDeps, tenant: string, planned: readonly Planned[]): Promise<void> {
  for (const { folder, existing } of planned) {
    if (folder.isBlocked && existing?.enabled === true)
      await repos.plugins.setEnabled(tenant, existing.pluginId, false);
  }
}

/** Only what differs is sealed anew: every new version makes all instances read the configuration again. */
async function storeEnvFiles(deps: VcpImportDeps, context: CallContext, { plugin, envFiles }: Planned): Promise<void> {
  const { tenant, config } = context;
  for (const name of envFileNames) {
    const credential = envFileCredentialName(plugin.name, name);
    const text = envFiles.find((file) => file.name === name)?.text;
    const stored = await openValue(deps, context, credential).catch(() => undefined);
    if (text === stored) continue;
    if (text === undefined) await deps.repos.credentials.delete(tenant, credential, null);
    else {
      await sealCredential(
        { sealer: deps.sealer, credentials: deps.repos.credentials },
        { tenant, wrappedKey: config.wrappedKey, name: credential, value: text, userId: null },
      );
    }
  }
}

function skippedFolder(label: string, reason: string, name: string | null = null): ImportedOperation {
  return { ...emptyOperation, operation: label, action: "skipped", name, reason };
}

function toOperation(planned: Planned, ids: ReadonlyMap<string, number>): ImportedOperation {
  const { folder, plugin, existing, changedFields, warnings } = planned;
  const isUnchanged = existing?.hash === plugin.hash;
  return {
    ...emptyOperation,
    operation: folder.label,
    action: existing === undefined ? "added" : isUnchanged ? "unchanged" : "changed",
    name: plugin.name,
    pluginId: existing?.pluginId ?? ids.get(plugin.name) ?? null,
    hash: plugin.hash,
    changedFields,
    warnings,
  };
}

/** Keys without which the plugin stays switched off. */
function neededValues({ folder, envFiles }: Planned, { config }: CallContext): readonly NeededCredential[] {
  const { manifest } = folder;
  const stored = new Set(config.credentials.map(({ name }) => name));
  const inFiles = new Set(envFiles.flatMap(({ text }) => keysGiven(manifest, text)));
  return keysOf(manifest)
    .filter(({ required, default: fallback }) => required && (fallback ?? "") === "")
    .map(({ key, description }) => ({
      name: ownValueName(manifest.name, key),
      scheme: null,
      holds: description ?? `The value of '${key}' for '${manifest.name}'.`,
      isStored:
        inFiles.has(key) || [ownValueName(manifest.name, key), globalValueName(key)].some((each) => stored.has(each)),
    }));
}
