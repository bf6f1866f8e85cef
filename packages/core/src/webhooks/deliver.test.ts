import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { Sealer } from "../secrets/sealer.ts";
import type { WebhookRepo } from "@toolyard/core/ports/webhooks";
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
    const webhooks: WebhookRepo = {
      ...unscripted<WebhookRepo>("webhooks"),
      claim: () => Promise.resolve(settled.length > 0 ? [] : [{ ...claimed, sealed: ["v1.x"] }]),
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

describe("a go with a limit", () => {
  /** Each claim finds one whose receiver never answers: that takes all the time an attempt has. */
  const goes = async (remainingMs: (now: number) => number): Promise<number> => {
    let now = 0;
    const webhooks: WebhookRepo = {
      ...unscripted<WebhookRepo>("webhooks"),
      claim: () => Promise.resolve([claimed]),
      settle: () => Promise.resolve(),
    };
    const core = createFakeCore({ repos: { webhooks } });
    const egress = {
      ...core.egress,
      request: ({ timeoutMs = 0 }) => {
        now += timeoutMs;
        return Promise.reject(new Error("No answer."));
      },
    };
    return deliverWebhooks({ ...core, egress }, () => remainingMs(now));
  };

  test("begins nothing that may not come to its end", async () => {
    expect(await goes((now) => 55_000 - now)).toBe(3);
    expect(await goes((now) => 45_000 - now)).toBe(2);
    expect(await goes(() => 15_000)).toBe(0);
  });

  test("has an end of its own where there is no other", async () => {
    expect(await goes(() => Infinity)).toBe(20);
  });
});
