import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { NewsPace } from "./news-pace.ts";

/** Looks that news cause which never end, by the second at which they are made. */
function looksWithin(seconds: number, isTold: (second: number) => boolean): number[] {
  let second = 0;
  const pace = new NewsPace({ now: () => second * 1_000 });
  const looks: number[] = [];
  for (; second < seconds; second += 1) {
    if (!isTold(second) || pace.waitMs > 0) continue;
    pace.look();
    looks.push(second);
  }
  return looks;
}

test(`news without an end are followed less and less often, and never not at all ${verifies("MCP-2")}`, () => {
  const looks = looksWithin(3_600, () => true);
  expect(looks.slice(0, 6)).toEqual([0, 5, 15, 35, 75, 155]);
  expect(looks.slice(-2)).toEqual([3_015, 3_315]);
});

test("news from time to time are followed at once", () => {
  expect(looksWithin(600, (second) => second % 60 === 0)).toHaveLength(10);
});

test("a server that was noisy and is calm again is followed sooner again", () => {
  const looks = looksWithin(7_200, (second) => second < 400 || second % 700 === 0);
  expect(looks.filter((second) => second >= 400)).toHaveLength(10);
});
