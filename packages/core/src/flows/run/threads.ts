/** Parts of a run that go on side by side, and how they are told to stop. */
import { StepFailed } from "./failures.ts";

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

/** The operator has said so; the step's next attempt is on record. */
export class RetriedByOperator extends StepFailed {
  constructor() {
    super({ code: "flow_step_unknown", message: "It is tried again." }, true);
  }
}
