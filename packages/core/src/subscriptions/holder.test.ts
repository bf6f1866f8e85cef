import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { ConsumeOptions, MessageConsumer, Settlement } from "../ports/message-consumer.ts";
import type { OpenSubscription } from "./assign.ts";
import { SubscriptionHolder, type Brought, type SubscriptionDesk } from "./holder.ts";
import type { HolderReport } from "./subscription.ts";
import type { Taken } from "./take.ts";

const opened: OpenSubscription = {
  fingerprint: "f-1",
  account: { kind: "rabbitmq", servers: [{ host: "mq", port: 1 }], virtualHost: "/", mechanism: "plain" },
  source: { name: "orders", group: "g", from: "latest" },
  prefetch: 2,
  maxMessageBytes: 100,
  inOrder: false,
};

/** A gateway and a broker that do as they are told. */
class Stage {
  assigned = [{ id: "sub_1", name: "orders", fingerprint: "f-1" }];
  isAway = false;
  readonly answers: (Taken | GatewayError)[] = [];
  readonly brought: Brought[] = [];
  readonly reports: HolderReport[] = [];
  readonly closed: string[] = [];
  released = 0;
  openFails = 0;
  consumer: { options: ConsumeOptions; end: (error: GatewayError) => void } | undefined;
  readonly holder: SubscriptionHolder;

  constructor() {
    const desk: SubscriptionDesk = {
      hold: (reports) => {
        if (this.isAway) return Promise.resolve(undefined);
        this.reports.push(...reports);
        return Promise.resolve({ subscriptions: this.assigned, beatMs: 20, leaseMs: 60 });
      },
      open: () => Promise.resolve({ ...opened, fingerprint: this.assigned[0]?.fingerprint ?? "" }),
      bring: (brought) => {
        this.brought.push(brought);
        const answer = this.answers.shift() ?? { kind: "accepted", callId: "call_1" };
        return answer instanceof GatewayError ? Promise.reject(answer) : Promise.resolve(answer);
      },
      release: () => {
        this.released += 1;
        return Promise.resolve();
      },
    };
    this.holder = new SubscriptionHolder({
      desk,
      consumers: { open: (_account, options) => this.#consume(options) },
      log: { log: () => undefined },
      newDelivery: () => `delivery-${this.brought.length}`,
    });
  }

  give(id?: string): Promise<Settlement> {
    const { consumer } = this;
    if (consumer === undefined) throw new Error("nobody consumes");
    const body = Buffer.from("{}");
    const message = { body, headers: {}, place: {}, isRedelivered: false, ...(id === undefined ? {} : { id }) };
    return consumer.options.onMessage(message);
  }

  async consuming(): Promise<void> {
    while (this.consumer === undefined) await new Promise((done) => setTimeout(done, 5));
  }

  #consume(options: ConsumeOptions): Promise<MessageConsumer> {
    if (this.openFails > 0) {
      this.openFails -= 1;
      return Promise.reject(new GatewayError("tool_unreachable", "The broker is away."));
    }
    const { promise: ended, resolve: end } = Promise.withResolvers<GatewayError>();
    const consumer = { options, end };
    this.consumer = consumer;
    return Promise.resolve({
      ended,
      dropped: 0,
      waiting: () => Promise.resolve(7),
      close: () => {
        this.closed.push(options.source.name);
        if (this.consumer === consumer) this.consumer = undefined;
        return Promise.resolve();
      },
    });
  }
}

