/** How a request says which tool it means, and what with. */
import { runtimeConfigField } from "@toolyard/core/blind/runtime-config";
import { sessionIdSchema } from "@toolyard/core/chat/schema";
import { toolUriForm } from "@toolyard/core/tools/uri";
import * as z from "zod";
import { argumentsField } from "./shared.ts";

export const namedToolFields = {
  uri: z
    .string()
    .min(1)
    .max(2_048)
    .optional()
    .meta({ pattern: toolUriForm, description: "Tool URI.", example: "plugin://search_company_basic?timeout=5000" }),
  name: z.string().min(1).max(64).optional().meta({ description: "Tool name, instead of `uri`." }),
  arguments: argumentsField,
  session_id: sessionIdSchema.optional(),
  runtime_config: runtimeConfigField,
};

type NamedTool = Pick<z.output<z.ZodObject<typeof namedToolFields>>, "uri" | "name">;

export function namesOneTool<Schema extends z.ZodType<NamedTool>>(schema: Schema): Schema {
  return schema
    .refine(({ uri, name }) => uri !== undefined || name !== undefined, {
      error: "needs either 'uri' or 'name'",
      path: ["uri"],
    })
    .refine(({ uri, name }) => uri === undefined || name === undefined, {
      error: "and 'name' exclude each other; send one of them",
      path: ["uri"],
    });
}
