/**
 * Schemas of OpenAPI 3.0, 3.1 and Swagger 2.0 as self-contained JSON Schema 2020-12 for the arguments of
 * a tool: no reference is left, circles are cut, what a caller may not send is left out. Keywords are
 * told from names of properties by where they stand, so a property may be called anything.
 *
 * What is cut is only ever made looser, so that nothing a back end takes is refused here.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { importLimits } from "../limits.ts";
import type { Notes } from "../notes.ts";
import { cutText, tidyStart } from "../text.ts";
import { shortJson } from "../walk.ts";
import type { ImportWork } from "../work.ts";
import type { ApiDocument, Located } from "./document.ts";
import { mergeSchemas } from "./merge.ts";
import { jsonTypes, typeNames } from "./schema-types.ts";

/** More schemas than an operation may have; it is tried again with fewer levels. */
export class SchemaTooLarge extends Error {}

interface Place {
  readonly base: string;
  /** Schema around this one that brings its own definitions. */
  readonly home: JsonObject | undefined;
  /** References that led here. */
  readonly trail: readonly string[];
  readonly depth: number;
  /** A value that has to be sent anyway may have a default; others are the back end's to fill in. */
  readonly isRequired: boolean;
}

/** How often a reference may be followed within itself: a schema that holds itself is shown twice. */
const mostRepeats = 2;

/** References within references; each is a call within a call here. */
const longestTrail = 64;

export interface SchemaSize {
  /** Levels of nesting. */
  readonly depth: number;
  /** Characters of a description. */
  readonly description: number;
}

export interface ConverterOptions {
  readonly document: ApiDocument;
  readonly notes: Notes;
  readonly size: SchemaSize;
  readonly work: ImportWork;
}

export class SchemaConverter {
  readonly #document: ApiDocument;
  readonly #notes: Notes;
  readonly #size: SchemaSize;
  readonly #work: ImportWork;
  #nodes = 0;
  /** Rises whenever a schema comes out looser than it was. */
  #loosened = 0;
  /** Properties that callers may not send, by converted object schema. */
  readonly #removed = new WeakMap<JsonObject, ReadonlySet<string>>();

  constructor({ document, notes, size, work }: ConverterOptions) {
    this.#document = document;
    this.#notes = notes;
    this.#size = size;
    this.#work = work;
  }

  /**
   * @param isRequired keeps the schema's own `default`
   * @throws SchemaTooLarge
   */
  convert({ value, base }: Located, isRequired = false): JsonObject {
    const converted = this.#convert(value, { base, home: undefined, trail: [], depth: 0, isRequired });
    return isJsonObject(converted) ? converted : {};
  }

  #convert(value: JsonValue, place: Place): JsonValue {
    this.#nodes += 1;
    this.#work.spend(1);
    if (this.#nodes > importLimits.schemaNodes) throw new SchemaTooLarge();
    if (typeof value === "boolean") return value ? {} : false;
    if (!isJsonObject(value)) return {};
    this.#work.look(Object.keys(value).length);
    if (place.depth > this.#size.depth) return this.#cut(value);
    const inner = this.#enter(value, place);
    const reference = ownMember(value, "$ref") ?? ownMember(value, "$dynamicRef");
    if (typeof reference === "string") return this.#convertReference(reference, value, inner);
    const included = ownMember(value, "allOf");
    return Array.isArray(included) ? this.#convertAll(value, included, inner) : this.#convertPlain(value, inner);
  }

  #enter(schema: JsonObject, place: Place): Place {
    const bringsOwn = isJsonObject(schema["$defs"]) || isJsonObject(schema["definitions"]);
    return { ...place, depth: place.depth + 1, home: bringsOwn ? schema : place.home };
  }

