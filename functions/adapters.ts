/**
 * Adapters, chosen one by one from the settings (design "One core, many homes"). Those of AWS are loaded
 * where a setting asks for them, and the SDK behind each at its first use.
 */
import { access, constants } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { AdapterDeps } from "@toolyard/core/deps";
import type { BlobStore, Presign } from "@toolyard/core/ports/blob-store";
import type { DataTables } from "@toolyard/core/ports/data-tables";
import type { DocumentReader } from "@toolyard/core/ports/document-reader";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginRunner } from "@toolyard/core/ports/plugin-runner";
import type { RemotePush } from "@toolyard/core/ports/push";
import type { PolledTaskQueue } from "@toolyard/core/ports/task-queue";
import type { Shards } from "@toolyard/db/database";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { createFileBlobStore } from "@toolyard/platform/local/file-blob-store";
import { makeDirectory } from "@toolyard/platform/local/make-directory";
import { createLocalKeyVault, parseMasterKey } from "@toolyard/platform/local/local-key-vault";
import { createRotatingKeyVault } from "@toolyard/platform/rotating-key-vault";
import { EnvironmentError, type Environment } from "./env.ts";

/** Blobs that nobody else serves by HTTP, so that their links lead to ourselves. */
export function servesOwnBlobs({ blobsUrl }: Environment): boolean {
  return blobsUrl === undefined || blobsUrl.startsWith("file:");
}

/**
 * @param presign makes links to ourselves, for blobs that nobody else serves
 * @throws EnvironmentError
 */
export async function createBlobs(
  environment: Environment,
  dataDir: string | undefined,
  presign: Presign,
): Promise<BlobStore> {
  const blobsUrl = environment.blobsUrl ?? fileIn(dataDir, "", "BLOBS_URL");
  if (blobsUrl.startsWith("file:")) {
    const directory = fileURLToPath(toFileUrl(blobsUrl));
    await requireDirectory(directory, environment.blobsUrl === undefined ? "TOOLYARD_DATA_DIR" : "BLOBS_URL");
    return createFileBlobStore(directory, presign);
  }
  const { createS3BlobStore } = await import("@toolyard/platform/aws/s3-blob-store");
  const [, bucket = "", prefix = "", style] = /^s3:\/\/([^/?]+)\/?([^?]*)(?:\?path_style=(.+))?$/.exec(blobsUrl) ?? [];
  return createS3BlobStore({
    bucket,
    prefix: prefix.replace(/\/+$/, ""),
    pathStyle: style === undefined ? isOwnStore(environment.s3Endpoint) : style === "true",
  });
}

/**
 * On this machine: what cannot be used now will not be later.
 * @throws EnvironmentError naming `setting`
 */
async function requireDirectory(directory: string, setting: string): Promise<void> {
  try {
    await makeDirectory(directory);
    await access(directory, constants.W_OK);
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? ` (${String(cause.code)})` : "";
    throw new EnvironmentError([`${setting}: '${directory}' cannot be used as a directory${code}`]);
  }
}

export async function createQueue({ queues }: Environment, shards: Shards): Promise<PolledTaskQueue> {
  if (queues === undefined) return createDatabaseTaskQueue(shards);
  const { createSqsTaskQueue } = await import("@toolyard/platform/aws/sqs-task-queue");
  return createSqsTaskQueue({ urls: queues });
}

/** Undefined: server processes hold the connections. */
export async function createPush({ pushUrl }: Environment): Promise<RemotePush | undefined> {
  if (pushUrl === undefined) return undefined;
  const { createConnectionsPush } = await import("@toolyard/platform/aws/connections-push");
  return createConnectionsPush({ url: pushUrl });
}

/**
 * Where programs run that are not ours. What tenants have uploaded, and code of models, each has a box of its own where
 * there is one, and is else on the server's machine, started by one helper. Programs of MCP servers are the operator's:
 * they run in the plugin box where there is one, else as processes of ours.
 *
 * @param isServer a function starts no helper
 */
export async function createProgramRunners(
  environment: Environment,
  { isServer, log }: { readonly isServer: boolean; readonly log: Log },
): Promise<Pick<AdapterDeps, "tenantPlugins" | "codeBox" | "mcpCommands" | "plugins">> {
  const { path, mcpCommands } = environment;
  const [pluginBox, ownCodeBox] = await Promise.all([
    createPluginBox(environment.pluginBoxFunction, "PLUGIN_BOX_FUNCTION"),
    createPluginBox(environment.codeBoxFunction, "CODE_BOX_FUNCTION"),
  ]);
  const here = isServer ? await createHelper(path, log) : undefined;
  const tenantPlugins = pluginBox ?? here;
  const codeBox = ownCodeBox ?? here;
  return {
    ...(tenantPlugins === undefined ? {} : { tenantPlugins }),
    ...(codeBox === undefined ? {} : { codeBox }),
    ...(mcpCommands === undefined ? {} : { mcpCommands, plugins: pluginBox ?? (await createProcesses(path, log)) }),
  };
}

