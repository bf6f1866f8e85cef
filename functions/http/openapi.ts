/**
 * The OpenAPI 3.1 document, made from the declarations of the routes and the validators they use, so
 * that it cannot say anything else than what the code does (design "Public contract").
 */
import { resolveDescription } from "@toolyard/core/described-by";
import type { JsonObject, JsonValue } from "@toolyard/core/json";
import { isJsonObject } from "@toolyard/core/json";
import * as z from "zod";
import type { ResponseSpec, RouteModule } from "./define-route.ts";
import { idempotencyKeyPattern } from "./idempotency-key.ts";
import { ifMatchPattern } from "./if-match.ts";
import { toPortablePattern } from "./portable-pattern.ts";
import { requestExamples } from "./request-examples.ts";
import { tags, type Tag } from "./tags.ts";

export interface OpenApiInfo {
  readonly version: string;
  /** Base of all paths. */
  readonly url: string;
}

export interface OpenApiDocument {
  readonly openapi: "3.1.0";
  readonly info: {
    readonly title: string;
    readonly version: string;
    readonly description: string;
    readonly license: { readonly name: string; readonly identifier: string };
  };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly (Pick<Tag, "name"> & Partial<Tag>)[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: JsonObject;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Content };
  readonly responses: Readonly<Record<string, ResponseObject>>;
}

export interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required: boolean;
  readonly description?: string;
  readonly schema: JsonObject;
}

export type Content = Readonly<Record<string, { readonly schema: JsonObject; readonly example?: unknown }>>;

export interface ResponseObject {
  readonly description?: string;
  readonly content?: Content;
  readonly $ref?: string;
}

const description =
  "Gives any language model any tool, by configuration alone. Send `Authorization: Bearer <key>`; every answer carries " +
  "`x-request-id`. Lists page with `limit`, `after` and `order`. `Idempotency-Key` makes chats, tool calls and replays safe to repeat for 24 hours. " +
  "The operator's key acts on the tenant named by `x-toolyard-tenant`.";

const errorSchema = z
  .object({
    error: z.looseObject({
      message: z.string(),
      type: z.string(),
      param: z.string().nullable(),
      code: z.string(),
      tool_name: z.string().optional(),
      request_id: z.string().optional(),
      retryable: z.boolean().optional(),
      retry_after_ms: z.number().int().optional(),
    }),
    partial: z
      .looseObject({})
      .optional()
      .meta({ description: "What a chat had answered and done before it ended, in the form of a whole answer." }),
  })
  .meta({ id: "ErrorBody", description: "The one error body." });

export function toOpenApi(routes: Readonly<Record<string, RouteModule>>, info: OpenApiInfo): OpenApiDocument {
  const schemas = new SchemaCollector();
  const paths: Record<string, Record<string, Operation>> = {};
  for (const [operationId, route] of Object.entries(routes)) {
    const path = route.path.replaceAll("+}", "}");
    paths[path] = { ...paths[path], [route.method]: toOperation(operationId, route, schemas) };
  }
  const error: JsonObject = { "application/json": { schema: schemas.convert(errorSchema, "output", "error") } };
  return {
    openapi: "3.1.0",
    info: {
      title: "Toolyard",
      version: info.version,
      description,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: info.url }],
    tags: tagsOf(routes),
    paths,
    components: {
      schemas: schemas.all(),
      responses: { Error: { description: "The request was not carried out; `code` says why.", content: error } },
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          description: "An API key, a JWT of a trusted issuer, or the operator's key.",
        },
        apiKey: { type: "apiKey", in: "header", name: "x-api-key" },
      },
    },
  };
}

/** In the order of the table; a tag that is not in it comes last. */
function tagsOf(routes: Readonly<Record<string, RouteModule>>): OpenApiDocument["tags"] {
  const used = new Set(Object.values(routes).flatMap((route) => route.tags));
  const known = tags.filter(({ name }) => used.delete(name));
  return [...known, ...[...used].map((name) => ({ name }))];
}

