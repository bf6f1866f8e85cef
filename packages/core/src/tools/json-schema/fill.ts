/**
 * Makes given arguments fit their schema where there is only one way to read them: defaults for what
 * is absent, also falsy ones (BLIND-2), and text that holds the value of another type, as models
 * write it (`"[1,2,3]"` for an array). A text that fits as a string stays the string it is, and
 * a given value is never replaced by a default.
 *
 * Only what applies for certain is followed: `$ref`, `allOf`, and the one alternative of `anyOf` or
 * `oneOf` that the value's type allows.
 */
import {
  isDeeperThan,
  isJsonObject,
  isLongNumber,
  isRawNumber,
  parseJson,
  parseJsonExactly,
  toRawNumber,
  type JsonObject,
  type JsonValue,
} from "../../json.ts";
import { ownMember, type Resource } from "./document.ts";
import { isNullable } from "./value-keywords.ts";
import type { RuleCompiler } from "./rules.ts";
import { type Budget, Evaluated, type Frame, typeOf } from "./run.ts";

/** A schema that applies to a value for certain, as filling reads it. */
interface Part {
  readonly schema: JsonObject;
  readonly resource: Resource;
  readonly reference: string | undefined;
  readonly included: readonly JsonValue[];
  readonly alternatives: readonly JsonValue[];
  readonly named: JsonObject;
  readonly properties: readonly (readonly [name: string, schema: JsonValue])[];
  /** Of members that nothing names, where no pattern may claim them. */
  readonly others: JsonObject | undefined;
  readonly firstItems: readonly JsonValue[];
  readonly otherItems: JsonValue | undefined;
}

/** Lists of parts that are kept; longer ones are made anew, or a chain of references would be kept for each of its links. */
const mostKeptParts = 16;
/** Members that are copied or looked for, and characters that are read as JSON. */
const membersPerStep = 8;
const namesPerStep = 2;
const charactersPerStep = 8;
const stepsPerDefault = 10;

/** What filling needs to know of each schema, found out once for all values. */
export class FillPlans {
  readonly compiler: RuleCompiler;
  readonly #parts = new Map<JsonObject, Part>();
  readonly #lists = new Map<JsonObject, readonly Part[]>();
  readonly #types = new Map<JsonObject, ReadonlySet<string> | undefined>();
  readonly #defaults = new Map<JsonObject, JsonValue | undefined>();

  constructor(compiler: RuleCompiler) {
    this.compiler = compiler;
  }

  /** The schema, what it refers to and what it includes. */
  partsOf(schema: JsonObject, resource: Resource, budget: Budget): readonly Part[] {
    const known = this.#lists.get(schema);
    if (known !== undefined) return known;
    const parts: Part[] = [];
    const seen = new Set<JsonObject>();
    const waiting: { readonly schema: JsonValue; readonly resource: Resource }[] = [{ schema, resource }];
    for (const next of waiting) {
      budget.spend(2);
      if (!isJsonObject(next.schema) || seen.has(next.schema)) continue;
      seen.add(next.schema);
      const part = this.#partOf(next.schema, next.resource, budget);
      parts.push(part);
      if (part.reference !== undefined)
        waiting.push(this.compiler.document.resolve(part.reference, part.resource, "/$ref"));
      for (const each of part.included) waiting.push({ schema: each, resource: part.resource });
    }
    if (parts.length <= mostKeptParts) this.#lists.set(schema, parts);
    return parts;
  }

