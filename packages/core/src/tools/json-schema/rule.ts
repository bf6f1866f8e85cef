/** A compiled schema, and what its keywords are made with. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { escapePointer, invalidSchema, type Resource, type SchemaDocument } from "./document.ts";
import type { Pattern } from "../pattern.ts";
import { Evaluated, type Frame, type Message } from "./run.ts";

/** True where the value passes; errors go to the frame. */
export type Check = (value: JsonValue, frame: Frame) => boolean;

/** Of keywords that have nothing to say of a value, and of names that it may have. */
const keywordsPerStep = 8;
export const namesPerStep = 2;
const stepsPerError = 2;
/** Of texts that are read to their end. */
export const charactersPerStep = 32;

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

/** What makes rules of the schemas that a keyword holds. */
export interface Compiler {
  readonly document: SchemaDocument;
  /** A schema that is read after this one. @throws GatewayError `invalid_definition` naming the place in the schema */
  refer(schema: JsonValue | undefined, resource: Resource, location: string): Rule;
  /** @throws GatewayError `invalid_definition` naming the place */
  pattern(source: string, location: string): Pattern;
}

/** Where a keyword stands. */
export interface Site {
  readonly schema: JsonObject;
  readonly resource: Resource;
  /** JSON pointer of the keyword. */
  readonly location: string;
  readonly compiler: Compiler;
}

export type Keyword = (value: JsonValue, site: Site) => Check | undefined;

export const anything = new Rule();
export const nothing = new Rule();
nothing.checks.push((_value, frame) => fail(frame, "is not allowed here"));

export function fail(frame: Frame, message: Message): false {
  if (frame.errors === undefined) return false;
  frame.budget.spend(stepsPerError);
  frame.errors.add(frame.place, message);
  return false;
}

export function failAt(frame: Frame, key: string, message: Message): false {
  if (frame.errors === undefined) return false;
  frame.budget.spend(stepsPerError);
  if (frame.errors.isFull) frame.errors.count += 1;
  else frame.errors.add({ parent: frame.place, key }, message);
  return false;
}

/** A book of its own, for what must not count in the frame's. */
export function scratch(frame: Frame): Evaluated | undefined {
  if (frame.evaluated === undefined) return undefined;
  frame.budget.spend(1);
  return new Evaluated();
}

/** The same value where only yes or no is asked. */
export function silent(frame: Frame): Frame {
  return { ...frame, errors: undefined };
}

/** A member of the frame's value. */
export function at(frame: Frame, key: string | number): Frame {
  return { ...frame, place: { parent: frame.place, key }, evaluated: scratch(frame) };
}

/** Another schema for the same value. What it evaluated counts only if it passes. */
export function inPlace(rule: Rule, value: JsonValue, frame: Frame): boolean {
  const evaluated = scratch(frame);
  const passes = rule.evaluate(value, { ...frame, evaluated });
  if (passes && evaluated !== undefined) frame.evaluated?.merge(evaluated, frame.budget);
  return passes;
}

// --- reading keyword values

export function numberOf(value: JsonValue, site: Site): number {
  if (typeof value !== "number") throw invalidSchema(site.location, "must be a number");
  return value;
}

export function countOf(value: JsonValue, site: Site): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0) {
    throw invalidSchema(site.location, "must be a whole number, 0 or more");
  }
  return value;
}

export function stringOf(value: JsonValue, site: Site): string {
  if (typeof value !== "string") throw invalidSchema(site.location, "must be a string");
  return value;
}

export function namesOf(value: JsonValue, location: string): string[] {
  if (!Array.isArray(value) || !value.every((name) => typeof name === "string")) {
    throw invalidSchema(location, "must be a list of property names");
  }
  return value;
}

export function objectOf(value: JsonValue, site: Site): JsonObject {
  if (!isJsonObject(value)) throw invalidSchema(site.location, "must be an object");
  return value;
}

export function rulesOf(value: JsonValue, site: Site): Rule[] {
  if (!Array.isArray(value) || value.length === 0)
    throw invalidSchema(site.location, "must be a list of schemas, not empty");
  return value.map((schema, index) => site.compiler.refer(schema, site.resource, `${site.location}/${index}`));
}

export function ruleOf(value: JsonValue, site: Site): Rule {
  return site.compiler.refer(value, site.resource, site.location);
}

export function ruleMapOf(value: JsonValue, site: Site): Map<string, Rule> {
  const rules = new Map<string, Rule>();
  for (const [name, schema] of Object.entries(objectOf(value, site))) {
    rules.set(name, site.compiler.refer(schema, site.resource, `${site.location}/${escapePointer(name)}`));
  }
  return rules;
}

export function all(checks: readonly Check[]): Check {
  return (value, frame) => {
    frame.budget.spend(Math.ceil(checks.length / namesPerStep));
    let passes = true;
    for (const check of checks) if (!check(value, frame)) passes = false;
    return passes;
  };
}
