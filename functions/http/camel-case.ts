/** Bodies whose fields are known by two spellings: ours, and the one of clients written in Java (KB-1). */
import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isJsonObject } from "@toolyard/core/json";
import * as z from "zod";

/**
 * The value with every field that the schema knows under the schema's name; names in maps are nobody's fields.
 * @throws GatewayError `invalid_request` naming both spellings where they say different things
 */
export function fromCamelCase(schema: z.ZodType, value: unknown): unknown {
  const inner = withoutWrappers(schema);
  if (inner instanceof z.ZodArray && Array.isArray(value)) {
    return value.map((item) => fromCamelCase(inner.element as z.ZodType, item));
  }
  if (!(inner instanceof z.ZodObject) || !isJsonObject(value)) return value;
  const fields: Record<string, unknown> = { ...value };
  for (const [name, field] of Object.entries<z.ZodType>(inner.shape)) {
    const other = camelCase(name);
    if (other !== name && Object.hasOwn(fields, other)) takeOther(fields, name, other);
    if (Object.hasOwn(fields, name)) fields[name] = fromCamelCase(field, fields[name]);
  }
  return fields;
}

function takeOther(fields: Record<string, unknown>, name: string, other: string): void {
  if (Object.hasOwn(fields, name) && !isDeepStrictEqual(fields[name], fields[other])) {
    throw new GatewayError(
      "invalid_request",
      `'${name}' and '${other}' are the same field and were given different values; send one of them.`,
      { param: name },
    );
  }
  fields[name] = fields[other];
  delete fields[other];
}

function withoutWrappers(schema: z.ZodType): z.ZodType {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault
  ) {
    return withoutWrappers(schema.unwrap() as z.ZodType);
  }
  return schema;
}

function camelCase(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_match, letter: string) => letter.toUpperCase());
}
