import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { createMemoryBlobStore } from "../../../../test/support/memory-ports.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CallRepo, CallFinish } from "../ports/calls.ts";
import type { Tenant, TenantRepo } from "../ports/tenants.ts";
import type { Repeat } from "../tools/effect.ts";
import type { Call } from "./call.ts";
import { endKeptMs, recordEnd, recordEndThroughOutage } from "./record-end.ts";

const completed: CallFinish = { state: "completed", outcome: { text: "done", mediaType: "text/plain", bytes: 4 } };
const failed: CallFinish = { state: "failed", error: { code: "tool_failed", message: "no" } };
const unknown: CallFinish = { state: "unknown", error: { code: "outcome_unknown", message: "silence" } };

/** Of which one may be read. */
function tenantsWith(found: Partial<Tenant> | undefined): TenantRepo {
  const row = { id: "ten_1", name: "Acme", status: "active", configVersion: 1, settings: {} } as const;
  const tenant = found === undefined ? undefined : { ...row, wrappedKey: "key", createdAt: 0, ...found };
  return { ...unscripted<TenantRepo>("repos.tenants"), get: () => Promise.resolve(tenant) };
}

/** A row that another attempt has taken over, ended `unknown`. */
async function recordLate(finish: CallFinish, repeat: Repeat): Promise<{ isRecorded: boolean; resolved: number }> {
  let resolved = 0;
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    finish: () => Promise.resolve(false),
    resolveUnknown: () => Promise.resolve((resolved += 1) > 0),
  };
  const core = createFakeCore({ repos: { calls, tenants: tenantsWith({ status: "active" }) } });
  const isRecorded = await recordEnd(core, { tenant: "ten_1", id: "call_1", attempt: 1, repeat }, finish);
  return { isRecorded, resolved };
}

describe(`the end of a call that another process has taken over ${verifies("API-5")}`, () => {
  test("an answer is evidence that the call took effect, whoever sent it", async () => {
    for (const repeat of ["never", "natural", "key"] as const) {
      expect(await recordLate(completed, repeat), repeat).toEqual({ isRecorded: true, resolved: 1 });
    }
  });

  test("a failure is evidence only where nobody else can have sent the call", async () => {
    expect(await recordLate(failed, "never")).toEqual({ isRecorded: true, resolved: 1 });
    expect(await recordLate(failed, "key")).toEqual({ isRecorded: false, resolved: 0 });
    expect(await recordLate(failed, "natural")).toEqual({ isRecorded: false, resolved: 0 });
  });

  test("silence is no evidence", async () => {
    expect(await recordLate(unknown, "never")).toEqual({ isRecorded: false, resolved: 0 });
  });

  test("the owner of the row needs none", async () => {
    const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), finish: () => Promise.resolve(true) };
    const own = { tenant: "ten_1", id: "call_1", attempt: 1, repeat: "never" } as const;
    expect(await recordEnd(createFakeCore({ repos: { calls } }), own, unknown)).toBe(true);
  });
});

describe(`the end of a call whose tenant was erased meanwhile ${verifies("BLIND-5")}`, () => {
  const lost: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    finish: () => Promise.resolve(false),
    resolveUnknown: () => Promise.resolve(false),
    park: () => Promise.resolve(undefined),
  };
  const row = { tenant: "ten_1", id: "call_1", attempt: 1, repeat: "natural" } as const;

  async function leftAfter(finish: CallFinish, tenants: TenantRepo): Promise<readonly string[]> {
    const blobs = createMemoryBlobStore();
    for (const key of ["ten_1/results/key_1/call_1", "ten_1/runs/run_1/a", "ten_12/kept"]) {
      await blobs.put(key, Buffer.from("stored"));
    }
    const core = createFakeCore({ core: { blobs }, repos: { calls: lost, tenants } });
    expect(await recordEnd(core, row, finish)).toBe(false);
    return (await blobs.list("ten_1")).map(({ key }) => key);
  }

  test("leaves nothing that the call has stored, and nothing of another tenant is gone", async () => {
    for (const finish of [completed, failed, { state: "queued", parked: { wakeInMs: 1 } } as const]) {
      expect(await leftAfter(finish, tenantsWith(undefined)), finish.state).toEqual(["ten_12/kept"]);
    }
  });

  test("takes nothing from a tenant that is there, where only the call is another attempt's", async () => {
    expect(await leftAfter(completed, tenantsWith({}))).toHaveLength(3);
    expect(await leftAfter(completed, tenantsWith({ status: "suspended" }))).toHaveLength(3);
  });
});

describe(`the end of a call while the database is away ${verifies("API-5")}`, () => {
  async function triesOf(
    call: Pick<Call, "effect" | "repeat">,
    awayMs: number,
  ): Promise<{ readonly tries: number; readonly isRecorded: boolean }> {
    let now = 0;
    let tries = 0;
    const clock = { now: () => now, sleep: (ms: number) => Promise.resolve(void (now += ms)) };
    const finish = (): Promise<boolean> => {
      tries += 1;
      return now < awayMs ? Promise.reject(new GatewayError("database_unavailable", "away")) : Promise.resolve(true);
    };
    const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), finish };
    const core = createFakeCore({ core: { clock }, repos: { calls } });
    const own = { tenant: "ten_1", id: "call_1", attempt: 1, ...call };
    const isRecorded = await recordEndThroughOutage(core, own, { finish: completed, keepingMs: endKeptMs }).catch(
      () => false,
    );
    return { tries, isRecorded };
  }

  test("is tried again for a write, so that what was answered is not `unknown`", async () => {
    for (const repeat of ["never", "natural", "key"] as const) {
      expect((await triesOf({ effect: "write", repeat }, 9_000)).isRecorded, repeat).toBe(true);
      expect((await triesOf({ effect: "write", repeat }, 60_000)).isRecorded, repeat).toBe(false);
    }
  });

  test("is not waited for by a read, which may be made again", async () => {
    expect(await triesOf({ effect: "read", repeat: "natural" }, 9_000)).toEqual({ tries: 1, isRecorded: false });
  });
});
