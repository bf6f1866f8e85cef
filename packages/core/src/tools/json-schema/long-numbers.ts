/** Whole numbers that are given as texts of their digits, since a double cannot hold all of them. */
import { isLongNumber, type JsonObject, type JsonValue } from "../../json.ts";
import type { Frame } from "./run.ts";

/** Are the texts of such a schema whole numbers of 64 bits, which may be given either way? */
export function isOfDigits({ type, format }: JsonObject): boolean {
  return (format === "int64" || format === "uint64") && Array.isArray(type) && type.includes("integer");
}

export function longNumberIn(value: JsonValue, { longNumbers }: Frame, mayBeDigits = false): bigint | undefined {
  if (typeof value !== "string") return undefined;
  const isNumber = mayBeDigits ? /^-?\d{1,20}$/.test(value) : longNumbers === true && isLongNumber(value);
  return isNumber ? BigInt(value) : undefined;
}

export function isEqual(number: number | bigint, limit: number): boolean {
  return typeof number === "number" ? number === limit : Number.isInteger(limit) && number === BigInt(limit);
}
