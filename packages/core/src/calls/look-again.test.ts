import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { lookAgainMs, mostAhead } from "./look-again.ts";

const half = (): number => 0.5;

describe(`a call that waits for a slot ${verifies("CHAT-12")}`, () => {
  test.each([
    ["has just come, with many ahead", { waitedMs: 0, ahead: 10_000 }, 1_250],
    ["has waited for long, with nobody ahead", { waitedMs: 3_600_000, ahead: 0 }, 1_250],
    ["has waited for long and is in the next round", { waitedMs: 3_600_000, ahead: 15 }, 1_250],
    ["has waited for 20 s, with many ahead", { waitedMs: 20_000, ahead: 10_000 }, 10_000],
    ["has waited for long, ten rounds ahead", { waitedMs: 3_600_000, ahead: 160 }, 10_000],
    ["has waited for long, with many ahead", { waitedMs: 3_600_000, ahead: 10_000 }, 25_000],
  ])("that %s looks again accordingly", (_what, waiting, expected) => {
    expect(lookAgainMs(waiting, 16, half)).toBe(expected);
  });

  test("looks again after 1 to 30 s, whatever the chance", () => {
    expect(lookAgainMs({ waitedMs: 0, ahead: 0 }, 16, () => 0)).toBe(1_000);
    expect(lookAgainMs({ waitedMs: 3_600_000, ahead: mostAhead(16) }, 16, () => 1)).toBe(30_000);
    expect(lookAgainMs({ waitedMs: 3_600_000, ahead: mostAhead(16) }, 16, half)).toBe(
      lookAgainMs({ waitedMs: 3_600_000, ahead: 1_000_000 }, 16, half),
    );
  });

  test("costs few looks where a thousand wait for minutes", () => {
    const minutes = 10 * 60_000;
    let looks = 0;
    for (let ahead = 0; ahead < 1_000; ahead += 1) {
      for (let waitedMs = 0; waitedMs < minutes; looks += 1) {
        waitedMs += lookAgainMs({ waitedMs, ahead }, 2, half);
      }
    }
    // One a second each would be 600,000.
    expect(looks).toBeLessThan(40_000);
  });
});