async function createPluginBox(functionName: string | undefined, setting: string): Promise<PluginRunner | undefined> {
  if (functionName === undefined) return undefined;
  const { createLambdaPluginRunner } = await import("@toolyard/platform/aws/lambda-plugin-runner");
  return createLambdaPluginRunner({ functionName, setting });
}

// What runs processes takes milliseconds to load, which functions need not spend.

async function createHelper(path: string, log: Log): Promise<PluginRunner> {
  const { createLocalPlugins } = await import("@toolyard/platform/local/local-plugins");
  return createLocalPlugins({ path, log });
}

async function createProcesses(path: string, log: Log): Promise<PluginRunner> {
  const { createProcessPluginRunner } = await import("@toolyard/platform/local/process-plugin-runner");
  return createProcessPluginRunner({ path, log });
}

/** Read with the first question. */
export const lateTables: DataTables = {
  async answer(job) {
    const { createDataTables } = await import("@toolyard/platform/local/data-tables");
    return createDataTables().answer(job);
  },
};

/** Few requests are about documents that take a program to read. */
export const lateDocuments: DocumentReader = {
  async read(...asked) {
    const { createDocumentReader } = await import("@toolyard/platform/document-reader/reader");
    return createDocumentReader().read(...asked);
  },
};

const kms = "kms:";

/**
 * The master key of today, and earlier ones of either kind for what they wrapped.
 * @throws EnvironmentError
 */
export async function createVault(environment: Environment, masterKey: string): Promise<KeyVault> {
  const named = [masterKey, ...environment.previousMasterKeys];
  const [keyId, ...previousKeyIds] = named.flatMap((key) => (key.startsWith(kms) ? [key.slice(kms.length)] : []));
  const [localKey, ...previousKeys] = named.filter((key) => !key.startsWith(kms)).map((key) => readKey(key, masterKey));
  const local = localKey === undefined ? undefined : createLocalKeyVault({ masterKey: localKey, previousKeys });
  if (keyId === undefined) return local ?? noMasterKey();
  const { createKmsKeyVault, isWrappedByKms } = await import("@toolyard/platform/aws/kms-key-vault");
  const cloud = createKmsKeyVault({ keyId, previousKeyIds });
  if (local === undefined) return cloud;
  if (!masterKey.startsWith(kms)) {
    return createRotatingKeyVault({
      current: local,
      previous: cloud,
      isCurrents: (wrapped) => !isWrappedByKms(wrapped),
    });
  }
  return createRotatingKeyVault({ current: cloud, previous: local, isCurrents: isWrappedByKms });
}

function noMasterKey(): never {
  throw new EnvironmentError(["TOOLYARD_MASTER_KEY: must be set"]);
}

function readKey(text: string, masterKey: string): Uint8Array {
  const setting = text === masterKey ? "TOOLYARD_MASTER_KEY" : "TOOLYARD_PREVIOUS_MASTER_KEYS";
  try {
    return parseMasterKey(text, setting);
  } catch (cause) {
    throw new EnvironmentError([cause instanceof Error ? cause.message : `${setting} cannot be used`]);
  }
}

/** A store of one's own has no name for each bucket, unless somebody made them: an address, or one word. */
function isOwnStore(endpoint: string | undefined): boolean {
  if (endpoint === undefined || !URL.canParse(endpoint)) return false;
  const { hostname } = new URL(endpoint);
  return !hostname.includes(".") || /^[\d.]+$|^\[/.test(hostname);
}

/** `file:relative/path` is from the working directory, as in DATABASE_URL. */
function toFileUrl(url: string): URL {
  const rest = url.slice("file:".length);
  return rest.startsWith("/") ? new URL(url) : pathToFileURL(decodeURIComponent(rest));
}

/** @throws EnvironmentError where there is no data directory */
export function fileIn(dataDir: string | undefined, name: string, variable: string): string {
  if (dataDir === undefined) throw new EnvironmentError([`${variable}: must be set where there is no data directory`]);
  return pathToFileURL(join(dataDir, name)).href;
}
