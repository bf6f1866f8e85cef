/** What every repository of tool services promises, with two instances at one database (CFG-1 to CFG-4). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { Repos } from "@toolyard/core/ports/repos";
import type { ToolServiceRepo } from "@toolyard/core/ports/tool-services";
import type { NewToolService } from "@toolyard/core/services/service";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

export function describeToolServiceRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`tool services: ${name} ${verifies("CFG-1", "CFG-3", "CFG-4")}`, () => {
    let instances: TwoInstances;
    let first: Repos;
    let second: Repos;
    let services: ToolServiceRepo;
    const broken: string[] = [];
    beforeAll(async () => {
      instances = await make();
      first = createRepos(instances.first, {
        onBrokenRow: ({ table, id, reason }) => broken.push(`${table} ${id} ${reason}`),
      });
      second = createRepos(instances.second);
      services = first.services;
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await second.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const versionOf = async (tenant: string): Promise<number> => (await second.config.load(tenant))?.version ?? 0;
    const service = (change: Partial<NewToolService> = {}): NewToolService => ({
      id: newId("toolService"),
      scheme: "api",
      serviceId: "crm",
      displayName: null,
      description: null,
      config: { base_url: "https://crm.example.com", nested: { list: [1, "二", null] } },
      enabled: true,
      ...change,
    });

    test("are created and read back, and are part of the next snapshot", async () => {
      const tenant = await newTenant();
      const wanted = service();
      const made = await services.create(tenant, wanted);
      expect(made).toMatchObject({ ...wanted, version: 1, discovered: null });
      expect(Math.abs(made.createdAt - Date.now())).toBeLessThan(60_000);
      expect(await second.services.get(tenant, made.id)).toEqual(made);
      expect(await second.config.load(tenant)).toMatchObject({ version: 2, services: [made] });
    });

    test("have one id within a scheme, of which the first creation keeps it", async () => {
      const tenant = await newTenant();
      const one = service();
      await services.create(tenant, one);
      await expect(second.services.create(tenant, service())).rejects.toMatchObject({
        code: "conflict",
        details: { param: "service_id" },
      });
      expect(await services.create(tenant, one)).toMatchObject({ id: one.id, version: 1 });
      await services.create(tenant, service({ scheme: "mail" }));
      await services.create(tenant, service({ serviceId: "CRM" }));
      expect(await versionOf(tenant)).toBe(4);
    });

    test("change by version: of two who have read the same, one is told", async () => {
      const tenant = await newTenant();
      const { id } = await services.create(tenant, service());
      const changes = [first, second].map((repos, at) =>
        repos.services.update(tenant, id, { displayName: `name ${at}` }, 1).catch((error: unknown) => error),
      );
      const results = await Promise.all(changes);
      expect(results.filter((result) => !(result instanceof Error))).toMatchObject([{ version: 2 }]);
      expect(results.filter((result) => result instanceof Error)).toMatchObject([
        { code: "version_conflict", details: { extra: { version: 2 } } },
      ]);
      expect(await versionOf(tenant)).toBe(3);
      expect(await services.update(tenant, id, { enabled: false })).toMatchObject({ enabled: false, version: 3 });
      expect(await services.update(tenant, "svc_none", { enabled: false })).toBeUndefined();
    });

    test("are listed by page and by scheme", async () => {
      const tenant = await newTenant();
      const ids: string[] = [];
      for (const scheme of ["api", "mail", "api", "sms"] as const) {
        ids.push((await services.create(tenant, service({ scheme, serviceId: `s${ids.length}` }))).id);
      }
      const page = await services.list(tenant, { limit: 3, order: "asc" });
      expect(page.data.map(({ id }) => id)).toEqual(ids.slice(0, 3));
      expect(page.hasMore).toBe(true);
      const rest = await services.list(tenant, { limit: 3, order: "asc", after: ids[2] ?? "" });
      expect(rest).toMatchObject({ data: [{ id: ids[3] }], hasMore: false });
      const api = await services.list(tenant, { limit: 10, order: "desc", scheme: "api" });
      expect(api.data.map(({ id }) => id)).toEqual([ids[2], ids[0]]);
    });

    test("keep what their back end said, which is no change of the service", async () => {
      const tenant = await newTenant();
      const { id } = await services.create(tenant, service({ scheme: "mcp" }));
      const tool = { id: "map", description: "Maps.", parameters: { type: "object" }, effect: "read" as const };
      await services.saveDiscovered(tenant, id, 1, { tools: [tool], at: 5 });
      expect(await second.services.get(tenant, id)).toMatchObject({ version: 1, discovered: { tools: [tool], at: 5 } });
      expect(await versionOf(tenant)).toBe(3);
      await services.update(tenant, id, { description: "newer" });
      await services.saveDiscovered(tenant, id, 1, { tools: [], at: 9 });
      expect(await services.get(tenant, id)).toMatchObject({ discovered: { at: 5 } });
    });

    test("are deleted once", async () => {
      const tenant = await newTenant();
      const { id } = await services.create(tenant, service());
      expect(await services.delete(tenant, id)).toBe(true);
      expect(await second.services.delete(tenant, id)).toBe(false);
      expect(await second.config.load(tenant)).toMatchObject({ version: 3, services: [] });
    });

    test("belong to their tenant", async () => {
      const [owner, stranger] = [await newTenant(), await newTenant()];
      const made = await services.create(owner, service());
      expect(await services.get(stranger, made.id)).toBeUndefined();
      expect(await services.update(stranger, made.id, { enabled: false })).toBeUndefined();
      await services.saveDiscovered(stranger, made.id, 1, { tools: [], at: 1 });
      expect(await services.delete(stranger, made.id)).toBe(false);
      expect((await services.list(stranger, { limit: 10, order: "asc" })).data).toEqual([]);
      expect(await services.callsUnderWay(stranger, "api://crm")).toEqual([]);
      expect(await services.get(owner, made.id)).toEqual(made);
      await services.create(stranger, service());
      await second.tenants.erase(owner);
      expect(await services.get(owner, made.id)).toBeUndefined();
    });

    test("of another release that cannot be read are left out and reported", async () => {
      const tenant = await newTenant();
      const made = await services.create(tenant, service());
      const other = await services.create(tenant, service({ serviceId: "other" }));
      await instances.run("UPDATE tool_services SET scheme = 'gopher' WHERE id = ?", made.id);
      expect((await first.config.load(tenant))?.services.map(({ id }) => id)).toEqual([other.id]);
      expect(broken.at(-1)).toContain(`tool_services ${made.id}`);
    });
  });
}
