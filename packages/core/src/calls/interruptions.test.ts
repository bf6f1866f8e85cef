import { expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { endOfInterrupted } from "./interruptions.ts";

test(`a read that somebody may come back for is carried out again ${verifies("API-5")}`, () => {
  const read = callRow({ effect: "read", repeat: "natural", async: false, interruptions: 1 });
  expect(endOfInterrupted(read)?.error?.code).toBe("call_interrupted");
  for (const awaited of [{ async: true }, { idempotencyKey: "k1" }]) {
    expect(endOfInterrupted({ ...read, ...awaited })).toBeUndefined();
    expect(endOfInterrupted({ ...read, ...awaited, interruptions: 3 })?.error?.code).toBe("call_abandoned");
  }
});
