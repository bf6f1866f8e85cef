import type { Clock } from "@toolyard/core/ports/clock";
import type { Database, Shards } from "@toolyard/db/database";
import { createDatabaseReplies } from "@toolyard/db/replies";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { describe, expect, test } from "vitest";
import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeReplies } from "./replies.ts";

for (const [name, make] of [
  ["database in a file", twoInstancesOfFile],
  ["database behind a server", twoInstancesOfServer],
] as const) {
  describeReplies(name, async () => {
    const instances = await make();
    const clock = createSystemClock();
    return {
      replies: [createDatabaseReplies(instances.first, clock), createDatabaseReplies(instances.second, clock)],
      close: () => instances.close(),
    };
  });
}

/** Notes how long each sleep was meant to be; time passes only by sleeping. */
function notingClock(): { readonly clock: Clock; readonly sleeps: number[] } {
  const sleeps: number[] = [];
  let time = 0;
  const clock: Clock = {
    now: () => time,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      sleeps.push(ms);
      time += ms;
    },
  };
  return { clock, sleeps };
}

describe("replies in a database", () => {
  test("are looked for less and less often, and not after the deadline", async () => {
    const instances = await twoInstancesOfFile();
    const { clock, sleeps } = notingClock();
    await createDatabaseReplies(instances.first, clock).wait("ten_a", "k", { timeoutMs: 1_000 });
    expect(sleeps.reduce((sum, ms) => sum + ms, 0)).toBe(1_000);
    expect(sleeps[0]).toBe(25);
    expect(Math.max(...sleeps)).toBe(250);
    expect(sleeps.slice(0, -1)).toEqual(sleeps.slice(0, -1).toSorted((a, b) => a - b));
    await instances.close();
  });

  test("wake who waits in the same process, however long it meant to sleep", async () => {
    const instances = await twoInstancesOfFile();
    const system = createSystemClock();
    // Sleeps to the end unless woken.
    const clock: Clock = { now: system.now, sleep: (_ms, signal) => system.sleep(3_600_000, signal) };
    const replies = createDatabaseReplies(instances.first, clock);
    const waiting = replies.wait("ten_a", "k", { timeoutMs: 3_600_000 });
    await system.sleep(20);
    await replies.deliver("ten_a", "k", "here");
    expect(await waiting).toBe("here");
    await instances.close();
  });

  test("are delivered and taken once where the answer of the database was lost", async () => {
    const instances = await twoInstancesOfServer();
    const { directory } = instances.first;
    const losing: Database = {
      batch: (statements, options) => {
        if (options?.readonly !== true) instances.proxy?.faults.push({ kind: "lost-after" });
        return directory.batch(statements, options);
      },
      close: () => directory.close(),
    };
    const shards: Shards = { directory: losing, databaseFor: () => losing, all: () => [losing] };
    const replies = createDatabaseReplies(shards, createSystemClock());
    const before = instances.proxy?.trips() ?? 0;
    expect(await replies.deliver("ten_a", "k", "once")).toBe(true);
    expect(await replies.wait("ten_a", "k", { timeoutMs: 5_000 })).toBe("once");
    // Delivered, again; looked for; taken, again.
    expect(instances.proxy?.trips()).toBe(before + 5);
    await instances.close();
  });
});
