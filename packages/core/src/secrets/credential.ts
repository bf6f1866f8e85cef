/** A tenant's stored secret: who it belongs to and its sealed value (BLIND-5). */

export interface CredentialRef {
  readonly name: string;
  /** `tenant` values serve everybody; `user` values beat them for that user only. */
  readonly level: "tenant" | "user";
  /** Set where level is `user`. */
  readonly userId?: string;
  readonly version: number;
}

export interface StoredCredential extends CredentialRef {
  /** JWE, see secrets/sealer.ts; AAD = tenant|level|user|name|version. */
  readonly sealed: string;
}
