/**
 * Where a JSON Schema's references lead. Only the document itself is known: a tool's schema comes
 * from a tenant or a foreign server, so nothing is ever loaded from elsewhere (CHAT-18).
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

/** A part of the document with a base address of its own (`$id`). */
export interface Resource {
  readonly uri: string;
  readonly root: JsonObject;
  readonly anchors: Map<string, JsonObject>;
}

export interface ResolvedSchema {
  readonly schema: JsonValue;
  readonly resource: Resource;
}

/** Keywords whose value is a schema, a list of schemas, or a map of schemas. */
const singleKeywords = [
  "additionalItems",
  "additionalProperties",
  "contains",
  "else",
  "if",
  "items",
  "not",
  "propertyNames",
  "then",
  "unevaluatedItems",
  "unevaluatedProperties",
];
const listKeywords = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
const mapKeywords = ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/** What no honest definition reaches. Schemas in schemas, and with them lists and objects of any kind. */
const deepestSchema = 200;
const deepestValue = 500;
/** All that the document holds; of it schemas, and those with an address of their own. */
const mostValues = 200_000;
const mostSchemas = 20_000;
const mostResources = 1_000;
/** Characters of an address: each is read against the one around it. */
const longestAddress = 2_048;

/** The base of a document that does not name itself. */
const localBase = "schema://local/";

export class SchemaDocument {
  readonly root: Resource;
  /** Does any part ask what its siblings left unevaluated? Only then is that book kept. */
  readonly tracksEvaluation: boolean;
  readonly #resources = new Map<string, Resource>();
  readonly #owners = new Map<JsonObject, Resource>();
  readonly #resolved = new Map<Resource, Map<string, ResolvedSchema>>();

  /** @throws GatewayError `invalid_definition` for ids that are not addresses, for endless nesting and size */
  constructor(root: JsonObject) {
    requireMeasure(root);
    this.root = this.#addResource(root, localBase, "");
    this.#resources.set(localBase, this.root);
    let tracks = false;
    const waiting: { schema: JsonObject; resource: Resource; location: string; depth: number }[] = [
      { schema: root, resource: this.root, location: "", depth: 0 },
    ];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const { schema, location, depth } = next;
      if (this.#owners.has(schema)) continue;
      if (depth > deepestSchema) throw invalidSchema(location, `is nested more than ${deepestSchema} levels deep`);
      const resource = this.#enter(schema, next.resource, location);
      this.#owners.set(schema, resource);
      if (this.#owners.size > mostSchemas) throw invalidSchema("", `has more than ${mostSchemas} schemas`);
      tracks ||= Object.hasOwn(schema, "unevaluatedProperties") || Object.hasOwn(schema, "unevaluatedItems");
      for (const [key, child] of subschemas(schema)) {
        waiting.push({ schema: child, resource, location: `${location}/${key}`, depth: depth + 1 });
      }
    }
    this.tracksEvaluation = tracks;
  }

  /** The resource that a schema lies in; `fallback` for places that no keyword leads to. */
  resourceOf(schema: JsonObject, fallback: Resource): Resource {
    return this.#owners.get(schema) ?? fallback;
  }

  /** @throws GatewayError `invalid_definition` where the reference leads nowhere in this document */
  resolve(reference: string, from: Resource, location: string): ResolvedSchema {
    const known = this.#resolved.get(from);
    const found = known?.get(reference) ?? this.#find(reference, from, location);
    if (known === undefined) this.#resolved.set(from, new Map([[reference, found]]));
    else known.set(reference, found);
    return found;
  }

  #find(reference: string, from: Resource, location: string): ResolvedSchema {
    const at = reference.indexOf("#");
    const address = at < 0 ? reference : reference.slice(0, at);
    const resource = address === "" ? from : this.#resources.get(absolute(address, from.uri, location));
    if (resource === undefined) {
      throw invalidSchema(
        location,
        `refers to '${shorten(reference)}', which is outside this schema; only references into it ('#/…') are followed`,
      );
    }
    const fragment = at < 0 ? "" : decodeFragment(reference.slice(at + 1), location);
    const found =
      fragment === "" || fragment.startsWith("/") ? this.#walk(resource, fragment) : anchored(resource, fragment);
    if (found === undefined) throw invalidSchema(location, `refers to '${shorten(reference)}', which does not exist`);
    return found;
  }

