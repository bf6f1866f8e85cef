/**
 * The connections that one process holds (server form). What happens anywhere is a row, so this process
 * looks for new rows while it holds connections, and at once where the change was made by itself; while it
 * holds none it reads nothing. The rows of its connections live as long as it renews them.
 */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { ConnectionAt } from "../ports/connections.ts";
import type { Push } from "../ports/push.ts";
import { namesFor } from "./audience.ts";
import { endedEvent, type Connection, type RealtimeEvent } from "./connection.ts";
import { toFrame } from "./frames.ts";
import { answerMessage } from "./messages.ts";

/** Milliseconds. */
export interface HubTiming {
  /** Between two looks for events of other processes. */
  readonly pollMs: number;
  readonly renewMs: number;
  /** How long the row of a connection lives without being renewed. */
  readonly lifetimeMs: number;
}

export const defaultHubTiming: HubTiming = { pollMs: 400, renewMs: 20_000, lifetimeMs: 60_000 };

/** Few enough that a burst of large ones fits into what may wait for a client. */
const eventsAtOnce = 100;
const gatherMs = 20;
/** Who holds no connection waits for one. */
const idleMs = 3_600_000;

/** `lost`: nobody has renewed it, and it has been told nothing since; its client is to come back. */
export type Ending = "expired" | "lost" | "not_allowed";

export interface HubOptions {
  readonly deps: CoreDeps;
  /** To the sockets of this process. */
  readonly push: Push;
  /** Resolves when more can be told; soon, whatever some client does. */
  readonly ready: () => Promise<void>;
  /** Names this process. */
  readonly holder: string;
  readonly timing: HubTiming;
  /** Closes the socket of a connection that has come to its end. */
  readonly close: (connectionId: string, why: Ending) => void;
}

interface Held {
  readonly connection: Connection;
  /** The renewal that was the newest when it was added. */
  readonly round: number;
}

export class Hub {
  readonly #options: HubOptions;
  readonly #held = new Map<string, Held>();
  /** The newest event of each tenant that was looked at. */
  readonly #seen = new Map<string, number>();
  readonly #stopping = new AbortController();
  #wakeUp = new AbortController();
  #running: Promise<unknown> | undefined;
  #round = 0;
  /** When the newest renewal that has succeeded was begun, or the first connection added. */
  #renewedAt = 0;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  /** Its socket is open, and can be pushed to. */
  add({ connection, seq }: ConnectionAt): void {
    if (this.#held.size === 0) this.#renewedAt = this.#options.deps.clock.now();
    this.#held.set(connection.id, { connection, round: this.#round });
    if (!this.#seen.has(connection.tenant)) this.#seen.set(connection.tenant, seq);
    this.#running ??= Promise.all([this.#repeatLooking(), this.#repeatRenewing()]);
    this.wake();
  }

  /** The frame that answers a message. */
  answer(connection: Connection, text: string): Promise<string> {
    return answerMessage(this.#options.deps, connection, text);
  }

  /** Its socket was closed. */
  async remove({ tenant, id }: Connection): Promise<void> {
    this.#forget(id, tenant);
    await this.#options.deps.repos.connections.remove(tenant, id);
  }

  /** Something happened in this process that some connection may want to hear of. */
  wake(): void {
    if (this.#held.size > 0) this.#wakeUp.abort();
  }

  /** Takes the rows of all its connections away; their sockets are the caller's business. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wakeUp.abort();
    await this.#running;
    if (this.#running !== undefined) await this.#options.deps.repos.connections.removeHeldBy(this.#options.holder);
  }

  #forget(id: string, tenant: string): void {
    this.#held.delete(id);
    for (const { connection } of this.#held.values()) if (connection.tenant === tenant) return;
    this.#seen.delete(tenant);
  }

  async #repeatLooking(): Promise<void> {
    const { timing } = this.#options;
    while (!this.#stopping.signal.aborted) {
      const hasMore = this.#held.size > 0 && (await this.#try(() => this.#look()));
      await this.#options.ready();
      // Changes elsewhere come in groups, and one look finds them all; who wakes us waits for it.
      await this.#pause(gatherMs, this.#wakeUp.signal);
      const wait = this.#held.size === 0 ? idleMs : timing.pollMs;
      if (!hasMore) await this.#pause(wait, this.#wakeUp.signal);
      if (this.#wakeUp.signal.aborted) this.#wakeUp = new AbortController();
    }
  }

  async #repeatRenewing(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await this.#pause(this.#options.timing.renewMs, this.#stopping.signal);
      if (this.#held.size > 0 && !this.#stopping.signal.aborted) await this.#try(() => this.#renew());
    }
  }

  /** @returns whether there is more than was looked at */
  async #look(): Promise<boolean> {
    const { deps, holder } = this.#options;
    const { events, connections } = await deps.repos.connections.heldEvents(holder, new Map(this.#seen), eventsAtOnce);
    for (const event of events) {
      if (event.type === endedEvent) this.#end(event, connections);
      else await this.#tell(event, connections);
      if (this.#seen.has(event.tenant)) this.#seen.set(event.tenant, event.seq);
    }
    return events.length >= eventsAtOnce;
  }

  async #tell(event: RealtimeEvent, connections: readonly Connection[]): Promise<void> {
    const frames = new Map<string, string>();
    await Promise.all(
      connections.map(async (connection) => {
        const names = this.#held.has(connection.id) ? namesFor(connection, event) : undefined;
        if (names === undefined) return;
        const key = names.join();
        const frame = frames.get(key) ?? toFrame(event, names);
        frames.set(key, frame);
        // One that is gone is forgotten when its socket has closed.
        await this.#options.push.send(connection.id, frame);
      }),
    );
  }

  /** Unless it counts again by now. */
  #end({ audience }: RealtimeEvent, alive: readonly Connection[]): void {
    const id = "value" in audience ? audience.value : "";
    if (this.#held.has(id) && !alive.some((connection) => connection.id === id)) this.#options.close(id, "not_allowed");
  }

  async #renew(): Promise<boolean> {
    const { deps, holder, timing, close } = this.#options;
    this.#round += 1;
    const round = this.#round;
    const askedAt = deps.clock.now();
    const alive = new Set(await deps.repos.connections.renew(holder, timing.lifetimeMs));
    const now = deps.clock.now();
    // This process, or its database, was away for longer than rows live.
    const why = now - this.#renewedAt >= timing.lifetimeMs ? "lost" : "not_allowed";
    this.#renewedAt = askedAt;
    for (const [id, held] of this.#held) {
      // Added while it was asked: it may be missing for that alone.
      if (held.round < round && !alive.has(id)) close(id, now >= held.connection.closesAt ? "expired" : why);
    }
    return false;
  }

  async #try(work: () => Promise<boolean>): Promise<boolean> {
    try {
      return await work();
    } catch (thrown) {
      this.#options.deps.log.log("warn", "connections were not looked after and will be again", {
        code: toGatewayError(thrown).code,
      });
      return false;
    }
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    await this.#options.deps.clock.sleep(ms, signal).catch(() => undefined);
  }
}
