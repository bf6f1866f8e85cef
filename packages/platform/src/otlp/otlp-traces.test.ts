import { createEgress } from "@toolyard/core/blind/egress";
import type { Egress } from "@toolyard/core/ports/egress";
import type { LogFields } from "@toolyard/core/ports/log";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { startOtlpReceiver, type OtlpReceiver } from "../../../../test/support/otlp-receiver.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createOtlpTraces, type ExportedTraces, type OtlpOptions } from "./otlp-traces.ts";

let receiver: OtlpReceiver;
let egress: Egress;
let logged: LogFields[];

beforeEach(async () => {
  receiver = await startOtlpReceiver();
  egress = createEgress({ allowCidrs: ["0.0.0.0/0", "::/0"] });
  logged = [];
});
afterEach(async () => {
  await egress.close();
  await receiver.close();
});

function open(more: Partial<OtlpOptions> = {}): ExportedTraces {
  return createOtlpTraces(
    {
      url: `${receiver.url}/v1/traces`,
      protocol: "http/protobuf",
      headers: {},
      gzip: false,
      timeoutMs: 5_000,
      sampler: { name: "parentbased_always_on", ratio: 1 },
      resource: { attributes: { "service.name": "test" }, scope: { name: "test", version: "1" } },
      everyMs: undefined,
      ...more,
    },
    { egress, log: { log: (_level, _message, fields = {}) => void logged.push(fields) } },
  );
}

function spans(traces: ExportedTraces, count: number): void {
  for (let at = 0; at < count; at += 1) traces.begin(`span ${at}`, { kind: "internal" }).end();
}

describe(`exported traces ${verifies("CHAT-15")}`, () => {
  test("keep nothing of a span that has ended, and tell nothing of one that has not", async () => {
    const traces = open();
    const span = traces.begin("first", { kind: "server", attributes: { a: 1, b: "x" }, startedMsAgo: 500 });
    const child = span.child("below", "client");
    span.child("never ended", "internal");
    span.rename("renamed");
    span.set({ a: 2 });
    span.fail("first_reason");
    span.fail("second_reason");
    span.end();
    span.set({ a: 3 });
    span.rename("late");
    span.end();
    child.end();
    await traces.flush(5_000);
    expect(receiver.spans).toMatchObject([
      { name: "renamed", kind: "server", failed: true, attributes: { a: 2, b: "x", "error.type": "first_reason" } },
      { name: "below", kind: "client", failed: false, attributes: {} },
    ]);
    const [first, below] = receiver.spans;
    expect(below?.parentSpanId).toBe(first?.spanId);
    expect(span.traceparent).toBe(`00-${first?.traceId}-${first?.spanId}-01`);
    expect(Number((first?.endNs ?? 0n) - (first?.startNs ?? 0n))).toBeGreaterThanOrEqual(500_000_000);
  });

  test("of a trace that is known without a parent begin under none", async () => {
    const traces = open();
    const parent = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: undefined, sampled: undefined };
    traces.begin("work", { kind: "consumer", parent }).end();
    await traces.flush(5_000);
    expect(receiver.spans).toMatchObject([{ traceId: parent.traceId, parentSpanId: "" }]);
  });

  test("leave in batches of 512, compressed where that is asked for", async () => {
    const traces = open({ gzip: true });
    spans(traces, 1_100);
    await traces.flush(5_000);
    expect(receiver.http.requests.map(({ headers }) => headers["content-encoding"])).toEqual(["gzip", "gzip", "gzip"]);
    expect(new Set(receiver.spans.map(({ name }) => name)).size).toBe(1_100);
  });

  test("leave by themselves where a process lives on", async () => {
    const traces = open({ everyMs: 10 });
    spans(traces, 2);
    await expect.poll(() => receiver.spans.length).toBe(2);
    spans(traces, 1);
    await expect.poll(() => receiver.spans.length).toBe(3);
  });

  test("are kept while the collector is busy, which is left alone until the end", async () => {
    const traces = open();
    receiver.refusing = { status: 503, headers: { "retry-after": "1" } };
    spans(traces, 3);
    await traces.flush(5_000);
    await traces.flush(5_000);
    expect(receiver.http.requests).toHaveLength(1);
    expect(logged).toEqual([{ reason: "503", count: 0 }]);
    receiver.refusing = undefined;
    await traces.close(5_000);
    expect(receiver.spans).toHaveLength(3);
  });

  test("are given up where the collector will never take them, and that is said", async () => {
    const traces = open();
    receiver.refusing = { status: 401 };
    spans(traces, 3);
    await traces.flush(5_000);
    expect(logged).toEqual([{ reason: "401", count: 3 }]);
    receiver.refusing = undefined;
    await traces.close(5_000);
    expect(receiver.spans).toEqual([]);
  });

  test("do not fill the memory: what does not fit is counted", async () => {
    const traces = open();
    spans(traces, 5_000);
    receiver.refusing = { status: 400 };
    await traces.flush(5_000);
    expect(logged).toEqual([{ reason: "400", count: 5_000 - 4_096 + 512 }]);
  });

  test("hold nobody up: a collector that never answers is waited for as long as is said", async () => {
    const traces = open({ timeoutMs: 60_000 });
    receiver.http.answer = () => new Promise(() => undefined);
    spans(traces, 1);
    await traces.flush(50);
    expect(receiver.http.requests).toHaveLength(1);
    expect(receiver.spans).toEqual([]);
  });
});
