/**
 * Building blocks of service configurations. A secret stands in a configuration only as a reference,
 * `{"credential": "NAME"}`; a literal given in a secret's own field becomes a credential on the way in
 * (API-3), and one given anywhere else is refused, naming the field.
 */
import * as z from "zod";
import { isHeaderName, isHeaderValue, isTransportHeader } from "../blind/header-rules.ts";
import { credentialNameSchema, executionFields } from "../blind/definition.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

export interface SecretReference {
  /** Name of a credential of the tenant. */
  readonly credential: string;
}

/** A secret as it was sent, until it is stored; the value shows in no text that is made of it. */
class SecretLiteral implements SecretReference {
  readonly credential = "";
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  get value(): string {
    return this.#value;
  }
}

const referenceSchema = z.strictObject({ credential: credentialNameSchema });

/** JSON Schema keyword by which pickers know a secret's field. */
export const secretKeyword = "x-secret";

/** JSON Schema keyword for what a field holds by the value of another, which `x-depends-on` names. */
export const variantsKeyword = "x-variants";

/** Schemas by value; converted when a picker asks, since at start it would cost every function. */
export class SchemaVariants {
  readonly #schemas: Readonly<Record<string, z.ZodType>>;

  constructor(schemas: Readonly<Record<string, z.ZodType>>) {
    this.#schemas = schemas;
  }

  convert(): Record<string, object> {
    return Object.fromEntries(
      Object.entries(this.#schemas).map(([value, schema]) => [
        value,
        z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }),
      ]),
    );
  }
}

/** A field that holds a secret: a reference, or a literal that becomes one. */
export function secretField(description: string): z.ZodType<SecretReference, SecretReference | string> {
  const literal = z
    .string()
    .min(1, "must not be empty")
    .max(65_536, "must have 65,536 characters at most")
    .transform((value): SecretReference => new SecretLiteral(value));
  return z.union([referenceSchema, literal]).meta({ description, [secretKeyword]: true });
}

/** An http or https address without user name and password; a ws or wss one where sockets are spoken as well. */
export function httpUrlField(description: string, { sockets = false } = {}): z.ZodString {
  return z
    .string()
    .min(1)
    .max(2_048)
    .superRefine((text, check) => {
      const problem = urlProblem(text, sockets);
      if (problem !== undefined) check.addIssue({ code: "custom", message: problem });
    })
    .meta({ description, format: "uri" });
}

function urlProblem(text: string, sockets: boolean): string | undefined {
  const url = URL.parse(text.replaceAll(/[{}]/g, "x"));
  if (url === null || !(sockets ? /^(?:https?|wss?):$/ : /^https?:$/).test(url.protocol)) {
    return sockets ? "must be an http, https, ws or wss URL" : "must be an http or https URL";
  }
  if (url.username !== "" || url.password !== "") return `must not hold a user name or password; ${storeIt}`;
  return url.hash === "" ? undefined : "must not have a '#' part";
}

export const storeIt =
  'store it with PUT /v1/credentials/{name} and refer to it as {"credential": "{name}"} where the configuration takes a secret';

/** Fixed headers of every request; never secrets. */
export function headersField(): z.ZodType<Record<string, string>, Record<string, string>> {
  return z
    .record(z.string().max(256), z.string().max(8_192))
    .superRefine((headers, check) => {
      const seen = new Set<string>();
      for (const [name, value] of Object.entries(headers)) {
        const problem = headerProblem(name, value, seen);
        if (problem !== undefined) check.addIssue({ code: "custom", message: problem, path: [name] });
        seen.add(name.toLowerCase());
      }
    })
    .meta({ description: "Headers of every request. Never secrets." });
}

function headerProblem(name: string, value: string, seen: ReadonlySet<string>): string | undefined {
  if (!isHeaderName(name)) return "is not a header name";
  if (seen.has(name.toLowerCase())) return "is given twice";
  if (name.toLowerCase() === "authorization") return `is a secret; ${storeIt}`;
  if (isTransportHeader(name)) return "is a header that only the gateway sets";
  return isHeaderValue(value) ? undefined : "may hold visible ASCII characters, spaces and tabs only";
}

/** Fixed query parameters of every request; never secrets. */
export function queryField(): z.ZodType<Record<string, string>, Record<string, string>> {
  return z
    .record(z.string().min(1).max(256), z.string().max(8_192))
    .meta({ description: "Query parameters of every request. Never secrets." });
}

