/**
 * Names of arguments that Claude does not take are told by aliases, and what a model gives by those is given
 * back its own names before it is checked (decision 0014).
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { aliasOf } from "./alias.ts";
import { escapePointer, withSubschemas } from "./json-schema/document.ts";
import { projectSchema, type ProjectedSchema } from "./schema-projection.ts";
import type { Tool } from "./tool.ts";

/** Claude refuses the whole request for another name at the top. */
const legalProperty = /^[a-zA-Z0-9_.-]{1,64}$/;

const ownNames = new WeakMap<JsonObject, ReadonlyMap<string, string>>();

/** Names of arguments that not every back end takes, by the alias that is told instead. */
export function ownNamesOf(parameters: JsonObject): ReadonlyMap<string, string> {
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

export function renameProperties(
  { schema, warnings }: ProjectedSchema,
  names: ReadonlyMap<string, string>,
): ProjectedSchema {
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