  #partOf(schema: JsonObject, outer: Resource, budget: Budget): Part {
    const known = this.#parts.get(schema);
    if (known !== undefined) return known;
    const resource = this.compiler.document.resourceOf(schema, outer);
    const reference = ownMember(schema, "$ref");
    const properties = ownMember(schema, "properties");
    const named = isJsonObject(properties) ? properties : {};
    const others = ownMember(schema, "additionalProperties");
    const patterns = ownMember(schema, "patternProperties");
    const items = ownMember(schema, "items");
    const part: Part = {
      schema,
      resource,
      reference: typeof reference === "string" ? reference : undefined,
      included: listIn(schema, "allOf"),
      alternatives: [...listIn(schema, "anyOf"), ...listIn(schema, "oneOf")],
      named,
      properties: Object.entries(named),
      // Members that a pattern may claim are left to it.
      others:
        isJsonObject(others) && !(isJsonObject(patterns) && Object.keys(patterns).length > 0) ? others : undefined,
      firstItems: listIn(schema, Array.isArray(items) ? "items" : "prefixItems"),
      otherItems: Array.isArray(items) ? ownMember(schema, "additionalItems") : items,
    };
    budget.spend(part.properties.length + part.alternatives.length);
    this.#parts.set(schema, part);
    return part;
  }

  /** Types that all parts allow; `undefined` where none says. */
  typesOf(schema: JsonObject, resource: Resource, budget: Budget): ReadonlySet<string> | undefined {
    if (this.#types.has(schema)) return this.#types.get(schema);
    let types: ReadonlySet<string> | undefined;
    budget.enter();
    for (const part of this.partsOf(schema, resource, budget)) {
      for (const allowed of [namedTypes(part.schema), this.#alternativeTypes(part, budget)]) {
        if (allowed === undefined) continue;
        types = types === undefined ? allowed : new Set([...types].filter((type) => allowed.has(type)));
      }
    }
    budget.leave();
    if (types !== undefined && isNullable(schema)) types = new Set([...types, "null"]);
    this.#types.set(schema, types);
    return types;
  }

  /** Types that some alternative allows; `undefined` where one of them does not say. */
  #alternativeTypes(part: Part, budget: Budget): Set<string> | undefined {
    const union = new Set<string>();
    if (part.alternatives.length === 0) return undefined;
    for (const branch of part.alternatives) {
      budget.spend(1);
      const types = isJsonObject(branch) ? this.typesOf(branch, part.resource, budget) : undefined;
      if (types === undefined) return undefined;
      for (const type of types) union.add(type);
    }
    return union;
  }

  /** The one alternative that a value of this type may be. */
  alternativeFor(type: string, part: Part, budget: Budget): JsonValue | undefined {
    let found: JsonValue | undefined;
    for (const branch of part.alternatives) {
      budget.spend(1);
      const types = isJsonObject(branch) ? this.typesOf(branch, part.resource, budget) : undefined;
      if (types !== undefined && !types.has(type)) continue;
      if (found !== undefined) return undefined;
      found = branch;
    }
    return found;
  }

  defaultOf(schema: JsonObject, resource: Resource, budget: Budget): JsonValue | undefined {
    if (this.#defaults.has(schema)) return this.#defaults.get(schema);
    const found = this.partsOf(schema, resource, budget)
      .map((part) => ownMember(part.schema, "default"))
      .find((value) => value !== undefined);
    this.#defaults.set(schema, found);
    return found;
  }
}

/** How whole numbers come out that a double cannot hold: as the texts that went in, or as JSON is to be written of them. */
export type LongNumbers = "as text" | "as numbers";

/** Fills one value. */
export class Filler {
  readonly #plans: FillPlans;
  readonly #budget: Budget;
  readonly #longNumbers: LongNumbers;
  /** Property schemas whose default is being filled in: a default may not breed itself. */
  readonly #open = new Set<JsonObject>();

  constructor(plans: FillPlans, budget: Budget, longNumbers: LongNumbers = "as text") {
    this.#plans = plans;
    this.#budget = budget;
    this.#longNumbers = longNumbers;
  }

  /** The value with defaults and unambiguous types; the given value is left as it is. */
  fill(value: JsonValue, schema: JsonValue | undefined, resource: Resource): JsonValue {
    if (!isJsonObject(schema) || isRawNumber(value)) return value;
    this.#budget.spend(1);
    this.#budget.enter();
    const given = typeof value === "string" ? this.#coerce(value, schema, resource) : value;
    const hasParts = typeof given === "object" && given !== null && !isRawNumber(given);
    const filled = hasParts ? this.#fillParts(given, schema, resource) : given;
    this.#budget.leave();
    return filled;
  }

  #coerce(text: string, schema: JsonObject, resource: Resource): JsonValue {
    const types = this.#plans.typesOf(schema, resource, this.#budget);
    if (types === undefined || (types.size === 1 && types.has("string"))) return text;
    const takesNumbers = types.has("integer") || types.has("number");
    if (this.#longNumbers === "as numbers" && takesNumbers && isLongNumber(text)) {
      return types.has("string") && this.#fits(text, schema, resource) ? text : toRawNumber(text);
    }
    const spelled = coerce(text, types, this.#budget);
    const mayStay = types.has("string") && spelled !== text && this.#fits(text, schema, resource);
    return mayStay ? text : spelled;
  }

  #fits(value: JsonValue, schema: JsonValue, resource: Resource, frame: Pick<Frame, "longNumbers"> = {}): boolean {
    const { compiler } = this.#plans;
    const rule = compiler.compile(schema, resource, "");
    const evaluated = compiler.document.tracksEvaluation ? new Evaluated() : undefined;
    return rule.evaluate(value, { budget: this.#budget, place: undefined, errors: undefined, evaluated, ...frame });
  }

  /** Texts stay texts where an alternative takes them. */
  #fitting(value: JsonValue, { alternatives, resource }: Part): JsonValue | undefined {
    return (
      alternatives.find((branch) => this.#fits(value, branch, resource)) ??
      alternatives.find((branch) => this.#fits(value, branch, resource, { longNumbers: true }))
    );
  }

  #fillParts(given: JsonObject | JsonValue[], schema: JsonObject, resource: Resource): JsonValue {
    const parts = this.#plans.partsOf(schema, resource, this.#budget);
    this.#budget.spend(parts.length);
    let filled: JsonValue = Array.isArray(given) ? this.#fillArray(given, parts) : this.#fillObject(given, parts);
    for (const part of parts) {
      const only = this.#plans.alternativeFor(typeOf(filled), part, this.#budget);
      const branch = only ?? (this.#longNumbers === "as numbers" ? this.#fitting(given, part) : undefined);
      filled = this.fill(filled, branch, part.resource);
    }
    return filled;
  }

  #fillArray(items: readonly JsonValue[], parts: readonly Part[]): JsonValue[] {
    this.#budget.spend(Math.ceil(items.length / membersPerStep));
    let filled = [...items];
    for (const { firstItems, otherItems, resource } of parts) {
      if (firstItems.length === 0 && !isJsonObject(otherItems)) continue;
      this.#budget.spend(Math.ceil(items.length / membersPerStep));
      filled = filled.map((item, index) =>
        this.fill(item, index < firstItems.length ? firstItems[index] : otherItems, resource),
      );
    }
    return filled;
  }

  #fillObject(given: JsonObject, parts: readonly Part[]): JsonObject {
    this.#budget.spendOnMembers(this.#budget.namesIn(given).length);
    const filled: JsonObject = { ...given };
    for (const { named, properties, others, resource } of parts) {
      this.#budget.spend(Math.ceil(properties.length / namesPerStep));
      for (const [name, schema] of properties) {
        // An own member of any name is set as it is.
        if (Object.hasOwn(filled, name)) filled[name] = this.fill(filled[name] ?? null, schema, resource);
        else if (isJsonObject(schema)) this.#addDefault(filled, name, { schema, resource });
      }
      if (others === undefined) continue;
      for (const name of this.#budget.namesIn(filled)) {
        this.#budget.spend(1);
        if (!Object.hasOwn(named, name)) filled[name] = this.fill(filled[name] ?? null, others, resource);
      }
    }
    return filled;
  }

  #addDefault(
    target: JsonObject,
    name: string,
    property: { readonly schema: JsonObject; readonly resource: Resource },
  ): void {
    const { schema, resource } = property;
    const given = this.#plans.defaultOf(schema, resource, this.#budget);
    if (given === undefined || this.#open.has(schema)) return;
    this.#budget.spend(stepsPerDefault);
    this.#open.add(schema);
    const filled = this.fill(this.#budget.copy(given), schema, resource);
    this.#open.delete(schema);
    // A default that its own schema refuses (`null` for a string) is a remark of the author's, not a value.
    if (this.#fits(filled, schema, resource)) setOwn(target, name, filled);
  }
}

/** An own member, also under names like `__proto__` that an assignment would treat as special. */
function setOwn(target: JsonObject, name: string, value: JsonValue): void {
  Object.defineProperty(target, name, { value, writable: true, enumerable: true, configurable: true });
}

function listIn(schema: JsonObject, keyword: string): readonly JsonValue[] {
  const list = ownMember(schema, keyword);
  return Array.isArray(list) ? list : [];
}

function namedTypes(schema: JsonObject): Set<string> | undefined {
  const type = ownMember(schema, "type");
  const names = (Array.isArray(type) ? type : [type]).filter((name) => typeof name === "string");
  const types = type === undefined ? typesOfValues(schema) : new Set<string>(names);
  if (isNullable(schema)) types?.add("null");
  return types;
}

/** Of the values that there are, where the schema lists them. */
function typesOfValues(schema: JsonObject): Set<string> | undefined {
  const constant = ownMember(schema, "const");
  const values = constant === undefined ? listIn(schema, "enum") : [constant];
  if (values.length === 0) return undefined;
  return new Set(values.flatMap((value) => (Number.isInteger(value) ? ["integer", "number"] : [typeOf(value)])));
}

/** Levels of nesting in what a text spells, as in arguments that are given as they are. */
const deepestSpelled = 100;

/** The value that the text spells, where the spelling is plain and of a type that is asked for. */
function coerce(text: string, types: ReadonlySet<string>, budget: Budget): JsonValue {
  const trimmed = text.trim();
  const isWritten = (trimmed.startsWith("[") && types.has("array")) || (trimmed.startsWith("{") && types.has("object"));
  budget.spend(Math.ceil((isWritten ? text.length : 1) / charactersPerStep));
  const isScalar = !isWritten && scalarSpelling.test(trimmed);
  const spelled = isWritten ? parseJsonExactly(trimmed) : isScalar ? parseJson(trimmed) : undefined;
  if (spelled === undefined || isDeeperThan(spelled, deepestSpelled)) return text;
  const type = typeOf(spelled);
  if (typeof spelled === "number" && !keepsItsDigits(spelled, trimmed)) return text;
  const allowed = types.has(type) || (type === "number" && types.has("integer") && Number.isInteger(spelled));
  return allowed ? spelled : text;
}

const scalarSpelling = /^(?:true|false|null|-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?)$/;

/** A whole number beyond 2^53 would become another one. */
function keepsItsDigits(value: number, text: string): boolean {
  return Number.isFinite(value) && (!/^-?\d+$/.test(text) || Number.isSafeInteger(value));
}
