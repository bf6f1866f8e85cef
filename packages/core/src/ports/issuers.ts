/** Persistence of issuers whose tokens a tenant trusts. Rules and contract as in repos.ts. */
import type { Role, Scope } from "../callers/caller.ts";
import type { Page, PageRequest } from "./page.ts";

export interface TrustedIssuer {
  readonly id: string;
  readonly tenant: string;
  readonly issuer: string;
  readonly audience: string;
  readonly jwksUrl: string;
  /** Claim names for role, scopes, tools and business unit. */
  readonly claims: {
    readonly role?: string;
    readonly scopes?: string;
    readonly tools?: string;
    readonly businessUnit?: string;
  };
  readonly defaultRole: Role;
  readonly defaultScopes: readonly Scope[];
  /**
   * In ids of its users ':' and '%' of issuer and subject are written as %3A and %25. Of an issuer whose users could
   * else be taken for those of another: the name of one, with a ':' after it, is how the other's begins. Said once, as
   * the second of them becomes trusted, so that nobody's id ever changes.
   */
  readonly escapesIds: boolean;
  readonly createdAt: number;
}

/** As a whole: whoever changes it was asked whether all of it may be handed out. */
export type TrustedIssuerChange = Pick<TrustedIssuer, "jwksUrl" | "claims" | "defaultRole" | "defaultScopes">;

export interface IssuerRepo {
  create(tenant: string, issuer: Omit<TrustedIssuer, "tenant" | "createdAt" | "escapesIds">): Promise<TrustedIssuer>;
  get(tenant: string, id: string): Promise<TrustedIssuer | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<TrustedIssuer>>;
  /** How ids of its users are written stays as it is. */
  update(tenant: string, id: string, change: TrustedIssuerChange): Promise<TrustedIssuer | undefined>;
  delete(tenant: string, id: string): Promise<boolean>;
  /** All tenants that trust this issuer for one of these audiences; JWT authentication only. */
  find(issuer: string, audiences: readonly string[]): Promise<readonly TrustedIssuer[]>;
}
