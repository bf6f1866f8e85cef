/** What is used of the KMS client, in a module of its own, so that it is loaded at the first use. */
export { DecryptCommand, EncryptCommand, KMSClient } from "@aws-sdk/client-kms";
