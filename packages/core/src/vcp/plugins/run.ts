/**
 * One run of a plugin over stdio (VCP-4, VCP-5, VCP-20): its configuration, its files, its environment, and the
 * process behind the port. Whatever waits for the answer, and in which way, is the caller's.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { PluginExit, PluginRun, PluginRunner } from "../../ports/plugin-runner.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { globalValueName, ownValueName } from "./configuration-names.ts";
import { openConfiguration, openValue } from "./configuration.ts";
import { PluginFolders } from "./files.ts";
import { vcpPluginsOf, type VcpPlugin } from "./plugin.ts";

export type PluginRunDeps = Pick<AdapterDeps, "sealer" | "blobs" | "tenantPlugins" | "publicUrl">;

export type PluginRunContext = Pick<CallContext, "tenant" | "config" | "redactor">;

export interface PluginRunOptions extends Pick<
  PluginRun,
  "stdin" | "timeoutMs" | "answerWithinMs" | "signal" | "onStdout"
> {
  /** Beside what every plugin of its type is given. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly maxOutputBytes: number;
}

/** The variable of upstream for its own folder; here the folder of the run, which is all that a plugin sees. */
const basePath = "PROJECT_BASE_PATH";

const folders = new WeakMap<PluginRunDeps["blobs"], PluginFolders>();

/** Unpacked folders of this process, for everything that runs plugins. */
export function foldersOf({ blobs }: Pick<PluginRunDeps, "blobs">): PluginFolders {
  let known = folders.get(blobs);
  if (known === undefined) folders.set(blobs, (known = new PluginFolders(blobs)));
  return known;
}

/** @throws GatewayError not sent: no runner here, unreadable values, missing files; else what the runner says */
export async function runPlugin(
  deps: PluginRunDeps,
  context: PluginRunContext,
  plugin: VcpPlugin,
  options: PluginRunOptions,
): Promise<PluginExit> {
  const { tenantPlugins: runner } = deps;
  if (runner === undefined) throw noRunner(plugin.name);
  const [configuration, folder, extra] = await Promise.all([
    openConfiguration(deps, context, plugin),
    foldersOf(deps).forRun(runner, context.tenant, plugin.files),
    grantedVariables(deps, context, plugin),
  ]);
  const { environment, stdin, timeoutMs, answerWithinMs, maxOutputBytes, signal, onStdout } = options;
  return answerOf(runner, {
    tenant: context.tenant,
    command: toCommand(plugin.manifest.entryPoint.command ?? ""),
    environment: {
      ...configuration.environment,
      ...serverPort(deps.publicUrl),
      ...extra,
      ...environment,
      PYTHONIOENCODING: "utf-8",
    },
    directoryVariables: [basePath],
    stdin,
    timeoutMs,
    maxOutputBytes,
    ...(answerWithinMs === undefined ? {} : { answerWithinMs }),
    ...(signal === undefined ? {} : { signal }),
    ...(onStdout === undefined ? {} : { onStdout }),
    files: [...folder.files, ...configuration.envFiles],
    linked: folder.linked,
  });
}

/** As soon as it is there; what the plugin left is removed meanwhile. */
function answerOf(runner: PluginRunner, run: PluginRun): Promise<PluginExit> {
  return new Promise((resolve, reject) => {
    runner.run({ ...run, onExit: resolve }).then(resolve, reject);
  });
}

/**
 * A manifest's command goes through a shell. One of plain words does the same without, which saves a process: its program
 * is on the PATH or in the plugin's folder. One that lies elsewhere is the shell's to find, behind the wall, which would
 * be opened for it otherwise.
 */
export function toCommand(command: string): PluginRun["command"] {
  const [first, ...rest] = command.split(" ").filter((word) => word !== "");
  const isPlain = /^[\w@%+,./-][\w@%+=:,./ -]*$/.test(command);
  const isOurs = first !== undefined && isPlain && !isAssignment(first) && !isElsewhere(first);
  return isOurs ? [first, ...rest] : ["/bin/sh", "-c", command];
}

function isElsewhere(program: string): boolean {
  return program.startsWith("/") || program.split("/").includes("..");
}

/** `NAME=value program` is the shell's to understand. */
function isAssignment(word: string): boolean {
  return word.includes("=");
}

function serverPort(publicUrl: string): Readonly<Record<string, string>> {
  const port = URL.parse(publicUrl)?.port ?? "";
  return port === "" ? {} : { SERVER_PORT: port };
}

/**
 * Secrets that are not the plugin's own, each for the one reason that upstream has for it.
 * @throws GatewayError `tool_failed` where the code that an administrator's tool needs is not stored
 */
async function grantedVariables(
  deps: PluginRunDeps,
  context: PluginRunContext,
  { name, manifest }: VcpPlugin,
): Promise<Readonly<Record<string, string>>> {
  const [imageKey, fileKey, code] = await Promise.all([
    imageServerKey(deps, context, "Image_Key"),
    imageServerKey(deps, context, "File_Key"),
    manifest.requiresAdmin ? openValue(deps, context, globalValueName(authCodeKey)) : undefined,
  ]);
  if (manifest.requiresAdmin && code === undefined) throw noAuthCode(name);
  if (code !== undefined) context.redactor.add(code);
  return {
    ...(imageKey === undefined ? {} : { IMAGESERVER_IMAGE_KEY: imageKey }),
    ...(fileKey === undefined ? {} : { IMAGESERVER_FILE_KEY: fileKey }),
    ...(code === undefined ? {} : { DECRYPTED_AUTH_CODE: code }),
  };
}

/** Name of the tenant-wide value that plugins with `requiresAdmin` are given. */
export const authCodeKey = "AuthCode";
const imageServer = "ImageServer";

async function imageServerKey(
  deps: PluginRunDeps,
  context: PluginRunContext,
  key: "Image_Key" | "File_Key",
): Promise<string | undefined> {
  if (vcpPluginsOf(context.config).get(imageServer)?.enabled !== true) return undefined;
  const value = await openValue(deps, context, ownValueName(imageServer, key));
  if (value !== undefined) context.redactor.add(value);
  return value;
}

function noRunner(name: string): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `'${name}' cannot be run here: no plugin runner is configured.`, {
      toolName: name,
    }),
    "not_sent",
  );
}

function noAuthCode(name: string): GatewayError {
  const message = `'${name}' requires an administrator's code, and none is stored; set it with PUT /v1/vcp/config, key '${authCodeKey}'.`;
  return withDelivery(
    new GatewayError("tool_failed", message, { toolName: name, extra: { vcp_error: { plugin_error: message } } }),
    "not_sent",
  );
}
