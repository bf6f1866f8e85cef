/** The state of one validation: where it is, what it found, and how much work it may still do. */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonValue } from "../../json.ts";
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

/** The way from the root to a value, written out only when an error needs it. */
export interface Place {
  readonly parent: Place | undefined;
  readonly key: string;
}

function pointerOf(place: Place | undefined): string {
  const parts: string[] = [];
  for (let at = place; at !== undefined; at = at.parent) parts.push(`/${escapePointer(at.key)}`);
  return parts.reverse().join("");
}

/** Which members of a value a schema has looked at, for `unevaluatedProperties` and `unevaluatedItems`. */
export class Evaluated {
  readonly properties = new Set<string>();
  readonly items = new Set<number>();
  /** Items below this index are evaluated, too. */
  itemsUpTo = 0;

  merge(other: Evaluated): void {
    for (const name of other.properties) this.properties.add(name);
    for (const index of other.items) this.items.add(index);
    this.itemsUpTo = Math.max(this.itemsUpTo, other.itemsUpTo);
  }
}

/** A bounded list of errors. */
export class ErrorList {
  readonly errors: ArgumentError[] = [];
  /** All that were found, the ones left out included. */
  count = 0;

  add(place: Place | undefined, message: string): void {
    this.count += 1;
    if (this.errors.length >= mostErrors) return;
    this.errors.push({ pointer: cut(pointerOf(place), longestPointer), message: cut(message, longestMessage) });
  }

  addAll(other: ErrorList): void {
    this.count += other.count;
    for (const error of other.errors) if (this.errors.length < mostErrors) this.errors.push(error);
  }
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Work that one validation may do: generous for large arguments, an end for schemas that multiply. */
export class Budget {
  #left: number;
  #depth = 0;

  constructor(values: number) {
    this.#left = 100_000 + 200 * values;
  }

  /** @throws GatewayError `invalid_definition` when the work is used up */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) {
      throw new GatewayError(
        "invalid_definition",
        "Checking the arguments against this tool's schema takes too long; simplify its '$ref', 'anyOf' and 'pattern' keywords.",
        { param: "parameters" },
      );
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

/** One value before one schema. */
export interface Frame {
  readonly budget: Budget;
  readonly place: Place | undefined;
  /** Absent where only yes or no is asked (`not`, `if`, `contains`). */
  readonly errors: ErrorList | undefined;
  /** Absent where no schema asks. */
  readonly evaluated: Evaluated | undefined;
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
