/**
 * What a tick makes of a schedule that is due: what fires now, and when it is due next. A firing that is a little
 * late is late; one that is later than that was missed, and the schedule's own word on that counts. Pure.
 */
import { nextFiring, type Timeline } from "./timeline.ts";

export const misfirePolicies = ["skip", "once", "all"] as const;
export type Misfire = (typeof misfirePolicies)[number];

/** Two ticks and what delays them. */
const graceMs = 120_000;
/** Firings that make up for one outage with `all`: the latest. */
const mostMadeUp = 100;

export interface Due {
  readonly timeline: Timeline;
  readonly misfire: Misfire;
  /** When it is due. */
  readonly nextAt: number;
}

export interface Plan {
  /** Times of what fires, in order; earlier than now: it fires at once. */
  readonly firings: readonly number[];
  /** Null: never again. */
  readonly nextAt: number | null;
  /** The last time that was missed, whatever became of it. */
  readonly missedAt: number | null;
}

/** @param until what is due by then fires */
export function planDue({ timeline, misfire, nextAt }: Due, now: number, until: number): Plan {
  const missed =
    nextAt < now - graceMs
      ? lastFirings(timeline, { from: nextAt, until: now - graceMs - 1, count: made[misfire] })
      : [];
  const firings = misfire === "skip" ? [] : [...missed];
  let next = missed.length === 0 ? nextAt : nextFiring(timeline, now - graceMs - 1);
  while (next !== undefined && next <= until) {
    firings.push(next);
    next = nextFiring(timeline, next);
  }
  return { firings, nextAt: next ?? null, missedAt: missed.at(-1) ?? null };
}

const made: Readonly<Record<Misfire, number>> = { skip: 1, once: 1, all: mostMadeUp };

interface Span {
  readonly from: number;
  readonly until: number;
  readonly count: number;
}

const firstSpanMs = 3_600_000;

/** The last of those within a span: looked for from its end, in ever longer pieces, since it may be years. */
function lastFirings(timeline: Timeline, { from, until, count }: Span): readonly number[] {
  for (let length = firstSpanMs; ; length *= 2) {
    const start = Math.max(from, until - length);
    const found: number[] = [];
    let at = nextFiring(timeline, start - 1);
    while (at !== undefined && at <= until) {
      found.push(at);
      if (found.length > count) found.shift();
      at = nextFiring(timeline, at);
    }
    if (found.length === count || start === from) return found;
  }
}
