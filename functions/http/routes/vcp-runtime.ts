/** What the tenant's VCP runtime holds (VCP specification s. 3.7; VCP-23). */
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";

const runtimeSchema = z.strictObject({
  staticPlaceholderValues: z
    .record(z.string(), z.string())
    .meta({ description: "By placeholder, without its braces; of static plugins and of nodes." }),
  messagePreprocessors: z
    .array(
      z.strictObject({
        name: z.string(),
        displayName: z.string(),
        pluginType: z.string(),
        place: z.int(),
        runs: z.enum(["box", "node"]).meta({ description: "Loaded for each request, or held on a node." }),
      }),
    )
    .meta({ description: "In the order in which they work on messages." }),
  serviceModules: z.array(
    z.strictObject({
      name: z.string(),
      displayName: z.string(),
      pluginType: z.string(),
      hasApiRoutes: z.boolean(),
      state: z.enum(["on_demand", "needs_node", "starting", "running", "failed", "disabled"]),
      node: z.string().nullable().meta({ description: "That holds it." }),
      message: z.string().nullable().meta({ description: "Why it failed, or is disabled." }),
    }),
  ),
  scheduledJobs: z.array(z.strictObject({ plugin: z.string(), job: z.string(), cron: z.string() })),
});

/** A service of the owner, for the isolation suite. */
async function arrangeModule(owner: IsolationDriver): Promise<string> {
  const name = `Hidden${Math.random().toString(36).slice(2)}`;
  const manifest = {
    name,
    pluginType: "service",
    entryPoint: { script: "index.js" },
    communication: { protocol: "direct" },
  };
  await owner.send("post", "/v1/plugins/import", {
    vcp: { manifest, files: [{ path: "index.js", text: "module.exports = {};" }] },
  });
  return name;
}

export const getVcpRuntime = defineRoute({
  method: "get",
  path: "/v1/vcp/runtime",
  summary: "What the VCP runtime holds",
  description: "Values of placeholders, preprocessors in their order, modules and where they are, jobs.",
  tags: ["vcp"],
  scope: "manage",
  responses: { 200: { description: "The tenant's runtime", schema: runtimeSchema } },
  isolation: { kind: "list", arrange: arrangeModule },
  handler: async (c, { core, context }) => {
    const { viewRuntime } = await import("@toolyard/core/vcp/modules/runtime-view");
    const { staticPlaceholderValues, messagePreprocessors, serviceModules, scheduledJobs } = await viewRuntime(
      core,
      context,
    );
    return c.json({
      staticPlaceholderValues: { ...staticPlaceholderValues },
      messagePreprocessors: messagePreprocessors.map((each) => ({ ...each })),
      serviceModules: serviceModules.map((each) => ({ ...each })),
      scheduledJobs: scheduledJobs.map((each) => ({ ...each })),
    });
  },
});
