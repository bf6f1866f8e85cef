import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { PolledTaskQueue, QueueMessage, QueueName } from "@toolyard/core/ports/task-queue";
import { afterEach, describe, expect, test } from "vitest";
import { createFakeClock, type FakeClock } from "../memory/fake-clock.ts";
import { startQueueWorkers, type Hands, type QueueWorkers } from "./poll-queue.ts";

interface Entry extends QueueMessage {
  readonly queue: QueueName;
  visibleAt: number;
  receives: number;
  receipt: string;
}

/** A queue in memory that hides messages by the fake clock. */
function createListQueue(
  clock: FakeClock,
): PolledTaskQueue & { readonly entries: Entry[]; polls: number; broken: boolean } {
  const entries: Entry[] = [];
  return {
    entries,
    polls: 0,
    broken: false,
    waits: false,
    ping: () => Promise.resolve(),
    async send(queue, messages, { delayMs = 0 } = {}) {
      for (const message of messages) {
        entries.push({ ...message, queue, visibleAt: clock.now() + delayMs, receives: 0, receipt: "" });
      }
    },
    async receive(queue, { limit, visibilityMs, share }) {
      this.polls += 1;
      if (this.broken) throw new GatewayError("database_unavailable", "The database cannot be reached.");
      const held = [...(share?.inHand ?? [])];
      const due = entries.filter((entry) => {
        if (entry.queue !== queue || entry.visibleAt > clock.now()) return false;
        held.push(entry.tenant);
        return held.filter((tenant) => tenant === entry.tenant).length <= (share?.most ?? Infinity);
      });
      due.splice(limit);
      for (const entry of due) {
        entry.visibleAt = clock.now() + visibilityMs;
        entry.receives += 1;
        entry.receipt = `${entry.callId}/${entry.receives}`;
      }
      return due.map((entry) => ({ ...entry }));
    },
    async delete(_queue, receipts) {
      for (const receipt of receipts) {
        const at = entries.findIndex((entry) => entry.receipt === receipt);
        if (at !== -1) entries.splice(at, 1);
      }
    },
    async deadLetters() {
      return [];
    },
  };
}

const message = (callId: string): QueueMessage => ({ tenant: "ten_1", callId });

