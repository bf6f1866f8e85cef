/**
 * Seals values under a tenant's data key: JWE, `dir`, A256GCM. The additional authenticated data is
 * never stored: it is made again from the row on reading, so that a value moved to another row,
 * user, name or version does not open.
 */
import { createHmac, createSecretKey, hkdfSync, randomBytes, type KeyObject } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { decryptJwe, encodeHeader, encryptJwe } from "./jwe.ts";

interface TenantKeys {
  /** Of what is sealed with them. */
  readonly header: string;
  /** As objects: made of bytes each time, they cost more than their work. */
  readonly encrypt: KeyObject;
  readonly hmac: KeyObject;
  readonly signing: KeyObject;
}

interface HeldKeys {
  readonly keys: Promise<TenantKeys>;
  readonly askedAt: number;
}

/** How long a data key is held: a master key that was taken away closes what is stored this much later. */
const keyLifetimeMs = 15 * 60_000;
/** More tell no more than that something is wrong. */
const mostDoubts = 100;

export class Sealer {
  readonly #vault: KeyVault;
  readonly #clock: Clock;
  readonly #held = new Map<string, HeldKeys>();
  readonly #doubtful = new Set<string>();

  constructor(vault: KeyVault, clock: Clock) {
    this.#vault = vault;
    this.#clock = clock;
  }

  /** Tenants of whom a value could not be opened here; `unreadable-credentials.ts` finds out which. */
  get doubtfulTenants(): readonly string[] {
    return [...this.#doubtful];
  }

  /** All of the tenant's values have been found to open. */
  trust(tenant: string): void {
    this.#doubtful.delete(tenant);
  }

  /** A new data key for a tenant, wrapped, to be stored with it. */
  async newTenantKey(tenant: string): Promise<string> {
    return this.#vault.wrap(tenant, randomBytes(32));
  }

  /**
   * The same data key under the master key of today, so that an older master key can be put away. What
   * was sealed stays as it is. @throws GatewayError `credential_unreadable` where no known master key opens it
   */
  async rewrapTenantKey(tenant: string, wrappedKey: string): Promise<string> {
    return this.#vault.wrap(tenant, await this.#vault.unwrap(tenant, wrappedKey));
  }

  /** @throws GatewayError `credential_unreadable`, `master_key_unavailable` where the tenant's data key does not open */
  async openTenantKey(tenant: string, wrappedKey: string): Promise<void> {
    await this.#keysOf(tenant, wrappedKey);
  }

  /** @param wrappedKey the tenant's data key as stored */
  async seal(tenant: string, wrappedKey: string, aad: readonly string[], plaintext: string): Promise<string> {
    const keys = await this.#keysOf(tenant, wrappedKey);
    return encryptJwe(plaintext, { key: keys.encrypt, header: keys.header, aad: aadBytes(tenant, aad) });
  }

  /** @throws GatewayError `credential_unreadable` for a value sealed for another row or key */
  async open(tenant: string, wrappedKey: string, aad: readonly string[], sealed: string): Promise<string> {
    const keys = await this.#keysOf(tenant, wrappedKey);
    try {
      return decryptJwe(sealed, { key: keys.encrypt, aad: aadBytes(tenant, aad) });
    } catch (cause) {
      if (this.#doubtful.size < mostDoubts) this.#doubtful.add(tenant);
      throw new GatewayError("credential_unreadable", "A stored value cannot be opened with this tenant's key.", {
        cause,
      });
    }
  }

  /** Keyed hash: equal inputs of one tenant are equal, nothing is learned from it outside. */
  async hash(tenant: string, wrappedKey: string, text: string): Promise<string> {
    const keys = await this.#keysOf(tenant, wrappedKey);
    return createHmac("sha256", keys.hmac).update(text).digest("base64url");
  }

  /** Signature of a text that goes out and comes back; nothing else is ever signed with this key. */
  async sign(tenant: string, wrappedKey: string, text: string): Promise<Buffer> {
    const keys = await this.#keysOf(tenant, wrappedKey);
    return createHmac("sha256", keys.signing).update(text).digest();
  }

  #keysOf(tenant: string, wrappedKey: string): Promise<TenantKeys> {
    // With the tenant: whose key it is the vault checks, which is not asked about a key that is held.
    const name = `${tenant} ${wrappedKey}`;
    const now = this.#clock.now();
    const held = this.#held.get(name);
    if (held !== undefined && now - held.askedAt < keyLifetimeMs) return held.keys;
    this.#forgetOld(now);
    const keys = this.#load(tenant, wrappedKey);
    this.#held.set(name, { keys, askedAt: now });
    keys.catch(() => {
      if (this.#held.get(name)?.keys === keys) this.#held.delete(name);
    });
    return keys;
  }

  async #load(tenant: string, wrappedKey: string): Promise<TenantKeys> {
    const key = await this.#vault.unwrap(tenant, wrappedKey);
    const derive = (use: string): Uint8Array => new Uint8Array(hkdfSync("sha256", key, "", `toolyard/${use}`, 32));
    return {
      header: encodeHeader(this.#vault.currentKeyId),
      encrypt: createSecretKey(derive("seal")),
      hmac: createSecretKey(derive("hash")),
      signing: createSecretKey(derive("sign")),
    };
  }

  #forgetOld(now: number): void {
    for (const [name, { askedAt }] of this.#held) if (now - askedAt >= keyLifetimeMs) this.#held.delete(name);
  }
}

function aadBytes(tenant: string, parts: readonly string[]): Uint8Array {
  // Lengths keep ("a|b","c") and ("a","b|c") apart.
  return Buffer.from([tenant, ...parts].map((part) => `${part.length}:${part}`).join("|"), "utf8");
}
