/** Runs of flows whose database, blobs or keys are away for a moment, and what notes of a model's answer leave behind. */
import type { CallContext } from "@toolyard/core/context";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { startFlow } from "@toolyard/core/flows/run/start";
import { runBlobPrefix } from "@toolyard/core/ports/blob-store";
import { Redactor } from "@toolyard/core/secrets/redactor";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { callIn, publishFlow } from "../support/flows.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  llm = await startLlmStub();
  gateway = await startGateway({ tickEveryMs: 500 });
});
afterAll(async () => {
  await gateway.close();
  await llm.close();
});
beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
});
afterEach(() => {
  vi.restoreAllMocks();
});

const away = (): GatewayError => new GatewayError("database_unavailable", "The database is away.");

async function contextOf(of: TestTenant): Promise<CallContext> {
  const { core } = gateway;
  const row = await core.repos.tenants.get(of.id);
  return {
    tenant: of.id,
    caller: { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null },
    config: await core.configs.get(of.id, row?.configVersion ?? 0),
    requestId: "req_test",
    traceId: "0".repeat(32),
    redactor: new Redactor(),
  };
}

async function start(name: string): Promise<string> {
  const place = { route: "test", parentId: null, rootId: null };
  return (await startFlow(gateway.core, await contextOf(tenant), { name, input: {}, place })).callId;
}

async function publishAsking(name: string): Promise<void> {
  const ask = { kind: "model", messages: [{ role: "user", content: "How many?" }], stream: true, next: "end" };
  await publishFlow(tenant, {
    name,
    start: "ask",
    nodes: { ask, end: { kind: "end", output: { $: "steps.ask.output.text" } } },
  });
}

describe(`a run ${verifies("FLOW-2")}`, () => {
  beforeEach(async () => {
    llm.respond(() => text("Three."));
    await publishAsking("asking");
  });

  test("waits for a database that is away when its record is read", async () => {
    vi.spyOn(gateway.core.repos.flowRuns, "load").mockRejectedValueOnce(away());
    const run = await start("asking");
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", result: { preview: '"Three."' } });
  });

  test("waits for a database that is away when its step asks a model", async () => {
    const { calls } = gateway.core.repos;
    const admit = calls.admit.bind(calls);
    let isAway = true;
    vi.spyOn(calls, "admit").mockImplementation((input) => {
      if (!isAway || input.call?.route !== "flows.model") return admit(input);
      isAway = false;
      return Promise.reject(away());
    });
    const run = await start("asking");
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", result: { preview: '"Three."' } });
    expect(llm.requests).toHaveLength(1);
  });

  test("goes on where what a model says cannot be noted", async () => {
    const { flowRuns } = gateway.core.repos;
    const write = flowRuns.write.bind(flowRuns);
    const lost: unknown[] = [];
    vi.spyOn(flowRuns, "write").mockImplementation((of, change) => {
      const notes = change.steps.filter(({ state, progress }) => state === "running" && progress !== null);
      if (notes.length === 0) return write(of, change);
      lost.push(...notes);
      return Promise.reject(away());
    });
    const run = await start("asking");
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", attempt: 1 });
    expect([lost.length > 0, llm.requests.length]).toEqual([true, 1]);
  });
});

describe(`a long answer that is followed ${verifies("FLOWRUN-1")}`, () => {
  test("leaves one blob of what was noted, however often that was", async () => {
    await publishAsking("telling");
    llm.respond(() => ({ ...text(`${"x".repeat(5_000)} `.repeat(12)), gapMs: 150 }));
    const { flowRuns } = gateway.core.repos;
    const write = vi.spyOn(flowRuns, "write");
    const run = await start("telling");
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed" });
    const notes = write.mock.calls.flatMap(([, { steps }]) =>
      steps.filter(({ state, progress }) => state === "running" && progress !== null && "blob" in progress),
    );
    expect(notes.length).toBeGreaterThan(1);
    // The note, and what the step and the end came to.
    expect(await gateway.core.blobs.list(runBlobPrefix(tenant.id, run))).toHaveLength(3);
  });
});
