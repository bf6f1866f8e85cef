/** Persistence of secrets, which come sealed. Rules and contract as in repos.ts. */
import type { StoredCredential } from "../secrets/credential.ts";
import type { Page, PageRequest } from "./page.ts";

export interface CredentialView {
  /** `cred_{number}`, kept over versions; where a page ends. */
  readonly id: string;
  readonly name: string;
  readonly level: "tenant" | "user";
  readonly userId: string | null;
  readonly version: number;
  readonly lastUsedAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface CredentialRepo {
  /** Next version of a credential, for the AAD of the value about to be sealed. */
  nextVersion(tenant: string, name: string, userId: string | null): Promise<number>;
  /**
   * Raises the config version.
   * @throws GatewayError `conflict`: another writer took `version` first, or (`extra.limit`) the tenant or the user has no
   * room for one more, or for so long a value; a value as long as a token is taken in place of another in any case
   */
  put(tenant: string, credential: StoredCredential): Promise<CredentialView>;
  /** Values of these names: the user's where there is one, else the tenant's. Marks them used. */
  fetch(tenant: string, names: readonly string[], userId: string | undefined): Promise<readonly StoredCredential[]>;
  /** Of `userId` alone where it is given. */
  list(tenant: string, page: PageRequest, userId?: string): Promise<Page<CredentialView>>;
  all(tenant: string): Promise<readonly StoredCredential[]>;
  delete(tenant: string, name: string, userId: string | null): Promise<boolean>;
}
