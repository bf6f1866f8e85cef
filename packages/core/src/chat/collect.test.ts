import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonObject } from "../json.ts";
import { ChatCollector } from "./collect.ts";
import type { ChatEvent } from "./events.ts";

const told = (logprobs: JsonObject): ChatEvent => ({ type: "other-delta", delta: {}, choice: 0, logprobs });
const choiceOf = (collector: ChatCollector) => collector.body()["choices"];

describe(`the collected answer ${verifies("CHAT-2")}`, () => {
  test("has the log probabilities of all chunks, and leaves those of each as they came", () => {
    const collector = new ChatCollector();
    const events = [
      told({ content: [{ token: "a" }], refusal: null }),
      told({ content: [{ token: "b" }, { token: "c" }], model: "x" }),
      told({ content: [{ token: "d" }], refusal: [{ token: "n" }] }),
    ];
    const before = JSON.stringify(events);
    for (const event of events) collector.add(event);
    expect(JSON.stringify(events)).toBe(before);
    const content = [{ token: "a" }, { token: "b" }, { token: "c" }, { token: "d" }];
    expect(choiceOf(collector)).toMatchObject([{ logprobs: { content, refusal: [{ token: "n" }], model: "x" } }]);
  });

  test("has what came in pieces joined, and what the last turn says as a whole as it says it", () => {
    const collector = new ChatCollector();
    const thought = (text: string, signature: string): JsonObject => ({
      reasoning_details: [{ type: "reasoning.text", index: 0, text, signature }],
    });
    const said = (delta: JsonObject): void => collector.add({ type: "other-delta", delta, choice: 0 });
    said({ ...thought("first", "s1"), audio: { id: "a1", data: "QUJD" } });
    said({ audio: { data: "REVG" } });
    said(thought("second", "s2"));
    const message = { role: "assistant", content: "done", ...thought("second", "s2"), annotations: [], audio: null };
    collector.add({
      type: "finish",
      reasons: [{ choice: 0, finishReason: "stop" }],
      toolExecution: undefined,
      body: { choices: [{ index: 0, message, finish_reason: "stop" }] },
    });
    const joined = { audio: { id: "a1", data: "QUJDREVG" }, annotations: [] };
    expect(choiceOf(collector)).toMatchObject([{ message: { ...thought("second", "s2"), ...joined } }]);
  });

  test("grows by what a chunk says, however much was said before", () => {
    const collector = new ChatCollector();
    for (let at = 0; at < 120_000; at += 1) collector.add(told({ content: [{ token: "a" }] }));
    expect(JSON.stringify(collector.body()).match(/"token"/g)).toHaveLength(120_000);
  });
});
