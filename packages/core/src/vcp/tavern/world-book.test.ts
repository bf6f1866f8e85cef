import { describe, expect, test } from "vitest";
import { seededRandom } from "./random.ts";
import { activeEntries, PatternWork, unusableKey, worldBookSchema, type Scan } from "./world-book.ts";

interface Change {
  readonly texts?: readonly string[];
  readonly random?: () => number;
}

async function active(book: object, said: string, change: Change = {}): Promise<string> {
  const scan: Scan = {
    texts: [said],
    random: () => 0,
    turn: () => Promise.resolve(),
    work: new PatternWork(),
    ...change,
  };
  const entries = await activeEntries(worldBookSchema.parse(book), scan);
  return entries.map(({ content }) => content).join(" ");
}

const entry = (content: string, keys: readonly string[], more: object = {}): object => ({ content, keys, ...more });

describe("a world book", () => {
  test("looks at the latest messages only, each entry as far as it says", async () => {
    const book = { scan_depth: 2, entries: [entry("old", ["one"]), entry("deep", ["one"], { scan_depth: 3 })] };
    expect(await active(book, "", { texts: ["three", "two", "one"] })).toBe("deep");
    expect(await active({ ...book, scan_depth: 0 }, "one")).toBe("deep");
  });

  test("minds case and whole words where it is told to", async () => {
    const entries = [entry("any", ["Cat"]), entry("exact", ["Cat"], { case_sensitive: true, whole_words: true })];
    expect(await active({ entries }, "a CATapult")).toBe("any");
    expect(await active({ entries }, "the Cat, sat")).toBe("any exact");
  });

  test.each([
    ["and_any", "k a", true],
    ["and_any", "k", false],
    ["and_all", "k a", false],
    ["and_all", "k a b", true],
    ["not_any", "k", true],
    ["not_any", "k a", false],
    ["not_all", "k a", true],
    ["not_all", "k a b", false],
    ["not_any", "nothing", false],
  ])("counts secondary keys by %s in '%s': %s", async (logic, said, comesUp) => {
    const book = { entries: [entry("x", ["k"], { secondary_keys: ["a", "b"], logic })] };
    expect(await active(book, said.replace("nothing", "z"))).toBe(comesUp ? "x" : "");
  });

  test("draws lots that the seed decides", async () => {
    const book = { entries: Array.from({ length: 40 }, (_, at) => entry(`e${at}`, ["k"], { probability: 50 })) };
    const draw = (seed: string): Promise<string> => active(book, "k", { random: seededRandom(seed) });
    expect(await draw("one")).toBe(await draw("one"));
    expect(await draw("one")).not.toBe(await draw("two"));
    expect((await draw("one")).split(" ").length).toBeGreaterThan(8);
    expect(await active({ entries: [entry("never", ["k"], { probability: 0 })] }, "k")).toBe("");
  });

  test("goes on from what came up, as far as entries allow", async () => {
    const entries = [
      entry("beta", ["alpha"]),
      entry("gamma", ["beta"]),
      entry("shy", ["beta"], { exclude_recursion: true }),
      entry("late", ["alpha"], { delay_until_recursion: true }),
      entry("alpha-again", ["gamma"], { delay_until_recursion: true }),
    ];
    expect(await active({ entries }, "alpha")).toBe("beta");
    expect(await active({ recursive: true, entries }, "alpha")).toBe("beta gamma alpha-again late");
    const quiet = [entry("beta", ["alpha"], { prevent_recursion: true }), entry("gamma", ["beta"])];
    expect(await active({ recursive: true, entries: quiet }, "alpha")).toBe("beta");
  });

  test("ends where entries bring each other up", async () => {
    const entries = [entry("a b", ["a"]), entry("b a", ["b"])];
    expect(await active({ recursive: true, entries }, "a")).toBe("a b b a");
  });

  test("keeps to its budget: constant ones first, then by order", async () => {
    const text = "x".repeat(40);
    const entries = [
      entry(`1${text}`, ["k"], { order: 1 }),
      entry(`3${text}`, ["k"], { order: 3 }),
      entry(`0${text}`, [], { constant: true, order: 0 }),
    ];
    const kept = await active({ token_budget: 22, entries }, "k");
    expect(kept.split(" ").map((one) => one.charAt(0))).toEqual(["0", "3"]);
  });

  test("takes hostile patterns in reasonable time, and says that it left some out", async () => {
    const entries = Array.from({ length: 300 }, (_, at) => entry(`e${at}`, [`/(a+)+${at}b$/`]));
    const work = new PatternWork();
    const scan = { texts: ["a".repeat(60_000)], random: () => 0, turn: () => Promise.resolve(), work };
    expect(await activeEntries(worldBookSchema.parse({ entries }), scan)).toEqual([]);
    expect(work.isExhausted).toBe(true);
  });

  test("leaves out whole words that cost too much to tell apart, and gives others a turn between keys", async () => {
    const keys = Array.from({ length: 100 }, (_, at) => "a".repeat(at + 2));
    const work = new PatternWork();
    let turns = 0;
    const turn = (): Promise<void> => Promise.resolve(void (turns += 1));
    const book = worldBookSchema.parse({ whole_words: true, entries: [entry("x", keys)] });
    expect(await activeEntries(book, { texts: ["a".repeat(65_000)], random: () => 0, turn, work })).toEqual([]);
    expect(work.isExhausted).toBe(true);
    expect(turns).toBeGreaterThan(100);
  });

  test("compiles patterns when they are looked for, and no more than a book may have", async () => {
    const keys = Array.from({ length: 100 }, (_, at) => `/[a-z]{${900 + at}}/`);
    const entries = [entry("cat", ["cat", ...keys.slice(1)]), ...Array.from({ length: 20 }, () => entry("x", keys))];
    const scan = (said: string, work: PatternWork): Promise<readonly unknown[]> =>
      activeEntries(worldBookSchema.parse({ entries: said === "cat" ? entries.slice(0, 1) : entries }), {
        texts: [said],
        random: () => 0,
        turn: () => Promise.resolve(),
        work,
      });
    const short = new PatternWork();
    expect(await scan("cat", short)).toHaveLength(1);
    expect(short.isExhausted).toBe(false);
    const long = new PatternWork();
    expect(await scan("dog", long)).toEqual([]);
    expect(long.isExhausted).toBe(true);
  });

  test.each([
    ["/(?=a)/", "look-around"],
    ["/a/x", "flag 'x'"],
    [`/${"a".repeat(2_001)}/`, "more than"],
  ])("refuses the pattern %s", (key, reason) => {
    expect(unusableKey(key)).toContain(reason);
  });

  test.each(["word", "/a/i", "/", "//", "a/b", "/路径\\d+/u"])("takes the key %s", (key) => {
    expect(unusableKey(key)).toBeUndefined();
  });
});
