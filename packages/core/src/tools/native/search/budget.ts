/** What a search may spend. The first limit that it meets ends searching; what is there by then is answered from. */
import type { ErrorCode } from "../../../errors/catalog.ts";
import type { Clock } from "../../../ports/clock.ts";

export interface Cut {
  readonly code: ErrorCode;
  readonly message: string;
}

export interface SearchLimits {
  readonly tokens: number;
  readonly calls: number;
  readonly ms: number;
}

/** Kept for the answer, of time and tokens. */
const answerShare = 0.25;

export class SearchBudget {
  readonly #clock: Clock;
  readonly #limits: SearchLimits;
  readonly #started: number;
  readonly #stopSearch = new AbortController();
  readonly #stopAll = new AbortController();
  readonly #timers: readonly NodeJS.Timeout[];
  readonly #outer: AbortSignal;
  readonly #onAbort = (): void => this.#end();
  #cut: Cut | undefined;
  tokens = 0;
  calls = 0;
  modelCalls = 0;

  constructor(clock: Clock, limits: SearchLimits, outer: AbortSignal) {
    this.#clock = clock;
    this.#limits = limits;
    this.#started = clock.now();
    this.#outer = outer;
    if (outer.aborted) this.#end();
    else outer.addEventListener("abort", this.#onAbort, { once: true });
    this.#timers = [
      setTimeout(() => this.#stopSearch.abort(), limits.ms * (1 - answerShare)),
      setTimeout(() => this.#end(), limits.ms),
    ];
  }

  #end(): void {
    this.#stopSearch.abort();
    this.#stopAll.abort();
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#outer.removeEventListener("abort", this.#onAbort);
  }

  /** Of planning, searching and reading. */
  get searching(): AbortSignal {
    return this.#stopSearch.signal;
  }

  /** Of the answer, too. */
  get answering(): AbortSignal {
    return this.#stopAll.signal;
  }

  /** The first limit that was met. */
  get cut(): Cut | undefined {
    return this.#cut ?? this.#timeIsUp();
  }

  end(code: ErrorCode, message: string): void {
    this.#cut ??= { code, message };
  }

  #timeIsUp(): Cut | undefined {
    const spent = this.#clock.now() - this.#started;
    if (!this.searching.aborted && spent < this.#limits.ms * (1 - answerShare)) return undefined;
    this.end("wall_clock_exceeded", `Searching was ended after ${spent} ms ('budget.ms', ${this.#limits.ms}).`);
    return this.#cut;
  }

  /** Takes one call of a tool; false: there is none left. */
  takeCall(): boolean {
    if (this.cut !== undefined) return false;
    if (this.calls >= this.#limits.calls) {
      this.end("calls_exceeded", `Searching was ended after ${this.calls} calls of tools ('budget.calls').`);
      return false;
    }
    this.calls += 1;
    return true;
  }

  /** Is there room for a prompt of so many tokens, beside the answer that is still to come? */
  mayAsk(tokens: number, isAnswer: boolean): boolean {
    const room = this.#limits.tokens * (isAnswer ? 1 : 1 - answerShare) - this.tokens;
    if (tokens <= room) return true;
    this.end(
      "cost_exceeded",
      `Searching was ended at ${this.tokens} tokens: the next step needs about ${tokens} more than 'budget.tokens' (${this.#limits.tokens}) leaves.`,
    );
    return false;
  }

  spend(tokens: number): void {
    this.modelCalls += 1;
    this.tokens += tokens;
  }
}
