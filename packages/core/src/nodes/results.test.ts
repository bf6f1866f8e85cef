import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, unscripted, type FakeCore } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { NodeRepo } from "../ports/nodes.ts";
import type { CallFinish } from "../ports/calls.ts";
import type { Repos } from "../ports/repos.ts";
import type { NodeRun } from "./node.ts";
import { useResult } from "./results.ts";
import { runOnNode } from "./run.ts";

const run: NodeRun = {
  id: "nrun_1",
  callId: "call_1",
  attempt: 1,
  node: "lab",
  instance: "an-instance-of-a-test",
  tool: "change",
  state: "ended",
  handedOver: true,
  cancelled: false,
  leaseUntil: 60_000,
  now: 0,
  connected: true,
  input: null,
  result: JSON.stringify({ status: "completed", media_type: "text/plain", uploaded: true }),
};

interface Fake {
  readonly core: FakeCore;
  readonly settled: string[];
  readonly deleted: string[];
  readonly finishes: CallFinish[];
}

/** A gateway whose node has ended this run. */
function fake(given: NodeRun, { blobs, settle }: { blobs?: Partial<BlobStore>; settle?: NodeRepo["settle"] }): Fake {
  const settled: string[] = [];
  const deleted: string[] = [];
  const finishes: CallFinish[] = [];
  const call = callRow({ state: "running", uri: "node://change", tool: "change", effect: "write", finishedAt: null });
  const core = createFakeCore({
    core: {
      blobs: {
        ...unscripted<BlobStore>("blobs"),
        put: () => Promise.resolve(true),
        delete(key) {
          deleted.push(key);
          return Promise.resolve();
        },
        ...blobs,
      },
      answers: { wait: () => Promise.resolve(given.result ?? undefined), deliver: () => Promise.resolve(true) },
      tellNow: () => Promise.resolve(),
    },
    repos: {
      nodes: {
        ...unscripted<NodeRepo>("repos.nodes"),
        offer: () => Promise.resolve({ ...given, state: "offered", result: null }),
        settle: settle ?? ((_tenant, id) => Promise.resolve(void settled.push(id))),
      },
      calls: {
        ...unscripted<Repos["calls"]>("repos.calls"),
        get: () => Promise.resolve(call),
        finish: (_tenant, _id, _attempt, finish) => Promise.resolve(finishes.push(finish) > 0),
      },
      tenants: {
        ...unscripted<Repos["tenants"]>("repos.tenants"),
        get: (id) => Promise.resolve({ id, configVersion: 1 } as Awaited<ReturnType<Repos["tenants"]["get"]>>),
      },
    },
  });
  return { core, settled, deleted, finishes };
}

const away = { get: () => Promise.reject(new GatewayError("blobs_unavailable", "The store is away.")) };
const work = {
  callId: "call_1",
  attempt: 1,
  tool: "change",
  toolHash: "hash",
  node: null,
  arguments: { text: "x".repeat(30_000) },
  notConnected: () => new GatewayError("tool_unreachable", "not connected"),
};
const context = {
  ...callContext({ tenant: "ten_1" }),
  signal: new AbortController().signal,
} as Parameters<typeof runOnNode>[2];

describe(`the result of a node while the store is away ${verifies("VCP-15")}`, () => {
  test("ends no call that was handed over, and stays for the next look", async () => {
    const { core, settled, deleted, finishes } = fake(run, { blobs: away });
    await expect(useResult(core, "ten_1", run)).rejects.toThrow("The store is away.");
    expect({ settled, deleted, finishes }).toEqual({ settled: [], deleted: [], finishes: [] });
  });

  test("stays for later where somebody waits, who does not know what came of it", async () => {
    const { core, settled, deleted } = fake(run, { blobs: away });
    const thrown: unknown = await runOnNode(core, work, context).catch((error: unknown) => error);
    expect(thrown).toMatchObject({ code: "blobs_unavailable" });
    expect(deliveryOf(thrown)).toBe("uncertain");
    expect({ settled, deleted }).toEqual({ settled: [], deleted: [] });
  });

  test.each<[string, Parameters<typeof fake>[1]]>([
    ["blobs", { blobs: { delete: () => Promise.reject(new GatewayError("blobs_unavailable", "away")) } }],
    ["the database", { settle: () => Promise.reject(new GatewayError("database_unavailable", "away")) }],
  ])("is given on whole where only what is left of it cannot be cleared away: %s", async (_what, given) => {
    const inline = { ...run, input: "", result: JSON.stringify({ status: "completed", output: "done" }) };
    const { core, settled } = fake(inline, given);
    expect(await runOnNode(core, work, context)).toMatchObject({ body: "done" });
    // Looked at again, and cleared away then.
    expect(settled).toEqual([]);
  });

  test("is used where the store is there, and cleared away", async () => {
    const stored = { body: [Buffer.from("done")], key: "k", size: 4, mediaType: "text/plain", etag: "e" };
    const get = (): Promise<never> => Promise.resolve(stored as never);
    const { core, settled, deleted, finishes } = fake(run, { blobs: { get } });
    await useResult(core, "ten_1", run);
    expect(finishes).toMatchObject([{ state: "completed" }]);
    expect({ settled: settled.length, deleted: deleted.length }).toEqual({ settled: 1, deleted: 1 });
  });
});
