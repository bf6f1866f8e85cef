/**
 * Whoever is known is admitted by a shorter way where nothing stands in the way; what it comes to, and what
 * is written, must be what the whole decision would have come to.
 */
import { newId } from "@toolyard/core/ids";
import type { AdmitInput, AdmitResult, NewCall } from "@toolyard/core/ports/calls";
import type { Tenant } from "@toolyard/core/ports/tenants";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import {
  newChat,
  newTool,
  times,
  useCallFixture,
  withinOneMinute,
  withKey,
  type CallFixture,
  type MakeInstances,
} from "./calls-fixture.ts";

const day = 86_400_000;

type Asked = Pick<AdmitInput, "call" | "attach" | "slots">;

const newPlainChat = (change: Partial<NewCall> = {}): NewCall =>
  newChat({ deadlineMs: null, toolHash: null, input: null, callerChain: [], ...change });

/** What the short way is for. */
const asked: Record<string, () => Asked> = {
  "a chat": () => ({ call: newPlainChat(), attach: { withinMs: 900_000, to: "broken_off" } }),
  "a chat with tools": () => ({
    call: newPlainChat({ sessionId: newId("session") }),
    attach: { withinMs: 900_000, to: "broken_off" },
    slots: { wanted: 4, required: false },
  }),
  "a tool call": () => ({
    call: newTool({ deadlineMs: null }),
    slots: { wanted: 1, required: true },
  }),
};

/** A tenant with a key, and what it asks for. */
const plain = async (
  fixture: CallFixture,
  settings: Tenant["settings"] = {},
  ask: Asked = asked["a chat"]?.() ?? {},
): Promise<AdmitInput> => {
  const limits = { requests_per_minute: 50, concurrent_requests: 2, concurrent_tool_calls: 6 };
  const tenant = await fixture.newTenant({ ...limits, ...settings });
  const key = await fixture.newKey(tenant);
  return withKey(tenant, key, ask);
};

/** What stands in the way of what would be plain without it. */
const obstacles: Record<string, (fixture: CallFixture, input: AdmitInput) => Promise<unknown>> = {
  nothing: () => Promise.resolve(),
  "a suspended tenant": ({ repos }, { tenant }) => repos[0].tenants.update(tenant, { status: "suspended" }),
  "a newer configuration": ({ run }, { tenant }) =>
    run("UPDATE tenants SET config_version = config_version + 1 WHERE id = ?", tenant),
  "a key that was revoked behind the version": ({ run }, { tenant }) =>
    run("UPDATE api_keys SET revoked_at = 1 WHERE tenant = ?", tenant),
  "a key that has expired": ({ run }, { tenant }) => run("UPDATE api_keys SET expires_at = 1 WHERE tenant = ?", tenant),
  "a key with a limit of its own": ({ run }, { tenant }) =>
    run("UPDATE api_keys SET requests_per_minute = 7 WHERE tenant = ?", tenant),
  "a key that may have no chat": ({ run }, { tenant }) =>
    run("UPDATE api_keys SET concurrent_requests = 0 WHERE tenant = ?", tenant),
  "the tenant's requests used up": ({ run }, { tenant }) =>
    run(
      `INSERT OR REPLACE INTO rate_windows (tenant, scope, window_start, count)
        VALUES (?, 'tenant', CAST(unixepoch('subsec') * 1000 AS INTEGER) / 60000 * 60000, 50)`,
      tenant,
    ),
  "requests of the minute before": ({ run }, { tenant }) =>
    run(
      `INSERT OR REPLACE INTO rate_windows (tenant, scope, window_start, count)
        VALUES (?, 'tenant', CAST(unixepoch('subsec') * 1000 AS INTEGER) / 60000 * 60000 - 60000, 50)`,
      tenant,
    ),
  "as many chats as the tenant may have": (fixture, { tenant }) =>
    times(2, async () => fixture.calls.admit(withKey(tenant, await fixture.newKey(tenant), { call: newChat() }))),
  "chats whose lease has run out": async (fixture, { tenant }) => {
    const key = await fixture.newKey(tenant);
    await times(2, () => fixture.calls.admit(withKey(tenant, key, { call: newChat() })));
    await fixture.run("UPDATE calls SET lease_until = 1 WHERE tenant = ?", tenant);
  },
  "some of the slots held": (fixture, { tenant }) => holdSlots(fixture, tenant, 2),
  "nearly all slots held": (fixture, { tenant }) => holdSlots(fixture, tenant, 5),
  "all slots held": (fixture, { tenant }) => holdSlots(fixture, tenant, 6),
  "slots held by who has died": async (fixture, { tenant }) => {
    await holdSlots(fixture, tenant, 6);
    await fixture.run("UPDATE calls SET lease_until = 1 WHERE tenant = ?", tenant);
  },
  "the same request, cut off after a write": (fixture, input) => earlier(fixture, input, true),
  "the same request, failed before anything was written": (fixture, input) => earlier(fixture, input, false),
  "the same request, cut off long ago": async (fixture, input) => {
    await earlier(fixture, input, true);
    await fixture.run("UPDATE calls SET created_at = created_at - ? WHERE tenant = ?", day, input.tenant);
  },
};

