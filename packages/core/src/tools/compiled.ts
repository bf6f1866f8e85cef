/**
 * What models are told of a tool, made once for each tool object, which lives as long as its registration
 * does: alias, schema of each family of back ends, tokens, warnings. Requests only look up.
 */
import { tokensOfTool } from "../budgets/estimate.ts";
import type { JsonObject } from "../json.ts";
import { aliasOf } from "./alias.ts";
import { ownNamesOf, renameProperties } from "./argument-names.ts";
import { projectSchema, schemaFamilies, type ProjectedSchema, type SchemaFamily } from "./schema-projection.ts";
import type { Tool } from "./tool.ts";

export interface CompiledTool {
  /** `[a-zA-Z_][a-zA-Z0-9_-]{0,63}`; the tool's own name where that is one. */
  readonly alias: string;
  /** The entry of a request's `tools`: name, description and parameters, and nothing else (BLIND-6). */
  readonly wireFor: (family: SchemaFamily) => JsonObject;
  /** Of the entry, estimated. */
  readonly tokens: number;
  /** What some models are not told, for the author of the tool. */
  readonly warnings: () => readonly string[];
}

type Described = Pick<Tool, "name" | "description" | "parameters">;

const compiled = new WeakMap<Described, CompiledTool>();

export function compileTool(tool: Described): CompiledTool {
  const known = compiled.get(tool);
  if (known !== undefined) return known;
  const made = compile(tool);
  compiled.set(tool, made);
  return made;
}

function compile({ name, description, parameters }: Described): CompiledTool {
  const alias = aliasOf(name);
  const projections = new Map<SchemaFamily, ProjectedSchema>();
  const projectionFor = (family: SchemaFamily): ProjectedSchema => {
    const projected = projections.get(family) ?? projectFor(family, parameters);
    projections.set(family, projected);
    return projected;
  };
  const wires = new Map<SchemaFamily, JsonObject>();
  const wireFor = (family: SchemaFamily): JsonObject => {
    const known = wires.get(family);
    if (known !== undefined) return known;
    const { schema } = projectionFor(family);
    const wire: JsonObject = { type: "function", function: { name: alias, description, parameters: schema } };
    wires.set(family, wire);
    return wire;
  };
  return {
    alias,
    wireFor,
    tokens: tokensOfTool(wireFor("openai")),
    warnings: () =>
      schemaFamilies.flatMap((family) => projectionFor(family).warnings.map((warning) => `${family}: ${warning}`)),
  };
}

function projectFor(family: SchemaFamily, parameters: JsonObject): ProjectedSchema {
  const projected = projectSchema(parameters, family);
  return family === "anthropic-compatible" ? renameProperties(projected, ownNamesOf(parameters)) : projected;
}
