/** All tables: drizzle-kit writes migrations from here, and erasing a tenant visits each of them. */
export { apiKeys } from "./api-keys.ts";
export { calls } from "./calls.ts";
export { jwtIssuers } from "./jwt-issuers.ts";
export { keptTurns } from "./kept-turns.ts";
export { providers } from "./providers.ts";
export { queueMessages } from "./queue-messages.ts";
export { rateWindows } from "./rate-windows.ts";
export { replies } from "./replies.ts";
export { sessions } from "./sessions.ts";
export { shards } from "./shards.ts";
export { sysAiPlugin } from "./sys-ai-plugin.ts";
export { sysUserCredential } from "./sys-user-credential.ts";
export { tenants } from "./tenants.ts";
export { workspaceFiles } from "./workspace-files.ts";
