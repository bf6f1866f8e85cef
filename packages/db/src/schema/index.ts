/** All tables: drizzle-kit writes migrations from here, and erasing a tenant visits each of them. */
export { apiKeys } from "./api-keys.ts";
export { jwtIssuers } from "./jwt-issuers.ts";
export { providers } from "./providers.ts";
export { shards } from "./shards.ts";
export { sysAiPlugin } from "./sys-ai-plugin.ts";
export { sysUserCredential } from "./sys-user-credential.ts";
export { tenants } from "./tenants.ts";
