/**
 * Creates, changes and deletes tool services (CFG-1, CFG-3, CFG-4). A configuration is checked as a whole;
 * literals of secrets become credentials under new names, so that what calls under way were opened with
 * stays what it was until the row points elsewhere.
 */
import { sealCredential } from "../blind/credential-resolver.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { ifReadable } from "../errors/unreadable.ts";
import { haveNodesLook } from "../nodes/look.ts";
import { newId } from "../ids.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { hasSecretInQuery, isSecretValue, looksLikeSecret, mayBeSecret, notAName } from "../secrets/secret-shape.ts";
import { announceChange } from "../subscriptions/announce.ts";
import type { Adapters } from "../tools/catalog.ts";
import { isToolScheme } from "../tools/uri.ts";
import { credentialsIn, liftSecrets, storeIt, type LiftedSecret } from "./config-fields.ts";
import { invalidConfig, toInvalidConfig } from "./invalid-config.ts";
import { findReferences, referencedError } from "./references.ts";
import type { ServiceRuntime } from "./scheme.ts";
import type { ToolService, ToolServiceChange } from "./service.ts";

export type ServiceDeps = Pick<CoreDeps, "adapters" | "repos" | "sealer" | "tellNow" | "log">;

/** Schemes whose back ends are configured as services. */
export function serviceRuntimes(adapters: Adapters): readonly ServiceRuntime[] {
  return Object.values(adapters).flatMap(({ services }) => (services === undefined ? [] : [services]));
}

/** @throws GatewayError `invalid_request` naming the schemes that there are */
export function runtimeOf(adapters: Adapters, scheme: string): ServiceRuntime {
  const runtime = isToolScheme(scheme) ? adapters[scheme]?.services : undefined;
  if (runtime !== undefined) return runtime;
  const known = serviceRuntimes(adapters).map(({ scheme: { scheme: name } }) => name);
  throw new GatewayError("invalid_request", `'scheme' must be one of ${known.join(", ")}.`, { param: "scheme" });
}

export interface NewServiceRequest {
  readonly scheme: string;
  readonly serviceId: string;
  readonly displayName: string | null;
  readonly description: string | null;
  readonly enabled: boolean;
  readonly config: JsonObject;
  /** Fields (`config.headers.X-Tenant-Key`) that hold none, whatever they are called. */
  readonly notSecret: readonly string[];
}

/**
 * @throws GatewayError `invalid_definition` whose `param` is the field, `egress_denied`, `conflict` for an
 * id or a tool's name that is taken
 */
export async function createService(
  deps: ServiceDeps,
  context: CallContext,
  { notSecret, ...request }: NewServiceRequest,
): Promise<ToolService> {
  const runtime = runtimeOf(deps.adapters, request.scheme);
  const { scheme } = runtime.scheme;
  const id = newId("toolService");
  const { config, secrets } = readConfig(runtime, { id, notSecret }, request.config);
  const record: ToolService = { ...request, ...firstState, id, scheme, config };
  await checkRecord(deps, context, { runtime, record });
  if (context.config.services.some((other) => other.scheme === scheme && other.serviceId === request.serviceId)) {
    throw new GatewayError(
      "conflict",
      `There is an ${scheme} service '${request.serviceId}' already; take another 'service_id', or change that one.`,
      { param: "service_id" },
    );
  }
  return withSecrets(deps, context, secrets, () =>
    deps.repos.services.create(context.tenant, {
      id,
      scheme,
      serviceId: request.serviceId,
      displayName: request.displayName,
      description: request.description,
      enabled: request.enabled,
      config,
    }),
  );
}

const firstState = { version: 1, discovered: null, createdAt: 0, updatedAt: 0 } as const;

export interface ServicePatch {
  readonly displayName?: string | null;
  readonly description?: string | null;
  readonly enabled?: boolean;
  /** Merged into what there is as RFC 7396 says: null removes, lists are replaced. */
  readonly config?: JsonObject;
  /** `config` is the whole instead. */
  readonly replacesConfig?: boolean;
  /** As of a new one. */
  readonly notSecret?: readonly string[];
}

/** Changes that are made at the same time are tried again on what the other left. */
const mostTries = 4;

