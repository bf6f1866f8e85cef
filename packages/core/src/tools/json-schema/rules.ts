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
import { canonicalJson, isJsonObject, isLongNumber, type JsonObject, type JsonValue } from "../../json.ts";
import { escapePointer, invalidSchema, ownMember, shorten, type Resource, type SchemaDocument } from "./document.ts";
import { formatCheck } from "./formats.ts";
import { isEqual, isOfDigits, longNumberIn } from "./long-numbers.ts";
import { compilePattern, type Pattern } from "../pattern.ts";
import { Evaluated, ErrorList, preview, typeOf, type Budget, type Frame, type Message } from "./run.ts";

/** True where the value passes; errors go to the frame. */
type Check = (value: JsonValue, frame: Frame) => boolean;

/** Of keywords that have nothing to say of a value, and of names that it may have. */
const keywordsPerStep = 8;
const namesPerStep = 2;
const stepsPerError = 2;
/** Of texts that are read to their end. */
const charactersPerStep = 32;

/** A compiled schema. */
export class Rule {
  readonly checks: Check[] = [];
  readonly #takesNull: boolean;

  constructor(takesNull = false) {
    this.#takesNull = takesNull;
  }

  evaluate(value: JsonValue, frame: Frame): boolean {
    frame.budget.spend(1 + Math.floor(this.checks.length / keywordsPerStep));
    if (value === null && this.#takesNull) return true;
    frame.budget.enter();
    let passes = true;
    for (const check of this.checks) {
      if (check(value, frame)) continue;
      passes = false;
      if (frame.errors === undefined) break;
    }
    frame.budget.leave();
    return passes;
  }
}

/** Where a keyword stands. */
interface Site {
  readonly schema: JsonObject;
  readonly resource: Resource;
  /** JSON pointer of the keyword. */
  readonly location: string;
  readonly compiler: RuleCompiler;
}

type Keyword = (value: JsonValue, site: Site) => Check | undefined;

/** Of all patterns of a schema, as `Pattern.work` counts it: forty long ones, or a thousand plain ones. */
const mostPatternWork = 25_000;

interface UnreadSchema {
  readonly rule: Rule;
  readonly schema: JsonObject;
  readonly resource: Resource;
  readonly location: string;
}

export class RuleCompiler {
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

const anything = new Rule();
const nothing = new Rule();
nothing.checks.push((_value, frame) => fail(frame, "is not allowed here"));

function fail(frame: Frame, message: Message): false {
  if (frame.errors === undefined) return false;
  frame.budget.spend(stepsPerError);
  frame.errors.add(frame.place, message);
  return false;
}

function failAt(frame: Frame, key: string, message: Message): false {
  if (frame.errors === undefined) return false;
  frame.budget.spend(stepsPerError);
  if (frame.errors.isFull) frame.errors.count += 1;
  else frame.errors.add({ parent: frame.place, key }, message);
  return false;
}

/** A book of its own, for what must not count in the frame's. */
function scratch(frame: Frame): Evaluated | undefined {
  if (frame.evaluated === undefined) return undefined;
  frame.budget.spend(1);
  return new Evaluated();
}

/** The same value where only yes or no is asked. */
function silent(frame: Frame): Frame {
  return { ...frame, errors: undefined };
}

/** A member of the frame's value. */
function at(frame: Frame, key: string | number): Frame {
  return { ...frame, place: { parent: frame.place, key }, evaluated: scratch(frame) };
}

/** Another schema for the same value. What it evaluated counts only if it passes. */
function inPlace(rule: Rule, value: JsonValue, frame: Frame): boolean {
  const evaluated = scratch(frame);
  const passes = rule.evaluate(value, { ...frame, evaluated });
  if (passes && evaluated !== undefined) frame.evaluated?.merge(evaluated, frame.budget);
  return passes;
}

// --- reading keyword values

function numberOf(value: JsonValue, site: Site): number {
  if (typeof value !== "number") throw invalidSchema(site.location, "must be a number");
  return value;
}

function countOf(value: JsonValue, site: Site): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0) {
    throw invalidSchema(site.location, "must be a whole number, 0 or more");
  }
  return value;
}

