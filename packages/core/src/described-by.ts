/**
 * A field that is let through unchecked, and of which documents say what another schema says. The schema is
 * converted when a document is made: at start it would cost every function a part of its cold start.
 */
import * as z from "zod";

const key = "describedBy";

/** For `.meta()` of the field. */
export function describedBy(schema: () => z.ZodType): Readonly<Record<typeof key, () => object>> {
  return { [key]: () => z.toJSONSchema(schema(), { io: "input", unrepresentable: "any" }) };
}

/** For `z.toJSONSchema`: puts the description in its place; what the field says itself stays. */
export function resolveDescription({ jsonSchema }: { readonly jsonSchema: Record<string, unknown> }): void {
  const describe = jsonSchema[key];
  if (typeof describe !== "function") return;
  delete jsonSchema[key];
  // Nobody else writes under this key.
  const described = (describe as () => unknown)();
  Object.assign(jsonSchema, { ...(typeof described === "object" ? described : {}), ...jsonSchema });
}
