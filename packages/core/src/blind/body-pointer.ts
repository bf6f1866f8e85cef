/**
 * Where in a body of JSON a credential goes: a field at its top by its name, one further in by a pointer (RFC 6901),
 * `/merchant/apiKey`. Objects are made on the way; lists are not entered.
 */
import { isJsonObject, isRawNumber, type JsonObject, type JsonValue } from "../json.ts";

/** The names that lead to a target. */
export function namesTo(target: string): readonly string[] {
  if (!target.startsWith("/")) return [target];
  return target
    .slice(1)
    .split("/")
    .map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
}

export function toPointer(names: readonly string[]): string {
  return names.map((name) => `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** What is wrong with a target, where something is. */
export function pointerProblem(target: string): string | undefined {
  if (!target.startsWith("/")) return undefined;
  const isPointer = !/~(?![01])/.test(target) && namesTo(target).every((name) => name !== "");
  return isPointer ? undefined : "must be the name of a field, or a JSON pointer to one, such as '/merchant/apiKey'";
}

/** A copy that holds the value there, whatever was in its way. */
export function withValueAt(body: JsonObject, [name = "", ...rest]: readonly string[], value: JsonValue): JsonObject {
  const inner = Object.hasOwn(body, name) ? body[name] : undefined;
  const outer = isJsonObject(inner) && !isRawNumber(inner) ? inner : {};
  const own = rest.length === 0 ? value : withValueAt(outer, rest, value);
  // `fromEntries` makes an own property of any name.
  return Object.fromEntries([...Object.entries(body).filter(([other]) => other !== name), [name, own]]);
}

/**
 * A schema of objects that says nothing of what is there; undefined where nothing is left of it, and the schema
 * itself where it has no such property.
 */
export function withoutPropertyAt(schema: JsonObject, [name = "", ...rest]: readonly string[]): JsonObject | undefined {
  const { properties, required } = schema;
  const inner = isJsonObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
  if (!isJsonObject(properties) || inner === undefined) return schema;
  const left = rest.length > 0 && isJsonObject(inner) ? withoutPropertyAt(inner, rest) : undefined;
  const others = Object.entries(properties).flatMap(([other, each]): [string, JsonValue][] => {
    if (other !== name) return [[other, each]];
    return left === undefined ? [] : [[name, left]];
  });
  if (others.length === 0) return undefined;
  const isAsked = (other: JsonValue): boolean => other !== name || left !== undefined;
  return {
    ...schema,
    properties: Object.fromEntries(others),
    ...(Array.isArray(required) ? { required: required.filter(isAsked) } : {}),
  };
}

/** Has the schema of an object a property there? */
export function hasPropertyAt(schema: JsonValue | undefined, [name, ...rest]: readonly string[]): boolean {
  if (name === undefined) return true;
  const properties = isJsonObject(schema) ? schema["properties"] : undefined;
  return isJsonObject(properties) && Object.hasOwn(properties, name) && hasPropertyAt(properties[name], rest);
}
