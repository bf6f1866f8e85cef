/**
 * Bodies whose fields have two spellings (KB-1): `top_k` is also `topK`. Whoever says both has to say the same.
 */
import { canonicalJson, isJsonObject } from "@toolyard/core/json";
import { describedBy } from "@toolyard/core/described-by";
import * as z from "zod";

type Body = z.ZodObject | z.ZodType<object>;

/** The same schema, which takes the names of `fields` in either spelling. */
export function inEitherSpelling<Schema extends Body>(
  schema: Schema,
  fields: readonly string[],
): z.ZodType<z.output<Schema>> {
  const spellings = fields.flatMap((field) => (toCamel(field) === field ? [] : [{ field, other: toCamel(field) }]));
  return z
    .unknown()
    .transform((value, context) => {
      if (!isJsonObject(value)) return value;
      const body = { ...value };
      for (const { field, other } of spellings) {
        const given = value[other];
        if (given === undefined) continue;
        const own = value[field];
        if (own !== undefined && canonicalJson(own) !== canonicalJson(given)) {
          context.addIssue({
            code: "custom",
            path: [field],
            message: `'${field}' and '${other}' say different things; send one of them`,
          });
          return z.NEVER;
        }
        delete body[other];
        body[field] = given;
      }
      return body;
    })
    .pipe(schema)
    .meta(describedBy(() => schema));
}

function toCamel(field: string): string {
  return field.replaceAll(/_([a-z0-9])/g, (_whole, letter: string) => letter.toUpperCase());
}
