import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { NewGroupChatMember } from "./group-chat.ts";
import { mentionsIn, mostSigns } from "./mentions.ts";

const agent = (name: string, displayName: string | null = null): NewGroupChatMember => ({
  kind: "agent",
  name,
  displayName,
});
const members = [agent("ada"), agent("ada-two"), agent("bob", "Captain Bob"), agent("ming", "小明")];

describe(`mentions ${verifies("VCP-14")}`, () => {
  test.each([
    ["@ada, how many?", ["ada"]],
    ["@ADA and @bob", ["ada", "bob"]],
    ["@bob then @ada then @bob", ["bob", "ada"]],
    ["@ada-two knows", ["ada-two"]],
    ["@ada- and @ada.", ["ada"]],
    ["Ask @Captain Bob.", ["bob"]],
    ["@小明你好", ["ming"]],
    ["请@小明说", ["ming"]],
    ["mail ada@ada.example, bob@ada", []],
    ["@adam @ada_2 @nobody @", []],
  ])("in %j are of %j", (text, names) => {
    expect(mentionsIn(text, members).map(({ name }) => name)).toEqual(names);
  });

  test("are of members only, each once, whatever the text", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.string(), fc.constantFrom("@", "@ada", "@小明", "-", " "))), (parts) => {
        const found = mentionsIn(parts.join(""), members);
        expect(new Set(found).size).toBe(found.length);
        for (const member of found) expect(members).toContain(member);
      }),
    );
  });

  test("are looked for behind the first thousand signs of a text, and not without end", () => {
    const name = (at: number): string => `agent${at}`;
    const many = Array.from({ length: 64 }, (_, at) => agent(name(at), `Agent ${at}`));
    expect(mentionsIn(`${"@a ".repeat(mostSigns - 1)}@${name(7)}`, many)).toEqual([many[7]]);
    expect(mentionsIn(`${"@a ".repeat(mostSigns)}@${name(7)}`, many)).toEqual([]);
    // What mentions nobody for certain does not count.
    expect(mentionsIn(`${"x@a ".repeat(mostSigns)}@${name(7)}`, many)).toEqual([many[7]]);
    expect(mentionsIn("@".repeat(8_000_000), many)).toEqual([]);
  });
});
