/** What every repository of flows promises, with two instances at one database (FLOW-4, CFG-4). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { FlowContent, FlowRecord } from "@toolyard/core/ports/flows";
import type { Repos } from "@toolyard/core/ports/repos";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

export function describeFlowRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`flows: ${name} ${verifies("FLOW-4")}`, () => {
    let instances: TwoInstances;
    let first: Repos;
    let second: Repos;
    beforeAll(async () => {
      instances = await make();
      first = createRepos(instances.first);
      second = createRepos(instances.second);
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await second.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const versionOf = async (tenant: string): Promise<number> => (await second.config.load(tenant))?.version ?? 0;
    const content = (text: string): FlowContent => ({
      definition: JSON.stringify({ text }),
      hash: `hash of ${text}`,
      refs: [{ field: "nodes.a.uri", value: `api://crm/${text}` }],
    });
    const create = (tenant: string, text = "one", flowName = "orders"): Promise<FlowRecord> =>
      first.flows.create(tenant, { ...content(text), id: newId("flow"), name: flowName, enabled: true });
    const publish = (repos: Repos, tenant: string, { id, revision }: FlowRecord, text = "one") =>
      repos.flows.publish(tenant, id, {
        ...content(text),
        description: text,
        input: { type: "object" },
        effect: "read",
        publishedBy: "key_1",
        revision,
      });

    test("a name is one flow's, and another tenant's flow is not there", async () => {
      const [mine, theirs] = [await newTenant(), await newTenant()];
      const flow = await create(mine);
      expect(flow).toMatchObject({ name: "orders", latest: null, revision: 1, enabled: true });
      await expect(create(mine)).rejects.toMatchObject({ code: "conflict" });
      await create(theirs);
      expect(await second.flows.get(theirs, flow.id)).toBeUndefined();
      expect(await second.flows.update(theirs, flow.id, { enabled: false })).toBeUndefined();
      expect(await publish(second, theirs, flow)).toBeUndefined();
      expect(await second.flows.versions(theirs, flow.id, { limit: 1, order: "asc" })).toBeUndefined();
      expect(await second.flows.delete(theirs, flow.id)).toBe(false);
    });

    test("of two who publish at once there is one next version, and again it stays that", async () => {
      const tenant = await newTenant();
      const flow = await create(tenant);
      const before = await versionOf(tenant);
      const both = await Promise.all([publish(first, tenant, flow), publish(second, tenant, flow)]);
      expect(both.map((each) => each?.latest)).toEqual([1, 1]);
      expect(await versionOf(tenant)).toBe(before + 1);
      const [head] = (await second.config.load(tenant))?.flows ?? [];
      expect(head).toMatchObject({ name: "orders", latest: 1, effect: "read", versions: [{ number: 1 }] });
      expect(await second.flows.definition(tenant, "hash of one")).toBe('{"text":"one"}');
      expect(await second.flows.definition(await newTenant(), "hash of one")).toBeUndefined();
    });

    test("what has changed since it was read is neither changed nor published", async () => {
      const tenant = await newTenant();
      const flow = await create(tenant);
      const changed = await second.flows.update(tenant, flow.id, { draft: content("two") }, flow.revision);
      expect(changed).toMatchObject({ revision: 2, draftHash: "hash of two" });
      await expect(first.flows.update(tenant, flow.id, { enabled: false }, 1)).rejects.toMatchObject({
        code: "version_conflict",
      });
      await expect(publish(first, tenant, flow)).rejects.toMatchObject({ code: "version_conflict" });
      expect(await publish(first, tenant, { ...flow, revision: 2 }, "two")).toMatchObject({ latest: 1 });
    });

    test("versions stay as they were, and what they refer to is known, the newest first", async () => {
      const tenant = await newTenant();
      const flow = await create(tenant);
      const one = (await publish(first, tenant, flow)) ?? flow;
      const edited = (await first.flows.update(tenant, flow.id, { draft: content("two") })) ?? one;
      await publish(second, tenant, edited, "two");
      const page = await second.flows.versions(tenant, flow.id, { limit: 1, order: "desc" });
      expect(page).toMatchObject({ data: [{ number: 2, description: "two" }], hasMore: true });
      const rest = await second.flows.versions(tenant, flow.id, { limit: 1, order: "desc", after: "ver_2" });
      expect(rest).toMatchObject({ data: [{ number: 1, hash: "hash of one" }], hasMore: false });
      expect(await first.flows.version(tenant, flow.id, 1)).toMatchObject({ definition: '{"text":"one"}' });
      const { data: refs } = await second.flows.references(tenant);
      // The newest first, the draft behind them.
      expect(refs.map(({ version, refs: named }) => [version, named[0]?.value])).toEqual([
        [2, "api://crm/two"],
        [1, "api://crm/one"],
        [null, "api://crm/two"],
      ]);
    });

    test("deleted, it leaves nothing", async () => {
      const tenant = await newTenant();
      const flow = await create(tenant);
      await publish(first, tenant, flow);
      await first.flows.createHook(tenant, { ...hook(flow.id), tokenHash: "t1" });
      expect(await second.flows.delete(tenant, flow.id)).toBe(true);
      expect((await second.config.load(tenant))?.flows).toEqual([]);
      expect(await first.flows.definition(tenant, "hash of one")).toBeUndefined();
      expect(await first.flows.references(tenant)).toEqual({ data: [], unreadable: [] });
      expect(await first.flows.openHook(tenant, flow.id, "t1")).toBeUndefined();
    });

    const hook = (flowId: string) =>
      ({
        id: newId("flowHook"),
        flowId,
        isShipped: false,
        name: "shop",
        role: "member",
        hint: "abc",
        sealed: null,
      }) as const;

    test("a hook is opened by its token alone, until that is another", async () => {
      const [tenant, other] = [await newTenant(), await newTenant()];
      const flow = await create(tenant);
      expect(await first.flows.createHook(tenant, { ...hook(newId("flow")), tokenHash: "t0" })).toBeUndefined();
      const made = await first.flows.createHook(tenant, { ...hook(flow.id), tokenHash: "t1" });
      expect(made).toMatchObject({ enabled: true, signed: false, lastUsedAt: null });
      const id = made?.id ?? "";
      expect(await second.flows.openHook(tenant, flow.id, "t1")).toMatchObject({ id, flowName: "orders" });
      expect(await second.flows.openHook(other, flow.id, "t1")).toBeUndefined();
      expect(await second.flows.openHook(tenant, newId("flow"), "t1")).toBeUndefined();
      const rotated = { token: { tokenHash: "t2", hint: "def" }, enabled: false };
      expect(await second.flows.updateHook(tenant, flow.id, id, rotated)).toMatchObject({
        enabled: false,
        hint: "def",
      });
      expect(await first.flows.openHook(tenant, flow.id, "t1")).toBeUndefined();
      const { data } = (await first.flows.listHooks(
        tenant,
        { flowId: flow.id, isShipped: false },
        { limit: 5, order: "asc" },
      )) ?? { data: [] };
      expect(data).toMatchObject([{ id, lastUsedAt: expect.any(Number) }]);
      expect(await second.flows.deleteHook(other, flow.id, id)).toBe(false);
      expect(await second.flows.deleteHook(tenant, flow.id, id)).toBe(true);
    });

    test("a flow that every tenant has needs no row for its hooks", async () => {
      const [tenant, other] = [await newTenant(), await newTenant()];
      const shipped = { flowId: "deep_search", isShipped: true };
      const made = await first.flows.createHook(tenant, { ...hook(""), ...shipped, tokenHash: "t1" });
      expect(await second.flows.openHook(tenant, "deep_search", "t1")).toMatchObject({
        id: made?.id,
        flowName: "deep_search",
      });
      expect(await second.flows.openHook(other, "deep_search", "t1")).toBeUndefined();
      const page = { limit: 5, order: "asc" } as const;
      expect((await second.flows.listHooks(tenant, shipped, page))?.data).toHaveLength(1);
      expect((await second.flows.listHooks(other, shipped, page))?.data).toEqual([]);
    });
  });
}
