/**
 * Two gateway processes on one data directory: one that will die, and one that outlives it. While the
 * victim works, the survivor is frozen, so that all the work is the victim's; then it takes over.
 * Lanes know nothing of each other and run side by side.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import type { Client, TestTenant } from "../support/gateway-client.ts";
import { createApplication, type Application } from "./application.ts";
import { Instance, pause } from "./instance.ts";

export interface Lane {
  readonly dataDir: string;
  readonly adminKey: string;
  readonly survivor: Instance;
  newTenant(): Promise<TestTenant>;
  startInstance(): Promise<Instance>;
  /** Freezes the survivor where it keeps nobody else from writing. */
  freezeSurvivor(): Promise<void>;
  /** Messages of the dead come back after minutes; in the middle of another case they would be in its way. */
  forgetMessages(): Promise<void>;
  close(): Promise<void>;
}

export async function startLane(): Promise<Lane> {
  const dataDir = await mkdtemp(join(tmpdir(), "toolyard-kill-"));
  const adminKey = `admin_${randomBytes(24).toString("base64url")}`;
  const startInstance = (): Promise<Instance> => Instance.start({ dataDir, adminKey });
  const survivor = await startInstance();
  const database = await openDatabase({ url: `file:${join(dataDir, "toolyard.db")}`, budgetMs: 300 });
  return {
    dataDir,
    adminKey,
    survivor,
    newTenant: () => survivor.driver.newTenant({ concurrent_tool_calls: 100 }),
    startInstance,
    async freezeSurvivor() {
      for (;;) {
        await survivor.freeze();
        if (await isWritable(database)) return;
        survivor.thaw();
        await pause(10);
      }
    },
    async forgetMessages() {
      await database.batch([{ sql: "DELETE FROM queue_messages", args: [] }]);
    },
    async close() {
      await survivor.close();
      await database.close();
      await rm(dataDir, { recursive: true, force: true });
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

  static async start(count: number): Promise<LanePool> {
    return new LanePool(await Promise.all(Array.from({ length: count }, startLane)));
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
  readonly tenant: TestTenant;
  readonly victim: Instance;
  /** Talks to the victim, and when that is gone to the survivor. */
  readonly application: Application;
}

/** The survivor stands still from here on, until the application asks for it or `takeOver` is called. */
export async function openCase(
  lane: Lane,
  tenant: TestTenant,
): Promise<Case & { readonly takeOver: () => Promise<void> }> {
  const victim = await lane.startInstance();
  await lane.freezeSurvivor();
  const takeOver = async (): Promise<void> => {
    await victim.ended;
    lane.survivor.thaw();
  };
  const survivingClient = async (): Promise<Client> => {
    await takeOver();
    return tenant.client;
  };
  return {
    tenant,
    victim,
    application: createApplication(victim.driver.client(tenant.key), survivingClient),
    takeOver,
  };
}
