/** Parameters and bodies as OpenAPI 3.0 and 3.1 write them. */
import type { ParameterStyle } from "../../blind/definition.ts";
import { isJsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import type { Notes } from "../notes.ts";
import type { ApiDocument, Located } from "./document.ts";
import {
  textMember,
  type ApiBody,
  type ApiParameter,
  type FieldEncoding,
  type ParameterPlace,
  type ReadContext,
  type ReadParameters,
} from "./operation.ts";

export function readParameters(
  document: ApiDocument,
  { operation, declared, base, notes }: ReadContext,
): ReadParameters {
  const parameters = declared.flatMap((located) => readParameter(located, notes));
  const given = ownMember(operation, "requestBody");
  const body = given === undefined ? undefined : document.follow({ value: given, base });
  if (given !== undefined && !isJsonObject(body?.value))
    notes.add("The body's reference leads nowhere that is known; it is left out.");
  const content = ownMember(body?.value, "content");
  const bodies =
    body === undefined || !isJsonObject(content)
      ? []
      : Object.entries(content).map((entry) => readBody(entry, body.base));
  return {
    parameters,
    bodies,
    bodyRequired: ownMember(body?.value, "required") === true,
    bodyDescription: textMember(body?.value, "description"),
  };
}

function isPlace(text: string | undefined): text is ParameterPlace {
  return text === "path" || text === "query" || text === "header" || text === "cookie";
}

function readParameter({ value, base }: Located, notes: Notes): readonly ApiParameter[] {
  const name = textMember(value, "name") ?? "";
  const place = textMember(value, "in");
  if (!isPlace(place)) {
    notes.add(`Parameter '${name}' has no place that is known ('in'); it is left out.`);
    return [];
  }
  const content = ownMember(value, "content");
  const [media] = isJsonObject(content) ? Object.values(content) : [];
  const isQuery = place === "query" || place === "cookie";
  const style = isJsonObject(media) ? "json" : styleOf(textMember(value, "style"), isQuery ? "form" : "simple");
  const explode = ownMember(value, "explode");
  return [
    {
      name,
      in: place,
      required: place === "path" || ownMember(value, "required") === true,
      description: textMember(value, "description"),
      deprecated: ownMember(value, "deprecated") === true,
      schema: { value: ownMember(isJsonObject(media) ? media : value, "schema") ?? {}, base },
      style,
      explode: typeof explode === "boolean" ? explode : style === "form",
    },
  ];
}

const styles: ReadonlySet<string> = new Set([
  "form",
  "spaceDelimited",
  "pipeDelimited",
  "deepObject",
  "simple",
  "label",
  "matrix",
]);

function styleOf(name: string | undefined, fallback: ParameterStyle["style"]): ParameterStyle["style"] {
  return name !== undefined && styles.has(name) ? (name as ParameterStyle["style"]) : fallback;
}

function readBody([mediaType, media]: readonly [string, JsonValue], base: string): ApiBody {
  const schema = ownMember(media, "schema");
  const encoding = ownMember(media, "encoding");
  const fields = new Map<string, FieldEncoding>();
  for (const [name, field] of Object.entries(isJsonObject(encoding) ? encoding : {}))
    fields.set(name, readEncoding(field));
  return { mediaType, schema: schema === undefined ? undefined : { value: schema, base }, fields };
}

function readEncoding(field: JsonValue): FieldEncoding {
  const contentType = textMember(field, "contentType");
  const style = textMember(field, "style");
  const explode = ownMember(field, "explode");
  const isStyled = style !== undefined || typeof explode === "boolean";
  const kind = styleOf(style, "form");
  return {
    ...(contentType === undefined ? {} : { contentType }),
    ...(isStyled
      ? {
          style: {
            style: kind,
            ...(typeof explode === "boolean" ? { explode } : {}),
            ...(kind === "deepObject" ? { nested: true } : {}),
          },
        }
      : {}),
  };
}
