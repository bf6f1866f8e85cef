import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { createFakeClock, type FakeClock } from "@toolyard/platform/memory/fake-clock";
import { emptyConfig, type LogLine } from "../../../../../test/support/fake-core.ts";
import { chunk, startLlmStub, text, type LlmStub } from "../../../../../test/support/llm-stub.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createEgress } from "../../blind/egress.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Egress } from "../../ports/egress.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { providerKinds } from "./index.ts";
import type { ProviderEvent, ProviderRecord } from "./provider.ts";
import { discoverModels, listModels, resolveRoute, streamWithFallback, type Route, type RouteDeps } from "./route.ts";
import { scriptedModel } from "./scripted.ts";

function record(name: string, change: Partial<ProviderRecord> = {}): ProviderRecord {
  return {
    id: `prv_${name}`,
    name,
    kind: "openai",
    baseUrl: "http://127.0.0.1:9/v1",
    credential: null,
    models: {},
    passthroughModels: false,
    schemaFamily: null,
    priority: 1,
    enabled: true,
    maxAttempts: 1,
    timeoutMs: 5_000,
    ...change,
  };
}

function config(providers: readonly ProviderRecord[], defaultModel?: string): TenantConfig {
  const empty = emptyConfig("ten_1");
  const settings = defaultModel === undefined ? empty.settings : { ...empty.settings, default_model: defaultModel };
  return { ...empty, settings, providers };
}

const summary = (routes: readonly Route[]): string[] => routes.map((route) => `${route.provider.name}:${route.model}`);

function refusal(run: () => unknown): GatewayError {
  try {
    run();
  } catch (thrown) {
    if (thrown instanceof GatewayError) return thrown;
  }
  throw new Error("not refused");
}