async function holdSlots(fixture: CallFixture, tenant: string, count: number): Promise<void> {
  const key = await fixture.newKey(tenant);
  await fixture.calls.admit(
    withKey(tenant, key, { call: newTool({ slots: count }), slots: { wanted: count, required: true } }),
  );
}

async function earlier(fixture: CallFixture, input: AdmitInput, hasWritten: boolean): Promise<void> {
  const { tenant, principal, call } = input;
  const chat = newChat(call === undefined ? {} : { inputHash: call.inputHash, route: call.route });
  await fixture.calls.admit({ tenant, principal, limits: { countRequest: true }, call: chat });
  const error = { code: "internal_error", message: "no", details: { write_started: hasWritten } } as const;
  await fixture.calls.finish(tenant, chat.id, 1, { state: "failed", error });
}

/** Caller and settings as a process knows them that has seen the key before. */
async function asKnown(fixture: CallFixture, input: AdmitInput): Promise<AdmitInput> {
  const { tenant, principal } = input;
  const seen = await fixture.calls.admit({ tenant, principal, limits: { countRequest: false } });
  return {
    ...input,
    known: { caller: seen.caller, settings: seen.settings },
    expectedConfigVersion: seen.tenant.configVersion,
  };
}

type Comparable = Omit<AdmitResult, "caller" | "tenant"> | { readonly code: unknown };

/** Without what differs from tenant to tenant, or from one moment to the next. */
async function comparable(admitting: Promise<AdmitResult>): Promise<Comparable> {
  try {
    const { caller: _caller, tenant: _tenant, outcome, rate, ...rest } = await admitting;
    const told = outcome.kind === "existing" ? { ...outcome, call: outcome.call.state } : outcome;
    return { ...rest, outcome: told as AdmitResult["outcome"], rate: { ...rate, resetMs: 0 } };
  } catch (error) {
    return { code: error instanceof Error && "code" in error ? error.code : error };
  }
}

