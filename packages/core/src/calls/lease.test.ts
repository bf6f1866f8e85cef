import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { defaultTiming } from "../deps.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { CallRepo } from "../ports/calls.ts";
import { holdLease, type Lease, type LeaseEnd } from "./lease.ts";

const timing = { ...defaultTiming, leaseMs: 1_000, heartbeatMs: 20, cancelPollMs: 10 };

interface Row {
  beats: number;
  polls: number;
  ends: LeaseEnd[];
  answer: "ok" | "cancel" | "lost";
  isCancelled: boolean;
  /** Beats that the database does not answer. */
  failures: number;
}

/** A core whose database knows these rows by id. */
function coreWith(rows: Readonly<Record<string, Row>>): CoreDeps {
  const row = (id: string): Row => rows[id] ?? newRow();
  const calls: Partial<CallRepo> = {
    heartbeat: (_tenant, id) => {
      row(id).beats += 1;
      return row(id).beats <= row(id).failures ? Promise.reject(new Error("away")) : Promise.resolve(row(id).answer);
    },
    isCancelRequested: (_tenant, id) => {
      row(id).polls += 1;
      return Promise.resolve(row(id).isCancelled);
    },
  };
  return createFakeCore({ repos: { calls: { ...unscripted<CallRepo>("calls"), ...calls } }, core: { timing } });
}

function newRow(): Row {
  return { beats: 0, polls: 0, ends: [], answer: "ok", isCancelled: false, failures: 0 };
}

function hold(core: CoreDeps, id: string, row: Row, pollCancel = true): Lease {
  return holdLease(core, { tenant: "ten_a", id, attempt: 1, pollCancel, onEnd: (why) => row.ends.push(why) });
}

async function until(isTrue: () => boolean): Promise<void> {
  for (let at = 0; at < 400 && !isTrue(); at += 1) await sleep(5);
  expect(isTrue()).toBe(true);
}

describe(`a lease ${verifies("CHAT-12")}`, () => {
  test("is extended again and again, and looks for a cancel in between only where it is asked to", async () => {
    const [polling, quiet] = [newRow(), newRow()];
    const core = coreWith({ polling, quiet });
    const leases = [hold(core, "polling", polling), hold(core, "quiet", quiet, false)];
    await until(() => polling.beats > 2 && polling.polls > 2 && quiet.beats > 2);
    expect(quiet.polls).toBe(0);
    for (const lease of leases) lease.stop();
    expect([...polling.ends, ...quiet.ends]).toEqual([]);
  });

  test("ends once where the row was cancelled or belongs to another attempt", async () => {
    const [cancelled, asked, lost] = [newRow(), newRow(), newRow()];
    const core = coreWith({ cancelled, asked, lost });
    cancelled.answer = "cancel";
    asked.isCancelled = true;
    lost.answer = "lost";
    hold(core, "cancelled", cancelled, false);
    hold(core, "asked", asked);
    hold(core, "lost", lost, false);
    await until(() => cancelled.ends.length + asked.ends.length + lost.ends.length === 3);
    await sleep(60);
    expect([cancelled.ends, asked.ends, lost.ends]).toEqual([["cancelled"], ["cancelled"], ["lost"]]);
    const beats = lost.beats;
    await sleep(60);
    expect(lost.beats).toBe(beats);
  });

  test("that is let go is not extended any more, whatever the order, and tells nothing", async () => {
    const rows = Object.fromEntries(Array.from({ length: 5 }, (_, at) => [`row${at}`, newRow()]));
    const core = coreWith(rows);
    const leases = Object.entries(rows).map(([id, row]) => hold(core, id, row));
    for (const at of [0, 4, 2]) {
      leases[at]?.stop();
      leases[at]?.stop();
    }
    await until(() => (rows["row1"]?.beats ?? 0) > 1 && (rows["row3"]?.beats ?? 0) > 1);
    for (const at of [0, 2, 4]) expect(rows[`row${at}`]).toEqual(newRow());
    const late = rows["row1"] ?? newRow();
    late.answer = "cancel";
    leases[1]?.stop();
    leases[3]?.stop();
    await sleep(60);
    expect(late.ends).toEqual([]);
  });

  test("survives a database that is away for a while", async () => {
    const row = { ...newRow(), failures: 2 };
    const lease = hold(coreWith({ row }), "row", row);
    await until(() => row.beats > 3);
    lease.stop();
    expect(row.ends).toEqual([]);
  });
});
