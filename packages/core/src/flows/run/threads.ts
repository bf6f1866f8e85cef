/** Parts of a run that go on side by side, and how they are told to stop. */
import { StepFailed } from "./failures.ts";

const longestTimerMs = 2 ** 31 - 1;

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
  const timer = setTimeout(() => stop.abort(), Math.min(Math.max(0, ms), longestTimerMs));
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
