/** All repositories over the shards. */
import type { Repos } from "@toolyard/core/ports/repos";
import type { Shards } from "../database.ts";
import { createAgentRepo } from "./agents.ts";
import { createApiKeyRepo } from "./api-keys.ts";
import { createArchiveRepo } from "./archives.ts";
import { createBreakerRepo } from "./breakers.ts";
import { createBudgetRepo } from "./budgets.ts";
import { createCallRepo } from "./calls.ts";
import { createConfigRepo } from "./config.ts";
import { createConnectionRepo } from "./connections.ts";
import { createCredentialRepo } from "./credentials.ts";
import { createIssuerRepo } from "./issuers.ts";
import { createLateRepos } from "./late-repos.ts";
import { createNodeRepo } from "./nodes.ts";
import { createOAuthRepo } from "./oauth.ts";
import { createPluginRepo } from "./plugins.ts";
import { createPriceRepo } from "./prices.ts";
import { createProviderRepo } from "./providers.ts";
import type { OnBrokenRow } from "./rows.ts";
import { createSessionRepo } from "./sessions.ts";
import { createSubscriptionRepo } from "./subscriptions.ts";
import { createTavernRepo } from "./tavern.ts";
import { createTenantRepo } from "./tenants.ts";
import { createToolServiceRepo } from "./tool-services.ts";
import { createUploadRepo } from "./uploads.ts";
import { createUsageRepo } from "./usage.ts";
import { createVcpCallbackRepo } from "./vcp-callbacks.ts";
import { createVcpStaticValueRepo } from "./vcp-static-values.ts";
import { createVariableRepo } from "./variables.ts";
import { createWebhookRepo } from "./webhooks.ts";

export interface RepoOptions {
  /** Hears of rows that were left out because they cannot be read. */
  readonly onBrokenRow?: OnBrokenRow;
}

export function createRepos(shards: Shards, { onBrokenRow = () => undefined }: RepoOptions = {}): Repos {
  return {
    tenants: createTenantRepo(shards, onBrokenRow),
    issuers: createIssuerRepo(shards, onBrokenRow),
    agents: createAgentRepo(shards, onBrokenRow),
    apiKeys: createApiKeyRepo(shards, onBrokenRow),
    plugins: createPluginRepo(shards, onBrokenRow),
    credentials: createCredentialRepo(shards, onBrokenRow),
    providers: createProviderRepo(shards, onBrokenRow),
    config: createConfigRepo(shards, onBrokenRow),
    calls: createCallRepo(shards),
    archives: createArchiveRepo(shards),
    sessions: createSessionRepo(shards),
    uploads: createUploadRepo(shards),
    budgets: createBudgetRepo(shards),
    prices: createPriceRepo(shards, onBrokenRow),
    usage: createUsageRepo(shards),
    oauth: createOAuthRepo(shards),
    webhooks: createWebhookRepo(shards),
    services: createToolServiceRepo(shards, onBrokenRow),
    breakers: createBreakerRepo(shards),
    connections: createConnectionRepo(shards),
    nodes: createNodeRepo(shards),
    subscriptions: createSubscriptionRepo(shards, onBrokenRow),
    tavern: createTavernRepo(shards),
    vcpCallbacks: createVcpCallbackRepo(shards),
    vcpStaticValues: createVcpStaticValueRepo(shards),
    variables: createVariableRepo(shards, onBrokenRow),
    ...createLateRepos(shards, onBrokenRow),
    ping: async () => {
      const select = [{ sql: "SELECT 1", args: [] }];
      await Promise.all(shards.all().map((database) => database.batch(select, { readonly: true })));
    },
  };
}
