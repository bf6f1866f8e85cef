/**
 * Integers that the document says have 64 bits. Few clients can write what a double cannot hold, so where a value
 * is written as text anyway, they are told that its digits are taken as a string, too: they look the same to the back end.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { typeNames } from "./schema-types.ts";

const digitsOf: ReadonlyMap<JsonValue | undefined, string> = new Map([
  ["int64", "^-?[0-9]{1,20}$"],
  ["uint64", "^[0-9]{1,20}$"],
]);

/** Keywords whose schemas are of the same value. Behind `not` and `if` what takes more would refuse more. */
const sameValue: readonly string[] = ["allOf", "anyOf"];

/**
 * @param schema converted
 * @param levels of lists and objects whose members are written as text; further in they are JSON
 */
export function withDigitsAsText(schema: JsonObject, levels: number): JsonObject {
  const result = new Map<string, JsonValue>(Object.entries(schema));
  const change = (keyword: string, read: (value: JsonValue) => JsonValue): void => {
    const value = schema[keyword];
    if (value !== undefined) result.set(keyword, read(value));
  };
  const part = (value: JsonValue, left: number): JsonValue =>
    isJsonObject(value) ? withDigitsAsText(value, left) : value;
  for (const keyword of sameValue) {
    change(keyword, (value) => (Array.isArray(value) ? value.map((each) => part(each, levels)) : value));
  }
  if (levels > 0) {
    for (const keyword of ["items", "additionalProperties"]) change(keyword, (value) => part(value, levels - 1));
    change("properties", (value) =>
      isJsonObject(value)
        ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, part(each, levels - 1)]))
        : value,
    );
  }
  return withDigits(Object.fromEntries(result));
}

function withDigits(schema: JsonObject): JsonObject {
  const types = typeNames(schema["type"]);
  const pattern = digitsOf.get(schema["format"]);
  const isListed = schema["enum"] !== undefined || schema["const"] !== undefined;
  if (pattern === undefined || !types.includes("integer") || types.includes("string") || isListed) return schema;
  // The first one is what models are told that know one type only.
  return { pattern, ...schema, type: ["string", ...types] };
}
