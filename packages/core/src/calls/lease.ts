/**
 * Keeps a running row ours while we work on it: extends its lease and listens for a request to stop.
 * A process that freezes or dies stops extending, and another one takes the row over. One timer serves
 * all rows of a process: two for each chat would be a good part of what a chat costs.
 */
import type { Spent } from "../budgets/cost.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { Timing } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CallFinish } from "../ports/calls.ts";

/** Why we must not go on: the call was cancelled, or another attempt owns the row. */
export type LeaseEnd = "cancelled" | "lost";

/** Reason of the signal that ends what is still under way for a call that another process has by now. */
export const takenOver = Symbol("another process has the call");

/** The reason of a signal that ends since this process must: whoever asked is told, and what can go on elsewhere does. */
export function processEnd({ reason }: { readonly reason: unknown }): GatewayError | undefined {
  return reason instanceof GatewayError && reason.code === "shutting_down" ? reason : undefined;
}

/** For `AbortController.abort`. */
export function reasonOf(why: LeaseEnd): typeof takenOver | undefined {
  return why === "lost" ? takenOver : undefined;
}

/**
 * Whether what a call came to here is left to another process: its own call, or the run or chat that it belongs to, is
 * that one's by now, and here it was only given up. As after a death, its row decides who sees to it.
 */
export function isLeftToOthers(signal: AbortSignal, { state }: Pick<CallFinish, "state">): boolean {
  return signal.reason === takenOver && (state === "unknown" || state === "cancelled");
}

export interface Lease {
  /** Lets go; `onEnd` is not called any more. */
  stop(): void;
}

export interface LeaseTarget {
  readonly tenant: string;
  readonly id: string;
  readonly attempt: number;
  /** Look for a cancel more often than the lease is extended. */
  readonly pollCancel: boolean;
  /** What is kept with the row at every beat, so that a process that dies leaves its bill behind. */
  readonly spent?: () => Spent | undefined;
  readonly onEnd?: (why: LeaseEnd) => void;
}

export function holdLease(deps: CoreDeps, target: LeaseTarget): Lease {
  let keeper = keepers.get(deps);
  if (keeper === undefined) keepers.set(deps, (keeper = new LeaseKeeper(deps)));
  return keeper.hold(target);
}

const keepers = new WeakMap<CoreDeps, LeaseKeeper>();

class LeaseKeeper {
  readonly #deps: CoreDeps;
  /** No `Set`: what one forgets stays in its outgrown tables until the next full garbage collection. */
  readonly #held: HeldLease[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: CoreDeps) {
    this.#deps = deps;
  }

  hold(target: LeaseTarget): Lease {
    this.#timer ??= this.#startTimer();
    return new HeldLease(this.#held, target, this.#deps.timing);
  }

  #startTimer(): NodeJS.Timeout {
    const { heartbeatMs, cancelPollMs } = this.#deps.timing;
    const look = (): void => this.#look();
    return setInterval(look, Math.min(heartbeatMs, cancelPollMs) / 2).unref();
  }

  #look(): void {
    if (this.#held.length === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const now = performance.now();
    for (const lease of this.#held) lease.look(this.#deps, now);
  }
}

class HeldLease implements Lease {
  readonly #all: HeldLease[];
  /** In `#all`; -1 once let go. */
  #place: number;
  readonly #target: LeaseTarget;
  #nextBeat: number;
  #nextPoll: number;

  constructor(all: HeldLease[], target: LeaseTarget, { heartbeatMs, cancelPollMs }: Timing) {
    this.#all = all;
    this.#place = all.push(this) - 1;
    this.#target = target;
    const now = performance.now();
    this.#nextBeat = now + heartbeatMs;
    this.#nextPoll = target.pollCancel ? now + cancelPollMs : Number.POSITIVE_INFINITY;
  }

  stop(): void {
    const place = this.#place;
    if (place < 0) return;
    this.#place = -1;
    const last = this.#all.pop();
    if (last === undefined || last === this) return;
    this.#all[place] = last;
    last.#place = place;
  }

  look(deps: CoreDeps, now: number): void {
    const { heartbeatMs, cancelPollMs } = deps.timing;
    if (now >= this.#nextBeat) {
      this.#nextBeat = now + heartbeatMs;
      void this.#beat(deps);
    }
    if (now >= this.#nextPoll) {
      this.#nextPoll = now + cancelPollMs;
      void this.#poll(deps);
    }
  }

  async #beat(deps: CoreDeps): Promise<void> {
    const { tenant, id, attempt } = this.#target;
    const spent = this.#target.spent?.();
    const kept = { leaseMs: deps.timing.leaseMs, ...(spent === undefined ? {} : { spent }) };
    try {
      const answer = await deps.repos.calls.heartbeat(tenant, id, attempt, kept);
      if (answer !== "ok") this.#end(answer === "cancel" ? "cancelled" : "lost");
    } catch (error) {
      // The lease outlives two missed beats; a database that stays away ends the call elsewhere.
      deps.log.log("warn", "lease not extended", {
        call_id: id,
        error: error instanceof Error ? error.name : "unknown",
      });
    }
  }

  async #poll(deps: CoreDeps): Promise<void> {
    const { tenant, id } = this.#target;
    // A poll that fails is made up for by the next one.
    if (await deps.repos.calls.isCancelRequested(tenant, id).catch(() => false)) this.#end("cancelled");
  }

  #end(why: LeaseEnd): void {
    if (this.#place < 0) return;
    this.stop();
    this.#target.onEnd?.(why);
  }
}
