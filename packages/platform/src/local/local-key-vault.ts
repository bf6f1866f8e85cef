/**
 * Wraps tenants' data keys under a master key that the operator holds (TOOLYARD_MASTER_KEY, or the
 * file made once in the data directory): AES-256-GCM, with key id and tenant authenticated, so that
 * a wrapped key moved to another tenant does not open. Stands in for a cloud key service.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { KeyVault } from "@toolyard/core/ports/key-vault";

const masterKeyBytes = 32;
const ivBytes = 12;
const tagBytes = 16;

interface WrappingKey {
  readonly id: string;
  readonly key: Uint8Array;
}

/**
 * @param options.masterKey 32 bytes, used for wrapping from now on
 * @param options.previousKeys earlier master keys, whose wrapped keys stay readable during a rotation
 */
export function createLocalKeyVault(options: {
  readonly masterKey: Uint8Array;
  readonly previousKeys?: readonly Uint8Array[];
}): KeyVault {
  const current = wrappingKey(options.masterKey);
  const known = new Map([...(options.previousKeys ?? []).map(wrappingKey), current].map((key) => [key.id, key]));

  return {
    currentKeyId: current.id,
    async wrap(tenant, key) {
      const iv = randomBytes(ivBytes);
      const cipher = createCipheriv("aes-256-gcm", current.key, iv).setAAD(boundTo(current.id, tenant));
      const sealed = Buffer.concat([iv, cipher.update(key), cipher.final(), cipher.getAuthTag()]);
      return `${current.id}.${sealed.toString("base64url")}`;
    },
    async unwrap(tenant, wrapped) {
      const [id = "", text = ""] = wrapped.split(".", 2);
      const wrapping = known.get(id);
      if (wrapping === undefined) {
        throw new GatewayError(
          "credential_unreadable",
          `The tenant's data key was wrapped under master key "${id}", and this process holds ${[...known.keys()].join(", ")}. ` +
            "Give it the master key that wrapped it: in TOOLYARD_MASTER_KEY (or master.key in the data directory), or in TOOLYARD_PREVIOUS_MASTER_KEYS.",
        );
      }
      try {
        return open(wrapping, tenant, Buffer.from(text, "base64url"));
      } catch (cause) {
        throw new GatewayError(
          "credential_unreadable",
          `The tenant's data key does not open under master key "${id}": it is damaged, or belongs to another tenant.`,
          { cause },
        );
      }
    },
  };
}

/**
 * A master key from its text: 64 hexadecimal digits, or base64 of 32 bytes (either alphabet).
 * @throws Error naming `source` for anything else, without quoting it
 */
export function parseMasterKey(text: string, source: string): Uint8Array {
  const trimmed = text.trim();
  if (/^[0-9a-fA-F]{64}$/.test(trimmed)) return Buffer.from(trimmed, "hex");
  if (/^[\w+/-]{43}=?$/.test(trimmed)) return Buffer.from(trimmed, "base64");
  throw new Error(`${source} must be 32 bytes, as 64 hexadecimal digits or as base64: openssl rand -base64 32`);
}

function open(wrapping: WrappingKey, tenant: string, sealed: Buffer): Uint8Array {
  const decipher = createDecipheriv("aes-256-gcm", wrapping.key, sealed.subarray(0, ivBytes), {
    authTagLength: tagBytes,
  });
  decipher.setAAD(boundTo(wrapping.id, tenant)).setAuthTag(sealed.subarray(-tagBytes));
  return Buffer.concat([decipher.update(sealed.subarray(ivBytes, -tagBytes)), decipher.final()]);
}

function wrappingKey(masterKey: Uint8Array): WrappingKey {
  if (masterKey.byteLength !== masterKeyBytes) {
    throw new Error(`A master key has ${masterKeyBytes} bytes; this one has ${masterKey.byteLength}.`);
  }
  // The id tells keys apart and tells nothing about them.
  const derive = (use: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync("sha256", masterKey, "", `toolyard/key-vault/${use}`, bytes));
  return { id: derive("id", 6).toString("hex"), key: derive("wrap", 32) };
}

function boundTo(keyId: string, tenant: string): Buffer {
  return Buffer.from(JSON.stringify(["toolyard/key-vault", keyId, tenant]), "utf8");
}