describe(`routes to model back ends ${verifies("CHAT-1", "CHAT-16")}`, () => {
  const first = record("first", { models: { fast: "gpt-mini", shared: "one" } });
  const second = record("second", { models: { shared: "two", "claude-x": "claude-x" } });
  const open = record("open", { passthroughModels: true });

  test("follow the tenant's order and its own names of models", () => {
    expect(summary(resolveRoute(config([first, second]), "shared"))).toEqual(["first:one", "second:two"]);
    expect(summary(resolveRoute(config([second, first]), "shared"))).toEqual(["second:two", "first:one"]);
    expect(summary(resolveRoute(config([first, second]), "fast"))).toEqual(["first:gpt-mini"]);
  });

  test("go to providers that take any model, after those that list it before them", () => {
    expect(summary(resolveRoute(config([first, open]), "fast"))).toEqual(["first:gpt-mini", "open:fast"]);
    expect(summary(resolveRoute(config([first, open]), "unheard-of"))).toEqual(["open:unheard-of"]);
  });

  test("skip providers that are switched off", () => {
    const off = { ...first, enabled: false };
    expect(summary(resolveRoute(config([off, second]), "shared"))).toEqual(["second:two"]);
  });

  test("without a model take the default, or the first that is listed", () => {
    expect(summary(resolveRoute(config([open, first, second]), undefined))).toEqual(["open:fast", "first:gpt-mini"]);
    expect(summary(resolveRoute(config([first, second], "claude-x"), undefined))).toEqual(["second:claude-x"]);
    const refused = refusal(() => resolveRoute(config([open]), undefined));
    expect([refused.code, refused.details.param]).toEqual(["invalid_request", "model"]);
    const wrong = refusal(() => resolveRoute(config([first], "gone"), undefined));
    expect([wrong.code, wrong.details.param]).toEqual(["model_not_found", "default_model"]);
  });

  test("name what exists where the model does not", () => {
    const refused = refusal(() => resolveRoute(config([first, second]), "gpt-9"));
    expect(refused.code).toBe("model_not_found");
    expect(refused.message).toBe("The model 'gpt-9' does not exist. Available: fast, shared, claude-x.");
    for (const inherited of ["constructor", "__proto__", "toString"]) {
      expect(refusal(() => resolveRoute(config([first]), inherited)).code).toBe("model_not_found");
    }
    const off = refusal(() => resolveRoute(config([{ ...first, enabled: false }]), "fast"));
    expect(off.message).toContain("All providers are disabled");
    const unnamed = refusal(() => resolveRoute(config([{ ...first, enabled: false }]), undefined));
    expect(unnamed.message).toBe("'model' is required. All providers are disabled; enable one.");
  });

  test("lead to the operator's back end only for tenants that have none", () => {
    const operator = { baseUrl: "http://127.0.0.1:9/v1", apiKey: "op-key", model: "gpt-op" };
    const [route] = resolveRoute(config([]), "any", operator);
    expect(route).toMatchObject({ owner: "operator", model: "any", provider: { baseUrl: operator.baseUrl } });
    expect(JSON.stringify(route)).not.toContain("op-key");
    expect(summary(resolveRoute(config([]), undefined, operator))).toEqual(["default:gpt-op"]);
    expect(refusal(() => resolveRoute(config([{ ...first, enabled: false }]), "fast", operator)).code).toBe(
      "model_not_found",
    );
  });

  test("lead to the scripted provider where there is no other, under any name", () => {
    expect(resolveRoute(config([]), undefined)).toMatchObject([{ owner: "built-in", model: scriptedModel }]);
    expect(resolveRoute(config([]), "gpt-4")).toMatchObject([{ owner: "built-in", provider: { kind: "scripted" } }]);
  });

  test("are listed once a model, with the provider asked first", () => {
    expect(listModels(config([first, second, record("off", { enabled: false, models: { x: "x" } })]))).toEqual([
      { id: "fast", ownedBy: "first" },
      { id: "shared", ownedBy: "first" },
      { id: "claude-x", ownedBy: "second" },
    ]);
    expect(listModels(config([open], "gpt-5"))).toEqual([{ id: "gpt-5", ownedBy: "open" }]);
    expect(listModels(config([]))).toEqual([{ id: scriptedModel, ownedBy: "toolyard" }]);
    expect(listModels(config([]), { baseUrl: "http://x/v1", model: "m" })).toEqual([{ id: "m", ownedBy: "default" }]);
  });

  test("know the kinds of providers", () => {
    expect(providerKinds).toEqual(["openai", "scripted"]);
  });
});

// With back ends

const stubs: LlmStub[] = [];
const freePool: LlmStub[] = [];
let egress: Egress;
let clock: FakeClock;
let lines: LogLine[];

beforeEach(() => {
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  clock = createFakeClock();
  lines = [];
});
afterEach(async () => {
  await egress.close();
  freePool.splice(0, freePool.length, ...stubs);
  for (const stub of stubs) {
    stub.requests.length = 0;
    stub.http.requests.length = 0;
    stub.aborted.length = 0;
  }
});
afterAll(async () => {
  await Promise.all(stubs.map((stub) => stub.close()));
});

async function backEnd(): Promise<LlmStub> {
  const free = freePool.pop();
  if (free !== undefined) return free;
  const stub = await startLlmStub();
  stubs.push(stub);
  return stub;
}

function deps(change: Partial<RouteDeps> = {}): RouteDeps {
  return {
    egress,
    clock,
    log: { log: (level, message, fields = {}) => lines.push({ level, message, fields }) },
    credential: (name) => Promise.reject(new GatewayError("credential_missing", `no ${name}`)),
    ...change,
  };
}

