/**
 * Persistence. The tenant is the first argument of every function that touches a tenant's rows and no
 * query can be written without one. Implementations run each function as ONE database round trip
 * unless its comment says otherwise. Times are epoch milliseconds of the database's clock.
 * Contract: test/contract/repos.ts. Every function throws GatewayError `database_unavailable` where
 * the database cannot be reached after bounded retries of what is safe to repeat.
 */
import type { Amount, BudgetRefusal } from "../budgets/budget.ts";
import type { Spent } from "../budgets/chat-meter.ts";
import type { CallCost } from "../budgets/cost.ts";
import type { Call, CallDecision, CallError, CallState, CallerLink, StoredOutcome, Usage } from "../calls/call.ts";
import type { Caller, Role, Scope } from "../callers/caller.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import type { ProviderRecord } from "../chat/providers/provider.ts";
import type { StoredCredential } from "../secrets/credential.ts";
import type { OpenBreaker } from "../services/open-breakers.ts";
import type { Discovered, NewToolService, ToolService, ToolServiceChange } from "../services/service.ts";
import type { TenantConfig, TenantSettings } from "../tenant-config.ts";
import type { Effect, Repeat } from "../tools/tool.ts";
import type { ToolScheme } from "../tools/uri.ts";
import type { Listeners } from "../realtime/connection.ts";
import type { AgentRepo } from "./agents.ts";
import type { ClaimResult } from "./claim-result.ts";
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

export interface PageRequest {
  /** 1 to 100. */
  readonly limit: number;
  /** Id after which the page starts, in the given order. */
  readonly after?: string;
  readonly order: "asc" | "desc";
}
/** Calls leave the list as they are archived; whoever walks through all of it remembers where it was. */
export interface CallPageRequest extends PageRequest {
  /** The page starts after this place, whatever has become of the call; instead of `after`. */
  readonly beyond?: { readonly createdAt: number; readonly id: string };
}
export interface Page<T> {
  readonly data: readonly T[];
  readonly hasMore: boolean;
  /** Belongs to it and is not in `data`; absent where everything can be read. */
  readonly unreadable?: readonly UnreadableItem[];
}

/** What is stored in a form that this release does not know. */
export interface UnreadableItem {
  readonly id: string;
  /** A sentence, without the values. */
  readonly message: string;
  /** Its place in the page, among those that can be read. */
  readonly at: number;
}

export interface Tenant {
  readonly id: string;
  readonly name: string;
  readonly status: "active" | "suspended";
  readonly configVersion: number;
  readonly settings: Partial<TenantSettings>;
  /** Data key wrapped by the key vault. */
  readonly wrappedKey: string;
  readonly createdAt: number;
}

/** A tenant's data key as it is stored, among those that the same master key has wrapped. */
export interface WrappedKeySample {
  readonly tenant: string;
  readonly wrappedKey: string;
  /** Equal for what one master key has wrapped, as the key vaults write it: everything before the last dot. */
  readonly wrappedBy: string;
}

/** Tenants and what is needed to find one; the only repository without a tenant argument. */
export interface TenantRepo {
  create(tenant: {
    readonly id: string;
    readonly name: string;
    readonly wrappedKey: string;
    readonly settings: Partial<TenantSettings>;
  }): Promise<Tenant>;
  get(id: string): Promise<Tenant | undefined>;
  list(page: PageRequest): Promise<Page<Tenant>>;
  /** Of each master key that tenants' keys are wrapped under: so many of those, at most. Looks at all tenants. */
  sampleWrappedKeys(ofEach: number): Promise<readonly WrappedKeySample[]>;
  /** Raises the config version. `undefined`: no such tenant, or it has another version than expected. */
  update(
    id: string,
    change: {
      readonly name?: string;
      readonly status?: Tenant["status"];
      readonly settings?: Partial<TenantSettings>;
      readonly wrappedKey?: string;
      readonly expectedConfigVersion?: number;
    },
  ): Promise<Tenant | undefined>;
  /**
   * Only one applies a document of the tenant's configuration at a time: for so many milliseconds from now it is
   * `applier`, who may ask again; 0 gives it back. The config version stays. False: it is another, or there is no tenant.
   */
  holdApply(id: string, applier: string, forMs: number): Promise<boolean>;
  /**
   * Removes every row of the tenant in every table, but for the message `afterErasure`. Blobs are the caller's.
   * @param options `everywhere`: in every database, since nothing says any more in which one the tenant was
   */
  erase(id: string, options?: { readonly everywhere?: boolean }): Promise<boolean>;
}

