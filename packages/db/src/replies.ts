/**
 * Replies as rows: whoever receives one writes it, whoever waits looks for it, less and less often. In
 * one process a delivery wakes its waiter at once (facts: polling with SELECT and taking once costs no
 * write lock while nothing has come).
 */
import { randomUUID } from "node:crypto";
import type { Clock } from "@toolyard/core/ports/clock";
import type { Replies } from "@toolyard/core/ports/replies";
import type { Database, Shards } from "./database.ts";
import { now } from "./repos/fragments.ts";

const firstPollMs = 25;
const longestPollMs = 250;
const slowdown = 1.5;

/** The row stays when its reply has been taken, so that a duplicate delivery is known for one. */
const deliverReply = `INSERT INTO replies (tenant, key, payload, delivered_by, created_at)
  VALUES (?1, ?2, ?3, ?4, ${now}) ON CONFLICT (tenant, key) DO NOTHING`;
const readDelivery = "SELECT delivered_by FROM replies WHERE tenant = ?1 AND key = ?2";
const isThere = "SELECT 1 FROM replies WHERE tenant = ?1 AND key = ?2 AND taken_by IS NULL";
/** Sent twice, the second finds what the first took. */
const takeReply = `UPDATE replies SET taken_by = ?3
  WHERE tenant = ?1 AND key = ?2 AND (taken_by IS NULL OR taken_by = ?3) RETURNING payload`;

export function createDatabaseReplies(shards: Shards, clock: Clock): Replies {
  const waiters = new Map<string, Set<Waiter>>();
  return {
    deliver: async (tenant, key, payload) => {
      const name = randomUUID();
      const [, found] = await shards.databaseFor(tenant).batch(
        [
          { sql: deliverReply, args: [tenant, key, payload, name] },
          { sql: readDelivery, args: [tenant, key] },
        ],
        { repeatable: true },
      );
      const isFirst = found?.rows[0]?.["delivered_by"] === name;
      if (isFirst) for (const waiter of waiters.get(nameOf(tenant, key)) ?? []) waiter.wake();
      return isFirst;
    },

    /** @throws the signal's reason where it is aborted */
    wait: async (tenant, key, options) => {
      const name = nameOf(tenant, key);
      const waiter = new Waiter();
      const others = waiters.get(name) ?? new Set();
      waiters.set(name, others.add(waiter));
      try {
        return await pollUntil(
          { ...options, poll: () => takeIfThere(shards.databaseFor(tenant), tenant, key) },
          {
            waiter,
            clock,
          },
        );
      } finally {
        others.delete(waiter);
        if (others.size === 0) waiters.delete(name);
      }
    },
  };
}

interface Polling {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly poll: () => Promise<string | undefined>;
}

async function pollUntil(
  { timeoutMs, signal, poll }: Polling,
  { waiter, clock }: { readonly waiter: Waiter; readonly clock: Clock },
): Promise<string | undefined> {
  const deadline = clock.now() + timeoutMs;
  for (let pause = firstPollMs; ; pause = Math.min(longestPollMs, pause * slowdown)) {
    signal?.throwIfAborted();
    const payload = await poll();
    if (payload !== undefined) return payload;
    const left = deadline - clock.now();
    if (left <= 0) return undefined;
    await waiter.pause(Math.min(pause, left), { clock, signal });
  }
}

async function takeIfThere(database: Database, tenant: string, key: string): Promise<string | undefined> {
  const [found] = await database.batch([{ sql: isThere, args: [tenant, key] }], { readonly: true });
  if (found === undefined || found.rows.length === 0) return undefined;
  const [taken] = await database.batch([{ sql: takeReply, args: [tenant, key, randomUUID()] }], { repeatable: true });
  const payload = taken?.rows[0]?.["payload"];
  return typeof payload === "string" ? payload : undefined;
}

/** Somebody of this process who waits; a delivery that comes while it looks is not missed. */
class Waiter {
  #wakeUp = new AbortController();

  wake(): void {
    this.#wakeUp.abort();
  }

  async pause(
    ms: number,
    { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal | undefined },
  ): Promise<void> {
    const woken = this.#wakeUp.signal;
    try {
      if (!woken.aborted) await clock.sleep(ms, signal === undefined ? woken : AbortSignal.any([signal, woken]));
    } catch (error) {
      signal?.throwIfAborted();
      if (!woken.aborted) throw error;
    }
    if (woken.aborted) this.#wakeUp = new AbortController();
  }
}

function nameOf(tenant: string, key: string): string {
  return JSON.stringify([tenant, key]);
}
