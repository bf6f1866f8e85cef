/** Keywords about the members of an object. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { escapePointer, ownMember, shorten } from "./document.ts";
import type { Budget } from "./run.ts";
import {
  type Check,
  type Rule,
  type Site,
  all,
  at,
  failAt,
  inPlace,
  namesOf,
  namesPerStep,
  nothing,
  objectOf,
  ruleMapOf,
  ruleOf,
  silent,
} from "./rule.ts";

export function requiredKeyword(value: JsonValue, site: Site): Check {
  const names = namesOf(value, site.location);
  return (given, frame) => {
    if (!isJsonObject(given)) return true;
    frame.budget.spend(Math.ceil(names.length / namesPerStep));
    let passes = true;
    for (const name of names) if (!Object.hasOwn(given, name)) passes = failAt(frame, name, "is required and missing");
    return passes;
  };
}

export function dependentRequired(name: string, needed: readonly string[]): Check {
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

export function dependentSchema(name: string, rule: Rule): Check {
  return (given, frame) => !isJsonObject(given) || !Object.hasOwn(given, name) || inPlace(rule, given, frame);
}

/** Draft 7's `dependencies`, whose members are either kind. */
export function dependenciesKeyword(value: JsonValue, site: Site): Check {
  return all(
    Object.entries(objectOf(value, site)).map(([name, needed]) => {
      const location = `${site.location}/${escapePointer(name)}`;
      if (Array.isArray(needed)) return dependentRequired(name, namesOf(needed, location));
      return dependentSchema(name, site.compiler.refer(needed, site.resource, location));
    }),
  );
}

export function propertiesKeyword(value: JsonValue, site: Site): Check {
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

export function patternPropertiesKeyword(value: JsonValue, site: Site): Check {
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

export function additionalPropertiesKeyword(value: JsonValue, site: Site): Check {
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

export function unevaluatedPropertiesKeyword(value: JsonValue, site: Site): Check {
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

export function propertyNamesKeyword(value: JsonValue, site: Site): Check {
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
