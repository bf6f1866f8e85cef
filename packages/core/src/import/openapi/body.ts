/**
 * The body of an operation: which of its media types is sent, and whether its fields become arguments of
 * their own or the whole of it one argument.
 */
import { bodyFormatOf, type BodyFormat } from "../../blind/definition.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import type { Notes } from "../notes.ts";
import { importLimits } from "../limits.ts";
import { cutText, tidyStart } from "../text.ts";
import type { ImportWork } from "../work.ts";
import type { Argument } from "./arguments.ts";
import type { ApiDocument, Located } from "./document.ts";
import { withDigitsAsText } from "./long-integers.ts";
import { textMember, type ApiBody, type ApiOperation, type FieldEncoding } from "./operation.ts";
import type { SchemaConverter } from "./schema.ts";
import { isFileSchema, isObjectSchema, mayBe, typeNames } from "./schema-types.ts";

export interface ChosenBody extends ApiBody {
  /** What is sent as `content-type`. */
  readonly contentType: string;
  readonly format: BodyFormat;
}

/** Easy to write first. */
const preference: readonly BodyFormat[] = ["json", "form", "multipart", "xml", "text", "raw"];

interface BodyChoice {
  readonly document: ApiDocument;
  readonly work: ImportWork;
}

export function chooseBody(operation: ApiOperation, choice: BodyChoice): ChosenBody | undefined {
  choice.work.look(operation.bodies.length);
  const readable = operation.bodies.flatMap((body) => readMediaType(body, operation.notes));
  const ranked = readable.map((body) => ({ body, rank: rank(body, choice) })).sort((a, b) => a.rank - b.rank);
  const chosen = ranked[0]?.body;
  if (chosen !== undefined && operation.bodies.length > 1) {
    operation.notes.add(
      `The body is sent as ${chosen.contentType}; the document also allows ${others(operation.bodies, chosen)}.`,
    );
  }
  return chosen;
}

function others(bodies: readonly ApiBody[], chosen: ChosenBody): string {
  return cutText(
    bodies.flatMap(({ mediaType }) => (mediaType === chosen.mediaType ? [] : [mediaType])).join(", "),
    200,
  );
}

function rank(body: ChosenBody, choice: BodyChoice): number {
  // A form cannot carry files; where both are offered it is for them.
  if (body.format === "multipart" && hasFiles(body.schema, choice)) return 0.5;
  return preference.indexOf(body.format) + (body.contentType === "application/json" ? 0 : 0.1);
}

function hasFiles(schema: Located | undefined, { document, work }: BodyChoice): boolean {
  const followed = schema === undefined ? undefined : document.follow(schema);
  const properties = ownMember(followed?.value, "properties");
  if (!isJsonObject(properties)) return false;
  const fields = Object.values(properties);
  work.look(fields.length);
  return fields.some((each) => isFileSchema(each) || isFileSchema(ownMember(each, "items")));
}

function readMediaType(body: ApiBody, notes: Notes): readonly ChosenBody[] {
  const [essence = "", ...parameters] = body.mediaType.split(";").map((part) => part.trim());
  const charset = parameters.find((parameter) => /^charset=utf-8$/i.test(parameter));
  const contentType = withoutWildcard(essence, body) + (charset === undefined ? "" : `; ${charset}`);
  const format = bodyFormatOf(contentType);
  if (format === undefined) {
    notes.add(`The media type '${cutText(body.mediaType, 80)}' is none that can be sent.`);
    return [];
  }
  if (parameters.length > (charset === undefined ? 0 : 1))
    notes.add(`Parameters of the media type '${cutText(body.mediaType, 80)}' are not sent.`);
  return [{ ...body, contentType, format }];
}

function withoutWildcard(essence: string, body: ApiBody): string {
  if (!essence.includes("*") && essence !== "") return essence;
  if (essence === "text/*") return "text/plain";
  const isData = essence === "" || essence === "*/*" || essence === "application/*";
  return isData && !isFileSchema(body.schema?.value) ? "application/json" : "application/octet-stream";
}