function stringOf(value: JsonValue, site: Site): string {
  if (typeof value !== "string") throw invalidSchema(site.location, "must be a string");
  return value;
}

function namesOf(value: JsonValue, location: string): string[] {
  if (!Array.isArray(value) || !value.every((name) => typeof name === "string")) {
    throw invalidSchema(location, "must be a list of property names");
  }
  return value;
}

function objectOf(value: JsonValue, site: Site): JsonObject {
  if (!isJsonObject(value)) throw invalidSchema(site.location, "must be an object");
  return value;
}

function rulesOf(value: JsonValue, site: Site): Rule[] {
  if (!Array.isArray(value) || value.length === 0)
    throw invalidSchema(site.location, "must be a list of schemas, not empty");
  return value.map((schema, index) => site.compiler.refer(schema, site.resource, `${site.location}/${index}`));
}

function ruleOf(value: JsonValue, site: Site): Rule {
  return site.compiler.refer(value, site.resource, site.location);
}

function ruleMapOf(value: JsonValue, site: Site): Map<string, Rule> {
  const rules = new Map<string, Rule>();
  for (const [name, schema] of Object.entries(objectOf(value, site))) {
    rules.set(name, site.compiler.refer(schema, site.resource, `${site.location}/${escapePointer(name)}`));
  }
  return rules;
}

// --- the keywords

const typeNames = ["null", "boolean", "integer", "number", "string", "array", "object"];

function hasType(value: JsonValue, name: string): boolean {
  if (name === "integer") return Number.isInteger(value);
  return typeOf(value) === name;
}

function typeKeyword(value: JsonValue, site: Site): Check {
  const names = typeof value === "string" ? [value] : namesOf(value, site.location);
  const unknown = names.find((name) => !typeNames.includes(name));
  if (unknown !== undefined) {
    throw invalidSchema(site.location, `names the unknown type '${shorten(unknown)}'; known: ${typeNames.join(", ")}`);
  }
  const types = [...new Set(isNullable(site.schema) ? [...names, "null"] : names)];
  const takesNumbers = types.includes("integer") || types.includes("number");
  return (given, frame) =>
    types.some((name) => hasType(given, name)) ||
    (takesNumbers && longNumberIn(given, frame) !== undefined) ||
    fail(frame, () => {
      const why = takesNumbers && isLongNumber(given) ? ", whose digits cannot be carried as a number" : "";
      return `must be ${types.join(" or ")}, got ${described(given)}${why}`;
    });
}

/** OpenAPI 3.0 says so of a type; generators of definitions do of references, alternatives and values, too. */
export function isNullable(schema: JsonObject): boolean {
  return ownMember(schema, "nullable") === true;
}

function described(value: JsonValue): string {
  const type = typeOf(value);
  return type === "array" || type === "object" || type === "null" ? preview(value) : `the ${type} ${preview(value)}`;
}

function oneOfValues(values: readonly JsonValue[]): Check {
  const scalars = new Set(values.filter((value) => !isComposite(value)));
  const composites = new Set(values.filter(isComposite).map(canonicalJson));
  const shown = shorten(values.map((value) => JSON.stringify(value)).join(", "), 200);
  return (value, frame) => {
    const isAllowed = isComposite(value)
      ? composites.size > 0 && composites.has(frame.budget.canonical(value))
      : scalars.has(value);
    return (
      isAllowed ||
      fail(frame, () => (values.length === 1 ? `must be ${shown}` : `must be one of ${shown}; got ${preview(value)}`))
    );
  };
}

function isComposite(value: JsonValue): boolean {
  return typeof value === "object" && value !== null;
}

