/**
 * Parts of a request that servers since 2026-07-28 want mirrored in headers: the tool's name, and arguments
 * that its schema marks with `x-mcp-header`. Values that a header cannot carry are encoded as the revision says.
 */
import { isUtf8 } from "node:buffer";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

const keyword = "x-mcp-header";
const prefix = "=?base64?";
const suffix = "?=";
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;

export function toHeaderValue(text: string): string {
  const isPlain = /^(?:[\u0021-\u007e](?:[\t\u0020-\u007e]*[\u0021-\u007e])?)?$/.test(text);
  if (isPlain && !(text.startsWith(prefix) && text.endsWith(suffix))) return text;
  return `${prefix}${Buffer.from(text, "utf8").toString("base64")}${suffix}`;
}

/** What a header says; undefined where it says nothing that a client may send. */
export function fromHeaderValue(value: string): string | undefined {
  const text = value.replace(/^[\t ]+|(?<![\t ])[\t ]+$/g, "");
  if (!/^[\t\u0020-\u007e]*$/.test(text)) return undefined;
  if (!text.startsWith(prefix) || !text.endsWith(suffix)) return text;
  const encoded = text.slice(prefix.length, -suffix.length);
  const bytes = Buffer.from(encoded, "base64");
  // Node reads what is no base64 as well.
  return bytes.toString("base64") === encoded && isUtf8(bytes) ? bytes.toString("utf8") : undefined;
}

/** An argument and the header that mirrors it. */
export interface MirroredArgument {
  readonly path: readonly string[];
  readonly header: string;
}

const known = new WeakMap<JsonObject, readonly MirroredArgument[] | string>();

/**
 * Arguments that a tool's schema wants mirrored, looked for once in each schema.
 * @returns the problem instead where it may not be used over HTTP
 */
export function mirroredArguments(schema: JsonObject): readonly MirroredArgument[] | string {
  const before = known.get(schema);
  if (before !== undefined) return before;
  const found = findMirrored(schema);
  known.set(schema, found);
  return found;
}

function findMirrored(schema: JsonObject): readonly MirroredArgument[] | string {
  const found: MirroredArgument[] = [];
  const names = new Set<string>();
  const visit = (properties: JsonValue | undefined, path: readonly string[]): string | undefined => {
    if (!isJsonObject(properties)) return undefined;
    for (const [name, property] of Object.entries(properties)) {
      if (!isJsonObject(property)) continue;
      const at = [...path, name];
      const problem = Object.hasOwn(property, keyword) ? note(property, at) : undefined;
      const below = problem ?? visit(property["properties"], at);
      if (below !== undefined) return below;
    }
    return undefined;
  };
  const note = (property: JsonObject, path: readonly string[]): string | undefined => {
    const name = property[keyword];
    if (typeof name !== "string" || !token.test(name)) return `'${keyword}' of '${path.join(".")}' is no header name`;
    if (!["string", "integer", "boolean"].some((type) => type === property["type"])) {
      return `'${path.join(".")}' has '${keyword}' and is neither string nor integer nor boolean`;
    }
    if (names.has(name.toLowerCase())) return `'${keyword}' ${name} is there twice`;
    names.add(name.toLowerCase());
    found.push({ path, header: `mcp-param-${name}` });
    return undefined;
  };
  const problem = visit(schema["properties"], []);
  if (problem !== undefined) return problem;
  return count(schema) === found.length ? found : `'${keyword}' stands where no argument is`;
}

/** Everywhere that the keyword is used as one. */
function count(value: JsonValue): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, part) => sum + count(part), 0);
  if (!isJsonObject(value)) return 0;
  return Object.entries(value).reduce(
    (sum, [key, part]) => sum + (key === keyword && typeof part === "string" ? 1 : count(part)),
    0,
  );
}

/** The headers of one call; arguments that are absent or null have none. */
export function mirror(
  mirrored: readonly MirroredArgument[],
  args: JsonObject,
): readonly (readonly [name: string, value: string])[] {
  return mirrored.flatMap(({ path, header }) => {
    const value = valueAt(path, args);
    return value === undefined ? [] : [[header, toHeaderValue(String(value))] as const];
  });
}

/** The value that a header mirrors; undefined where it may have none. */
export function valueAt(path: readonly string[], args: JsonObject): string | number | boolean | undefined {
  let value: JsonValue | undefined = args;
  for (const name of path) value = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  return value === undefined || value === null || typeof value === "object" ? undefined : value;
}
