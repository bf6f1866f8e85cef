/**
 * Persistence. The tenant is the first argument of every function that touches a tenant's rows and no
 * query can be written without one. Implementations run each function as ONE database round trip
 * unless its comment says otherwise. Times are epoch milliseconds of the database's clock.
 * Contract: test/contract/repos.ts. Every function throws GatewayError `database_unavailable` where
 * the database cannot be reached after bounded retries of what is safe to repeat.
 */
import type { AgentRepo } from "./agents.ts";
import type { BudgetRepo, PriceRepo, UsageRepo } from "./budgets.ts";
import type { ConnectionRepo } from "./connections.ts";
import type { FlowRepo } from "./flows.ts";
import type { GroupChatRepo } from "./group-chats.ts";
import type { KnowledgeRepo } from "./knowledge.ts";
import type { KnowledgeSearchRepo } from "./knowledge-search.ts";
import type { FlowRunRepo } from "./flow-runs.ts";
import type { NodeRepo } from "./nodes.ts";
import type { OAuthRepo } from "./oauth.ts";
import type { ScheduleRepo } from "./schedules.ts";
import type { SubscriptionRepo } from "./subscriptions.ts";
import type { TavernRepo } from "./tavern.ts";
import type { VcpCallbackRepo } from "./vcp-callbacks.ts";
import type { VcpStaticValueRepo } from "./vcp-static-values.ts";
import type { VariableRepo } from "./variables.ts";
import type { WebhookRepo } from "./webhooks.ts";
import type { ConfigRepo, TenantRepo } from "./tenants.ts";
import type { IssuerRepo } from "./issuers.ts";
import type { ApiKeyRepo } from "./api-keys.ts";
import type { PluginRepo } from "./plugins.ts";
import type { CredentialRepo } from "./credentials.ts";
import type { ProviderRepo } from "./providers.ts";
import type { BreakerRepo, ToolServiceRepo } from "./tool-services.ts";
import type { ArchiveRepo } from "./archives.ts";
import type { SessionRepo, UploadRepo } from "./sessions.ts";
import type { CallRepo } from "./calls.ts";

export interface Repos {
  readonly tenants: TenantRepo;
  readonly issuers: IssuerRepo;
  readonly apiKeys: ApiKeyRepo;
  readonly plugins: PluginRepo;
  readonly credentials: CredentialRepo;
  readonly providers: ProviderRepo;
  readonly agents: AgentRepo;
  readonly config: ConfigRepo;
  readonly calls: CallRepo;
  readonly archives: ArchiveRepo;
  readonly sessions: SessionRepo;
  readonly uploads: UploadRepo;
  readonly budgets: BudgetRepo;
  readonly prices: PriceRepo;
  readonly usage: UsageRepo;
  readonly oauth: OAuthRepo;
  readonly webhooks: WebhookRepo;
  readonly services: ToolServiceRepo;
  readonly breakers: BreakerRepo;
  readonly connections: ConnectionRepo;
  readonly flowRuns: FlowRunRepo;
  readonly nodes: NodeRepo;
  readonly schedules: ScheduleRepo;
  readonly subscriptions: SubscriptionRepo;
  readonly tavern: TavernRepo;
  readonly groupChats: GroupChatRepo;
  readonly vcpCallbacks: VcpCallbackRepo;
  readonly vcpStaticValues: VcpStaticValueRepo;
  readonly knowledgeSearch: KnowledgeSearchRepo;
  readonly variables: VariableRepo;
  readonly flows: FlowRepo;
  readonly knowledge: KnowledgeRepo;
  /**
   * Cheap round trip, for readiness.
   * @param options.writes asks for a write as well: a database whose disk is full can still be read
   */
  ping(options?: { readonly writes?: boolean }): Promise<void>;
}