describe(`whoever holds a subscription ${verifies("MQ-3")}`, () => {
  let stage: Stage;
  const start = (change: (stage: Stage) => void = () => undefined): Stage => {
    stage = new Stage();
    change(stage);
    stage.holder.start();
    return stage;
  };
  afterEach(() => stage.holder.stop(0));

  test("settles a message when the gateway has it, and not before", async () => {
    const { answers } = start();
    await stage.consuming();
    answers.push({ kind: "later", code: null, message: "Too much.", retryAfterMs: 1 });
    expect(await stage.give("m")).toBe("done");
    expect(stage.brought.map(({ delivery }) => delivery)).toEqual(["delivery-0", "delivery-0"]);
    answers.push({ kind: "duplicate", callId: "call_1" });
    expect(await stage.give("m")).toBe("done");
    answers.push({ kind: "refused", code: "invalid_json", message: "No JSON.", retryAfterMs: 1 });
    answers.push({ kind: "dead", code: "invalid_json", message: "No JSON." });
    expect(await stage.give()).toBe("dead");
    await expect
      .poll(() => total(stage.reports), { timeout: 10_000 })
      .toEqual({ accepted: 1, duplicates: 1, refused: 2, dead: 1, dropped: 0 });
    expect(stage.reports.at(-1)).toMatchObject({ state: "consuming", waiting: 7, inHand: 0 });
  });

  test("gives back what it is not to have, and looks for what it is to do instead", async () => {
    start();
    await stage.consuming();
    stage.answers.push({ kind: "withdrawn" });
    stage.assigned = [{ id: "sub_1", name: "orders", fingerprint: "f-2" }];
    expect(await stage.give()).toBe("again");
    await expect.poll(() => stage.closed.length, { timeout: 10_000 }).toBe(1);
    await stage.consuming();
    await stage.give();
    expect(stage.brought.at(-1)?.fingerprint).toBe("f-2");
  });

  test("lets go of what is not assigned any more", async () => {
    start();
    await stage.consuming();
    stage.assigned = [];
    stage.holder.refresh();
    await expect.poll(() => stage.consumer, { timeout: 10_000 }).toBeUndefined();
  });

  test("says what is wrong with the broker, and goes on trying", async () => {
    // Of its pauses, the shortest.
    const random = vi.spyOn(Math, "random").mockReturnValue(0);
    onTestFinished(() => random.mockRestore());
    start((each) => {
      each.openFails = 1;
    });
    await expect.poll(() => stage.reports.at(-1)?.error?.code, { timeout: 10_000 }).toBe("tool_unreachable");
    await stage.consuming();
    await expect.poll(() => stage.reports.at(-1)?.state, { timeout: 10_000 }).toBe("consuming");
    stage.consumer?.end(new GatewayError("tool_unreachable", "The connection is gone."));
    await expect.poll(() => stage.closed.length, { timeout: 10_000 }).toBe(1);
    await stage.consuming();
  });

  test("leaves the messages to others where the gateway is away for longer than its lease", async () => {
    start();
    await stage.consuming();
    stage.isAway = true;
    await expect.poll(() => stage.consumer, { timeout: 10_000 }).toBeUndefined();
    stage.isAway = false;
    await stage.consuming();
  });

  test("counts again what the gateway did not hear", async () => {
    start();
    await stage.consuming();
    stage.isAway = true;
    await stage.give();
    await new Promise((done) => setTimeout(done, 30));
    stage.isAway = false;
    await expect.poll(() => total(stage.reports).accepted, { timeout: 10_000 }).toBe(1);
  });

  test("gives back what is in hand when it stops, and releases what it held", async () => {
    start();
    await stage.consuming();
    stage.answers.push(new GatewayError("database_unavailable", "The database is away."));
    const settled = stage.give();
    await expect.poll(() => stage.brought.length, { timeout: 10_000 }).toBe(1);
    await stage.holder.stop(1_000);
    expect(await settled).toBe("again");
    expect(stage.released).toBe(1);
    expect(stage.consumer).toBeUndefined();
  });
});

function total(reports: readonly HolderReport[]): HolderReport["counts"] {
  const sum = (name: keyof HolderReport["counts"]): number =>
    reports.reduce((all, { counts }) => all + counts[name], 0);
  return {
    accepted: sum("accepted"),
    duplicates: sum("duplicates"),
    refused: sum("refused"),
    dead: sum("dead"),
    dropped: sum("dropped"),
  };
}
