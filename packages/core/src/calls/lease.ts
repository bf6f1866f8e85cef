/**
 * Keeps a running row ours while we work on it: extends its lease and listens for a request to stop.
 * A process that freezes or dies stops extending, and another one takes the row over.
 */
import type { Spent } from "../budgets/chat-meter.ts";
import type { CoreDeps } from "../deps.ts";

export interface Lease {
  /** Aborts when the call was cancelled, or when another attempt owns the row. */
  readonly signal: AbortSignal;
  readonly reason: () => "cancelled" | "lost" | undefined;
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
}

export function holdLease(deps: CoreDeps, target: LeaseTarget): Lease {
  const { leaseMs, heartbeatMs, cancelPollMs } = deps.timing;
  const controller = new AbortController();
  let reason: "cancelled" | "lost" | undefined;
  const end = (why: "cancelled" | "lost"): void => {
    reason ??= why;
    controller.abort();
    stop();
  };
  const beat = (): void => {
    const spent = target.spent?.();
    const kept = { leaseMs, ...(spent === undefined ? {} : { spent }) };
    deps.repos.calls.heartbeat(target.tenant, target.id, target.attempt, kept).then(
      (answer) => {
        if (answer === "cancel") end("cancelled");
        if (answer === "lost") end("lost");
      },
      (error: unknown) => {
        // The lease outlives two missed beats; a database that stays away ends the call elsewhere.
        deps.log.log("warn", "lease not extended", {
          call_id: target.id,
          error: error instanceof Error ? error.name : "unknown",
        });
      },
    );
  };
  const poll = (): void => {
    deps.repos.calls.isCancelRequested(target.tenant, target.id).then(
      (cancelled) => {
        if (cancelled) end("cancelled");
      },
      () => undefined,
    );
  };
  const beats = setInterval(beat, heartbeatMs);
  const polls = target.pollCancel ? setInterval(poll, cancelPollMs) : undefined;
  beats.unref();
  polls?.unref();
  const stop = (): void => {
    clearInterval(beats);
    clearInterval(polls);
  };
  return { signal: controller.signal, reason: () => reason, stop };
}
