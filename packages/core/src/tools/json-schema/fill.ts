/**
 * Makes given arguments fit their schema where there is only one way to read them: defaults for what
 * is absent, also falsy ones (BLIND-2), and text that holds the value of another type, as models
 * write it (`"[1,2,3]"` for an array). A parameter that may be a string stays the string it is, and
 * a given value is never replaced by a default.
 *
 * Only what applies for certain is followed: `$ref`, `allOf`, and the one alternative of `anyOf` or
 * `oneOf` that the value's type allows.
 */
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember, type Resource } from "./document.ts";
import type { RuleCompiler } from "./rules.ts";
import { type Budget, Evaluated, typeOf } from "./run.ts";

/** A schema that applies to a value for certain. */
interface Part {
  readonly schema: JsonObject;
  readonly resource: Resource;
}

export class Filler {
  readonly #compiler: RuleCompiler;
  readonly #budget: Budget;
  /** Property schemas whose default is being filled in: a default may not breed itself. */
  readonly #open = new Set<JsonObject>();

  constructor(compiler: RuleCompiler, budget: Budget) {
    this.#compiler = compiler;
    this.#budget = budget;
  }

  /** The value with defaults and unambiguous types; the given value is left as it is. */
  fill(value: JsonValue, schema: JsonValue | undefined, resource: Resource): JsonValue {
    if (!isJsonObject(schema)) return value;
    this.#budget.spend(1);
    this.#budget.enter();
    const parts = this.#partsOf(schema, resource);
    let filled = typeof value === "string" ? coerce(value, this.#typesOf(parts)) : value;
    if (Array.isArray(filled)) filled = this.#fillArray(filled, parts);
    else if (isJsonObject(filled)) filled = this.#fillObject(filled, parts);
    for (const part of parts) filled = this.#fillAlternative(filled, part);
    this.#budget.leave();
    return filled;
  }

  /** The schema, what it refers to and what it includes. */
  #partsOf(schema: JsonObject, resource: Resource): Part[] {
    const parts: Part[] = [];
    const seen = new Set<JsonObject>();
    const waiting: { readonly schema: JsonValue; readonly resource: Resource }[] = [{ schema, resource }];
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      if (!isJsonObject(next.schema) || seen.has(next.schema)) continue;
      this.#budget.spend(1);
      seen.add(next.schema);
      const part = { schema: next.schema, resource: this.#compiler.document.resourceOf(next.schema, next.resource) };
      parts.push(part);
      const reference = ownMember(part.schema, "$ref");
      if (typeof reference === "string")
        waiting.push(this.#compiler.document.resolve(reference, part.resource, "/$ref"));
      const included = ownMember(part.schema, "allOf");
      if (Array.isArray(included)) waiting.push(...included.map((each) => ({ schema: each, resource: part.resource })));
    }
    return parts;
  }

  /** Types that all parts allow; `undefined` where none says. */
  #typesOf(parts: readonly Part[]): ReadonlySet<string> | undefined {
    let types: Set<string> | undefined;
    for (const part of parts) {
      for (const named of [namedTypes(part.schema), this.#alternativeTypes(part)]) {
        if (named === undefined) continue;
        types = types === undefined ? named : new Set([...types].filter((type) => named.has(type)));
      }
    }
    return types;
  }

  /** Types that some alternative allows; `undefined` where one of them does not say. */
  #alternativeTypes(part: Part): Set<string> | undefined {
    const union = new Set<string>();
    const branches = alternatives(part.schema);
    if (branches.length === 0) return undefined;
    for (const branch of branches) {
      const types = this.#branchTypes(branch, part.resource);
      if (types === undefined) return undefined;
      for (const type of types) union.add(type);
    }
    return union;
  }

