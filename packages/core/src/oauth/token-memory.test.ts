import { describe, expect, test } from "vitest";
import { TokenMemory } from "./token-memory.ts";

describe("copies of access tokens", () => {
  const setUp = () => {
    const time = { now: 1_000 };
    const memory = new TokenMemory({ now: () => time.now, sleep: () => Promise.resolve() });
    memory.remember("key", 7, { value: "t2", generation: 2, usableForMs: 500 });
    return { memory, time };
  };

  test("serve until their time is over", () => {
    const { memory, time } = setUp();
    expect(memory.recall("key", 7, -1)).toEqual({ value: "t2", generation: 2 });
    time.now += 499;
    expect(memory.recall("key", 7, -1)).toBeDefined();
    time.now += 1;
    expect(memory.recall("key", 7, -1)).toBeUndefined();
    memory.remember("key", 7, { value: "t3", generation: 3, usableForMs: null });
    time.now += 1e12;
    expect(memory.recall("key", 7, -1)).toEqual({ value: "t3", generation: 3 });
  });

  test("serve one version of the configuration, one owner, and nobody who was refused with them", () => {
    const { memory } = setUp();
    expect(memory.recall("key", 8, -1)).toBeUndefined();
    expect(memory.recall("other", 7, -1)).toBeUndefined();
    expect(memory.recall("key", 7, 2)).toBeUndefined();
    expect(memory.recall("key", 7, 1)).toBeDefined();
  });

  test("of older tokens do not take the place of newer ones", () => {
    const { memory } = setUp();
    memory.remember("key", 7, { value: "t1", generation: 1, usableForMs: null });
    expect(memory.recall("key", 7, -1)).toEqual({ value: "t2", generation: 2 });
    memory.remember("key", 8, { value: "t1", generation: 1, usableForMs: null });
    expect(memory.recall("key", 8, -1)).toEqual({ value: "t1", generation: 1 });
  });

  test("are forgotten by their generation", () => {
    const { memory } = setUp();
    memory.forget("key", 1);
    expect(memory.recall("key", 7, -1)).toBeDefined();
    memory.forget("key", 2);
    expect(memory.recall("key", 7, -1)).toBeUndefined();
  });

  test("a refusal counts for a moment, for this version, and ends with the next token", () => {
    const { memory, time } = setUp();
    const error = new Error("invalid_client");
    memory.rememberRefusal("key", 7, { error, forMs: 100 });
    expect(memory.refusal("key", 7)).toBe(error);
    expect(memory.refusal("key", 8)).toBeUndefined();
    expect(memory.recall("key", 7, -1)).toBeUndefined();
    time.now += 100;
    expect(memory.refusal("key", 7)).toBeUndefined();
    memory.rememberRefusal("key", 7, { error, forMs: 100 });
    memory.remember("key", 7, { value: "t3", generation: 3, usableForMs: 10 });
    expect(memory.refusal("key", 7)).toBeUndefined();
  });

  test("are kept for so many owners that the last used stay", () => {
    const { memory } = setUp();
    for (let index = 0; index < 5_000; index += 1) {
      if (index % 1_000 === 0) memory.recall("key", 7, -1);
      memory.remember(`k${index}`, 7, { value: "t", generation: 1, usableForMs: null });
    }
    expect(memory.recall("key", 7, -1)).toBeDefined();
    expect(memory.recall("k0", 7, -1)).toBeUndefined();
    expect(memory.recall("k4999", 7, -1)).toBeDefined();
  });
});
