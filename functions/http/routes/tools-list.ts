/**
 * The tools that this caller may use, in the form that its client reads. The list is made by the same
 * decision that a call passes, so what is listed can be run and nothing else (CHAT-11, BLIND-9).
 */
import { missingCredentials } from "@toolyard/core/blind/credential-resolver";
import { listTools as usableTools } from "@toolyard/core/tools/catalog";
import { compileTool } from "@toolyard/core/tools/compiled";
import { toListedTool, toMcpTool } from "@toolyard/core/tools/describe";
import type { JsonObject } from "@toolyard/core/json";
import type { Page } from "@toolyard/core/ports/page";
import type { Tool } from "@toolyard/core/tools/tool";
import { vcpPluginsOf } from "@toolyard/core/vcp/plugins/plugin";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { listSchema, pageQuery, pageSize, toList, type ListBody } from "../list.ts";
import { arrangePlugin } from "./plugins.ts";
import { idOf } from "./shared.ts";

const formats = ["list", "openai", "mcp", "vcp"] as const;

const parametersSchema = z.record(z.string(), z.unknown()).meta({ description: "JSON Schema of the arguments." });

export const listedToolSchema = z.strictObject({
  id: z.string(),
  object: z.literal("tool"),
  uri: z.string().meta({ example: "plugin://search_company_basic" }),
  name: z.string(),
  title: z.string().nullable(),
  description: z.string(),
  kind: z.enum(["HTTP", "NATIVE", "MCP", "VCP", "SERVICE", "NODE", "FLOW", "AGENT"]),
  nodes: z.array(z.string()).meta({ description: "Nodes that offer it." }),
  isDistributed: z.boolean().meta({ description: "It is a plugin of a VCP node." }),
  serverId: z.string().nullable().meta({ description: "Under which that node is connected." }),
  parameters: parametersSchema,
  effect: z.enum(["read", "write"]),
  needs_approval: z.boolean(),
  required_credentials: z.array(z.string()),
  missing_credentials: z.array(z.string()).meta({ description: "Not stored yet; a call is refused until they are." }),
  alias: z.string().meta({ description: "The name by which models call it." }),
  tokens: z.int().meta({ description: "What telling a model of it takes, estimated." }),
  warnings: z.array(z.string()).meta({ description: "What some models' back ends are not told of its schema." }),
});

const openAiToolSchema = z.strictObject({
  type: z.literal("function"),
  function: z.strictObject({ name: z.string(), description: z.string(), parameters: parametersSchema }),
});

const vcpToolSchema = z.strictObject({
  name: z.string(),
  text: z.string().meta({ description: "What a system prompt says of it, for models that write TOOL_REQUEST blocks." }),
});

const mcpListSchema = z.strictObject({
  tools: z.array(
    z.strictObject({
      name: z.string(),
      title: z.string().optional(),
      description: z.string(),
      inputSchema: parametersSchema,
      outputSchema: parametersSchema.optional(),
      annotations: z.record(z.string(), z.boolean()),
    }),
  ),
  nextCursor: z.string().optional(),
});

const toolsQuery = pageQuery.extend({
  format: z.enum(formats).default("list").meta({
    description:
      "'openai': what models are told, for a chat request's 'tools'; 'mcp': as the result of MCP's tools/list; 'vcp': as text for prompts.",
  }),
  // A client that builds a prompt from half of the tools would not notice, so all is the default.
  limit: pageSize(1_000).optional().meta({ description: "Tools per page; absent: all." }),
  after: pageQuery.shape.after.meta({ description: "Name after which the page starts." }),
  order: z.enum(["asc", "desc"]).default("asc").meta({ description: "By name." }),
});

type VcpTool = z.output<typeof vcpToolSchema>;

function pageOfTools(tools: readonly Tool[], query: z.output<typeof toolsQuery>): Page<Tool> {
  const { after, limit = tools.length } = query;
  const ordered = query.order === "asc" ? tools : tools.toReversed();
  const rest =
    after === undefined ? ordered : ordered.filter(({ name }) => (query.order === "asc" ? name > after : name < after));
  return { data: rest.slice(0, limit), hasMore: rest.length > limit };
}

/** What models are told, to the letter; where a page ends is said by the tool's own name, which orders them. */
function toOpenAiList(page: Page<Tool>): ListBody<JsonObject> {
  const list = toList(
    page,
    (tool) => tool,
    ({ name }) => name,
  );
  return { ...list, data: list.data.map((tool) => compileTool(tool).wireFor("openai")) };
}

export const listTools = defineRoute({
  method: "get",
  path: "/v1/tools",
  summary: "List the tools that this caller may use",
  description:
    "All that this key may call, each with the name that models know it by (`alias`); `format` has it as OpenAI, MCP or VCP write tools.",
  tags: ["tools"],
  scope: null,
  list: true,
  request: { query: toolsQuery },
  responses: {
    200: {
      description: "The tools, ordered by name",
      schema: z.union([
        listSchema(listedToolSchema),
        listSchema(openAiToolSchema),
        listSchema(vcpToolSchema),
        mcpListSchema,
      ]),
    },
  },
  isolation: {
    kind: "list",
    async arrange(owner) {
      const plugin = await arrangePlugin(owner);
      return plugin.name;
    },
  },
  async handler(c, { core, context, query }) {
    const page = pageOfTools(usableTools(core.adapters, context), query);
    switch (query.format) {
      case "openai":
        return c.json(toOpenAiList(page));
      case "mcp": {
        const last = page.hasMore ? page.data.at(-1)?.name : undefined;
        return c.json({ tools: page.data.map(toMcpTool), ...(last === undefined ? {} : { nextCursor: last }) });
      }
      case "vcp": {
        const { textOfTool } = await import("@toolyard/core/vcp/plugins/tool-text");
        const plugins = vcpPluginsOf(context.config);
        const toText = (tool: Tool): VcpTool => ({ name: tool.name, text: textOfTool(tool, plugins.get(tool.name)) });
        return c.json(toList(page, toText, ({ name }) => name));
      }
      case "list":
        return c.json(
          toList(page, (tool) => toListedTool(tool, missingCredentials(context, tool.requiredCredentials)), idOf),
        );
      default:
        return query.format satisfies never;
    }
  },
});