function toOperation(operationId: string, route: RouteModule, schemas: SchemaCollector): Operation {
  const { request } = route;
  const parameters = toParameters(operationId, route, schemas);
  const body = toRequestBody(operationId, request, schemas);
  const responses: Record<string, ResponseObject> = {};
  for (const [status, response] of Object.entries(route.responses)) {
    responses[status] = toResponse(operationId, response, schemas);
  }
  return {
    operationId,
    summary: route.summary,
    description: [route.description, accessNote(route)].filter((part) => part !== undefined).join("\n\n"),
    tags: route.tags,
    security: route.admission === "none" ? [] : [{ bearer: [] }, { apiKey: [] }],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: body }),
    responses: { ...responses, default: { $ref: "#/components/responses/Error" } },
  };
}

function accessNote({ scope, admission }: RouteModule): string {
  if (admission === "none") return "Open to everybody.";
  if (scope === "operator") return "Needs the operator's key.";
  return scope === null ? "Any key of the tenant." : `Needs the scope \`${scope}\`.`;
}

function toParameters(operationId: string, { path, request }: RouteModule, schemas: SchemaCollector): Parameter[] {
  const declared = toFields(operationId, request.params, schemas);
  const inPath = [...path.matchAll(/\{(\w+)\+?\}/g)].map(([, name = ""]): Parameter => {
    const field = declared.find((candidate) => candidate.name === name);
    return { ...toParameter(name, "path", field?.schema ?? { type: "string" }), required: true };
  });
  const inQuery = toFields(operationId, request.query, schemas).map(({ name, schema, required }): Parameter => ({
    ...toParameter(name, "query", schema),
    required,
  }));
  const inHeader = Object.entries(request.headers ?? {}).map(([name, text]): Parameter => ({
    ...toParameter(name, "header", { type: "string", ...headerForms[name], description: text }),
    required: false,
  }));
  return [...inPath, ...inQuery, ...inHeader];
}

function toParameter(name: string, place: Parameter["in"], schema: JsonObject): Omit<Parameter, "required"> {
  const { description: text, ...rest } = schema;
  return { name, in: place, ...(typeof text === "string" ? { description: text } : {}), schema: rest };
}

/** Of headers that several routes read in one way. */
const headerForms: Readonly<Record<string, JsonObject>> = {
  "idempotency-key": { pattern: idempotencyKeyPattern.source },
  "if-match": { pattern: ifMatchPattern.source },
};

interface Field {
  readonly name: string;
  readonly schema: JsonObject;
  readonly required: boolean;
}

function toFields(operationId: string, schema: z.ZodType | undefined, schemas: SchemaCollector): Field[] {
  if (schema === undefined) return [];
  const { properties, required } = schemas.convert(schema, "input", operationId);
  const names = Array.isArray(required) ? required : [];
  return Object.entries(isJsonObject(properties) ? properties : {}).flatMap(([name, field]) =>
    isJsonObject(field) ? [{ name, schema: field, required: names.includes(name) }] : [],
  );
}

function toRequestBody(
  operationId: string,
  request: RouteModule["request"],
  schemas: SchemaCollector,
): Operation["requestBody"] {
  if (request.stream !== undefined) {
    const { mediaTypes, description: text, json, optional } = request.stream;
    const content = mediaTypes.map((type) => {
      const schema = json !== undefined && isJson(type) ? schemas.convert(json, "input", operationId) : sentAs(type);
      const example = isJson(type) || type.startsWith("text/") ? exampleOf(operationId) : {};
      return [type, { schema: { ...schema, description: text }, ...example }] as const;
    });
    return { required: optional !== true, content: Object.fromEntries(content) };
  }
  if (request.body === undefined) return undefined;
  const required = request.body instanceof z.ZodUnknown || !request.body.safeParse(undefined).success;
  const schema = schemas.convert(request.body, "input", operationId);
  return { required, content: { "application/json": { schema, ...exampleOf(operationId) } } };
}

function exampleOf(operationId: string): { readonly example?: unknown } {
  return Object.hasOwn(requestExamples, operationId) ? { example: requestExamples[operationId] } : {};
}

function isLines(mediaType: string): boolean {
  return mediaType.endsWith("ndjson");
}

