/**
 * Request bodies by content type (BLIND-2). `json` keeps every value and its type; `form` repeats
 * arrays and writes objects as JSON unless a style is given; `multipart` sends parameters declared as
 * files as such; `xml` makes each key an element, each array item an element of its own; `text` is the
 * one body argument; `raw` is the text or the bytes of the one argument that is the whole body.
 */
import { randomBytes } from "node:crypto";
import { readBase64 } from "../base64.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { BodyFormat, ParameterStyle } from "./definition.ts";
import { toPlainText, writePairs } from "./parameter-styles.ts";
import { percentEncode } from "./url-template.ts";

/** Names as the back end knows them. */
export type BodyArguments = readonly (readonly [name: string, value: JsonValue])[];

export interface BodySpec {
  readonly contentType: string;
  /** The parameters' JSON Schema. */
  readonly parameters: JsonObject;
  readonly xmlRoot: string;
  /** The argument behind a name of the body, where it is called otherwise. */
  readonly argumentOf: ReadonlyMap<string, string>;
  /** By argument. */
  readonly styles: ReadonlyMap<string, ParameterStyle>;
  /** Media types of parts, by argument. */
  readonly partTypes: ReadonlyMap<string, string>;
}

export interface WrittenBody {
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

type BodyWriter = (args: BodyArguments, spec: BodySpec) => WrittenBody;

/** @throws GatewayError `invalid_arguments` naming an argument that the format cannot carry */
export const bodyWriters = {
  json: (args, { contentType }) => ({ contentType, body: JSON.stringify(Object.fromEntries(args)) }),
  form: (args, spec) => ({ contentType: spec.contentType, body: writeForm(args, spec) }),
  multipart: writeMultipart,
  xml: (args, { contentType, xmlRoot }) => ({
    contentType,
    body: `<?xml version="1.0" encoding="UTF-8"?>\n${writeElement(xmlRoot, Object.fromEntries(args), "arguments")}`,
  }),
  text: (args, { contentType }) => ({ contentType, body: writeText(args) }),
  raw: ([first], { contentType }) => {
    throw badArgument(first?.[0] ?? "arguments", `cannot be sent: a body of type ${contentType} is one argument`);
  },
} as const satisfies Record<BodyFormat, BodyWriter>;

/** A body that is one argument as a whole. */
export function writeWholeBody(
  format: BodyFormat,
  argument: readonly [name: string, value: JsonValue],
  spec: BodySpec,
): WrittenBody {
  const { contentType, xmlRoot, parameters } = spec;
  const [name, value] = argument;
  const hasFields = format === "form" || format === "multipart" || format === "xml";
  if (format === "json") return { contentType, body: JSON.stringify(value) };
  if (hasFields && isJsonObject(value)) return bodyWriters[format](Object.entries(value), spec);
  if (format === "multipart") throw badArgument(name, "must be an object: it is sent as multipart/form-data");
  if (format === "xml" && typeof value !== "string") {
    return { contentType, body: `<?xml version="1.0" encoding="UTF-8"?>\n${writeElement(xmlRoot, value, name)}` };
  }
  const fileSchema = fileSchemaOf(propertySchema(parameters, name));
  if (fileSchema !== undefined && typeof value === "string") {
    return { contentType, body: readFile(name, value, fileSchema).bytes };
  }
  return { contentType, body: toPlainText(value) };
}

function argumentFor(spec: BodySpec, name: string): string {
  return spec.argumentOf.get(name) ?? name;
}

function writeForm(args: BodyArguments, spec: BodySpec): string {
  const fields: string[] = [];
  for (const [name, value] of args) {
    const style = spec.styles.get(argumentFor(spec, name));
    if (style === undefined) {
      const text = new URLSearchParams(
        itemsOf(value).map((item): [string, string] => [name, toPlainText(item)]),
      ).toString();
      if (text !== "") fields.push(text);
    } else {
      fields.push(...writePairs(name, value, style).map(([key, encoded]) => `${percentEncode(key)}=${encoded}`));
    }
  }
  return fields.join("&");
}

/** An array field is sent once for each item; null is no value. */
function itemsOf(value: JsonValue): readonly JsonValue[] {
  return (Array.isArray(value) ? value : [value]).filter((item) => item !== null);
}

function writeText(args: BodyArguments): string {
  const [only, second] = args;
  if (second !== undefined) {
    throw badArgument(second[0], "cannot be sent: a text/plain body has room for one argument");
  }
  return only === undefined ? "" : toPlainText(only[1]);
}

// multipart/form-data (RFC 7578)

interface FilePart {
  readonly bytes: Uint8Array;
  readonly mediaType: string;
  readonly fileName: string;
}

function writeMultipart(args: BodyArguments, spec: BodySpec): WrittenBody {
  const boundary = `toolyard-${randomBytes(18).toString("hex")}`;
  const pieces: (string | Uint8Array)[] = [];
  for (const [name, value] of args) {
    const argument = argumentFor(spec, name);
    const part = {
      name,
      argument,
      schema: propertySchema(spec.parameters, argument),
      type: spec.partTypes.get(argument),
    };
    for (const item of itemsOf(value)) pieces.push(`--${boundary}\r\n`, ...writePart(part, item), "\r\n");
  }
  pieces.push(`--${boundary}--\r\n`);
  const body = Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece, "utf8") : piece)));
  return { contentType: `multipart/form-data; boundary=${boundary}`, body };
}