/** Lets waits pass as soon as somebody waits, and keeps how long they were. */
async function run(
  routes: readonly Route[],
  change: Partial<RouteDeps> = {},
  signal: AbortSignal = new AbortController().signal,
): Promise<{ events: ProviderEvent[]; error: GatewayError | undefined; waits: number[]; taken: string[] }> {
  const events: ProviderEvent[] = [];
  const waits: number[] = [];
  const taken: string[] = [];
  const impatient = {
    now: () => clock.now(),
    sleep: async (ms: number): Promise<void> => {
      waits.push(ms);
      await clock.advance(ms);
    },
  };
  let error: GatewayError | undefined;
  try {
    const stream = streamWithFallback(deps({ clock: impatient, ...change }), {
      routes,
      body: { messages: [{ role: "user", content: "hi" }] },
      stream: true,
      signal,
      onRoute: (route) => taken.push(route.provider.name),
    });
    for await (const batch of stream) events.push(...batch);
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown;
    error = thrown;
  }
  return { events, error, waits, taken };
}

const textOf = (events: readonly ProviderEvent[]): string =>
  events.map((event) => (event.type === "text-delta" ? event.text : "")).join("");

function routesTo(...records: readonly ProviderRecord[]): readonly Route[] {
  return resolveRoute(config(records.map((one) => ({ ...one, passthroughModels: true }))), "m");
}

