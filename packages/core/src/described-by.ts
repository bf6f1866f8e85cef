/**
 * A field that is let through unchecked, and of which documents say what another schema says. The schema is
 * converted when a document is made: at start it would cost every function a part of its cold start.
 */
import * as z from "zod";

const key = "describedBy";

type Override = NonNullable<NonNullable<Parameters<typeof z.toJSONSchema>[1]>["override"]>;

/** For `.meta()` of the field. */
export function describedBy(schema: () => z.ZodType): Readonly<Record<typeof key, (override: Override) => object>> {
  return { [key]: (override) => z.toJSONSchema(schema(), { io: "input", unrepresentable: "any", override }) };
}

/**
 * For `z.toJSONSchema`: puts the description in its place; what the field says itself stays.
 * @param override of the conversion that this is part of, which holds within the description, too
 */
export function resolveDescription(
  { jsonSchema }: { readonly jsonSchema: Record<string, unknown> },
  override: Override = resolveDescription,
): void {
  const describe = jsonSchema[key];
  if (typeof describe !== "function") return;
  delete jsonSchema[key];
  // Nobody else writes under this key.
  const described = (describe as (override: Override) => unknown)(override);
  Object.assign(jsonSchema, { ...(typeof described === "object" ? described : {}), ...jsonSchema });
}
