/**
 * Persistence of values that static VCP plugins and nodes give to placeholders. Rules as in repos.ts: the
 * tenant comes first, one function is one database round trip. Contract: test/contract/vcp-static-values-repo.ts.
 */

/** A value as it is kept. Of a plugin there is one, under the key "", for all of its placeholders. */
export interface StoredStaticValue {
  /** `plugin:{name}` or `node:{name}`. */
  readonly source: string;
  readonly key: string;
  /** Null: there is none yet, or it lies under `blobKey`. */
  readonly value: string | null;
  readonly blobKey: string | null;
  /** Of what gave it: a plugin that has changed is asked anew. */
  readonly version: string;
  readonly refreshedAt: number | null;
  /** Why the last refresh gave nothing; null: it did. */
  readonly error: string | null;
  /** Somebody is at it. */
  readonly leased: boolean;
}

export interface RefreshClaim {
  readonly source: string;
  readonly version: string;
  readonly leaseMs: number;
  /** Milliseconds since the epoch: what was refreshed later, and is of this version, is fresh. */
  readonly freshSince: number;
}

export interface Refreshed {
  readonly source: string;
  readonly version: string;
  /** Undefined: the value before stays. */
  readonly value?: Pick<StoredStaticValue, "value" | "blobKey">;
  readonly error: string | null;
  /** When it is due again without being asked for; null: it waits for use. */
  readonly nextAt: number | null;
}

export interface VcpStaticValueRepo {
  /** All of a tenant, and the database's clock. */
  list(tenant: string): Promise<{ readonly values: readonly StoredStaticValue[]; readonly now: number }>;
  /** The refresh is one claimant's of all for `leaseMs`; undefined: somebody has it, or the value is fresh. */
  claim(tenant: string, claim: RefreshClaim): Promise<StoredStaticValue | undefined>;
  /** Ends a claim. Gives back the key of the blob that nobody needs any more. */
  store(tenant: string, refreshed: Refreshed): Promise<string | undefined>;
  /** Values of one source that are told, not asked for; replaces all that it had. */
  replace(tenant: string, source: string, values: ReadonlyMap<string, string>): Promise<void>;
  /** The source is gone. */
  remove(tenant: string, source: string): Promise<void>;
  /** Of all tenants: sources that are due, each offered once in `offerAgainMs`. */
  due(options: {
    readonly limit: number;
    readonly offerAgainMs: number;
  }): Promise<readonly { readonly tenant: string; readonly source: string }[]>;
}
