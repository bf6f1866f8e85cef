/**
 * Holds subscriptions: consumes what the gateway says, brings each message, and settles it with the broker when the
 * gateway has answered. Nothing that is in hand is only here: whatever happens to this process, the broker delivers
 * it again, and the gateway knows it by its id.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { Log } from "../ports/log.ts";
import type { MessageConsumer, MessageConsumers, ReceivedMessage, Settlement } from "../ports/message-consumer.ts";
import type { Assigned, OpenSubscription } from "./assign.ts";
import { noCounts, type HolderReport, type SubscriptionCounts } from "./subscription.ts";
import type { Taken } from "./take.ts";

/** What the gateway is asked; whoever answers waits for a connection where there is none. */
export interface SubscriptionDesk {
  /** Undefined: the gateway cannot be reached now. */
  hold(reports: readonly HolderReport[]): Promise<Held | undefined>;
  /** @throws GatewayError */
  open(id: string): Promise<OpenSubscription>;
  /** Undefined: the desk is closed. @throws GatewayError */
  bring(bringing: Brought): Promise<Taken | undefined>;
  release(): Promise<void>;
}

export interface Held {
  readonly subscriptions: readonly Assigned[];
  readonly beatMs: number;
  readonly leaseMs: number;
}

export interface Brought {
  readonly subscription: string;
  readonly fingerprint: string;
  readonly maxMessageBytes: number;
  readonly inOrder: boolean;
  /** Names this taking of the message. */
  readonly delivery: string;
  readonly message: ReceivedMessage;
  /** Nobody waits any more. */
  readonly signal: AbortSignal;
}

export interface HolderDeps {
  readonly desk: SubscriptionDesk;
  readonly consumers: MessageConsumers;
  readonly log: Log;
  /** Names each taking of a message. */
  readonly newDelivery: () => string;
}

const firstPauseMs = 500;
const longestPauseMs = 30_000;
/** What has happened is told at most so long afterwards. */
const toldWithinMs = 2_000;
/** What is in hand may take so long once a subscription is to be let go. */
const letGoMs = 5_000;

export class SubscriptionHolder {
  readonly #deps: HolderDeps;
  readonly #holds = new Map<string, Hold>();
  readonly #stopping = new AbortController();
  #beatMs = 20_000;
  #leaseMs = 60_000;
  /** When the gateway last said what to hold. */
  #heldAt = 0;
  #wakeUp = Promise.withResolvers<void>();
  #running: Promise<void> | undefined;
  /** Holds that are on their way out. */
  readonly #leaving = new Set<Promise<void>>();

  constructor(deps: HolderDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Something may have changed: looks at once. */
  refresh(): void {
    this.#wakeUp.resolve();
  }

  /** Takes nothing more, settles what is in hand within the grace, and gives the rest back. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    this.refresh();
    await Promise.all([...this.#holds.values()].map((hold) => hold.end(graceMs)));
    this.#holds.clear();
    await Promise.all([this.#running, ...this.#leaving]);
    await this.#deps.desk.release().catch(() => undefined);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      this.#wakeUp = Promise.withResolvers();
      await this.#look();
      const changed = [...this.#holds.values()].some((hold) => hold.hasNews);
      await pause(changed ? Math.min(toldWithinMs, this.#beatMs) : this.#beatMs, this.#wakeUp.promise);
    }
  }

  async #look(): Promise<void> {
    const holds = [...this.#holds.values()];
    const reports = await Promise.all(holds.map((hold) => hold.report()));
    const held = await this.#deps.desk.hold(reports).catch((thrown: unknown) => {
      this.#deps.log.log("warn", "the gateway did not say what to consume", { reason: toGatewayError(thrown).message });
      return undefined;
    });
    if (this.#stopping.signal.aborted) return;
    if (held === undefined) {
      // Whoever is away for so long is no holder any more; others must not wait for what is in hand here.
      if (Date.now() - this.#heldAt > this.#leaseMs) this.#keepOnly([]);
      for (const [at, hold] of holds.entries()) hold.untold(reports[at]);
      return;
    }
    this.#heldAt = Date.now();
    this.#beatMs = held.beatMs;
    this.#leaseMs = held.leaseMs;
    this.#keepOnly(held.subscriptions);
    for (const assigned of held.subscriptions) {
      if (this.#holds.has(assigned.id)) continue;
      const hold = new Hold(assigned, this.#deps, () => this.refresh());
      this.#holds.set(assigned.id, hold);
    }
  }

  /** Ends those that are not meant, or not as they are configured now; these come again with the next look. */
  #keepOnly(assigned: readonly Assigned[]): void {
    for (const [id, hold] of this.#holds) {
      const now = assigned.find((each) => each.id === id);
      if (now !== undefined && now.fingerprint === hold.fingerprint) continue;
      this.#holds.delete(id);
      const leaving = hold.end(letGoMs).finally(() => this.#leaving.delete(leaving));
      this.#leaving.add(leaving);
    }
  }
}

type Rules = Pick<OpenSubscription, "maxMessageBytes" | "inOrder">;

/** One subscription that is held. */
class Hold {
  readonly fingerprint: string;
  readonly #assigned: Assigned;
  readonly #deps: HolderDeps;
  readonly #lookAgain: () => void;
  readonly #ending = new AbortController();
  readonly #running: Promise<void>;
  #graceMs = letGoMs;
  #consumer: MessageConsumer | undefined;
  #error: { readonly code: string; readonly message: string } | null = null;
  #isConsuming = false;
  #inHand = 0;
  #counts: SubscriptionCounts = noCounts;
  #droppedBefore = 0;
  #lastMessageAt: number | null = null;
  #hasNews = false;

