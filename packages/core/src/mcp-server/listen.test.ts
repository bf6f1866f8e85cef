import { describe, expect, test } from "vitest";
import { admitted, createFakeCore, emptyConfig } from "../../../../test/support/fake-core.ts";
import type { Caller } from "../callers/caller.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { parseJson } from "../json.ts";
import { statelessRevision } from "../mcp/revisions.ts";
import type { Tool } from "../tools/tool.ts";
import type { Exchange } from "./exchange.ts";
import { listen } from "./listen.ts";

const key = { kind: "key", id: "key_1", role: "member", scopes: ["tools"], tools: null } satisfies Caller;

/** A tenant with one tool, what is read of it counted, and streams of one key that look many times a second. */
function world() {
  const state = { version: 1, described: 0, admissions: 0, description: "first" };
  const tool = {
    name: "crm",
    uri: "api://crm/list",
    enabled: true,
    roles: [],
    get description() {
      return state.description;
    },
    get outputTrust() {
      state.described += 1;
      return "outside";
    },
    parameters: { type: "object" },
  } as unknown as Tool;
  const adapter = { list: () => [tool] } as never;
  const stop = new AbortController();
  const deps = createFakeCore({
    core: {
      adapters: { api: adapter },
      clock: {
        now: () => Date.now(),
        sleep: () => new Promise((done) => setImmediate(done)),
      },
    },
    repos: { config: { load: (tenant) => Promise.resolve({ ...emptyConfig(tenant), version: state.version }) } },
    admit: ({ tenant, principal }) => {
      state.admissions += 1;
      // As the database gives it: another object each time.
      const known = admitted(tenant, structuredClone(principal.kind === "known" ? principal.caller : key));
      return Promise.resolve({ ...known, tenant: { ...known.tenant, configVersion: state.version } });
    },
  });
  const open = async (
    caller: Caller = key,
    until?: number,
  ): Promise<{ readonly told: string[]; readonly ended: Promise<unknown> }> => {
    const told: string[] = [];
    const ready = Promise.withResolvers<void>();
    const exchange: Exchange = {
      deps,
      peer: {
        era: "stateless",
        revision: statelessRevision,
        takesForms: false,
        takesTasks: false,
        client: undefined,
        session: undefined,
      },
      presented: { tenant: "ten_a", principal: { kind: "known", caller }, ...(until === undefined ? {} : { until }) },
      toolset: undefined,
      header: () => undefined,
      requestId: "req_1",
      traceId: "0af7651916cd43dd8448eb211c80319c",
      span: undefined,
      idempotencyKey: undefined,
      signal: stop.signal,
      send(text) {
        const { method } = parseJson(text) as { method: string };
        told.push(method);
        ready.resolve();
      },
      remainingMs: undefined,
      resident: { isDraining: () => false },
      version: "0",
    };
    const params = { notifications: { toolsListChanged: true } };
    const ended = listen(exchange, { id: 1, method: "subscriptions/listen", params });
    await Promise.race([ready.promise, ended]);
    return { told, ended };
  };
  return { state, stop, open };
}

describe("streams of news of one caller", () => {
  test("describe its tools once for each state of the configuration, however many and however long", async () => {
    const { state, stop, open } = world();
    const streams = await Promise.all(Array.from({ length: 20 }, () => open()));
    await expect.poll(() => state.admissions).toBeGreaterThan(100);
    expect(state.described).toBe(1);
    state.description = "second";
    state.version = 2;
    await expect.poll(() => streams.every(({ told }) => told.length > 1)).toBe(true);
    const before = state.admissions;
    await expect.poll(() => state.admissions).toBeGreaterThan(before + 100);
    stop.abort();
    await Promise.all(streams.map(({ ended }) => ended));
    expect(state.described).toBe(2);
    expect(streams.map(({ told }) => told.slice(1))).toEqual(streams.map(() => ["notifications/tools/list_changed"]));
  });

  test("end with the token that they were asked for with", async () => {
    const { stop, open } = world();
    const [ending, other] = [await open(key, Date.now() + 200), await open()];
    await expect(ending.ended).rejects.toMatchObject({ code: "invalid_token" });
    stop.abort();
    await other.ended;
  });

  test("are so many at most, and one that ends makes room; other callers have their own", async () => {
    const { stop, open } = world();
    const streams = await Promise.all(Array.from({ length: 20 }, () => open()));
    const refusal: unknown = await open().catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(GatewayError);
    expect(refusal).toMatchObject({ code: "concurrency_limited", details: { extra: { limit: 20 } } });
    const other = await open({ ...key, id: "key_2" });
    stop.abort();
    await Promise.all([...streams, other].map(({ ended }) => ended));
    const again = await open();
    await again.ended;
    expect(again.told).toEqual(["notifications/subscriptions/acknowledged"]);
  });
});