/** A body of many is none of them: a client that took it for one would parse the whole of it as one. */
function linesOf(schema: JsonObject, mediaType: string): JsonObject {
  return { type: "string", contentMediaType: mediaType, contentSchema: { type: "array", items: schema } };
}

function isJson(mediaType: string): boolean {
  return mediaType === "application/json";
}

/** Of a request: of whatever type, it is bytes. */
function sentAs(mediaType: string): JsonObject {
  return mediaType === "*/*" ? schemaOf("application/octet-stream") : schemaOf(mediaType);
}

/** Of a body that no validator describes. */
function schemaOf(mediaType: string): JsonObject {
  if (isJson(mediaType) || mediaType === "*/*") return {};
  if (mediaType.startsWith("text/") || isLines(mediaType)) return { type: "string" };
  if (mediaType.includes("form")) return { type: "object", additionalProperties: { type: "string" } };
  return { type: "string", format: "binary" };
}

function toResponse(operationId: string, response: ResponseSpec, schemas: SchemaCollector): ResponseObject {
  const content: Record<string, { schema: JsonObject }> = {};
  const add = (type: string, validator: z.ZodType): void => {
    const schema = schemas.convert(validator, "output", operationId);
    content[type] = { schema: isLines(type) ? linesOf(schema, type) : schema };
  };
  const { schema, mediaType = schema === undefined ? [] : "application/json" } = response;
  for (const type of typeof mediaType === "string" ? [mediaType] : mediaType) {
    if (schema === undefined) content[type] = { schema: schemaOf(type) };
    else add(type, schema);
  }
  for (const [type, other] of Object.entries(response.content ?? {})) add(type, other);
  return { description: response.description, ...(Object.keys(content).length === 0 ? {} : { content }) };
}

/** JSON Schemas of validators; those with an `id`, or that hold themselves, become components and are referred to. */
class SchemaCollector {
  readonly #schemas = new Map<string, JsonObject>();
  /** Each component as zod wrote it, to tell whether two of one name mean the same. */
  readonly #sources = new Map<string, string>();

  all(): JsonObject {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  convert(schema: z.ZodType, io: "input" | "output", operationId: string): JsonObject {
    const { $schema, $defs, ...root } = z.toJSONSchema(schema, { io, unrepresentable: "any", override: spell });
    void $schema;
    const definitions = plain($defs ?? {});
    const names = new Map<string, string>();
    for (const [name, definition] of Object.entries(definitions)) {
      if (isAnyJson(definition, `#/$defs/${name}`)) {
        names.set(name, anything);
        delete definitions[name];
        continue;
      }
      // zod numbers schemas without an `id` anew in each conversion.
      const wanted = name.startsWith("__") ? `${operationId}_${io}` : name;
      names.set(name, this.#claim(wanted, JSON.stringify(definition)));
    }
    const whole = plain(root);
    if (isAnyJson(whole, "#")) {
      const { description: text } = whole;
      return text === undefined ? {} : { description: text };
    }
    const source = JSON.stringify(whole);
    const isRecursive = source.includes('"$ref":"#"');
    if (isRecursive) names.set("#", this.#claim(`${operationId}_${io}`, source));
    for (const [name, definition] of Object.entries(isRecursive ? { ...definitions, "#": whole } : definitions)) {
      const renamed = rename(definition, names);
      this.#schemas.set(names.get(name) ?? name, io === "output" ? this.#nameWithin(renamed) : renamed);
    }
    const converted = rename(isRecursive ? { $ref: "#" } : whole, names);
    return io === "output" ? this.#name(this.#nameWithin(converted)) : converted;
  }

  /** What says by its field `object` what it is becomes a component, so that a generated client has one type for it. */
  #name(schema: JsonObject): JsonObject {
    const name = nameOf(schema);
    if (name === undefined) return schema;
    const { description: text, ...rest } = schema;
    const claimed = this.#claim(name, JSON.stringify(rest));
    this.#schemas.set(claimed, rest);
    return { $ref: componentPath + claimed, ...(text === undefined ? {} : { description: text }) };
  }

  #nameWithin(schema: JsonObject): JsonObject {
    const named = (part: JsonValue): JsonValue => {
      if (Array.isArray(part)) return part.map(named);
      return isJsonObject(part) ? this.#name(this.#nameWithin(part)) : part;
    };
    return Object.fromEntries(Object.entries(schema).map(([key, part]) => [key, named(part)]));
  }

  /** One name per meaning: what reads otherwise in requests than in answers gets a second one. */
  #claim(wanted: string, source: string): string {
    for (let number = 1; ; number += 1) {
      const name = number === 1 ? wanted : `${wanted}${number}`;
      const known = this.#sources.get(name);
      if (known === undefined) this.#sources.set(name, source);
      if (known === undefined || known === source) return name;
    }
  }
}

