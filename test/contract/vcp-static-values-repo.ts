/** Contract of `VcpStaticValueRepo`: values of placeholders, and that one of all refreshes them. */
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { times, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;

export function describeVcpStaticValueRepo(name: string, make: MakeInstances): void {
  describe(`values of placeholders over a ${name} ${verifies("VCP-20")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;

    beforeEach(async () => {
      await fixture.run("DELETE FROM vcp_static_values");
      await fixture.run("DELETE FROM sys_ai_plugin WHERE type = 'VCP'");
      tenant = await fixture.newTenant();
    });

    const values = (index = 0) => fixture.turn(index).vcpStaticValues;
    const claim = (index = 0, change: { version?: string; freshSince?: number; leaseMs?: number } = {}) =>
      values(index).claim(tenant, {
        source: "plugin:Weather",
        version: "v1",
        leaseMs: minute,
        freshSince: 0,
        ...change,
      });
    const store = (change: { value?: string; error?: string; nextAt?: number; blobKey?: string } = {}) =>
      values(1).store(tenant, {
        source: "plugin:Weather",
        version: "v1",
        error: change.error ?? null,
        nextAt: change.nextAt ?? null,
        ...(change.value === undefined && change.blobKey === undefined
          ? {}
          : { value: { value: change.value ?? null, blobKey: change.blobKey ?? null } }),
      });
    const stored = async () => (await values(1).list(tenant)).values;

    test("of plugins that are run by schedule are due from the beginning, of enabled ones alone", async () => {
      const add = (plugin: string, config: string, status = "0"): Promise<unknown> =>
        fixture.run(
          `INSERT INTO sys_ai_plugin (tenant, name, description, type, parameter_schema, execution_config, status,
            required_credentials, roles, hash) VALUES (?, ?, '', 'VCP', '{}', ?, ?, '[]', '[]', '')`,
          tenant,
          plugin,
          config,
          status,
        );
      const manifest = (change: object): string =>
        JSON.stringify({ vcp: { manifest: { name: "Eager", pluginType: "static", eager: true, ...change } } });
      await add("Eager", manifest({}));
      await add("Off", manifest({ name: "Off" }), "1");
      await add("Asked", manifest({ name: "Asked", eager: false }));
      await add("Tool", manifest({ name: "Tool", pluginType: "synchronous" }));
      await add("Broken", "{");
      const due = async (): Promise<readonly string[]> =>
        (await values().due({ limit: 100, offerAgainMs: minute })).flatMap((row) =>
          row.tenant === tenant ? [row.source] : [],
        );
      expect(await due()).toEqual(["plugin:Eager"]);
      expect(await due(), "somebody has been told").toEqual([]);
    });

    test("are refreshed by one of all that want to", async () => {
      const claims = await times(10, (at) => claim(at));
      expect(claims.filter((each) => each !== undefined)).toHaveLength(1);
      expect(await stored()).toMatchObject([{ source: "plugin:Weather", key: "", value: null, leased: true }]);
      await store({ value: "sunny" });
      expect(await stored()).toMatchObject([{ value: "sunny", leased: false, version: "v1", error: null }]);
    });

    test("are refreshed again where they are old, are of another version, or their claimant is gone", async () => {
      await claim();
      await store({ value: "sunny" });
      expect(await claim()).toBeUndefined();
      expect(await claim(1, { freshSince: Date.now() + minute, leaseMs: -1 })).toMatchObject({ value: "sunny" });
      expect(await claim(1, { version: "v2" })).toMatchObject({ value: "sunny" });
      expect(await claim(0, { version: "v2" })).toBeUndefined();
    });

    test("stay where a refresh gives none, with the reason", async () => {
      await claim();
      await store({ value: "sunny" });
      await claim(0, { version: "v2" });
      await store({ error: "it exited with code 1" });
      expect(await stored()).toMatchObject([{ value: "sunny", error: "it exited with code 1" }]);
    });

    test("that lie in the blob store give back what they replace", async () => {
      await claim();
      expect(await store({ blobKey: "one" })).toBeUndefined();
      expect(await store({ blobKey: "one" })).toBeUndefined();
      expect(await store({ error: "no" })).toBeUndefined();
      expect(await store({ value: "short" })).toBe("one");
      expect(await stored()).toMatchObject([{ value: "short", blobKey: null }]);
    });

    test("of a node are those it told last, and go with it", async () => {
      await values().replace(
        tenant,
        "node:studio",
        new Map([
          ["{{A}}", "1"],
          ["{{B}}", "2"],
        ]),
      );
      await values().replace(tenant, "node:studio", new Map([["{{A}}", "3"]]));
      await claim();
      expect(await stored()).toMatchObject([
        { source: "node:studio", key: "{{A}}", value: "3" },
        { source: "plugin:Weather" },
      ]);
      expect((await values().list(await fixture.newTenant())).values).toEqual([]);
      await values().remove(tenant, "node:studio");
      expect(await stored()).toHaveLength(1);
    });

    test("that are due are offered to one instance, and again where nothing came of it", async () => {
      await claim();
      await store({ value: "sunny", nextAt: 1 });
      const options = { limit: 10, offerAgainMs: minute };
      const offered = await Promise.all([values(0).due(options), values(1).due(options)]);
      expect(offered.flat()).toEqual([{ tenant, source: "plugin:Weather" }]);
      await fixture.run("UPDATE vcp_static_values SET next_at = 1 WHERE tenant = ?", tenant);
      expect(await values().due(options)).toHaveLength(1);
    });
  });
}