/** A bound on numbers; `exclusive` where draft 4 says so beside it. */
function bound(keyword: string, words: string, passes: (value: number | bigint, limit: number) => boolean): Keyword {
  return (value, site) => {
    // Draft 4: `exclusiveMinimum: true` belongs to `minimum`.
    if (typeof value === "boolean" && keyword.startsWith("exclusive")) return undefined;
    const limit = numberOf(value, site);
    const partner = `exclusive${keyword.charAt(0).toUpperCase()}${keyword.slice(1)}`;
    const exclusive = ownMember(site.schema, partner) === true;
    const mayBeDigits = isOfDigits(site.schema);
    return (given, frame) => {
      const number = typeof given === "number" ? given : longNumberIn(given, frame, mayBeDigits);
      return (
        number === undefined ||
        (passes(number, limit) && !(exclusive && isEqual(number, limit))) ||
        fail(frame, () => `must be ${words} ${limit}, got ${number}`)
      );
    };
  };
}

function isMultiple(value: number, divisor: number): boolean {
  const quotient = value / divisor;
  if (!Number.isFinite(quotient)) return false;
  // 0.3 is a multiple of 0.1 although their binary quotient is not whole.
  return Math.abs(quotient - Math.round(quotient)) <= Math.abs(quotient) * 1e-12;
}

function lengthBound(words: string, passes: (length: number, limit: number) => boolean): Keyword {
  return (value, site) => {
    const limit = countOf(value, site);
    return (given, frame) => {
      if (typeof given !== "string") return true;
      // Each character has one unit of the text or two; most texts need no counting.
      const isClear = passes(given.length, limit) === passes(Math.ceil(given.length / 2), limit);
      if (!isClear) frame.budget.spend(Math.ceil(given.length / charactersPerStep));
      return (
        passes(isClear ? given.length : codePoints(given), limit) ||
        fail(frame, () => `must have ${words} ${limit} characters, has ${codePoints(given)}`)
      );
    };
  };
}

function codePoints(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at += 1) {
    // A surrogate pair is one character.
    if ((text.charCodeAt(at) & 0xfc00) === 0xd800 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) count -= 1;
  }
  return count;
}

function sizeBound(type: "array" | "object", words: string, passes: (size: number, limit: number) => boolean): Keyword {
  return (value, site) => {
    const limit = countOf(value, site);
    const members = type === "array" ? "items" : "properties";
    return (given, frame) => {
      if (typeOf(given) !== type) return true;
      const size = Array.isArray(given) ? given.length : frame.budget.namesIn(given as JsonObject).length;
      return passes(size, limit) || fail(frame, () => `must have ${words} ${limit} ${members}, has ${size}`);
    };
  };
}

function patternKeyword(value: JsonValue, site: Site): Check {
  const source = stringOf(value, site);
  const pattern = site.compiler.pattern(source, site.location);
  return (given, frame) => {
    if (typeof given !== "string") return true;
    return (
      frame.budget.matches(pattern, given) ||
      fail(frame, () => `must match the pattern '${shorten(source, 120)}', got ${preview(given)}`)
    );
  };
}

function formatKeyword(value: JsonValue, site: Site): Check | undefined {
  const name = stringOf(value, site);
  const check = formatCheck(name);
  if (check === undefined) return undefined;
  return (given, frame) => {
    if (typeof given !== "string") return true;
    frame.budget.spend(1 + Math.ceil(given.length / charactersPerStep));
    return check(given) || fail(frame, () => `must be a ${name}, got ${preview(given)}`);
  };
}

function requiredKeyword(value: JsonValue, site: Site): Check {
  const names = namesOf(value, site.location);
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    frame.budget.spend(Math.ceil(names.length / namesPerStep));
    let passes = true;
    for (const name of names) if (!Object.hasOwn(given, name)) passes = failAt(frame, name, "is required and missing");
    return passes;
  };
}

function dependentRequired(name: string, needed: readonly string[]): Check {
  return (given, frame) => {
    if (!isJsonObject(given) || !Object.hasOwn(given, name)) return true;
    frame.budget.spend(Math.ceil(needed.length / namesPerStep));
    let passes = true;
    for (const other of needed) {
      if (!Object.hasOwn(given, other))
        passes = failAt(frame, other, () => `is required where '${shorten(name)}' is given`);
    }
    return passes;
  };
}

