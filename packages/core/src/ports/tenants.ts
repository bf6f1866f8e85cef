/** Persistence of tenants and of what they have configured, as a whole. Rules and contract as in repos.ts, but for what finds a tenant. */
import type { TenantConfig } from "../tenant-config.ts";
import type { TenantSettings } from "../tenants/settings.ts";
import type { Page, PageRequest } from "./page.ts";

export interface Tenant {
  readonly id: string;
  readonly name: string;
  readonly status: "active" | "suspended";
  readonly configVersion: number;
  readonly settings: Partial<TenantSettings>;
  /** Data key wrapped by the key vault. */
  readonly wrappedKey: string;
  readonly createdAt: number;
}

/** A tenant's data key as it is stored, among those that the same master key has wrapped. */
export interface WrappedKeySample {
  readonly tenant: string;
  readonly wrappedKey: string;
  /** Equal for what one master key has wrapped, as the key vaults write it: everything before the last dot. */
  readonly wrappedBy: string;
}

/** Tenants and what is needed to find one; the only repository without a tenant argument. */
export interface TenantRepo {
  create(tenant: {
    readonly id: string;
    readonly name: string;
    readonly wrappedKey: string;
    readonly settings: Partial<TenantSettings>;
  }): Promise<Tenant>;
  get(id: string): Promise<Tenant | undefined>;
  list(page: PageRequest): Promise<Page<Tenant>>;
  /** Of each master key that tenants' keys are wrapped under: so many of those, at most. Looks at all tenants. */
  sampleWrappedKeys(ofEach: number): Promise<readonly WrappedKeySample[]>;
  /** Raises the config version. `undefined`: no such tenant, or it has another version than expected. */
  update(
    id: string,
    change: {
      readonly name?: string;
      readonly status?: Tenant["status"];
      readonly settings?: Partial<TenantSettings>;
      readonly wrappedKey?: string;
      readonly expectedConfigVersion?: number;
    },
  ): Promise<Tenant | undefined>;
  /**
   * Only one applies a document of the tenant's configuration at a time: for so many milliseconds from now it is
   * `applier`, who may ask again; 0 gives it back. The config version stays. False: it is another, or there is no tenant.
   */
  holdApply(id: string, applier: string, forMs: number): Promise<boolean>;
  /**
   * Removes every row of the tenant in every table, but for the message `afterErasure`. Blobs are the caller's.
   * @param options `everywhere`: in every database, since nothing says any more in which one the tenant was
   */
  erase(id: string, options?: { readonly everywhere?: boolean }): Promise<boolean>;
}

export interface ConfigRepo {
  /** The whole snapshot; the tenant's own plugins, enabled and disabled alike. `undefined`: no such tenant. */
  load(tenant: string): Promise<TenantConfig | undefined>;
}
