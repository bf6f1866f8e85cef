/**
 * Spreads calls over the instances of one service (SVC-3) and leaves those alone that fail (SVC-4): after
 * failures in a row an instance is passed over, and after a while one call finds out whether it is well.
 * Where all have failed, calls go on to them: sparing the service as a whole is its breaker's affair.
 * State is each process's own.
 */
import type { Clock } from "../ports/clock.ts";
import type { Balance } from "./fields.ts";
import { authorityOf, type Instance } from "./instance.ts";

export interface BalancerOptions {
  readonly balance: Balance;
  /** Failures in a row after which an instance is passed over. */
  readonly failures: number;
  /** Milliseconds for which it is. */
  readonly openMs: number;
}

interface State {
  instance: Instance;
  pending: number;
  failures: number;
  /** Milliseconds of the clock; 0: not passed over. */
  openUntil: number;
  /** A call is on its way to see whether it is well again. */
  isTrying: boolean;
  /** Of the weighted order: grows by the weight with each pick, and falls by the sum when picked. */
  credit: number;
}

export interface Picked {
  readonly instance: Instance;
  /** @param verdict what the call says of the instance; undefined: nothing */
  end(verdict: "well" | "failed" | undefined): void;
}

export class Balancer {
  readonly #options: BalancerOptions;
  readonly #clock: Pick<Clock, "now">;
  readonly #random: () => number;
  #states: readonly State[] = [];
  #known: readonly Instance[] | undefined;
  #turn: number;

  constructor(options: BalancerOptions, clock: Pick<Clock, "now">, random: () => number = Math.random) {
    this.#options = options;
    this.#clock = clock;
    this.#random = random;
    // Many processes that start together do not all begin with the same instance.
    this.#turn = Math.floor(random() * 1_000);
  }

  /** Instances that are there now; what is known of those that stay is kept. */
  update(instances: readonly Instance[]): void {
    if (instances === this.#known) return;
    this.#known = instances;
    const before = new Map(this.#states.map((state) => [authorityOf(state.instance), state]));
    this.#states = instances.map((instance) => {
      const known = before.get(authorityOf(instance));
      if (known !== undefined) {
        known.instance = instance;
        return known;
      }
      return { instance, pending: 0, failures: 0, openUntil: 0, isTrying: false, credit: 0 };
    });
  }

  /** @param except those that have been tried already; undefined where nothing is left */
  pick(except: ReadonlySet<string> = new Set()): Picked | undefined {
    const left = this.#states.filter(({ instance }) => !except.has(authorityOf(instance)));
    const now = this.#clock.now();
    const well = left.filter((state) => state.openUntil === 0 || (state.openUntil <= now && !state.isTrying));
    const chosen = this.#choose(well.length > 0 ? well : left);
    if (chosen === undefined) return undefined;
    const isTrial = chosen.openUntil > 0;
    if (isTrial) chosen.isTrying = true;
    chosen.pending += 1;
    return {
      instance: chosen.instance,
      end: (verdict) => {
        chosen.pending -= 1;
        if (isTrial) chosen.isTrying = false;
        this.#note(chosen, verdict);
      },
    };
  }

  #note(state: State, verdict: "well" | "failed" | undefined): void {
    if (verdict === undefined) return;
    state.failures = verdict === "well" ? 0 : state.failures + 1;
    state.openUntil = state.failures >= this.#options.failures ? this.#clock.now() + this.#options.openMs : 0;
  }

  #choose(among: readonly State[]): State | undefined {
    switch (this.#options.balance) {
      case "round_robin":
        return this.#nextOf(among);
      case "random":
        return among[Math.floor(this.#random() * among.length)];
      case "weighted":
        return byCredit(among);
      case "least_pending": {
        const fewest = among.reduce((least, { pending }) => Math.min(least, pending), Number.POSITIVE_INFINITY);
        return this.#nextOf(among.filter(({ pending }) => pending === fewest));
      }
      default:
        return this.#options.balance satisfies never;
    }
  }

  #nextOf(among: readonly State[]): State | undefined {
    this.#turn = (this.#turn + 1) % Number.MAX_SAFE_INTEGER;
    return among[this.#turn % among.length];
  }
}

/** Exact shares also over few calls, and no instance has many in a row. */
function byCredit(among: readonly State[]): State | undefined {
  const sum = among.reduce((total, { instance }) => total + instance.weight, 0);
  for (const state of among) state.credit += state.instance.weight;
  const [first, ...others] = among;
  if (first === undefined) return undefined;
  const chosen = others.reduce((best, state) => (state.credit > best.credit ? state : best), first);
  chosen.credit -= sum;
  return chosen;
}
