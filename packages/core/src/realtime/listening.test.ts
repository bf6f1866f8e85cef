import { describe, expect, test } from "vitest";
import { CallLogs } from "./call-logs.ts";
import { Listening } from "./listening.ts";
import type { Publication } from "./publication.ts";

const both = { calls: true, logs: true };

describe("who listens", () => {
  test("is what was said last; of tenants to whom nobody listens nothing is noted", () => {
    const listening = new Listening();
    let woken = 0;
    listening.onChange = () => (woken += 1);
    listening.changed("ten_a", "call_1");
    listening.note("ten_a", { calls: false, logs: true });
    listening.changed("ten_a", "call_2");
    expect(listening.take()).toEqual([]);
    listening.note("ten_a", both);
    listening.changed("ten_a", "call_3");
    listening.changed("ten_a", "call_4");
    listening.changed("ten_b", "call_5");
    expect(woken).toBe(2);
    expect(listening.take()).toEqual([{ tenant: "ten_a", callId: "call_4" }]);
    expect(listening.take()).toEqual([]);
    listening.note("ten_a", undefined);
    expect(listening.hearsLogs("ten_a")).toBe(false);
  });

  test("is kept for so many tenants only", () => {
    const listening = new Listening();
    for (let index = 0; index <= 10_000; index += 1) listening.note(`ten_${index}`, both);
    expect([listening.hearsLogs("ten_0"), listening.hearsLogs("ten_1")]).toEqual([false, true]);
  });
});

describe("log lines about calls", () => {
  function start(write?: (tenant: string, lines: readonly Publication[]) => Promise<unknown>) {
    const logged: string[] = [];
    const written: { readonly tenant: string; readonly lines: readonly Publication[] }[] = [];
    const listening = new Listening();
    let woken = 0;
    const logs = new CallLogs({
      log: { log: (_level, message) => void logged.push(message) },
      listening,
      write: write ?? ((tenant, lines) => Promise.resolve(written.push({ tenant, lines }))),
      onLine: () => (woken += 1),
    });
    return { logs, logged, written, listening, woken: () => woken };
  }

  test("go to the log as ever, and to nobody while nobody listens", async () => {
    const { logs, logged, written, woken } = start();
    logs.log("info", "one", { tenant: "ten_a", call_id: "call_1" });
    logs.log("info", "two");
    await logs.flush();
    expect(logged).toEqual(["one", "two"]);
    expect(written).toEqual([]);
    expect(woken()).toBe(0);
  });

  test("are gathered by tenant, with those fields only that are for their eyes", async () => {
    const { logs, written, listening, woken } = start();
    listening.note("ten_a", both);
    listening.note("ten_b", both);
    const fields = { tenant: "ten_a", call_id: "call_1", caller: "key_1", session: "s", tool: "t", attempt: 2 };
    logs.log("warn", "first", { ...fields, error: "stack of ours", host: "10.0.0.1" });
    logs.log("debug", "second", { tenant: "ten_b", call_id: "call_2" });
    logs.log("debug", "about no call", { tenant: "ten_b" });
    expect(woken()).toBe(1);
    await logs.flush();
    await logs.flush();
    expect(written).toEqual([
      {
        tenant: "ten_a",
        lines: [
          {
            type: "call.log",
            audience: { kind: "logs" },
            data: { call_id: "call_1", level: "warn", message: "first", tool: "t", attempt: 2 },
            callId: "call_1",
            callerId: "key_1",
            sessionId: "s",
          },
        ],
      },
      { tenant: "ten_b", lines: [expect.objectContaining({ callId: "call_2" })] },
    ]);
  });

  test("that cannot be written are lost, which is said, and no more than some wait", async () => {
    const { logs, logged, listening } = start(() => Promise.reject(new Error("away")));
    listening.note("ten_a", both);
    for (let index = 0; index < 600; index += 1) logs.log("info", `line ${index}`, { tenant: "ten_a", call_id: "c" });
    await logs.flush();
    expect(logged).toHaveLength(601);
    expect(logged.at(-1)).toContain("were not written");
  });
});