type TimeLimit = typeof executionFields.shape.timeout_ms;
type Attempts = typeof executionFields.shape.max_attempts;

/** Time limit and number of sends of a whole service; each scheme says when they count and what is sent again. */
export function policyFields({
  timeout = "For one attempt, where the tool says nothing.",
  attempts = "Sends in all, where the tool says nothing.",
}: {
  readonly timeout?: string;
  readonly attempts?: string;
} = {}): { readonly timeout_ms: TimeLimit; readonly max_attempts: Attempts } {
  const { timeout_ms: limit, max_attempts: sends } = executionFields.shape;
  return { timeout_ms: limit.meta({ description: timeout }), max_attempts: sends.meta({ description: attempts }) };
}

/** For services that may be spoken to in clear. @param what is read by others then: `mails` */
export function unencryptedField(what: string): z.ZodOptional<z.ZodBoolean> {
  return z
    .boolean()
    .optional()
    .meta({ description: `Has to be true for \`security: none\`: ${what} and password can be read on their way.` });
}

export interface AccountFields {
  readonly security: string;
  readonly allow_unencrypted?: boolean | undefined;
  readonly tls?: unknown;
  readonly username?: string | undefined;
  readonly password?: SecretReference | undefined;
}

/**
 * What is wrong with how an account is reached and logged in to, by field.
 * @param what is sent in clear without encryption: `mails`
 */
export function accountFaults(
  { security, allow_unencrypted: isMeant, tls, username, password }: AccountFields,
  { what, passwordAlone = false }: { readonly what: string; readonly passwordAlone?: boolean },
): readonly { readonly field: string; readonly message: string }[] {
  const faults: { readonly field: string; readonly message: string }[] = [];
  if (security === "none" && isMeant !== true) {
    const message = `'none' sends ${what} and password in clear; say 'allow_unencrypted: true' if that is meant`;
    faults.push({ field: "security", message });
  }
  if (security === "none" && tls !== undefined)
    faults.push({ field: "tls", message: "has no use with 'security: none'" });
  if (username !== undefined && password === undefined)
    faults.push({ field: "password", message: "is missing: 'username' needs one" });
  if (username === undefined && password !== undefined && !passwordAlone)
    faults.push({ field: "username", message: "is missing: 'password' needs one" });
  return faults;
}

export interface LiftedSecret {
  /** Where it stood: `auth_config.token`. */
  readonly path: string;
  readonly value: string;
  /** Under which name it is to be stored. */
  readonly credential: string;
}

export interface LiftedConfig {
  /** Plain JSON. */
  readonly config: JsonObject;
  readonly secrets: readonly LiftedSecret[];
}

/** Takes literals out of a parsed configuration; what is left refers to them by the names given. */
export function liftSecrets(parsed: unknown, nameOf: (path: string) => string): LiftedConfig {
  const secrets: LiftedSecret[] = [];
  const lift = (value: unknown, path: readonly string[]): JsonValue => {
    if (value instanceof SecretLiteral) {
      const at = path.join(".");
      const credential = nameOf(at);
      secrets.push({ path: at, value: value.value, credential });
      return { credential };
    }
    if (Array.isArray(value)) return value.map((item, index) => lift(item, [...path, String(index)]));
    if (!isJsonObject(value)) return value as JsonValue;
    return liftObject(value, path);
  };
  const liftObject = (value: object, path: readonly string[]): JsonObject =>
    Object.fromEntries(
      Object.entries(value).flatMap(([key, part]) => (part === undefined ? [] : [[key, lift(part, [...path, key])]])),
    );
  return { config: isJsonObject(parsed) ? liftObject(parsed, []) : {}, secrets };
}

const ofServices = new WeakMap<object, readonly string[]>();

/** Names of all credentials of a stored service, whose configuration nobody changes: looked for once. */
export function credentialsOf({ config }: { readonly config: JsonObject }): readonly string[] {
  const known = ofServices.get(config);
  if (known !== undefined) return known;
  const names = credentialsIn(config);
  ofServices.set(config, names);
  return names;
}

/** Names of all credentials that a configuration refers to. */
export function credentialsIn(config: unknown): readonly string[] {
  const names = new Set<string>();
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(visit);
    else if (isJsonObject(value)) {
      const { credential } = value;
      if (typeof credential === "string" && Object.keys(value).length === 1) names.add(credential);
      else Object.values(value).forEach(visit);
    }
  };
  visit(config);
  return [...names];
}