function dependentSchema(name: string, rule: Rule): Check {
  return (given, frame) => !isJsonObject(given) || !Object.hasOwn(given, name) || inPlace(rule, given, frame);
}

/** Draft 7's `dependencies`, whose members are either kind. */
function dependenciesKeyword(value: JsonValue, site: Site): Check {
  return all(
    Object.entries(objectOf(value, site)).map(([name, needed]) => {
      const location = `${site.location}/${escapePointer(name)}`;
      if (Array.isArray(needed)) return dependentRequired(name, namesOf(needed, location));
      return dependentSchema(name, site.compiler.refer(needed, site.resource, location));
    }),
  );
}

function all(checks: readonly Check[]): Check {
  return (value, frame) => {
    frame.budget.spend(Math.ceil(checks.length / namesPerStep));
    let passes = true;
    for (const check of checks) if (!check(value, frame)) passes = false;
    return passes;
  };
}

function propertiesKeyword(value: JsonValue, site: Site): Check {
  const rules = [...ruleMapOf(value, site)];
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    frame.budget.spend(Math.ceil(rules.length / namesPerStep));
    let passes = true;
    for (const [name, rule] of rules) {
      if (!Object.hasOwn(given, name)) continue;
      if (!rule.evaluate(given[name] ?? null, at(frame, name))) passes = false;
      frame.evaluated?.properties.add(name);
    }
    return passes;
  };
}

function patternPropertiesKeyword(value: JsonValue, site: Site): Check {
  const rules = [...ruleMapOf(value, site)].map(
    ([source, rule]) => [site.compiler.pattern(source, site.location), rule] as const,
  );
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    let passes = true;
    for (const name of frame.budget.namesIn(given)) {
      const part = given[name] ?? null;
      for (const [pattern, rule] of rules) {
        if (!frame.budget.matches(pattern, name)) continue;
        if (!rule.evaluate(part, at(frame, name))) passes = false;
        frame.evaluated?.properties.add(name);
      }
    }
    return passes;
  };
}

function additionalPropertiesKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  const isNamed = namedBeside(site);
  const known = shorten(Object.keys(objectMember(site.schema, "properties")).join(", "), 160);
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    let passes = true;
    for (const name of frame.budget.namesIn(given)) {
      const part = given[name] ?? null;
      frame.budget.spend(1);
      if (isNamed(name, frame.budget)) continue;
      if (rule === nothing) {
        passes = failAt(frame, name, () =>
          known === "" ? "is not a known property; there are none" : `is not a known property; known: ${known}`,
        );
      } else if (!rule.evaluate(part, at(frame, name))) passes = false;
      frame.evaluated?.properties.add(name);
    }
    return passes;
  };
}

/** Is a property named by `properties` or `patternProperties` of the same schema? */
function namedBeside(site: Site): (name: string, budget: Budget) => boolean {
  const properties = objectMember(site.schema, "properties");
  const patterns = Object.keys(objectMember(site.schema, "patternProperties")).map((source) =>
    site.compiler.pattern(source, site.location),
  );
  return (name, budget) => Object.hasOwn(properties, name) || patterns.some((pattern) => budget.matches(pattern, name));
}

function objectMember(schema: JsonObject, keyword: string): JsonObject {
  const value = ownMember(schema, keyword);
  return isJsonObject(value) ? value : {};
}

function unevaluatedPropertiesKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    let passes = true;
    for (const name of frame.budget.namesIn(given)) {
      const part = given[name] ?? null;
      frame.budget.spend(1);
      if (frame.evaluated?.properties.has(name) === true) continue;
      if (rule === nothing) passes = failAt(frame, name, "is not a known property");
      else if (!rule.evaluate(part, at(frame, name))) passes = false;
      frame.evaluated?.properties.add(name);
    }
    return passes;
  };
}

function propertyNamesKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    const quiet = silent(frame);
    let passes = true;
    for (const name of frame.budget.namesIn(given)) {
      if (!rule.evaluate(name, at(quiet, name))) passes = failAt(frame, name, "is not allowed as a property name");
    }
    return passes;
  };
}

/** `prefixItems` and `items`, and their older form: `items` as a list with `additionalItems`. */
function itemsKeyword(value: JsonValue, site: Site): Check {
  const isTuple = Array.isArray(value);
  const prefix = isTuple ? value : ownMember(site.schema, "prefixItems");
  const first = Array.isArray(prefix) ? prefix.length : 0;
  const rest = isTuple ? ownMember(site.schema, "additionalItems") : value;
  const tuple = isTuple ? prefixItemsKeyword(value, site) : undefined;
  const rule = rest === undefined ? undefined : ruleOf(rest, site);
  return (given, frame) => {
    if (!Array.isArray(given)) return true;
    let passes = tuple === undefined || tuple(given, frame);
    if (rule === undefined) return passes;
    for (let index = first; index < given.length; index += 1) {
      if (!rule.evaluate(given[index] ?? null, at(frame, index))) passes = false;
      if (!passes && frame.errors === undefined) return false;
    }
    if (frame.evaluated !== undefined) frame.evaluated.itemsUpTo = given.length;
    return passes;
  };
}

function prefixItemsKeyword(value: JsonValue, site: Site): Check {
  if (!Array.isArray(value)) throw invalidSchema(site.location, "must be a list of schemas");
  const rules = value.map((schema, index) => site.compiler.refer(schema, site.resource, `${site.location}/${index}`));
  return (given, frame) => {
    if (!Array.isArray(given)) return true;
    let passes = true;
    for (const [index, rule] of rules.entries()) {
      if (index >= given.length) break;
      if (!rule.evaluate(given[index] ?? null, at(frame, index))) passes = false;
    }
    if (frame.evaluated !== undefined) {
      frame.evaluated.itemsUpTo = Math.max(frame.evaluated.itemsUpTo, Math.min(rules.length, given.length));
    }
    return passes;
  };
}

function containsKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  const least = countBeside(site, "minContains") ?? 1;
  const most = countBeside(site, "maxContains") ?? Number.POSITIVE_INFINITY;
  return (given, frame) => {
    if (!Array.isArray(given)) return true;
    const quiet = silent(frame);
    let found = 0;
    for (const [index, item] of given.entries()) {
      if (!rule.evaluate(item, at(quiet, index))) continue;
      found += 1;
      frame.evaluated?.items.add(index);
    }
    if (found < least) return fail(frame, () => `must contain at least ${least} fitting items, has ${found}`);
    return found <= most || fail(frame, () => `must contain at most ${most} fitting items, has ${found}`);
  };
}

function countBeside(site: Site, keyword: string): number | undefined {
  const value = ownMember(site.schema, keyword);
  return value === undefined ? undefined : countOf(value, site);
}

function unevaluatedItemsKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  return (given, frame) => {
    if (!Array.isArray(given) || frame.evaluated === undefined) return true;
    let passes = true;
    for (let index = frame.evaluated.itemsUpTo; index < given.length; index += 1) {
      frame.budget.spend(1);
      if (frame.evaluated.items.has(index)) continue;
      if (!rule.evaluate(given[index] ?? null, at(frame, index))) passes = false;
    }
    frame.evaluated.itemsUpTo = given.length;
    return passes;
  };
}

function uniqueItemsKeyword(value: JsonValue, site: Site): Check | undefined {
  if (typeof value !== "boolean") throw invalidSchema(site.location, "must be true or false");
  if (!value) return undefined;
  return (given, frame) => {
    if (!Array.isArray(given)) return true;
    // Values by themselves, lists and objects by their text; a text as a value is kept apart from those.
    const scalars = new Map<JsonValue, number>();
    const composites = new Map<string, number>();
    for (const [index, item] of given.entries()) {
      frame.budget.spend(2);
      const isScalar = !isComposite(item);
      const text = isScalar ? "" : frame.budget.canonical(item);
      const earlier = isScalar ? scalars.get(item) : composites.get(text);
      if (earlier !== undefined)
        return fail(frame, () => `must have different items; ${earlier} and ${index} are equal`);
      if (isScalar) scalars.set(item, index);
      else composites.set(text, index);
    }
    return true;
  };
}

