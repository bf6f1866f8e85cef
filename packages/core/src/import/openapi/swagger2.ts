/**
 * What Swagger 2.0 writes otherwise: the parts of a parameter's schema stand beside its name, and the
 * body is a parameter, or several (`formData`).
 */
import type { ParameterStyle } from "../../blind/definition.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
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

const form = "application/x-www-form-urlencoded";
const multipart = "multipart/form-data";

export function readSwaggerParameters(
  document: ApiDocument,
  { operation, declared, notes }: ReadContext,
): ReadParameters {
  const parameters: ApiParameter[] = [];
  const fields: Located[] = [];
  let whole: Located | undefined;
  for (const located of declared) {
    const place = textMember(located.value, "in");
    if (place === "body") whole = located;
    else if (place === "formData") fields.push(located);
    else if (place === "path" || place === "query" || place === "header") {
      parameters.push(readParameter(located, place, notes));
    } else {
      notes.add(
        `Parameter '${textMember(located.value, "name") ?? ""}' has no place that is known ('in'); it is left out.`,
      );
    }
  }
  const consumes = mediaTypes(operation, "consumes") ?? mediaTypes(document.root, "consumes");
  if (whole !== undefined) return { parameters, ...readWholeBody(whole, consumes ?? ["application/json"]) };
  return { parameters, ...readForm(fields, { consumes: consumes ?? [], notes }) };
}

function mediaTypes(owner: JsonValue, key: string): readonly string[] | undefined {
  const list = ownMember(owner, key);
  const types = Array.isArray(list) ? list.filter((type) => typeof type === "string") : [];
  return types.length === 0 ? undefined : types;
}

function readWholeBody({ value, base }: Located, consumes: readonly string[]): Omit<ReadParameters, "parameters"> {
  const schema = ownMember(value, "schema");
  const located = schema === undefined ? undefined : { value: schema, base };
  return {
    bodies: consumes.map((mediaType) => ({ mediaType, schema: located, fields: new Map<string, FieldEncoding>() })),
    bodyRequired: ownMember(value, "required") === true,
    bodyDescription: textMember(value, "description"),
  };
}

interface FormOptions {
  readonly consumes: readonly string[];
  readonly notes: Notes;
}

function readForm(fields: readonly Located[], { consumes, notes }: FormOptions): Omit<ReadParameters, "parameters"> {
  if (fields.length === 0) return { bodies: [], bodyRequired: false };
  const properties: [string, JsonValue][] = [];
  const required: string[] = [];
  const encodings = new Map<string, FieldEncoding>();
  let hasFile = false;
  for (const { value } of fields) {
    const name = textMember(value, "name") ?? "";
    properties.push([name, { ...schemaParts(value), ...describedBy(value) }]);
    if (ownMember(value, "required") === true) required.push(name);
    hasFile ||= ownMember(value, "type") === "file";
    const format = collectionFormat(value, notes);
    if (ownMember(value, "type") === "array") encodings.set(name, { style: format });
  }
  const schema = { type: "object", properties: Object.fromEntries(properties), required };
  const mediaType = hasFile || (consumes.includes(multipart) && !consumes.includes(form)) ? multipart : form;
  // The format has no references in these parameters, so the main document is as good as any.
  const body: ApiBody = { mediaType, schema: { value: schema, base: "" }, fields: encodings };
  return { bodies: [body], bodyRequired: required.length > 0 };
}

function describedBy(value: JsonValue): JsonObject {
  const description = textMember(value, "description");
  return description === undefined ? {} : { description };
}

function readParameter({ value, base }: Located, place: Exclude<ParameterPlace, "cookie">, notes: Notes): ApiParameter {
  const { style, explode = false } = place === "query" ? collectionFormat(value, notes) : { style: "simple" as const };
  return {
    name: textMember(value, "name") ?? "",
    in: place,
    required: place === "path" || ownMember(value, "required") === true,
    description: textMember(value, "description"),
    deprecated: ownMember(value, "x-deprecated") === true,
    schema: { value: schemaParts(value), base },
    style,
    explode,
  };
}

/** Everything beside the name is the schema. */
function schemaParts(value: JsonValue): JsonObject {
  if (!isJsonObject(value)) return {};
  const others = ["name", "in", "required", "description", "collectionFormat", "allowEmptyValue"];
  return Object.fromEntries(Object.entries(value).filter(([key]) => !others.includes(key)));
}

const formats: Readonly<Record<string, ParameterStyle>> = {
  csv: { style: "form", explode: false },
  multi: { style: "form", explode: true },
  ssv: { style: "spaceDelimited", explode: false },
  pipes: { style: "pipeDelimited", explode: false },
};
const commas: ParameterStyle = { style: "form", explode: false };

function collectionFormat(value: JsonValue, notes: Notes): ParameterStyle {
  const format = textMember(value, "collectionFormat") ?? "csv";
  if (Object.hasOwn(formats, format)) return formats[format] ?? commas;
  notes.add(`Lists of '${textMember(value, "name") ?? ""}' are separated by commas: '${format}' is not supported.`);
  return commas;
}
