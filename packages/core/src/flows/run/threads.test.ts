import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { behindOwnLimit, endedIn } from "./threads.ts";

describe("work that has a time", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("is ended behind it, never a part of a millisecond before", async () => {
    let isEnded = false;
    const ended = endedIn(400, new AbortController().signal, (signal) => {
      signal.addEventListener("abort", () => (isEnded = true));
      return new Promise<void>((done) => signal.addEventListener("abort", () => done()));
    });
    await vi.advanceTimersByTimeAsync(400);
    expect(isEnded).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isEnded).toBe(true);
    await ended;
  });

  test.for<[string, number | undefined, number | undefined, number | undefined]>([
    ["is none", undefined, 400, undefined],
    ["is the only one", 400, undefined, 400],
    ["is far from its own", 400, 30_000, 400],
    ["is longer than its own", 400, 100, 400],
    ["ends with its own, which began behind it", 390, 400, 500],
  ])("that %s", ([, ms, limitMs, expected]) => {
    expect(behindOwnLimit(ms, limitMs)).toBe(expected);
  });
});
