import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { Sealer } from "../secrets/sealer.ts";
import type { DeliveryClaim, WebhookRepo } from "@toolyard/core/ports/webhooks";
import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { deliverWebhooks, nextTry, readRetryAfter } from "./deliver.ts";
import type { ClaimedDelivery, DeliveryResult } from "./webhook.ts";

const delayOf = (tries: number, askedMs: number): number => {
  const next = nextTry(tries, askedMs);
  return typeof next === "object" ? next.delayMs : Number.NaN;
};

describe("the next attempt", () => {
  test("comes later each time, over days, and ten attempts are the last", () => {
    const delays = Array.from({ length: 9 }, (_, index) => delayOf(index + 1, 0));
    expect(delays).toEqual(delays.toSorted((a, b) => a - b));
    expect(delays[0]).toBeLessThanOrEqual(6_000);
    expect(delays.reduce((sum, each) => sum + each, 0)).toBeGreaterThan(3 * 86_400_000);
    expect(nextTry(10, 0)).toBe("failed");
  });

  test("is not before the receiver wants it, but within a day", () => {
    expect(delayOf(1, 600_000)).toBe(600_000);
    expect(delayOf(1, 10 * 86_400_000)).toBe(86_400_000);
    expect(delayOf(3, 1_000)).toBeGreaterThanOrEqual(1_800_000);
  });

  test("reads Retry-After as seconds or as a date", () => {
    const now = Date.parse("2026-11-27T09:30:00Z");
    expect(readRetryAfter("120", now)).toBe(120_000);
    expect(readRetryAfter("Fri, 27 Nov 2026 09:31:00 GMT", now)).toBe(60_000);
    expect(readRetryAfter("Fri, 27 Nov 2026 09:29:00 GMT", now)).toBe(0);
    for (const nothing of [undefined, "", "soon", "-5 x"]) expect(readRetryAfter(nothing, now)).toBe(0);
  });
});

const claimed: ClaimedDelivery = {
  delivery: {
    id: "evt_1",
    tenant: "ten_1",
    webhookId: "whk_1",
    type: "webhook.test",
    callId: null,
    body: "{}",
    state: "pending",
    attempt: 1,
    tries: 1,
    nextAt: null,
    lastStatus: null,
    lastError: null,
    attemptedAt: null,
    createdAt: 0,
  },
  url: "https://hooks.example.com/",
  wrappedKey: "",
  sealed: [],
};

describe("a secret that cannot be opened, since the key of keys is away", () => {
  test("keeps its delivery for later, with all its tries", async () => {
    const settled: DeliveryResult[] = [];
    const pending = [{ ...claimed, sealed: ["v1.x"] }];
    const webhooks: WebhookRepo = {
      ...unscripted<WebhookRepo>("webhooks"),
      claim: () => Promise.resolve(pending.splice(0)),
      settle: (_tenant, _id, _attempt, result) => Promise.resolve(void settled.push(result)),
    };
    const away = new GatewayError("master_key_unavailable", "The key of keys cannot be reached.");
    const vault: KeyVault = { ...unscripted<KeyVault>("keyVault"), unwrap: () => Promise.reject(away) };
    const clock: Clock = { ...unscripted<Clock>("clock"), now: () => 0 };
    const core = createFakeCore({ core: { sealer: new Sealer(vault, clock) }, repos: { webhooks } });
    await deliverWebhooks(core);
    expect(settled).toEqual([
      {
        status: null,
        error: expect.stringContaining("master_key_unavailable"),
        next: { delayMs: 60_000, uncounted: true },
      },
    ]);
  });
});

