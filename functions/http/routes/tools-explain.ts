/** What a call would do, without doing it: for whoever writes a definition or wonders whose key is used. */
import { secretLocations } from "@toolyard/core/blind/definition";
import { parseRuntimeConfig } from "@toolyard/core/blind/register";
import { requireScope } from "@toolyard/core/calls/admit";
import type { CallContext } from "@toolyard/core/context";
import { explainCall } from "@toolyard/core/tools/explain";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { arrangePlugin } from "./plugins.ts";
import { namedToolFields, namesOneTool } from "./named-tool.ts";
import { listedToolSchema } from "./tools-list.ts";

const explainedRequestSchema = z.strictObject({
  method: z.string(),
  url: z.string(),
  headers: z.array(z.tuple([z.string(), z.string()])),
  body: z.string().nullable(),
  body_bytes: z.int(),
  credentials: z.array(
    z.strictObject({
      name: z.string(),
      level: z.enum(["inline", "user", "tenant", "missing"]).meta({ description: "Whose value would be used." }),
      user_id: z.string().optional(),
      version: z.int().optional(),
      location: z.enum(secretLocations),
      target: z.string(),
    }),
  ),
});

const explanationSchema = z.strictObject({
  object: z.literal("explanation"),
  tool: listedToolSchema,
  arguments: z.record(z.string(), z.unknown()).meta({ description: "With defaults applied." }),
  effect: z.enum(["read", "write"]),
  needs_approval: z.boolean(),
  timeout_ms: z.int(),
  max_attempts: z.int(),
  request: explainedRequestSchema.nullable().meta({
    description: "The request with names of credentials in the place of their values; for holders of 'manage' only.",
  }),
});

const explainBody = namesOneTool(z.strictObject(namedToolFields));

export const explainTool = defineRoute({
  method: "post",
  path: "/v1/tools/explain",
  summary: "Show what a call would do, without doing it",
  description:
    "The request that would leave, to the byte, with secrets masked; which credential fills which place; whether a person would be asked. Nothing is sent.",
  tags: ["tools"],
  scope: "tools",
  request: { body: explainBody, toolArguments: ["arguments"] },
  responses: { 200: { description: "The call as it would be made", schema: explanationSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: {}, body: { name: (await arrangePlugin(owner)).name, arguments: {} } }),
  },
  async handler(c, { core, context, body }) {
    const target = body.uri ?? body.name ?? "";
    const explained: CallContext = {
      ...context,
      ...(body.session_id === undefined ? {} : { sessionId: body.session_id }),
      ...inlineConfig(context, body.runtime_config, { egress: core.egress }),
    };
    const explanation = await explainCall(core, explained, {
      target,
      isUri: body.uri !== undefined,
      arguments: body.arguments,
    });
    return c.json({ object: "explanation", ...explanation });
  },
});

function inlineConfig(
  { caller }: CallContext,
  given: unknown,
  options: Parameters<typeof parseRuntimeConfig>[1],
): Pick<CallContext, "runtimeConfig"> {
  if (given === undefined || given === null) return {};
  requireScope(caller, "runtime_config");
  return { runtimeConfig: parseRuntimeConfig(given, options) };
}
