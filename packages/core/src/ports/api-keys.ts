/** Persistence of keys, by their hashes. Rules and contract as in repos.ts. */
import type { Role, Scope } from "../callers/caller.ts";
import type { Page, PageRequest } from "./page.ts";

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly role: Exclude<Role, "operator">;
  readonly scopes: readonly Scope[];
  readonly tools: readonly string[] | null;
  readonly userId: string | null;
  readonly businessUnit: string | null;
  readonly requestsPerMinute: number | null;
  readonly concurrentRequests: number | null;
  /** First characters of the key, for people. */
  readonly hint: string;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly createdAt: number;
}

export interface ApiKeyRepo {
  /** `hash`: hex SHA-256 of the whole key. */
  create(tenant: string, key: Omit<ApiKey, "createdAt" | "revokedAt"> & { readonly hash: string }): Promise<ApiKey>;
  list(tenant: string, page: PageRequest): Promise<Page<ApiKey>>;
  get(tenant: string, id: string): Promise<ApiKey | undefined>;
  revoke(tenant: string, id: string): Promise<boolean>;
}
