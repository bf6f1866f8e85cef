/**
 * Places credentials into the outgoing request as `auth_config.mapping` directs (BLIND-3). One entry
 * of a table for each type: where it touches the request, and how values become headers, parameters
 * of the query, parts of the path and fields of the body. The model never sees these values, so they must
 * not reach logs, outcomes or audit.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import {
  grantOf,
  oauthProblems,
  oauthTargets,
  readOAuthClient,
  type AuthProblem,
  type OAuthClient,
} from "../oauth/client.ts";
import { withDelivery } from "../errors/delivery.ts";
import { isBlank } from "../secrets/credential.ts";
import type { AuthConfig, AuthMapping } from "./definition.ts";
import { isHeaderName, isHeaderValue, isTransportHeader } from "./header-rules.ts";

/** A place in the request that a type fills. */
export interface AuthSlot {
  readonly location: AuthMapping["location"];
  /** Of the header, the query parameter, the placeholder of the path, the field of the body. */
  readonly name: string;
}

export interface PlacedSecret extends AuthSlot {
  /** Word in front of the secret in `value`: `Bearer `, `Basic ` or nothing. */
  readonly prefix: string;
  readonly value: string;
  /** Names of the credentials that went into it. */
  readonly sources: readonly string[];
}

interface Placing {
  readonly config: AuthConfig;
  /** Without keys that go beside. */
  readonly mapping: readonly AuthMapping[];
  /** The value of a credential by its name. */
  readonly valueOf: (source: string) => string;
  readonly accessToken: (client: OAuthClient) => Promise<string>;
  /** Told of each secret as soon as it is known, before anything could show it. */
  readonly hide: (secret: string) => void;
}

/** Shorter user names and client ids are ordinary words, which must not be cut out of texts. */
const shortestName = 8;

interface AuthScheme {
  /** The only targets there are, and those that must be mapped; absent: any name in any place. */
  readonly targets?: (config: AuthConfig) => {
    readonly known: readonly string[];
    readonly required: readonly string[];
  };
  /** Target of an entry that names none. */
  readonly defaultTarget?: (mapping: AuthMapping) => string;
  slots(mapping: readonly AuthMapping[]): readonly AuthSlot[];
  place(placing: Placing): Promise<readonly PlacedSecret[]>;
}

const authorization: AuthSlot = { location: "header", name: "Authorization" };

const authSchemes = {
  api_key: {
    slots: slotOfEach,
    place: ({ mapping, valueOf, hide }) =>
      Promise.resolve(
        mapping.map((entry) => {
          const value = valueOf(entry.source);
          hide(value);
          return { ...slotOf(entry), prefix: "", value, sources: [entry.source] };
        }),
      ),
  },
  bearer: {
    defaultTarget: ({ location }) => (location === "header" ? authorization.name : "access_token"),
    slots: slotOfEach,
    place: ({ mapping, valueOf, hide }) =>
      Promise.resolve(
        mapping.map((entry) => {
          // Some people store the word with the token.
          const token = valueOf(entry.source).replace(/^bearer +/i, "");
          hide(token);
          const prefix = entry.location === "header" ? "Bearer " : "";
          return { ...slotOf(entry), prefix, value: prefix + token, sources: [entry.source] };
        }),
      ),
  },
  basic: {
    targets: () => ({ known: ["username", "password"], required: ["username"] }),
    slots: () => [authorization],
    place: ({ mapping, valueOf, hide }) => {
      const pick = (target: string): string => {
        const entry = entryFor(mapping, target);
        return entry === undefined ? "" : valueOf(entry.source);
      };
      const [username, password] = [pick("username"), pick("password")];
      const name = entryFor(mapping, "username")?.source ?? "username";
      if (username.includes(":")) throw invalidCredential(name, "holds a colon, which a user name may not");
      const encoded = Buffer.from(`${username}:${password}`, "utf8").toString("base64");
      if (password === "" || username.length >= shortestName) hide(username);
      hide(password);
      hide(encoded);
      const sources = mapping.map(({ source }) => source);
      return Promise.resolve([{ ...authorization, prefix: "Basic ", value: `Basic ${encoded}`, sources }]);
    },
  },
  oauth2: {
    targets: oauthTargets,
    slots: () => [authorization],
    place: async ({ config, mapping, valueOf, accessToken, hide }) => {
      const client = readOAuthClient(config, valueOf);
      if (client.clientId.length >= shortestName) hide(client.clientId);
      if (client.clientSecret !== undefined) hide(client.clientSecret);
      const token = await accessToken(client);
      hide(token);
      const sources = mapping.map(({ source }) => source);
      return [{ ...authorization, prefix: "Bearer ", value: `Bearer ${token}`, sources }];
    },
  },
} as const satisfies Record<AuthConfig["type"], AuthScheme>;