  constructor(assigned: Assigned, deps: HolderDeps, lookAgain: () => void) {
    this.#assigned = assigned;
    this.fingerprint = assigned.fingerprint;
    this.#deps = deps;
    this.#lookAgain = lookAgain;
    this.#running = this.#run();
  }

  /** Something has happened that was not told. */
  get hasNews(): boolean {
    return this.#hasNews;
  }

  async report(): Promise<HolderReport> {
    const waiting = await this.#waiting();
    const dropped = this.#consumer?.dropped ?? 0;
    const counts = { ...this.#counts, dropped: this.#counts.dropped + Math.max(0, dropped - this.#droppedBefore) };
    this.#droppedBefore = dropped;
    this.#counts = noCounts;
    this.#hasNews = false;
    return {
      id: this.#assigned.id,
      state: this.#error !== null ? "failing" : this.#isConsuming ? "consuming" : "starting",
      error: this.#error,
      waiting,
      inHand: this.#inHand,
      counts,
      lastMessageAt: this.#lastMessageAt,
    };
  }

  /** What was counted did not arrive, and is told again. */
  untold(report: HolderReport | undefined): void {
    if (report !== undefined) this.#count(report.counts);
  }

  async end(graceMs: number): Promise<void> {
    this.#graceMs = graceMs;
    this.#ending.abort();
    await this.#running;
  }

  async #waiting(): Promise<number | null> {
    if (!this.#isConsuming) return null;
    const late = pause(firstPauseMs * 4, new Promise(() => undefined)).then(() => undefined);
    const asked = this.#consumer?.waiting().catch(() => undefined);
    return (await Promise.race([asked, late])) ?? null;
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending;
    let pauseMs = firstPauseMs;
    while (!signal.aborted) {
      const startedAt = Date.now();
      try {
        await this.#consume();
      } catch (thrown) {
        this.#fail(toGatewayError(thrown));
      }
      if (signal.aborted) return;
      // One that held for a while has not been failing.
      if (Date.now() - startedAt > longestPauseMs) pauseMs = firstPauseMs;
      await pauseUnless(signal, pauseMs * (0.5 + Math.random()));
      pauseMs = Math.min(longestPauseMs, pauseMs * 2);
    }
  }

  /** Until it is to end, or the connection does. @throws GatewayError */
  async #consume(): Promise<void> {
    const { desk, consumers, log } = this.#deps;
    const { id, name } = this.#assigned;
    const { signal } = this.#ending;
    const opened = await desk.open(id);
    if (opened.fingerprint !== this.fingerprint) {
      this.#lookAgain();
      return;
    }
    const { account, source, prefetch, ...rest } = opened;
    const consumer = await consumers.open(account, {
      source,
      prefetch,
      onMessage: (message) => this.#bring(message, rest),
    });
    this.#consumer = consumer;
    this.#droppedBefore = 0;
    this.#isConsuming = true;
    this.#recover();
    this.#lookAgain();
    log.log("info", "consuming", { subscription: name });
    try {
      const lost = await Promise.race([consumer.ended, aborted(signal).then(() => undefined)]);
      if (lost !== undefined) throw lost;
    } finally {
      this.#isConsuming = false;
      await consumer.close(signal.aborted ? this.#graceMs : 0);
    }
  }

  async #bring(message: ReceivedMessage, opened: Rules): Promise<Settlement> {
    this.#inHand += 1;
    this.#lastMessageAt = Date.now();
    try {
      return await this.#bringUntilSettled(message, opened);
    } finally {
      this.#inHand -= 1;
    }
  }