/** @throws GatewayError as `createService`; `not_found`; `version_conflict` where a version was expected */
export async function updateService(
  deps: ServiceDeps,
  context: CallContext,
  {
    id,
    patch,
    expectedVersion,
  }: { readonly id: string; readonly patch: ServicePatch; readonly expectedVersion?: number },
): Promise<ToolService> {
  for (let attempt = 1; ; attempt += 1) {
    const record = await requireService(deps, context.tenant, id);
    try {
      const updated = await changeOnce(deps, context, { record, patch, expectedVersion });
      // Here at once; elsewhere with the next call, or when they have been idle.
      deps.adapters[record.scheme]?.services?.retire(context.tenant, record);
      await tellHolder(deps, context, record);
      await announceChange(deps, context.tenant);
      return updated;
    } catch (error) {
      const isRace = error instanceof GatewayError && error.code === "version_conflict";
      if (!isRace || expectedVersion !== undefined || attempt === mostTries) throw error;
    }
  }
}

interface OneChange {
  readonly record: ToolService;
  readonly patch: ServicePatch;
  readonly expectedVersion: number | undefined;
}

async function changeOnce(
  deps: ServiceDeps,
  context: CallContext,
  { record, patch, expectedVersion = record.version }: OneChange,
): Promise<ToolService> {
  const { config: configPatch, replacesConfig = false, notSecret = [], ...plain } = patch;
  const runtime = runtimeOf(deps.adapters, record.scheme);
  const { tenant } = context;
  if (configPatch === undefined)
    return found(await deps.repos.services.update(tenant, record.id, plain, expectedVersion), record.id);
  const { config, secrets } = replacesConfig
    ? readConfig(runtime, { id: record.id, notSecret, before: record.config }, configPatch)
    : readMerged(runtime, { record, notSecret }, configPatch);
  await checkRecord(deps, context, { runtime, record: { ...record, config } });
  const change: ToolServiceChange = { ...plain, config };
  const updated = await withSecrets(deps, context, secrets, async () =>
    found(await deps.repos.services.update(tenant, record.id, change, expectedVersion), record.id),
  );
  const kept = new Set(credentialsIn(config));
  await forgetSecrets(
    deps,
    context,
    ownSecrets(record).filter((name) => !kept.has(name)),
  );
  return updated;
}

export interface Deletion {
  readonly id: string;
  /** Although it is referenced. */
  readonly force: boolean;
}

/** @throws GatewayError `not_found`; `service_referenced` with the referrers */
export async function deleteService(deps: ServiceDeps, context: CallContext, { id, force }: Deletion): Promise<void> {
  // One that cannot be read is in no configuration, and can be deleted all the same.
  const record = await ifReadable(requireService(deps, context.tenant, id));
  if (!force && record !== undefined) {
    const references = await findReferences(deps, context, record);
    if (references.length > 0) throw referencedError(`${record.scheme}://${record.serviceId}`, references);
  }
  if (!(await deps.repos.services.delete(context.tenant, id))) throw noSuchService(id);
  await forgetSecrets(deps, context, record === undefined ? secretsNamedAfter(id, context) : ownSecrets(record));
  for (const runtime of serviceRuntimes(deps.adapters)) runtime.retire(context.tenant, { id });
  await tellHolder(deps, context, record);
  await announceChange(deps, context.tenant);
}

/** What is held on a node for a service that was changed ends there. */
async function tellHolder(deps: ServiceDeps, { tenant }: CallContext, record: ToolService | undefined): Promise<void> {
  if (record === undefined || typeof record.config["node"] === "string") await haveNodesLook(deps, tenant);
}

/** @throws GatewayError `not_found` */
export async function requireService(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  id: string,
): Promise<ToolService> {
  return found(await repos.services.get(tenant, id), id);
}

function found(record: ToolService | undefined, id: string): ToolService {
  if (record === undefined) throw noSuchService(id);
  return record;
}

function noSuchService(id: string): GatewayError {
  return new GatewayError("not_found", `There is no tool service '${id}'.`, { param: "id" });
}

interface ConfigOwner {
  readonly id: string;
  readonly notSecret: readonly string[];
  /** The configuration that is replaced. */
  readonly before?: JsonObject;
}