export interface TrustedIssuer {
  readonly id: string;
  readonly tenant: string;
  readonly issuer: string;
  readonly audience: string;
  readonly jwksUrl: string;
  /** Claim names for role, scopes, tools and business unit. */
  readonly claims: {
    readonly role?: string;
    readonly scopes?: string;
    readonly tools?: string;
    readonly businessUnit?: string;
  };
  readonly defaultRole: Role;
  readonly defaultScopes: readonly Scope[];
  /**
   * In ids of its users ':' and '%' of issuer and subject are written as %3A and %25. Of an issuer whose users could
   * else be taken for those of another: the name of one, with a ':' after it, is how the other's begins. Said once, as
   * the second of them becomes trusted, so that nobody's id ever changes.
   */
  readonly escapesIds: boolean;
  readonly createdAt: number;
}
/** As a whole: whoever changes it was asked whether all of it may be handed out. */
export type TrustedIssuerChange = Pick<TrustedIssuer, "jwksUrl" | "claims" | "defaultRole" | "defaultScopes">;
export interface IssuerRepo {
  create(tenant: string, issuer: Omit<TrustedIssuer, "tenant" | "createdAt" | "escapesIds">): Promise<TrustedIssuer>;
  get(tenant: string, id: string): Promise<TrustedIssuer | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<TrustedIssuer>>;
  /** How ids of its users are written stays as it is. */
  update(tenant: string, id: string, change: TrustedIssuerChange): Promise<TrustedIssuer | undefined>;
  delete(tenant: string, id: string): Promise<boolean>;
  /** All tenants that trust this issuer for one of these audiences; JWT authentication only. */
  find(issuer: string, audiences: readonly string[]): Promise<readonly TrustedIssuer[]>;
}

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly role: Exclude<Role, "operator">;
  readonly scopes: readonly Scope[];
  readonly tools: readonly string[] | null;
  readonly userId: string | null;
  readonly businessUnit: string | null;
  readonly requestsPerMinute: number | null;
  readonly concurrentRequests: number | null;
  /** First characters of the key, for people. */
  readonly hint: string;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly createdAt: number;
}
export interface ApiKeyRepo {
  /** `hash`: hex SHA-256 of the whole key. */
  create(tenant: string, key: Omit<ApiKey, "createdAt" | "revokedAt"> & { readonly hash: string }): Promise<ApiKey>;
  list(tenant: string, page: PageRequest): Promise<Page<ApiKey>>;
  get(tenant: string, id: string): Promise<ApiKey | undefined>;
  revoke(tenant: string, id: string): Promise<boolean>;
}

export type NewPlugin = Omit<PluginRecord, "pluginId" | "createdAt" | "updatedAt">;

/** Many changes at once, as an import makes them. */
export interface PluginChanges {
  readonly create: readonly NewPlugin[];
  /** Keeps the name and whether it is enabled; written only where the row is still as it was when this was decided. */
  readonly update: readonly { readonly pluginId: number; readonly expectedHash: string; readonly plugin: NewPlugin }[];
  readonly delete: readonly number[];
}

