/** The state of one validation: where it is, what it found, and how much work it may still do. */
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { Pattern } from "../pattern.ts";
import { escapePointer } from "./document.ts";

/** What is wrong with one argument, for a model to correct. */
export interface ArgumentError {
  /** JSON pointer into the arguments; empty for the whole. */
  readonly pointer: string;
  readonly message: string;
}

/** More than a model would correct in one go. */
const mostErrors = 10;
const longestMessage = 300;
const longestPointer = 300;

/** Nesting of evaluations; beyond it a reference leads back to itself without an end. */
const deepestEvaluation = 1_000;

/**
 * Steps of one validation. A step is what takes a tenth of a microsecond or less, so that all of them are a tenth
 * of a second of the thread that serves everybody, whatever the schema and the value.
 */
const mostSteps = 1_000_000;
const stepsPerMs = 10_000;

/** Tests of patterns that take more at the worst are paid by the clock: nearly all take a hundredth of their worst. */
const shortTest = 50;

/** The way from the root to a value, written out only when an error needs it. */
export interface Place {
  readonly parent: Place | undefined;
  readonly key: string | number;
}

function pointerOf(place: Place | undefined): string {
  const parts: string[] = [];
  for (let at = place; at !== undefined; at = at.parent) {
    parts.push(`/${escapePointer(cut(String(at.key), longestPointer))}`);
  }
  return cut(parts.reverse().join(""), longestPointer);
}

function depthOf(place: Place | undefined): number {
  let depth = 0;
  for (let at = place; at !== undefined; at = at.parent) depth += 1;
  return depth;
}

/** Which members of a value a schema has looked at, for `unevaluatedProperties` and `unevaluatedItems`. */
export class Evaluated {
  readonly properties = new Set<string>();
  readonly items = new Set<number>();
  /** Items below this index are evaluated, too. */
  itemsUpTo = 0;

  merge(other: Evaluated, budget: Budget): void {
    budget.spend(other.properties.size + other.items.size);
    for (const name of other.properties) this.properties.add(name);
    for (const index of other.items) this.items.add(index);
    this.itemsUpTo = Math.max(this.itemsUpTo, other.itemsUpTo);
  }
}

/** Written when somebody is to read it: most are of alternatives that nobody hears of. */
export type Message = string | (() => string);

/** A bounded list of errors. */
export class ErrorList {
  /** All that were found, the ones left out included. */
  count = 0;
  /** Of the error that is furthest from the root. */
  depth = -1;
  readonly #found: { readonly place: Place | undefined; readonly message: Message }[] = [];

  get isFull(): boolean {
    return this.#found.length >= mostErrors;
  }

  get errors(): readonly ArgumentError[] {
    return this.#found.map(({ place, message }) => ({
      pointer: pointerOf(place),
      message: cut(typeof message === "string" ? message : message(), longestMessage),
    }));
  }

  add(place: Place | undefined, message: Message): void {
    this.count += 1;
    if (this.isFull) return;
    this.#found.push({ place, message });
    this.depth = Math.max(this.depth, depthOf(place));
  }

  addAll(other: ErrorList): void {
    this.count += other.count;
    for (const error of other.#found) if (this.#found.length < mostErrors) this.#found.push(error);
    this.depth = Math.max(this.depth, other.depth);
  }
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Work that one validation may do: enough for large arguments, an end for all others to wait. */
export class Budget {
  #left = mostSteps;
  #depth = 0;

  /** @throws GatewayError `invalid_definition` when the work is used up */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) {
      throw new GatewayError(
        "invalid_definition",
        "Checking against this tool's schema takes too long; simplify its '$ref', 'anyOf' and 'pattern' keywords, or send less.",
        { param: "parameters" },
      );
    }
  }

  /**
   * Is there a match in the text? Paid by what it took, which is at the most what it can take.
   * @throws GatewayError as `spend` does, before a test that might go beyond all that is allowed
   */
  matches(pattern: Pattern, text: string): boolean {
    const longest = pattern.longestTest(text.length);
    if (longest > mostSteps) this.spend(longest);
    if (longest <= shortTest) {
      this.spend(longest);
      return pattern.test(text);
    }
    const start = performance.now();
    const found = pattern.test(text);
    this.spend(Math.min(longest, Math.ceil((performance.now() - start) * stepsPerMs)));
    return found;
  }

  /**
   * All names that an object has.
   * @throws GatewayError as `spend` does
   */
  namesIn(value: JsonObject): string[] {
    const names = Object.keys(value);
    this.spendOnMembers(names.length);
    return names;
  }

  /**
   * All members of an object are gone through, or written. Of many, the engine keeps a table, which takes much longer.
   * @throws GatewayError as `spend` does
   */
  spendOnMembers(count: number): void {
    this.spend(count > mostInShape ? count * stepsPerMember : Math.ceil(count / membersPerStep));
  }

  /**
   * Text that is equal for equal values, whatever the order of their members.
   * @throws GatewayError as `spend` does
   */
  canonical(value: JsonValue): string {
    this.#spendOnParts(value);
    return canonicalJson(value);
  }

  /**
   * A copy that nothing else holds.
   * @throws GatewayError as `spend` does
   */
  copy(value: JsonValue): JsonValue {
    this.#spendOnParts(value);
    return structuredClone(value);
  }

  #spendOnParts(value: JsonValue): void {
    if (typeof value === "string") this.spend(1 + Math.ceil(value.length / charactersPerStep));
    else if (typeof value !== "object" || value === null) this.spend(stepsPerPart);
    else {
      const names = Array.isArray(value) ? [] : this.namesIn(value);
      this.spendOnMembers(names.length);
      for (const name of names) this.spend(1 + Math.ceil(name.length / charactersPerStep));
      this.spend(stepsPerPart);
      for (const part of Array.isArray(value) ? value : Object.values(value)) this.#spendOnParts(part);
    }
  }

  /** @throws GatewayError `invalid_definition` for a schema that refers to itself without an end */
  enter(): void {
    this.#depth += 1;
    if (this.#depth > deepestEvaluation) {
      throw new GatewayError(
        "invalid_definition",
        "This tool's schema refers to itself without an end; break the circle of '$ref'.",
        { param: "parameters" },
      );
    }
  }

  leave(): void {
    this.#depth -= 1;
  }
}

const mostInShape = 100;
const membersPerStep = 8;
const stepsPerMember = 8;

/** Of values that are written or copied. */
const stepsPerPart = 3;
const charactersPerStep = 16;

/** One value before one schema. */
export interface Frame {
  readonly budget: Budget;
  readonly place: Place | undefined;
  /** Absent where only yes or no is asked (`not`, `if`, `contains`). */
  readonly errors: ErrorList | undefined;
  /** Absent where no schema asks. */
  readonly evaluated: Evaluated | undefined;
  /** Whole numbers may be texts of their digits, where a double cannot hold them. */
  readonly longNumbers?: boolean;
}

export type JsonType = "null" | "boolean" | "number" | "string" | "array" | "object";

export function typeOf(value: JsonValue): JsonType {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "boolean") return "boolean";
  if (typeof value === "number") return "number";
  return typeof value === "string" ? "string" : "object";
}

/** A value as an error message shows it. */
export function preview(value: JsonValue): string {
  if (typeof value === "object" && value !== null) return `an ${typeOf(value)}`;
  const text = JSON.stringify(typeof value === "string" ? value.slice(0, 60) : value);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}
