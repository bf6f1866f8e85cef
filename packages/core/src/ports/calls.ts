/**
 * Persistence of calls, the one table that every request writes to: admission, what becomes of a call, who may carry it
 * on. Rules and contract as in repos.ts.
 */
import type { Amount, BudgetRefusal } from "../budgets/budget.ts";
import type { Spent, CallCost } from "../budgets/cost.ts";
import type { Call, CallDecision, CallError, CallState, CallerLink, StoredOutcome } from "../calls/call.ts";
import type { Usage } from "../calls/usage.ts";
import type { Caller } from "../callers/caller.ts";
import type { OpenBreaker } from "./tool-services.ts";
import type { TenantSettings } from "../tenants/settings.ts";
import type { Effect, Repeat } from "../tools/effect.ts";
import type { Listeners } from "../realtime/connection.ts";
import type { ClaimResult } from "./claim-result.ts";
import type { Page, PageRequest } from "./page.ts";
import type { Tenant } from "./tenants.ts";

/** Calls leave the list as they are archived; whoever walks through all of it remembers where it was. */
export interface CallPageRequest extends PageRequest {
  /** The page starts after this place, whatever has become of the call; instead of `after`. */
  readonly beyond?: { readonly createdAt: number; readonly id: string };
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
