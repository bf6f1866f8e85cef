/**
 * Request bodies by content type (BLIND-2). `json` keeps every value and its type; `form` repeats
 * arrays and writes objects as JSON; `multipart` sends parameters declared as files as such; `xml`
 * makes each key an element, each array item an element of its own; `text` is the one body argument.
 */
import { randomBytes } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { BodyFormat } from "./definition.ts";

export type BodyArguments = readonly (readonly [name: string, value: JsonValue])[];

export interface BodySpec {
  readonly contentType: string;
  /** The parameters' JSON Schema. */
  readonly parameters: JsonObject;
  readonly xmlRoot: string;
}

export interface WrittenBody {
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

type BodyWriter = (args: BodyArguments, spec: BodySpec) => WrittenBody;

/** @throws GatewayError `invalid_arguments` naming an argument that the format cannot carry */
export const bodyWriters = {
  json: (args, { contentType }) => ({ contentType, body: JSON.stringify(Object.fromEntries(args)) }),
  form: (args, { contentType }) => ({ contentType, body: writeForm(args) }),
  multipart: writeMultipart,
  xml: (args, { contentType, xmlRoot }) => ({
    contentType,
    body: `<?xml version="1.0" encoding="UTF-8"?>\n${writeElement(xmlRoot, Object.fromEntries(args), "arguments")}`,
  }),
  text: (args, { contentType }) => ({ contentType, body: writeText(args) }),
} as const satisfies Record<BodyFormat, BodyWriter>;

/** A value as text: strings as they are, the rest as JSON. */
export function toPlainText(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function writeForm(args: BodyArguments): string {
  const fields = new URLSearchParams();
  for (const [name, value] of args) {
    for (const item of itemsOf(value)) fields.append(name, toPlainText(item));
  }
  return fields.toString();
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

function writeMultipart(args: BodyArguments, { parameters }: BodySpec): WrittenBody {
  const boundary = `toolyard-${randomBytes(18).toString("hex")}`;
  const pieces: (string | Uint8Array)[] = [];
  for (const [name, value] of args) {
    const schema = propertySchema(parameters, name);
    for (const item of itemsOf(value)) pieces.push(`--${boundary}\r\n`, ...writePart(name, item, schema), "\r\n");
  }
  pieces.push(`--${boundary}--\r\n`);
  const body = Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece, "utf8") : piece)));
  return { contentType: `multipart/form-data; boundary=${boundary}`, body };
}

function writePart(name: string, value: JsonValue, schema: JsonObject): readonly (string | Uint8Array)[] {
  const disposition = `content-disposition: form-data; name="${escapeQuoted(name)}"`;
  const fileSchema = fileSchemaOf(schema);
  if (fileSchema !== undefined && typeof value === "string") {
    const file = readFile(name, value, fileSchema);
    return [
      `${disposition}; filename="${escapeQuoted(file.fileName)}"\r\ncontent-type: ${file.mediaType}\r\n\r\n`,
      file.bytes,
    ];
  }
  const type = typeof value === "object" ? "\r\ncontent-type: application/json" : "";
  return [`${disposition}${type}\r\n\r\n${toPlainText(value)}`];
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
  const encoded = (dataUri === null ? value : value.slice(dataUri[0].length)).replace(/\s+/g, "");
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(encoded)) {
    throw badArgument(name, "must be base64 or a base64 data URI: it is sent as a file");
  }
  const mediaType = dataUri?.[1] || (typeof declared === "string" ? declared : "");
  const fileName = /;name=([^;,]*)/i.exec(dataUri?.[2] ?? "")?.[1];
  return {
    bytes: Buffer.from(encoded, "base64"),
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

/** @param path where the value stands in the arguments, for errors */
function writeElement(name: string, value: JsonValue, path: string): string {
  if (Array.isArray(value)) return value.map((item) => writeElement(name, item, path)).join("");
  if (value === null) return `<${name}/>`;
  if (typeof value !== "object") return `<${name}>${escapeXml(String(value), path)}</${name}>`;
  const children = Object.entries(value).map(([key, child]) => {
    // No colon: a namespace prefix needs a declaration that arguments cannot bring.
    if (!/^[\p{L}_][\p{L}\p{N}._-]{0,127}$/u.test(key)) throw badArgument(key, "cannot be the name of an XML element");
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
