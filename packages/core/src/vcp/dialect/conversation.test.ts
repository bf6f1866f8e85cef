import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../json.ts";
import { readConversation, riverOf, withinTokens } from "./conversation.ts";

const says = (role: string, content: string): JsonObject => ({ role, content });

describe("the off switch", () => {
  const off = "[[VCPToolUse=Forbidden]]";

  it("counts in leading system messages, in parts of them too, and is cut out", () => {
    const parts: JsonObject = { role: "system", content: [{ type: "text", text: `a${off}` }] };
    expect(readConversation([says("system", "x"), parts, says("user", off)])).toEqual({
      isForbidden: true,
      messages: [says("system", "x"), { role: "system", content: [{ type: "text", text: "a" }] }, says("user", off)],
    });
  });

  it("counts in leading messages of developers, which are the system's to newer models", () => {
    const given = [says("developer", off), says("user", "x")];
    const messages = [says("developer", ""), says("user", "x")];
    expect(readConversation(given)).toEqual({ isForbidden: true, messages });
  });

  it("is text everywhere else", () => {
    const messages = [says("user", off), says("system", off), says("assistant", off)];
    expect(readConversation(messages)).toEqual({ isForbidden: false, messages });
  });
});

describe("the conversation for a tool", () => {
  const picture: JsonObject = {
    role: "user",
    content: [
      { type: "text", text: "see" },
      { type: "image_url", image_url: { url: "data:," } },
    ],
  };
  const messages = [says("system", "s"), picture, says("assistant", "a")];

  it("is whole, its texts, or the last of these", () => {
    expect(riverOf(messages, "full")).toEqual(messages);
    expect(riverOf(messages, "text")).toEqual([says("system", "s"), says("user", "see"), says("assistant", "a")]);
    expect(riverOf(messages, "last:2")).toEqual([says("user", "see"), says("assistant", "a")]);
    expect(
      riverOf(
        Array.from({ length: 12 }, () => says("user", "x")),
        "last:",
      ),
    ).toHaveLength(10);
    expect(riverOf(messages, "upstream")).toBeUndefined();
  });
});

describe("a conversation that is too long", () => {
  it("loses its oldest messages, and neither what the system says nor calls with their results", () => {
    const long = "word ".repeat(200);
    const call: JsonObject = { role: "assistant", content: null, tool_calls: [{ id: "c" }] };
    const messages = [
      says("system", long),
      says("user", long),
      says("user", `[系统提示:] ${long}`),
      call,
      says("tool", long),
      says("assistant", long),
      says("user", "and now?"),
    ];
    const kept = withinTokens(messages, 1_050);
    expect(kept).toEqual(messages.filter((_message, at) => at !== 1));
    expect(withinTokens(messages, 10)).toEqual(messages.filter((_message, at) => at !== 1));
    expect(withinTokens(messages, 100_000)).toBe(messages);
  });
});
