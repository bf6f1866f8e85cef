/** How far expressions may go: what they make is bounded in all its parts, not in each alone. */

export class ExpressionLimit extends Error {
  override readonly name = "ExpressionLimit";
}

export const longestMs = 1_000;
export const longestList = 100_000;
const longestText = 4_194_304;

export function outOfTime(): ExpressionLimit {
  return new ExpressionLimit(`takes more than ${longestMs} milliseconds`);
}

/** @throws ExpressionLimit */
export function requireTextLength(length: number): void {
  if (length > longestText) throw new ExpressionLimit(`makes a text of more than ${longestText} characters`);
}

export function isFunctionOf(value: object): boolean {
  return "_jsonata_lambda" in value || "_jsonata_function" in value;
}

/** About the characters of each value as JSON. */
const perValue = 8;
const weights = new WeakMap<object, number>();

/** What grows between two evaluations is weighed anew. */
export function forgetWeight(value: object): void {
  weights.delete(value);
}

/**
 * What reading a value whole takes. A part that stands in several places counts in each, since whatever compares or
 * writes the value meets it there again: a few steps can put a part into itself twice and twice again.
 * @param isFixed no part of it will be changed any more
 * @throws ExpressionLimit
 */
export function weigh(value: unknown, limit: number, isFixed = true): number {
  let spent = 0;
  const spend = (weight: number): void => {
    spent += weight;
    if (spent > limit) throw new ExpressionLimit("makes a value that is too large with all its parts");
  };
  const visit = (part: unknown): void => {
    if (typeof part === "string") return spend(perValue + part.length);
    if (typeof part !== "object" || part === null || isFunctionOf(part)) return spend(perValue);
    const known = weights.get(part);
    if (known !== undefined) return spend(known);
    const before = spent;
    spend(perValue);
    if (Array.isArray(part)) {
      for (const item of part) visit(item);
    } else {
      for (const [name, field] of Object.entries(part)) {
        spend(name.length);
        visit(field);
      }
    }
    if (isFixed) weights.set(part, spent - before);
  };
  visit(value);
  return spent;
}
