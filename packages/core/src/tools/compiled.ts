/**
 * What models are told of a tool, made once for each tool object, which lives as long as its registration
 * does: alias, schema of each family of back ends, tokens, warnings. Requests only look up.
 */
import { createHash } from "node:crypto";
import { tokensOfTool } from "../budgets/estimate.ts";
import type { JsonObject } from "../json.ts";
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
    const projected = projections.get(family) ?? projectSchema(parameters, family);
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

/** Gemini and Kimi refuse the whole request for a name that begins with anything else. */
const legalName = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
const hashLength = 12;

/** A name that every back end takes; equal names have equal aliases, different ones different ones. */
export function aliasOf(name: string): string {
  if (legalName.test(name)) return name;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, hashLength);
  const plain = name.replaceAll(/[^a-zA-Z0-9_-]+/g, "_");
  const readable = (/^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`).slice(0, 64 - hashLength - 1);
  return `${readable}_${hash}`;
}
