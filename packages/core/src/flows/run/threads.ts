/** Parts of a run that go on side by side, and how they are told to stop. */
import { StepFailed } from "./failures.ts";

const longestTimerMs = 2 ** 31 - 1;
/** By which a call's own limit may begin behind that of its step: the call goes on record first. */
const mostLaterMs = 1_000;
/** For a call that has reached its own limit to say so. */
const lastWordMs = 100;

/** Threads that begin together and end together. */
export interface Group {
  readonly parent: Group | undefined;
  stopped: boolean;
}

/** Another thread of the group has failed, so that this one's work is not wanted any more. */
export class ThreadStopped extends Error {
  override readonly name = "ThreadStopped";
}

export function requireWanted(group: Group): void {
  for (let one: Group | undefined = group; one !== undefined; one = one.parent) {
    if (one.stopped) throw new ThreadStopped();
  }
}

/**
 * The time until a step's end, and a little more where the work has a limit of its own that ends with it: a call that is
 * ended by that says that there was no answer in time, which breakers count, instead of that it was cancelled.
 */
export function behindOwnLimit(ms: number | undefined, limitMs = Number.POSITIVE_INFINITY): number | undefined {
  if (ms === undefined || limitMs - ms > mostLaterMs) return ms;
  return Math.max(ms, limitMs + lastWordMs);
}

/** Does the work under a signal that ends with the given one, and after so long (absent: whenever). */
export async function endedIn<T>(
  ms: number | undefined,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (ms === undefined) return work(signal);
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  // Timers may be early by a part of a millisecond: then the time would not be over yet.
  const timer = setTimeout(() => stop.abort(), Math.min(Math.max(0, ms) + 1, longestTimerMs));
  try {
    return await work(stop.signal);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** The operator has said so; the step's next attempt is on record. */
export class RetriedByOperator extends StepFailed {
  constructor() {
    super({ code: "flow_step_unknown", message: "It is tried again." }, true);
  }
}
