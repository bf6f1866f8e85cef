/** Data keys wrapped by KMS, by the real client, against a server that keeps KMS's rules. */
import { randomBytes } from "node:crypto";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import { createKmsKeyVault } from "@toolyard/platform/aws/kms-key-vault";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AwsFault } from "../support/aws/aws-server.ts";
import { startKmsServer, type KmsServer } from "../support/aws/kms-server.ts";
import { describeKeyVault } from "./key-vault.ts";

let kms: KmsServer;
beforeAll(async () => {
  kms = await startKmsServer();
});
afterAll(() => kms.close());

const vaultOf = (keyId: string, ...previousKeyIds: readonly string[]): KeyVault =>
  createKmsKeyVault({ keyId, previousKeyIds, client: kms.client });

describeKeyVault("KMS", async () => vaultOf(kms.addKey().arn));
describeKeyVault("KMS, by alias", async () => {
  const alias = `alias/${randomBytes(4).toString("hex")}`;
  kms.addKey(alias);
  return vaultOf(alias);
});

describe("a key vault in KMS", () => {
  const key = randomBytes(32);
  const plain = async (vault: KeyVault, wrapped: string): Promise<Buffer> =>
    Buffer.from(await vault.unwrap("ten_1", wrapped));

  test("is asked with the tenant as context, and says nothing of the account", async () => {
    const { arn } = kms.addKey();
    const vault = vaultOf(arn);
    await vault.unwrap("ten_1", await vault.wrap("ten_1", key));
    const asked = kms.requests.slice(-2).map(({ body }) => JSON.parse(body.toString()) as object);
    expect(asked).toMatchObject([
      { EncryptionContext: { tenant: "ten_1" } },
      { EncryptionContext: { tenant: "ten_1" } },
    ]);
    expect(vault.currentKeyId).toMatch(/^kms-[0-9a-f]{12}$/);
    expect(vault.currentKeyId).toBe(vaultOf(arn).currentKeyId);
  });

  test("opens what its key wrapped under whatever name the key was given", async () => {
    const alias = "alias/names";
    const { arn, id } = kms.addKey(alias);
    const wrapped = await vaultOf(alias).wrap("ten_1", key);
    for (const name of [arn, id, alias, `arn:aws:kms:${kms.region}:000000000000:${alias}`]) {
      expect(await plain(vaultOf(name), wrapped)).toEqual(key);
    }
  });

  test("keeps what earlier keys wrapped readable while they are named, and only then", async () => {
    const [old, older, current] = [kms.addKey(), kms.addKey(), kms.addKey()];
    const wrapped = [await vaultOf(old.arn).wrap("ten_1", key), await vaultOf(older.arn).wrap("ten_1", key)];
    for (const each of wrapped) {
      expect(await plain(vaultOf(current.arn, old.id, older.arn), each)).toEqual(key);
      await expect(vaultOf(current.arn).unwrap("ten_1", each)).rejects.toMatchObject({
        code: "credential_unreadable",
        message: expect.stringMatching(/TOOLYARD_PREVIOUS_MASTER_KEYS/),
      });
    }
    expect((await vaultOf(current.arn, old.arn).wrap("ten_1", key)).split(".")[1]).toBe(
      Buffer.from(current.arn).toString("base64url"),
    );
  });

  test("says which key is missing where an alias was given to another one, and opens once it is named", async () => {
    const old = kms.addKey("alias/moved");
    const wrapped = await vaultOf("alias/moved").wrap("ten_1", key);
    kms.addKey("alias/moved");
    const failed: unknown = await vaultOf("alias/moved")
      .unwrap("ten_1", wrapped)
      .catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: "credential_unreadable", message: expect.stringContaining(old.id) });
    expect(String(failed)).not.toContain("000000000000");
    expect(await plain(vaultOf("alias/moved", old.arn), wrapped)).toEqual(key);
  });

  test.for([
    ["Disabled", "DisabledException"],
    ["PendingDeletion", "KMSInvalidStateException"],
    ["Denied", "AccessDeniedException"],
  ] as const)("whose key is %s is unavailable and not unreadable", async ([state, name]) => {
    const own = kms.addKey();
    const vault = vaultOf(own.arn);
    const wrapped = await vault.wrap("ten_1", key);
    own.state = state;
    for (const attempt of [vault.unwrap("ten_1", wrapped), vault.wrap("ten_1", key)]) {
      await expect(attempt).rejects.toMatchObject({
        code: "master_key_unavailable",
        message: expect.stringMatching(new RegExp(`${name}.*TOOLYARD_MASTER_KEY`)),
      });
    }
    own.state = "Enabled";
    expect(await plain(vault, wrapped)).toEqual(key);
  });

  test("that was never made is unavailable", async () => {
    await expect(vaultOf("alias/none").wrap("ten_1", key)).rejects.toMatchObject({
      code: "master_key_unavailable",
      spec: { http: 503, retryable: true },
    });
  });

  test.for([
    [{ kind: "reset" } satisfies AwsFault],
    [{ kind: "reply", reply: { status: 400, body: '{"__type":"ThrottlingException"}' } } satisfies AwsFault],
  ])("is asked again where it fails for a moment (%o)", async ([fault]) => {
    const vault = vaultOf(kms.addKey().arn);
    kms.faults.push(...(fault === undefined ? [] : [fault, fault]));
    expect(await plain(vault, await vault.wrap("ten_1", key))).toEqual(key);
    expect(kms.faults).toEqual([]);
  });
});