/** `get` and `list` include the global NATIVE rows; no tenant can change those. Pages end at `plg_{pluginId}`. */
export interface PluginRepo {
  /** @throws GatewayError `conflict` (param `name`) for a taken name, or too many plugins */
  create(tenant: string, plugin: NewPlugin): Promise<PluginRecord>;
  /** @throws GatewayError `conflict` (param `name`) for a name taken by another plugin */
  update(tenant: string, pluginId: number, plugin: NewPlugin): Promise<PluginRecord | undefined>;
  setEnabled(tenant: string, pluginId: number, enabled: boolean): Promise<PluginRecord | undefined>;
  get(tenant: string, pluginId: number): Promise<PluginRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<PluginRecord>>;
  delete(tenant: string, pluginId: number): Promise<boolean>;
  /**
   * In as few round trips as the rows fit into: a batch of at most 250 rows and 1 MiB of text each, one
   * after the other. Returns the ids of those created or updated that are now as given, by name; one that
   * is absent was taken or changed by somebody else. Doing it again changes nothing more. Where there is no
   * room for all that is to be created, nothing is.
   * @throws GatewayError `conflict` (param `name`) for too many plugins
   */
  upsertMany(tenant: string, changes: PluginChanges): Promise<ReadonlyMap<string, number>>;
  /** Writes the global NATIVE rows (no tenant); part of migration. */
  mirrorNative(plugins: readonly NewPlugin[]): Promise<void>;
}

export interface CredentialView {
  /** `cred_{number}`, kept over versions; where a page ends. */
  readonly id: string;
  readonly name: string;
  readonly level: "tenant" | "user";
  readonly userId: string | null;
  readonly version: number;
  readonly lastUsedAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}
export interface CredentialRepo {
  /** Next version of a credential, for the AAD of the value about to be sealed. */
  nextVersion(tenant: string, name: string, userId: string | null): Promise<number>;
  /**
   * Raises the config version.
   * @throws GatewayError `conflict`: another writer took `version` first, or (`extra.limit`) the tenant or the user has no
   * room for one more, or for so long a value; a value as long as a token is taken in place of another in any case
   */
  put(tenant: string, credential: StoredCredential): Promise<CredentialView>;
  /** Values of these names: the user's where there is one, else the tenant's. Marks them used. */
  fetch(tenant: string, names: readonly string[], userId: string | undefined): Promise<readonly StoredCredential[]>;
  list(tenant: string, page: PageRequest): Promise<Page<CredentialView>>;
  all(tenant: string): Promise<readonly StoredCredential[]>;
  delete(tenant: string, name: string, userId: string | null): Promise<boolean>;
}

export type NewProvider = Omit<ProviderRecord, "id">;
export interface ProviderRepo {
  /** @throws GatewayError `conflict` (param `name`) for a taken name, or too many providers */
  create(tenant: string, id: string, provider: NewProvider): Promise<ProviderRecord>;
  update(tenant: string, id: string, provider: NewProvider): Promise<ProviderRecord | undefined>;
  get(tenant: string, id: string): Promise<ProviderRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<ProviderRecord>>;
  delete(tenant: string, id: string): Promise<boolean>;
}

/** Tool services; every change raises the config version. */
export interface ToolServiceRepo {
  /** @throws GatewayError `conflict` (param `service_id`) for an id taken within the scheme, or too many services */
  create(tenant: string, service: NewToolService): Promise<ToolService>;
  /**
   * Raises the service's version. Undefined: no such service.
   * @throws GatewayError `version_conflict` where it has another version than expected
   */
  update(
    tenant: string,
    id: string,
    change: ToolServiceChange,
    expectedVersion?: number,
  ): Promise<ToolService | undefined>;
  get(tenant: string, id: string): Promise<ToolService | undefined>;
  list(tenant: string, page: PageRequest & { readonly scheme?: ToolScheme }): Promise<Page<ToolService>>;
  delete(tenant: string, id: string): Promise<boolean>;
  /** Calls of its tools that have not ended, at most 100. @param uri `api://crm` */
  callsUnderWay(
    tenant: string,
    uri: string,
  ): Promise<readonly { readonly id: string; readonly tool: string; readonly state: string }[]>;
  /** Keeps what the back end of this version said of its tools; the service's version stays. */
  saveDiscovered(tenant: string, id: string, version: number, discovered: Discovered): Promise<void>;
}

