/** `allOf` as one schema where that means the same: providers and people read one object more easily. */
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { typeNames } from "./schema-types.ts";

/** One schema that stands for all of them; undefined where there is none. The first one's remarks win. */
export function mergeSchemas(schemas: readonly JsonObject[]): JsonObject | undefined {
  let merged: JsonObject = {};
  for (const schema of schemas) {
    const next = mergePair(merged, schema);
    if (next === undefined) return undefined;
    merged = next;
  }
  return merged;
}

function mergePair(a: JsonObject, b: JsonObject): JsonObject | undefined {
  const merged = new Map<string, JsonValue>(Object.entries(a));
  for (const [keyword, theirs] of Object.entries(b)) {
    const ours = merged.get(keyword);
    if (ours === undefined) {
      merged.set(keyword, theirs);
      continue;
    }
    const both = mergeKeyword(keyword, ours, theirs);
    if (both === undefined) return undefined;
    merged.set(keyword, both);
  }
  loosenAdditional(merged, a, b);
  return Object.fromEntries(merged);
}

function mergeKeyword(keyword: string, ours: JsonValue, theirs: JsonValue): JsonValue | undefined {
  switch (keyword) {
    case "type":
      return commonTypes(ours, theirs);
    case "properties":
      return mergeProperties(ours, theirs);
    case "required":
      return Array.isArray(ours) && Array.isArray(theirs) ? [...new Set([...ours, ...theirs])] : undefined;
    case "description":
    case "default":
    case "deprecated":
      return ours;
    case "minimum":
    case "exclusiveMinimum":
    case "minLength":
    case "minItems":
    case "minProperties":
      return typeof ours === "number" && typeof theirs === "number" ? Math.max(ours, theirs) : undefined;
    case "maximum":
    case "exclusiveMaximum":
    case "maxLength":
    case "maxItems":
    case "maxProperties":
      return typeof ours === "number" && typeof theirs === "number" ? Math.min(ours, theirs) : undefined;
    default:
      if (canonicalJson(ours) === canonicalJson(theirs)) return ours;
      // Settled by `loosenAdditional`.
      return keyword === "additionalProperties" ? ours : undefined;
  }
}

function commonTypes(ours: JsonValue, theirs: JsonValue): JsonValue | undefined {
  const [mine, others] = [typeNames(ours), typeNames(theirs)];
  const common = mine.filter((type) => others.includes(type) || (type === "integer" && others.includes("number")));
  if (others.includes("integer") && mine.includes("number") && !common.includes("integer")) common.push("integer");
  const [first] = common;
  return common.length < 2 ? first : common;
}

function mergeProperties(ours: JsonValue, theirs: JsonValue): JsonObject | undefined {
  if (!isJsonObject(ours) || !isJsonObject(theirs)) return undefined;
  const merged = new Map<string, JsonValue>(Object.entries(ours));
  for (const [name, schema] of Object.entries(theirs)) {
    const known = merged.get(name);
    if (!isJsonObject(known) || !isJsonObject(schema)) merged.set(name, known ?? schema);
    else merged.set(name, mergePair(known, schema) ?? { allOf: [known, schema] });
  }
  return Object.fromEntries(merged);
}

/** Each part forbids what the others bring; writers mean that all of them together are the object. */
function loosenAdditional(merged: Map<string, JsonValue>, a: JsonObject, b: JsonObject): void {
  const bringsNames = (schema: JsonObject): boolean =>
    isJsonObject(schema["properties"]) || schema["additionalProperties"] !== undefined;
  const [ours, theirs] = [a, b].map((schema) => canonicalJson(schema["additionalProperties"] ?? null));
  if (ours !== theirs && bringsNames(a) && bringsNames(b)) merged.delete("additionalProperties");
}
