import { describe, expect, test } from "vitest";
import { Parked } from "../../tools/tool-call.ts";
import { Waits } from "./waits.ts";

const lookEveryMs = 2_000;

function createWaits(
  beforePark: () => Promise<"look" | number> = () => Promise.resolve(0),
  look = (): Promise<boolean> => Promise.resolve(false),
) {
  let now = 0;
  const waits = new Waits({
    now: () => now,
    sleep: (ms) => {
      now += ms;
      return Promise.resolve();
    },
    lookEveryMs,
    look,
    beforePark,
  });
  return { waits, now: () => now };
}

describe("threads that wait", () => {
  test("are parked until the earliest time once nobody works", async () => {
    const { waits } = createWaits(() => Promise.resolve(3));
    const parked = await waits
      .thread(() =>
        waits.others(() => Promise.all([5_000, 2_000].map((at) => waits.thread(() => waits.until({ wakeAt: at }))))),
      )
      .catch((error: unknown) => error);
    expect(parked).toBeInstanceOf(Parked);
    expect(parked).toMatchObject({ wakeInMs: 2_000, wakesSeen: 3 });
  });

  test("wait out a short time where they are", async () => {
    const { waits, now } = createWaits();
    await waits.thread(() => waits.until({ wakeAt: 400 }));
    expect(now()).toBe(400);
  });

  test("are kept while another one works", async () => {
    const { waits } = createWaits();
    let hasWorked = false;
    const work = async (): Promise<void> => {
      await new Promise((done) => setTimeout(done, 30));
      hasWorked = true;
      waits.notify();
    };
    await waits.thread(() =>
      waits.others(() => Promise.all([waits.thread(work), waits.thread(() => waits.until({}))])),
    );
    expect(hasWorked).toBe(true);
  });

  test("hear of what happens elsewhere while another one works", async () => {
    let looks = 0;
    const { waits, now } = createWaits(undefined, () => {
      looks += 1;
      return Promise.resolve(looks === 3);
    });
    let hasHeard = false;
    const work = async (): Promise<void> => {
      while (!hasHeard) await new Promise((done) => setTimeout(done, 1));
    };
    const listen = async (): Promise<void> => {
      await waits.until({ hears: true });
      hasHeard = true;
    };
    await waits.thread(() => waits.others(() => Promise.all([waits.thread(work), waits.thread(listen)])));
    expect([looks, now()]).toEqual([3, 3 * lookEveryMs]);
  });

  test("look at nothing where they wait for a time alone", async () => {
    let looks = 0;
    const { waits } = createWaits(undefined, () => {
      looks += 1;
      return Promise.resolve(true);
    });
    const work = (): Promise<void> => new Promise((done) => setTimeout(done, 30));
    const sleep = (): Promise<void> => waits.until({ wakeAt: 5 * lookEveryMs });
    await waits.thread(() => waits.others(() => Promise.all([waits.thread(work), waits.thread(sleep)])));
    expect(looks).toBe(0);
  });

  test("look again where something has happened meanwhile", async () => {
    let looks = 0;
    const { waits } = createWaits(() => {
      looks += 1;
      return Promise.resolve("look");
    });
    await waits.thread(() => waits.until({}));
    expect(looks).toBe(1);
  });

  test("give the process back at once where its time is used", async () => {
    const { waits } = createWaits();
    await expect(waits.thread(() => waits.until({ yields: true }))).rejects.toMatchObject({ wakeInMs: 0 });
  });

  test("all end with whatever ends the run", async () => {
    const { waits } = createWaits();
    const why = new Error("cancelled");
    const waiting = waits.thread(() => waits.until({ wakeAt: 10 ** 6 }));
    waits.end(why);
    await expect(waiting).rejects.toBe(why);
    await expect(waits.until({})).rejects.toBe(why);
  });
});
