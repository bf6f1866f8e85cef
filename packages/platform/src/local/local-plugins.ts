/**
 * Plugins of tenants on this machine: behind bubblewrap where it is there and works, with interpreters that were
 * found once. Found out at the first run, since most starts run no plugin.
 */
import type { PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { createInterpreters } from "./interpreters.ts";
import { findBubblewrap, type PluginWall } from "./plugin-wall.ts";
import { createProcessPluginRunner, type ProcessPluginRunnerOptions } from "./process-plugin-runner.ts";

export type LocalPluginsOptions = Pick<ProcessPluginRunnerOptions, "path" | "log" | "temporaryDirectory">;

export function createLocalPlugins(options: LocalPluginsOptions): PluginRunner {
  let made: Promise<PluginRunner> | undefined;
  return {
    async run(run) {
      made ??= make(options);
      return (await made).run(run);
    },
  };
}

async function make(options: LocalPluginsOptions): Promise<PluginRunner> {
  const program = await findBubblewrap(options.path);
  const wall: PluginWall | undefined = program === undefined ? undefined : { program, network: true };
  if (wall === undefined) {
    options.log?.log("warn", "plugins run without a wall: bubblewrap is not there, or cannot be used here", {});
  }
  const interpreters = createInterpreters(options.path);
  return createProcessPluginRunner({ ...options, interpreters, ...(wall === undefined ? {} : { wall }) });
}
