/**
 * Wraps tenants' data keys with a key of KMS, which never leaves it (design "Tenants, callers, secrets").
 * The tenant is encryption context, so that a wrapped key moved to another tenant does not open, and every
 * use stands in CloudTrail under its tenant. What was wrapped names its key; only keys that the operator
 * has named are asked to open it, whatever a changed row says.
 */
import { createHash } from "node:crypto";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import { lazily } from "@toolyard/core/once";
import { readAwsError, reasonOf, unavailable } from "./aws-error.ts";
import { clientSettings, type AwsClientOptions } from "./client-options.ts";

export interface KmsKeyVaultOptions {
  /** Id, alias (`alias/…`) or ARN of the key that wraps from now on. */
  readonly keyId: string;
  /** Earlier ones, whose wrapped keys stay readable. */
  readonly previousKeyIds?: readonly string[];
  readonly client?: AwsClientOptions;
}

const mark = "kms";

/** Whether a key was wrapped here, or by a vault of another kind. */
export function isWrappedByKms(wrapped: string): boolean {
  return wrapped.startsWith(`${mark}.`);
}

export function createKmsKeyVault({ keyId, previousKeyIds = [], client: given = {} }: KmsKeyVaultOptions): KeyVault {
  const known = [keyId, ...previousKeyIds];
  const load = lazily(async () => {
    const sdk = await import("./sdk/kms.ts");
    return { ...sdk, client: new sdk.KMSClient(clientSettings({ ...regionOfKey(keyId), ...given })) };
  });

  /** Undefined: it is another key that wrapped this. */
  async function decrypt(KeyId: string, tenant: string, blob: Uint8Array): Promise<Uint8Array | undefined> {
    const { client, DecryptCommand } = await load();
    const request = { KeyId, CiphertextBlob: blob, EncryptionContext: { tenant } };
    try {
      return (await client.send(new DecryptCommand(request))).Plaintext;
    } catch (cause) {
      const { name } = readAwsError(cause);
      if (name === "IncorrectKeyException") return undefined;
      if (name === "InvalidCiphertextException") throw unreadable("it is damaged, or belongs to another tenant", cause);
      throw masterKeyUnavailable(cause);
    }
  }

  return {
    // Tells keys apart, and tells nothing about the account.
    currentKeyId: `${mark}-${createHash("sha256").update(keyId).digest("hex").slice(0, 12)}`,
    async wrap(tenant, key) {
      try {
        const { client, EncryptCommand } = await load();
        const request = { KeyId: keyId, Plaintext: key, EncryptionContext: { tenant } };
        const { CiphertextBlob, KeyId = "" } = await client.send(new EncryptCommand(request));
        if (CiphertextBlob === undefined) throw new Error("KMS answered without a ciphertext.");
        return [mark, Buffer.from(KeyId).toString("base64url"), Buffer.from(CiphertextBlob).toString("base64url")].join(
          ".",
        );
      } catch (cause) {
        throw masterKeyUnavailable(cause);
      }
    },
    async unwrap(tenant, wrapped) {
      const [, arn, blob] = /^kms\.([\w-]+)\.([\w-]+)$/.exec(wrapped) ?? [];
      if (arn === undefined || blob === undefined) throw unreadable("it was not wrapped with a key of KMS");
      const wrappedBy = Buffer.from(arn, "base64url").toString("utf8");
      for (const candidate of known.filter((each) => mayBe(each, wrappedBy))) {
        const key = await decrypt(candidate, tenant, Buffer.from(blob, "base64url"));
        if (key !== undefined) return key;
      }
      throw unreadable(`it was wrapped with the KMS key "${nameOf(wrappedBy)}", which this process was not given`);
    },
  };
}

/** An alias may stand for any key, and KMS knows which; an id or an ARN says it. */
function mayBe(named: string, arn: string): boolean {
  return /(^|:)alias\//.test(named) || idOf(named) === idOf(arn);
}

function idOf(name: string): string {
  return name.split("/").at(-1) ?? "";
}

/** Without the account. */
function nameOf(arn: string): string {
  return /^[\w-]{1,128}$/.test(idOf(arn)) ? idOf(arn) : "?";
}

function regionOfKey(keyId: string): { readonly region?: string } {
  const [, region] = /^arn:[\w-]+:kms:([\w-]+):/.exec(keyId) ?? [];
  return region === undefined ? {} : { region };
}

function unreadable(why: string, cause?: unknown): GatewayError {
  return new GatewayError(
    "credential_unreadable",
    `The tenant's data key does not open: ${why}. Name the key that wrapped it in TOOLYARD_MASTER_KEY, or in TOOLYARD_PREVIOUS_MASTER_KEYS as kms:<id or ARN>.`,
    { cause },
  );
}

function masterKeyUnavailable(cause: unknown): GatewayError {
  const message = `KMS did not do its part (${reasonOf(cause)}); see the log, and check TOOLYARD_MASTER_KEY, the key's state, and whether the process may use it (kms:Encrypt, kms:Decrypt).`;
  return unavailable("master_key_unavailable", message, cause);
}
