import { describe, expect, test } from "vitest";
import fc from "fast-check";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { parseExchange } from "../models/special.ts";
import { parseChatRequest } from "./schema.ts";

const user = { role: "user", content: "hi" };
const call = (id: string) => ({ id, type: "function", function: { name: "f", arguments: "{}" } });

function refusal(body: unknown): GatewayError {
  try {
    parseChatRequest(body);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error("the body was accepted");
}

/** `catalogued`: accepted, or refused by an error that callers may see. */
function outcomeOf(parse: () => unknown): string {
  try {
    parse();
    return "catalogued";
  } catch (error) {
    return error instanceof GatewayError ? "catalogued" : String(error);
  }
}

describe(`the chat request ${verifies("CHAT-1", "CHAT-20")}`, () => {
  test("fields that we do not own go through untouched, ours and nulls do not", () => {
    const request = parseChatRequest({
      messages: [user],
      temperature: 0.7,
      max_tokens: null,
      tools: [],
      tool_choice: "auto",
      session_id: "s-1",
      enable_thinking: true,
      stream: false,
    });
    expect(request.passthrough).toEqual({ temperature: 0.7, enable_thinking: true });
    expect(request).toMatchObject({ sessionId: "s-1", tools: [], toolChoice: undefined, model: undefined });
  });

  test.each([
    ["no messages", { messages: [] }, "messages"],
    ["messages missing", {}, "messages"],
    ["a body that is no object", [], undefined],
    ["an unknown role", { messages: [{ role: "robot", content: "x" }] }, "messages[0].role"],
    [
      "a tool message without its call",
      { messages: [user, { role: "tool", tool_call_id: "c1", content: "x" }] },
      "messages[1].tool_call_id",
    ],
    ["a tool message without an id", { messages: [user, { role: "tool", content: "x" }] }, "messages[1].tool_call_id"],
    [
      "a call answered twice",
      {
        messages: [
          user,
          { role: "assistant", tool_calls: [call("a")] },
          { role: "tool", tool_call_id: "a", content: "1" },
          { role: "tool", tool_call_id: "a", content: "2" },
        ],
      },
      "messages[3].tool_call_id",
    ],
    [
      "an unanswered call",
      {
        messages: [
          user,
          { role: "assistant", tool_calls: [call("a"), call("b")] },
          { role: "tool", tool_call_id: "a", content: "1" },
          user,
        ],
      },
      "messages[1].tool_calls",
    ],
    [
      "an unanswered call at the end",
      { messages: [user, { role: "assistant", tool_calls: [call("a")] }] },
      "messages[1].tool_calls",
    ],
    [
      "a tool listed twice",
      {
        messages: [user],
        tools: [
          { type: "function", function: { name: "f" } },
          { type: "function", function: { name: "f" } },
        ],
      },
      "tools[1].function.name",
    ],
    ["a session id with path characters", { messages: [user], session_id: "../other" }, "session_id"],
    ["a session id that is empty", { messages: [user], session_id: "" }, "session_id"],
    ["a stream flag that is text", { messages: [user], stream: "yes" }, "stream"],
    ["n of zero", { messages: [user], n: 0 }, "n"],
    ["an unknown tool choice", { messages: [user], tool_choice: "always" }, "tool_choice"],
    [
      "a chosen function without its name",
      { messages: [user], tool_choice: { type: "function" } },
      "tool_choice.function",
    ],
    [
      "a choice in the form of another API",
      { messages: [user], tool_choice: { type: "custom", name: "sql" } },
      "tool_choice.custom",
    ],
    ["functions of the form before tools", { messages: [user], functions: [{ name: "f" }] }, "functions"],
    ["a choice among such functions", { messages: [user], function_call: { name: "f" } }, "function_call"],
  ])("refuses %s and names the field", (_name, body, param) => {
    const error = refusal(body);
    expect(error.spec.http).toBe(400);
    expect(error.details.param).toBe(param);
  });

  test.each([
    [{ functions: [], function_call: "none" }],
    [{ function_call: "auto" }],
    [{ functions: null, function_call: null }],
  ])("of the form before tools, what offers nothing means absent: %j", (fields) => {
    const messages = [user, { role: "assistant", content: null, function_call: { name: "f", arguments: "{}" } }];
    const request = parseChatRequest({ messages, ...fields });
    expect(request).toMatchObject({ messages, passthrough: {} });
  });

  const part = { type: "text", text: "x" };
  const asks = (count: number) => ({
    role: "assistant",
    tool_calls: Array.from({ length: count }, (_n, at) => call(`c${at}`)),
  });
  test.each([
    ["messages", { messages: Array.from({ length: 10_001 }, () => user) }, "messages", "10000 messages"],
    [
      "parts of a message",
      { messages: [user, { role: "user", content: Array.from({ length: 1_001 }, () => part) }] },
      "messages[1].content",
      "1000 parts",
    ],
    ["calls of a message", { messages: [asks(257)] }, "messages[0].tool_calls", "256 calls"],
    [
      "parts in all",
      {
        messages: Array.from({ length: 60 }, () => ({
          role: "user",
          content: Array.from({ length: 900 }, () => part),
        })),
      },
      "messages",
      "50000 parts and calls",
    ],
    [
      "tools",
      {
        messages: [user],
        tools: Array.from({ length: 1_025 }, (_n, at) => ({ type: "function", function: { name: `f${at}` } })),
      },
      "tools",
      "1024 tools",
    ],
  ])("refuses too many %s before a look at any of them", (_name, body, param, limit) => {
    const error = refusal(body);
    expect(error).toMatchObject({ code: "invalid_request", details: { param } });
    expect(error.message).toContain(limit);
    // Whatever else is wrong with them is not looked for.
    const spoilt = JSON.parse(JSON.stringify(body).replace(/"(?:user|assistant|function)"/, "0")) as unknown;
    expect(refusal(spoilt).message).toBe(error.message);
  });

  test("refuses a body of ever more fields, of chats as of other exchanges", () => {
    const fields = Object.fromEntries(Array.from({ length: 1_000 }, (_none, at) => [`k${at}`, null]));
    const body = { ...fields, messages: [user], input: "x" };
    for (const parse of [parseChatRequest, (given: unknown) => parseExchange(given, "embeddings")]) {
      expect(() => parse(body)).toThrow("The body may have 1000 fields at most; send fewer.");
    }
  });

  test("an answered conversation is accepted, results in any order", () => {
    const messages = [
      user,
      { role: "assistant", content: null, tool_calls: [call("a"), call("b")] },
      { role: "tool", tool_call_id: "b", content: "2" },
      { role: "tool", tool_call_id: "a", content: "1" },
      user,
    ];
    expect(parseChatRequest({ messages }).messages).toEqual(messages);
  });

  test("any JSON is either a request or refused with a catalogued error", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.jsonValue(),
          fc.record({ messages: fc.jsonValue(), tools: fc.jsonValue(), tool_choice: fc.jsonValue() }),
        ),
        (body) => {
          expect(outcomeOf(() => parseChatRequest(body))).toBe("catalogued");
        },
      ),
    );
  });
});
