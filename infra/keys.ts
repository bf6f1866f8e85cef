/** Keys in KMS. Losing the master key means losing every stored credential, so a permanent stage never deletes it. */
import type { Permission } from "./permission.ts";
import { isPermanent } from "./settings.ts";

const options = { protect: isPermanent, retainOnDelete: isPermanent };

function createKey(name: string, description: string): aws.kms.Key {
  const deletionWindowInDays = isPermanent ? 30 : 7;
  return new aws.kms.Key(name, { description, deletionWindowInDays, enableKeyRotation: true }, options);
}

/** Wraps the data key of each tenant, and nothing else. */
export const masterKey: aws.kms.Key = createKey("MasterKey", "Toolyard: wraps the data keys of tenants");

/** Encrypts blobs and the environment of the functions. */
export const storageKey: aws.kms.Key = createKey("StorageKey", "Toolyard: blobs and settings at rest");

export const wrapTenantKeys: Permission = {
  actions: ["kms:Encrypt", "kms:Decrypt"],
  resources: [masterKey.arn],
};