  #cut(schema: JsonObject): JsonObject {
    this.#loosen("Recursive or deeply nested parts of the schema are described only so far.");
    const [type, ...more] = typeNames(ownMember(schema, "type"));
    const isPlain = type !== undefined && jsonTypes.has(type) && more.length === 0 && schema["nullable"] !== true;
    return { ...(isPlain ? { type } : {}), description: "Nested deeper than is described here." };
  }

  #loosen(note: string): void {
    this.#loosened += 1;
    this.#notes.add(note);
  }

  #convertReference(reference: string, schema: JsonObject, place: Place): JsonValue {
    const target = this.#document.resolve(reference, place.base, place.home);
    const { $ref: _reference, $dynamicRef: _dynamic, ...siblings } = schema;
    if (target === undefined) {
      this.#loosen(`The reference '${cutText(reference, 120)}' leads nowhere that is known; any value is taken there.`);
      return this.#convertPlain(siblings, place);
    }
    const repeats = place.trail.filter((key) => key === target.key).length;
    if (repeats >= mostRepeats || place.trail.length >= longestTrail)
      return this.#cut(isJsonObject(target.value) ? target.value : {});
    const inside: Place = {
      ...place,
      base: target.base,
      home: target.key.includes("#local") ? place.home : undefined,
      trail: [...place.trail, target.key],
      // A reference is no level of its own; circles of them end by `mostRepeats`.
      depth: place.depth - 1,
    };
    const converted = this.#convert(target.value, inside);
    // In 3.0 what stands beside a reference is ignored; remarks and `nullable` there are meant nevertheless.
    const beside =
      this.#document.version === "3.1" ? this.#convertPlain(siblings, place) : this.#describe({}, siblings);
    if (!isJsonObject(converted)) return converted;
    return this.#combine([beside, converted], siblings);
  }

  #convertAll(schema: JsonObject, included: readonly JsonValue[], place: Place): JsonValue {
    const { allOf: _allOf, nullable, ...own } = schema;
    const members = included.map((member) => this.#convert(member, place));
    if (members.includes(false)) return false;
    return this.#combine(
      [this.#convertPlain(own, place), ...members.filter(isJsonObject)],
      nullable === undefined ? {} : { nullable },
    );
  }

  /** All of them at once, and null where the source says so. */
  #combine(schemas: readonly JsonObject[], source: JsonObject): JsonObject {
    const [own = {}, ...others] = schemas;
    const merged = mergeSchemas(schemas) ?? { ...own, allOf: others };
    const removed = new Set(schemas.flatMap((schema) => [...(this.#removed.get(schema) ?? [])]));
    const properties = merged["properties"];
    const required = merged["required"];
    if (removed.size === 0) return this.#nullable(source, merged);
    const isKept = (name: JsonValue): boolean =>
      typeof name !== "string" || !removed.has(name) || (isJsonObject(properties) && Object.hasOwn(properties, name));
    const result = Array.isArray(required) ? { ...merged, required: required.filter(isKept) } : merged;
    this.#removed.set(result, removed);
    return this.#nullable(source, result);
  }

  #convertPlain(schema: JsonObject, place: Place): JsonObject {
    const result = new Map<string, JsonValue>();
    const put = (keyword: string, value: JsonValue | undefined): void => {
      if (value !== undefined) result.set(keyword, value);
    };
    put("type", this.#typeOf(schema));
    this.#copyPlain(schema, put);
    this.#copyEnum(schema, put);
    this.#copyBounds(schema, put);
    this.#copyPattern(schema, put);
    const removed = this.#convertProperties(schema, place, put);
    this.#convertParts(schema, place, put);
    const fallback = ownMember(schema, "default");
    if (place.isRequired && fallback !== undefined && isBrief(fallback) && isOfType(result.get("type"), fallback))
      put("default", fallback);
    const described = this.#describe(Object.fromEntries(result), schema, place.isRequired);
    if (removed.size > 0) this.#removed.set(described, removed);
    return this.#nullable(schema, this.#unwrap(described));
  }

  /** An alternative without another one is no alternative. */
  #unwrap(schema: JsonObject): JsonObject {
    const { anyOf, ...own } = schema;
    const [only, second] = Array.isArray(anyOf) ? anyOf : [];
    const merged = second === undefined && isJsonObject(only) ? mergeSchemas([own, only]) : undefined;
    if (merged === undefined) return schema;
    const removed = [schema, ...(isJsonObject(only) ? [only] : [])].flatMap((each) => [
      ...(this.#removed.get(each) ?? []),
    ]);
    if (removed.length > 0) this.#removed.set(merged, new Set(removed));
    return merged;
  }

  #typeOf(schema: JsonObject): JsonValue | undefined {
    const type = ownMember(schema, "type");
    if (type === undefined) return undefined;
    if (type === "file") return "string";
    if (Array.isArray(type)) this.#work.look(type.length);
    const known = typeNames(type).filter((name) => jsonTypes.has(name));
    const [first] = known;
    if (first === undefined)
      this.#loosen(`The type '${shortJson(type, 60) ?? "…"}' is none of JSON Schema; any value is taken there.`);
    return known.length < 2 ? first : [...new Set(known)];
  }

  #copyPlain(schema: JsonObject, put: Put): void {
    for (const keyword of ["format", "contentEncoding", "contentMediaType"]) {
      const value = ownMember(schema, keyword);
      if (typeof value === "string" && value.length <= 64) put(keyword, value);
    }
    if (ownMember(schema, "type") === "file") put("format", "binary");
    for (const keyword of ["uniqueItems", "deprecated"]) if (ownMember(schema, keyword) === true) put(keyword, true);
    const constant = ownMember(schema, "const");
    if (constant !== undefined && isBrief(constant)) put("const", constant);
    else if (constant !== undefined) this.#loosen("A constant is too large to be kept.");
    const dependent = ownMember(schema, "dependentRequired");
    if (isJsonObject(dependent) && isBrief(dependent) && Object.values(dependent).every(isNames))
      put("dependentRequired", dependent);
  }

  #copyEnum(schema: JsonObject, put: Put): void {
    const values = ownMember(schema, "enum");
    if (!Array.isArray(values) || values.length === 0) return;
    const isShort = values.length <= importLimits.enumValues && isBrief(values);
    if (!isShort) {
      this.#loosen(`An enumeration of ${values.length} values is described by its first ones only.`);
    } else {
      put("enum", values);
    }
  }

  #copyBounds(schema: JsonObject, put: Put): void {
    for (const [bound, exclusive] of [
      ["minimum", "exclusiveMinimum"],
      ["maximum", "exclusiveMaximum"],
    ] as const) {
      const value = ownMember(schema, bound);
      const limit = ownMember(schema, exclusive);
      // Before 3.1 `exclusiveMinimum` said how `minimum` was meant.
      if (typeof value === "number") put(limit === true ? exclusive : bound, value);
      if (typeof limit === "number") put(exclusive, limit);
    }
    const multiple = ownMember(schema, "multipleOf");
    if (typeof multiple === "number" && multiple > 0) put("multipleOf", multiple);
    for (const keyword of ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]) {
      const value = ownMember(schema, keyword);
      if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) put(keyword, value);
    }
  }

  #copyPattern(schema: JsonObject, put: Put): void {
    const pattern = ownMember(schema, "pattern");
    if (typeof pattern !== "string") return;
    const problem = this.#work.patternProblem(pattern);
    if (problem === undefined) put("pattern", pattern);
    else this.#loosen(`The pattern '${cutText(pattern, 80)}' ${problem}; it is left out.`);
  }

  /** @returns names of properties that callers may not send */
  #convertProperties(schema: JsonObject, place: Place, put: Put): ReadonlySet<string> {
    const removed = new Set<string>();
    const properties = ownMember(schema, "properties");
    const named = ownMember(schema, "required");
    if (Array.isArray(named)) this.#work.look(named.length);
    const required = new Set(isNames(named) ? named : []);
    if (isJsonObject(properties)) {
      this.#work.look(Object.keys(properties).length);
      const kept: [string, JsonValue][] = [];
      for (const [name, property] of Object.entries(properties)) {
        if (this.#isReadOnly(property, place)) removed.add(name);
        else kept.push([name, this.#convert(property, { ...place, isRequired: required.has(name) })]);
      }
      put("properties", Object.fromEntries(kept));
      if (removed.size > 0) this.#loosened += 1;
    }
    const left = [...required].filter((name) => !removed.has(name));
    if (left.length > 0) put("required", left);
    return removed;
  }

  #isReadOnly(property: JsonValue, place: Place): boolean {
    if (ownMember(property, "readOnly") === true) return true;
    const target = this.#document.follow({ value: property, base: place.base });
    return target !== undefined && ownMember(target.value, "readOnly") === true;
  }

  #convertParts(schema: JsonObject, outer: Place, put: Put): void {
    const place = { ...outer, isRequired: false };
    const part = (value: JsonValue): JsonValue => this.#convert(value, place);
    const additional = ownMember(schema, "additionalProperties");
    if (additional === false) put("additionalProperties", false);
    else if (isJsonObject(additional) && Object.keys(additional).length > 0)
      put("additionalProperties", part(additional));
    this.#convertItems(schema, part, put);
    for (const keyword of ["patternProperties", "dependentSchemas"]) {
      const map = ownMember(schema, keyword);
      if (!isJsonObject(map)) continue;
      this.#work.look(Object.keys(map).length);
      const usable = Object.entries(map).filter(
        ([key]) => keyword !== "patternProperties" || this.#work.patternProblem(key) === undefined,
      );
      if (usable.length < Object.keys(map).length)
        this.#loosen("A pattern for names of properties cannot be used; it is left out.");
      put(keyword, Object.fromEntries(usable.map(([key, value]) => [key, part(value)])));
    }
    for (const keyword of ["contains", "propertyNames"]) {
      const value = ownMember(schema, keyword);
      if (isJsonObject(value)) put(keyword, part(value));
    }
    this.#convertAlternatives(schema, part, put);
    this.#convertConditions(schema, part, put);
  }

  #convertItems(schema: JsonObject, part: Part, put: Put): void {
    const items = ownMember(schema, "items");
    const prefix = ownMember(schema, "prefixItems");
    if (Array.isArray(prefix)) put("prefixItems", prefix.map(part));
    if (Array.isArray(items)) {
      put("prefixItems", items.map(part));
      const rest = ownMember(schema, "additionalItems");
      if (isJsonObject(rest) || rest === false) put("items", part(rest));
    } else if (isJsonObject(items) || items === false) {
      put("items", part(items));
    }
  }

  /**
   * `oneOf` becomes `anyOf`: written for people, its branches often overlap, and they do so more when parts
   * of them are cut; a value that fits two of them is the back end's to judge.
   */
  #convertAlternatives(schema: JsonObject, part: Part, put: Put): void {
    const [any, one] = ["anyOf", "oneOf"].map((keyword) => {
      const branches = ownMember(schema, keyword);
      return Array.isArray(branches) && branches.length > 0 ? branches.map(part) : undefined;
    });
    if (any !== undefined && one !== undefined) {
      put("anyOf", any);
      put("allOf", [{ anyOf: one }]);
    } else {
      put("anyOf", any ?? one);
    }
  }

  /** What stands behind `not` and `if` must not become looser: then it would refuse more. */
  #convertConditions(schema: JsonObject, part: Part, put: Put): void {
    const exact = (keyword: string): JsonValue | undefined => {
      const value = ownMember(schema, keyword);
      if (!isJsonObject(value)) return undefined;
      const before = this.#loosened;
      const converted = part(value);
      if (this.#loosened === before) return converted;
      this.#loosen(`The condition '${keyword}' cannot be kept exactly; it is left out.`);
      return undefined;
    };
    put("not", exact("not"));
    const condition = exact("if");
    if (condition === undefined) return;
    put("if", condition);
    for (const keyword of ["then", "else"]) {
      const value = ownMember(schema, keyword);
      if (isJsonObject(value)) put(keyword, part(value));
    }
  }

  /** Adds the remark that a model reads, with what is not sent but good to know. */
  #describe(result: JsonObject, schema: JsonObject, keepsDefault = false): JsonObject {
    const parts: string[] = [];
    const description = ownMember(schema, "description");
    const text = typeof description === "string" ? this.#cutDescription(description) : "";
    if (text !== "") parts.push(text);
    const fallback = ownMember(schema, "default");
    const defaultText = keepsDefault || fallback === undefined ? undefined : shortJson(fallback, 80);
    if (defaultText !== undefined) parts.push(`Default: ${defaultText}.`);
    const values = ownMember(schema, "enum");
    if (Array.isArray(values) && result["enum"] === undefined && values.length > 0) {
      parts.push(
        cutText(
          `One of ${values.length} values, for example ${values
            .slice(0, 20)
            .map((value) => shortJson(value, 80) ?? "…")
            .join(", ")}`,
          400,
        ),
      );
    }
    const example = firstExample(schema);
    if (example !== undefined && result["enum"] === undefined) parts.push(`For example ${example}.`);
    return parts.length === 0 ? result : { ...result, description: joinSentences(parts) };
  }

  #cutDescription(text: string): string {
    const most = this.#size.description;
    const start = tidyStart(text, most);
    if (start.isCut) this.#notes.add(`Descriptions of parameters are cut to ${most} characters.`);
    return start.text;
  }

  #nullable(source: JsonObject, converted: JsonObject): JsonObject {
    const isNullable =
      this.#document.version !== "3.1" && (source["nullable"] === true || source["x-nullable"] === true);
    if (!isNullable) return converted;
    const { description, ...rest } = converted;
    const types = typeNames(rest["type"]);
    const isSimple =
      types.length > 0 && rest["const"] === undefined && rest["anyOf"] === undefined && rest["allOf"] === undefined;
    const values = rest["enum"];
    const result = isSimple
      ? {
          ...converted,
          type: [...new Set([...types, "null"])],
          ...(Array.isArray(values) && !values.includes(null) ? { enum: [...values, null] } : {}),
        }
      : Object.keys(rest).length === 0
        ? converted
        : {
            anyOf: [...alternativesOf(rest), { type: "null" }],
            ...(description === undefined ? {} : { description }),
          };
    const removed = this.#removed.get(converted);
    if (removed !== undefined) this.#removed.set(result, removed);
    return result;
  }
}

