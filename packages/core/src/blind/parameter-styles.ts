/**
 * How values stand in a query, a form, a path, a header or a cookie (BLIND-2): OpenAPI's styles, which
 * are those of RFC 6570. Without a style, arrays repeat the key and objects are JSON.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { ParameterStyle } from "./definition.ts";
import { percentEncode } from "./url-template.ts";

/** A name as it stands, and its value percent-encoded. */
export type QueryPair = readonly [name: string, encoded: string];

/** A value as text: strings as they are, the rest as JSON. */
export function toPlainText(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

const joiners: Readonly<Record<ParameterStyle["style"], string>> = {
  form: ",",
  spaceDelimited: "%20",
  pipeDelimited: "%7C",
  deepObject: ",",
  json: ",",
  simple: ",",
  label: ".",
  matrix: ",",
};

/** Key and value pairs of one parameter in a query, a form or a cookie; null is no value. */
export function writePairs(name: string, value: JsonValue, style: ParameterStyle | undefined): readonly QueryPair[] {
  if (value === null) return [];
  if (style?.style === "json") return [[name, percentEncode(JSON.stringify(value))]];
  if (style?.style === "deepObject" && style.nested === true) return writeNested(name, value);
  if (Array.isArray(value)) return writeArray(name, value, style);
  if (isJsonObject(value) && style !== undefined) return writeObject(name, value, style);
  return [[name, percentEncode(toPlainText(value))]];
}

function writeArray(
  name: string,
  value: readonly JsonValue[],
  style: ParameterStyle | undefined,
): readonly QueryPair[] {
  const items = value.filter((item) => item !== null).map((item) => percentEncode(toPlainText(item)));
  const kind = style?.style ?? "form";
  const isRepeated = style?.explode ?? kind === "form";
  if (isRepeated) return items.map((item) => [name, item]);
  return items.length === 0 ? [] : [[name, items.join(joiners[kind])]];
}

function writeObject(name: string, value: JsonObject, style: ParameterStyle): readonly QueryPair[] {
  const entries = Object.entries(value).flatMap(([key, item]) =>
    item === null ? [] : [[key, percentEncode(toPlainText(item))] as const],
  );
  if (style.style === "deepObject") return entries.map(([key, item]) => [`${name}[${key}]`, item]);
  if (style.explode ?? style.style === "form") return entries;
  const joiner = joiners[style.style];
  return entries.length === 0
    ? []
    : [[name, entries.map(([key, item]) => `${percentEncode(key)}${joiner}${item}`).join(joiner)]];
}

/** `a[b][0][c]=…`, as many back ends read forms; an empty list or object has nothing to say. */
function writeNested(name: string, value: JsonValue): readonly QueryPair[] {
  if (value === null) return [];
  if (typeof value !== "object") return [[name, percentEncode(toPlainText(value))]];
  // An array's entries are its indices.
  return Object.entries(value).flatMap(([key, item]) => writeNested(`${name}[${key}]`, item));
}

/** @returns text of a path; `value` is not null */
export function writePathValue(name: string, value: JsonValue, style: ParameterStyle | undefined): string {
  const kind = style?.style ?? "simple";
  const explode = style?.explode ?? false;
  if (kind === "matrix") return writeMatrix(name, value, explode);
  const joined = writeSimple(value, explode, kind === "label" && explode ? "." : ",");
  return kind === "label" ? `.${joined}` : joined;
}

/** `;color=blue,black`, or exploded `;color=blue;color=black`. */
function writeMatrix(name: string, value: JsonValue, explode: boolean): string {
  const key = percentEncode(name);
  if (!explode || typeof value !== "object" || value === null) return `;${key}=${writeSimple(value, false, ",")}`;
  if (Array.isArray(value)) return value.map((item) => `;${key}=${writeSimple(item, false, ",")}`).join("");
  return Object.entries(value)
    .map(([member, item]) => `;${percentEncode(member)}=${writeSimple(item, false, ",")}`)
    .join("");
}

/** OpenAPI's `simple`: items joined by commas, objects as name and value in turn or, exploded, as `name=value`. */
function writeSimple(value: JsonValue, explode: boolean, joiner: string): string {
  if (Array.isArray(value)) return value.map((item) => writeSimple(item, false, ",")).join(joiner);
  if (typeof value === "object" && value !== null) {
    return Object.entries(value)
      .map(([key, item]) => `${percentEncode(key)}${explode ? "=" : ","}${writeSimple(item, false, ",")}`)
      .join(joiner);
  }
  return percentEncode(value === null ? "" : String(value));
}

/** A header's text before it is checked; values are not encoded there. */
export function writeHeaderText(value: JsonValue, style: ParameterStyle | undefined): string {
  if (style === undefined || typeof value !== "object" || value === null) return toPlainText(value);
  if (Array.isArray(value)) return value.map(toPlainText).join(",");
  const sign = style.explode === true ? "=" : ",";
  return Object.entries(value)
    .map(([key, item]) => `${key}${sign}${toPlainText(item)}`)
    .join(",");
}