/** Receivers that answer when they are told to, and rows that become due one claim after the other. */
function receivers(dueAtClaims: readonly (readonly ClaimedDelivery[])[]) {
  const claims: DeliveryClaim[] = [];
  const settled: string[] = [];
  const waiting = new Map<string, () => void>();
  const webhooks: WebhookRepo = {
    ...unscripted<WebhookRepo>("webhooks"),
    claim(asked) {
      claims.push(asked);
      return Promise.resolve(dueAtClaims[claims.length - 1] ?? []);
    },
    settle: (_tenant, id) => Promise.resolve(void settled.push(id)),
  };
  const clock: Clock = { now: () => 0, sleep: () => new Promise((done) => setImmediate(done)) };
  const core = createFakeCore({ core: { clock }, repos: { webhooks } });
  const egress = {
    ...core.egress,
    async request({ url = "" }: { readonly url?: string }): Promise<never> {
      if (url.includes("slow")) await new Promise<void>((answer) => waiting.set(url, answer));
      throw new Error("no");
    },
  };
  return {
    deps: { ...core, egress },
    claims,
    settled,
    answer: () => waiting.forEach((answer) => answer()),
  };
}

const due = (id: string, webhookId = "whk_1"): ClaimedDelivery => ({
  ...claimed,
  delivery: { ...claimed.delivery, id, webhookId },
  url: `https://hooks.example.com/${id}`,
});

describe("a receiver that does not answer", () => {
  test("holds nobody else up: what is due is sent while it is waited for", async () => {
    const slow = due("slow", "whk_slow");
    const rest = Array.from({ length: 30 }, (_, at) => [due(`quick${at}`)]);
    const { deps, claims, settled, answer } = receivers([[slow], ...rest]);
    const going = deliverWebhooks(deps);
    await expect.poll(() => settled.length).toBe(rest.length);
    expect(settled).not.toContain("slow");
    // And what is under way counts in its webhook's share.
    expect(claims.at(-1)?.underWay).toMatchObject([{ id: "slow", webhookId: "whk_slow" }]);
    answer();
    expect(await going).toBe(rest.length + 1);
    expect(settled).toContain("slow");
  });

  test("is one of so many at most: no more is claimed than there are places", async () => {
    const all = Array.from({ length: 50 }, (_, at) => due(`slow${at}`));
    const { deps, claims, answer, settled } = receivers([all.slice(0, 30), all.slice(30), [due("later")]]);
    const going = deliverWebhooks(deps);
    await expect.poll(() => claims.length).toBe(2);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    expect(claims.map(({ limit }) => limit)).toEqual([50, 20]);
    answer();
    expect(await going).toBe(51);
    expect(settled).toHaveLength(51);
  });
});

describe("a go with a limit", () => {
  test("begins nothing that may not come to its end, and ends what it has begun", async () => {
    const { deps, claims, settled, answer } = receivers([[due("slow")], [due("quick")], [due("late")]]);
    let isOver = false;
    const going = deliverWebhooks(deps, () => (claims.length < 2 ? 20_000 : 19_999)).finally(() => (isOver = true));
    await expect.poll(() => settled).toEqual(["quick"]);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    expect(isOver).toBe(false);
    answer();
    expect(await going).toBe(2);
    expect(settled).toEqual(["quick", "slow"]);
  });

  test("claims nothing where there is no time for one", async () => {
    const { deps, claims } = receivers([[due("quick")]]);
    expect(await deliverWebhooks(deps, () => 15_000)).toBe(0);
    expect(claims).toEqual([]);
  });

  test("whose claim fails ends what it has under way, and says so", async () => {
    const { deps, settled, answer } = receivers([[due("slow")]]);
    const { claim } = deps.repos.webhooks;
    let claims = 0;
    const webhooks: WebhookRepo = {
      ...deps.repos.webhooks,
      claim: (asked) => ((claims += 1) === 1 ? claim(asked) : Promise.reject(new Error("away"))),
    };
    const going = deliverWebhooks({ ...deps, repos: { ...deps.repos, webhooks } });
    const ended = going.catch(String);
    await expect.poll(() => claims).toBe(2);
    answer();
    expect(await ended).toContain("away");
    expect(settled).toEqual(["slow"]);
  });
});
