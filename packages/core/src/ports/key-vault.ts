/** Wraps tenants' data keys under the operator's master key. Contract: test/contract/key-vault.ts. */
export interface KeyVault {
  /** Id of the key that `wrap` uses now; rows wrapped under older ids stay readable. */
  readonly currentKeyId: string;
  /** A text whose part before its last dot is the same for everything that one master key wraps. */
  wrap(tenant: string, key: Uint8Array): Promise<string>;
  /** @throws GatewayError `credential_unreadable` where the master key is not the one that wrapped it */
  unwrap(tenant: string, wrapped: string): Promise<Uint8Array>;
}
