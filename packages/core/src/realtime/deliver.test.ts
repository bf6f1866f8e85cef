import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import type { ConnectionRepo } from "../ports/connections.ts";
import type { RemotePush } from "../ports/push.ts";
import type { ClaimedConnection, ClaimedEvent } from "./connection.ts";
import { deliverEvents } from "./deliver.ts";

const listener = (id: string): ClaimedConnection => ({
  id,
  tenant: "ten_a",
  holder: null,
  caller: { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null },
  clientType: null,
  subscriptions: { s: { topic: "calls" } },
  closesAt: 0,
  isConnecting: false,
});

function claimed(seq: number, connections: readonly ClaimedConnection[]): ClaimedEvent {
  const body = JSON.stringify({ type: "call.failed", seq });
  const about = { callId: null, callerId: null, sessionId: null, decided: false, createdAt: 0 };
  const event = { tenant: "ten_a", seq, type: "call.failed", audience: { kind: "calls" }, ...about, body } as const;
  return { event, attempt: 1, connections };
}

async function deliver(
  batches: readonly ClaimedEvent[][],
  send: RemotePush["send"],
  end: RemotePush["end"] = () => Promise.reject(new Error("not asked for")),
) {
  const waiting = [...batches];
  const settled: number[] = [];
  const removed: string[] = [];
  const core = createFakeCore();
  const connections: ConnectionRepo = {
    ...core.repos.connections,
    claim: () => Promise.resolve(waiting.shift() ?? []),
    settle: (_tenant, told) => Promise.resolve(void settled.push(...told.map(({ seq }) => seq))),
    remove: (_tenant, id) => Promise.resolve(void removed.push(id)),
  };
  const events = await deliverEvents({ ...core, repos: { ...core.repos, connections } }, { send, end });
  return { events, settled, removed, lines: core.lines };
}

const seqOf = (frame: string): unknown => (JSON.parse(frame) as { readonly seq: number }).seq;

describe("events for connections that no process holds", () => {
  test("are sent to each in their order, and are settled", async () => {
    const sent: string[] = [];
    const [a, b] = [listener("a"), listener("b")];
    const done = await deliver([[claimed(1, [a, b]), claimed(2, [a]), claimed(3, [])]], async (id, frame) => {
      // Were they sent all at once, the first would come last.
      await new Promise((next) => setTimeout(next, frame.includes('"seq":1') ? 5 : 0));
      sent.push(`${id}:${String(seqOf(frame))}`);
      return "sent";
    });
    expect(sent.filter((each) => each.startsWith("a"))).toEqual(["a:1", "a:2"]);
    expect(sent).toContain("b:1");
    expect(done).toMatchObject({ events: 3, settled: [1, 2, 3], removed: [] });
  });

  test("find who is gone, forget it, and count as told", async () => {
    const done = await deliver([[claimed(1, [listener("a")]), claimed(2, [listener("a")])]], () =>
      Promise.resolve("gone"),
    );
    expect(done).toMatchObject({ settled: [1, 2], removed: ["a"] });
  });

  test("leave who is still connecting alone, and count as told", async () => {
    const connecting = { ...listener("a"), isConnecting: true };
    const done = await deliver([[claimed(1, [connecting, listener("b")])]], () => Promise.resolve("gone"));
    expect(done).toMatchObject({ settled: [1], removed: ["b"] });
  });

  test("that cannot be sent stay claimed with those after them, and keep nobody else's back", async () => {
    const sent: string[] = [];
    const [a, b] = [listener("a"), listener("b")];
    const done = await deliver([[claimed(1, [a, b]), claimed(2, [a]), claimed(3, [b])]], (id, frame) => {
      if (id === "a") return Promise.reject(new Error("throttled"));
      sent.push(`${id}:${String(seqOf(frame))}`);
      return Promise.resolve("sent");
    });
    expect(sent).toEqual(["b:1", "b:3"]);
    expect(done.settled).toEqual([3]);
    expect(done.lines).toMatchObject([{ level: "warn" }]);
  });

  test("end whom they name, unless it counts again, and are tried again where that fails", async () => {
    const ended: string[] = [];
    const endOf = (seq: number, value: string, alive: readonly ClaimedConnection[]): ClaimedEvent => {
      const { event, attempt } = claimed(seq, []);
      const audience = { kind: "connection", value } as const;
      return { event: { ...event, type: "connection.ended", audience }, attempt, connections: alive };
    };
    const batch = [endOf(1, "a", []), endOf(2, "b", [listener("b")]), endOf(3, "c", [])];
    const send = (): Promise<"sent"> => Promise.reject(new Error("told"));
    const done = await deliver([batch], send, (id) => {
      if (id === "c") return Promise.reject(new Error("throttled"));
      return Promise.resolve(void ended.push(id));
    });
    expect(ended).toEqual(["a"]);
    expect(done).toMatchObject({ settled: [1, 2], removed: ["a"], lines: [{ level: "warn" }] });
  });

  test("are claimed until there are no more, but not for ever", async () => {
    const full = (): ClaimedEvent[] => Array.from({ length: 100 }, (_none, index) => claimed(index, []));
    const send = (): Promise<"sent"> => Promise.resolve("sent");
    expect((await deliver([full(), [claimed(1, [])], full()], send)).events).toBe(101);
    expect((await deliver(Array.from({ length: 20 }, full), send)).events).toBe(1_000);
  });
});
