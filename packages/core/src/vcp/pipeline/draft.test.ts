import { describe, expect, test } from "vitest";
import { markKept } from "../../chat/pictures.ts";
import type { JsonObject } from "../../json.ts";
import { textOf } from "../message-text.ts";
import { toDraft, visibleMessages, withVisible, type Draft } from "./draft.ts";

const draft = (text: string): Draft =>
  text.split(" ").map((word) => ({
    message: { role: word.startsWith("s") || word.startsWith("h") ? "system" : "user", content: word },
    isHidden: word.startsWith("h"),
  }));
const said = (messages: readonly JsonObject[]): string => messages.map(textOf).join(" ");
const words = (result: Draft): string => said(result.map(({ message }) => message));

describe("what is hidden", () => {
  test("stays with what developers write at the beginning, whatever is put in at the end", () => {
    const [developer, hidden, user] = draft("s1 h1 u1");
    if (developer === undefined || hidden === undefined || user === undefined) throw new Error("no draft");
    const first = { ...developer, message: { role: "developer", content: "s1" } };
    const seen = [first.message, user.message, { role: "user", content: "u2" }, { role: "user", content: "u3" }];
    expect(words(withVisible([first, hidden, user], seen))).toBe("s1 h1 u1 u2 u3");
  });

  test("are pictures of results, which are no question", () => {
    const message = (type: string): JsonObject => ({
      role: "user",
      content: [{ type, text: "u1", call_id: "call_1", index: 0 }],
    });
    const given = [message("text"), message("result_picture")];
    markKept(given);
    expect(toDraft(given).map(({ isHidden }) => isHidden)).toEqual([false, true]);
  });

  test("is not among what others see", () => {
    expect(said(visibleMessages(draft("s1 h1 u1 h2 u2 h3")))).toBe("s1 u1 u2");
  });

  test("comes back where it was", () => {
    const before = draft("s1 h1 u1 h2 u2 h3");
    expect(words(withVisible(before, visibleMessages(before)))).toBe("s1 h1 u1 h2 u2 h3");
  });

  test.each([
    ["messages put in at the front", "s1 s2 u0 u1 u2", "s1 h1 s2 u0 u1 h2 u2 h3"],
    ["messages taken away", "u2", "h2 u2 h1 h3"],
    ["nothing left", "", "h1 h2 h3"],
  ])("keeps its distance to the end, or to the beginning: %s", (_what, seen, expected) => {
    const visible = seen === "" ? [] : draft(seen).map(({ message }) => message);
    const result = withVisible(draft("s1 h1 u1 h2 u2 h3"), visible);
    expect(words(result).split(" ").sort()).toEqual(expected.split(" ").sort());
    expect(said(visibleMessages(result))).toBe(seen);
  });
});
