import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { namedTask, withPlaceholder } from "./named-task.ts";

const placeholder = "{{VCP_ASYNC_RESULT::Video::t1}}";
const task = { plugin: "Video", taskId: "t1" };

describe(`the task that a first answer names ${verifies("VCP-5", "VCP-11")}`, () => {
  test.for<[JsonObject, string | undefined]>([
    [{ requestId: "t1" }, "t1"],
    [{ requestId: 42 }, "42"],
    [{ task_id: "t1", result: {} }, "t1"],
    [{ result: `Repeat ${placeholder} to the user.` }, "t1"],
    [{ result: "{{VCP_ASYNC_RESULT::Other::t1}}" }, undefined],
    [{ result: { requestId: "of the work" } }, undefined],
    [{ requestId: "../escape" }, undefined],
    [{ requestId: "" }, undefined],
  ])("of %j is %s", ([answer, taskId]) => {
    expect(namedTask("Video", answer)?.taskId).toBe(taskId);
  });
});

describe(`the placeholder of the result ${verifies("VCP-10", "VCP-11")}`, () => {
  test.for<[JsonObject, JsonObject]>([
    [{ result: `see ${placeholder}` }, { result: `see ${placeholder}` }],
    [{ messageForAI: "Sent." }, { messageForAI: `Sent.\n${placeholder}` }],
    [{ result: { a: 1 } }, { result: { a: 1, async_result: placeholder } }],
    [{}, { result: { async_result: placeholder } }],
    [{ result: "sent" }, { result: "sent", messageForAI: `sent\n${placeholder}` }],
    [{ result: { content: [] } }, { result: { content: [] }, messageForAI: placeholder }],
  ])("is told with %j", ([answer, told]) => {
    expect(withPlaceholder(answer, task)).toEqual(told);
  });
});
