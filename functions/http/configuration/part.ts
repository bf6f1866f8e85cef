/** Routes as parts of another request: what documents of a configuration are read and written by. */
import type { Live, Work } from "@toolyard/core/configuration/kind";
import { toPlain } from "@toolyard/core/configuration/compare";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { Context } from "hono";
import type * as z from "zod";
import type { AppEnv } from "../app-env.ts";
import type { RequestPart, RouteModule } from "../define-route.ts";
import { toInvalidRequest } from "../errors.ts";

/** The app's route of a name. Who imported them one by one would have each function load more at its start. */
export type RouteOf<Name extends string> = (name: Name) => RouteModule;

/** Has a route do what it does for the caller of this work. @returns its answer */
export async function ask(
  { core, context }: Work,
  route: RouteModule,
  part: Omit<RequestPart, "core" | "access">,
): Promise<JsonObject> {
  const c = new Context<AppEnv>(new Request("http://localhost/"));
  const { caller, tenant, config } = context;
  const response = await route.perform(c, { core, access: { caller, tenant, config, context }, ...part });
  const answer: unknown = response.status === 204 ? {} : await response.json();
  return isJsonObject(answer) ? answer : {};
}

/** By the schema of a route's body, with its defaults. @throws GatewayError `invalid_request` */
export function parseBody(route: RouteModule, item: unknown): JsonObject {
  const { body } = route.request;
  if (body === undefined) throw new TypeError(`${route.path} takes no body`);
  return parseBy(body, item);
}

/** @throws GatewayError `invalid_request` */
export function parseBy(schema: z.ZodType, item: unknown): JsonObject {
  const parsed = schema.safeParse(item);
  if (!parsed.success) throw toInvalidRequest(parsed.error, "body");
  return objectOf(toPlain(parsed.data));
}

export function objectOf(value: JsonValue | undefined): JsonObject {
  return isJsonObject(value) ? value : {};
}

export function textIn(item: JsonValue, field: string): string {
  const value = objectOf(item)[field];
  return typeof value === "string" ? value : "";
}

/** A name of several parts; of what lacks one it is none, since half a name says what nobody wrote. */
export function joinedName(parts: readonly string[], between: string): string {
  return parts.includes("") ? "" : parts.join(between);
}

/** The same without what only stored things have. */
export function picked(value: object, fields: readonly string[]): JsonObject {
  const all = objectOf(toPlain(value));
  return Object.fromEntries(fields.flatMap((field) => (all[field] === undefined ? [] : [[field, all[field]]])));
}

export const idIn = (answer: JsonObject): string => textIn(answer, "id");

export const liveAt = (id: string, item: unknown): Live => ({ id, item: toPlain(item) });

/** Credentials that stand in a definition, or a configuration, by their names. */
export function credentialsNamedIn(value: JsonValue): readonly string[] {
  const names: string[] = [];
  const visit = (part: JsonValue, field: string): void => {
    if (Array.isArray(part)) for (const each of part) visit(each, field);
    else if (isJsonObject(part)) {
      const { credential, source } = part;
      if (typeof credential === "string") names.push(credential);
      if (field === "mapping" && typeof source === "string") names.push(source);
      for (const [key, each] of Object.entries(part)) visit(each, key);
    }
  };
  visit(value, "");
  return names;
}

/** Some at a time, in their order: each may be a trip to the database. */
export async function mapSome<In, Out>(items: readonly In[], map: (item: In) => Promise<Out>): Promise<readonly Out[]> {
  const made: Out[] = [];
  for (let at = 0; at < items.length; at += atOnce) {
    made.push(...(await Promise.all(items.slice(at, at + atOnce).map(map))));
  }
  return made;
}

const atOnce = 16;
