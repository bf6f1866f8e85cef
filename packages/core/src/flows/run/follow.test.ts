import { describe, expect, test } from "vitest";
import { callContext } from "../../../../../test/support/call-context.ts";
import { callRow } from "../../../../../test/support/call-row.ts";
import { createFakeCore, unscripted } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { FlowRunRepo, FlowStep } from "../../ports/flow-runs.ts";
import { readRunEvents, type RunEvent } from "./follow.ts";

const step = (path: string, change: Partial<FlowStep>): FlowStep => ({
  path,
  node: path,
  kind: "tool",
  state: "completed",
  attempt: 1,
  input: null,
  output: null,
  error: null,
  callId: null,
  questionId: null,
  progress: null,
  wakeAt: null,
  startedAt: 0,
  finishedAt: 1,
  startedSeq: 1,
  seq: 1,
  ...change,
});

/** As the repository pages them. */
function changesOf(steps: readonly FlowStep[]): FlowRunRepo["changes"] {
  const call = callRow({ id: "call_1", repeat: "resume", uri: "flow://f" });
  return (_tenant, _run, after, limit) => {
    const first = ({ startedSeq, seq }: FlowStep): number => (startedSeq > after ? startedSeq : seq);
    const since = steps.filter(({ seq }) => seq > after).toSorted((a, b) => first(a) - first(b));
    return Promise.resolve({ call, steps: since.slice(0, limit) });
  };
}

async function follow(steps: readonly FlowStep[], from = 0): Promise<readonly RunEvent[]> {
  const flowRuns = { ...unscripted<FlowRunRepo>("flowRuns"), changes: changesOf(steps) };
  const core = createFakeCore({ repos: { flowRuns } });
  const told: RunEvent[] = [];
  while (told.at(-1)?.type !== "run-ended") {
    told.push(...(await readRunEvents(core, callContext(), "call_1", told.at(-1)?.id ?? from)));
  }
  return told;
}

describe(`whoever follows a run of many steps ${verifies("FLOWRUN-1")}`, () => {
  // One begins before all others and ends after them.
  const long = step("long", { startedSeq: 1, seq: 5_000 });
  const others = Array.from({ length: 1_200 }, (_, at) => step(`s${at}`, { startedSeq: 2 + 2 * at, seq: 3 + 2 * at }));

  test("is told each begin and each end once, in order", async () => {
    const told = await follow([...others, long]);
    const ids = told.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)].toSorted((a, b) => a - b));
    expect(told).toHaveLength(2 * 1_201 + 1);
    expect(told[0]).toMatchObject({ type: "step-started", path: "long" });
    expect(told.at(-2)).toMatchObject({ type: "step-ended", path: "long" });
  });

  test("from within it is told what came behind", async () => {
    const told = await follow([...others, long], 11);
    expect(told[0]).toMatchObject({ id: 12, type: "step-started", path: "s5" });
    expect(told).toHaveLength(2 * 1_195 + 2);
  });
});
