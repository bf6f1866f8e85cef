/**
 * Two instances that share what is kept: one that will die, and one that outlives it. While the
 * victim works, the survivor is frozen, so that all the work is the victim's; then it takes over.
 * Lanes know nothing of each other and run side by side.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import type { Client, TestTenant } from "../support/gateway-client.ts";
import { createApplication, type Application } from "./application.ts";
import { eventually, pause, ProcessInstance, type Instance } from "./instance.ts";
import { orderPlugin, type Manners, type Shop } from "./shop.ts";

const diesWithinMs = 15_000;

/** What instances share, and how one more of them is started. */
export interface Site {
  /** Behind their backs. */
  readonly database: Database;
  startInstance(): Promise<Instance>;
  /** Empties the queues. */
  forgetMessages(): Promise<void>;
  close(): Promise<void>;
}

export type OpenSite = () => Promise<Site>;

/** Processes of the server form on one data directory. */
export async function openDirectory(): Promise<Site> {
  const dataDir = await mkdtemp(join(tmpdir(), "toolyard-kill-"));
  const adminKey = `admin_${randomBytes(24).toString("base64url")}`;
  const database = await openDatabase({ url: `file:${join(dataDir, "toolyard.db")}`, budgetMs: 300 });
  return {
    database,
    startInstance: () => ProcessInstance.start({ dataDir, adminKey }),
    async forgetMessages() {
      await database.batch([{ sql: "DELETE FROM queue_messages", args: [] }]);
    },
    async close() {
      await database.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

export interface Lane {
  readonly survivor: Instance;
  newTenant(): Promise<TestTenant>;
  startInstance(): Promise<Instance>;
  /** Freezes an instance where it keeps nobody else from writing. */
  freeze(instance: Instance): Promise<void>;
  /** Messages of the dead come back after minutes; in the middle of another case they would be in its way. */
  forgetMessages(): Promise<void>;
  close(): Promise<void>;
}

/** Of a suite that is run on more than one kind of site. */
export interface SuiteOptions {
  readonly openSite?: OpenSite;
  /** Cases side by side. */
  readonly lanesAtOnce?: number;
  /** Leaves out to walk through each flow for the points that it passes. */
  readonly skipsWalks?: boolean;
}

export async function startLane(openSite: OpenSite = openDirectory): Promise<Lane> {
  const site = await openSite();
  const survivor = await site.startInstance();
  return {
    survivor,
    newTenant: () => survivor.driver.newTenant({ concurrent_tool_calls: 100, result_bytes: 1_024 }),
    startInstance: () => site.startInstance(),
    async freeze(instance) {
      for (;;) {
        await instance.freeze();
        if (await isWritable(site.database)) return;
        instance.thaw();
        await pause(10);
      }
    },
    forgetMessages: () => site.forgetMessages(),
    async close() {
      await survivor.close();
      await site.close();
    },
  };
}

/** A process that was stopped in the middle of a transaction holds the file for as long as it is. */
async function isWritable(database: Database): Promise<boolean> {
  try {
    await database.batch([{ sql: "DELETE FROM queue_messages WHERE id IS NULL", args: [] }]);
    return true;
  } catch {
    return false;
  }
}

/** A few lanes for many cases. */
export class LanePool {
  readonly #lanes: readonly Lane[];
  readonly #free: Lane[];
  readonly #waiting: ((lane: Lane) => void)[] = [];

  private constructor(lanes: readonly Lane[]) {
    this.#lanes = lanes;
    this.#free = [...lanes];
  }

  static async start(count: number, openSite: OpenSite = openDirectory): Promise<LanePool> {
    return new LanePool(await Promise.all(Array.from({ length: count }, () => startLane(openSite))));
  }

  async use<T>(work: (lane: Lane) => Promise<T>): Promise<T> {
    const lane = this.#free.pop() ?? (await new Promise<Lane>((resolve) => this.#waiting.push(resolve)));
    try {
      return await work(lane);
    } finally {
      lane.survivor.thaw();
      await lane.forgetMessages().catch(() => undefined);
      const next = this.#waiting.shift();
      if (next === undefined) this.#free.push(lane);
      else next(lane);
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.close()));
  }
}

export interface Case {
  /** Who works first. */
  readonly victim: Instance;
  /** Talks to the first victim, when that is gone to the next, and in the end to the survivor. */
  readonly application: Application;
  /** Waits for the end of every victim, then lets the survivor go on. */
  takeOver(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Everybody but the first victim stands still until it is their turn.
 * @param deaths for each victim in turn where it dies; `undefined`: that is seen to elsewhere
 */
export async function openCase(
  lane: Lane,
  tenant: TestTenant,
  deaths: readonly [KillPoint | undefined, ...KillPoint[]] = [undefined],
): Promise<Case> {
  const first = await startVictim(lane, deaths[0]);
  const followers = await Promise.all(deaths.slice(1).map((at) => startVictim(lane, at)));
  const waiting = [...followers, lane.survivor];
  for (const instance of waiting) await lane.freeze(instance);
  let current = first;
  const advance = async (): Promise<void> => {
    await eventually("The end of a victim", diesWithinMs, () => current.hasEnded || undefined);
    await current.ended;
    current = waiting.shift() ?? current;
    current.thaw();
  };
  const nextClient = async (): Promise<Client> => {
    if (waiting.length > 0) await advance();
    return current.driver.client(tenant.key);
  };
  return {
    victim: first,
    application: createApplication(first.driver.client(tenant.key), nextClient),
    async takeOver() {
      while (waiting.length > 0) await advance();
    },
    async close() {
      await Promise.all([first, ...followers].map((victim) => victim.close()));
    },
  };
}

async function startVictim(lane: Lane, at: KillPoint | undefined): Promise<Instance> {
  const victim = await lane.startInstance();
  if (at !== undefined) await victim.order({ kind: "stop", at, with: "SIGKILL" });
  return victim;
}

/** A tenant that has the shop as its only tool, and its own model. */
export async function openShop(
  lane: Lane,
  shop: Shop,
  { manners, sensitive }: { readonly manners: Manners; readonly sensitive: boolean },
): Promise<TestTenant> {
  const tenant = await lane.newTenant();
  await tenant.addPlugin(orderPlugin(shop, manners, sensitive));
  await tenant.addProvider(shop.modelUrl);
  return tenant;
}