function readConfig(
  runtime: ServiceRuntime,
  { id, notSecret, before = {} }: ConfigOwner,
  input: JsonObject,
): ReturnType<typeof liftSecrets> {
  const parsed = runtime.scheme.config.safeParse(input);
  if (!parsed.success) throw toInvalidConfig(parsed.error);
  refuseSecrets(parsed.data, { id, notSecret, before: new Set(textsIn(before)) });
  const suffix = newId("request").slice(-6);
  return liftSecrets(
    parsed.data,
    (path) => `${id}.${path.replaceAll(/[^\p{L}\p{N}_.:-]/gu, "_").slice(0, 80)}.${suffix}`,
  );
}

/** What was there and fits no longer is named by nobody's request, so what takes it away is said. */
function readMerged(
  runtime: ServiceRuntime,
  { record, notSecret }: { readonly record: ToolService; readonly notSecret: readonly string[] },
  patch: JsonObject,
): ReturnType<typeof readConfig> {
  try {
    const owner = { id: record.id, notSecret, before: record.config };
    return readConfig(runtime, owner, mergePatch(record.config, patch));
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const path = (error.details.param ?? "").split(".").slice(1);
    if (!isThere(record.config, path) || isThere(patch, path)) throw error;
    const message = `${error.message} The service has it already; null in its place removes it.`;
    throw new GatewayError(error.code, message, { ...error.details, cause: error });
  }
}