export function describeShortWay(make: MakeInstances): void {
  describe(`the short way of admission ${verifies("CHAT-12")}`, () => {
    const fixture = useCallFixture(make);

    const cases = Object.entries(asked).flatMap(([what, ask]) =>
      Object.entries(obstacles).map(([name, stand]) => ({ what, ask, name, stand })),
    );
    for (const { what, ask, name, stand } of cases) {
      test(`${what} comes to what the whole decision comes to: ${name}`, async () => {
        const outcomes = await withinOneMinute(fixture, async () => {
          const both = [];
          for (const way of ["short", "whole"] as const) {
            const input = await asKnown(fixture, await plain(fixture, {}, ask()));
            await stand(fixture, input);
            // A key makes the short way impossible, and nothing else of it differs here.
            const turnKeys = way === "whole" ? { turnKeys: ["none"] } : {};
            const result = await comparable(fixture.calls.admit({ ...input, ...turnKeys }));
            const row = await fixture.repos[0].calls.get(input.tenant, input.call?.id ?? "");
            const {
              id: _id,
              tenant: _tenant,
              callerId,
              requestId: _r,
              traceId: _t,
              inputHash: _h,
              sessionId,
              ...kept
            } = row ?? {};
            both.push({
              result,
              row: row && {
                ...withoutTimes(kept),
                isCallers: callerId === input.known?.caller.id,
                isOfSession: sessionId === input.call?.sessionId,
              },
            });
          }
          return both;
        });
        expect(outcomes[0]).toEqual(outcomes[1]);
      });
    }

    for (const [what, ask] of Object.entries(asked)) {
      test(`${what} takes it`, async () => {
        const input = await asKnown(fixture, await plain(fixture, {}, ask()));
        await fixture.calls.admit(input);
        const decided = await fixture.run(
          "SELECT verdict FROM rate_windows WHERE tenant = ? AND scope = 'tenant'",
          input.tenant,
        );
        expect(decided).toMatchObject([{ verdict: "unhindered" }]);
      });
    }

    test("a batch whose reply was lost and that is sent again counts and writes once", async () => {
      const input = await asKnown(fixture, await plain(fixture));
      const first = await fixture.calls.admit(input);
      const again = await fixture.calls.admit(input);
      expect(again.outcome).toEqual(first.outcome);
      expect(again.rate.remaining).toBe(first.rate.remaining);
      expect((await fixture.calls.list(input.tenant, {}, { limit: 10, order: "desc" })).data).toHaveLength(1);
    });

    test("chats that come together are counted as if they came one after the other", async () => {
      const input = await asKnown(fixture, await plain(fixture, { concurrent_requests: 10 }));
      const results = await times(6, (index) =>
        fixture.calls.admit({ ...input, call: newPlainChat({ inputHash: `hash ${index}` }) }),
      );
      expect(results.map(({ outcome }) => outcome.kind)).toEqual(Array(6).fill("admitted"));
      expect(results.map(({ rate }) => rate.remaining).sort((a, b) => b - a)).toEqual([49, 48, 47, 46, 45, 44]);
      expect((await fixture.calls.list(input.tenant, {}, { limit: 10, order: "desc" })).data).toHaveLength(6);
    });

    test("of chats that come together as many pass as there are requests left in the minute", async () => {
      const input = await asKnown(fixture, await plain(fixture, { requests_per_minute: 3, concurrent_requests: 10 }));
      const results = await times(5, (index) =>
        fixture.calls.admit({ ...input, call: newPlainChat({ inputHash: `hash ${index}` }) }),
      );
      const kinds = results.map(({ outcome }) => outcome.kind).sort();
      expect(kinds).toEqual(["admitted", "admitted", "admitted", "rate_limited", "rate_limited"]);
    });

    test("one that repeats what was cut off holds up none of those that come with it", async () => {
      const input = await asKnown(fixture, await plain(fixture, { concurrent_requests: 10 }));
      await earlier(fixture, input, true);
      const results = await times(4, (index) =>
        fixture.calls.admit(index === 2 ? input : { ...input, call: newPlainChat({ inputHash: `hash ${index}` }) }),
      );
      expect(results.map(({ outcome }) => outcome.kind)).toEqual(["admitted", "admitted", "existing", "admitted"]);
    });

    test("of tool calls that come together on two instances as many pass as there are slots", async () => {
      const ask = asked["a tool call"]?.() ?? {};
      const input = await asKnown(fixture, await plain(fixture, {}, ask));
      const results = await times(20, (index) =>
        fixture.turn(index).calls.admit({ ...input, call: newTool({ deadlineMs: null }) }),
      );
      expect(results.map(({ outcome }) => outcome.kind).sort()).toEqual([
        ...Array<string>(6).fill("admitted"),
        ...Array<string>(14).fill("concurrency_limited"),
      ]);
    });

    test("of many at once on two instances exactly as many pass as the tenant may have", async () => {
      const input = await asKnown(fixture, await plain(fixture));
      const results = await times(20, (index) =>
        fixture.turn(index).calls.admit({ ...input, call: newPlainChat({ inputHash: `hash ${index}` }) }),
      );
      expect(results.filter(({ outcome }) => outcome.kind === "admitted")).toHaveLength(2);
      const refused = results.filter(({ outcome }) => outcome.kind === "concurrency_limited");
      expect(refused).toHaveLength(18);
    });
  });
}

function withoutTimes(row: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, /At$|Until$|^deadline$/.test(name) ? value !== null : value]),
  );
}
