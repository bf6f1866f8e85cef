/**
 * From `securitySchemes` to `auth_config`: which credential goes where, under names that belong to the
 * API's origin. A document is foreign input: it may say how its own API is called, but not ask for a
 * credential that was stored for another one, so the names it is given hold the origin's host.
 */
import { authSlots, mappingProblems } from "../../blind/auth-mapping.ts";
import type { AuthConfig } from "../../blind/definition.ts";
import { isHeaderName, isTransportHeader } from "../../blind/header-rules.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { ownCredentialName, type WantedCredential } from "../credentials.ts";
import type { ApiDocument } from "./document.ts";
import { requiredKeys } from "./key-parameters.ts";
import { textMember, type ApiOperation, type ApiParameter } from "./operation.ts";

/** What the caller says about credentials, which beats the document. */
export interface AuthOverrides {
  /** The scheme to use where the document offers several, or declares one without asking for it. */
  readonly scheme?: string | undefined;
  /** Names of the tenant's credentials by `scheme` or `scheme.part`. */
  readonly credentials?: Readonly<Record<string, string>> | undefined;
  /** Used for every operation; null: none. */
  readonly config?: AuthConfig | null | undefined;
}

export interface AuthProposal {
  readonly config: AuthConfig | undefined;
  /** Names of the schemes used. */
  readonly schemes: readonly string[];
  /** Other ways that the document offers, by the names of their schemes. */
  readonly alternatives: readonly (readonly string[])[];
  readonly credentials: readonly WantedCredential[];
  readonly problems: readonly string[];
  /** Made out of parameters alone, by what they are called. */
  readonly isGuess?: boolean;
}

const nothing: AuthProposal = { config: undefined, schemes: [], alternatives: [], credentials: [], problems: [] };

export interface ProposeOptions {
  readonly document: ApiDocument;
  readonly origin: string;
  readonly overrides: AuthOverrides;
}

/** By what the document declares, and by the keys that it asks for as parameters. */
export function proposeAuth(
  { security, parameters }: Pick<ApiOperation, "security" | "parameters">,
  options: ProposeOptions,
): AuthProposal {
  const { overrides } = options;
  if (overrides.config === null) return nothing;
  if (overrides.config !== undefined)
    return { ...nothing, config: overrides.config, credentials: ofConfig(overrides.config) };
  return withKeys(bySchemes(security, options), parameters, options);
}

/** @param security of the operation; undefined: that of the document */
function bySchemes(security: JsonValue | undefined, options: ProposeOptions): AuthProposal {
  const { document, overrides, origin } = options;
  const declared = security ?? ownMember(document.root, "security");
  const asked = Array.isArray(declared) ? declared.filter(isJsonObject) : undefined;
  const preferred = overrides.scheme;
  if (asked === undefined) {
    return preferred === undefined ? nothing : proposeFrom([{ [preferred]: [] }], { document, origin, overrides });
  }
  const ways = asked.filter((requirement) => Object.keys(requirement).length > 0);
  if (ways.length === 0) return nothing;
  const isPreferred = (way: JsonObject): boolean => preferred !== undefined && Object.hasOwn(way, preferred);
  return proposeFrom([...ways.filter(isPreferred), ...ways.filter((way) => !isPreferred(way))], options);
}

function withKeys(proposed: AuthProposal, parameters: readonly ApiParameter[], options: ProposeOptions): AuthProposal {
  const { config: known, credentials } = proposed;
  const taken = new Set(
    (known === undefined ? [] : authSlots(known)).map(({ location, name }) => placeKey(location, name)),
  );
  const named = options.overrides.credentials ?? {};
  const isNamed = ({ name }: ApiParameter): boolean => Object.hasOwn(named, name);
  const keys = requiredKeys(parameters, known === undefined, isNamed).filter(
    ({ in: place, name }) => !taken.has(placeKey(place, name)),
  );
  if (keys.length === 0) return proposed;
  const slots = keys.map((key) => ({ key, slot: slotFor(key, options) }));
  const config = withSlots(
    known,
    slots.map(({ slot }) => slot),
    keys.some(isBearer),
  );
  if (mappingProblems(config).length > 0) return proposed;
  const wanted = slots.map(({ key, slot }) => ({
    name: slot.source,
    scheme: null,
    holds:
      config.type === "bearer" && known === undefined
        ? "an access token"
        : `the value of ${key.in === "header" ? "header" : "query parameter"} '${key.name}'`,
  }));
  return { ...proposed, config, credentials: [...credentials, ...wanted], isGuess: known === undefined };
}

