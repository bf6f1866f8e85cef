/** What management routes have in common: parameters, times, lists and the one "not found". */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import * as z from "zod";

export const timeSchema = z.iso.datetime().meta({ description: "RFC 3339, UTC.", example: "2026-11-27T09:30:00.000Z" });

/** As clients write it: those of Python say `+00:00`. */
export const givenTimeSchema = z.iso
  .datetime({
    offset: true,
    error: ({ code, input }) => {
      if (code !== "invalid_format") return undefined;
      const hint = / \d\d:\d\d$/.test(String(input)) ? "; in a query, '+' is written %2B" : "";
      return `must be a time with 'Z' or an offset, like 2026-11-27T09:30:00Z${hint}`;
    },
  })
  .meta({ description: "RFC 3339, with 'Z' or an offset.", example: "2026-11-27T09:30:00.000Z" });

/** Any text: a malformed id is simply one that does not exist. */
export const idParams = z.strictObject({ id: z.string() });

/** Of a query: a word that has to be said. */
export const confirmed = z
  .enum(["true", "false"])
  .default("false")
  .transform((text) => text === "true");

/** Who would miss an object (services/references.ts). */
export const referencesSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(
    z.strictObject({
      kind: z.string().meta({ example: "api_key" }),
      id: z.string(),
      name: z.string().nullable(),
      field: z.string(),
      value: z.string(),
      unreadable: z.string().optional().meta({
        description: "Why `value` is not known: what cannot be read may refer to anything, and counts as a user of it.",
      }),
    }),
  ),
});

/**
 * The same answer for an object that never was and for one of another tenant.
 * @param param the part of the path that names it
 */
export function notFound(kind: string, id: string, param = "id"): GatewayError {
  return new GatewayError("not_found", `There is no ${kind} '${id}'.`, { param });
}

/** @throws GatewayError `not_found` */
export function found<T>(value: T | undefined, kind: string, id: string, param?: string): T {
  if (value === undefined) throw notFound(kind, id, param);
  return value;
}

export const idOf = (item: { readonly id: string }): string => item.id;

/** Arguments of a tool as they came: copying them would lose names like `__proto__`. */
export const argumentsField = z
  .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
  .default({})
  .meta({ type: "object", additionalProperties: true, description: "By the names of the tool's parameters." });

/** A body without fields; leaving the body out is the same. */
export const emptyBody = z.strictObject({}).default({});

export const nameField = z.string().trim().min(1).max(128).meta({ description: "For people; 1 to 128 characters." });

/** Without the fields that are undefined, as which optional fields of a body may come. */
export function withoutUndefined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  // Only what the type says may be absent is left out.
  return Object.fromEntries(Object.entries(value).filter(([, part]) => part !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