describe(`falling back between back ends ${verifies("CHAT-1")}`, () => {
  test.each([429, 500, 503])("repeats after status %i before the first byte, with growing pauses", async (status) => {
    const stub = await backEnd();
    stub.script({ json: {}, status }, { json: {}, status }, text("ok"));
    const { events, waits } = await run(routesTo(record("a", { baseUrl: stub.url, maxAttempts: 3 })));
    expect(textOf(events)).toBe("ok");
    expect(stub.requests).toHaveLength(3);
    expect(waits).toHaveLength(2);
    expect(waits[0]).toBeGreaterThanOrEqual(125);
    expect(waits[0]).toBeLessThanOrEqual(250);
    expect(waits[1]).toBeGreaterThanOrEqual(250);
    expect(waits[1]).toBeLessThanOrEqual(500);
  });

  test("waits as long as the back end asks for", async () => {
    const stub = await backEnd();
    stub.script({ json: {}, status: 429, headers: { "retry-after": "3" } }, text("ok"));
    const { events, waits } = await run(routesTo(record("a", { baseUrl: stub.url, maxAttempts: 2 })));
    expect([textOf(events), waits]).toEqual(["ok", [3_000]]);
  });

  test("does not wait longer than a caller can stand, and passes the advice on", async () => {
    const stub = await backEnd();
    stub.script({ json: {}, status: 429, headers: { "retry-after": "60" } });
    const { error, waits } = await run(routesTo(record("a", { baseUrl: stub.url, maxAttempts: 5 })));
    expect([error?.code, error?.details.retryAfterMs, waits]).toEqual(["provider_rate_limited", 60_000, []]);
    expect(stub.requests).toHaveLength(1);
  });

  test("goes on to the next provider after the last attempt, each with its own model and key", async () => {
    const [one, two] = [await backEnd(), await backEnd()];
    one.script({ json: {}, status: 500 });
    two.script(text("from two"));
    const records = [
      record("a", { baseUrl: one.url, maxAttempts: 2, models: { m: "model-a" }, credential: "KEY_A" }),
      record("b", { baseUrl: two.url, models: { m: "model-b" }, credential: "KEY_B" }),
    ];
    const asked: string[] = [];
    const credential = (name: string): Promise<string> => {
      asked.push(name);
      return Promise.resolve(`value-of-${name}`);
    };
    const { events, taken } = await run(resolveRoute(config(records), "m"), { credential });
    expect([textOf(events), taken]).toEqual(["from two", ["b"]]);
    expect([one.requests.map((body) => body["model"]), two.requests.map((body) => body["model"])]).toEqual([
      ["model-a", "model-a"],
      ["model-b"],
    ]);
    expect(asked).toEqual(["KEY_A", "KEY_A", "KEY_B"]);
    expect(two.http.requests[0]?.headers.authorization).toBe("Bearer value-of-KEY_B");
    expect(lines).toMatchObject([{ level: "warn", fields: { provider: "a", error: "provider_unavailable" } }]);
  });

  test("goes on where a back end cannot be reached, says nothing, or has no money left", async () => {
    const good = await backEnd();
    for (const round of [
      undefined,
      { writes: [] },
      { json: { error: { code: "insufficient_quota", message: "x" } }, status: 429 },
    ]) {
      good.script(text("good"));
      const bad = await backEnd();
      if (round !== undefined) bad.script(round);
      const baseUrl = round === undefined ? "http://127.0.0.1:1/v1" : bad.url;
      const { events } = await run(routesTo(record("bad", { baseUrl }), record("good", { baseUrl: good.url })));
      expect(textOf(events)).toBe("good");
    }
  });

  test("does not repeat with an empty account, and not after a time-out", async () => {
    const stub = await backEnd();
    stub.script({ json: { error: { code: "insufficient_quota", message: "x" } }, status: 429 });
    const empty = await run(routesTo(record("a", { baseUrl: stub.url, maxAttempts: 3 })));
    expect([empty.error?.code, stub.requests.length]).toEqual(["provider_failed", 1]);
    stub.script({ json: {}, delayMs: 1_000 });
    const late = await run(routesTo(record("a", { baseUrl: stub.url, maxAttempts: 3, timeoutMs: 50 })));
    expect([late.error?.code, stub.requests.length]).toEqual(["provider_unavailable", 2]);
  });

  test.each([400, 401, 404, 422])("does not try elsewhere what was answered with %i", async (status) => {
    const [one, two] = [await backEnd(), await backEnd()];
    one.script({ json: { error: { message: "no" } }, status });
    const routes = routesTo(record("a", { baseUrl: one.url, maxAttempts: 3 }), record("b", { baseUrl: two.url }));
    const { error } = await run(routes);
    expect(["provider_rejected", "provider_failed"]).toContain(error?.code);
    expect([one.requests.length, two.requests.length]).toEqual([1, 0]);
  });

  test("never repeats after the first byte", async () => {
    const [one, two] = [await backEnd(), await backEnd()];
    one.script({ writes: [chunk({ content: "Hel" })], cut: true });
    const routes = routesTo(record("a", { baseUrl: one.url, maxAttempts: 3 }), record("b", { baseUrl: two.url }));
    const { events, error } = await run(routes);
    expect([textOf(events), error?.code]).toEqual(["Hel", "provider_stream_incomplete"]);
    expect([one.requests.length, two.requests.length]).toEqual([1, 0]);
  });

  test("never repeats because the client has left", async () => {
    const [one, two] = [await backEnd(), await backEnd()];
    const controller = new AbortController();
    one.respond(() => {
      controller.abort();
      return { json: {}, delayMs: 1_000 };
    });
    const routes = routesTo(record("a", { baseUrl: one.url, maxAttempts: 3 }), record("b", { baseUrl: two.url }));
    const { error } = await run(routes, {}, controller.signal);
    expect(error?.code).toBe("request_cancelled");
    expect([one.requests.length, two.requests.length]).toEqual([1, 0]);
  });

  test("stops waiting when the client leaves", async () => {
    const stub = await backEnd();
    stub.script({ json: {}, status: 503 });
    const controller = new AbortController();
    const sleeping = {
      now: () => 0,
      sleep: async (): Promise<void> => {
        controller.abort();
        throw new Error("aborted");
      },
    };
    const { error } = await run(
      routesTo(record("a", { baseUrl: stub.url, maxAttempts: 3 })),
      { clock: sleeping },
      controller.signal,
    );
    expect([error?.code, stub.requests.length]).toEqual(["request_cancelled", 1]);
  });

  test("says which providers were tried where all fail, and keeps the last one's error", async () => {
    const [one, two] = [await backEnd(), await backEnd()];
    one.script({ json: {}, status: 500 });
    two.script({ json: {}, status: 429, headers: { "retry-after": "20" } });
    const { error } = await run(routesTo(record("a", { baseUrl: one.url }), record("b", { baseUrl: two.url })));
    expect([error?.code, error?.details.retryAfterMs, error?.details.extra?.["providers_tried"]]).toEqual([
      "provider_rate_limited",
      20_000,
      ["a", "b"],
    ]);
  });

  test("asks a provider last that wants a pause, until that is over", async () => {
    const [one, two] = [await backEnd(), await backEnd()];
    one.script({ json: {}, status: 429, headers: { "retry-after": "30" } }, text("one"));
    two.script(text("two"));
    const routes = routesTo(record("a", { baseUrl: one.url }), record("b", { baseUrl: two.url }));
    expect((await run(routes)).taken).toEqual(["b"]);
    expect((await run(routes)).taken).toEqual(["b"]);
    expect(one.requests).toHaveLength(1);
    await clock.advance(31_000);
    expect((await run(routes)).taken).toEqual(["a"]);
  });

  test("refuses a provider whose key is missing, without sending anything", async () => {
    const stub = await backEnd();
    const { error } = await run(routesTo(record("a", { baseUrl: stub.url, credential: "GONE" })));
    expect([error?.code, stub.requests.length]).toEqual(["credential_missing", 0]);
  });

  test("uses the operator's own key for the operator's back end", async () => {
    const stub = await backEnd();
    stub.script(text("ok"));
    const defaultProvider = { baseUrl: stub.url, apiKey: "operator-key" };
    await run(resolveRoute(config([]), "m", defaultProvider), { defaultProvider });
    expect(stub.http.requests[0]?.headers.authorization).toBe("Bearer operator-key");
  });

  test("names the kinds there are where a provider's kind is unknown", async () => {
    const { error } = await run(routesTo(record("a", { kind: "telepathy" })));
    expect(error?.message).toContain("use one of openai, scripted");
  });

  test("answers with the scripted provider where nothing is configured", async () => {
    const { events } = await run(resolveRoute(config([]), "gpt-4"));
    expect(events[0]).toMatchObject({ type: "start", model: scriptedModel });
  });

  test("closes the connection when its reader leaves", async () => {
    const stub = await backEnd();
    stub.script({ writes: Array.from({ length: 500 }, () => chunk({ content: "x" })), gapMs: 5 });
    const stream = streamWithFallback(deps(), {
      routes: routesTo(record("a", { baseUrl: stub.url })),
      body: { messages: [] },
      stream: true,
      signal: new AbortController().signal,
    });
    for await (const batch of stream) if (textOf(batch) !== "") break;
    for (let at = 0; at < 400 && stub.aborted.length === 0; at += 1)
      await new Promise((resolve) => setTimeout(resolve, 5));
    expect(stub.aborted).toHaveLength(1);
  });
});

describe(`discovering models ${verifies("CHAT-16")}`, () => {
  test("adds what open back ends offer and leaves out those that do not answer", async () => {
    const stub = await backEnd();
    const found = await discoverModels(
      deps(),
      config([
        record("listed", { models: { fast: "x" } }),
        record("open", { baseUrl: stub.url, passthroughModels: true }),
        record("down", { baseUrl: "http://127.0.0.1:1/v1", passthroughModels: true }),
      ]),
      new AbortController().signal,
    );
    expect(found).toEqual([
      { id: "fast", ownedBy: "listed" },
      { id: "stub-1", ownedBy: "open" },
    ]);
    expect(lines).toMatchObject([{ level: "warn", fields: { provider: "down" } }]);
  });

  test("asks no back end that lists its own", async () => {
    const stub = await backEnd();
    await discoverModels(deps(), config([record("listed", { baseUrl: stub.url })]), new AbortController().signal);
    expect(stub.http.requests).toEqual([]);
  });
});