function slotFor({ name, in: place }: ApiParameter, options: ProposeOptions): Slot {
  const given = options.overrides.credentials;
  const source =
    given !== undefined && Object.hasOwn(given, name)
      ? (given[name] ?? "")
      : ownCredentialName(options.origin, name.toLowerCase());
  return { source, target: name, location: place === "header" ? "header" : "query" };
}

function withSlots(known: AuthConfig | undefined, slots: readonly Slot[], isToken: boolean): AuthConfig {
  const [first, second] = slots;
  if (known === undefined && isToken && first !== undefined && second === undefined)
    return { type: "bearer", mapping: [{ source: first.source, location: "header" }] };
  if (known === undefined) return { type: "api_key", mapping: [...slots] };
  const own = known.type === "api_key" ? slots : slots.map((slot) => ({ ...slot, type: "api_key" as const }));
  return { ...known, mapping: [...known.mapping, ...own] };
}

/** `Authorization` whose description speaks of a token; the word in front is sent with it. */
function isBearer({ in: place, name, description = "" }: ApiParameter): boolean {
  return (
    place === "header" &&
    name.toLowerCase() === "authorization" &&
    /\b(?:bearer|jwt)\b/i.test(description.slice(0, 500))
  );
}

/** The first way that can be gone. */
function proposeFrom(ways: readonly JsonObject[], options: ProposeOptions): AuthProposal {
  const problems: string[] = [];
  for (const way of ways) {
    const names = withOneToken(way, options);
    const read = names.map((name) => readScheme(name, way[name], options));
    const combined = combine(read);
    if (!("problem" in combined)) {
      const alternatives = ways.filter((other) => other !== way).map((other) => Object.keys(other));
      return { ...combined, schemes: names, alternatives, problems: [] };
    }
    problems.push(combined.problem);
  }
  return {
    ...nothing,
    alternatives: ways.map((way) => Object.keys(way)),
    problems: [`No authentication is set up: ${problems.join("; ")}.`],
  };
}

/**
 * Names of the schemes to be set up: OAuth schemes that are asked for together are flows to one and the same
 * token, as Google's documents list them, so the first that tools can go by themselves stands for all.
 */
function withOneToken(way: JsonObject, options: ProposeOptions): readonly string[] {
  const names = Object.keys(way);
  const flowsOf = names.filter((name) => textMember(findScheme(options.document, name), "type") === "oauth2");
  const preferred = flowsOf.find((name) => name === options.overrides.scheme);
  const chosen = preferred ?? flowsOf.find((name) => isWhole(readScheme(name, way[name], options))) ?? flowsOf[0];
  return names.filter((name) => name === chosen || !flowsOf.includes(name));
}

function isWhole(part: SchemePart | Unusable): boolean {
  return "kind" in part && part.kind === "whole";
}

interface Slot {
  readonly source: string;
  readonly target: string;
  readonly location: "header" | "query";
}

interface Unusable {
  readonly problem: string;
}

type SchemePart =
  | { readonly kind: "slots"; readonly slots: readonly Slot[]; readonly credentials: readonly WantedCredential[] }
  | { readonly kind: "bearer"; readonly source: string; readonly credentials: readonly WantedCredential[] }
  | { readonly kind: "whole"; readonly config: AuthConfig; readonly credentials: readonly WantedCredential[] };

