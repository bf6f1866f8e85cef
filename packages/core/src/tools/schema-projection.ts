/**
 * Schemas of arguments as a family of model back ends reads them. What a family does not know is taken
 * out or rewritten, and only ever made looser: the call is checked against the whole schema before it runs
 * (CHAT-18). Keywords are told from names by where they stand, so a property called `const` or `$ref` is
 * a property.
 */
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { currentSchema } from "./current-schema.ts";

/** `openai` reads JSON Schema 2020-12 as it is, but for its top. */
export type SchemaFamily = "openai" | "gemini" | "anthropic-compatible" | "plain";

export const schemaFamilies = ["openai", "gemini", "anthropic-compatible", "plain"] as const satisfies SchemaFamily[];

/** Which back end reads what, by the beginning of the model's name without what stands before it. */
const familyByModel: readonly (readonly [prefix: string, family: SchemaFamily])[] = [
  ["gemini-", "gemini"],
  ["claude-", "anthropic-compatible"],
  ["command-", "plain"],
];

/** @param model the back end's own name of it: `gemini-2.5-pro`, `google/gemini-2.5-pro`, `us.anthropic.claude-…` */
export function schemaFamilyOf(model: string): SchemaFamily {
  const name = model.slice(model.lastIndexOf("/") + 1).toLowerCase();
  return familyByModel.find(([prefix]) => `.${name}`.includes(`.${prefix}`))?.[1] ?? "openai";
}

export interface ProjectedSchema {
  readonly schema: JsonObject;
  /** What was taken out, for the author of the tool; each once. */
  readonly warnings: readonly string[];
}

export function projectSchema(given: JsonObject, family: SchemaFamily): ProjectedSchema {
  const schema = currentSchema(given);
  if (family === "openai" || family === "anthropic-compatible") return projectTop(schema);
  // Of parts that have no properties these tell as much as of others.
  const top = ["anyOf", "oneOf"].some((keyword) => gatherTop(schema, [keyword]).names.size > 0)
    ? projectTop(schema)
    : undefined;
  const projection = new Projection(schema, family === "gemini" ? geminiRules : plainRules);
  const projected = projection.root(top?.schema);
  return { schema: projected, warnings: [...new Set([...(top?.warnings ?? []), ...projection.warnings])].sort() };
}

/** GPT models refuse these at the top, and the whole request with them; Claude the first three. */
const refusedAtTop = ["allOf", "anyOf", "oneOf", "enum", "not"] as const;

/** One object at the top, with the properties of all of its parts; GPT models want a list of these though it is empty. */
function projectTop(schema: JsonObject): ProjectedSchema {
  const refused = refusedAtTop.filter((keyword) => Object.hasOwn(schema, keyword));
  const isObject = refused.length === 0 && schema["type"] === "object";
  if (isObject && Object.hasOwn(schema, "properties")) return { schema, warnings: [] };
  const top = gatherTop(schema, refused);
  const kept = Object.entries(schema).filter(([key]) => !(refusedAtTop as readonly string[]).includes(key));
  return {
    schema: {
      ...Object.fromEntries(kept),
      ...(refused.length === 0 ? { properties: schema["properties"] ?? {} } : { properties: top.properties() }),
      ...(top.required.size === 0 ? {} : { required: [...top.required] }),
      type: "object",
    },
    warnings: refused.map((keyword) =>
      gatherTop(schema, [keyword]).names.size === 0
        ? `'${keyword}' is not told to the model`
        : `of '${keyword}' at the top the properties are told to the model`,
    ),
  };
}

/** @param keywords whose parts are gathered beside the schema's own */
function gatherTop(schema: JsonObject, keywords: readonly string[]): TopGathering {
  const gathering = new TopGathering(schema);
  gathering.add(schema, { isSure: true, depth: 0 }, keywords);
  return gathering;
}

/** Parts within parts that are looked at, and their properties. */
const mostTopMembers = 5_000;
const deepestTop = 8;

class TopGathering {
  /** Of properties that are no own ones of the schema. */
  readonly names = new Set<string>();
  readonly required = new Set<JsonValue>();
  readonly #document: JsonObject;
  readonly #sure = new Map<string, JsonValue>();
  readonly #maybe = new Map<string, Map<string, JsonValue>>();
  readonly #texts = new Map<JsonValue, string>();
  #membersLeft = mostTopMembers;

  constructor(document: JsonObject) {
    this.#document = document;
  }

