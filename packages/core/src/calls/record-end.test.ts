import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallRepo, CallFinish } from "../ports/repos.ts";
import type { Repeat } from "../tools/tool.ts";
import { recordEnd } from "./record-end.ts";

const completed: CallFinish = { state: "completed", outcome: { text: "done", mediaType: "text/plain", bytes: 4 } };
const failed: CallFinish = { state: "failed", error: { code: "tool_failed", message: "no" } };
const unknown: CallFinish = { state: "unknown", error: { code: "outcome_unknown", message: "silence" } };

/** A row that another attempt has taken over, ended `unknown`. */
async function recordLate(finish: CallFinish, repeat: Repeat): Promise<{ isRecorded: boolean; resolved: number }> {
  let resolved = 0;
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    finish: () => Promise.resolve(false),
    resolveUnknown: () => Promise.resolve((resolved += 1) > 0),
  };
  const core = createFakeCore({ repos: { calls } });
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