  async #bringUntilSettled(message: ReceivedMessage, { maxMessageBytes, inOrder }: Rules): Promise<Settlement> {
    const { signal } = this.#ending;
    const delivery = this.#deps.newDelivery();
    const brought: Brought = {
      subscription: this.#assigned.id,
      fingerprint: this.fingerprint,
      maxMessageBytes,
      inOrder,
      delivery,
      message,
      signal,
    };
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(longestPauseMs, pauseMs * 2)) {
      const taken = await this.#ask(brought);
      if (taken === undefined) return "again";
      const settlement = this.#settle(taken);
      if (settlement !== undefined) return settlement;
      const { retryAfterMs = pauseMs } = "retryAfterMs" in taken ? taken : {};
      await pauseUnless(signal, Math.min(longestPauseMs, retryAfterMs));
      if (signal.aborted) return "again";
    }
  }

  /** Undefined: nobody is there to ask. */
  async #ask(brought: Brought): Promise<Taken | undefined> {
    try {
      return await this.#deps.desk.bring(brought);
    } catch (thrown) {
      const { code, message } = toGatewayError(thrown);
      return { kind: "later", code, message, retryAfterMs: firstPauseMs * 4 };
    }
  }

  /** Undefined: it is to be brought again. */
  #settle(taken: Taken): Settlement | undefined {
    switch (taken.kind) {
      case "accepted":
        this.#recover();
        this.#count({ ...noCounts, accepted: 1 });
        return "done";
      case "duplicate":
        this.#recover();
        this.#count({ ...noCounts, duplicates: 1 });
        return "done";
      case "dead":
        this.#count({ ...noCounts, refused: 1, dead: 1 });
        this.#deps.log.log("warn", "a message was given up", {
          subscription: this.#assigned.name,
          code: taken.code,
          reason: taken.message,
        });
        return "dead";
      case "refused":
        this.#count({ ...noCounts, refused: 1 });
        return undefined;
      case "later":
        if (taken.code !== null) this.#fail(new GatewayError("tool_deferred", taken.message), taken.code);
        return undefined;
      case "withdrawn":
        this.#lookAgain();
        return "again";
      default:
        return taken satisfies never;
    }
  }

  #fail({ code, message }: GatewayError, said: string = code): void {
    const isNew = this.#error?.message !== message;
    this.#error = { code: said, message: message.slice(0, 2_000) };
    this.#hasNews ||= isNew;
    if (!isNew) return;
    this.#deps.log.log("warn", "a subscription does not consume", {
      subscription: this.#assigned.name,
      code: said,
      reason: message,
    });
    this.#lookAgain();
  }

  #recover(): void {
    if (this.#error === null && this.#hasNews) return;
    this.#error = null;
    this.#hasNews = true;
  }

  #count(more: SubscriptionCounts): void {
    const counts = this.#counts;
    this.#counts = {
      accepted: counts.accepted + more.accepted,
      duplicates: counts.duplicates + more.duplicates,
      refused: counts.refused + more.refused,
      dead: counts.dead + more.dead,
      dropped: counts.dropped + more.dropped,
    };
    this.#hasNews = true;
  }
}

/** Ends early with `interrupted`. */
async function pause(ms: number, interrupted: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((done) => {
    timer = setTimeout(done, ms);
  });
  await Promise.race([over, interrupted]);
  clearTimeout(timer);
}

function pauseUnless(signal: AbortSignal, ms: number): Promise<void> {
  return new Promise((done) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) done();
    else signal.addEventListener("abort", () => done(), { once: true });
  });
}
