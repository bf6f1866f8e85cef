/**
 * Connections that outlive a call (MCP, gRPC, brokers): one pool for all schemes. A connection belongs
 * to tenant, service, configuration version and the credentials it was opened with, so no tenant and no
 * user ever meets another's, and a change opens a new one. Calls under way on an old one end on it;
 * after that, and when idle, it is closed.
 */
import { findCredential, type CredentialContext } from "../blind/credential-resolver.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Log } from "../ports/log.ts";
import { withDelivery } from "../errors/delivery.ts";
import { credentialsOf } from "./config-fields.ts";
import type { ToolService } from "./service.ts";

export interface Held<Connection> {
  readonly connection: Connection;
  /** Called once nobody uses it any more. */
  readonly close: () => Promise<void>;
  /** False once the other side is gone: the next call opens another. */
  readonly isAlive: () => boolean;
}

export interface HeldOptions {
  /** Milliseconds for which an unused connection is kept. */
  readonly idleMs?: number;
  /** Connections of this process, over all tenants; the least recently used idle one goes first. */
  readonly most?: number;
}

interface Entry {
  readonly key: string;
  /** Tenant and service. */
  readonly place: string;
  /** Older ones are let go when a newer is asked for. */
  readonly version: number;
  readonly opening: Promise<Held<unknown>>;
  /** Gives up opening. */
  readonly unwanted: AbortController;
  opened: Held<unknown> | undefined;
  users: number;
  /** When it was last given back, by the clock on the wall: a process may stand still, and its timers with it. */
  restsSince: number;
  /** Goes as soon as nobody uses it. */
  isRetired: boolean;
  isEnded: boolean;
  timer: NodeJS.Timeout | undefined;
}

export interface UseOptions<Connection> {
  readonly service: ToolService;
  readonly context: CredentialContext;
  /** Tells connections of one service apart, such as a session's own; absent: one for all. */
  readonly part?: string;
  /** @param signal fires where nobody wants it any more before it is open */
  readonly open: (signal: AbortSignal) => Promise<Held<Connection>>;
}

export class HeldConnections {
  readonly #entries = new Map<string, Entry>();
  /** Also those that are no longer given out. */
  readonly #all = new Set<Entry>();
  readonly #idleMs: number;
  readonly #most: number;
  readonly #log: Log;
  #isClosed = false;

  constructor(log: Log, { idleMs = 300_000, most = 1_000 }: HeldOptions = {}) {
    this.#log = log;
    this.#idleMs = idleMs;
    this.#most = most;
  }

  /** Connections that are open or being opened. */
  get size(): number {
    return this.#all.size;
  }

  /**
   * Runs `work` on the service's connection, opening it where there is none; several works may run on one.
   * Failures to open reach all who wait and are not kept.
   */
  async use<Connection, Result>(
    options: UseOptions<Connection>,
    work: (connection: Connection) => Promise<Result>,
  ): Promise<Result> {
    if (bringsItsOwn(options)) return this.#useOnce(options, work);
    const entry = this.#take(options);
    try {
      // The key holds the scheme, whose connections are all of this one type.
      const held = (await entry.opening) as Held<Connection>;
      return await work(held.connection);
    } finally {
      this.#release(entry);
    }
  }