const componentPath = "#/components/schemas/";

/** `flow.version` is `FlowVersion`, and a page of them is a `FlowVersionList`. */
function nameOf({ type, properties }: JsonObject): string | undefined {
  if (type !== "object" || !isJsonObject(properties)) return undefined;
  const { object, data } = properties;
  const kind = isJsonObject(object) ? object["const"] : undefined;
  if (typeof kind !== "string") return undefined;
  if (kind !== "list") {
    return kind.replaceAll(/(?:^|[._])(\w)/g, (_whole, letter: string) => letter.toUpperCase());
  }
  const items = isJsonObject(data) ? data["items"] : undefined;
  const item = isJsonObject(items) ? items["$ref"] : undefined;
  return typeof item === "string" ? `${item.replace(componentPath, "")}List` : undefined;
}

/** In place of a component's name: whatever is written in JSON is allowed, which a schema without keywords says. */
const anything = "";

/** Whether this is `z.json()`, which holds itself: a type that generators of clients write without end, and that says nothing. */
function isAnyJson(schema: JsonValue, reference: string): boolean {
  if (!isJsonObject(schema)) return false;
  const { anyOf, description: _text, ...others } = schema;
  const itself = { $ref: reference };
  const kinds = [
    { type: "string" },
    { type: "number" },
    { type: "boolean" },
    { type: "null" },
    { type: "array", items: itself },
    { type: "object", additionalProperties: itself },
  ];
  return Object.keys(others).length === 0 && JSON.stringify(anyOf) === JSON.stringify(kinds);
}

/** For `z.toJSONSchema`: the same in words that more generators of clients know. */
function spell(converted: { readonly jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  resolveDescription(converted, spell);
  const { jsonSchema: schema } = converted;
  // Every name of a property is a string.
  if (JSON.stringify(schema.propertyNames) === '{"type":"string"}') delete schema.propertyNames;
  if (schema.pattern !== undefined) {
    if (isTime(schema.format)) delete schema.pattern;
    else schema.pattern = toPortablePattern(schema.pattern);
  }
  // Its fields say their own, and generators write one of an object down as no language has it.
  if (isJsonObject(schema.default)) delete schema.default;
  const { prefixItems, items } = schema;
  if (prefixItems === undefined || items !== false) return;
  const [first] = prefixItems;
  if (first === undefined || prefixItems.some((item) => JSON.stringify(item) !== JSON.stringify(first))) return;
  delete schema.prefixItems;
  Object.assign(schema, { items: first, minItems: prefixItems.length, maxItems: prefixItems.length });
}

/** The format says it already, and generators whose type for it is no string cannot match one. */
function isTime(format: string | undefined): boolean {
  return format === "date-time" || format === "date";
}

/** zod's result as plain JSON. */
function plain(value: object): JsonObject {
  const copy: unknown = JSON.parse(JSON.stringify(value));
  return isJsonObject(copy) ? copy : {};
}

function rename(value: JsonValue, names: ReadonlyMap<string, string>): JsonObject {
  const renamed = renameIn(value, names);
  return isJsonObject(renamed) ? renamed : {};
}

function renameIn(value: JsonValue, names: ReadonlyMap<string, string>): JsonValue {
  if (Array.isArray(value)) return value.map((item) => renameIn(item, names));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, part]) => {
      const name = key === "$ref" && typeof part === "string" ? names.get(part.replace("#/$defs/", "")) : undefined;
      if (name === anything) return [];
      return [[key, name === undefined ? renameIn(part, names) : componentPath + name]];
    }),
  );
}
