/**
 * Schemas in the words of JSON Schema 2020-12. Whatever older drafts write otherwise is read here, and so are the
 * gaps that servers of MCP leave; GPT and Claude refuse the whole request for one schema that has them. What is
 * said stays the same.
 */
import type { JsonObject, JsonValue } from "../json.ts";
import { withSubschemas } from "./json-schema/document.ts";

/** The very same object where it is written so already. */
export function currentSchema(schema: JsonObject): JsonObject {
  let isOther = false;
  const changed = withSubschemas(schema, (part) => {
    const current = currentSchema(part);
    isOther ||= current !== part;
    return current;
  });
  return isOther || !isCurrent(schema) ? rewritten(changed) : schema;
}

function isCurrent(schema: JsonObject): boolean {
  if (isList(schema) && !Object.hasOwn(schema, "items")) return false;
  return Object.entries(schema).every(([keyword, value]) => {
    switch (keyword) {
      case "items":
        return !Array.isArray(value);
      case "prefixItems":
        return !isEmptyList(value);
      case "exclusiveMinimum":
      case "exclusiveMaximum":
        return typeof value !== "boolean";
      case "required":
      case "type":
        return !Array.isArray(value) || new Set(value).size === value.length;
      case "$ref":
        return withCurrentPointer(value) === value;
      default:
        return !saysNothing(keyword, value);
    }
  });
}

function rewritten(schema: JsonObject): JsonObject {
  const isTuple = Array.isArray(schema["items"]);
  const entries = Object.entries(schema).flatMap(([keyword, value]): [string, JsonValue][] => {
    switch (keyword) {
      case "items":
      case "prefixItems":
        return isEmptyList(value) ? [] : [[isTuple ? "prefixItems" : keyword, value]];
      case "additionalItems":
        return [[isTuple ? "items" : keyword, value]];
      case "exclusiveMinimum":
      case "exclusiveMaximum":
        return bound(schema, keyword);
      case "minimum":
      case "maximum":
        return schema[exclusiveOf(keyword)] === true ? [] : [[keyword, value]];
      case "required":
      case "type":
        return [[keyword, Array.isArray(value) ? [...new Set(value)] : value]];
      case "$ref":
        return [[keyword, withCurrentPointer(value)]];
      case "$schema":
        return value === current ? [[keyword, value]] : [];
      default:
        return saysNothing(keyword, value) ? [] : [[keyword, value]];
    }
  });
  const whole = Object.fromEntries(entries);
  // Of a list whose items may be anything this says so.
  return isList(whole) && !Object.hasOwn(whole, "items") ? { ...whole, items: {} } : whole;
}

const current = "https://json-schema.org/draft/2020-12/schema";

/** With a boolean the bound itself stands beside it. */
function bound(schema: JsonObject, keyword: "exclusiveMinimum" | "exclusiveMaximum"): [string, JsonValue][] {
  const value = schema[keyword];
  const limit = value === true ? schema[keyword === "exclusiveMinimum" ? "minimum" : "maximum"] : value;
  return limit === undefined || typeof limit === "boolean" ? [] : [[keyword, limit]];
}

function exclusiveOf(keyword: "minimum" | "maximum"): string {
  return keyword === "minimum" ? "exclusiveMinimum" : "exclusiveMaximum";
}

function isEmptyList(value: JsonValue): boolean {
  return Array.isArray(value) && value.length === 0;
}

function isList({ type }: JsonObject): boolean {
  return type === "array" || (Array.isArray(type) && type.includes("array"));
}

/** Null is a value where values stand; elsewhere it is what some languages write for a field that is not set. */
function saysNothing(keyword: string, value: JsonValue): boolean {
  return value === null && keyword !== "const" && keyword !== "default";
}

/** A number behind `items` leads into a list of them. */
function withCurrentPointer(reference: JsonValue): JsonValue {
  if (typeof reference !== "string" || !reference.startsWith("#/")) return reference;
  return reference.replaceAll(/\/items\/(?=\d+(?:\/|$))/g, "/prefixItems/");
}
