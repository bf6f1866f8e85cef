/**
 * Circuit breakers of services (SVC-4): failures in a row open one, calls then fail at once or get the
 * configured fallback, and after a while one call is let through to see. An answer that says no is an
 * answer. Each instance counts failures of its own; that it has opened a breaker all of them are told by the
 * database, which is written to only then and when the breaker closes, and read with what is read anyway.
 */
import * as z from "zod";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonValue } from "../json.ts";
import type { Log } from "../ports/log.ts";
import type { BreakerRepo } from "../ports/tool-services.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import type { OpenBreakers } from "./open-breakers.ts";

export const breakerField = z
  .strictObject({
    failures: z.int().min(1).max(1_000).default(5).meta({ description: "Failures in a row that open it." }),
    open_ms: z.int().min(100).max(3_600_000).default(30_000).meta({ description: "How long it stays open." }),
    fallback: z.json().optional().meta({ description: "What calls get meanwhile, with `degraded: true`." }),
  })
  .meta({ description: "Spares a back end that fails." });
export type BreakerOptions = z.output<typeof breakerField>;

interface State {
  /** In a row. */
  failures: number;
  /** `performance.now()` until which calls fail at once; 0: closed, as far as this instance has found. */
  openUntil: number;
  /** `performance.now()` when the database had it; undefined: it has not. */
  storedAt: number | undefined;
  /** A call is on its way to see. */
  isTrying: boolean;
}

export interface Guarded {
  readonly tenant: string;
  /** `svc_…` */
  readonly service: string;
  /** A changed service starts anew. */
  readonly version: number;
  readonly options: BreakerOptions;
  /** For messages: `api://crm`. */
  readonly name: string;
  /** Time limit of the attempt, in milliseconds. */
  readonly timeoutMs: number;
  /** Was the attempt given up for its time limit, rather than cancelled? */
  readonly hasTimedOut: () => boolean;
}

export interface BreakerDeps {
  readonly repos: { readonly breakers: BreakerRepo };
  readonly openBreakers: OpenBreakers;
  readonly log: Log;
}

/** What may become of a call: it goes out as usual, it sees whether the back end is well, or it waits. */
type Entry = { readonly kind: "closed" | "trial" } | { readonly kind: "open"; readonly waitMs: number };

/** Services of which something is remembered. */
const most = 10_000;
/** A call that sees whether a back end is well holds others off for its time limit and so much longer. */
const trialMarginMs = 5_000;
/** What calls are told to wait while another one sees. */
const waitForTrialMs = 1_000;

export class Breakers {
  readonly #states = new Map<string, State>();
  readonly #deps: BreakerDeps;

  constructor(deps: BreakerDeps) {
    this.#deps = deps;
  }

  /** @throws GatewayError `circuit_open` with the time to wait, not sent, where there is no fallback */
  async guard(guarded: Guarded, send: () => Promise<ToolReply>): Promise<ToolReply> {
    const entry = await this.#enter(guarded);
    if (entry.kind === "open") return fallbackOrThrow(guarded, Math.max(entry.waitMs, waitForTrialMs));
    const isTrial = entry.kind === "trial";
    let verdict: Verdict = "well";
    try {
      return await send();
    } catch (error) {
      verdict = verdictOf(error, guarded.hasTimedOut());
      throw error;
    } finally {
      if (isTrial) await this.#endTrial(guarded, verdict);
      else await this.#note(guarded, verdict);
    }
  }

