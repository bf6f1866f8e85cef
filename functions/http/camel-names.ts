/**
 * Bodies whose fields have two spellings (KB-1): `top_k` is also `topK`. Whoever says both has to say the same.
 */
import { describedBy } from "@toolyard/core/described-by";
import { canonicalJson, isJsonObject } from "@toolyard/core/json";
import * as z from "zod";

/** The same schema, which takes its fields in either spelling, at every depth; names in maps are nobody's fields. */
export function inEitherSpelling<Schema extends z.ZodType>(schema: Schema): z.ZodType<z.output<Schema>> {
  return z
    .unknown()
    .transform((value, context) =>
      spelledOut(schema, value, (path, message) => {
        context.addIssue({ code: "custom", path: [...path], message });
      }),
    )
    .pipe(schema)
    .meta(describedBy(() => schema));
}

type Refuse = (path: readonly PropertyKey[], message: string) => void;

function spelledOut(schema: z.ZodType, value: unknown, refuse: Refuse): unknown {
  const inner = withoutWrappers(schema);
  if (inner instanceof z.ZodArray && Array.isArray(value)) {
    return value.map((item, at) => spelledOut(inner.element as z.ZodType, item, below(at, refuse)));
  }
  if (!(inner instanceof z.ZodObject) || !isJsonObject(value)) return value;
  const fields: Record<string, unknown> = { ...value };
  for (const [name, field] of Object.entries<z.ZodType>(inner.shape)) {
    takeOther(fields, name, refuse);
    if (Object.hasOwn(fields, name)) fields[name] = spelledOut(field, fields[name], below(name, refuse));
  }
  return fields;
}

function below(key: PropertyKey, refuse: Refuse): Refuse {
  return (path, message) => refuse([key, ...path], message);
}

function takeOther(fields: Record<string, unknown>, name: string, refuse: Refuse): void {
  const other = toCamel(name);
  if (other === name || !Object.hasOwn(fields, other)) return;
  if (Object.hasOwn(fields, name) && !isSame(fields[name], fields[other])) {
    refuse([name], `and '${other}' say different things; send one of them`);
  }
  fields[name] = fields[other];
  delete fields[other];
}

/** Both come from JSON. */
function isSame(one: unknown, other: unknown): boolean {
  return canonicalJson(one) === canonicalJson(other);
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

function toCamel(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_whole, letter: string) => letter.toUpperCase());
}
