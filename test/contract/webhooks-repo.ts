/** Contract of `WebhookRepo`: events are written with the change of the call, and claimed by one instance. */
import { newId } from "@toolyard/core/ids";
import type { DeliveryClaim } from "@toolyard/core/ports/webhooks";
import {
  webhookEventSchema,
  type NewWebhook,
  type Webhook,
  type WebhookDelivery,
} from "@toolyard/core/webhooks/webhook";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newTool, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

export function describeWebhookRepo(name: string, make: MakeInstances): void {
  describe(`webhooks over a ${name} ${verifies("CHAT-13")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;

    beforeEach(async () => {
      // Claims go over all tenants.
      await fixture.run("DELETE FROM webhook_deliveries");
      tenant = await fixture.newTenant();
    });

    const webhooks = (index = 0) => fixture.turn(index).webhooks;
    const add = (change: Partial<NewWebhook> = {}, of = tenant): Promise<Webhook> => {
      const id = newId("webhook");
      const plain = { id, name: "W", url: "https://hooks.example.com/", enabled: true, sealed: `sealed-${id}` };
      return webhooks().create(of, { ...plain, events: webhookEventSchema.options, ...change });
    };
    const log = async (id: string): Promise<readonly WebhookDelivery[]> =>
      (await webhooks().deliveries(tenant, id, { limit: 100, order: "asc" }))?.data ?? [];
    const typesOf = async (id: string): Promise<readonly string[]> => (await log(id)).map(({ type }) => type);
    const claim = (index = 0, change: Partial<DeliveryClaim> = {}) =>
      webhooks(index).claim({
        limit: 100,
        leaseMs: 60_000,
        shares: { webhook: 20, tenant: 50 },
        underWay: [],
        ...change,
      });
    const due = (): Promise<unknown> => fixture.run("UPDATE webhook_deliveries SET next_at = 1 WHERE next_at > 1");

    test.each(["completed", "failed", "cancelled", "unknown", "rejected"] as const)(
      "are told of a call that is %s, with what it was but not what was in it",
      async (state) => {
        const { id } = await add();
        const call = await fixture.rowIn(tenant, state);
        const [delivery, ...more] = await log(id);
        expect(more).toEqual([]);
        expect(delivery).toMatchObject({ type: `call.${state}`, callId: call, state: "pending", attempt: 0 });
        const body = JSON.parse(delivery?.body ?? "") as Record<string, unknown>;
        expect(body).toMatchObject({ type: `call.${state}`, data: { id: call, object: "call", state, async: false } });
        const { createdAt, finishedAt } = await fixture.row(tenant, call);
        expect(body["data"]).toMatchObject({
          created_at: new Date(createdAt).toISOString(),
          finished_at: finishedAt === null ? null : new Date(finishedAt).toISOString(),
        });
        expect(delivery?.body).not.toMatch(/北京|sealed|done|"no"/);
        expect(delivery?.id).toMatch(/^evt_[0-9a-f]+$/);
      },
    );

    test("are told of a call that waits for approval, and of its end", async () => {
      const { id } = await add();
      const call = await fixture.rowIn(tenant, "input_required");
      await fixture.calls.decide(tenant, call, { by: "key_1", decision: "rejected" });
      expect(await typesOf(id)).toEqual(["call.approval_required", "call.rejected"]);
    });

    test("are told once of an end that is written twice, and again of evidence that comes late", async () => {
      const { id } = await add();
      const call = await fixture.rowIn(tenant, "unknown");
      await fixture.calls.finish(tenant, call, 1, { state: "failed", error: { code: "tool_failed", message: "no" } });
      await fixture.calls.finish(tenant, call, 1, { state: "failed", error: { code: "tool_failed", message: "no" } });
      // What a batch does whose answer was lost and that is sent again.
      await fixture.run("UPDATE calls SET state = 'failed' WHERE tenant = ? AND id = ?", tenant, call);
      expect(await typesOf(id)).toEqual(["call.unknown", "call.failed"]);
    });

    test("are told only of what they want, while they are enabled, and of their own tenant", async () => {
      const wanting = await add({ events: ["call.failed"] });
      const disabled = await add({ enabled: false });
      const other = await fixture.newTenant();
      const foreign = await add({}, other);
      await fixture.rowIn(tenant, "completed");
      await fixture.rowIn(tenant, "failed");
      expect(await typesOf(wanting.id)).toEqual(["call.failed"]);
      expect(await typesOf(disabled.id)).toEqual([]);
      expect(await webhooks().deliveries(other, foreign.id, { limit: 10, order: "asc" })).toMatchObject({ data: [] });
      expect(await webhooks().deliveries(tenant, foreign.id, { limit: 10, order: "asc" })).toBeUndefined();
    });

    test("hear nothing of a call that is written but does not end", async () => {
      const { id } = await add();
      await fixture.calls.record(tenant, "key_test", [newTool()]);
      await fixture.rowIn(tenant, "queued");
      expect(await typesOf(id)).toEqual([]);
    });

    test("are not told while their tenant is suspended, and afterwards of what came meanwhile", async () => {
      await add();
      await fixture.rowIn(tenant, "completed");
      await fixture.repos[0].tenants.update(tenant, { status: "suspended" });
      expect([await claim(0), await claim(1)]).toEqual([[], []]);
      await fixture.repos[0].tenants.update(tenant, { status: "active" });
      expect(await claim(1)).toHaveLength(1);
    });

    test("each delivery is claimed by one of two instances, and again once the claim has run out", async () => {
      await add();
      for (let count = 0; count < 6; count += 1) await fixture.rowIn(tenant, "completed");
      const claims = (await Promise.all([claim(0), claim(1), claim(0), claim(1)])).flat();
      const ids = claims.map(({ delivery }) => delivery.id);
      expect(ids).toHaveLength(6);
      expect(new Set(ids).size).toBe(6);
      await due();
      const again = await claim(1);
      expect(again.map(({ delivery }) => delivery.attempt)).toEqual([2, 2, 2, 2, 2, 2]);
      // The first claimant comes too late.
      const [id = ""] = ids;
      await webhooks().settle(tenant, id, 1, { status: 200, error: null, next: "delivered" });
      expect(again.map(({ delivery }) => delivery.id)).toContain(id);
      const late = await fixture.run("SELECT state, last_status FROM webhook_deliveries WHERE id = ?", id);
      expect(late).toEqual([{ state: "pending", last_status: null }]);
      await webhooks(1).settle(tenant, id, 2, { status: 500, error: "no", next: { delayMs: 60_000 } });
      const [row] = await fixture.run("SELECT state, last_status FROM webhook_deliveries WHERE id = ?", id);
      expect(row).toEqual({ state: "pending", last_status: 500 });
    });

    test("a delivery that has arrived is sent again only when asked for, under the same id", async () => {
      const { id } = await add();
      await fixture.rowIn(tenant, "completed");
      const [first] = await claim();
      const delivery = first?.delivery.id ?? "";
      await webhooks().settle(tenant, delivery, 1, { status: 200, error: null, next: "delivered" });
      await due();
      expect(await claim()).toEqual([]);
      expect(await log(id)).toMatchObject([{ state: "delivered", nextAt: null, lastStatus: 200 }]);
      expect(await webhooks().resend(tenant, newId("webhook"), delivery)).toBeUndefined();
      expect(await webhooks().resend(tenant, id, delivery)).toMatchObject({ state: "pending", tries: 0 });
      const [again] = await claim(1);
      expect(again?.delivery).toMatchObject({ id: delivery, attempt: 2, tries: 1, body: first?.delivery.body });
    });

    test("an attempt that could not be made at all has used no try", async () => {
      const { id } = await add();
      await fixture.rowIn(tenant, "completed");
      const [claimed] = await claim();
      const next = { delayMs: 60_000, uncounted: true } as const;
      await webhooks().settle(tenant, claimed?.delivery.id ?? "", 1, { status: null, error: "away", next });
      expect(await log(id)).toMatchObject([{ state: "pending", tries: 0, lastError: "away" }]);
      await due();
      expect(await claim(1)).toMatchObject([{ delivery: { attempt: 2, tries: 1 } }]);
    });

    test("410 disables the webhook; what is pending waits until it is enabled again", async () => {
      const { id } = await add();
      await fixture.rowIn(tenant, "completed");
      await fixture.rowIn(tenant, "failed");
      const [first, second] = await claim();
      await webhooks().settle(tenant, first?.delivery.id ?? "", 1, { status: 410, error: "gone", next: "gone" });
      expect(await webhooks().get(tenant, id)).toMatchObject({ enabled: false, disabledReason: expect.any(String) });
      expect((await log(id)).map(({ nextAt }) => nextAt)).toEqual([null, null]);
      await due();
      expect(await claim()).toEqual([]);
      expect(await webhooks().update(tenant, id, { enabled: true })).toMatchObject({ disabledReason: null });
      expect(await claim(1)).toMatchObject([{ delivery: { id: second?.delivery.id } }]);
      await webhooks().update(tenant, id, { enabled: false });
      expect((await log(id)).map(({ nextAt }) => nextAt)).toEqual([null, null]);
    });

    test("an attempt that ends once its webhook is disabled is made again only when it is enabled", async () => {
      const { id } = await add();
      await fixture.rowIn(tenant, "completed");
      const [claimed] = await claim();
      await webhooks().update(tenant, id, { enabled: false });
      const failed = { status: 500, error: "no", next: { delayMs: 60_000 } } as const;
      await webhooks().settle(tenant, claimed?.delivery.id ?? "", 1, failed);
      expect(await log(id)).toMatchObject([{ state: "pending", nextAt: null, lastStatus: 500 }]);
      await webhooks().update(tenant, id, { enabled: true });
      expect(await claim(1)).toMatchObject([{ delivery: { id: claimed?.delivery.id, attempt: 2 } }]);
    });

    test("two secrets sign while one replaces the other, then one", async () => {
      const { id, sealed } = await add();
      await webhooks().rotate(tenant, id, { sealed: "next", overlapMs: 60_000 });
      await fixture.rowIn(tenant, "completed");
      expect(await claim()).toMatchObject([{ sealed: ["next", sealed] }]);
      await fixture.run("UPDATE webhooks SET previous_until = 1 WHERE id = ?", id);
      await due();
      expect(await claim()).toMatchObject([{ sealed: ["next"] }]);
    });

    test("one with many deliveries has its share, and leaves room for another", async () => {
      const busy = await add({ events: ["call.failed"] });
      const other = await add({ events: ["call.completed"] });
      for (let count = 0; count < 10; count += 1) await fixture.rowIn(tenant, "failed");
      await fixture.rowIn(tenant, "completed");
      const claimed = await claim(0, { limit: 5, shares: { webhook: 2, tenant: 50 } });
      const hooks = claimed.map(({ delivery }) => delivery.webhookId).toSorted();
      expect(hooks).toEqual([busy.id, busy.id, other.id].toSorted());
    });

    test("a share counts what its claimant has under way, of the webhook and of the tenant", async () => {
      const slow = await add({ events: ["call.failed"] });
      const other = await add({ events: ["call.completed"] });
      for (let count = 0; count < 6; count += 1) await fixture.rowIn(tenant, "failed");
      for (let count = 0; count < 6; count += 1) await fixture.rowIn(tenant, "completed");
      const shares = { webhook: 3, tenant: 5 };
      const first = (await claim(0, { limit: 3, shares })).map(({ delivery }) => delivery);
      expect(first.map(({ webhookId }) => webhookId)).toHaveLength(3);
      const second = (await claim(0, { shares, underWay: first })).map(({ delivery }) => delivery);
      const held = [...first, ...second].map(({ webhookId }) => webhookId);
      expect(held).toHaveLength(shares.tenant);
      for (const { id } of [slow, other]) {
        expect(held.filter((each) => each === id).length).toBeLessThanOrEqual(shares.webhook);
      }
      expect(await claim(0, { shares, underWay: [...first, ...second] })).toEqual([]);
      // Another instance has places of its own.
      expect(await claim(1, { shares })).toHaveLength(shares.tenant);
    });

    test("who has more under way comes behind who has less, however early it was due", async () => {
      await add();
      for (let count = 0; count < 4; count += 1) await fixture.rowIn(tenant, "completed");
      const [first] = await claim(0, { limit: 1 });
      const other = await fixture.newTenant();
      const foreign = await add({}, other);
      await fixture.rowIn(other, "completed");
      const underWay = first === undefined ? [] : [first.delivery];
      const [next] = await claim(0, { limit: 1, underWay });
      expect(next?.delivery.webhookId).toBe(foreign.id);
    });

    test("a tenant with much that is due leaves room for others, and all of its webhooks have their turn", async () => {
      const urgent = await add({ events: ["call.failed"] });
      const later = await add({ events: ["call.completed"] });
      for (let count = 0; count < 8; count += 1) await fixture.rowIn(tenant, "failed");
      await fixture.rowIn(tenant, "completed");
      const other = await fixture.newTenant();
      const foreign = await add({}, other);
      await fixture.rowIn(other, "completed");
      await fixture.run("UPDATE webhook_deliveries SET next_at = 1 WHERE webhook_id = ?", urgent.id);
      await fixture.run("UPDATE webhook_deliveries SET next_at = 2 WHERE webhook_id = ?", later.id);
      await fixture.run("UPDATE webhook_deliveries SET next_at = 3 WHERE webhook_id = ?", foreign.id);
      const claimed = async (limit: number): Promise<readonly string[]> =>
        (await claim(0, { limit, shares: { webhook: 2, tenant: 50 } })).map(({ delivery }) => delivery.webhookId);
      expect((await claimed(2)).toSorted()).toEqual([urgent.id, foreign.id].toSorted());
      expect((await claimed(10)).toSorted()).toEqual([urgent.id, urgent.id, later.id].toSorted());
    });

    // Claims that went through all that is due would take twenty seconds; over a network it is its time that would be seen.
    test.runIf(name === "file")(
      "what is due to a receiver that hangs costs no claim anything, however much it is",
      async () => {
        const hanging = await add({ events: ["call.failed"] });
        const quick = await add({ events: ["call.completed"] });
        await fixture.run(
          `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
        INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, body, next_at)
          SELECT ?1 || i, ?2, ?1, 'call.failed', '{}', i FROM n`,
          hanging.id,
          tenant,
        );
        const claimed = await claim();
        const underWay = claimed.map(({ delivery }) => delivery);
        expect(underWay).toHaveLength(20);
        const found: string[] = [];
        for (let count = 0; count < 300; count += 1) {
          if (count % 75 === 0) await fixture.rowIn(tenant, "completed");
          found.push(...(await claim(0, { underWay })).map(({ delivery }) => delivery.webhookId));
        }
        expect(found).toEqual([quick.id, quick.id, quick.id, quick.id]);
      },
      12_000,
    );

    test("changes raise the version of the configuration", async () => {
      const version = async () => (await fixture.turn(0).tenants.get(tenant))?.configVersion;
      const { id } = await add();
      await webhooks().update(tenant, id, { name: "other" });
      await webhooks().rotate(tenant, id, { sealed: "next", overlapMs: 0 });
      await webhooks().delete(tenant, id);
      await webhooks().delete(tenant, id);
      expect(await version()).toBe(5);
    });

    test("the log goes with the retention of calls and with its webhook", async () => {
      const { id } = await add();
      await fixture.rowIn(tenant, "completed");
      await fixture.rowIn(tenant, "completed");
      const [first] = await claim();
      await webhooks().settle(tenant, first?.delivery.id ?? "", 1, { status: 200, error: null, next: "delivered" });
      await fixture.run("UPDATE webhook_deliveries SET created_at = 1");
      await fixture.calls.expire(100);
      // It has been tried just now.
      expect(await log(id)).toHaveLength(2);
      await fixture.run("UPDATE webhook_deliveries SET attempted_at = 1 WHERE attempted_at IS NOT NULL");
      await fixture.calls.expire(100);
      expect(await log(id)).toMatchObject([{ state: "pending" }]);
      await webhooks().delete(tenant, id);
      expect(await fixture.run("SELECT id FROM webhook_deliveries WHERE tenant = ?", tenant)).toEqual([]);
    });
  });
}
