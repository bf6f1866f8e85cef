import { describe, expect, test } from "vitest";
import { pairUp } from "./compare.ts";

const called = (name: string, ...urls: readonly string[]) => urls.map((url) => ({ name, item: { name, url } }));
const urlsOf = (pairs: ReturnType<typeof pairUp>) =>
  pairs.map(({ one, other }) => [one?.item, other?.item].map((item) => (item as { url: string } | undefined)?.url));

describe("things of one name", () => {
  test("are those that are equal first, and the rest in their order", () => {
    const pairs = pairUp(called("hook", "b", "new", "c", "c"), called("hook", "a", "b", "c", "d", "e"));
    expect(urlsOf(pairs)).toEqual([
      ["b", "b"],
      ["new", "a"],
      ["c", "c"],
      ["c", "d"],
      [undefined, "e"],
    ]);
  });

  test("of another name are none of them", () => {
    expect(urlsOf(pairUp(called("one", "a"), called("other", "a")))).toEqual([
      ["a", undefined],
      [undefined, "a"],
    ]);
  });

  test("may be as many as a tenant may have schedules of one tool", () => {
    const many = (prefix: string) => called("tool", ...Array.from({ length: 3_000 }, (_, at) => `${prefix}${at}`));
    expect(pairUp(many("new"), many("old"))).toHaveLength(3_000);
  });
});
