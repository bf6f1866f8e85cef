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

  test("grows by what a chunk says, however much was said before", () => {
    const collector = new ChatCollector();
    for (let at = 0; at < 120_000; at += 1) collector.add(told({ content: [{ token: "a" }] }));
    expect(JSON.stringify(collector.body()).match(/"token"/g)).toHaveLength(120_000);
  });
});
