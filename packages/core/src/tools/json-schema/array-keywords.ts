/** Keywords about the items of an array. */
import type { JsonValue } from "../../json.ts";
import { invalidSchema, ownMember } from "./document.ts";
import { type Check, type Site, at, countOf, fail, ruleOf, silent } from "./rule.ts";
import { isComposite } from "./value-keywords.ts";

/** `prefixItems` and `items`, and their older form: `items` as a list with `additionalItems`. */
export function itemsKeyword(value: JsonValue, site: Site): Check {
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

export function prefixItemsKeyword(value: JsonValue, site: Site): Check {
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

export function containsKeyword(value: JsonValue, site: Site): Check {
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

export function unevaluatedItemsKeyword(value: JsonValue, site: Site): Check {
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

export function uniqueItemsKeyword(value: JsonValue, site: Site): Check | undefined {
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
