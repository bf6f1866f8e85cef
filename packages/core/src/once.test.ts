import { expect, test } from "vitest";
import { once, lazily } from "./once.ts";

test("a value is made when it is first asked for, and once", () => {
  let made = 0;
  const value = once(() => ({ at: (made += 1) }));
  expect(made).toBe(0);
  expect(value()).toBe(value());
  expect(made).toBe(1);
});

test("what takes time is made once for all who wait, and again where it failed", async () => {
  let tries = 0;
  const value = lazily(async () => {
    tries += 1;
    await Promise.resolve();
    if (tries === 1) throw new Error("not yet");
    return tries;
  });
  expect(await Promise.allSettled([value(), value()])).toMatchObject([{ status: "rejected" }, { status: "rejected" }]);
  expect(await Promise.all([value(), value()])).toEqual([2, 2]);
  expect(tries).toBe(2);
});
