import { describe, expect, test } from "vitest";
import { tellProgress } from "../calls/progress.ts";
import { CallLogs } from "./call-logs.ts";
import { Listening } from "./listening.ts";
import type { Publication } from "./publication.ts";

interface World {
  readonly logs: CallLogs;
  readonly written: Publication[];
  readonly told: number[];
}

function listeningTo(listeners: { readonly calls: boolean; readonly logs: boolean }): World {
  const listening = new Listening();
  listening.note("ten_1", listeners);
  const written: Publication[] = [];
  const told: number[] = [];
  const logs = new CallLogs({
    log: { log: () => undefined },
    listening,
    write: (_tenant, lines) => Promise.resolve(void written.push(...lines)),
    onLine: () => void told.push(1),
  });
  return { logs, written, told };
}

const call = { tenant: "ten_1", callId: "call_1", tool: "t", callerId: "key_1", sessionId: undefined };
const step = (progress: number, change: object = {}) => ({
  ...call,
  progress,
  total: 4,
  message: `step ${progress}`,
  ...change,
});

describe("how far calls are", () => {
  test("is an event of the call, of which only the last is told", async () => {
    const { logs, written, told } = listeningTo({ calls: true, logs: false });
    for (const progress of [1, 2, 3]) tellProgress(logs, step(progress));
    tellProgress(logs, step(1, { callId: "call_2" }));
    tellProgress(logs, step(1, { tenant: "ten_2" }));
    expect(told).toHaveLength(1);
    await logs.flush();
    expect(written).toMatchObject([
      {
        type: "call.progress",
        audience: { kind: "calls" },
        callId: "call_1",
        callerId: "key_1",
        data: { id: "call_1", state: "running", tool: "t", progress: 3, total: 4, message: "step 3" },
      },
      { callId: "call_2", data: { progress: 1 } },
    ]);
  });

  test("is a line of the log for those who listen to logs", async () => {
    const { logs, written } = listeningTo({ calls: false, logs: true });
    tellProgress(logs, step(2, { message: "x".repeat(500) }));
    await logs.flush();
    expect(written).toMatchObject([
      { type: "call.log", data: { call_id: "call_1", level: "debug", progress: 2, total: 4 } },
    ]);
    expect(written[0]?.data["note"]).toHaveLength(200);
  });

  test("costs nothing where nobody listens", async () => {
    const { logs, written, told } = listeningTo({ calls: false, logs: false });
    tellProgress(logs, step(1));
    await logs.flush();
    expect([written, told]).toEqual([[], []]);
  });
});
