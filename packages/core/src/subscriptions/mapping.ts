/**
 * From a message to arguments of a call (MQ-3). A mapping is plain JSON in which `{"$message": "/body/orderId"}`
 * stands for a part of the message; nothing of a message is ever taken for a mapping itself.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

const marker = "$message";
/** Of a message, see `documentOf`. */
const parts = ["body", "id", "headers", "key", "topic", "place", "published_at", "content_type"];

interface PartOfMessage {
  readonly pointer: string;
  readonly otherwise: JsonValue | undefined;
}

/** @param document of the message, see `documentOf` @throws GatewayError `invalid_arguments` */
export function mapArguments(mapping: JsonObject, document: JsonObject): JsonObject {
  const mapped = mapValue(mapping, document);
  if (isJsonObject(mapped)) return mapped;
  throw new GatewayError(
    "invalid_arguments",
    `'target.arguments' stands for ${describe(mapped)} here, and arguments are an object; name them, for example {"message": {"$message": "/body"}}.`,
    { param: "target.arguments" },
  );
}

/** @throws GatewayError `invalid_definition` whose `param` is the field's path */
export function checkMapping(mapping: JsonObject, path: string): void {
  for (const [name, value] of Object.entries(mapping)) checkValue(value, `${path}.${name}`);
  if (Object.hasOwn(mapping, marker)) checkPart(mapping, path);
}

/** What no message has would be missing from every call. */
function checkPart(mapping: JsonObject, path: string): void {
  const { pointer } = readPart(mapping, path);
  const [, first] = pointer.split("/");
  if (first === undefined || parts.includes(first)) return;
  throw invalid(`${path}.${marker}`, `is '${pointer}', and a message has only ${parts.join(", ")}`);
}

/** Names that it gives arguments; undefined where the message itself decides. */
export function namesIn(mapping: JsonObject): readonly string[] | undefined {
  return Object.hasOwn(mapping, marker) ? undefined : Object.keys(mapping);
}

function checkValue(value: JsonValue, path: string): void {
  if (Array.isArray(value)) value.forEach((item: JsonValue, index) => checkValue(item, `${path}.${index}`));
  else if (isJsonObject(value)) checkMapping(value, path);
}

function mapValue(value: JsonValue, document: JsonObject): JsonValue | undefined {
  if (Array.isArray(value)) {
    return value.map((item: JsonValue) => mapValue(item, document) ?? null);
  }
  if (!isJsonObject(value)) return value;
  if (Object.hasOwn(value, marker)) {
    const { pointer, otherwise } = readPart(value, "target.arguments");
    const part = partAt(document, pointer);
    return part === undefined ? otherwise : part;
  }
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, part]) => {
      const mapped = mapValue(part, document);
      return mapped === undefined ? [] : [[name, mapped]];
    }),
  );
}

function readPart(value: JsonObject, path: string): PartOfMessage {
  const pointer = value[marker];
  if (typeof pointer !== "string" || !/^(?:\/(?:[^~/]|~[01])*)*$/.test(pointer)) {
    throw invalid(`${path}.${marker}`, "must be a JSON pointer into the message, for example '/body/orderId'");
  }
  const other = Object.keys(value).find((name) => name !== marker && name !== "default");
  if (other !== undefined) throw invalid(`${path}.${other}`, "cannot stand beside '$message'; only 'default' can");
  return { pointer, otherwise: value["default"] };
}

/** RFC 6901. Undefined where there is nothing. */
function partAt(document: JsonValue, pointer: string): JsonValue | undefined {
  let at: JsonValue | undefined = document;
  for (const token of pointer.split("/").slice(1)) {
    const name = token.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(at))
      at = /^(?:0|[1-9]\d{0,9})$/.test(name) ? (at as readonly JsonValue[])[Number(name)] : undefined;
    else if (isJsonObject(at) && Object.hasOwn(at, name)) at = at[name];
    else return undefined;
  }
  return at;
}

function describe(value: JsonValue | undefined): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_definition", `'${param}' ${problem}.`, { param });
}
