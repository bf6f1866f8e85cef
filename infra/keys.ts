/** Keys in KMS. Losing the master key means losing every stored credential, so a permanent stage never deletes it. */
import type { Permission } from "./permission.ts";
import { isPermanent, previousMasterKeys } from "./settings.ts";

const options = { protect: isPermanent, retainOnDelete: isPermanent };

function createKey(name: string, description: string): aws.kms.Key {
  const deletionWindowInDays = isPermanent ? 30 : 7;
  return new aws.kms.Key(name, { description, deletionWindowInDays, enableKeyRotation: true }, options);
}

/** Wraps the data key of each tenant, and nothing else. */
export const masterKey: aws.kms.Key = createKey("MasterKey", "Toolyard: wraps the data keys of tenants");

/** Encrypts blobs and the environment of the functions. */
export const storageKey: aws.kms.Key = createKey("StorageKey", "Toolyard: blobs and settings at rest");

/** Only in the name of a tenant: what was wrapped for one does not open for another. */
const forTenant = [{ test: "Null", variable: "kms:EncryptionContext:tenant", values: ["false"] }];

export const wrapTenantKeys: readonly Permission[] = [
  { actions: ["kms:Encrypt", "kms:Decrypt"], resources: [masterKey.arn], conditions: forTenant },
  // While rows are wrapped anew, earlier keys open what they have wrapped.
  ...previousMasterKeys.map((arn) => ({ actions: ["kms:Decrypt"], resources: [arn], conditions: forTenant })),
];
