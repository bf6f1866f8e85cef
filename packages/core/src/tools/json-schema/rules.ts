/**
 * JSON Schema 2020-12 as a table of keywords (CHAT-18). Each keyword is compiled once into a check;
 * no code is generated, patterns run on RE2, and every step is paid from a budget, because schemas
 * come from tenants and foreign servers. Older drafts' `definitions`, `dependencies`, item tuples
 * and boolean `exclusiveMinimum` are understood, too, and `nullable` of OpenAPI 3.0, whatever
 * stands beside it.
 *
 * `$dynamicRef` and `$recursiveRef` resolve as `$ref` does: a tool's schema is one document. Members
 * beside a `$ref` always count, in every draft.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { invalidSchema, shorten, type Resource, type SchemaDocument } from "./document.ts";
import { compilePattern, type Pattern } from "../pattern.ts";
import {
  type Compiler,
  type Keyword,
  Rule,
  all,
  anything,
  fail,
  namesOf,
  nothing,
  numberOf,
  objectOf,
  ruleMapOf,
} from "./rule.ts";
import {
  bound,
  formatKeyword,
  isMultiple,
  isNullable,
  lengthBound,
  oneOfValues,
  patternKeyword,
  sizeBound,
  typeKeyword,
} from "./value-keywords.ts";
import {
  additionalPropertiesKeyword,
  dependenciesKeyword,
  dependentRequired,
  dependentSchema,
  patternPropertiesKeyword,
  propertiesKeyword,
  propertyNamesKeyword,
  requiredKeyword,
  unevaluatedPropertiesKeyword,
} from "./object-keywords.ts";
import {
  containsKeyword,
  itemsKeyword,
  prefixItemsKeyword,
  unevaluatedItemsKeyword,
  uniqueItemsKeyword,
} from "./array-keywords.ts";
import {
  allOfKeyword,
  anyOfKeyword,
  ifKeyword,
  notKeyword,
  oneOfKeyword,
  referenceKeyword,
} from "./combining-keywords.ts";

/** Of all patterns of a schema, as `Pattern.work` counts it: forty long ones, or a thousand plain ones. */
const mostPatternWork = 25_000;

interface UnreadSchema {
  readonly rule: Rule;
  readonly schema: JsonObject;
  readonly resource: Resource;
  readonly location: string;
}

export class RuleCompiler implements Compiler {
  readonly document: SchemaDocument;
  readonly #rules = new Map<JsonObject, Rule>();
  readonly #unread: UnreadSchema[] = [];
  readonly #patterns = new Map<string, Pattern>();
  #patternWork = 0;

  constructor(document: SchemaDocument) {
    this.document = document;
  }

  /**
   * A schema with all that it leads to.
   * @throws GatewayError `invalid_definition` naming the place in the schema
   */
  compile(schema: JsonValue | undefined, resource: Resource, location: string): Rule {
    const rule = this.refer(schema, resource, location);
    // Reading adds to it.
    for (const next of this.#unread) this.#read(next);
    this.#unread.length = 0;
    return rule;
  }

  /**
   * A schema that is read after this one: references lead on from schema to schema without a measure.
   * @throws GatewayError as `compile` does
   */
  refer(schema: JsonValue | undefined, resource: Resource, location: string): Rule {
    if (typeof schema === "boolean") return schema ? anything : nothing;
    if (!isJsonObject(schema)) throw invalidSchema(location, "must be a schema (an object or a boolean)");
    const known = this.#rules.get(schema);
    if (known !== undefined) return known;
    const rule = new Rule(isNullable(schema));
    this.#rules.set(schema, rule);
    this.#unread.push({ rule, schema, resource, location });
    return rule;
  }

  #read({ rule, schema, resource, location }: UnreadSchema): void {
    const own = this.document.resourceOf(schema, resource);
    const present = Object.keys(schema).flatMap((name) => ranked.get(name) ?? []);
    for (const { name, keyword } of present.sort((a, b) => a.rank - b.rank)) {
      const value = schema[name];
      if (value === undefined) continue;
      const check = keyword(value, { schema, resource: own, location: `${location}/${name}`, compiler: this });
      if (check !== undefined) rule.checks.push(check);
    }
  }

