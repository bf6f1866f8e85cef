import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { ChatCollector } from "../collect.ts";
import { isCanonicalAnswer } from "./canonical-answer.ts";
import { AnswerReader } from "./openai-answer.ts";
import type { ProviderEvent } from "./provider.ts";

const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const choice = { index: 0, message: { role: "assistant", content: "Hello" }, finish_reason: "stop" };
const answer = { id: "c1", object: "chat.completion", created: 5, model: "m", choices: [choice], usage };

function withChoice(change: JsonObject): JsonObject {
  return { ...answer, choices: [{ ...choice, ...change }] };
}

function withMessage(change: JsonObject): JsonObject {
  return withChoice({ message: { ...choice.message, ...change } });
}

/** The body as the gateway writes it. */
function written(body: JsonObject): JsonObject {
  const reader = new AnswerReader("asked", 2);
  const collector = new ChatCollector();
  const events: ProviderEvent[] = [];
  reader.body(body, events);
  reader.finish(events, { body });
  const reasons: { choice: number; finishReason: string }[] = [];
  for (const event of events) {
    if (event.type === "message") reasons.push({ choice: event.choice, finishReason: event.finishReason });
    else if (event.type === "usage") collector.add({ ...event, rounds: [event.usage] });
    else if (event.type !== "response" && event.type !== "tool-call-delta") collector.add(event);
  }
  collector.add({ type: "finish", reasons, toolExecution: undefined, body });
  return collector.body();
}

describe(`an answer that is sent as it came ${verifies("CHAT-2")}`, () => {
  test.each([
    ["an ordinary one", answer],
    ["one without usage", { ...answer, usage: undefined }],
    ["one with unknown fields", { ...withMessage({ annotations: [] }), service_tier: "default" }],
    ["one with reasoning and a refusal", withMessage({ reasoning_content: "hm", refusal: null })],
    ["one cut at its length", withChoice({ finish_reason: "length", logprobs: null })],
    ["several choices", { ...answer, choices: [choice, { ...choice, index: 1 }] }],
  ])("may be %s", (_what, body) => {
    const given = JSON.parse(JSON.stringify(body)) as JsonObject;
    expect(isCanonicalAnswer(given)).toBe(true);
    expect(written(given)).toEqual(given);
  });

  test.each<readonly [string, JsonObject]>([
    ["without an id", { ...answer, id: "" }],
    ["of another kind", { ...answer, object: "text_completion" }],
    ["without a time", { ...answer, created: 0 }],
    ["whose time is text", { ...answer, created: "5" }],
    ["without a model", { ...answer, model: null }],
    ["without choices", { ...answer, choices: [] }],
    ["whose usage lacks its sum", { ...answer, usage: { prompt_tokens: 1, completion_tokens: 2 } }],
    ["whose usage is null", { ...answer, usage: null }],
    ["with choices out of order", { ...answer, choices: [{ ...choice, index: 1 }] }],
    ["that calls tools", withMessage({ tool_calls: [] })],
    ["that calls a function", withMessage({ function_call: null })],
    ["with content in parts", withMessage({ content: [{ type: "text", text: "x" }] })],
    ["with empty content", withMessage({ content: "" })],
    ["of another role", withMessage({ role: "tool" })],
    ["without a reason to finish", withChoice({ finish_reason: null })],
    ["that finished for calls without making any", withChoice({ finish_reason: "tool_calls" })],
  ])("is none %s", (_what, body) => {
    expect(isCanonicalAnswer(body)).toBe(false);
  });

  test("is what would have been written, whatever the back end put into it", () => {
    const anything = fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<JsonValue>;
    const changes = fc.dictionary(
      fc.constantFrom("id", "created", "model", "usage", "system_fingerprint", "service_tier", "choices"),
      anything,
      { maxKeys: 1 },
    );
    const inMessage = fc.dictionary(
      fc.constantFrom("role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls", "audio"),
      anything,
      { maxKeys: 2 },
    );
    fc.assert(
      fc.property(changes, inMessage, (change, message) => {
        const body = { ...withMessage(message), ...change };
        expect(isCanonicalAnswer(body) ? written(body) : body).toEqual(body);
      }),
    );
  });
});
