import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RealtimeEvent } from "./connection.ts";
import { longestFrame, toFrame } from "./frames.ts";

const event = (body: object, callId: string | null = "call_1"): RealtimeEvent => ({
  tenant: "ten_a",
  seq: 1,
  type: "call.failed",
  audience: { kind: "calls" },
  callId,
  callerId: null,
  sessionId: null,
  decided: false,
  createdAt: 0,
  body: JSON.stringify(body),
});

describe("a frame", () => {
  test("is the event with the names of the subscriptions that it fits", () => {
    const body = { type: "call.failed", id: "evt_1", data: { id: "call_1" } };
    expect(JSON.parse(toFrame(event(body), ["a", "b"]))).toEqual({ ...body, subscriptions: ["a", "b"] });
    expect(JSON.parse(toFrame(event(body), []))).toEqual(body);
  });

  test("that would be too large says where the call is instead", () => {
    const body = {
      type: "call.failed",
      id: "evt_1",
      seq: 5,
      data: { id: "call_1", object: "call", kind: "tool", state: "failed", uri: "字".repeat(12_000) },
    };
    expect(JSON.parse(toFrame(event(body), ["a"]))).toEqual({
      type: "call.failed",
      id: "evt_1",
      seq: 5,
      data: { id: "call_1", object: "call", kind: "tool", state: "failed" },
      truncated: true,
      url: "/v1/calls/call_1",
      subscriptions: ["a"],
    });
    expect(JSON.parse(toFrame(event(body, null), []))).not.toHaveProperty("url");
  });

  test("has 32 KiB at most and keeps its type, its id and its names", () => {
    const data = fc.dictionary(fc.string(), fc.string({ unit: "grapheme", maxLength: 20_000 }), { maxKeys: 4 });
    fc.assert(
      fc.property(data, fc.array(fc.stringMatching(/^\w{1,64}$/), { maxLength: 50 }), (given, names) => {
        const frame = toFrame(event({ type: "note", id: "evt_1", data: given }), names);
        expect(Buffer.byteLength(frame)).toBeLessThanOrEqual(longestFrame);
        expect(JSON.parse(frame)).toMatchObject({
          type: "note",
          id: "evt_1",
          ...(names.length === 0 ? {} : { subscriptions: names }),
        });
      }),
    );
  });
});