  add(
    part: JsonValue | undefined,
    { isSure, depth }: { readonly isSure: boolean; readonly depth: number },
    keywords: readonly string[] = refusedAtTop,
  ): void {
    this.#membersLeft -= 1;
    if (!isJsonObject(part) || depth > deepestTop || this.#membersLeft < 0) return;
    const { $ref: reference, properties, required } = part;
    if (depth > 0 && typeof reference === "string" && reference.startsWith("#"))
      this.add(lookUp(this.#document, reference.slice(1)), { isSure, depth: depth + 1 });
    for (const [name, schema] of Object.entries(isJsonObject(properties) ? properties : {})) {
      this.#membersLeft -= 1;
      if (this.#membersLeft < 0) return;
      if (depth > 0 && !this.#sure.has(name)) this.names.add(name);
      if (!isSure) this.#addMaybe(name, schema);
      else if (!this.#sure.has(name)) this.#sure.set(name, schema);
    }
    if (isSure && Array.isArray(required)) for (const name of required) this.required.add(name);
    for (const keyword of ["allOf", "anyOf", "oneOf"]) {
      const parts = keywords.includes(keyword) ? part[keyword] : undefined;
      const inner = { isSure: isSure && keyword === "allOf", depth: depth + 1 };
      if (Array.isArray(parts)) for (const each of parts) this.add(each, inner);
    }
  }

  /** Equal ones of several parts once. */
  #addMaybe(name: string, schema: JsonValue): void {
    // A part may be referred to from everywhere.
    const text = this.#texts.get(schema) ?? canonicalJson(schema);
    this.#texts.set(schema, text);
    const known = this.#maybe.get(name) ?? new Map<string, JsonValue>();
    known.set(text, schema);
    this.#maybe.set(name, known);
  }

  /** What holds in any case beats what may hold. */
  properties(): JsonObject {
    const maybe = [...this.#maybe].filter(([name]) => !this.#sure.has(name));
    const told = maybe.map(([name, schemas]): [string, JsonValue] => {
      const [first = true, ...others] = schemas.values();
      return [name, others.length === 0 ? first : { anyOf: [first, ...others] }];
    });
    return Object.fromEntries([...this.#sure, ...told]);
  }
}

interface Rules {
  /** Keywords whose values are taken over as they are. */
  readonly copied: ReadonlySet<string>;
  /** By the type that they are of; beside another one the whole request is refused. */
  readonly formats: ReadonlyMap<string, ReadonlySet<string>>;
  readonly alternatives: boolean;
  readonly nullable: boolean;
}

const geminiRules: Rules = {
  copied: new Set([
    "title",
    "description",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
  ]),
  formats: new Map([
    ["string", new Set(["date-time", "enum"])],
    ["number", new Set(["float", "double"])],
    ["integer", new Set(["int32", "int64"])],
  ]),
  alternatives: true,
  nullable: true,
};

const plainRules: Rules = {
  copied: new Set(["title", "description"]),
  formats: new Map(),
  alternatives: false,
  nullable: false,
};

/** Handled by hand, or saying nothing that could be missed. */
const silent: ReadonlySet<string> = new Set([
  "$ref",
  "$defs",
  "definitions",
  "$schema",
  "$id",
  "$comment",
  "type",
  "format",
  "properties",
  "required",
  "items",
  "enum",
  "const",
  "anyOf",
  "oneOf",
  "allOf",
  "nullable",
  "additionalProperties",
  "default",
  "examples",
  "example",
]);

/** References multiply what they stand for; a schema this large helps no model. */
const mostNodes = 2_000;
/** Keywords, names, values and alternatives that are gone through: a single node may have any number of them. */
const mostMembers = 50_000;
const deepest = 32;

class Projection {
  readonly warnings = new Set<string>();
  readonly #document: JsonObject;
  readonly #rules: Rules;
  #nodes = 0;
  #membersLeft = mostMembers;
  readonly #sizes = new Map<JsonObject, number>();

  constructor(document: JsonObject, rules: Rules) {
    this.#document = document;
    this.#rules = rules;
  }

  /** @param top what to begin with; references lead into the document all the same */
  root(top = this.#document): JsonObject {
    const projected = this.#project(top, []);
    if (projected["type"] === "object") return canonical(projected);
    this.warnings.add("the top of the schema is told as an object without properties");
    const { description } = projected;
    return { ...(description === undefined ? {} : { description }), properties: {}, type: "object" };
  }

  /** @param path the references followed to here: one that comes again is a circle */
  #project(given: JsonValue | undefined, path: readonly string[], depth = 0): JsonObject {
    // `true` and `{}` allow everything; `false` cannot be said and is left open.
    if (!isJsonObject(given)) return {};
    this.#nodes += 1;
    if (this.#nodes > mostNodes || depth > deepest) {
      this.#warnOfSize();
      return {};
    }
    if (!this.#mayRead(given)) return {};
    const reference = given["$ref"];
    if (typeof reference === "string") return this.#follow(given, reference, path, depth);
    const schema = this.#merged(given, path, depth);
    const alternatives = this.#alternatives(schema, path, depth);
    if (alternatives !== undefined) return alternatives;
    const projected: JsonObject = {};
    for (const [key, value] of Object.entries(schema)) {
      if (this.#rules.copied.has(key)) projected[key] = value;
      else if (!silent.has(key)) this.warnings.add(`'${key}' is not told to the model`);
    }
    this.#placeType(schema, projected);
    this.#placeEnum(schema, projected);
    this.#placeFormat(schema, projected);
    if (projected["type"] === "object") this.#placeProperties(schema, projected, { path, depth });
    if (projected["type"] === "array") projected["items"] = this.#project(schema["items"], path, depth + 1);
    return projected;
  }

  #warnOfSize(): void {
    this.warnings.add("the schema is too large or too deep and is told in part");
  }

  /** May all members of these be gone through? */
  #mayRead(...values: readonly (JsonValue | undefined)[]): boolean {
    const count = values.reduce<number>((sum, value) => sum + this.#sizeOf(value), 0);
    if (count > this.#membersLeft) {
      this.#warnOfSize();
      return false;
    }
    this.#membersLeft -= count;
    return true;
  }

  /** Counted once: to count is to go through them. */
  #sizeOf(value: JsonValue | undefined): number {
    if (Array.isArray(value)) return value.length;
    if (!isJsonObject(value)) return 0;
    const size = this.#sizes.get(value) ?? Object.keys(value).length;
    this.#sizes.set(value, size);
    return size;
  }

  #follow(given: JsonObject, reference: string, path: readonly string[], depth: number): JsonObject {
    const { $ref: _reference, ...beside } = given;
    const target = reference.startsWith("#") ? lookUp(this.#document, reference.slice(1)) : undefined;
    if (target === undefined || path.includes(reference)) {
      this.warnings.add(
        target === undefined ? "a reference leads nowhere and is left open" : "a circle of references is cut",
      );
      const open = isJsonObject(target) && typeof target["type"] === "string" ? { type: target["type"] } : {};
      return this.#project({ ...open, ...beside }, path, depth + 1);
    }
    const merged = isJsonObject(target) && this.#mayRead(target) ? { ...target, ...beside } : beside;
    return this.#project(merged, [...path, reference], depth + 1);
  }

  /** `allOf` as one schema: what all parts say of properties together. */
  #merged(schema: JsonObject, path: readonly string[], depth: number): JsonObject {
    const parts = schema["allOf"];
    if (!Array.isArray(parts)) return schema;
    const { allOf: _all, ...own } = schema;
    const merger = new Merger(own);
    for (const part of parts.slice(0, mostNodes)) {
      const resolved = this.#resolve(part, path);
      if (!isJsonObject(resolved) || depth > deepest) continue;
      const flat = this.#merged(resolved, path, depth + 1);
      if (this.#mayRead(flat, flat["properties"], flat["required"])) merger.add(flat);
    }
    return merger.schema();
  }

  #resolve(part: JsonValue, path: readonly string[]): JsonValue | undefined {
    const seen = new Set(path);
    let current: JsonValue | undefined = part;
    while (isJsonObject(current) && typeof current["$ref"] === "string") {
      const reference: string = current["$ref"];
      if (seen.has(reference) || !reference.startsWith("#")) return undefined;
      seen.add(reference);
      current = lookUp(this.#document, reference.slice(1));
    }
    this.#nodes += 1;
    return this.#nodes > mostNodes ? undefined : current;
  }

  /** Undefined where the schema has no alternatives to be told. */
  #alternatives(schema: JsonObject, path: readonly string[], depth: number): JsonObject | undefined {
    const given = schema["anyOf"] ?? schema["oneOf"];
    if (!Array.isArray(given) || given.length === 0 || !this.#mayRead(given)) return undefined;
    if (isJsonObject(schema["properties"])) {
      this.warnings.add("alternatives beside properties are not told to the model");
      return undefined;
    }
    const { anyOf: _any, oneOf: _one, ...beside } = schema;
    const real = given.filter((part) => !isJsonObject(part) || part["type"] !== "null");
    const nullable = this.#rules.nullable && real.length < given.length ? { nullable: true } : {};
    const [first] = real;
    if (real.length > 1 && this.#rules.alternatives) {
      const description = typeof schema["description"] === "string" ? { description: schema["description"] } : {};
      return { ...description, anyOf: real.map((part) => this.#project(part, path, depth + 1)), ...nullable };
    }
    if (real.length > 1) this.warnings.add("of alternatives only the first is told to the model");
    return { ...this.#project({ ...(isJsonObject(first) ? first : {}), ...beside }, path, depth + 1), ...nullable };
  }

  #placeType(schema: JsonObject, projected: JsonObject): void {
    const given = schema["type"];
    const types = (Array.isArray(given) ? given : [given]).filter((type) => typeof type === "string");
    const real = types.filter((type) => type !== "null");
    const known = real[0] ?? guessedType(schema);
    if (known !== undefined) projected["type"] = known;
    if (real.length > 1) this.warnings.add("of several types only the first is told to the model");
    const isNullable = schema["nullable"] === true || (types.includes("null") && real.length > 0);
    if (this.#rules.nullable && isNullable) projected["nullable"] = true;
  }

  /** Texts only: that is what both sides can say. */
  #placeEnum(schema: JsonObject, projected: JsonObject): void {
    const values = Object.hasOwn(schema, "const") ? [schema["const"] ?? null] : schema["enum"];
    if (!Array.isArray(values) || !this.#mayRead(values)) return;
    const texts = values.filter((value) => typeof value === "string" && value !== "");
    if (texts.length > 0 && texts.length === values.filter((value) => value !== null).length) {
      projected["type"] = "string";
      projected["enum"] = texts;
    } else this.warnings.add("'enum' of anything but texts is not told to the model");
  }

  #placeFormat(schema: JsonObject, projected: JsonObject): void {
    const { format } = schema;
    if (format === undefined) return;
    const type = projected["type"];
    const known = typeof type === "string" ? this.#rules.formats.get(type) : undefined;
    if (typeof format === "string" && known?.has(format) === true) projected["format"] = format;
    else this.warnings.add("'format' is not told to the model");
  }

  #placeProperties(
    schema: JsonObject,
    projected: JsonObject,
    { path, depth }: { readonly path: readonly string[]; readonly depth: number },
  ): void {
    const own = schema["properties"];
    const given = isJsonObject(own) && this.#mayRead(own) ? own : {};
    // Entries, not assignments: a property may be called `__proto__`.
    const properties: JsonObject = Object.fromEntries(
      Object.entries(given).map(([name, part]) => [name, this.#project(part, path, depth + 1)]),
    );
    projected["properties"] = properties;
    const required = schema["required"];
    if (!Array.isArray(required) || !this.#mayRead(required)) return;
    const known = required.filter((name) => typeof name === "string" && Object.hasOwn(properties, name));
    if (known.length > 0) projected["required"] = known;
  }
}

function guessedType(schema: JsonObject): string | undefined {
  if (isJsonObject(schema["properties"])) return "object";
  return isJsonObject(schema["items"]) ? "array" : undefined;
}

/** Parts of `allOf` as one schema: what an earlier one says beats a later one, properties come together. */
class Merger {
  readonly #keywords = new Map<string, JsonValue>();
  readonly #properties = new Map<string, JsonValue>();
  readonly #required = new Set<JsonValue>();

  constructor(first: JsonObject) {
    this.add(first);
  }

  add(part: JsonObject): void {
    for (const [keyword, value] of Object.entries(part))
      if (!this.#keywords.has(keyword)) this.#keywords.set(keyword, value);
    const { properties, required } = part;
    for (const [name, value] of Object.entries(isJsonObject(properties) ? properties : {}))
      if (!this.#properties.has(name)) this.#properties.set(name, value);
    for (const name of Array.isArray(required) ? required : []) this.#required.add(name);
  }

  schema(): JsonObject {
    if (this.#properties.size > 0) this.#keywords.set("properties", Object.fromEntries(this.#properties));
    if (this.#required.size > 0) this.#keywords.set("required", [...this.#required]);
    return Object.fromEntries(this.#keywords);
  }
}

/** A JSON pointer of a reference; `undefined` where it leads nowhere. */
function lookUp(document: JsonObject, pointer: string): JsonValue | undefined {
  let current: JsonValue | undefined = document;
  for (const part of pointer.split("/").slice(1)) {
    const key = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(current)) current = current[Number(key)];
    else if (isJsonObject(current) && Object.hasOwn(current, key)) current = current[key];
    else return undefined;
  }
  return current;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Equal schemas become equal bytes, so that prompts are found in a back end's cache. */
function canonical(schema: JsonObject): JsonObject {
  return JSON.parse(canonicalJson(schema)) as JsonObject;
}
