/** Where processes of stdio plugins run. They are there to call something, so they reach the internet. */
import { createBox } from "./box.ts";
import { seconds } from "./limits.ts";
import type { Permission } from "./permission.ts";

export const pluginBox = createBox("PluginBox", {
  directory: "plugin-box",
  description: "Runs processes of plugins, one environment a tenant",
  seconds: seconds.pluginBox,
});

/** Also for invocations with response streaming. */
export const runPlugins: Permission = { actions: ["lambda:InvokeFunction"], resources: [pluginBox.arn] };
