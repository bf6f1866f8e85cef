/** What every repository of archives promises: a call belongs to one archive for good and goes with it (CHAT-13). */
import type { ClaimedArchive } from "@toolyard/core/ports/archives";
import type { Tenant } from "@toolyard/core/ports/tenants";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { times, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const day = 86_400_000;
const lease = 60_000;

export function describeCallArchives(make: MakeInstances): void {
  describe(`archives ${verifies("CHAT-13")}`, () => {
    const fixture = useCallFixture(make);

    /** An ended call, made at this moment of that many days ago. */
    const callOf = async (
      tenant: string,
      daysAgo: number,
      change: { text?: string; offset?: number } = {},
    ): Promise<string> => {
      const { text = "done", offset = 0 } = change;
      const outcome = { text, mediaType: "text/plain", bytes: text.length };
      const id = await fixture.rowIn(tenant, "completed", { end: { state: "completed", outcome } });
      const at = (Math.floor(Date.now() / day) - daysAgo) * day + offset;
      await fixture.run(
        "UPDATE calls SET created_at = ?1, finished_at = ?1 WHERE tenant = ?2 AND id = ?3",
        at,
        tenant,
        id,
      );
      return id;
    };
    const claim = (index = 0, options: { limit?: number; bytes?: number; leaseMs?: number } = {}) =>
      fixture.turn(index).archives.claim({ limit: 100, bytes: 1_000_000, leaseMs: lease, ...options });
    /** Of one tenant; what others left is put away. */
    const claimOf = async (tenant: string, options = {}, index = 0): Promise<ClaimedArchive | undefined> => {
      for (;;) {
        const claimed = await claim(index, options);
        const own = claimed.find((archive) => archive.tenant === tenant);
        if (own !== undefined || claimed.length === 0) return own;
        for (const archive of claimed) await fixture.turn(index).archives.discard(archive.tenant, archive.id);
      }
    };
    const idsOf = (archive: ClaimedArchive | undefined): readonly string[] => archive?.calls.map(({ id }) => id) ?? [];
    const expireLease = (tenant: string): Promise<unknown> =>
      fixture.run("UPDATE call_archives SET claimed_until = 1 WHERE tenant = ? AND written_at IS NULL", tenant);
    const aTenant = (settings: Tenant["settings"] = { calls_retention_days: 2 }): Promise<string> =>
      fixture.newTenant(settings);

    test("take the calls of one day past the tenant's retention, oldest first, and none that has not ended", async () => {
      const tenant = await aTenant();
      const patient = await aTenant({ calls_retention_days: 40 });
      const [second, first] = [await callOf(tenant, 5, { offset: 7 }), await callOf(tenant, 5)];
      const next = await callOf(tenant, 4);
      const young = await callOf(tenant, 0);
      const kept = await callOf(patient, 30);
      const open = await fixture.rowIn(tenant, "input_required");
      await fixture.run("UPDATE calls SET created_at = created_at - ? WHERE id = ?", 5 * day, open);
      const archives = [await claimOf(tenant), await claimOf(tenant)];
      const byDay = archives.toSorted((a, b) => (a?.day ?? 0) - (b?.day ?? 0));
      expect(byDay.map(idsOf)).toEqual([[first, second], [next]]);
      expect(byDay[0]).toMatchObject({ tenant, kept: true, day: (Math.floor(Date.now() / day) - 5) * day });
      expect(byDay[0]?.calls[0]?.call).toMatchObject({ id: first, state: "completed", outcome: { text: "done" } });
      expect(await claimOf(tenant)).toBeUndefined();
      for (const id of [young, open, first]) expect(await fixture.row(tenant, id)).toMatchObject({ id });
      expect(await fixture.row(patient, kept)).toMatchObject({ id: kept });
    });

    test("leave a call that has waited for longer than the retention for as long after its end", async () => {
      const tenant = await aTenant();
      const waited = await callOf(tenant, 9);
      const ending = "UPDATE calls SET finished_at = ? WHERE tenant = ? AND id = ?";
      await fixture.run(ending, Date.now() - 2 * day + 60_000, tenant, waited);
      expect(await claimOf(tenant)).toBeUndefined();
      await fixture.run(ending, Date.now() - 2 * day, tenant, waited);
      expect(idsOf(await claimOf(tenant))).toEqual([waited]);
    });

    test("leave what a call has called, at whatever depth, for as long as it has not ended", async () => {
      const tenant = await aTenant();
      const run = await fixture.rowIn(tenant, "queued");
      const other = await callOf(tenant, 9);
      const [step, below, others] = [await callOf(tenant, 9), await callOf(tenant, 9), await callOf(tenant, 9)];
      const place = "UPDATE calls SET parent_id = ?, root_id = ? WHERE tenant = ? AND id = ?";
      await fixture.run(place, run, run, tenant, step);
      await fixture.run(place, step, run, tenant, below);
      await fixture.run(place, other, other, tenant, others);
      expect(idsOf(await claimOf(tenant))).toEqual([other, others]);
      expect(await claimOf(tenant)).toBeUndefined();
      await fixture.run("UPDATE calls SET state = 'completed', finished_at = ? WHERE id = ?", Date.now(), run);
      expect(idsOf(await claimOf(tenant))).toEqual([step, below]);
    });

    test("are written by one of several instances, and by another with the same calls where that one dies", async () => {
      const tenant = await aTenant();
      const ids = [];
      for (let offset = 0; offset < 5; offset += 1) ids.push(await callOf(tenant, 5, { offset }));
      while ((await claim(0, { leaseMs: lease })).some((archive) => archive.tenant !== tenant));
      await expireLease(tenant);
      const claimed = (await times(6, (index) => claim(index))).flat().filter((archive) => archive.tenant === tenant);
      expect(claimed.map(idsOf)).toEqual([ids]);
      const late = await callOf(tenant, 5, { offset: 2 });
      await expireLease(tenant);
      const again = await claimOf(tenant, {}, 1);
      expect(again).toMatchObject({ id: claimed[0]?.id });
      expect(idsOf(again)).toEqual(ids);
      expect(idsOf(await claimOf(tenant))).toEqual([late]);
    });

    test("hold no more than the limits say, but one call however large", async () => {
      const tenant = await aTenant();
      const ids = [];
      for (let offset = 0; offset < 5; offset += 1)
        ids.push(await callOf(tenant, 5, { offset, text: "x".repeat(5_000) }));
      expect(idsOf(await claimOf(tenant, { limit: 2 }))).toEqual(ids.slice(0, 2));
      expect(idsOf(await claimOf(tenant, { bytes: 100 }))).toEqual(ids.slice(2, 3));
      expect(idsOf(await claimOf(tenant, { bytes: 13_000 }))).toEqual(ids.slice(3));
    });

    test("are read without what their calls were asked with, which they do not hold", async () => {
      const tenant = await aTenant();
      const id = await callOf(tenant, 5);
      await fixture.run("UPDATE calls SET input = 'sealed' WHERE tenant = ? AND id = ?", tenant, id);
      const archive = await claimOf(tenant);
      expect(archive?.calls.map(({ call }) => [call?.id, call?.input, call?.outcome?.text])).toEqual([
        [id, null, "done"],
      ]);
    });

    test("take their calls along when they are written, once, and are then listed by day", async () => {
      const tenant = await aTenant();
      const [older, newer] = [await callOf(tenant, 6), await callOf(tenant, 5)];
      const stays = await callOf(tenant, 0);
      const claimed = [await claimOf(tenant), await claimOf(tenant)];
      const { archives } = fixture.repos[0];
      expect((await archives.list(tenant, { limit: 10, order: "asc" })).data).toEqual([]);
      for (const archive of claimed) {
        const id = archive?.id ?? "";
        expect(await archives.get(tenant, id)).toBeUndefined();
        expect(await archives.finish(tenant, id, { bytes: 10, calls: 1 })).toBe(true);
        expect(await fixture.repos[1].archives.finish(tenant, id, { bytes: 99, calls: 9 })).toBe(true);
        expect(await archives.get(tenant, id)).toMatchObject({ id, day: archive?.day, bytes: 10, calls: 1 });
      }
      const days = claimed.map((archive) => archive?.day ?? 0).toSorted((a, b) => a - b);
      for (const order of ["asc", "desc"] as const) {
        const first = await archives.list(tenant, { limit: 1, order });
        const rest = await archives.list(tenant, { limit: 1, order, after: first.data[0]?.id ?? "" });
        expect([first.hasMore, rest.hasMore]).toEqual([true, false]);
        const listed = [...first.data, ...rest.data].map((archive) => archive.day);
        expect(listed).toEqual(order === "asc" ? days : days.toReversed());
      }
      const cut = archives.list(tenant, { limit: 1, order: "asc", after: "arc_none" });
      await expect(cut).rejects.toMatchObject({ code: "invalid_request", details: { param: "after" } });
      for (const id of [older, newer]) expect(await fixture.calls.get(tenant, id)).toBeUndefined();
      expect(await fixture.row(tenant, stays)).toMatchObject({ id: stays });
    });

    test("that a tenant does not keep are discarded with their calls", async () => {
      const tenant = await aTenant({ calls_retention_days: 2, calls_archive_days: 0 });
      const id = await callOf(tenant, 5);
      const claimed = await claimOf(tenant);
      expect(claimed).toMatchObject({ kept: false });
      await fixture.repos[0].archives.discard(tenant, claimed?.id ?? "");
      expect(await fixture.calls.get(tenant, id)).toBeUndefined();
      expect(await fixture.run("SELECT * FROM call_archives WHERE tenant = ?", tenant)).toEqual([]);
    });

    test("name the blobs of results, and are not held up by a row that cannot be read", async () => {
      const tenant = await aTenant();
      const [broken, whole] = [await callOf(tenant, 5), await callOf(tenant, 5, { offset: 1 })];
      await fixture.run("UPDATE calls SET outcome_blob_key = 'blob-1', caller_chain = '{' WHERE id = ?", broken);
      expect((await claimOf(tenant))?.calls).toMatchObject([
        { id: broken, call: undefined, blobKey: "blob-1" },
        { id: whole, call: { id: whole }, blobKey: undefined },
      ]);
    });

    test("go after the tenant's days, each taken by one of several instances", async () => {
      const tenant = await aTenant({ calls_retention_days: 2, calls_archive_days: 10 });
      const finished = async (daysAgo: number): Promise<string> => {
        await callOf(tenant, daysAgo);
        const id = (await claimOf(tenant))?.id ?? "";
        await fixture.repos[0].archives.finish(tenant, id, { bytes: 1, calls: 1 });
        return id;
      };
      const young = await finished(9);
      await fixture.run(
        "UPDATE tenants SET settings = json_set(settings, '$.calls_archive_days', 100) WHERE id = ?",
        tenant,
      );
      const old = await finished(20);
      await fixture.run(
        "UPDATE tenants SET settings = json_set(settings, '$.calls_archive_days', 10) WHERE id = ?",
        tenant,
      );
      const taken = await times(4, async (index) => fixture.turn(index).archives.takeExpired(100));
      expect(taken.flat().filter((one) => one.tenant === tenant)).toEqual([
        { tenant, id: old, day: expect.any(Number) },
      ]);
      await fixture.repos[1].archives.discard(tenant, old);
      const left = (await fixture.repos[0].archives.list(tenant, { limit: 10, order: "asc" })).data;
      expect(left.map(({ id }) => id)).toEqual([young]);
    });

    test(`of another tenant do not exist, and those of an erased one are gone ${verifies("CHAT-11")}`, async () => {
      const [owner, intruder] = [await aTenant(), await aTenant()];
      const call = await callOf(owner, 5);
      const id = (await claimOf(owner))?.id ?? "";
      const { archives, tenants } = fixture.repos[0];
      expect(await archives.finish(intruder, id, { bytes: 1, calls: 1 })).toBe(false);
      await archives.discard(intruder, id);
      expect(await fixture.row(owner, call)).toMatchObject({ id: call });
      await archives.finish(owner, id, { bytes: 1, calls: 1 });
      expect(await archives.get(intruder, id)).toBeUndefined();
      expect((await archives.list(intruder, { limit: 10, order: "asc" })).data).toEqual([]);
      await tenants.erase(owner);
      expect(await archives.finish(owner, id, { bytes: 1, calls: 1 })).toBe(false);
      expect((await archives.list(owner, { limit: 10, order: "asc" })).data).toEqual([]);
    });
  });
}
