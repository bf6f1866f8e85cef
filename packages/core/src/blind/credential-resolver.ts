/**
 * Values of credentials at the moment of use (BLIND-5). Inline values of the request come first, then
 * the user's own, then the tenant's; there is no other fallback, so nobody ever acts as somebody else.
 * Sealed values are part of the tenant's snapshot: opening them costs no round trip.
 */
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CredentialRepo, CredentialView } from "../ports/credentials.ts";
import { isBlank, type CredentialRef, type StoredCredential, credentialAad } from "../secrets/credential.ts";
import type { Sealer } from "../secrets/sealer.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { withDelivery } from "../errors/delivery.ts";
import { credentialNameSchema } from "./definition.ts";

/** The part of a call's context that decides about credentials. */
export type CredentialContext = Pick<CallContext, "tenant" | "caller" | "config" | "runtimeConfig" | "span">;

/** Where a value comes from, without the value. */
export interface CredentialOrigin {
  readonly name: string;
  readonly level: "inline" | "user" | "tenant";
  readonly userId?: string;
  readonly version?: number;
}

export interface CredentialResolver {
  /**
   * Values of those names that exist; what is missing is for the one who places them to say.
   * @throws GatewayError `credential_unreadable` naming the credential
   */
  resolve(context: CredentialContext, names: readonly string[]): Promise<ReadonlyMap<string, string>>;
}

export interface ResolverDeps {
  readonly sealer: Sealer;
}

/** Which value a name stands for in this call; no I/O. */
export function findCredential(context: CredentialContext, name: string): CredentialOrigin | undefined {
  if (inlineValue(context, name) !== undefined) return { name, level: "inline" };
  const stored = findStored(context, name);
  if (stored === undefined) return undefined;
  const { level, version, userId } = stored;
  return { name, level, version, ...(userId === undefined ? {} : { userId }) };
}

/** Names that nobody provides for this call; no I/O. A request's own value that is empty is none, and hides what is stored. */
export function missingCredentials(context: CredentialContext, names: readonly string[]): readonly string[] {
  return names.filter((name) => isEmptyInline(context, name) || findCredential(context, name) === undefined);
}

function isEmptyInline(context: CredentialContext, name: string): boolean {
  const value = inlineValue(context, name);
  return value !== undefined && isBlank(value);
}

/** What is said of a name that is missing: how it is, and what to do. */
export function describeMissing(context: CredentialContext, name: string): string {
  const inline = "'runtime_config.credentials'";
  if (isEmptyInline(context, name)) return `is empty; give it a value in ${inline}`;
  const elsewhere = context.runtimeConfig === undefined ? "" : `send it in ${inline}, or `;
  return `is not stored; ${elsewhere}add it with PUT /v1/credentials/${name}`;
}

export function createCredentialResolver({ sealer }: ResolverDeps): CredentialResolver {
  return {
    async resolve(context, names) {
      const values = new Map<string, string>();
      await Promise.all(
        [...new Set(names)].map(async (name) => {
          const value = inlineValue(context, name) ?? (await openStored(sealer, context, findStored(context, name)));
          if (value !== undefined) values.set(name, value);
        }),
      );
      return values;
    },
  };
}

function inlineValue(context: CredentialContext, name: string): string | undefined {
  const inline = context.runtimeConfig?.credentials;
  return inline !== undefined && Object.hasOwn(inline, name) ? inline[name] : undefined;
}

type ByName = ReadonlyMap<string, readonly StoredCredential[]>;

const indexes = new WeakMap<TenantConfig["credentials"], ByName>();

/** Made once for each snapshot: a call asks for several names, some of them more than once. */
function indexOf({ credentials }: TenantConfig): ByName {
  let index = indexes.get(credentials);
  if (index === undefined) {
    index = Map.groupBy(credentials, ({ name }) => name);
    indexes.set(credentials, index);
  }
  return index;
}

function findStored({ config, caller }: CredentialContext, name: string): StoredCredential | undefined {
  let found: StoredCredential | undefined;
  for (const stored of indexOf(config).get(name) ?? []) {
    if (stored.level === "tenant") found ??= stored;
    else if (stored.userId !== undefined && stored.userId === caller.userId) return stored;
  }
  return found;
}

async function openStored(
  sealer: Sealer,
  { tenant, config }: CredentialContext,
  stored: StoredCredential | undefined,
): Promise<string | undefined> {
  if (stored === undefined) return undefined;
  try {
    return await sealer.open(tenant, config.wrappedKey, credentialAad(stored), stored.sealed);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "credential_unreadable") throw error;
    throw withDelivery(
      new GatewayError(
        "credential_unreadable",
        `Credential '${stored.name}' (${stored.level} level, version ${stored.version}) cannot be opened with this tenant's key; set it again with PUT /v1/credentials/${encodeURIComponent(stored.name)}.`,
        { param: stored.name, cause: error },
      ),
      "not_sent",
    );
  }
}

export interface SealCredentialDeps {
  readonly sealer: Sealer;
  readonly credentials: Pick<CredentialRepo, "nextVersion" | "put">;
}

export interface NewCredential {
  readonly tenant: string;
  readonly wrappedKey: string;
  readonly name: string;
  readonly value: string;
  /** Whose it is; null: the tenant's. */
  readonly userId: string | null;
}

const longestValue = 65_536;

/** Writers of one name at the same time each take a version of their own. */
const mostTries = 4;

/**
 * Seals a value for its row and stores it as the next version.
 * @throws GatewayError `invalid_request` naming the field, `conflict` where others keep writing the same name, or
 * naming the limit where the tenant or the user has no room for more
 */
export async function sealCredential(deps: SealCredentialDeps, credential: NewCredential): Promise<CredentialView> {
  const { tenant, wrappedKey, name, value, userId } = credential;
  checkCredential(name, value);
  for (let attempt = 1; ; attempt += 1) {
    const version = await deps.credentials.nextVersion(tenant, name, userId);
    const ref: CredentialRef =
      userId === null ? { name, level: "tenant", version } : { name, level: "user", userId, version };
    const sealed = await deps.sealer.seal(tenant, wrappedKey, credentialAad(ref), value);
    try {
      return await deps.credentials.put(tenant, { ...ref, sealed });
    } catch (error) {
      const isConflict = error instanceof GatewayError && error.code === "conflict";
      // A limit that is reached is still reached by the next version.
      const isFull = isConflict && error.details.extra?.["limit"] !== undefined;
      if (!isConflict || isFull || attempt === mostTries) throw error;
    }
  }
}

function checkCredential(name: string, value: string): void {
  const parsed = credentialNameSchema.safeParse(name);
  if (!parsed.success) {
    throw new GatewayError(
      "invalid_request",
      `The name of a credential ${parsed.error.issues[0]?.message ?? "is not valid"}.`,
      {
        param: "name",
      },
    );
  }
  if (isBlank(value) || value.length > longestValue) {
    throw new GatewayError("invalid_request", `'value' must have 1 to ${longestValue} characters.`, { param: "value" });
  }
}