  /** Nothing waits between looking and taking, so of many calls at once one tries. */
  async #enter(guarded: Guarded): Promise<Entry> {
    const waitMs = this.#waitMs(guarded);
    if (waitMs === undefined) return { kind: "closed" };
    if (waitMs > 0) return { kind: "open", waitMs };
    const state = this.#stateOf(guarded);
    if (state.isTrying) return { kind: "open", waitMs: waitForTrialMs };
    state.isTrying = true;
    const claim = await this.#claimTrial(guarded, state);
    if (claim === "claimed") return { kind: "trial" };
    state.isTrying = false;
    if (claim === "taken") return { kind: "open", waitMs: waitForTrialMs };
    this.#states.delete(keyOf(guarded));
    return { kind: "closed" };
  }

  /** Undefined: closed. What the database said last counts beside what this instance has found. */
  #waitMs(guarded: Guarded): number | undefined {
    const { tenant, service, version } = guarded;
    const { openBreakers } = this.#deps;
    const own = this.#states.get(keyOf(guarded));
    const shared = openBreakers.leftMs(tenant, service, version);
    if (own === undefined || own.openUntil === 0) return shared;
    const ownMs = own.openUntil - performance.now();
    if (shared !== undefined) return Math.max(shared, ownMs);
    const isClosedElsewhere = own.storedAt !== undefined && openBreakers.asOf(tenant) > own.storedAt && !own.isTrying;
    if (!isClosedElsewhere) return ownMs;
    this.#states.delete(keyOf(guarded));
    return undefined;
  }

  async #claimTrial(guarded: Guarded, own: State): Promise<"claimed" | "taken" | "closed"> {
    const { tenant, service, version, timeoutMs } = guarded;
    const isShared = this.#deps.openBreakers.leftMs(tenant, service, version) !== undefined;
    // Where the database could not be told, this instance is on its own.
    if (!isShared && own.storedAt === undefined) return "claimed";
    const trial = { service, version, trialMs: timeoutMs + trialMarginMs };
    const claim = await this.#store(guarded, (breakers) => breakers.claimTrial(tenant, trial));
    return claim ?? "claimed";
  }

  async #endTrial(guarded: Guarded, verdict: Verdict): Promise<void> {
    const { tenant, service, version } = guarded;
    const state = this.#stateOf(guarded);
    if (verdict === "failed") await this.#open(guarded, state);
    else if (verdict === "well") {
      await this.#store(guarded, (breakers) => breakers.close(tenant, { service, version }));
      this.#states.delete(keyOf(guarded));
    } else await this.#store(guarded, (breakers) => breakers.releaseTrial(tenant, { service, version }));
    state.isTrying = false;
  }

  /** While a breaker is open, only the call that sees decides; the others left before. */
  async #note(guarded: Guarded, verdict: Verdict): Promise<void> {
    if (verdict === undefined) return;
    const key = keyOf(guarded);
    const known = this.#states.get(key);
    if (known !== undefined && known.openUntil > 0) return;
    if (verdict === "well") {
      if (known?.isTrying !== true) this.#states.delete(key);
      return;
    }
    const state = this.#stateOf(guarded);
    state.failures += 1;
    if (state.failures >= guarded.options.failures && !state.isTrying) await this.#open(guarded, state);
  }

  async #open(guarded: Guarded, state: State): Promise<void> {
    const { tenant, service, version, options } = guarded;
    state.openUntil = performance.now() + options.open_ms;
    state.storedAt = undefined;
    const stored = await this.#store(guarded, async (breakers) => {
      await breakers.open(tenant, { service, version, openMs: options.open_ms });
      return true;
    });
    if (stored === true) state.storedAt = performance.now();
  }

  #stateOf(guarded: Guarded): State {
    const key = keyOf(guarded);
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    const made: State = { failures: 0, openUntil: 0, storedAt: undefined, isTrying: false };
    this.#states.set(key, made);
    const oldest = this.#states.keys().next().value;
    if (this.#states.size > most && oldest !== undefined) this.#states.delete(oldest);
    return made;
  }

  /** A database that cannot be reached takes no back end away. */
  async #store<T>({ tenant, name }: Guarded, write: (breakers: BreakerRepo) => Promise<T>): Promise<T | undefined> {
    try {
      return await write(this.#deps.repos.breakers);
    } catch (thrown) {
      const { code } = toGatewayError(thrown);
      this.#deps.log.log("warn", "a breaker's state is known to this instance only", { tenant, service: name, code });
      return undefined;
    }
  }
}

function keyOf({ tenant, service, version }: Guarded): string {
  return `${tenant} ${service} ${version}`;
}

function fallbackOrThrow({ options, name }: Guarded, waitMs: number): ToolReply {
  if (options.fallback !== undefined) return toReply(options.fallback);
  throw withDelivery(
    new GatewayError(
      "circuit_open",
      `'${name}' has failed ${options.failures} times in a row and is left alone for ${Math.ceil(waitMs / 1_000)} s; its 'breaker' sets how long.`,
      { retryAfterMs: waitMs },
    ),
    "not_sent",
  );
}

function toReply(fallback: JsonValue): ToolReply {
  const body = isJsonObject(fallback) ? { ...fallback, degraded: true } : { value: fallback, degraded: true };
  return { mediaType: "application/json", body: JSON.stringify(body), unreached: true };
}

/** What a call says of the back end; undefined: nothing. */
export type Verdict = "well" | "failed" | undefined;

export function verdictOf(error: unknown, hasTimedOut: boolean): Verdict {
  if (isAnswer(error)) return "well";
  return hasTimedOut || isFailure(error) ? "failed" : undefined;
}

function statusOf(error: unknown): number | undefined {
  const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
  return typeof status === "number" ? status : undefined;
}

/** The back end is well and does not want this. */
function isAnswer(error: unknown): boolean {
  const status = statusOf(error);
  return status !== undefined && status < 500 && status !== 429;
}

function isFailure(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return false;
  return error.code === "tool_unreachable" || error.code === "tool_timeout" || (statusOf(error) ?? 0) >= 500;
}
