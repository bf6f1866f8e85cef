/** What the types of a converted schema allow. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

export const jsonTypes: ReadonlySet<string> = new Set([
  "null",
  "boolean",
  "number",
  "integer",
  "string",
  "array",
  "object",
]);

export function typeNames(type: JsonValue | undefined): readonly string[] {
  const names = Array.isArray(type) ? type : [type];
  return names.filter((name): name is string => typeof name === "string");
}

/** May a value of this schema have this type? */
export function mayBe(schema: JsonValue | undefined, type: "object" | "array"): boolean {
  if (!isJsonObject(schema)) return schema !== false;
  const types = typeNames(schema["type"]);
  if (types.length > 0) return types.includes(type);
  const branches = schema["anyOf"] ?? schema["allOf"];
  if (Array.isArray(branches)) return branches.some((branch) => mayBe(branch, type));
  return schema["enum"] === undefined && schema["const"] === undefined;
}

/** Objects and nothing else but null. */
export function isObjectSchema(schema: JsonObject): boolean {
  const types = typeNames(schema["type"]).filter((type) => type !== "null");
  return types.length === 0 ? isJsonObject(schema["properties"]) : types.length === 1 && types[0] === "object";
}

/** Content of a file as text in base64: what `body-writers.ts` sends byte for byte. */
export function isFileSchema(schema: JsonValue | undefined): boolean {
  return isJsonObject(schema) && (schema["format"] === "binary" || schema["contentEncoding"] === "base64");
}
