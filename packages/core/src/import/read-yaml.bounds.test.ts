import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { readYaml } from "./read-yaml.ts";

describe(`bounds of YAML ${verifies("BLIND-1")}`, () => {
  // So many that whatever compares each with each takes minutes.
  test.each([
    ["keys", lines(40_000, (at) => `key_${at}: 1\n`)],
    ["anchors and aliases", `[${lines(25_000, (at) => `&a${at} 1, *a${at}, `)}]`],
    ["anchors within anchors", `${"[&a ".repeat(300)}[${lines(25_000, (at) => `&b${at} 1, `)}]${"]".repeat(300)}`],
  ])("looks at each of many %s once", async (_what, text) => {
    expect(await readYaml(text, text.length)).toBeTypeOf("object");
  });
});

function lines(count: number, line: (at: number) => string): string {
  return Array.from({ length: count }, (_none, at) => line(at)).join("");
}
