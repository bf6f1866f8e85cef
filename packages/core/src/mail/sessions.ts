/**
 * Sessions with the mail server of one account that are used again: to connect, to encrypt and to log in is most
 * of what a mail waits for. A session has one mail at a time; one that nobody uses is ended soon, since servers
 * count them. What is kept is the session, never the password.
 */
import type { Clock } from "../ports/clock.ts";
import type { MailSession } from "../ports/mail-transport.ts";

/** Milliseconds for which an unused session is kept; servers keep theirs for longer. */
const idleMs = 5_000;
/** Mails of one session, after which many servers end it. */
const mostUses = 50;

interface Kept {
  readonly session: MailSession;
  readonly uses: number;
  /** Milliseconds of the clock; a process may stand still, and its timers with it. */
  readonly since: number;
}

export class MailSessions {
  readonly #clock: Pick<Clock, "now">;
  #free: Kept[] = [];
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /**
   * Runs `work` on a session that is nobody else's meanwhile.
   * @throws GatewayError as `open`, and `call_cancelled`; both `not_sent`. What `work` throws
   */
  async use<T>(
    signal: AbortSignal,
    open: () => Promise<MailSession>,
    work: (session: MailSession) => Promise<T>,
  ): Promise<T> {
    const kept = await this.#take(signal);
    const session = kept?.session ?? (await open());
    try {
      return await work(session);
    } finally {
      this.#giveBack({ session, uses: (kept?.uses ?? 0) + 1, since: this.#clock.now() });
    }
  }

  close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const { session } of this.#free.splice(0)) session.close();
    return Promise.resolve();
  }

  /** The one that was used last. */
  async #take(signal: AbortSignal): Promise<Kept | undefined> {
    for (let kept = this.#free.pop(); kept !== undefined; kept = this.#free.pop()) {
      const { session, since } = kept;
      const isFresh = session.isAlive() && this.#clock.now() - since < idleMs;
      const isThere = isFresh && (await renewed(session, signal));
      if (isThere) return kept;
      session.close();
    }
    return undefined;
  }

  #giveBack(kept: Kept): void {
    if (this.#isClosed || kept.uses >= mostUses || !kept.session.isAlive()) {
      kept.session.close();
      return;
    }
    this.#free.push(kept);
    this.#timer ??= this.#startTimer();
  }

  #startTimer(): NodeJS.Timeout {
    const sweep = (): void => this.#sweep();
    return setTimeout(sweep, idleMs).unref();
  }

  #sweep(): void {
    const now = this.#clock.now();
    const old = this.#free.filter(({ since }) => now - since >= idleMs);
    this.#free = this.#free.filter(({ since }) => now - since < idleMs);
    for (const { session } of old) session.close();
    this.#timer = this.#free.length === 0 ? undefined : this.#startTimer();
  }
}

async function renewed(session: MailSession, signal: AbortSignal): Promise<boolean> {
  try {
    return await session.renew(signal);
  } catch (error) {
    session.close();
    throw error;
  }
}
