/**
 * Persistence of what authorization servers have given to tenants and their users. Rules as in repos.ts: the tenant
 * comes first, one function is one database round trip. Contract: test/contract/oauth-repo.ts.
 */
import type { OAuthGrantType } from "../blind/definition.ts";
import type { Page, PageRequest } from "./page.ts";

/** Whose a grant is, and what for: everything about the client that makes a token another one, hashed. */
export interface OAuthGrantKey {
  /** Null: the tenant's. */
  readonly userId: string | null;
  readonly identity: string;
}
/** What an authorization server has given to a tenant or to one of its users, or is asked to give. */
export interface OAuthGrant extends OAuthGrantKey {
  /** `conn_…` */
  readonly id: string;
  readonly kind: OAuthGrantType;
  /** URI of the tool for which it was first wanted. */
  readonly tool: string;
  /** Rises with every token; names the token in all writes, so that none undoes a newer one. */
  readonly generation: number;
  /** Sealed token; null: none yet, or none any more. */
  readonly sealed: string | null;
  /** Scope as the server has said. */
  readonly scope: string | null;
  /** A new access token can be had without its user. */
  readonly renewable: boolean;
  /** Milliseconds that the access token may still be used for when this was read; null: until it is refused. */
  readonly usableForMs: number | null;
  /** Until when its connect link can be followed; null: there is none. */
  readonly linkUntil: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}
export type NewOAuthGrant = Pick<OAuthGrant, "id" | "kind" | "userId" | "identity" | "tool">;
/** An outstanding authorization: `hash` is all that is known of its state, the rest is sealed. */
export interface OAuthLink {
  readonly grant: OAuthGrant;
  readonly hash: string;
  readonly sealed: string;
  readonly until: number;
}
export interface OAuthRepo {
  /**
   * The grant, made for client credentials where it is missing. Where its token has run out, is missing
   * or is not newer than `refused`, the lease goes to `holder` unless somebody else has it; with `seen`,
   * only while there is no token newer than that. Sending it twice is the same as once.
   */
  claim(
    tenant: string,
    grant: NewOAuthGrant,
    lease: { readonly holder: string; readonly leaseMs: number; readonly refused?: number; readonly seen?: number },
  ): Promise<{ readonly grant: OAuthGrant | undefined; readonly held: boolean }>;
  find(tenant: string, key: OAuthGrantKey): Promise<OAuthGrant | undefined>;
  /** `false`: the lease ran out and is somebody else's. */
  extendLease(
    tenant: string,
    id: string,
    lease: { readonly holder: string; readonly leaseMs: number },
  ): Promise<boolean>;
  releaseLease(tenant: string, id: string, holder: string): Promise<void>;
  /**
   * Keeps a token as `generation` if the one before it is still the newest, and ends the lease.
   * `raiseConfig`: copies in other processes' memory must not be used any longer.
   */
  store(
    tenant: string,
    id: string,
    token: {
      readonly generation: number;
      readonly sealed: string;
      readonly scope: string | null;
      readonly renewable: boolean;
      /** Null: until it is refused. */
      readonly usableForMs: number | null;
      readonly raiseConfig: boolean;
    },
  ): Promise<boolean>;
  /** Forgets the token of exactly this generation; `false`: it is not the newest, or is gone. */
  discard(tenant: string, id: string, generation: number): Promise<boolean>;
  /** The link of this grant, which is made where it is missing: an earlier one where that has `leastMs` left, else this. */
  offerLink(
    tenant: string,
    grant: NewOAuthGrant,
    link: { readonly hash: string; readonly sealed: string; readonly lifetimeMs: number; readonly leastMs: number },
  ): Promise<OAuthLink>;
  findLink(tenant: string, hash: string): Promise<OAuthLink | undefined>;
  /** Gives a link to one caller only, and never again. */
  takeLink(tenant: string, hash: string): Promise<OAuthLink | undefined>;
  /** Of users, not of the tenant's own clients; of one user, or of all. */
  list(tenant: string, page: PageRequest, userId?: string): Promise<Page<OAuthGrant>>;
  get(tenant: string, id: string): Promise<OAuthGrant | undefined>;
  /** Gives back what was deleted. Raises the config version. */
  delete(tenant: string, id: string): Promise<OAuthGrant | undefined>;
  /** Of all tenants: links that nobody followed, tokens that nobody has renewed for long. At most `limit` rows; gives their number. */
  expire(limit: number): Promise<number>;
}
