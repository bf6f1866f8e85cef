import { describe, expect, test } from "vitest";
import { tokensOfPrompt, tokensOfText } from "./estimate.ts";

describe("an estimate of tokens", () => {
  test("goes by bytes, so that other scripts count as well", () => {
    expect(tokensOfText("")).toBe(0);
    expect(tokensOfText("abcdefgh")).toBe(2);
    expect(tokensOfText("今天天气")).toBe(3);
  });

  test("of a prompt counts every text in it, calls and tools too", () => {
    const hello = { role: "user", content: "hello hello hello hello" };
    const plain = tokensOfPrompt([hello]);
    expect(plain).toBeGreaterThan(6);
    expect(tokensOfPrompt([hello, hello])).toBe(2 * plain);
    const call = { id: "c", type: "function", function: { name: "look", arguments: '{"q":"something to look for"}' } };
    expect(tokensOfPrompt([{ role: "assistant", content: null, tool_calls: [call] }])).toBeGreaterThan(10);
    const tool = { type: "function", function: { name: "look", description: "x".repeat(400), parameters: {} } };
    expect(tokensOfPrompt([hello], [tool])).toBeGreaterThan(plain + 100);
    expect(tokensOfPrompt([hello], [tool])).toBe(tokensOfPrompt([hello], [tool]));
  });

  test("takes a picture for a picture and not for its letters", () => {
    const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(1_000_000)}` } };
    const message = { role: "user", content: [{ type: "text", text: "what is this?" }, picture] };
    expect(tokensOfPrompt([message])).toBeLessThan(2_000);
    expect(tokensOfPrompt([message])).toBeGreaterThan(1_000);
  });
});
