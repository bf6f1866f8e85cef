/**
 * Schemes as a picker shows them: what they are, what their URIs take, and a form made of the
 * configuration's schema, so that a new scheme needs no screen of its own.
 */
import * as z from "zod";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { dispatcherOptions, type UriOption } from "../tools/uri.ts";
import { SchemaVariants, secretKeyword, variantsKeyword } from "./config-fields.ts";
import type { ServiceRuntime } from "./scheme.ts";

export interface FormField {
  /** Path below `config`. */
  readonly name: string;
  readonly type: "text" | "number" | "boolean" | "choice" | "secret" | "url" | "list" | "object";
  readonly required: boolean;
  readonly description: string | null;
  readonly default: JsonValue;
  /** Of a choice. */
  readonly values: readonly string[];
  /** The field whose value decides what this one holds, with the fields by value. */
  readonly depends_on: string | null;
  readonly variants: Readonly<Record<string, readonly FormField[]>>;
}

export interface PickedScheme {
  readonly scheme: string;
  readonly title: string;
  readonly description: string;
  readonly icon: string;
  readonly discovers_tools: boolean;
  readonly options: readonly PickedOption[];
  readonly fields: readonly FormField[];
  /** JSON Schema of the configuration as it is sent. */
  readonly config_schema: JsonObject;
}

export interface PickedOption {
  readonly name: string;
  readonly type: UriOption["type"];
  readonly description: string;
  readonly min: number | null;
  readonly max: number | null;
  readonly values: readonly string[];
}

const picked = new WeakMap<ServiceRuntime, PickedScheme>();

export function toPicked(runtime: ServiceRuntime): PickedScheme {
  const known = picked.get(runtime);
  if (known !== undefined) return known;
  const { scheme, title, description, icon, config, options } = runtime.scheme;
  const schema = toPlain(z.toJSONSchema(config, { io: "input", unrepresentable: "any", override: convertVariants }));
  const made: PickedScheme = {
    scheme,
    title,
    description,
    icon,
    discovers_tools: runtime.discovers,
    options: Object.entries({ ...dispatcherOptions, ...options }).map(([name, option]) => toOption(name, option)),
    fields: fieldsOf(schema),
    config_schema: schema,
  };
  picked.set(runtime, made);
  return made;
}

function convertVariants({ jsonSchema }: { readonly jsonSchema: Record<string, unknown> }): void {
  const variants = jsonSchema[variantsKeyword];
  if (variants instanceof SchemaVariants) jsonSchema[variantsKeyword] = variants.convert();
}

function toPlain(schema: unknown): JsonObject {
  const plain: unknown = JSON.parse(JSON.stringify(schema));
  return isJsonObject(plain) ? plain : {};
}

function toOption(name: string, option: UriOption): PickedOption {
  return {
    name,
    type: option.type,
    description: option.description,
    min: option.type === "integer" ? option.min : null,
    max: option.type === "integer" ? (option.max ?? null) : null,
    values: option.type === "choice" ? option.values : [],
  };
}

function fieldsOf(schema: JsonObject): readonly FormField[] {
  const { properties, required } = schema;
  if (!isJsonObject(properties)) return [];
  const needed = new Set(Array.isArray(required) ? required : []);
  return Object.entries(properties).map(([name, field]) => {
    const described = isJsonObject(field) ? field : {};
    const variants = described[variantsKeyword];
    const hasDefault = described["default"] !== undefined;
    return {
      name,
      type: typeOf(described),
      required: needed.has(name) && !hasDefault,
      description: textOf(described["description"]),
      default: described["default"] ?? null,
      values: Array.isArray(described["enum"]) ? described["enum"].map(String) : [],
      depends_on: textOf(described["x-depends-on"]),
      variants: isJsonObject(variants)
        ? Object.fromEntries(
            Object.entries(variants).map(([value, inner]) => [value, isJsonObject(inner) ? fieldsOf(inner) : []]),
          )
        : {},
    };
  });
}

function typeOf(field: JsonObject): FormField["type"] {
  if (field[secretKeyword] === true) return "secret";
  if (Array.isArray(field["enum"])) return "choice";
  if (field["format"] === "uri") return "url";
  const type = textOf(field["type"]);
  return type === null ? "object" : (plainTypes.get(type) ?? "object");
}

const plainTypes: ReadonlyMap<string, FormField["type"]> = new Map([
  ["integer", "number"],
  ["number", "number"],
  ["boolean", "boolean"],
  ["array", "list"],
  ["string", "text"],
]);

function textOf(value: JsonValue | undefined): string | null {
  return typeof value === "string" ? value : null;
}