  #branchTypes(branch: JsonValue, resource: Resource): ReadonlySet<string> | undefined {
    if (!isJsonObject(branch)) return undefined;
    this.#budget.spend(1);
    this.#budget.enter();
    const types = this.#typesOf(this.#partsOf(branch, resource));
    this.#budget.leave();
    return types;
  }

  #fillAlternative(value: JsonValue, part: Part): JsonValue {
    const type = typeOf(value);
    if (type !== "object" && type !== "array") return value;
    const fitting = alternatives(part.schema).filter((branch) => {
      const types = this.#branchTypes(branch, part.resource);
      return types === undefined || types.has(type);
    });
    return fitting.length === 1 ? this.fill(value, fitting[0], part.resource) : value;
  }

  #fillArray(items: readonly JsonValue[], parts: readonly Part[]): JsonValue[] {
    let filled = [...items];
    for (const { schema, resource } of parts) {
      const own = ownMember(schema, "items");
      const prefix = ownMember(schema, Array.isArray(own) ? "items" : "prefixItems");
      const rest = Array.isArray(own) ? ownMember(schema, "additionalItems") : own;
      filled = filled.map((item, index) =>
        this.fill(item, Array.isArray(prefix) && index < prefix.length ? prefix[index] : rest, resource),
      );
    }
    return filled;
  }

  #fillObject(given: JsonObject, parts: readonly Part[]): JsonObject {
    const filled: JsonObject = { ...given };
    for (const { schema, resource } of parts) {
      const properties = ownMember(schema, "properties");
      const named = isJsonObject(properties) ? properties : {};
      this.#budget.spend(Object.keys(named).length);
      for (const [name, property] of Object.entries(named)) {
        if (Object.hasOwn(filled, name)) setOwn(filled, name, this.fill(filled[name] ?? null, property, resource));
        else this.#addDefault(filled, name, { schema: property, resource });
      }
      const rest = ownMember(schema, "additionalProperties");
      if (!isJsonObject(rest)) continue;
      const patterns = ownMember(schema, "patternProperties");
      // Members that a pattern may claim are left to it.
      if (isJsonObject(patterns) && Object.keys(patterns).length > 0) continue;
      for (const name of Object.keys(filled)) {
        if (!Object.hasOwn(named, name)) setOwn(filled, name, this.fill(filled[name] ?? null, rest, resource));
      }
    }
    return filled;
  }

  #addDefault(
    target: JsonObject,
    name: string,
    property: { readonly schema: JsonValue; readonly resource: Resource },
  ): void {
    const { schema, resource } = property;
    if (!isJsonObject(schema) || this.#open.has(schema)) return;
    const given = this.#partsOf(schema, resource)
      .map((part) => ownMember(part.schema, "default"))
      .find((value) => value !== undefined);
    if (given === undefined) return;
    this.#open.add(schema);
    const filled = this.fill(structuredClone(given), schema, resource);
    this.#open.delete(schema);
    // A default that its own schema refuses (`null` for a string) is a remark of the author's, not a value.
    const rule = this.#compiler.compile(schema, resource, "/default");
    const evaluated = this.#compiler.document.tracksEvaluation ? new Evaluated() : undefined;
    const fits = rule.evaluate(filled, { budget: this.#budget, place: undefined, errors: undefined, evaluated });
    if (fits) setOwn(target, name, filled);
  }
}

/** An own member, also under names like `__proto__` that an assignment would treat as special. */
function setOwn(target: JsonObject, name: string, value: JsonValue): void {
  Object.defineProperty(target, name, { value, writable: true, enumerable: true, configurable: true });
}

function alternatives(schema: JsonObject): JsonValue[] {
  const found: JsonValue[] = [];
  for (const keyword of ["anyOf", "oneOf"]) {
    const branches = ownMember(schema, keyword);
    if (Array.isArray(branches)) found.push(...branches);
  }
  return found;
}

function namedTypes(schema: JsonObject): Set<string> | undefined {
  const type = ownMember(schema, "type");
  if (typeof type === "string") return new Set([type]);
  return Array.isArray(type) ? new Set(type.filter((name) => typeof name === "string")) : undefined;
}

/** The value that the text spells, where the schema takes no strings and the spelling is plain. */
function coerce(text: string, types: ReadonlySet<string> | undefined): JsonValue {
  if (types === undefined || types.has("string")) return text;
  const trimmed = text.trim();
  const spelled = scalarSpelling.test(trimmed) || /^[[{]/.test(trimmed) ? parseJson(trimmed) : undefined;
  if (spelled === undefined) return text;
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
