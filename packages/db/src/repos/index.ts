/** All repositories over the shards. */
import type { Repos } from "@toolyard/core/ports/repos";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Database, Shards, Statement } from "../database.ts";
import { createApiKeyRepo } from "./api-keys.ts";
import { createCallRepo } from "./calls.ts";
import { createConfigRepo } from "./config.ts";
import { late } from "./late.ts";
import type { OnBrokenRow } from "./rows.ts";

export interface RepoOptions {
  /** Hears of rows that were left out because they cannot be read. */
  readonly onBrokenRow?: OnBrokenRow;
  /** The operator's upper bounds: they hold wherever a tenant's settings are read, and are never stored. */
  readonly caps?: SettingsCaps;
}

const readProbe: readonly Statement[] = [{ sql: "SELECT 1", args: [] }];
/** Writes a page and leaves nothing. */
const writeProbe: readonly Statement[] = [
  `INSERT INTO connection_tickets (hash, tenant, caller, expires_at) VALUES ('_canary', '_canary', '{}', 0)
    ON CONFLICT DO NOTHING`,
  "DELETE FROM connection_tickets WHERE hash = '_canary'",
].map((sql) => ({ sql, args: [] }));

/** What every request needs is there at once; the others are read when they are asked. */
export function createRepos(shards: Shards, { onBrokenRow = () => undefined, caps = {} }: RepoOptions = {}): Repos {
  return {
    apiKeys: createApiKeyRepo(shards, onBrokenRow),
    config: createConfigRepo(shards, caps, onBrokenRow),
    calls: createCallRepo(shards, caps, onBrokenRow),
    tenants: late(async () => (await import("./tenants.ts")).createTenantRepo(shards, onBrokenRow)),
    issuers: late(async () => (await import("./issuers.ts")).createIssuerRepo(shards, onBrokenRow)),
    agents: late(async () => (await import("./agents.ts")).createAgentRepo(shards, onBrokenRow)),
    plugins: late(async () => (await import("./plugins.ts")).createPluginRepo(shards, onBrokenRow)),
    credentials: late(async () => (await import("./credentials.ts")).createCredentialRepo(shards, onBrokenRow)),
    providers: late(async () => (await import("./providers.ts")).createProviderRepo(shards, onBrokenRow)),
    archives: late(async () => (await import("./archives.ts")).createArchiveRepo(shards, caps)),
    sessions: late(async () => (await import("./sessions.ts")).createSessionRepo(shards, caps)),
    uploads: late(async () => (await import("./uploads.ts")).createUploadRepo(shards, caps)),
    budgets: late(async () => (await import("./budgets.ts")).createBudgetRepo(shards)),
    prices: late(async () => (await import("./prices.ts")).createPriceRepo(shards, onBrokenRow)),
    usage: late(async () => (await import("./usage.ts")).createUsageRepo(shards)),
    oauth: late(async () => (await import("./oauth.ts")).createOAuthRepo(shards)),
    webhooks: late(async () => (await import("./webhooks.ts")).createWebhookRepo(shards, onBrokenRow)),
    services: late(async () => (await import("./tool-services.ts")).createToolServiceRepo(shards, onBrokenRow)),
    breakers: late(async () => (await import("./breakers.ts")).createBreakerRepo(shards)),
    connections: late(async () => (await import("./connections.ts")).createConnectionRepo(shards, caps, onBrokenRow)),
    nodes: late(async () => (await import("./nodes.ts")).createNodeRepo(shards, onBrokenRow)),
    subscriptions: late(async () => (await import("./subscriptions.ts")).createSubscriptionRepo(shards, onBrokenRow)),
    tavern: late(async () => (await import("./tavern.ts")).createTavernRepo(shards)),
    vcpCallbacks: late(async () => (await import("./vcp-callbacks.ts")).createVcpCallbackRepo(shards)),
    vcpStaticValues: late(async () => (await import("./vcp-static-values.ts")).createVcpStaticValueRepo(shards)),
    variables: late(async () => (await import("./variables.ts")).createVariableRepo(shards, onBrokenRow)),
    flowRuns: late(async () => (await import("./flow-runs.ts")).createFlowRunRepo(shards, onBrokenRow)),
    schedules: late(async () => (await import("./schedules.ts")).createScheduleRepo(shards, onBrokenRow)),
    groupChats: late(async () => (await import("./group-chats.ts")).createGroupChatRepo(shards, onBrokenRow)),
    knowledgeSearch: late(async () =>
      (await import("./knowledge-search.ts")).createKnowledgeSearchRepo(shards, onBrokenRow),
    ),
    flows: late(async () => (await import("./flows.ts")).createFlowRepo(shards, onBrokenRow)),
    knowledge: late(async () => (await import("./knowledge.ts")).createKnowledgeRepo(shards, onBrokenRow)),
    ping: async ({ writes = false } = {}) => {
      const ask = (database: Database): Promise<unknown> =>
        writes ? database.batch(writeProbe, { repeatable: true }) : database.batch(readProbe, { readonly: true });
      await Promise.all(shards.all().map(ask));
    },
  };
}