  /** Credentials of a request's own are not kept beyond it (BLIND-7), so neither is a connection made with them. */
  async #useOnce<Connection, Result>(
    { open }: UseOptions<Connection>,
    work: (connection: Connection) => Promise<Result>,
  ): Promise<Result> {
    const held = await open(new AbortController().signal);
    try {
      return await work(held.connection);
    } finally {
      await held.close().catch((error: unknown) => this.#noteUnclean(error));
    }
  }

  /** Lets go of a service's connections, those in use when their calls have ended; for a service that is gone. */
  retire(tenant: string, service: Pick<ToolService, "id">): void {
    this.#retireOthers(placeOf(tenant, service), undefined);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const closing = [...this.#all].map(async (entry) => {
      this.#forget(entry);
      await this.#end(entry);
    });
    await Promise.all(closing);
  }

  #take<Connection>({ service, context, part, open }: UseOptions<Connection>): Entry {
    if (this.#isClosed) throw withDelivery(new GatewayError("shutting_down", "This process is stopping."), "not_sent");
    const place = placeOf(context.tenant, service);
    const generation = `${place} ${JSON.stringify([service.version, credentialVersions(service, context)])}`;
    const key = `${generation} ${JSON.stringify(part ?? null)}`;
    const known = this.#entries.get(key);
    if (known !== undefined && known.opened?.isAlive() !== false && !this.#isRested(known)) {
      this.#entries.delete(key);
      this.#entries.set(key, known);
      known.users += 1;
      return known;
    }
    if (known !== undefined) this.#retire(known);
    this.#retireOthers(place, service.version);
    const unwanted = new AbortController();
    const entry: Entry = {
      key,
      place,
      version: service.version,
      opening: open(unwanted.signal),
      unwanted,
      opened: undefined,
      users: 1,
      restsSince: 0,
      // A call with an older snapshot than others have had here.
      isRetired: this.#hasNewer(place, service.version),
      isEnded: false,
      timer: undefined,
    };
    this.#entries.set(key, entry);
    this.#all.add(entry);
    entry.opening.then(
      (held) => {
        entry.opened = held;
        if (!this.#all.has(entry)) void this.#end(entry);
      },
      () => this.#forget(entry),
    );
    this.#makeRoom();
    return entry;
  }

  #release(entry: Entry): void {
    entry.users -= 1;
    if (entry.users > 0 || !this.#all.has(entry)) return;
    if (entry.isRetired || entry.opened?.isAlive() === false) {
      this.#drop(entry);
      return;
    }
    entry.restsSince = Date.now();
    // One timer for all uses; it finds the connection in use where its time is over meanwhile.
    entry.timer = entry.timer?.refresh() ?? this.#startTimer(entry);
  }

  /** For so long that its timer must have ended it. */
  #isRested({ users, restsSince }: Entry): boolean {
    return users === 0 && Date.now() - restsSince > this.#idleMs;
  }

  #startTimer(entry: Entry): NodeJS.Timeout {
    const whenIdle = (): void => {
      if (entry.users === 0) this.#drop(entry);
    };
    return setTimeout(whenIdle, this.#idleMs).unref();
  }

  /** @param version the one that stays; calls with an older snapshot may still ask for theirs */
  #retireOthers(place: string, version: number | undefined): void {
    for (const entry of this.#all) {
      if (entry.place !== place || (version !== undefined && entry.version >= version)) continue;
      this.#retire(entry);
    }
  }

  #hasNewer(place: string, version: number): boolean {
    for (const entry of this.#all) if (entry.place === place && entry.version > version) return true;
    return false;
  }

  #retire(entry: Entry): void {
    entry.isRetired = true;
    if (this.#entries.get(entry.key) === entry) this.#entries.delete(entry.key);
    if (entry.users === 0) this.#drop(entry);
  }

  #makeRoom(): void {
    if (this.#all.size <= this.#most) return;
    for (const entry of this.#entries.values()) {
      if (entry.users > 0) continue;
      this.#drop(entry);
      return;
    }
  }

  #drop(entry: Entry): void {
    this.#forget(entry);
    void this.#end(entry);
  }

  #forget(entry: Entry): void {
    clearTimeout(entry.timer);
    if (this.#entries.get(entry.key) === entry) this.#entries.delete(entry.key);
    this.#all.delete(entry);
  }

  async #end(entry: Entry): Promise<void> {
    if (entry.isEnded) return;
    entry.isEnded = true;
    entry.unwanted.abort();
    try {
      await (await entry.opening).close();
    } catch (error) {
      this.#noteUnclean(error);
    }
  }

  #noteUnclean(error: unknown): void {
    this.#log.log("warn", "a connection of a tool service did not close cleanly", {
      error: error instanceof Error ? error.name : "unknown",
    });
  }
}

function placeOf(tenant: string, service: Pick<ToolService, "id">): string {
  return `${tenant} ${service.id}`;
}

function bringsItsOwn({ service, context }: Pick<UseOptions<unknown>, "service" | "context">): boolean {
  if (context.runtimeConfig === undefined) return false;
  return credentialsOf(service).some((name) => findCredential(context, name)?.level === "inline");
}

/** Whose credentials, in which versions: a new value or another user means another connection. */
export function credentialVersions(
  service: Pick<ToolService, "config">,
  context: CredentialContext,
): readonly unknown[] {
  return credentialsOf(service).map((name) => {
    const origin = findCredential(context, name);
    return origin === undefined ? [name] : [name, origin.level, origin.userId ?? null, origin.version ?? null];
  });
}
