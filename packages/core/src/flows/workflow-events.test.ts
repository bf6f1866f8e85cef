import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { RunEvent } from "./run/follow.ts";
import { WorkflowEncoder } from "./workflow-events.ts";

describe(`events of a run as text ${verifies("FLOWRUN-1")}`, () => {
  test("what has one id is told before the id is, so nothing is missed by whoever is cut off in between", () => {
    const step = { path: "a", node: "a", kind: "tool", attempt: 1, callId: "call_2", questionId: null } as const;
    const refused = { code: "tool_not_found", message: "Tool 'a' not found" } as const;
    const events: readonly RunEvent[] = [
      { type: "step-started", id: 1, ...step, state: "failed" },
      { type: "step-ended", id: 1, ...step, state: "failed", output: null, error: refused },
      { type: "step-started", id: 2, ...step, state: "running" },
      { type: "step-ended", id: 3, ...step, state: "completed", output: 1, error: null },
    ];
    const texts = new WorkflowEncoder({ id: "call_1", traceId: "0af7" }, undefined).encode(events);
    const told = texts.map((text) => [/^event: (.*)$/m.exec(text)?.[1], /^id: (.*)$/m.exec(text)?.[1]]);
    expect(told).toEqual([
      ["tool_thinking", undefined],
      ["tool_start", undefined],
      ["tool_result", "1"],
      ["tool_thinking", undefined],
      ["tool_start", "2"],
      ["tool_result", "3"],
    ]);
  });
});