function isThere(value: JsonValue, [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return true;
  const field = isJsonObject(value) && Object.hasOwn(value, first) ? value[first] : undefined;
  return field !== undefined && isThere(field, rest);
}

interface Registered {
  readonly id: string;
  readonly notSecret: readonly string[];
  /** What is stored already, and stays as it is. */
  readonly before: ReadonlySet<string>;
}

/**
 * Secrets in the place of their names, and plain ones among headers and parameters and in addresses: everybody would be
 * told of them. What is stored is read by the same schema, and may be older than what is known of secrets, so this is
 * asked of what is new alone.
 */
function refuseSecrets(config: unknown, service: Registered, path: readonly string[] = []): void {
  if (typeof config === "string") {
    const problem = service.before.has(config) ? undefined : misplacedSecret(config, path, service);
    if (problem !== undefined) throw invalidConfig(path.join("."), problem);
  } else if (Array.isArray(config) || isJsonObject(config)) {
    for (const [key, value] of Object.entries(config)) refuseSecrets(value, service, [...path, key]);
  }
}

/** What `readConfig` calls a credential that it makes of a literal; its own are among what is stored. */
const literalsName = /^svc_[0-9a-z]{26}\./;
const giveIt = "give the secret itself, or store it with PUT /v1/credentials and name that";
const notItsOwn = `is the credential of another service's own, which goes when that changes; ${giveIt}`;
const itsOwnNoMore = `is a credential of its own that this service has had and has no more; ${giveIt}`;

function misplacedSecret(text: string, path: readonly string[], { id, notSecret }: Registered): string | undefined {
  const [last = "", holder] = path.toReversed();
  const isName = last === "credential" || (last === "source" && path.at(-3) === "mapping");
  if (isName && literalsName.test(text)) return text.startsWith(`${id}.`) ? itsOwnNoMore : notItsOwn;
  if (isName) return looksLikeSecret(text) ? notAName : undefined;
  // What a schema of arguments describes is called as its author likes.
  if (path.includes("properties")) return undefined;
  // `tools.query.description` is of a tool that is called so.
  const isFixed = (holder === "headers" || holder === "query") && path.length !== 3;
  const isAddress = /(?:^|_)url$/.test(last);
  const holds = (isSecret: typeof isKept): boolean =>
    isFixed ? isSecret(last, text) : isAddress && hasSecretInQuery(text, isSecret);
  const field = ["config", ...path].join(".");
  if (holds(isKept)) {
    if (holds(isSecretValue)) return `${isFixed ? "is a secret" : "must not hold a secret in its query"}; ${sendIt}`;
    const isCalled = isFixed ? "is called as secrets are" : "has a parameter that is called as secrets are";
    if (!notSecret.includes(field)) return `${isCalled}; ${sendIt}; where it is none, name '${field}' in 'not_secret'`;
  }
  // Endpoints are templates, so what stands in braces is no value yet.
  const isMisplaced = /(?:^|_)(?:endpoint|path)$/.test(last) && hasSecretInQuery(text);
  return isMisplaced ? `must not hold a secret in its query; ${storeIt}` : undefined;
}

/** Fields that hold no secret and are called as secrets are: who makes the service anew has to say so. */
export function notSecretsIn(config: JsonObject): readonly string[] {
  const found: string[] = [];
  const visit = (value: JsonValue, path: readonly string[]): void => {
    if (typeof value === "string") {
      const field = ["config", ...path].join(".");
      const problemOf = (notSecret: readonly string[]): string | undefined =>
        misplacedSecret(value, path, { id: "", notSecret, before: new Set() });
      if (problemOf([]) !== undefined && problemOf([field]) === undefined) found.push(field);
    } else if (typeof value === "object" && value !== null) {
      for (const [key, part] of Object.entries(value)) visit(part, [...path, key]);
    }
  };
  visit(config, []);
  return found.sort();
}

const sendIt =
  'store it with PUT /v1/credentials/{name} and have \'auth_config\' send it (with "auth_type": "mapping" in any header or parameter)';

/** Is a value that is sent as it stands a secret, for all that is known? */
const isKept = (name: string, text: string): boolean => text !== "" && mayBeSecret(name, text);

function textsIn(value: JsonValue): readonly string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

/** Models call tools by their bare names, so no name may mean two. */
async function checkRecord(
  { adapters }: ServiceDeps,
  context: CallContext,
  { runtime, record }: { readonly runtime: ServiceRuntime; readonly record: ToolService },
): Promise<void> {
  await runtime.check(context.tenant, record);
  const others = [adapters.plugin, adapters.native];
  const taken = runtime
    .toolsOf(record)
    .find(({ name }) => others.some((adapter) => adapter?.find?.(name, context) !== undefined));
  if (taken === undefined) return;
  throw new GatewayError(
    "conflict",
    `The tool '${taken.uri}' would be called '${taken.name}', which is the name of another tool; take another 'service_id'.`,
    { param: "service_id" },
  );
}

// Secrets

async function withSecrets<T>(
  deps: ServiceDeps,
  context: CallContext,
  secrets: readonly LiftedSecret[],
  write: () => Promise<T>,
): Promise<T> {
  for (const { value } of secrets) context.redactor.add(value);
  try {
    for (const { credential, value } of secrets) {
      await sealCredential(
        { sealer: deps.sealer, credentials: deps.repos.credentials },
        { tenant: context.tenant, wrappedKey: context.config.wrappedKey, name: credential, value, userId: null },
      );
    }
    return await write();
  } catch (error) {
    await forgetSecrets(
      deps,
      context,
      secrets.map(({ credential }) => credential),
    ).catch(() => undefined);
    throw error;
  }
}

/** Credentials that were made of literals of this service. */
function ownSecrets({ id, config }: ToolService): readonly string[] {
  return credentialsIn(config).filter((name) => name.startsWith(`${id}.`));
}

function secretsNamedAfter(id: string, { config }: CallContext): readonly string[] {
  return config.credentials.map(({ name }) => name).filter((name) => name.startsWith(`${id}.`));
}

async function forgetSecrets({ repos }: ServiceDeps, { tenant }: CallContext, names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => repos.credentials.delete(tenant, name, null)));
}

function mergePatch(target: JsonValue, patch: JsonObject): JsonObject {
  const merged = new Map<string, JsonValue>(Object.entries(isJsonObject(target) ? target : {}));
  for (const [key, value] of Object.entries(patch)) {
    const before = merged.get(key) ?? null;
    if (value === null) merged.delete(key);
    else merged.set(key, isJsonObject(value) && !isReference(value) ? mergePatch(before, value) : value);
  }
  return Object.fromEntries(merged);
}

/** A reference replaces what was there, a literal's reference included. */
function isReference(value: JsonObject): boolean {
  return typeof value["credential"] === "string" && Object.keys(value).length === 1;
}
