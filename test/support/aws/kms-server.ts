/** A KMS of one's own: keys with states and aliases, and encryption context that has to match. */
import { createCipheriv, createDecipheriv, randomBytes, randomUUID } from "node:crypto";
import * as z from "zod";
import { AwsFailure, jsonService, startAwsServer, type AwsServer } from "./aws-server.ts";
import type { Signer } from "./sigv4.ts";

interface Key {
  readonly id: string;
  readonly arn: string;
  readonly bytes: Buffer;
  state: "Enabled" | "Disabled" | "PendingDeletion" | "Denied";
}

export interface KmsServer extends AwsServer {
  /** A new key, under an alias where one is given; an alias that stood for another key stands for this one then. */
  addKey(alias?: string): Key;
}

const encryptSchema = z.object({
  KeyId: z.string(),
  Plaintext: z.base64(),
  EncryptionContext: z.record(z.string(), z.string()).default({}),
});
const decryptSchema = z.object({
  KeyId: z.string().optional(),
  CiphertextBlob: z.base64(),
  EncryptionContext: z.record(z.string(), z.string()).default({}),
});
const idBytes = 36;

export async function startKmsServer(signer?: Signer): Promise<KmsServer> {
  const keys = new Map<string, Key>();
  const aliases = new Map<string, string>();

  const find = (name: string): Key => {
    const last = name.replace(/^arn:.*?:(key|alias)\//, (_all, kind) => (kind === "alias" ? "alias/" : ""));
    const key = keys.get(aliases.get(last) ?? last);
    if (key === undefined) throw new AwsFailure("NotFoundException", `Key '${name}' does not exist`);
    return key;
  };
  const use = (key: Key): Key => {
    if (key.state === "Denied") throw new AwsFailure("AccessDeniedException", "Not authorized to use this key.");
    if (key.state === "Disabled") throw new AwsFailure("DisabledException", `${key.arn} is disabled.`);
    if (key.state === "PendingDeletion")
      throw new AwsFailure("KMSInvalidStateException", `${key.arn} is pending deletion.`);
    return key;
  };
  const contextBytes = (context: Readonly<Record<string, string>>): Buffer =>
    Buffer.from(JSON.stringify(Object.entries(context).toSorted(([a], [b]) => (a < b ? -1 : 1))));

  const server = await startAwsServer(
    jsonService("kms", {
      Encrypt(input) {
        const { KeyId, Plaintext, EncryptionContext } = encryptSchema.parse(input);
        const key = use(find(KeyId));
        const iv = randomBytes(12);
        const cipher = createCipheriv("aes-256-gcm", key.bytes, iv).setAAD(contextBytes(EncryptionContext));
        const parts = [
          Buffer.from(key.id),
          iv,
          cipher.update(Plaintext, "base64"),
          cipher.final(),
          cipher.getAuthTag(),
        ];
        return { KeyId: key.arn, CiphertextBlob: Buffer.concat(parts).toString("base64") };
      },
      Decrypt(input) {
        const { KeyId, CiphertextBlob, EncryptionContext } = decryptSchema.parse(input);
        const blob = Buffer.from(CiphertextBlob, "base64");
        const key = keys.get(blob.subarray(0, idBytes).toString("latin1"));
        if (key === undefined) throw new AwsFailure("InvalidCiphertextException", "");
        if (KeyId !== undefined && find(KeyId) !== key) {
          throw new AwsFailure("IncorrectKeyException", "The key is not the one that encrypted this.");
        }
        use(key);
        try {
          const iv = blob.subarray(idBytes, idBytes + 12);
          const decipher = createDecipheriv("aes-256-gcm", key.bytes, iv, { authTagLength: 16 });
          decipher.setAAD(contextBytes(EncryptionContext)).setAuthTag(blob.subarray(-16));
          const plain = Buffer.concat([decipher.update(blob.subarray(idBytes + 12, -16)), decipher.final()]);
          return { KeyId: key.arn, Plaintext: plain.toString("base64") };
        } catch {
          throw new AwsFailure("InvalidCiphertextException", "");
        }
      },
    }),
    signer,
  );
  return Object.assign(server, {
    addKey(alias?: string): Key {
      const id = randomUUID();
      const key: Key = {
        id,
        arn: `arn:aws:kms:${server.region}:000000000000:key/${id}`,
        bytes: randomBytes(32),
        state: "Enabled",
      };
      keys.set(id, key);
      if (alias !== undefined) aliases.set(alias, id);
      return key;
    },
  });
}