function combine(parts: readonly (SchemePart | Unusable)[]): Pick<AuthProposal, "config" | "credentials"> | Unusable {
  const usable = parts.flatMap((part) => ("problem" in part ? [] : [part]));
  const unusable = parts.find((part) => "problem" in part);
  if (unusable !== undefined) return unusable;
  if (usable.length === 0) return { problem: "no scheme is named" };
  const slots = usable.flatMap((part) => (part.kind === "slots" ? part.slots : []));
  const credentials = usable.flatMap((part) => part.credentials);
  const [main, other] = usable.flatMap((part) => (part.kind === "slots" ? [] : [configOf(part)]));
  if (main !== undefined && other !== undefined)
    return { problem: `type ${main.type} cannot be combined with type ${other.type}` };
  const keys = slots.map((slot) => ({ ...slot, type: "api_key" as const }));
  const config: AuthConfig =
    main === undefined ? { type: "api_key", mapping: slots } : { ...main, mapping: [...main.mapping, ...keys] };
  // What is wrong with one alone its registration names.
  const [problem] = usable.length === 1 ? [] : mappingProblems(config);
  if (problem !== undefined)
    return { problem: `type ${config.type} cannot be combined: its ${problem.path} ${problem.message}` };
  return { config, credentials };
}

function configOf(part: Exclude<SchemePart, { kind: "slots" }>): AuthConfig {
  return part.kind === "whole"
    ? part.config
    : { type: "bearer", mapping: [{ source: part.source, location: "header" }] };
}

function readScheme(name: string, scopes: JsonValue | undefined, options: ProposeOptions): SchemePart | Unusable {
  const scheme = findScheme(options.document, name);
  if (scheme === undefined) return { problem: `the scheme '${name}' is not declared` };
  const naming = { name, ...options };
  const type = textMember(scheme, "type") ?? "unknown";
  const word = type === "http" ? (textMember(scheme, "scheme")?.toLowerCase() ?? "") : type;
  const read = Object.hasOwn(readers, word) ? readers[word] : undefined;
  return (
    read?.(scheme, scopes, naming) ?? {
      problem: `the scheme '${name}' is of type ${type === word ? type : `${type} ${word}`}, which is not supported`,
    }
  );
}

type SchemeReader = (scheme: JsonValue, scopes: JsonValue | undefined, naming: Naming) => SchemePart | Unusable;

/** By the type, for `http` by its scheme. */
const readers: Readonly<Record<string, SchemeReader>> = {
  apiKey: (scheme, _scopes, naming) => readApiKey(scheme, naming),
  basic: (_scheme, _scopes, naming) => readBasic(naming),
  bearer: (_scheme, _scopes, naming) => bearer(naming, "an access token"),
  oauth2: readOAuth,
  openIdConnect: (_scheme, _scopes, naming) => bearer(naming, "an access token of its OpenID provider"),
};

/** Headers and query parameters in which the document's schemes send keys: `header x-key`. */
export function keyPlaces(document: ApiDocument): ReadonlySet<string> {
  const places = new Set<string>();
  for (const name of Object.keys(schemesOf(document))) {
    const scheme = findScheme(document, name);
    const [place, target] = [textMember(scheme, "in"), textMember(scheme, "name")];
    if (textMember(scheme, "type") === "apiKey" && place !== undefined && target !== undefined)
      places.add(placeKey(place, target));
  }
  return places;
}

/** Names of headers have no case. */
export function placeKey(place: string, name: string): string {
  return `${place} ${place === "header" ? name.toLowerCase() : name}`;
}

export function schemesOf(document: ApiDocument): JsonObject {
  const owner = document.version === "2.0" ? document.root : ownMember(document.root, "components");
  const declared = ownMember(owner, document.version === "2.0" ? "securityDefinitions" : "securitySchemes");
  return isJsonObject(declared) ? declared : {};
}

function findScheme(document: ApiDocument, name: string): JsonValue | undefined {
  const found = ownMember(schemesOf(document), name);
  return found === undefined ? undefined : document.follow({ value: found, base: "" })?.value;
}

interface Naming extends ProposeOptions {
  /** Of the scheme. */
  readonly name: string;
}

/** The caller's own name for it, or one that holds the host of the API. */
function credentialFor({ name, origin, overrides }: Naming, part?: string): string {
  const key = part === undefined ? name : `${name}.${part}`;
  const given = overrides.credentials;
  if (given !== undefined && Object.hasOwn(given, key)) return given[key] ?? "";
  return ownCredentialName(origin, key);
}

