/** The time of a step: its own limit, or that of a step around it. */
import type { Clock } from "../../ports/clock.ts";
import { stepTimeout } from "./failures.ts";
import type { Journal } from "./journal.ts";
import { earliest } from "./node-values.ts";
import type { At } from "./step-place.ts";
import { behindOwnLimit, endedIn, requireWanted } from "./threads.ts";
import type { Waits } from "./waits.ts";

export interface StepTimeParts {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly waits: Waits;
  /** Ends with the run. */
  readonly stop: AbortSignal;
}

export class StepTime {
  readonly #parts: StepTimeParts;

  constructor(parts: StepTimeParts) {
    this.#parts = parts;
  }

  /** Waits. @throws StepFailed `flow_step_timeout` */
  async until(at: At, time: number): Promise<void> {
    while (this.#parts.clock.now() < time) {
      this.require(at);
      await this.#parts.waits.until({ wakeAt: earliest(time, at.deadline) });
      requireWanted(at.frame.group);
    }
  }

  isOver({ deadline }: At): boolean {
    return deadline !== undefined && this.#parts.clock.now() >= deadline;
  }

  /** @param why what is to be said of its call @throws StepFailed `flow_step_timeout` */
  require(at: At, why?: string): void {
    if (this.isOver(at)) throw stepTimeout(at.path, this.#parts.journal.step(at.path)?.callId, why);
  }

  /** Under a signal that ends with the step's time, too. `limitMs`: what the work is given by itself. */
  within<T>({ deadline }: At, work: (signal: AbortSignal) => Promise<T>, limitMs?: number): Promise<T> {
    const inMs = deadline === undefined ? undefined : deadline - this.#parts.clock.now();
    return endedIn(behindOwnLimit(inMs, limitMs), this.#parts.stop, work);
  }
}
