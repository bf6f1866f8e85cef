/** What every repository of agents promises, with two instances at one database (AGENT-1). */
import { randomUUID } from "node:crypto";
import type { NewAgent } from "@toolyard/core/agents/agent";
import { newId } from "@toolyard/core/ids";
import type { Repos } from "@toolyard/core/ports/repos";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

export function describeAgentRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`agents: ${name} ${verifies("AGENT-1")}`, () => {
    let instances: TwoInstances;
    let first: Repos;
    let second: Repos;
    const broken: string[] = [];
    beforeAll(async () => {
      instances = await make();
      first = createRepos(instances.first);
      second = createRepos(instances.second, { onBrokenRow: ({ table, id }) => broken.push(`${table} ${id}`) });
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await second.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };

    test("are made, read, changed and deleted, each with a version of the configuration of its own", async () => {
      const tenant = await newTenant();
      const made = await first.agents.create(tenant, newId("agent"), agent("support"));
      expect(made).toMatchObject(agent("support"));
      expect(await second.config.load(tenant)).toMatchObject({ version: 2, agents: [made] });
      const changed = await second.agents.update(tenant, made.id, agent("helpdesk", { tools: ["lookup"] }));
      expect(changed).toMatchObject({ id: made.id, name: "helpdesk", tools: ["lookup"], createdAt: made.createdAt });
      expect(await first.agents.get(tenant, made.id)).toEqual(changed);
      expect(await first.agents.delete(tenant, made.id)).toBe(true);
      expect(await second.agents.delete(tenant, made.id)).toBe(false);
      expect(await second.config.load(tenant)).toMatchObject({ version: 4, agents: [] });
    });

    test("have names of their own within a tenant, and nothing in another", async () => {
      const [tenant, other] = [await newTenant(), await newTenant()];
      const taken = { code: "conflict", details: { param: "name" } };
      const one = await first.agents.create(tenant, newId("agent"), agent("one"));
      await expect(second.agents.create(tenant, newId("agent"), agent("one"))).rejects.toMatchObject(taken);
      const two = await second.agents.create(tenant, newId("agent"), agent("two"));
      await expect(first.agents.update(tenant, two.id, agent("one"))).rejects.toMatchObject(taken);
      await first.agents.create(other, newId("agent"), agent("one"));
      expect(await first.agents.get(other, one.id)).toBeUndefined();
      expect(await first.agents.update(other, one.id, agent("x"))).toBeUndefined();
      expect(await first.agents.delete(other, one.id)).toBe(false);
      expect((await first.agents.list(tenant, { limit: 10, order: "asc" })).data.map(({ name }) => name)).toEqual([
        "one",
        "two",
      ]);
    });

    test("are not changed by who has read another state of them", async () => {
      const tenant = await newTenant();
      const made = await first.agents.create(tenant, newId("agent"), agent("one"));
      const change = { ...agent("one", { description: "first" }), expectedUpdatedAt: made.updatedAt };
      const changed = await first.agents.update(tenant, made.id, change);
      expect(changed?.updatedAt).toBeGreaterThan(made.updatedAt);
      expect(await second.agents.update(tenant, made.id, { ...change, description: "second" })).toBeUndefined();
      expect(await second.agents.get(tenant, made.id)).toEqual(changed);
    });

    test("fail alone where a row cannot be read", async () => {
      const tenant = await newTenant();
      const good = await first.agents.create(tenant, newId("agent"), agent("good"));
      const bad = await first.agents.create(tenant, newId("agent"), agent("bad"));
      await instances.run("UPDATE agents SET definition = '{}' WHERE id = ?", bad.id);
      expect((await second.config.load(tenant))?.agents).toEqual([good]);
      expect(broken).toEqual([`agents ${bad.id}`]);
    });
  });
}

function agent(name: string, change: Partial<NewAgent> = {}): NewAgent {
  return {
    name,
    description: "说明",
    model: null,
    instructions: "",
    tools: [],
    knowledge: [],
    handoffs: [],
    agents: [],
    limits: { handoffs: 8, depth: 3 },
    tool_protocol: "openai",
    parameters: { temperature: 0.5 },
    allow_client_tools: false,
    enabled: true,
    ...change,
  };
}
