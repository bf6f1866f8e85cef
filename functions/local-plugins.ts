/**
 * The server form takes the VCP plugins of a directory of its own (`TOOLYARD_PLUGIN_DIR`) into its default tenant
 * when it starts. What is there once is the tenant's: a folder that goes from the directory stays imported.
 */
import { resolve } from "node:path";
import { operatorCaller } from "@toolyard/core/callers/authenticate";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { Redactor } from "@toolyard/core/secrets/redactor";
import { blockedFileName, manifestFileName } from "@toolyard/core/vcp/plugins/manifest";
import { readPluginDirectory } from "@toolyard/platform/local/plugin-directory";
import { EnvironmentError } from "./env.ts";

/**
 * A server starts without its plugins rather than not at all.
 * @throws EnvironmentError where a directory was named that cannot be read: nobody would find out
 */
export async function importLocalPlugins(core: CoreDeps, directory: string | undefined, tenant: string): Promise<void> {
  const path = resolve(directory ?? "plugins");
  // Samples lie there: nobody has asked for them, so no model is told of them until somebody does.
  const startsDisabled = directory === undefined;
  const log = (message: string, fields: Readonly<Record<string, string | number>>): void =>
    core.log.log("info", message, { tenant, directory: path, ...fields });
  try {
    const files = await readPluginDirectory(path, [manifestFileName, blockedFileName]);
    if (files === undefined && !startsDisabled) {
      throw new EnvironmentError([`TOOLYARD_PLUGIN_DIR: '${path}' cannot be read as a directory`]);
    }
    if (files === undefined || files.length === 0) return;
    const [{ readFolders }, { importVcpFolders }] = await Promise.all([
      import("@toolyard/core/vcp/plugins/folders"),
      import("@toolyard/core/vcp/plugins/import"),
    ]);
    const config = await core.configs.get(tenant, 0);
    const context = {
      tenant,
      config,
      caller: operatorCaller,
      requestId: newId("request"),
      traceId: "",
      redactor: new Redactor(),
    };
    const { operations } = await importVcpFolders(core, context, readFolders(files), {
      dryRun: false,
      startsDisabled,
    });
    const count = (action: string): number => operations.filter((each) => each.action === action).length;
    log("VCP plugins of the plugin directory were imported", {
      added: count("added"),
      changed: count("changed"),
      unchanged: count("unchanged"),
      skipped: count("skipped"),
    });
  } catch (thrown) {
    if (thrown instanceof EnvironmentError) throw thrown;
    const { code, message } = toGatewayError(thrown);
    core.log.log("warn", "the plugin directory was not imported", { tenant, directory: path, code, reason: message });
  }
}
