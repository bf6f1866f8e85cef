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

/** Nothing, or what is nothing where it is sent: around the value of a header blanks do not count. */
export function isBlank(value: string): boolean {
  return value.trim() === "";
}

/** What a sealed value is bound to, made from its row each time: a value moved to another row does not open. */
export function credentialAad(ref: CredentialRef): readonly string[] {
  return [ref.level, ref.userId ?? "", ref.name, String(ref.version)];
}