/**
 * The client of a tool that acts for its user, undefined for all others.
 * @throws GatewayError `credential_missing`, `credential_invalid` as `placeSecrets` does
 */
export function userClientFrom(
  config: AuthConfig | undefined,
  values: ReadonlyMap<string, string>,
): OAuthClient | undefined {
  if (config?.type !== "oauth2" || grantOf(config) !== "authorization_code") return undefined;
  return readOAuthClient(config, (source) => checkedValue(source, values.get(source)));
}

function schemeOf(config: AuthConfig): AuthScheme {
  return authSchemes[config.type];
}

function slotOfEach(mapping: readonly AuthMapping[]): readonly AuthSlot[] {
  return mapping.map(slotOf);
}

function slotOf({ location, target }: AuthMapping): AuthSlot {
  return { location, name: target ?? "" };
}

function entryFor(mapping: readonly AuthMapping[], target: string): AuthMapping | undefined {
  return mapping.find((entry) => entry.target === target);
}

interface Entries {
  /** Of the configuration's own type, with their targets. */
  readonly own: readonly AuthMapping[];
  /** The keys beside it. */
  readonly keys: readonly AuthMapping[];
}

/** Made once for each configuration: every call asks for them. */
const entries = new WeakMap<AuthConfig, Entries>();

function entriesOf(config: AuthConfig): Entries {
  let known = entries.get(config);
  if (known === undefined) {
    const own = config.mapping.filter((entry) => !isBeside(config, entry)).map((entry) => completed(config, entry));
    entries.set(config, (known = { own, keys: config.mapping.filter((entry) => isBeside(config, entry)) }));
  }
  return known;
}

/** A key that is sent beside what the type is about. */
function isBeside(config: AuthConfig, { type }: AuthMapping): boolean {
  return type !== undefined && type !== config.type;
}

function completed(config: AuthConfig, entry: AuthMapping): AuthMapping {
  const target = entry.target ?? (isBeside(config, entry) ? undefined : schemeOf(config).defaultTarget?.(entry));
  return target === undefined ? entry : { ...entry, target };
}

/** Places that the configuration fills. */
export function authSlots(config: AuthConfig): readonly AuthSlot[] {
  const { own, keys } = entriesOf(config);
  return [...schemeOf(config).slots(own), ...slotOfEach(keys)];
}

/** What is wrong with a mapping, for registration; empty where it can be used. */
export function mappingProblems(config: AuthConfig): readonly AuthProblem[] {
  const targets = schemeOf(config).targets?.(config);
  const { own } = entriesOf(config);
  const ofType = new Set(targets === undefined ? [] : schemeOf(config).slots(own).map(placeOf));
  const seen = new Set<string>();
  const problems = config.mapping.flatMap((entry, index) => {
    const found = entryProblem(config, completed(config, entry), { ofType, seen });
    return found === undefined ? [] : [{ path: `mapping.${index}.${found.field}`, message: found.message }];
  });
  for (const target of targets?.required ?? []) {
    if (entryFor(own, target) === undefined) {
      problems.push({ path: "mapping", message: `needs an entry with target '${target}' for type '${config.type}'` });
    }
  }
  if (own.length === 0 && targets === undefined)
    problems.push({ path: "mapping", message: `needs an entry without 'type' for type '${config.type}'` });
  return [...problems, ...oauthProblems(config)];
}

/** A slot as a key; names of headers have no case. */
export function placeOf({ location, name }: AuthSlot): string {
  return `${location}:${location === "header" ? name.toLowerCase() : name}`;
}

interface Taken {
  /** Places that the type fills itself. */
  readonly ofType: ReadonlySet<string>;
  /** Of the entries before. */
  readonly seen: Set<string>;
}

interface EntryProblem {
  readonly field: "target" | "location";
  readonly message: string;
}

