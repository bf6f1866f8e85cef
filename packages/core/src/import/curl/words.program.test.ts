import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { Notes } from "../notes.ts";
import { hasVariable, replaceVariables, splitWords } from "./words.ts";

const split = (text: string): readonly string[] => splitWords(text, new Notes());

/** What bash makes of several commands, one process for all of them; undefined where it finds a fault. */
function splitByBash(commands: readonly string[]): readonly (readonly string[] | undefined)[] {
  const script = `export LC_ALL=C.UTF-8; while IFS= read -r -d '' line; do if words=$(eval "set -- $line" 2>/dev/null && printf '%s\\x1f' "$@" && echo ok); then printf '%s\\0' "$words"; else printf 'fault\\0'; fi; done`;
  const output = execFileSync("bash", ["-c", script], {
    input: commands.map((command) => `${command}\0`).join(""),
    encoding: "utf8",
  });
  return output
    .split("\0")
    .slice(0, -1)
    .map((text) => (text === "fault" ? undefined : text.split("\x1f").slice(0, -1)));
}

function attempt(command: string): readonly string[] | undefined {
  try {
    return split(command);
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

describe(`words of a command ${verifies("BLIND-1")}`, () => {
  test("are what bash makes of them", () => {
    const pieces = fc.constantFrom(
      "a",
      "b c",
      "'",
      '"',
      "\\",
      " ",
      "\t",
      "$'",
      "\\n",
      "\\'",
      "\\\\",
      '\\"',
      "é",
      "'x y'",
      '"x y"',
      "\\\n",
      "=",
      "-d",
      "{",
      "}",
      "@",
      "%",
      "\\x41",
      "\\101",
      "*.zz",
      "~x",
    );
    const commands = fc.sample(
      fc.array(pieces, { maxLength: 8 }).map((parts) => parts.join("")),
      { numRuns: 800, seed: 7 },
    );
    const safe = commands.filter(
      (command) => !/(?<![\\$'"])\$(?!')/.test(command) && command.trim() === command && command !== "",
    );
    const byBash = splitByBash(safe);
    // What bash cannot run is no command to compare with.
    const compared = safe.filter((_command, at) => byBash[at] !== undefined);
    expect(compared.map((command) => ({ command, words: attempt(command) }))).toEqual(
      safe.flatMap((command, at) => (byBash[at] === undefined ? [] : [{ command, words: byBash[at] }])),
    );
    expect(compared.length).toBeGreaterThan(200);
  });

  test.each([
    ["a $'tab\\there \\u00e9\\x41\\101\\'q'", ["a", "tab\there éAA'q"]],
    ['a "b\\"c \\$x \\z"', ["a", 'b"c $x \\z']],
    ["a '' \"\"", ["a", "", ""]],
    ["a \\\n  b ^\n c", ["a", "b", "c"]],
    ["$ a b", ["a", "b"]],
    ["a b # c", ["a", "b"]],
    ["a b#c", ["a", "b#c"]],
    ["a | b", ["a"]],
    ["a 'x;y' && b", ["a", "x;y"]],
    ["a\nb", ["a"]],
    [
      'curl ^"https://a.example/x?y=1^&z=^%^20^" ^\r\n  -H ^"a: ^\\^"b^\\^"^" ^\n  -d ^"^{^\\^"c^\\^":^\\^"$D ^^ `e` ^\\^\\n^\\^"^}^\n\nf^"',
      ["curl", "https://a.example/x?y=1&z=%20", "-H", 'a: "b"', "-d", '{"c":"$D ^ `e` \\n"}\nf'],
    ],
    [`curl a -d '{"b":"^","c":"d"}'`, ["curl", "a", "-d", '{"b":"^","c":"d"}']],
  ])("%j", (command, words) => {
    expect(split(command)).toEqual(words);
  });

  test("keep the names of variables, whose values are not known here", () => {
    const [plain = "", braced = "", quoted = "", literal = "", dollar = ""] = split(`$A \${B:-x}y "z$C_1." '$D' "5$"`);
    expect([plain, braced, quoted, literal, dollar].map(hasVariable)).toEqual([true, true, true, false, false]);
    expect(
      [plain, braced, quoted, literal, dollar].map((word) => replaceVariables(word, (name) => `<${name}>`)),
    ).toEqual(["<A>", "<B>y", "z<C_1>.", "$D", "5$"]);
    expect(hasVariable(split("a \uE000X\uE001")[1] ?? "")).toBe(false);
  });

  test.each(["a $(b)", 'a "$(b)"', "a `b`", 'a "`b`"', "a 'b", 'a "b', "a $'b", "a <(b"])(
    "refuses %j or stops at it, and runs nothing",
    (command) => {
      expect(attempt(command) ?? ["a"]).toEqual(["a"]);
    },
  );
});
