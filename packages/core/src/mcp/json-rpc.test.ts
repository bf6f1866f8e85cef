import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeMessages, deepestMessage, encodeRequest, encodeResult, isAnswerTo } from "./json-rpc.ts";

describe("messages of JSON-RPC", () => {
  test.each([
    ['{"jsonrpc":"2.0","id":1,"result":{"a":1}}', "result"],
    ['{"jsonrpc":"2.0","id":"x","error":{"code":-32000,"message":"no"}}', "error"],
    ['{"jsonrpc":"2.0","id":null,"error":{"code":-32000}}', "error"],
    ['{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', "notice"],
    ['{"jsonrpc":"2.0","id":2,"method":"ping"}', "request"],
  ])("%s is a %s", (text, kind) => {
    expect(decodeMessages(text)).toEqual([expect.objectContaining({ kind })]);
  });

  test.each(["", "nonsense", "7", "[]", '{"id":1}', '{"id":{},"result":{}}', '{"id":1,"result":3}', "[null]"])(
    "%j holds none",
    (text) => {
      expect(decodeMessages(text)).toEqual([]);
    },
  );

  test("a batch holds several, what is none of them aside", () => {
    const batch = '[{"id":1,"result":{}}, 7, {"id":2,"result":{}}]';
    expect(decodeMessages(batch).map((message) => isAnswerTo(message, 2))).toEqual([false, true]);
  });

  test("an answer is for the id of its own type only", () => {
    const [answer] = decodeMessages('{"id":"1","result":{}}');
    expect(answer !== undefined && isAnswerTo(answer, 1)).toBe(false);
  });

  test("an id that a double cannot hold is given back as it came", () => {
    const [request] = decodeMessages('{"id":9007199254740993,"method":"ping","params":{"n":9007199254740993}}');
    expect(request?.kind === "request" && encodeResult(request.id, {})).toBe(
      '{"jsonrpc":"2.0","id":9007199254740993,"result":{}}',
    );
    const [text] = decodeMessages('{"id":"9007199254740993","method":"ping"}');
    expect(text).toMatchObject({ id: "9007199254740993" });
  });

  test("whatever is sent by others is read or left, and nothing is thrown", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), (text) => {
        expect(Array.isArray(decodeMessages(text))).toBe(true);
      }),
    );
  });

  test("what is nested without an end is not read: an answer has come all the same, and a request is one", () => {
    const levels = 100_000;
    const deep = `${"[".repeat(levels)}${"]".repeat(levels)}`;
    const read = (message: string): unknown => decodeMessages(message);
    expect(read(`{"id":1,"result":{"a":${deep}}}`)).toEqual([{ kind: "too-deep", id: 1 }]);
    expect(read(`{"id":2,"error":{"code":1,"data":${deep}}}`)).toEqual([{ kind: "too-deep", id: 2 }]);
    expect(read(`{"id":3,"method":"m","params":{"a":${deep}}}`)).toEqual([
      { kind: "request", id: 3, method: "m", params: {} },
    ]);
    expect(read(`[{"method":"m","params":{"a":${deep}}},{"id":4,"result":{}}]`)).toEqual([
      { kind: "notice", method: "m", params: {} },
      { kind: "result", id: 4, result: {} },
    ]);
  });

  test("what is nested as deeply as a message may be is read", () => {
    // The message, its result and `a` are levels of their own.
    const levels = deepestMessage - 2;
    const result = `{"a":${"[".repeat(levels)}${"]".repeat(levels)}}`;
    expect(decodeMessages(`{"id":1,"result":${result}}`)).toMatchObject([{ kind: "result" }]);
    expect(decodeMessages(`{"id":1,"result":{"b":${result}}}`)).toMatchObject([{ kind: "too-deep" }]);
  });

  test("what we ask is one line", () => {
    expect(encodeRequest({ id: 1, method: "m", params: { text: "a\nb\r\u2028" } })).not.toMatch(/[\n\r]/);
  });
});