/** Breakers of tool services that are open; read with `admit` and `claim`, see services/breaker.ts. */
export interface BreakerRepo {
  /** For so many milliseconds from now, by the database's clock. Nothing happens where the service is newer. */
  open(
    tenant: string,
    breaker: { readonly service: string; readonly version: number; readonly openMs: number },
  ): Promise<void>;
  /** One caller of all gets it, until it is over or so many milliseconds have passed. `closed`: there is none. */
  claimTrial(
    tenant: string,
    trial: { readonly service: string; readonly version: number; readonly trialMs: number },
  ): Promise<"claimed" | "taken" | "closed">;
  /** Whoever tried has found out nothing. */
  releaseTrial(tenant: string, breaker: { readonly service: string; readonly version: number }): Promise<void>;
  close(tenant: string, breaker: { readonly service: string; readonly version: number }): Promise<void>;
}

export interface ConfigRepo {
  /** The whole snapshot; the tenant's own plugins, enabled and disabled alike. `undefined`: no such tenant. */
  load(tenant: string): Promise<TenantConfig | undefined>;
}

/** How a request proves who it is, for the `admit` batch. */
export type Principal =
  | { readonly kind: "key"; readonly hash: string }
  | { readonly kind: "known"; readonly caller: Caller };

export interface NewCall {
  readonly id: string;
  readonly kind: "chat" | "tool";
  readonly parentId: string | null;
  readonly rootId: string | null;
  readonly sessionId: string | null;
  readonly uri: string;
  readonly tool: string;
  readonly toolHash: string | null;
  readonly effect: Effect;
  readonly repeat: Repeat;
  readonly state:
    | "queued"
    | "running"
    | "input_required"
    | "rejected"
    | "completed"
    | "failed"
    | "cancelled"
    | "unknown";
  readonly async: boolean;
  /** End user of the caller. */
  readonly userId: string | null;
  readonly callerChain: readonly CallerLink[];
  readonly route: string;
  readonly idempotencyKey: string | null;
  readonly inputHash: string;
  readonly input: string | null;
  readonly inputView: string;
  readonly effectKey: string | null;
  /** Slots of `concurrent_tool_calls` to hold while running. */
  readonly slots: number;
  /** What it may use at first, held against the budgets of its caller while it runs. */
  readonly reserved: Amount;
  readonly leaseMs: number;
  readonly deadlineMs: number | null;
  readonly runAt: number | null;
  readonly requestId: string;
  readonly traceId: string;
  /** `due`: the session's next chat receives the result once the call has ended. */
  readonly delivery: "none" | "due";
  /** Of a call that waits for a person from the start: what it asks, as `error` of the row. */
  readonly asks?: CallError;
  /** Set for rows that are written when all is over (reads in a chat). */
  readonly end?: CallFinish;
  /** When such a row's call ran, before the moment of writing; its duration in the audit. */
  readonly ran?: { readonly startedMsAgo: number; readonly finishedMsAgo: number };
}

export interface AdmitInput {
  readonly tenant: string;
  readonly principal: Principal;
  /** Absent: authenticate, count the request and return the config version, record nothing (management routes). */
  readonly call?: NewCall;
  /** Caller id is filled in by the database for keys; operator callers are not rate limited. */
  readonly limits: { readonly countRequest: boolean };
  /** `wanted`: slots to reserve; a chat takes what is free (0 too), a direct call is refused without one. */
  readonly slots?: { readonly wanted: number; readonly required: boolean };
  /**
   * Look for the newest call of the same caller, route and input hash: a retry that says so belongs to it
   * whatever became of it; one that does not, only where it was cut off or failed after a write had begun.
   */
  readonly attach?: { readonly withinMs: number; readonly to: "any" | "broken_off" };
  /** Kept turns to read with the same trip. */
  readonly turnKeys?: readonly string[];
  /** Session to check and touch; created where absent. Results due for it are returned. */
  readonly sessionId?: string;
  /** The call row was made from this configuration; another version now: `stale_config`, nothing recorded or counted. */
  readonly expectedConfigVersion?: number;
  /** Caller and settings as of that version: where it holds, they need not be read again. */
  readonly known?: { readonly caller: Caller; readonly settings: TenantSettings };
  /** An ended call of the same caller that this one replaces: its idempotency key moves to the new row. */
  readonly supersedes?: string;
}

