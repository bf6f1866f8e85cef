/**
 * `base_url` with `{name}` placeholders, taken apart once (BLIND-2). Values are filled in one pass and
 * percent-encoded, so that no value can change the route, and the result is parsed again to prove it.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";

/** Text as it stands, or the name of what stands there: a parameter, or where a credential goes. */
type Part = string | { readonly name: string };
type Segment = readonly Part[];

export interface UrlTemplate {
  readonly origin: string;
  /** Between the slashes of the path. */
  readonly segments: readonly Segment[];
  /** The query of `base_url`, kept in front of what arguments and credentials add. */
  readonly query: Segment;
  /** Each once, in order of appearance. */
  readonly placeholders: readonly string[];
  /** Names that stand in the query of `base_url` already. */
  readonly queryNames: ReadonlySet<string>;
}

/** @throws GatewayError `invalid_definition` for what is not an http(s) URL with sound placeholders */
export function parseUrlTemplate(text: string): UrlTemplate {
  const names: string[] = [];
  const marker = `placeholder${uniqueDigits(text)}x`;
  const marked = text.replace(
    /\{([^{}/?#\s]{1,128})\}/gu,
    (_match, name: string) => `${marker}${names.push(name) - 1}e`,
  );
  if (/[{}]/.test(marked))
    throw invalid("has a brace that belongs to no placeholder; write {name}, and %7B for a literal one");
  const url = URL.parse(marked);
  if (url === null) throw invalid("is not a URL");
  if (url.protocol !== "http:" && url.protocol !== "https:") throw invalid("must start with http:// or https://");
  if (url.username !== "" || url.password !== "") throw invalid("may not hold user name or password; use auth_config");
  if (url.host.includes(marker)) throw invalid("may have placeholders in path and query only, not in the host");
  if (url.hash !== "") throw invalid("may not have a '#' part");
  const split = (part: string): Segment => splitAtMarkers(part, marker, names);
  return {
    origin: url.origin,
    segments: url.pathname.slice(1).split("/").map(split),
    query: split(url.search.slice(1)),
    placeholders: [...new Set(names)],
    queryNames: new Set(url.searchParams.keys()),
  };
}

function splitAtMarkers(text: string, marker: string, names: readonly string[]): Segment {
  const parts: Part[] = [];
  const pattern = new RegExp(`${marker}(\\d+)e`, "g");
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) parts.push(text.slice(from, match.index));
    parts.push({ name: names[Number(match[1])] ?? "" });
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

/** Digits that make the marker a text which the URL does not hold. */
function uniqueDigits(text: string): string {
  let digits = 0;
  while (text.toLowerCase().includes(`placeholder${digits}x`)) digits += 1;
  return String(digits);
}

interface Values {
  readonly [name: string]: JsonValue;
}

/** Writes the value of a parameter percent-encoded: nothing of it may end a segment. */
export type EncodeValue = (name: string, value: JsonValue) => string;

/**
 * @returns path and query of the URL, without `?`
 * @throws GatewayError `invalid_arguments` naming the parameter whose value would change the route
 */
export function expandUrlTemplate(
  template: UrlTemplate,
  values: Values,
  encode: EncodeValue,
): { readonly path: string; readonly query: string } {
  let path = "";
  for (const segment of template.segments) path += `/${expandSegment(segment, values, encode)}`;
  const query = template.query
    .map((part) => (typeof part === "string" ? part : encode(part.name, valueOf(values, part.name))))
    .join("");
  return { path, query };
}

function expandSegment(segment: Segment, values: Values, encode: EncodeValue): string {
  let text = "";
  let first: string | undefined;
  for (const part of segment) {
    if (typeof part === "string") {
      text += part;
      continue;
    }
    first ??= part.name;
    const encoded = encode(part.name, valueOf(values, part.name));
    if (encoded === "") throw badPathValue(part.name, "may not be empty");
    text += encoded;
  }
  // Encoding cannot protect a whole dot segment: URL parsers take it for "here" or "up".
  if (first !== undefined && /^(?:\.|%2e){1,2}$/i.test(text)) throw badPathValue(first, "may not be '.' or '..'");
  return text;
}

function valueOf(values: Values, name: string): JsonValue {
  const value = Object.hasOwn(values, name) ? values[name] : undefined;
  if (value === undefined || value === null) throw badPathValue(name, "is missing");
  return value;
}

/** RFC 3986 unreserved characters stay, a lone half of a surrogate pair becomes U+FFFD. */
export function percentEncode(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/**
 * A credential in a path, as people paste it: `bot123:ABC`. What could end a segment or a value of the query is
 * encoded, a slash too.
 */
export function encodePathSecret(text: string): string {
  return percentEncode(text).replaceAll(/%(?:3A|40|2C|24|3D)/g, decodeURIComponent);
}

function badPathValue(name: string, problem: string): GatewayError {
  return new GatewayError("invalid_arguments", `Argument '${name}' ${problem}: it is part of the address.`, {
    param: name,
  });
}

function invalid(problem: string): GatewayError {
  return new GatewayError("invalid_definition", `'execution.base_url' ${problem}.`, { param: "execution.base_url" });
}
