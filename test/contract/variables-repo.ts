/** What every repository of variables promises, with two instances at one database (VCP-19). */
import { createHash, randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { Repos } from "@toolyard/core/ports/repos";
import type { VariableRepo } from "@toolyard/core/ports/variables";
import type { NewVariable } from "@toolyard/core/vcp/placeholders/variable";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

export function describeVariableRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`variables: ${name} ${verifies("VCP-19")}`, () => {
    let instances: TwoInstances;
    let second: Repos;
    let variables: VariableRepo;
    const broken: string[] = [];
    beforeAll(async () => {
      instances = await make();
      variables = createRepos(instances.first, {
        onBrokenRow: ({ table, id }) => broken.push(`${table} ${id}`),
      }).variables;
      second = createRepos(instances.second, { onBrokenRow: ({ table, id }) => broken.push(`${table} ${id}`) });
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await second.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const versionOf = async (tenant: string): Promise<number> => (await second.config.load(tenant))?.version ?? 0;
    const variable = (named: string, content = "值", change: Partial<NewVariable> = {}): NewVariable => ({
      id: newId("variable"),
      kind: "var",
      name: named,
      options: {},
      content,
      hash: createHash("sha256").update(content).digest("hex"),
      ...change,
    });

    test("are created and read back, and are part of the next snapshot in order of definition", async () => {
      const tenant = await newTenant();
      const made = await variables.create(tenant, variable("VarA", "值", { options: { description: "d" } }));
      expect(made).toMatchObject({ name: "VarA", content: "值", bytes: 3, position: 1, version: 1 });
      expect(await second.variables.get(tenant, made.id)).toEqual(made);
      const next = await variables.create(tenant, variable("VarB"));
      const before = await variables.create(tenant, variable("TarA", "t", { kind: "tar", position: 0 }));
      expect(await second.config.load(tenant)).toMatchObject({ version: 4, variables: [before, made, next] });
    });

    test("leave large contents where they are until somebody asks for them", async () => {
      const tenant = await newTenant();
      const long = "文".repeat(400_000);
      const made = await variables.create(tenant, variable("f.txt", long, { kind: "text" }));
      expect(made).toMatchObject({ content: null, bytes: 1_200_000 });
      expect((await second.config.load(tenant))?.variables).toEqual([made]);
      expect(await second.variables.contents(tenant, [made.id, "var_none"])).toEqual([
        { id: made.id, hash: made.hash, content: long },
      ]);
      expect(await second.variables.contents(tenant, [])).toEqual([]);
    });

    test("have one name within a kind, of which the first creation keeps it", async () => {
      const tenant = await newTenant();
      const one = variable("VarA");
      await variables.create(tenant, one);
      await expect(second.variables.create(tenant, variable("VarA"))).rejects.toMatchObject({
        code: "conflict",
        details: { param: "name" },
      });
      expect(await variables.create(tenant, one)).toMatchObject({ id: one.id, version: 1 });
      await variables.create(tenant, variable("VarA", "a", { kind: "agent" }));
      await variables.create(tenant, variable("vara", "a", { kind: "agent" }));
      expect(await versionOf(tenant)).toBe(4);
    });

    test("are put together: what is new is made, what is another changes, the rest stays", async () => {
      const tenant = await newTenant();
      await variables.putAll(tenant, [variable("VarA", "1", { position: 1 }), variable("VarB", "2", { position: 2 })]);
      expect(await versionOf(tenant)).toBe(2);
      const again = [
        variable("VarA", "1", { position: 1 }),
        variable("VarB", "two", { position: 2 }),
        variable("VarC"),
      ];
      await second.variables.putAll(tenant, again);
      await second.variables.putAll(tenant, again);
      const { data } = await variables.list(tenant, { limit: 10, order: "asc" });
      expect(data.map((each) => [each.name, each.content, each.version])).toEqual([
        ["VarA", "1", 1],
        ["VarB", "two", 2],
        ["VarC", "值", 1],
      ]);
      expect(await versionOf(tenant)).toBe(3);
      await variables.putAll(tenant, []);
      expect(await versionOf(tenant)).toBe(3);
    });

    test("are at most so many, and of those put together all or none are there", async () => {
      const tenant = await newTenant();
      const many = Array.from({ length: 4_999 }, (_, at) => variable(`Var${at}`, "x", { position: at }));
      await variables.putAll(tenant, many);
      await expect(variables.putAll(tenant, [variable("VarX"), variable("VarY")])).rejects.toMatchObject({
        code: "conflict",
      });
      expect((await variables.list(tenant, { limit: 1, order: "desc" })).data).toMatchObject([{ name: "Var4998" }]);
      await variables.putAll(tenant, [variable("Var0", "changed"), variable("VarX")]);
      await expect(variables.create(tenant, variable("VarY"))).rejects.toMatchObject({
        code: "conflict",
        message: expect.stringContaining("at most 5000"),
      });
    });

    test("change by version: of two who have read the same, one is told", async () => {
      const tenant = await newTenant();
      const { id } = await variables.create(tenant, variable("VarA"));
      const text = { text: "new", hash: "h" };
      const changes = [variables, second.variables].map((repo) =>
        repo.update(tenant, id, { content: text, position: 7 }, 1).catch((error: unknown) => error),
      );
      const results = await Promise.all(changes);
      expect(results.filter((result) => !(result instanceof Error))).toMatchObject([
        { version: 2, content: "new", hash: "h", bytes: 3, position: 7 },
      ]);
      expect(results.filter((result) => result instanceof Error)).toMatchObject([{ code: "version_conflict" }]);
      expect(await variables.update(tenant, id, { options: { description: "d" } })).toMatchObject({ version: 3 });
      expect(await variables.update(tenant, "var_none", { position: 1 })).toBeUndefined();
      expect(await versionOf(tenant)).toBe(4);
    });

    test("are listed by page and by kind, and deleted once", async () => {
      const tenant = await newTenant();
      const ids: string[] = [];
      for (const at of [1, 2, 3]) ids.push((await variables.create(tenant, variable(`Var${at}`))).id);
      await variables.create(tenant, variable("a", "x", { kind: "agent" }));
      const page = await variables.list(tenant, { limit: 2, order: "desc", kind: "var" });
      expect(page).toMatchObject({ data: [{ id: ids[2] }, { id: ids[1] }], hasMore: true });
      const rest = await variables.list(tenant, { limit: 2, order: "desc", kind: "var", after: ids[1] ?? "" });
      expect(rest).toMatchObject({ data: [{ id: ids[0] }], hasMore: false });
      expect(await variables.delete(tenant, ids[0] ?? "")).toBe(true);
      expect(await second.variables.delete(tenant, ids[0] ?? "")).toBe(false);
      expect(await versionOf(tenant)).toBe(6);
    });

    test("belong to their tenant, and go with it", async () => {
      const [owner, stranger] = [await newTenant(), await newTenant()];
      const made = await variables.create(owner, variable("VarA"));
      expect(await variables.get(stranger, made.id)).toBeUndefined();
      expect(await variables.contents(stranger, [made.id])).toEqual([]);
      expect(await variables.update(stranger, made.id, { position: 9 })).toBeUndefined();
      expect(await variables.delete(stranger, made.id)).toBe(false);
      expect((await variables.list(stranger, { limit: 10, order: "asc" })).data).toEqual([]);
      await variables.putAll(stranger, [variable("VarA", "theirs")]);
      expect(await variables.get(owner, made.id)).toEqual(made);
      await second.tenants.erase(owner);
      expect(await variables.get(owner, made.id)).toBeUndefined();
    });

    test("of another release that cannot be read are left out and reported", async () => {
      const tenant = await newTenant();
      const made = await variables.create(tenant, variable("VarA"));
      const other = await variables.create(tenant, variable("VarB"));
      await instances.run("UPDATE vcp_variables SET kind = 'spell' WHERE id = ?", made.id);
      expect((await second.config.load(tenant))?.variables.map(({ id }) => id)).toEqual([other.id]);
      expect(broken).toContain(`vcp_variables ${made.id}`);
    });
  });
}
