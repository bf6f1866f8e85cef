/**
 * The steps of the schema, in order; each is `migrations/{name}.sql`. Steps are made by `npm run
 * db:generate` and expand first, contract later: while a release rolls out, old instances keep serving.
 */
export interface MigrationStep {
  readonly version: number;
  readonly name: string;
  /** Lowest `schemaVersion` of code that still works once this step is done. Older code refuses to start. */
  readonly oldestCode: number;
}

export const migrations: readonly MigrationStep[] = [
  { version: 1, name: "0000_initial", oldestCode: 1 },
  { version: 2, name: "0001_default_shard", oldestCode: 1 },
  { version: 3, name: "0002_meter", oldestCode: 1 },
  { version: 4, name: "0003_webhooks", oldestCode: 1 },
  { version: 5, name: "0004_webhook_events", oldestCode: 1 },
  { version: 6, name: "0005_workspace_uploads", oldestCode: 1 },
  { version: 7, name: "0006_call_archives", oldestCode: 1 },
  { version: 8, name: "0007_provider_schema_family", oldestCode: 1 },
  { version: 9, name: "0008_tool_services", oldestCode: 1 },
  { version: 10, name: "0009_connections", oldestCode: 1 },
  { version: 11, name: "0010_connection_events", oldestCode: 1 },
  { version: 12, name: "0011_nodes", oldestCode: 1 },
  { version: 13, name: "0012_service_breakers", oldestCode: 1 },
  { version: 14, name: "0013_subscriptions", oldestCode: 1 },
  { version: 15, name: "0014_lighter_triggers", oldestCode: 1 },
  { version: 16, name: "0015_tavern_items", oldestCode: 1 },
  { version: 17, name: "0016_vcp_callbacks", oldestCode: 1 },
  { version: 18, name: "0017_vcp_variables", oldestCode: 1 },
  { version: 19, name: "0018_knowledge", oldestCode: 1 },
  { version: 20, name: "0019_flows", oldestCode: 1 },
  { version: 21, name: "0020_flow_runs", oldestCode: 1 },
  { version: 22, name: "0021_agents", oldestCode: 1 },
  { version: 23, name: "0022_schedules", oldestCode: 1 },
  { version: 24, name: "0023_group_chats", oldestCode: 1 },
  { version: 25, name: "0024_vcp_upkeep", oldestCode: 1 },
  { version: 26, name: "0025_knowledge_addresses", oldestCode: 1 },
  { version: 27, name: "0026_turns", oldestCode: 1 },
  { version: 28, name: "0027_sessions_of_schedules", oldestCode: 1 },
  { version: 29, name: "0028_pending_deliveries", oldestCode: 1 },
  { version: 30, name: "0029_tenant_appliers", oldestCode: 1 },
];

/** What this code was written for. */
export const schemaVersion: number = migrations.at(-1)?.version ?? 0;