function entryProblem(config: AuthConfig, entry: AuthMapping, taken: Taken): EntryProblem | undefined {
  const message = targetProblem(config, entry, taken);
  if (message !== undefined) return { field: "target", message };
  const isPart = !isBeside(config, entry) && schemeOf(config).targets !== undefined;
  if (!isPart || entry.location === "header" || entry.location === "query") return undefined;
  return {
    field: "location",
    message: `must be left out: type '${config.type}' sends the header 'Authorization' made of its parts, and a key elsewhere has 'type' 'api_key'`,
  };
}

function targetProblem(config: AuthConfig, entry: AuthMapping, { ofType, seen }: Taken): string | undefined {
  const targets = isBeside(config, entry) ? undefined : schemeOf(config).targets?.(config);
  const { target, location } = entry;
  if (target === undefined) return `is required for type '${entry.type ?? config.type}'`;
  if (targets !== undefined && !targets.known.includes(target)) {
    return `must be one of ${targets.known.join(", ")} for type '${config.type}'; a key beside it has 'type' 'api_key'`;
  }
  const isHeader = targets === undefined && location === "header";
  const place = targets === undefined ? placeOf({ location, name: target }) : target;
  const isTaken = seen.has(place);
  seen.add(place);
  if (ofType.has(place)) return `is '${target}', which type '${config.type}' fills itself`;
  if (isTaken) return "is filled by an earlier entry already";
  if (isHeader && !isHeaderName(target)) return "is not a header name";
  if (isHeader && isTransportHeader(target)) return "is a header that only the gateway sets";
  return undefined;
}

export interface PlaceSecretsOptions {
  /** Values by name. */
  readonly values: ReadonlyMap<string, string>;
  /** Where access tokens of oauth2 clients come from. */
  readonly accessToken: (client: OAuthClient) => Promise<string>;
  /** Takes each secret, and each form of it that goes out, before anything is sent. */
  readonly hide: (secret: string) => void;
}

/**
 * @throws GatewayError `credential_missing` if a source is absent or empty, `credential_invalid` for a
 * value that would break out of its place; both name the credential and are `not_sent`
 */
export async function placeSecrets(
  config: AuthConfig | undefined,
  options: PlaceSecretsOptions,
): Promise<readonly PlacedSecret[]> {
  if (config === undefined) return [];
  const placing: Omit<Placing, "mapping"> = {
    config,
    valueOf: (source) => checkedValue(source, options.values.get(source)),
    accessToken: options.accessToken,
    hide: options.hide,
  };
  const { own, keys } = entriesOf(config);
  const ofType = await schemeOf(config).place({ ...placing, mapping: own });
  const placed =
    keys.length === 0 ? ofType : [...ofType, ...(await authSchemes.api_key.place({ ...placing, mapping: keys }))];
  for (const { location, value, sources } of placed) {
    if (location === "header" && !isHeaderValue(value)) {
      throw invalidCredential(sources[0] ?? "", "holds characters that a header cannot carry");
    }
    if (location === "path" && /^\.{1,2}$/.test(value)) {
      throw invalidCredential(sources[0] ?? "", "is '.' or '..', which would change the path that it is part of");
    }
  }
  return placed;
}

/** The same places with the names of the credentials where their values would be: `Bearer ***CRM_KEY`. */
export async function maskSecrets(config: AuthConfig | undefined): Promise<readonly PlacedSecret[]> {
  const placed = await placeSecrets(config, {
    values: new Map(config?.mapping.map(({ source }) => [source, "masked"])),
    accessToken: () => Promise.resolve("masked"),
    hide: () => undefined,
  });
  return placed.map((secret) => ({
    ...secret,
    value: secret.prefix + secret.sources.map((source) => `***${source}`).join(":"),
  }));
}

function checkedValue(name: string, value: string | undefined): string {
  if (value === undefined || isBlank(value)) {
    throw withDelivery(
      new GatewayError(
        "credential_missing",
        `Credential '${name}' is ${value === undefined ? "not set" : "empty"}; add it with PUT /v1/credentials/${encodeURIComponent(name)}.`,
        { param: name },
      ),
      "not_sent",
    );
  }
  // oxlint-disable-next-line no-control-regex
  if (/[\r\n\u0000]/.test(value)) throw invalidCredential(name, "holds a line break or a NUL character");
  return value;
}

function invalidCredential(name: string, problem: string): GatewayError {
  return withDelivery(
    new GatewayError(
      "credential_invalid",
      `Credential '${name}' ${problem}; set it again with PUT /v1/credentials/${encodeURIComponent(name)}.`,
      { param: name },
    ),
    "not_sent",
  );
}