export interface BodyArguments {
  readonly arguments: readonly Argument[];
  /** What a flat body says about fields that it does not name. */
  readonly additional: JsonValue | undefined;
  readonly xmlRoot?: string | undefined;
}

export interface BodyOptions {
  readonly document: ApiDocument;
  readonly converter: SchemaConverter;
  readonly operation: ApiOperation;
}

export function readBodyArguments(body: ChosenBody, { document, converter, operation }: BodyOptions): BodyArguments {
  const { notes, bodyRequired, bodyDescription } = operation;
  const read = converter.convert(body.schema ?? { value: {}, base: "" }, bodyRequired);
  const converted = body.format === "multipart" ? withFields(read, notes) : read;
  const xmlRoot = body.format === "xml" ? { xmlRoot: xmlRootOf(body.schema, document) } : {};
  const flat = body.format === "text" || body.format === "raw" ? undefined : flattened(converted, notes);
  if (flat !== undefined) {
    const required = new Set(flat.required);
    const list = Object.entries(flat.properties).map(([name, schema]): Argument => ({
      place: "body",
      wireName: name,
      ...withDigits(readField(isJsonObject(schema) ? schema : {}, body, body.fields.get(name) ?? {}), body.format),
      required: bodyRequired && required.has(name),
    }));
    return { arguments: list, additional: flat.additional, ...xmlRoot };
  }
  const whole = withDigits({ schema: wholeSchema(converted, body) }, body.format).schema;
  const described =
    bodyDescription === undefined || whole["description"] !== undefined
      ? whole
      : { ...whole, description: tidyStart(bodyDescription, importLimits.parameterDescription).text };
  const argument: Argument = {
    place: "body",
    wireName: "body",
    schema: described,
    required: bodyRequired,
    isBody: true,
  };
  return { arguments: [argument], additional: false, ...xmlRoot };
}

/** A multipart body has fields, whatever its document says of it. */
function withFields(schema: JsonObject, notes: Notes): JsonObject {
  if (isFileSchema(schema) || isFileSchema(schema["items"])) {
    notes.add("The document does not say what field of the form the file is; it is sent as 'file'.");
    return { type: "object", properties: { file: schema }, required: ["file"] };
  }
  if (isObjectSchema(schema)) return schema;
  if (mayBe(schema, "object")) return { ...schema, type: "object" };
  notes.add("The document does not name the fields of the form; 'body' takes them by name.");
  const description = textMember(schema, "description");
  return { type: "object", ...(description === undefined ? {} : { description }) };
}

interface FlatBody {
  readonly properties: JsonObject;
  readonly required: readonly JsonValue[];
  readonly additional: JsonValue | undefined;
}

/** Keywords that a list of arguments can do without or keeps elsewhere. */
const flatKeywords: ReadonlySet<string> = new Set([
  "type",
  "description",
  "properties",
  "required",
  "additionalProperties",
  "deprecated",
  "default",
]);

/** Fields of an object and nothing that ties them together; undefined where the body is more than that. */
function flattened(schema: JsonObject, notes: Notes): FlatBody | undefined {
  const properties = schema["properties"];
  if (!isObjectSchema(schema) || !isJsonObject(properties) || Object.keys(properties).length === 0) return undefined;
  for (const [keyword, value] of Object.entries(schema)) {
    if (flatKeywords.has(keyword)) continue;
    if (keyword !== "anyOf" || !isAboutNames(value)) return undefined;
    notes.add("Which fields of the body belong together ('anyOf' with 'required') is left to the back end.");
  }
  const { required, additionalProperties } = schema;
  return { properties, required: Array.isArray(required) ? required : [], additional: additionalProperties };
}

