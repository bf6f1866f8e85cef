import { describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Caller, Scope } from "../callers/caller.ts";
import { maySeeCall, viewCall } from "./view.ts";

describe(`a call as people read it ${verifies("CHAT-13", "BLIND-6")}`, () => {
  test("says who, when and how long, in one form of time", () => {
    expect(viewCall(callRow(), 0)).toMatchObject({
      caller: { id: "key_1", chain: [{ kind: "key", id: "key_1" }] },
      created_at: "2026-11-27T09:30:00.000Z",
      started_at: "2026-11-27T09:30:00.100Z",
      finished_at: "2026-11-27T09:30:00.350Z",
      duration_ms: 250,
    });
  });

  test("never carries the sealed arguments, hashes or the place of the result", () => {
    const outcome = { text: "head", mediaType: "text/plain", bytes: 90_000, blobKey: "ten_1/results/key_1/call_1" };
    const text = JSON.stringify(
      viewCall(callRow({ input: "SEALED", inputHash: "HASH", effectKey: "EFFECT", outcome }), 0),
    );
    for (const inner of ["SEALED", "HASH", "EFFECT", "ten_1/results", "tool_hash"]) expect(text).not.toContain(inner);
  });

  test("shows arguments as they were given, and as text where they were cut", () => {
    expect(viewCall(callRow(), 0).input).toEqual({ city: "Paris" });
    expect(viewCall(callRow({ inputView: '{"city":"Par…' }), 0).input).toBe('{"city":"Par…');
  });

  test("shows a small result whole", () => {
    const outcome = { text: '{"t":21}', mediaType: "application/json", bytes: 8 };
    expect(viewCall(callRow({ outcome }), 0).result).toEqual({
      preview: '{"t":21}',
      complete: true,
      media_type: "application/json",
      bytes: 8,
      url: "/v1/calls/call_1/result",
    });
  });

  test("cuts a long result between characters and says so", () => {
    const outcome = { text: `${"a".repeat(1_999)}😀 and more`, mediaType: "text/plain", bytes: 2_013 };
    const result = viewCall(callRow({ outcome }), 0).result;
    expect(result).toMatchObject({ complete: false, preview: "a".repeat(1_999) });
  });

  test("calls a result that is kept elsewhere incomplete, however short its head is", () => {
    const outcome = { text: "[binary result]", mediaType: "image/png", bytes: 90_000, blobKey: "k" };
    expect(viewCall(callRow({ outcome }), 0).result?.complete).toBe(false);
  });

  test("has no duration for a call that never started", () => {
    expect(viewCall(callRow({ state: "queued", startedAt: null, finishedAt: null }), 0)).toMatchObject({
      started_at: null,
      finished_at: null,
      duration_ms: null,
    });
  });
});

describe(`who may see a call ${verifies("CHAT-11", "CHAT-13")}`, () => {
  const caller = (id: string, ...scopes: Scope[]): Caller => ({ kind: "key", id, role: "member", scopes, tools: null });
  const waiting = callRow({ state: "input_required" });

  test("shows a call to its own caller and to holders of 'calls' only", () => {
    expect(maySeeCall(caller("key_1"), callRow())).toBe(true);
    expect(maySeeCall(caller("key_2", "calls"), callRow())).toBe(true);
    expect(maySeeCall(caller("key_2", "chat", "tools", "manage", "approve"), callRow())).toBe(false);
  });

  test("shows who approves what waits for it, and what was decided", () => {
    expect(maySeeCall(caller("key_2", "approve"), waiting)).toBe(true);
    const approval = { by: "key_2", at: 0, decision: "approved" } as const;
    expect(maySeeCall(caller("key_2", "approve"), callRow({ approval }))).toBe(true);
    expect(maySeeCall(caller("key_2", "tools"), waiting)).toBe(false);
  });
});
