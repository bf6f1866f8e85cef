/**
 * A schema as a part of a larger one. Its references are written from its own root, which is then another, so they
 * are led to where their targets are.
 */
import type { JsonObject, JsonValue } from "../../json.ts";
import { withSubschemas } from "./document.ts";

export interface EmbeddedSchema {
  readonly schema: JsonObject;
  /** `$defs` and `definitions`, which belong at the root of the whole: some back ends look for them nowhere else. */
  readonly definitions: JsonObject;
}

/** @param place JSON pointer of the schema in the whole, as a reference: `#/properties/message` */
export function embedSchema(given: JsonObject, place: string): EmbeddedSchema {
  // An address of its own would make it the root of what is in it.
  const { $id, ...own } = led(given, place);
  const isAnchor = typeof $id === "string" && $id.startsWith("#");
  const definitions: JsonObject = {};
  const schema: JsonObject = isAnchor ? { $id } : {};
  for (const [keyword, value] of Object.entries(own)) {
    if (liftedKeywords.has(keyword)) definitions[keyword] = value;
    else schema[keyword] = value;
  }
  return { schema, definitions };
}

const liftedKeywords: ReadonlySet<string> = new Set(["$defs", "definitions"]);
const referenceKeywords: ReadonlySet<string> = new Set(["$ref", "$dynamicRef", "$recursiveRef"]);

function led(schema: JsonObject, place: string): JsonObject {
  const entries = Object.entries(schema).map(([keyword, value]): [string, JsonValue] => {
    const isReference = referenceKeywords.has(keyword) && typeof value === "string";
    return [keyword, isReference ? ledReference(value, place) : value];
  });
  return withSubschemas(Object.fromEntries(entries), (part) => (hasOwnRoot(part) ? part : led(part, place)));
}

function hasOwnRoot({ $id }: JsonObject): boolean {
  return typeof $id === "string" && !$id.startsWith("#");
}

function ledReference(reference: string, place: string): string {
  if (reference !== "#" && !reference.startsWith("#/")) return reference;
  const [, keyword = ""] = reference.split("/", 2);
  return liftedKeywords.has(keyword) ? reference : `${place}${reference.slice(1)}`;
}
