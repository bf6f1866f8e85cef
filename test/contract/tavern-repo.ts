/** What every repository of the Tavern promises, with two instances at one database (VCP-9). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { Repos } from "@toolyard/core/ports/repos";
import type { NewTavernItem } from "@toolyard/core/ports/tavern";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

export function describeTavernRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`tavern items: ${name} ${verifies("VCP-9")}`, () => {
    let instances: TwoInstances;
    let first: Repos;
    let second: Repos;
    const broken: string[] = [];
    beforeAll(async () => {
      instances = await make();
      first = createRepos(instances.first, {
        onBrokenRow: ({ table, id, reason }) => broken.push(`${table} ${id} ${reason}`),
      });
      second = createRepos(instances.second);
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await second.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const versionOf = async (tenant: string): Promise<number> => (await second.config.load(tenant))?.version ?? 0;
    const item = (change: Partial<NewTavernItem> = {}): NewTavernItem => ({
      id: newId("tavern"),
      kind: "preset",
      name: "play",
      hash: "h1",
      content: '{"rules":[],"note":"二"}',
      ...change,
    });

    test("are put and read back, and are part of the next snapshot without their content", async () => {
      const tenant = await newTenant();
      const wanted = item();
      const made = await first.tavern.put(tenant, wanted);
      const { content, ...about } = wanted;
      expect(made).toMatchObject({ ...about, bytes: Buffer.byteLength(content) });
      expect(await second.config.load(tenant)).toMatchObject({ version: 2, tavern: [made] });
      expect((await second.config.load(tenant))?.tavern[0]).not.toHaveProperty("content");
      expect(await second.tavern.contents(tenant, [wanted.id, "tav_nothing"])).toEqual([{ ...made, content }]);
    });

    test("replace what has their kind and name, and raise the version where they differ", async () => {
      const tenant = await newTenant();
      const before = await first.tavern.put(tenant, item());
      const same = await second.tavern.put(tenant, item());
      expect(same).toEqual(before);
      expect(await versionOf(tenant)).toBe(2);
      const changed = await second.tavern.put(tenant, item({ hash: "h2", content: "{}" }));
      expect(changed).toMatchObject({ id: before?.id, hash: "h2", bytes: 2, createdAt: before?.createdAt });
      await first.tavern.put(tenant, item({ kind: "character" }));
      expect(await versionOf(tenant)).toBe(4);
      expect((await first.config.load(tenant))?.tavern.map(({ kind }) => kind)).toEqual(["preset", "character"]);
    });

    test("are each tenant's own", async () => {
      const [one, other] = [await newTenant(), await newTenant()];
      const mine = item();
      await first.tavern.put(one, mine);
      expect(await first.tavern.contents(other, [mine.id])).toEqual([]);
      expect(await first.tavern.delete(other, "preset", "play")).toBe(false);
      expect(await versionOf(other)).toBe(1);
      expect(await first.tavern.delete(one, "character", "play")).toBe(false);
      expect(await first.tavern.delete(one, "preset", "play")).toBe(true);
      expect(await versionOf(one)).toBe(3);
      expect((await first.config.load(one))?.tavern).toEqual([]);
    });

    test("are 500 at most, of which each can still be changed", async () => {
      const tenant = await newTenant();
      await instances.run(
        `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
         INSERT INTO tavern_items (id, tenant, kind, name, hash, content)
         SELECT 'tav_' || ?1 || i, ?1, 'preset', 'p' || i, 'h', '{}' FROM n`,
        tenant,
      );
      expect(await first.tavern.put(tenant, item())).toBeUndefined();
      expect(await first.tavern.put(tenant, item({ name: "p7", hash: "new" }))).toMatchObject({ hash: "new" });
    });

    test("that cannot be read are left out and reported", async () => {
      const tenant = await newTenant();
      await first.tavern.put(tenant, item());
      await instances.run(
        "INSERT INTO tavern_items (id, tenant, kind, name, hash, content) VALUES (?1, ?2, 'potion', 'x', 'h', '{}')",
        `tav_${tenant}`,
        tenant,
      );
      expect((await first.config.load(tenant))?.tavern).toHaveLength(1);
      expect(broken).toContain(`tavern_items tav_${tenant} kind: is not known`);
    });
  });
}
