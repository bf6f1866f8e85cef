/** What the suites of the call record share: two instances, tenants with keys, and rows to write. */
import { createHash, randomUUID } from "node:crypto";
import type { Caller } from "@toolyard/core/callers/caller";
import type { Call, CallState } from "@toolyard/core/calls/call";
import { newId } from "@toolyard/core/ids";
import type { AdmitInput, AdmitResult, CallRepo, NewCall } from "@toolyard/core/ports/calls";
import type { ApiKey } from "@toolyard/core/ports/api-keys";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Tenant } from "@toolyard/core/ports/tenants";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";

export type MakeInstances = () => Promise<TwoInstances>;

export interface TestKey {
  readonly id: string;
  readonly hash: string;
}

export interface CallFixture {
  readonly instances: TwoInstances;
  /** Of the first and of the second instance. */
  readonly repos: readonly [Repos, Repos];
  /** Of the first instance. */
  readonly calls: CallRepo;
  newTenant(settings?: Tenant["settings"]): Promise<string>;
  newKey(tenant: string, change?: Partial<ApiKey>): Promise<TestKey>;
  /** Repositories of the instances by turns. */
  turn(index: number): Repos;
  run: TwoInstances["run"];
  /** The stored row. */
  row(tenant: string, id: string): Promise<Call>;
  /** Puts a row into a state by the repository's own means. */
  rowIn(tenant: string, state: CallState, change?: Partial<NewCall>): Promise<string>;
  /** Lets the lease of a row run out. */
  loseLease(tenant: string, id: string): Promise<void>;
}

/** Set up before all tests of the enclosing `describe`; read its parts within tests only. */
export function useCallFixture(make: MakeInstances): CallFixture {
  let instances: TwoInstances;
  let repos: readonly [Repos, Repos];
  beforeAll(async () => {
    instances = await make();
    repos = [createRepos(instances.first), createRepos(instances.second)];
  });
  afterAll(() => instances.close());

  const fixture: CallFixture = {
    get instances() {
      return instances;
    },
    get repos() {
      return repos;
    },
    get calls() {
      return repos[0].calls;
    },
    turn: (index) => repos[index % 2 === 0 ? 0 : 1],
    run: (sql, ...args) => instances.run(sql, ...args),
    newTenant: async (settings = {}) => {
      const id = newId("tenant");
      await repos[0].tenants.create({ id, name: "A tenant", wrappedKey: randomUUID(), settings });
      return id;
    },
    newKey: async (tenant, change = {}) => {
      const id = newId("apiKey");
      const hash = createHash("sha256").update(id).digest("hex");
      const key = { id, name: "A key", role: "member", scopes: ["chat", "tools"], tools: null } as const;
      const limits = { userId: null, businessUnit: null, requestsPerMinute: null, concurrentRequests: null };
      const { createdAt: _created, revokedAt, ...given } = change;
      await repos[0].apiKeys.create(tenant, { ...key, ...limits, hint: "ty_x", expiresAt: null, hash, ...given });
      if (revokedAt !== undefined && revokedAt !== null) await repos[0].apiKeys.revoke(tenant, id);
      return { id, hash };
    },
    row: async (tenant, id) => {
      const row = await repos[0].calls.get(tenant, id);
      if (row === undefined) throw new Error(`There is no call '${id}'.`);
      return row;
    },
    rowIn: async (tenant, state, change = {}) => {
      const { calls } = repos[0];
      const end = endOf(state);
      const call = newTool({ state, ...(end === undefined ? {} : { end }), ...change });
      await calls.record(tenant, "key_test", [call]);
      return call.id;
    },
    loseLease: async (tenant, id) => {
      await instances.run("UPDATE calls SET lease_until = 1 WHERE tenant = ? AND id = ?", tenant, id);
    },
  };
  return fixture;
}

function endOf(state: CallState): NewCall["end"] {
  switch (state) {
    case "queued":
    case "running":
    case "input_required":
      return undefined;
    case "completed":
      return { state, outcome: { text: "done", mediaType: "text/plain", bytes: 4 } };
    case "failed":
    case "cancelled":
    case "unknown":
    case "rejected":
      return { state, error: { code: "tool_failed", message: "no" } };
  }
}

export function newTool(change: Partial<NewCall> = {}): NewCall {
  return {
    id: newId("call"),
    kind: "tool",
    parentId: null,
    rootId: null,
    sessionId: null,
    uri: "plugin://weather",
    tool: "weather",
    toolHash: "tool-hash",
    effect: "write",
    repeat: "natural",
    state: "running",
    async: false,
    userId: null,
    callerChain: [{ kind: "key", id: "key_test" }],
    route: "tools.invoke",
    idempotencyKey: null,
    inputHash: randomUUID(),
    input: "sealed-input",
    inputView: '{"city":"北京"}',
    effectKey: null,
    slots: 1,
    reserved: { tokens: 0, micros: 0 },
    leaseMs: 60_000,
    deadlineMs: 120_000,
    runAt: null,
    requestId: newId("request"),
    traceId: randomUUID().replaceAll("-", ""),
    delivery: "none",
    ...change,
  };
}

export function newChat(change: Partial<NewCall> = {}): NewCall {
  return newTool({ id: newId("chat"), kind: "chat", uri: "chat://m", tool: "m", route: "chat", slots: 0, ...change });
}

/** The admission of a counted request with a key; the rest as given. */
export function withKey(
  tenant: string,
  key: TestKey,
  rest: Omit<AdmitInput, "tenant" | "principal" | "limits"> = {},
): AdmitInput {
  return { tenant, principal: { kind: "key", hash: key.hash }, limits: { countRequest: true }, ...rest };
}

export const someUser: Caller = {
  kind: "user",
  id: "user:https://issuer.example:ada",
  role: "member",
  scopes: ["chat"],
  tools: null,
  userId: "user:https://issuer.example:ada",
};

/** How often each outcome came, spelled `kind` or `kind:scope`. */
export function tally(results: readonly AdmitResult[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of results) {
    const name = "scope" in outcome ? `${outcome.kind}:${outcome.scope}` : outcome.kind;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

export async function times<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_none, index) => work(index)));
}

/** Repeats work that a minute's end cut in two. */
export async function withinOneMinute<T>(fixture: CallFixture, work: () => Promise<T>): Promise<T> {
  const minute = async (): Promise<unknown> =>
    (await fixture.run("SELECT CAST(unixepoch('subsec') AS INTEGER) / 60 AS minute"))[0]?.["minute"];
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const before = await minute();
    const result = await work();
    if ((await minute()) === before) return result;
  }
  throw new Error("Three minutes ended in a row while the test was at work.");
}