function readApiKey(scheme: JsonValue, naming: Naming): SchemePart | Unusable {
  const target = textMember(scheme, "name");
  const place = textMember(scheme, "in");
  if (target === undefined) return { problem: `the scheme '${naming.name}' does not say where its key goes` };
  const source = credentialFor(naming);
  const wanted = (holds: string): readonly WantedCredential[] => [{ name: source, scheme: naming.name, holds }];
  if (place === "query")
    return { kind: "slots", slots: [{ source, target, location: "query" }], credentials: wanted("the API key") };
  if (place === "cookie") {
    return {
      kind: "slots",
      slots: [{ source, target: "Cookie", location: "header" }],
      credentials: wanted(`the cookie as ${target}=<value>`),
    };
  }
  if (place !== "header" || !isHeaderName(target) || isTransportHeader(target)) {
    return { problem: `the key of scheme '${naming.name}' goes into a place that cannot be set` };
  }
  return { kind: "slots", slots: [{ source, target, location: "header" }], credentials: wanted("the API key") };
}

function readBasic(naming: Naming): SchemePart {
  const [username, password] = [credentialFor(naming, "username"), credentialFor(naming, "password")];
  return {
    kind: "whole",
    config: {
      type: "basic",
      mapping: [
        { source: username, target: "username", location: "header" },
        { source: password, target: "password", location: "header" },
      ],
    },
    credentials: [
      { name: username, scheme: naming.name, holds: "the user name" },
      { name: password, scheme: naming.name, holds: "the password" },
    ],
  };
}

function bearer(naming: Naming, holds: string): SchemePart {
  const source = credentialFor(naming);
  return { kind: "bearer", source, credentials: [{ name: source, scheme: naming.name, holds }] };
}

/** Flows that tools can go by themselves; what else there is ends with a token that somebody stores. */
const flows = [
  { name: "clientCredentials", oldName: "application", grant: "client_credentials" },
  { name: "authorizationCode", oldName: "accessCode", grant: "authorization_code" },
] as const;

/**
 * Addresses become credentials, too: whoever stores them has seen where client secrets and users are sent.
 */
function readOAuth(scheme: JsonValue, scopes: JsonValue | undefined, naming: Naming): SchemePart {
  const declared = ownMember(scheme, "flows");
  const usable = flows.flatMap(({ name, oldName, grant }) => {
    const flow = ownMember(declared, name) ?? (textMember(scheme, "flow") === oldName ? scheme : undefined);
    return flow !== undefined && textMember(flow, "tokenUrl") !== undefined ? [{ grant, flow }] : [];
  });
  const [chosen] = usable;
  if (chosen === undefined) return bearer(naming, "an OAuth access token");
  const { grant, flow } = chosen;
  const wantedScopes = Array.isArray(scopes) ? scopes.filter((scope) => typeof scope === "string").join(" ") : "";
  const address = (target: string, member: string, holds: string): readonly OAuthPart[] => {
    const suggestedValue = textMember(flow, member);
    return suggestedValue === undefined ? [] : [{ target, holds, suggestedValue }];
  };
  const parts: readonly OAuthPart[] = [
    { target: "client_id", holds: "the client id" },
    { target: "client_secret", holds: "the client secret" },
    ...address("token_url", "tokenUrl", "the address of the token endpoint"),
    ...(grant === "authorization_code"
      ? address("authorization_url", "authorizationUrl", "where users are sent to agree")
      : []),
    ...(wantedScopes === "" ? [] : [{ target: "scope", holds: "the scopes to ask for", suggestedValue: wantedScopes }]),
  ];
  return {
    kind: "whole",
    config: {
      type: "oauth2",
      mapping: parts.map(({ target }) => ({
        source: credentialFor(naming, target),
        target,
        location: "header" as const,
      })),
      ...(grant === "authorization_code" ? { grant } : {}),
    },
    credentials: parts.map(({ target, ...wanted }) => ({
      name: credentialFor(naming, target),
      scheme: naming.name,
      ...wanted,
    })),
  };
}

interface OAuthPart {
  readonly target: string;
  readonly holds: string;
  readonly suggestedValue?: string;
}

function ofConfig(config: AuthConfig): readonly WantedCredential[] {
  return config.mapping.map(({ source, target }) => ({ name: source, scheme: null, holds: target ?? "the token" }));
}
