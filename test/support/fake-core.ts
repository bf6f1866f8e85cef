/** A core whose ports do what a test says and refuse everything else, so that nothing is used unnoticed. */
import { ConfigCache } from "@toolyard/core/config-cache";
import { defaultTiming } from "@toolyard/core/deps";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { AdmitInput, AdmitResult } from "@toolyard/core/ports/calls";
import type { Repos } from "@toolyard/core/ports/repos";
import type { LogFields, LogLevel } from "@toolyard/core/ports/log";
import { OpenBreakers } from "@toolyard/core/services/open-breakers";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import type { Caller } from "@toolyard/core/callers/caller";

export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

export interface FakeCore extends CoreDeps {
  readonly lines: LogLine[];
}

/** Any use throws, naming what was used. */
export function unscripted<Port extends object>(name: string): Port {
  return new Proxy<Port>({} as Port, {
    get(_target, property) {
      if (typeof property === "symbol" || property === "then" || property === "toJSON") return undefined;
      return () => {
        throw new Error(`${name}.${property} was not expected to be used`);
      };
    },
  });
}

const fakeRepo = <Name extends keyof Repos>(name: Name): Exclude<Repos[Name], () => Promise<void>> =>
  unscripted(`repos.${name}`);

export interface FakeCoreOptions {
  readonly core?: Partial<CoreDeps>;
  readonly repos?: Partial<Repos>;
  readonly admit?: (input: AdmitInput) => Promise<AdmitResult>;
}

export function createFakeCore({ core = {}, repos = {}, admit }: FakeCoreOptions = {}): FakeCore {
  const lines: LogLine[] = [];
  const allRepos: Repos = {
    tenants: fakeRepo("tenants"),
    issuers: fakeRepo("issuers"),
    apiKeys: fakeRepo("apiKeys"),
    plugins: fakeRepo("plugins"),
    credentials: fakeRepo("credentials"),
    providers: fakeRepo("providers"),
    agents: fakeRepo("agents"),
    config: { load: (tenant) => Promise.resolve(emptyConfig(tenant)) },
    calls: admit === undefined ? fakeRepo("calls") : { ...fakeRepo("calls"), admit },
    archives: fakeRepo("archives"),
    sessions: fakeRepo("sessions"),
    uploads: fakeRepo("uploads"),
    budgets: fakeRepo("budgets"),
    prices: fakeRepo("prices"),
    usage: fakeRepo("usage"),
    oauth: fakeRepo("oauth"),
    webhooks: fakeRepo("webhooks"),
    services: fakeRepo("services"),
    breakers: fakeRepo("breakers"),
    connections: fakeRepo("connections"),
    flowRuns: fakeRepo("flowRuns"),
    nodes: fakeRepo("nodes"),
    schedules: fakeRepo("schedules"),
    subscriptions: fakeRepo("subscriptions"),
    tavern: fakeRepo("tavern"),
    groupChats: fakeRepo("groupChats"),
    vcpCallbacks: fakeRepo("vcpCallbacks"),
    vcpStaticValues: fakeRepo("vcpStaticValues"),
    variables: fakeRepo("variables"),
    flows: fakeRepo("flows"),
    knowledge: fakeRepo("knowledge"),
    knowledgeSearch: fakeRepo("knowledgeSearch"),
    ping: () => Promise.reject(new Error("repos.ping was not expected to be used")),
    ...repos,
  };
  const clock = { now: () => Date.now(), sleep: () => Promise.resolve() };
  return {
    repos: allRepos,
    blobs: unscripted("blobs"),
    queue: unscripted("queue"),
    answers: unscripted("answers"),
    tellNow: () => Promise.reject(new Error("tellNow was not expected to be used")),
    sealer: new Sealer(unscripted("keyVault"), clock),
    egress: unscripted("egress"),
    mail: unscripted("mail"),
    brokers: unscripted("brokers"),
    tokens: unscripted("tokens"),
    clock,
    openBreakers: new OpenBreakers(),
    configs: new ConfigCache(allRepos.config),
    log: { log: (level, message, fields = {}) => void lines.push({ level, message, fields }) },
    reach: () => undefined,
    timing: defaultTiming,
    publicUrl: "http://127.0.0.1:8787",
    adapters: {},
    ...core,
    lines,
  };
}

export function emptyConfig(tenant: string): TenantConfig {
  const settings = tenantSettingsSchema.parse({});
  return {
    tenant,
    version: 1,
    settings,
    plugins: [],
    services: [],
    nodes: [],
    tavern: [],
    flows: [],
    variables: [],
    agents: [],
    providers: [],
    credentials: [],
    budgets: [],
    prices: { own: [], operator: [] },
    unreadable: [],
    wrappedKey: "wrapped",
  };
}

/** What the database says to a caller who may come in. */
export function admitted(tenant: string, caller: Caller, change: Partial<AdmitResult> = {}): AdmitResult {
  return {
    tenant: { id: tenant, status: "active", configVersion: 1 },
    settings: tenantSettingsSchema.parse({}),
    caller,
    outcome: { kind: "admitted", slots: 0 },
    rate: { limit: 100, remaining: 99, resetMs: 30_000 },
    turns: [],
    ...change,
  };
}
