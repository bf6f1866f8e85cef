/**
 * API keys: `ty_{tenant}_{secret}`. The tenant is part of the key so that the right database is asked
 * at once; the secret is 256 random bits of which only a hash is stored (design "Tenants, callers, secrets").
 */
import { hash, randomBytes } from "node:crypto";
import { idPrefixes } from "../ids.ts";

/** Tenant ids without their prefix; longer than any that we make, so that the pattern stays bounded. */
const keyPattern = /^ty_([0-9a-z]{1,40})_[A-Za-z0-9_-]{43}$/;
/** Characters of the secret that lists show. */
const hintLength = 4;

export interface NewApiKey {
  /** Shown once. */
  readonly key: string;
  readonly hash: string;
  /** First characters, for people. */
  readonly hint: string;
}

export function newApiKey(tenant: string): NewApiKey {
  const part = tenant.slice(idPrefixes.tenant.length + 1);
  const secret = randomBytes(32).toString("base64url");
  const key = `ty_${part}_${secret}`;
  return { key, hash: hashApiKey(key), hint: `ty_${part}_${secret.slice(0, hintLength)}` };
}

/** Hex SHA-256 of the whole key: the form in which it is stored and looked up. */
export function hashApiKey(key: string): string {
  return hash("sha256", key, "hex");
}

/** The tenant that a key names; `undefined` for text that is none of our keys. */
export function tenantOfApiKey(key: string): string | undefined {
  const part = keyPattern.exec(key)?.[1];
  return part === undefined ? undefined : `${idPrefixes.tenant}_${part}`;
}
