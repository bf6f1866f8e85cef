import { createMemoryPush } from "@toolyard/platform/memory/memory-push";
import { describe, expect, test } from "vitest";
import { describePush } from "./push.ts";

describePush("connections of this process", async () => {
  const push = createMemoryPush();
  let last = 0;
  return {
    push,
    async connect() {
      last += 1;
      const id = `connection-${last}`;
      const received: string[] = [];
      const forget = push.register(id, (frame) => void received.push(frame));
      return { id, received, close: async () => forget() };
    },
  };
});

describe("connections of this process", () => {
  test("one whose write fails is gone, and stays so", async () => {
    const push = createMemoryPush();
    let writes = 0;
    push.register("a", async () => {
      writes += 1;
      throw new Error("socket closed");
    });
    expect(await push.send("a", "1")).toBe("gone");
    expect(await push.send("a", "2")).toBe("gone");
    expect(writes).toBe(1);
  });

  test("forgetting an old connection leaves a newer one of the same id alone", async () => {
    const push = createMemoryPush();
    const received: string[] = [];
    const forgetOld = push.register("a", () => undefined);
    push.register("a", (frame) => void received.push(frame));
    forgetOld();
    expect(await push.send("a", "hello")).toBe("sent");
    expect(received).toEqual(["hello"]);
  });
});
