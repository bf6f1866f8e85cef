/** Schemas of values that somebody wrote as an example: the type is theirs, the value the default. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { hasVariable } from "./words.ts";

const deepest = 6;

/** The schema of an argument that is sent as it was unless a call says otherwise. */
export function withDefault(value: JsonValue): JsonObject {
  return holdsVariable(value) ? inferSchema(value) : { ...inferSchema(value), default: value };
}

export function inferSchema(value: JsonValue, depth = 0): JsonObject {
  if (value === null || depth > deepest) return {};
  if (Array.isArray(value)) {
    const schemas = value.map((item) => inferSchema(item, depth + 1));
    const [first] = schemas;
    const isUniform = first !== undefined && new Set(schemas.map((schema) => JSON.stringify(schema))).size === 1;
    return { type: "array", ...(isUniform ? { items: first } : {}) };
  }
  if (isJsonObject(value)) {
    const properties = Object.entries(value).map(([name, member]): [string, JsonObject] => [
      name,
      inferSchema(member, depth + 1),
    ]);
    return { type: "object", ...(properties.length === 0 ? {} : { properties: Object.fromEntries(properties) }) };
  }
  if (typeof value === "number") return { type: Number.isInteger(value) ? "integer" : "number" };
  return { type: typeof value === "boolean" ? "boolean" : "string" };
}

/** Text of a query or a form as the value that it spells, where writing that gives the same text. */
export function readPlain(text: string): JsonValue {
  if (text === "true" || text === "false") return text === "true";
  const number = Number(text);
  return text !== "" &&
    Number.isFinite(number) &&
    String(number) === text &&
    Math.abs(number) <= Number.MAX_SAFE_INTEGER
    ? number
    : text;
}

function holdsVariable(value: JsonValue): boolean {
  return hasVariable(JSON.stringify(value));
}
