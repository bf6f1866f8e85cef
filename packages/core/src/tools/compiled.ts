/**
 * What models are told of a tool, made once for each tool object, which lives as long as its registration
 * does: alias, schema of each family of back ends, tokens, warnings. Requests only look up.
 */
import { createHash } from "node:crypto";
import { tokensOfTool } from "../budgets/estimate.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { escapePointer, withSubschemas } from "./json-schema/document.ts";
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

/** May it be the alias of another name? Few names say yes. */
export function looksLikeAlias(name: string): boolean {
  return madeAlias.test(name);
}

const madeAlias = new RegExp(`_[0-9a-f]{${hashLength}}$`);

function projectFor(family: SchemaFamily, parameters: JsonObject): ProjectedSchema {
  const projected = projectSchema(parameters, family);
  return family === "anthropic-compatible" ? renameProperties(projected, ownNamesOf(parameters)) : projected;
}

/** Claude refuses the whole request for another name at the top. */
const legalProperty = /^[a-zA-Z0-9_.-]{1,64}$/;

const ownNames = new WeakMap<JsonObject, ReadonlyMap<string, string>>();

/** Names of arguments that not every back end takes, by the alias that is told instead. */
function ownNamesOf(parameters: JsonObject): ReadonlyMap<string, string> {
  const known = ownNames.get(parameters);
  if (known !== undefined) return known;
  const { properties } = projectSchema(parameters, "openai").schema;
  const odd = Object.keys(isJsonObject(properties) ? properties : {}).filter((name) => !legalProperty.test(name));
  const names = new Map(odd.map((name) => [aliasOf(name), name]));
  ownNames.set(parameters, names);
  return names;
}

/** What a model gave by the names that it was told. */
export function withOwnNames({ parameters }: Pick<Tool, "parameters">, args: JsonObject): JsonObject {
  const names = ownNamesOf(parameters);
  if (names.size === 0) return args;
  return Object.fromEntries(Object.entries(args).map(([name, value]) => [names.get(name) ?? name, value]));
}

/** Keywords that name properties, too; without them less is told. */
const namingKeywords: ReadonlySet<string> = new Set([
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "if",
  "then",
  "else",
  "patternProperties",
  "propertyNames",
]);

function renameProperties({ schema, warnings }: ProjectedSchema, names: ReadonlyMap<string, string>): ProjectedSchema {
  if (names.size === 0) return { schema, warnings };
  const aliases = new Map([...names].map(([alias, name]) => [name, alias]));
  const { properties, required, ...rest } = withTargets(schema, targetsOf(names));
  const told = Object.entries(isJsonObject(properties) ? properties : {}).map(
    ([name, property]): [string, JsonValue] => {
      const alias = aliases.get(name);
      return alias === undefined ? [name, property] : [alias, titled(name, property)];
    },
  );
  return {
    schema: {
      ...Object.fromEntries(Object.entries(rest).filter(([key]) => !namingKeywords.has(key))),
      properties: Object.fromEntries(told),
      ...(Array.isArray(required)
        ? { required: required.map((name) => (typeof name === "string" ? (aliases.get(name) ?? name) : name)) }
        : {}),
    },
    warnings: [...warnings, ...[...aliases].map(([name, alias]) => `'${name}' is told as '${alias}'`)],
  };
}

/** Where references find what is told by an alias, by how they say its name. */
function targetsOf(names: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const targets = new Map<string, string>();
  for (const [alias, name] of names) {
    const plain = escapePointer(name);
    targets.set(plain, alias).set(encodeURIComponent(plain.toWellFormed()), alias);
  }
  return targets;
}

/** Generators refer to what they have said before: `#/properties/start`. */
function withTargets(schema: JsonObject, targets: ReadonlyMap<string, string>): JsonObject {
  const changed = withSubschemas(schema, (part) => withTargets(part, targets));
  const { $ref: reference } = changed;
  if (typeof reference !== "string") return changed;
  const told = reference.replace(/^#\/properties\/([^/]+)/, (whole, said: string) => {
    const alias = targets.get(said);
    return alias === undefined ? whole : `#/properties/${alias}`;
  });
  return { ...changed, $ref: told };
}

/** The model is to know what it is called. */
function titled(name: string, property: JsonValue): JsonValue {
  if (property === true) return { title: name };
  return isJsonObject(property) && property["title"] === undefined ? { title: name, ...property } : property;
}
