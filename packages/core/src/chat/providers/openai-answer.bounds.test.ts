/** What a back end may make of one answer: nobody else's request waits for it. */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { AnswerReader } from "./openai-answer.ts";
import type { ProviderEvent } from "./provider.ts";

/** The events of these deltas, and the message that they make. */
function read(...deltas: readonly JsonObject[]): { readonly events: ProviderEvent[]; readonly message: JsonObject } {
  const reader = new AnswerReader("stub-1", 1);
  const events: ProviderEvent[] = [];
  for (const delta of deltas) reader.chunk({ choices: [{ index: 0, delta }] }, undefined, events);
  reader.finish(events);
  const message = events.find((event) => event.type === "message");
  return { events, message: message?.message ?? {} };
}

describe(`deltas of unusual extent ${verifies("CHAT-3")}`, () => {
  test("one of many unknown fields is read field by field, all of them kept", () => {
    const fields = Object.fromEntries(Array.from({ length: 15_000 }, (_none, at) => [`k${at}`, at]));
    const { events, message } = read({ content: "a", ...fields });
    expect(events.filter(({ type }) => type === "other-delta")).toMatchObject([{ delta: fields }]);
    expect(message).toEqual({ role: "assistant", content: "a", ...fields });
  });

  test("one of many parts that are no text keeps all of them", () => {
    const content = Array.from({ length: 200_000 }, () => ({ type: "image" }));
    expect(read({ content }).message["content"]).toEqual(content);
  });
});