/** Alternatives that do nothing but ask for some fields or others. */
function isAboutNames(branches: JsonValue): boolean {
  return (
    Array.isArray(branches) &&
    branches.every(
      (branch) =>
        isJsonObject(branch) && Object.keys(branch).every((keyword) => keyword === "required" || keyword === "type"),
    )
  );
}

const fileHint =
  "Content of the file: base64, or a data URI, which may bring a name (data:image/png;name=a.png;base64,…).";

function readField(schema: JsonObject, body: ChosenBody, field: FieldEncoding): Field {
  if (body.format === "form") {
    const asJson = field.contentType?.includes("json") === true && mayBe(schema, "array");
    return { schema, style: field.style ?? (asJson ? { style: "json" } : undefined) };
  }
  if (body.format !== "multipart") return { schema };
  const type = concreteType(field.contentType);
  const items = schema["items"];
  if (isFilePart(schema, type)) return { schema: toFileSchema(schema, type) };
  if (isJsonObject(items) && isFilePart(items, type))
    return { schema: { ...schema, items: toFileSchema(items, type) } };
  return { schema, partType: type };
}

type Field = Pick<Argument, "schema" | "style" | "partType">;

/** With the digits of long integers taken as text, where the format writes values as text. */
function withDigits(field: Field, format: BodyFormat): Field {
  const { schema, style } = field;
  if (format === "json" || style?.style === "json") return field;
  const isText = format === "xml" || style?.nested === true;
  // Objects of forms are JSON unless a style is given.
  const isJson = style === undefined && mayBe(schema, "object");
  return { ...field, schema: withDigitsAsText(schema, isText ? Number.POSITIVE_INFINITY : isJson ? 0 : 1) };
}

/** One media type, not a list or a pattern. */
function concreteType(contentType: string | undefined): string | undefined {
  const essence = contentType?.split(";")[0]?.trim();
  return essence !== undefined && /^[\w.+-]{1,64}\/[\w.+-]{1,64}$/.test(essence) ? essence : undefined;
}

const textType = /^text\/|[/+](?:json|xml)$|^application\/(?:x-ndjson|jsonl|graphql|javascript|sql|toml|yaml|x-yaml)$/;

function isFilePart(schema: JsonObject, type: string | undefined): boolean {
  if (isFileSchema(schema)) return true;
  const types = typeNames(schema["type"]);
  if (types.length > 0 && !types.includes("string")) return false;
  const media = type ?? textMember(schema, "contentMediaType");
  return media !== undefined && !textType.test(media);
}

function toFileSchema(schema: JsonObject, type: string | undefined): JsonObject {
  const media = type ?? textMember(schema, "contentMediaType");
  const description = textMember(schema, "description");
  return {
    type: "string",
    format: "binary",
    ...(media === undefined ? {} : { contentMediaType: media }),
    description: description === undefined ? fileHint : `${description} ${fileHint}`,
  };
}

function wholeSchema(schema: JsonObject, body: ChosenBody): JsonObject {
  if (body.format !== "raw" && body.format !== "text")
    return body.format === "xml" && !isObjectSchema(schema) ? { ...schema, type: "string" } : schema;
  const isText = body.format === "text" || (textType.test(body.contentType) && !isFileSchema(schema));
  if (!isText) return toFileSchema(schema, undefined);
  const description = textMember(schema, "description");
  return isJsonObject(schema) && schema["type"] !== undefined
    ? schema
    : { type: "string", ...(description === undefined ? {} : { description }) };
}

/** As the schema names its element, or as it is called itself. */
function xmlRootOf(schema: Located | undefined, document: ApiDocument): string | undefined {
  const reference = ownMember(schema?.value, "$ref");
  const followed = schema === undefined ? undefined : document.follow(schema);
  const named = textMember(ownMember(followed?.value, "xml"), "name");
  const own = typeof reference === "string" ? reference.split("/").at(-1) : undefined;
  return [named, own].find((name) => name !== undefined && /^[A-Za-z_][A-Za-z0-9._-]{0,127}$/.test(name));
}