export interface AdmitResult {
  readonly tenant: Pick<Tenant, "id" | "status" | "configVersion">;
  readonly settings: TenantSettings;
  readonly caller: Caller;
  readonly outcome:
    | { readonly kind: "admitted"; readonly slots: number }
    /** The idempotency key, or the retry, belongs to this earlier call. Nothing was recorded. */
    | { readonly kind: "existing"; readonly call: Call; readonly by: "key" | "retry" }
    | { readonly kind: "stale_config" }
    /** The tenant is suspended, or `session` says why. Nothing was recorded or counted. */
    | { readonly kind: "refused"; readonly by: "tenant" | "session" }
    | { readonly kind: "rate_limited"; readonly scope: "key" | "tenant" }
    | { readonly kind: "concurrency_limited"; readonly scope: "key" | "tenant" | "tools" }
    /** What the call reserves does not fit into a budget. Nothing was recorded. */
    | { readonly kind: "over_budget"; readonly refusal: BudgetRefusal };
  readonly rate: { readonly limit: number; readonly remaining: number; readonly resetMs: number };
  readonly turns: readonly KeptTurn[];
  /** Who listens to the tenant's calls; absent: nobody does. */
  readonly listeners?: Listeners;
  /** Of the tenant's services; absent: none. */
  readonly openBreakers?: readonly OpenBreaker[];
  /** `foreign`: the session is another tenant's, or another caller's who does not manage; nothing was recorded. */
  readonly session?: { readonly state: "new" | "live" | "expired" | "foreign"; readonly due: readonly Call[] };
}

export interface CallFinish {
  /**
   * Three are no ends. `input_required`: it waits for an answer that somebody else was asked for. `running`: its back
   * end has answered first and works on, and nobody has to hold it. `queued`: it was parked, and is written by `park`.
   */
  readonly state: CallState;
  /** When it is to be run again; without a time: when it is woken. And whether the session's next chat gets the result. */
  readonly parked?: { readonly wakeInMs?: number; readonly wakesSeen?: number; readonly delivery?: "due" };
  /** Of a call that goes on: for so long it counts as under way, and whether the session's next chat gets the result. */
  readonly worksOn?: { readonly withinMs: number; readonly delivery?: "due" };
  /** Of a call that waits: its input with what was asked, sealed, and whether the session's next chat gets the result. */
  readonly continued?: { readonly input: string; readonly delivery?: "due" };
  readonly outcome?: StoredOutcome;
  readonly error?: CallError;
  readonly usage?: Usage;
  /** Charged as the row ends; absent: what is known of the call already. */
  readonly cost?: CallCost;
  /** Names of credentials that were opened, for their `last_used_at`. */
  readonly credentialsUsed?: readonly string[];
}

export interface KeptTurn {
  /** First tool_call id of the turn. */
  readonly key: string;
  readonly callerId: string;
  /** Sealed JSON of the turn (assistant message, our results). */
  readonly sealed: string;
  readonly expiresAt: number;
}

export interface SettleInput {
  readonly callId: string;
  readonly attempt: number;
  readonly finish: CallFinish;
  /** Rows of reads that rode along. */
  readonly calls: readonly NewCall[];
  readonly finished: readonly { readonly id: string; readonly attempt: number; readonly finish: CallFinish }[];
  readonly keepTurn?: KeptTurn;
  /** Results handed to the model by this request. */
  readonly delivered: readonly string[];
  readonly sessionId?: string;
  /** Where the session is not there yet, it began with the call. */
  readonly beginsSession?: true;
}

/** What became of a row handed to `record`. */
export type RecordResult =
  | { readonly id: string; readonly kind: "recorded" }
  /** A call with this effect key or idempotency key exists already. */
  | { readonly id: string; readonly kind: "existing"; readonly call: Call };

export interface CallFilter {
  readonly state?: CallState;
  readonly kind?: "chat" | "tool";
  readonly tool?: string;
  readonly sessionId?: string;
  readonly parentId?: string;
  readonly callerId?: string;
  readonly requestId?: string;
  /** Runs of flows only, without what they ask people. */
  readonly runs?: true;
  readonly from?: number;
  readonly to?: number;
}