interface Part {
  readonly name: string;
  readonly argument: string;
  readonly schema: JsonObject;
  readonly type: string | undefined;
}

function writePart({ name, argument, schema, type }: Part, value: JsonValue): readonly (string | Uint8Array)[] {
  const disposition = `content-disposition: form-data; name="${escapeQuoted(name)}"`;
  const fileSchema = fileSchemaOf(schema);
  if (fileSchema !== undefined && typeof value === "string") {
    const file = readFile(argument, value, fileSchema);
    return [
      `${disposition}; filename="${escapeQuoted(file.fileName)}"\r\ncontent-type: ${file.mediaType}\r\n\r\n`,
      file.bytes,
    ];
  }
  const partType = type ?? (typeof value === "object" ? "application/json" : undefined);
  const typeLine = partType === undefined ? "" : `\r\ncontent-type: ${partType}`;
  return [`${disposition}${typeLine}\r\n\r\n${toPlainText(value)}`];
}

/** Quotes and line breaks would end the name early; browsers write them like this. */
function escapeQuoted(text: string): string {
  return text.toWellFormed().replaceAll('"', "%22").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
}

function propertySchema(parameters: JsonObject, name: string): JsonObject {
  const properties = parameters["properties"];
  const schema = isJsonObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
  return isJsonObject(schema) ? schema : {};
}

/** A parameter, or its array's items, declared as a file: `contentEncoding: base64`, or OpenAPI's `format: binary`. */
function fileSchemaOf(schema: JsonObject): JsonObject | undefined {
  const items = schema["items"];
  return [schema, ...(isJsonObject(items) ? [items] : [])].find(
    (one) => one["contentEncoding"] === "base64" || one["format"] === "binary",
  );
}

/** Base64, or a data URI that brings its media type and maybe a file name (`data:image/png;name=a.png;base64,…`). */
function readFile(name: string, value: string, schema: JsonObject): FilePart {
  const declared = schema["contentMediaType"];
  const dataUri = /^data:([^;,]*)((?:;[^;,]*)*?);base64,/i.exec(value);
  const bytes = readBase64(dataUri === null ? value : value.slice(dataUri[0].length));
  if (bytes === undefined) {
    throw badArgument(name, "must be the whole of a file in base64, or a base64 data URI: it is sent as a file");
  }
  const mediaType = dataUri?.[1] || (typeof declared === "string" ? declared : "");
  const fileName = /;name=([^;,]*)/i.exec(dataUri?.[2] ?? "")?.[1];
  return {
    bytes,
    mediaType: /^[\w.+-]{1,64}\/[\w.+-]{1,64}$/.test(mediaType) ? mediaType : "application/octet-stream",
    fileName: fileName === undefined ? name : decodeName(fileName),
  };
}

function decodeName(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// XML 1.0

/** No colon: a namespace prefix needs a declaration that arguments cannot bring. */
export function isElementName(name: string): boolean {
  return /^[\p{L}_][\p{L}\p{N}._-]{0,127}$/u.test(name);
}

/** @param path where the value stands in the arguments, for errors */
function writeElement(name: string, value: JsonValue, path: string): string {
  if (Array.isArray(value)) return value.map((item) => writeElement(name, item, path)).join("");
  if (value === null) return `<${name}/>`;
  if (typeof value !== "object") return `<${name}>${escapeXml(String(value), path)}</${name}>`;
  const children = Object.entries(value).map(([key, child]) => {
    if (!isElementName(key)) throw badArgument(key, "cannot be the name of an XML element");
    return writeElement(key, child, key);
  });
  return `<${name}>${children.join("")}</${name}>`;
}

function escapeXml(text: string, path: string): string {
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/.test(text)) {
    throw badArgument(path, "holds a control character, which XML cannot carry");
  }
  return text
    .toWellFormed()
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("\r", "&#13;");
}

function badArgument(name: string, problem: string): GatewayError {
  return new GatewayError("invalid_arguments", `Argument '${name}' ${problem}.`, { param: name });
}