/** The branches of a schema that is nothing else than alternatives. */
function alternativesOf(schema: JsonObject): readonly JsonValue[] {
  const { anyOf, ...others } = schema;
  return Array.isArray(anyOf) && Object.keys(others).length === 0 ? anyOf : [schema];
}

type Put = (keyword: string, value: JsonValue | undefined) => void;
type Part = (value: JsonValue) => JsonValue;

function isNames(value: JsonValue | undefined): value is string[] {
  return Array.isArray(value) && value.every((name) => typeof name === "string");
}

/** Values that are kept as they stand. */
function isBrief(value: JsonValue): boolean {
  return shortJson(value, importLimits.enumCharacters) !== undefined;
}

/** Documents write `null`, or a number for a text, where they mean that there is none: nothing to send. */
function isOfType(type: JsonValue | undefined, value: JsonValue): boolean {
  const types = typeNames(type);
  if (types.length === 0) return true;
  if (typeof value === "number") return types.includes("number") || (types.includes("integer") && value % 1 === 0);
  return types.includes(value === null ? "null" : Array.isArray(value) ? "array" : typeof value);
}

/** With a full stop where the next one begins. */
function joinSentences(parts: readonly string[]): string {
  return parts
    .map((part, at) => (at < parts.length - 1 && !/[.!?:;…。！？)]$/.test(part) ? `${part}.` : part))
    .join(" ");
}

/** A short example of a single value. */
function firstExample(schema: JsonObject): string | undefined {
  const examples = ownMember(schema, "examples");
  const example = ownMember(schema, "example") ?? (Array.isArray(examples) ? examples[0] : undefined);
  if (example === undefined || example === null || typeof example === "object" || example === "") return undefined;
  return shortJson(example, 80);
}