  #walk(start: Resource, pointer: string): ResolvedSchema | undefined {
    let schema: JsonValue = start.root;
    let resource = start;
    for (const part of pointer.split("/").slice(1)) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      const next = ownMember(schema, key);
      if (next === undefined) return undefined;
      schema = next;
      if (isJsonObject(schema)) resource = this.resourceOf(schema, resource);
    }
    return { schema, resource };
  }

  #enter(schema: JsonObject, outer: Resource, location: string): Resource {
    const id = schema["$id"];
    let resource = outer;
    if (typeof id === "string" && id.startsWith("#")) outer.anchors.set(id.slice(1), schema);
    else if (typeof id === "string") {
      if (schema === this.root.root) resource = outer;
      else resource = this.#addResource(schema, outer.uri, location);
    }
    for (const keyword of ["$anchor", "$dynamicAnchor"]) {
      const anchor = schema[keyword];
      if (typeof anchor === "string") resource.anchors.set(anchor, schema);
    }
    return resource;
  }

  #addResource(root: JsonObject, base: string, location: string): Resource {
    const id = root["$id"];
    const uri = typeof id === "string" && !id.startsWith("#") ? absolute(id.replace(/#$/, ""), base, location) : base;
    const resource: Resource = { uri, root, anchors: new Map() };
    this.#resources.set(uri, resource);
    if (this.#resources.size > mostResources)
      throw invalidSchema(location, `is one of more than ${mostResources} '$id's`);
    return resource;
  }
}

/** Direct subschemas with the path that leads to each. */
function* subschemas(schema: JsonObject): Generator<readonly [location: string, schema: JsonObject]> {
  for (const keyword of singleKeywords) {
    const value = ownMember(schema, keyword);
    if (isJsonObject(value)) yield [keyword, value];
  }
  for (const keyword of listKeywords) {
    const value = ownMember(schema, keyword);
    if (!Array.isArray(value)) continue;
    for (const [index, member] of value.entries()) if (isJsonObject(member)) yield [`${keyword}/${index}`, member];
  }
  for (const keyword of mapKeywords) {
    const value = ownMember(schema, keyword);
    if (!isJsonObject(value)) continue;
    for (const [name, member] of Object.entries(value)) {
      if (isJsonObject(member)) yield [`${keyword}/${escapePointer(name)}`, member];
    }
  }
}

/** A copy with other direct subschemas. */
export function withSubschemas(schema: JsonObject, change: (subschema: JsonObject) => JsonObject): JsonObject {
  const changed = (part: JsonValue): JsonValue => (isJsonObject(part) ? change(part) : part);
  const ofKeyword = (keyword: string, value: JsonValue): JsonValue => {
    if (Array.isArray(value)) return listKeywords.includes(keyword) ? value.map(changed) : value;
    if (!isJsonObject(value)) return value;
    if (!mapKeywords.includes(keyword)) return singleKeywords.includes(keyword) ? change(value) : value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, changed(part)]));
  };
  return Object.fromEntries(Object.entries(schema).map(([keyword, value]) => [keyword, ofKeyword(keyword, value)]));
}

/** Own members only: a schema may describe properties called `constructor` or `__proto__`. */
export function ownMember(value: JsonValue | undefined, key: string): JsonValue | undefined {
  if (Array.isArray(value)) return /^(?:0|[1-9]\d{0,8})$/.test(key) ? value[Number(key)] : undefined;
  return isJsonObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

/** One name as a part of a JSON pointer. */
export function escapePointer(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** A fault of the tool's definition, told by the place in its schema. */
export function invalidSchema(location: string, problem: string): GatewayError {
  const place = location === "" ? "The schema" : `'${shorten(location)}' of the schema`;
  return new GatewayError("invalid_definition", `${place} ${problem}.`, { param: "parameters" });
}

export function shorten(text: string, most = 80): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

function anchored(resource: Resource, name: string): ResolvedSchema | undefined {
  const schema = resource.anchors.get(name);
  return schema === undefined ? undefined : { schema, resource };
}

function absolute(address: string, base: string, location: string): string {
  const url = address.length > longestAddress ? null : URL.parse(address, base);
  if (url === null) {
    throw invalidSchema(
      location,
      `has the address '${shorten(address)}', which is not a URI of ${longestAddress} characters or less`,
    );
  }
  url.hash = "";
  if (url.href.length > longestAddress) {
    throw invalidSchema(location, `has an address of more than ${longestAddress} characters with those around it`);
  }
  return url.href;
}

/** Before anything goes through it by calls within calls. */
function requireMeasure(root: JsonObject): void {
  let count = 0;
  const waiting: { readonly value: JsonObject | JsonValue[]; readonly depth: number }[] = [{ value: root, depth: 0 }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, depth } = next;
    if (depth > deepestValue) throw invalidSchema("", `is nested more than ${deepestValue} levels deep`);
    const parts: readonly JsonValue[] = Array.isArray(value) ? value : Object.values(value);
    count += parts.length;
    if (count > mostValues) throw invalidSchema("", `holds more than ${mostValues} values`);
    for (const part of parts) {
      if (typeof part === "object" && part !== null) waiting.push({ value: part, depth: depth + 1 });
    }
  }
}

function decodeFragment(fragment: string, location: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw invalidSchema(location, `refers to '#${shorten(fragment)}', which has a bad percent-encoding`);
  }
}
