import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { takeMediaMarks } from "./media-marks.ts";

test(`{{ShowBase64}} and {{TransBase64}} are cut out and understood ${verifies("VCP-19")}`, () => {
  const messages = [
    { role: "system", content: "a {{ShowBase64}}b" },
    { role: "user", content: [{ type: "text", text: "{{TransBase64+}}c" }] },
    { role: "assistant", content: "{{TransBase64}}" },
  ];
  expect(takeMediaMarks(messages)).toEqual({
    messages: [
      { role: "system", content: "a b" },
      { role: "user", content: [{ type: "text", text: "c" }] },
      { role: "assistant", content: "{{TransBase64}}" },
    ],
    marks: new Set(["ShowBase64", "TransBase64+"]),
  });
});

test("messages without marks stay the same objects", () => {
  const messages = [{ role: "user", content: "Base64 {{Show Base64}}" }];
  const taken = takeMediaMarks(messages);
  expect([...taken.marks]).toEqual([]);
  expect(taken.messages[0]).toBe(messages[0]);
});