describe("queue workers", () => {
  const running: QueueWorkers[] = [];
  afterEach(() => Promise.all(running.splice(0).map((workers) => workers.stop())));

  const few: Readonly<Record<QueueName, Hands>> = {
    short: { all: 2, ofTenant: 2 },
    long: { all: 1, ofTenant: 1 },
  };

  function start(handle: (handled: QueueMessage) => Promise<void>, hands = few) {
    const clock = createFakeClock();
    const queue = createListQueue(clock);
    const logged: string[] = [];
    const workers = startQueueWorkers({
      queue,
      handle,
      hands,
      clock,
      log: { log: (level, text, fields) => void logged.push(`${level}: ${text} ${JSON.stringify(fields)}`) },
    });
    running.push(workers);
    return { clock, queue, logged, workers };
  }

  test("hand each message over once and delete it when that is done", async () => {
    const handled: QueueMessage[] = [];
    const { clock, queue } = start(async (each) => void handled.push(each));
    await queue.send("short", [message("call_1"), message("call_2"), message("call_3")]);
    await queue.send("long", [message("call_4")]);
    await clock.advance(2000);
    expect(handled.map(({ callId }) => callId).sort()).toEqual(["call_1", "call_2", "call_3", "call_4"]);
    expect(handled[0]).toEqual({ tenant: "ten_1", callId: "call_1" });
    expect(queue.entries).toEqual([]);
    await clock.advance(60 * 60_000);
    expect(handled).toHaveLength(4);
  });

  test("have no more messages in hand than they may, and short work does not wait for long work", async () => {
    const inHand = new Map<string, () => void>();
    const { clock, queue } = start(({ callId }) => new Promise((done) => inHand.set(callId, done)));
    await queue.send("long", [message("long_1"), message("long_2")]);
    await queue.send("short", [message("short_1"), message("short_2"), message("short_3")]);
    await clock.advance(2000);
    expect([...inHand.keys()].sort()).toEqual(["long_1", "short_1", "short_2"]);
    inHand.get("short_2")?.();
    await clock.advance(2000);
    expect(inHand.has("short_3")).toBe(true);
    expect(inHand.has("long_2")).toBe(false);
    inHand.get("long_1")?.();
    await clock.advance(2000);
    for (const done of inHand.values()) done();
  });

  test("keep hands for others than one tenant, which goes on as soon as one of its own ends", async () => {
    const inHand = new Map<string, () => void>();
    const handle = ({ callId }: QueueMessage): Promise<void> => new Promise((done) => inHand.set(callId, done));
    const { clock, queue, workers } = start(handle, { ...few, short: { all: 3, ofTenant: 2 } });
    await queue.send("short", [message("call_1"), message("call_2"), message("call_3"), message("call_4")]);
    await clock.advance(60_000);
    expect([...inHand.keys()]).toEqual(["call_1", "call_2"]);
    await queue.send("short", [{ tenant: "ten_2", callId: "other" }]);
    workers.wake();
    await clock.advance(0);
    expect([...inHand.keys()]).toEqual(["call_1", "call_2", "other"]);
    inHand.get("other")?.();
    await clock.advance(60_000);
    expect(inHand.has("call_3")).toBe(false);
    inHand.get("call_1")?.();
    // Not at the next poll, which may be a second away.
    await clock.advance(0);
    expect(inHand.has("call_3")).toBe(true);
    inHand.get("call_2")?.();
    await clock.advance(0);
    for (const done of inHand.values()) done();
  });

  test("ask a queue that waits by itself again at once, and one that cannot be read after a pause", async () => {
    const clock = createFakeClock();
    const answers: PromiseWithResolvers<readonly []>[] = [];
    const queue: PolledTaskQueue = {
      ...createListQueue(clock),
      waits: true,
      receive(name) {
        if (name === "long") return new Promise(() => undefined);
        const answer = Promise.withResolvers<readonly []>();
        answers.push(answer);
        return answer.promise;
      },
    };
    startQueueWorkers({ queue, handle: async () => undefined, clock, log: { log: () => undefined } });
    answers[0]?.resolve([]);
    await expect.poll(() => answers.length).toBe(2);
    answers[1]?.reject(new Error("away"));
    await expect.poll(() => clock.sleeping).toBe(1);
    expect(answers).toHaveLength(2);
    await clock.advance(50);
    await expect.poll(() => answers.length).toBe(3);
  });

  test("leave a message whose handler failed to come again, and log its call and its code", async () => {
    let attempts = 0;
    const { clock, queue, logged } = start(async () => {
      attempts += 1;
      if (attempts === 1)
        throw new GatewayError("database_unavailable", "The text of the error, which is not for logs.");
    });
    await queue.send("short", [message("call_1")]);
    await clock.advance(60_000);
    expect(attempts).toBe(1);
    expect(logged).toEqual([expect.stringMatching(/warn: .*"call_id":"call_1".*"code":"database_unavailable"/)]);
    expect(logged.join()).not.toContain("The text of the error");
    await clock.advance(120_000);
    expect(attempts).toBe(2);
    expect(queue.entries).toEqual([]);
  });

  test("go on after an outage of the queue that they report once", async () => {
    const handled: string[] = [];
    const { clock, queue, logged } = start(async ({ callId }) => void handled.push(callId));
    queue.broken = true;
    await queue.send("short", [message("call_1")]);
    await clock.advance(10_000);
    expect(logged.filter((line) => line.includes('"queue":"short"'))).toHaveLength(1);
    queue.broken = false;
    await clock.advance(2000);
    expect(handled).toEqual(["call_1"]);
  });

  test("poll seldom when there is nothing to do, and at once when they are woken", async () => {
    const handled: string[] = [];
    const { clock, queue, workers } = start(async ({ callId }) => void handled.push(callId));
    await clock.advance(60_000);
    const before = queue.polls;
    await clock.advance(60_000);
    expect(queue.polls - before).toBeLessThanOrEqual(2 * 61);
    await queue.send("short", [message("call_1")]);
    workers.wake();
    await clock.advance(0);
    expect(handled).toEqual(["call_1"]);
  });

  test("find a message that was sent while they looked", async () => {
    const handled: string[] = [];
    const { clock, queue, workers } = start(async ({ callId }) => void handled.push(callId));
    const receive = queue.receive.bind(queue);
    let sent = false;
    queue.receive = async (name, options) => {
      const found = await receive(name, options);
      if (name === "short" && !sent) {
        sent = true;
        await queue.send("short", [message("call_1")]);
        workers.wake();
      }
      return found;
    };
    // The second look begins after 50 ms; a lost wake-up would leave the message to a third, later one.
    await clock.advance(50);
    expect(sent).toBe(true);
    expect(handled).toEqual(["call_1"]);
  });

  test("stop when what they have in hand is done, and take nothing more", async () => {
    const handled: string[] = [];
    const finish: (() => void)[] = [];
    const { clock, queue, workers } = start(async ({ callId }) => {
      await new Promise<void>((done) => finish.push(done));
      handled.push(callId);
    });
    await queue.send("short", [message("call_1")]);
    await clock.advance(1000);
    let stopped = false;
    const stopping = workers.stop().then(() => (stopped = true));
    await queue.send("short", [message("call_2")]);
    await clock.advance(10_000);
    expect(stopped).toBe(false);
    finish.forEach((done) => done());
    await stopping;
    expect(handled).toEqual(["call_1"]);
    expect(queue.entries.map(({ callId }) => callId)).toEqual(["call_2"]);
  });
});