  pattern(source: string, location: string): Pattern {
    const known = this.#patterns.get(source);
    if (known !== undefined) return known;
    const pattern = compilePattern(source);
    if ("reason" in pattern)
      throw invalidSchema(location, `has the pattern '${shorten(source)}', which ${pattern.reason}`);
    this.#patternWork += pattern.work;
    if (this.#patternWork > mostPatternWork) {
      throw invalidSchema(
        location,
        `has the pattern '${shorten(source)}', with which all patterns together are too large when their repetitions are written out; use fewer or simpler ones`,
      );
    }
    this.#patterns.set(source, pattern);
    return pattern;
  }
}

/** In this order; what asks for unevaluated members comes last. */
const keywords = {
  $ref: referenceKeyword,
  $dynamicRef: referenceKeyword,
  $recursiveRef: referenceKeyword,
  type: typeKeyword,
  enum: (value, site) => {
    if (!Array.isArray(value)) throw invalidSchema(site.location, "must be a list of values");
    return oneOfValues(value);
  },
  const: (value) => oneOfValues([value]),
  minimum: bound("minimum", "at least", (value, limit) => value >= limit),
  maximum: bound("maximum", "at most", (value, limit) => value <= limit),
  exclusiveMinimum: bound("exclusiveMinimum", "more than", (value, limit) => value > limit),
  exclusiveMaximum: bound("exclusiveMaximum", "less than", (value, limit) => value < limit),
  multipleOf: (value, site) => {
    const divisor = numberOf(value, site);
    if (!(divisor > 0)) throw invalidSchema(site.location, "must be more than 0");
    return (given, frame) =>
      typeof given !== "number" ||
      isMultiple(given, divisor) ||
      fail(frame, () => `must be a multiple of ${divisor}, got ${given}`);
  },
  minLength: lengthBound("at least", (length, limit) => length >= limit),
  maxLength: lengthBound("at most", (length, limit) => length <= limit),
  pattern: patternKeyword,
  format: formatKeyword,
  required: requiredKeyword,
  minProperties: sizeBound("object", "at least", (size, limit) => size >= limit),
  maxProperties: sizeBound("object", "at most", (size, limit) => size <= limit),
  dependentRequired: (value, site) =>
    all(
      Object.entries(objectOf(value, site)).map(([name, needed]) =>
        dependentRequired(name, namesOf(needed, site.location)),
      ),
    ),
  dependencies: dependenciesKeyword,
  minItems: sizeBound("array", "at least", (size, limit) => size >= limit),
  maxItems: sizeBound("array", "at most", (size, limit) => size <= limit),
  uniqueItems: uniqueItemsKeyword,
  allOf: allOfKeyword,
  anyOf: anyOfKeyword,
  oneOf: oneOfKeyword,
  not: notKeyword,
  if: ifKeyword,
  dependentSchemas: (value, site) =>
    all([...ruleMapOf(value, site)].map(([name, rule]) => dependentSchema(name, rule))),
  properties: propertiesKeyword,
  patternProperties: patternPropertiesKeyword,
  additionalProperties: additionalPropertiesKeyword,
  propertyNames: propertyNamesKeyword,
  prefixItems: prefixItemsKeyword,
  items: itemsKeyword,
  contains: containsKeyword,
  unevaluatedItems: unevaluatedItemsKeyword,
  unevaluatedProperties: unevaluatedPropertiesKeyword,
} as const satisfies Record<string, Keyword>;

const ranked: ReadonlyMap<string, { readonly name: string; readonly rank: number; readonly keyword: Keyword }> =
  new Map(Object.entries(keywords).map(([name, keyword], rank) => [name, { name, rank, keyword }]));