export interface SweepItem {
  readonly tenant: string;
  readonly id: string;
  readonly async: boolean;
  readonly kind: "chat" | "tool";
  readonly effect: Effect;
  readonly repeat: Repeat;
  readonly state: CallState;
}

export interface FamilyWanted {
  /** At most so many. */
  readonly limit: number;
  /** Those only that have not ended. */
  readonly isOpen?: boolean;
}

export interface CallRepo {
  admit(input: AdmitInput): Promise<AdmitResult>;
  settle(tenant: string, input: SettleInput): Promise<void>;
  /** One batch for a whole round; each row stands for itself. `parent`: what their chat has used by then. */
  record(
    tenant: string,
    callerId: string,
    calls: readonly NewCall[],
    parent?: { readonly id: string; readonly attempt: number; readonly spent: Spent },
  ): Promise<readonly RecordResult[]>;
  /**
   * Ends a running call, or lets it go on by itself; `false` where another attempt owns it or it has ended. `unknown`
   * may become completed or failed.
   */
  finish(tenant: string, id: string, attempt: number, finish: CallFinish): Promise<boolean>;
  /** Late evidence for an `unknown` call. */
  resolveUnknown(tenant: string, id: string, finish: CallFinish): Promise<boolean>;
  /** What was heard later of what a completed call did; `false` where its text is another one than `before`, or too long for its row. */
  amendOutcome(tenant: string, id: string, text: { readonly before: string; readonly after: string }): Promise<boolean>;
  /** The newest tool call of some addresses whose outcome holds a text. */
  findByOutcome(
    tenant: string,
    wanted: { readonly uriPrefix: string; readonly text: string; readonly withinMs: number },
  ): Promise<Call | undefined>;
  /**
   * Takes a queued call, or a running one whose lease has run out; raises `attempt`, and counts of the latter how often
   * in a row it has come to that (`interruptions`). A queued call that a
   * budget has no room for stays queued, as do those of a tenant that is suspended (`gone`).
   */
  claim(
    tenant: string,
    id: string,
    options: { readonly leaseMs: number; readonly concurrency: number },
  ): Promise<ClaimResult>;
  /** Extends the lease; `spent` is kept with the row, in case that nobody ends it. */
  heartbeat(
    tenant: string,
    id: string,
    attempt: number,
    beat: { readonly leaseMs: number; readonly spent?: Spent },
  ): Promise<"ok" | "cancel" | "lost">;
  /** Takes the reservation of a running call to `amount` where every budget has room for it, else says which has not. */
  reserve(
    tenant: string,
    id: string,
    attempt: number,
    wanted: { readonly amount: Amount; readonly spent: Spent },
  ): Promise<BudgetRefusal | undefined>;
  /**
   * Back to `queued`, to be run in `inMs` at the earliest, or at once where it was woken since it was taken, more often
   * than it has seen; null: when it is woken. Returns the milliseconds until then; `undefined` where another attempt owns it or it has ended.
   */
  park(
    tenant: string,
    id: string,
    attempt: number,
    until: { readonly inMs: number | null; readonly wakesSeen?: number; readonly delivery?: "due" },
  ): Promise<number | undefined>;
  /**
   * Undoes the claim of a call that was running before, which a later one may take in `inMs`: it stays running, since an
   * earlier claimant may have sent it. `false` where another attempt owns it or it has ended.
   */
  letGo(tenant: string, id: string, attempt: number, inMs: number): Promise<boolean>;
  /** What a call waits for has come about: a parked one is due, a running one must not park. `false`: it has ended. */
  wake(tenant: string, id: string): Promise<boolean>;
  /** Takes more slots for a running chat, as many as are free. Returns what was taken. */
  takeSlots(tenant: string, id: string, wanted: number, limit: number): Promise<number>;
  get(tenant: string, id: string): Promise<Call | undefined>;
  /** @throws GatewayError `invalid_request` (param `after`) where there is no such call */
  list(tenant: string, filter: CallFilter, page: CallPageRequest): Promise<Page<Call>>;
  /** Micro-units that the calls below each of these have cost, however deep, as far as they have ended. */
  costsBelow(tenant: string, ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** The call and those below it, the oldest first; empty where there is none. */
  family(tenant: string, id: string, wanted: FamilyWanted): Promise<readonly Call[]>;
  /** Queued or waiting: cancelled at once. Running: asked to stop. Children of a chat too. */
  requestCancel(tenant: string, id: string): Promise<Call | undefined>;
  isCancelRequested(tenant: string, id: string): Promise<boolean>;
  /** `input_required` → queued, or → rejected. `undefined`: no such call; a call in another state is returned unchanged. */
  decide(tenant: string, id: string, decision: CallDecision): Promise<Call | undefined>;
  /**
   * Work of all tenants that nobody holds: expired leases, queued rows that are due. What was returned is
   * not returned again for `offerAgainMs` (default a minute), however often and by whomever this is asked.
   */
  sweep(options: {
    readonly limit: number;
    readonly queuedForMs: number;
    readonly offerAgainMs?: number;
  }): Promise<readonly SweepItem[]>;
  /**
   * Keys older than 24 h, kept turns, sealed inputs and other rows past their time; at most `limit` of each.
   * Gives the number of the most numerous. Calls themselves go through `ArchiveRepo`.
   */
  expire(limit: number): Promise<number>;
}

/** Calls of one tenant and one UTC day that are no longer rows. */
export interface CallArchive {
  /** `arc_…` */
  readonly id: string;
  /** Start of the day on which the calls were made. */
  readonly day: number;
  readonly calls: number;
  readonly bytes: number;
  readonly writtenAt: number;
}
export interface ClaimedArchive {
  readonly tenant: string;
  readonly id: string;
  readonly day: number;
  /** False: the tenant keeps no archive of this day. */
  readonly kept: boolean;
  /** All that belong to it, in the order of their creation; the same ones however often it is claimed. */
  readonly calls: readonly ArchivedCall[];
}
export interface ArchivedCall {
  readonly id: string;
  /** Undefined where the row cannot be read. */
  readonly call: Call | undefined;
  /** Of its result. */
  readonly blobKey: string | undefined;
}
/**
 * Calls past `calls_retention_days` that have ended. Each is given to one archive for good before that is
 * written, and goes with all others of it once it is; so an archive may be written twice, a call may not.
 */
export interface ArchiveRepo {
  /**
   * From each shard one archive that nobody holds: one that somebody began and did not end, else a new one of
   * at most `limit` calls and about `bytes` bytes. Empty: nothing is due.
   */
  claim(options: {
    readonly limit: number;
    readonly bytes: number;
    readonly leaseMs: number;
  }): Promise<readonly ClaimedArchive[]>;
  /** It is durably written: its calls go. `false`: the archive is gone, as its tenant is. */
  finish(tenant: string, id: string, written: { readonly bytes: number; readonly calls: number }): Promise<boolean>;
  /** Its calls go, and so does it. */
  discard(tenant: string, id: string): Promise<void>;
  get(tenant: string, id: string): Promise<CallArchive | undefined>;
  /** @throws GatewayError `invalid_request` (param `after`) where there is no such archive */
  list(tenant: string, page: PageRequest): Promise<Page<CallArchive>>;
  /** Of all tenants: archives past `calls_archive_days`; claimed, so that two instances share the work. */
  takeExpired(
    limit: number,
  ): Promise<readonly { readonly tenant: string; readonly id: string; readonly day: number }[]>;
}

export interface Session {
  readonly id: string;
  readonly callerId: string;
  readonly bytes: number;
  readonly createdAt: number;
  readonly lastUsedAt: number;
  readonly expired: boolean;
}
export interface WorkspaceFile {
  /** Normalised, without leading slash. */
  readonly path: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly blobKey: string;
  readonly updatedAt: number;
}
/** Of a session: each of them is a blob that has to be deleted by itself. */
export const mostWorkspaceFiles = 10_000;

/** What a workspace holds and is announced to hold. */
export interface FullWorkspace {
  readonly kind: "full";
  readonly bytes: number;
  readonly files: number;
}

export interface SessionRepo {
  get(tenant: string, id: string): Promise<Session | undefined>;
  /**
   * Of one caller, or of the whole tenant.
   * @throws GatewayError `invalid_request` (param `after`) where there is no such session
   */
  list(tenant: string, page: PageRequest, callerId?: string): Promise<Page<Session>>;
  /** Creates or touches. `expired` where it was idle too long. */
  touch(tenant: string, id: string, callerId: string, idleMs: number): Promise<Session>;
  listFiles(tenant: string, session: string, prefix: string): Promise<readonly WorkspaceFile[]>;
  pageFiles(tenant: string, session: string, page: PageRequest): Promise<Page<WorkspaceFile>>;
  getFile(tenant: string, session: string, path: string): Promise<WorkspaceFile | undefined>;
  /**
   * Puts or replaces where the workspace stays within `limit` bytes and `mostWorkspaceFiles`. Returns the blob key
   * replaced, for deletion.
   */
  putFile(
    tenant: string,
    session: string,
    file: Omit<WorkspaceFile, "updatedAt">,
    limit: number,
  ): Promise<{ readonly kind: "stored"; readonly replaced: string | undefined } | FullWorkspace>;
  /** Returns the blob key that was the file's, or undefined where there was none. */
  deleteFile(tenant: string, session: string, path: string): Promise<string | undefined>;
  /** Of the files whose blobs these still are. */
  deleteFiles(tenant: string, session: string, blobKeys: readonly string[]): Promise<void>;
  /** Removes the session and its files' rows. Returns their blob keys; undefined: no such session. */
  delete(tenant: string, id: string): Promise<readonly string[] | undefined>;
  /** Sessions of all tenants idle past their tenant's setting; claimed, so that two instances share the work. */
  takeExpired(limit: number): Promise<readonly { readonly tenant: string; readonly id: string }[]>;
}

/** An upload that a client was given a link for. */
export interface WorkspaceUpload {
  /** `upl_…` */
  readonly id: string;
  readonly session: string;
  /** Normalised, without leading slash. */
  readonly path: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly blobKey: string;
  /** There was a file at the path when it was announced. */
  readonly replaces: boolean;
  readonly expiresAt: number;
  readonly state: "open" | "file" | "over";
}
export type NewWorkspaceUpload = Pick<WorkspaceUpload, "id" | "path" | "bytes" | "mediaType" | "blobKey">;
export interface UploadRepo {
  /**
   * Announces an upload where it fits beside the files and the other open uploads; it holds that room.
   * @throws GatewayError `session_not_found`, `session_expired`
   */
  open(
    tenant: string,
    session: string,
    upload: NewWorkspaceUpload,
    expiresInMs: number,
  ): Promise<{ readonly kind: "open"; readonly upload: WorkspaceUpload } | FullWorkspace>;
  get(tenant: string, session: string, id: string): Promise<WorkspaceUpload | undefined>;
  /**
   * Makes an open upload the file of its path, in one statement with its end. `changed`: what is at the path is
   * not what was there when it was announced, and `replace` is not given. Doing it again finds it done.
   * @throws GatewayError `session_not_found`, `session_expired`
   */
  complete(
    tenant: string,
    session: string,
    id: string,
    options: { readonly replace: boolean },
  ): Promise<
    | { readonly kind: "stored"; readonly file: WorkspaceFile; readonly replaced: string | undefined }
    | FullWorkspace
    | { readonly kind: "changed" }
    | { readonly kind: "over" }
    | { readonly kind: "missing" }
  >;
  /** Ends an open upload without a file. `missing` for one of another session. */
  giveUp(tenant: string, session: string, id: string): Promise<WorkspaceUpload | undefined>;
  /** Of all tenants: links that ran out at least `afterMs` ago; claimed, so that two instances share the work. */
  takeExpired(options: {
    readonly limit: number;
    readonly afterMs: number;
  }): Promise<readonly (WorkspaceUpload & { readonly tenant: string })[]>;
  /** Ends it for good where it is open; the blob key where no file has it. */
  end(tenant: string, id: string): Promise<string | undefined>;
  delete(tenant: string, id: string): Promise<void>;
}

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
