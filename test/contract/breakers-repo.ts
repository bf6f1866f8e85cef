/** What every repository of breakers promises, with two instances at one database (SVC-4). */
import { newId } from "@toolyard/core/ids";
import type { OpenBreaker } from "@toolyard/core/ports/tool-services";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newChat, newTool, useCallFixture, withKey, type MakeInstances } from "./calls-fixture.ts";

export function describeBreakerRepo(name: string, make: MakeInstances): void {
  describe(`breakers of tool services: ${name} ${verifies("SVC-4")}`, () => {
    const fixture = useCallFixture(make);

    async function newService(): Promise<{ readonly tenant: string; readonly service: string }> {
      const tenant = await fixture.newTenant();
      const service = newId("toolService");
      await fixture.repos[0].services.create(tenant, {
        id: service,
        scheme: "api",
        serviceId: "crm",
        displayName: null,
        description: null,
        config: {},
        enabled: true,
      });
      return { tenant, service };
    }

    /** As each way of asking finds it: a request, a direct call, a plain chat of a caller who is known, a worker. */
    async function seen(tenant: string): Promise<readonly (readonly OpenBreaker[] | undefined)[]> {
      const { calls } = fixture.repos[1];
      const key = await fixture.newKey(tenant);
      const request = await calls.admit(withKey(tenant, key));
      const direct = await calls.admit(withKey(tenant, key, { call: newTool() }));
      const chat = await calls.admit(
        withKey(tenant, key, {
          call: newChat(),
          expectedConfigVersion: request.tenant.configVersion,
          known: { caller: request.caller, settings: request.settings },
        }),
      );
      const queued = await fixture.rowIn(tenant, "queued");
      const claimed = await calls.claim(tenant, queued, { leaseMs: 1_000, concurrency: 10 });
      expect([direct, chat].map(({ outcome }) => outcome.kind)).toEqual(["admitted", "admitted"]);
      if (typeof claimed !== "object" || !("call" in claimed)) throw new Error("The call could not be claimed.");
      return [request, direct, chat, claimed].map(({ openBreakers }) => openBreakers);
    }

    const nothing = [undefined, undefined, undefined, undefined];

    test("nobody hears of one that is closed", async () => {
      const { tenant } = await newService();
      expect(await seen(tenant)).toEqual(nothing);
    });

    test("one that is open is known to everybody's next request, until it is closed", async () => {
      const { tenant, service } = await newService();
      const { tenant: stranger } = await newService();
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 60_000 });
      const open = [{ service, version: 1, leftMs: expect.any(Number) }];
      expect(await seen(tenant)).toEqual([open, open, open, open]);
      expect(await seen(stranger)).toEqual(nothing);
      await fixture.repos[0].breakers.close(tenant, { service, version: 1 });
      expect(await seen(tenant)).toEqual(nothing);
    });

    test("one caller of all gets to see whether the back end is well", async () => {
      const { tenant, service } = await newService();
      const trial = { service, version: 1, trialMs: 60_000 };
      expect(await fixture.repos[0].breakers.claimTrial(tenant, trial)).toBe("closed");
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 60_000 });
      expect(await fixture.repos[0].breakers.claimTrial(tenant, trial)).toBe("taken");
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 0 });
      const claims = await Promise.all(
        Array.from({ length: 20 }, (_none, at) => fixture.turn(at).breakers.claimTrial(tenant, trial)),
      );
      expect(claims.filter((claim) => claim === "claimed")).toHaveLength(1);
      expect(claims.filter((claim) => claim === "taken")).toHaveLength(19);
    });

    test("a trial that found out nothing, or whose process is gone, leaves the next one to others", async () => {
      const { tenant, service } = await newService();
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 0 });
      expect(await fixture.repos[0].breakers.claimTrial(tenant, { service, version: 1, trialMs: 60_000 })).toBe(
        "claimed",
      );
      await fixture.repos[0].breakers.releaseTrial(tenant, { service, version: 1 });
      expect(await fixture.repos[1].breakers.claimTrial(tenant, { service, version: 1, trialMs: 0 })).toBe("claimed");
      expect(await fixture.repos[0].breakers.claimTrial(tenant, { service, version: 1, trialMs: 60_000 })).toBe(
        "claimed",
      );
    });

    test("a service that was changed or is gone has none", async () => {
      const { tenant, service } = await newService();
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 60_000 });
      await fixture.repos[1].services.update(tenant, service, { displayName: "changed" });
      expect(await seen(tenant)).toEqual(nothing);
      await fixture.repos[0].breakers.open(tenant, { service, version: 1, openMs: 60_000 });
      expect(await seen(tenant)).toEqual(nothing);
      await fixture.repos[0].breakers.open(tenant, { service, version: 2, openMs: 60_000 });
      await fixture.repos[1].services.delete(tenant, service);
      expect(await seen(tenant)).toEqual(nothing);
    });
  });
}
