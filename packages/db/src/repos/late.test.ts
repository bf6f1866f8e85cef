import { expect, test } from "vitest";
import { late } from "./late.ts";

interface Numbers {
  readonly next: () => Promise<number>;
  readonly add: (one: number, other: number) => Promise<number>;
}

test("a repository is read with the first call, once, and is no promise", async () => {
  let read = 0;
  const numbers = late<Numbers>(async () => {
    read += 1;
    return Promise.resolve({ next: () => Promise.resolve(read), add: (one, other) => Promise.resolve(one + other) });
  });
  expect(await Promise.resolve(numbers)).toBe(numbers);
  expect(read).toBe(0);
  expect(await Promise.all([numbers.next(), numbers.add(2, 3)])).toEqual([1, 5]);
  expect(numbers.next).toBe(numbers.next);
});

test("one that is spread would lose its functions, so it cannot be", () => {
  const numbers = late<Numbers>(() => Promise.reject(new Error("not read")));
  expect(() => ({ ...numbers })).toThrow(/name those that you need/);
});
