import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { NewGroupChatMember } from "./group-chat.ts";
import { mentionsIn } from "./mentions.ts";

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
});