function referenceKeyword(value: JsonValue, site: Site): Check {
  const target = site.compiler.document.resolve(stringOf(value, site), site.resource, site.location);
  const rule = site.compiler.refer(target.schema, target.resource, site.location);
  return (given, frame) => inPlace(rule, given, frame);
}

function allOfKeyword(value: JsonValue, site: Site): Check {
  return all(
    rulesOf(value, site).map(
      (rule): Check =>
        (given, frame) =>
          inPlace(rule, given, frame),
    ),
  );
}

function anyOfKeyword(value: JsonValue, site: Site): Check {
  const rules = rulesOf(value, site);
  return (given, frame) => {
    const nearest = new Nearest(frame);
    let passes = false;
    for (const rule of rules) {
      const errors = nearest.attempt();
      if (!inPlace(rule, given, { ...frame, errors })) {
        nearest.failed(errors);
        continue;
      }
      passes = true;
      // Later branches matter only to those who ask what was evaluated.
      if (frame.evaluated === undefined) return true;
    }
    return passes || nearest.report(`fits none of its ${rules.length} alternatives`);
  };
}

function oneOfKeyword(value: JsonValue, site: Site): Check {
  const rules = rulesOf(value, site);
  const check: Check = (given, frame) => {
    const nearest = new Nearest(frame);
    let fitting = 0;
    const evaluated = scratch(frame);
    for (const rule of rules) {
      const errors = nearest.attempt();
      if (inPlace(rule, given, { ...frame, evaluated, errors })) fitting += 1;
      else nearest.failed(errors);
    }
    // Digits that are a text to one and a number to the other are the text that they are.
    if (fitting > 1 && frame.longNumbers === true) return check(given, { ...frame, longNumbers: false });
    if (fitting > 1) return fail(frame, () => `fits ${fitting} of its alternatives; exactly one is allowed`);
    if (fitting === 0) return nearest.report(`fits none of its ${rules.length} alternatives`);
    if (evaluated !== undefined) frame.evaluated?.merge(evaluated, frame.budget);
    return true;
  };
  return check;
}

/** The alternative that came closest, whose errors help most; of equal ones the first. */
class Nearest {
  readonly #frame: Frame;
  #best: ErrorList | undefined;

  constructor(frame: Frame) {
    this.#frame = frame;
  }

  attempt(): ErrorList | undefined {
    if (this.#frame.errors === undefined) return undefined;
    this.#frame.budget.spend(1);
    return new ErrorList();
  }

  failed(attempt: ErrorList | undefined): void {
    if (attempt === undefined) return;
    const best = this.#best;
    if (
      best === undefined ||
      attempt.depth > best.depth ||
      (attempt.depth === best.depth && attempt.count < best.count)
    ) {
      this.#best = attempt;
    }
  }

  report(summary: string): false {
    const best = this.#best;
    fail(
      this.#frame,
      best === undefined || best.count === 0 ? summary : `${summary}; the nearest one has the errors that follow`,
    );
    if (best !== undefined) this.#frame.errors?.addAll(best);
    return false;
  }
}

function notKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  return (given, frame) =>
    !inPlace(rule, given, { ...frame, evaluated: scratch(frame), errors: undefined }) ||
    fail(frame, "has a form that is ruled out ('not')");
}

function ifKeyword(value: JsonValue, site: Site): Check {
  const condition = ruleOf(value, site);
  const branch = (keyword: string): Rule => {
    const schema = ownMember(site.schema, keyword);
    return schema === undefined ? anything : site.compiler.refer(schema, site.resource, site.location);
  };
  const then = branch("then");
  const otherwise = branch("else");
  return (given, frame) => inPlace(inPlace(condition, given, silent(frame)) ? then : otherwise, given, frame);
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
