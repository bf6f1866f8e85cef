import { describe, expect, test } from "vitest";
import { parseJson } from "../json.ts";
import { answerRequest, defaultResponses } from "./server-requests.ts";

const form = (properties: Record<string, object>, required: string[] = []) => ({
  message: "?",
  requestedSchema: { type: "object", properties, required },
});
const filled = form({
  a: { type: "string", default: "x" },
  b: { type: "integer", default: 3 },
  c: { type: "boolean" },
});
const open = form({ a: { type: "string" } }, ["a"]);
const ask = (method: string, params = {}, elicitation: "ask" | "defaults" | "decline" = "ask"): unknown =>
  parseJson(answerRequest({ id: 7, method, params }, elicitation));

describe("what a server asks of this client", () => {
  test("is answered where it is whether it is there", () => {
    expect(ask("ping")).toEqual({ jsonrpc: "2.0", id: 7, result: {} });
  });

  test.each(["sampling/createMessage", "roots/list", "tools/call"])(
    "%s is a method that it does not have",
    (method) => {
      expect(ask(method)).toMatchObject({ id: 7, error: { code: -32_601 } });
    },
  );

  test.each([
    ["ask", filled, { action: "decline" }],
    ["decline", filled, { action: "decline" }],
    ["defaults", filled, { action: "accept", content: { a: "x", b: 3 } }],
    ["defaults", open, { action: "decline" }],
    ["defaults", { message: "?", mode: "url", url: "https://a.example" }, { action: "decline" }],
    ["defaults", {}, { action: "decline" }],
    ["defaults", form({ a: { type: "nonsense" } }), { action: "decline" }],
    ["defaults", form({ a: { $ref: "#/nowhere" } }), { action: "decline" }],
  ] as const)("a question is answered at once: '%s' %j", (elicitation, params, result) => {
    expect(ask("elicitation/create", params, elicitation)).toMatchObject({ result });
  });
});

test("a form that is longer than anybody would fill in is not looked at", () => {
  const long = form({ a: { type: "string", default: "x".repeat(40_000) } });
  expect(ask("elicitation/create", long, "defaults")).toMatchObject({ result: { action: "decline" } });
});

test("several questions are answered with their defaults where all have them", () => {
  const request = (params: object) => ({ method: "elicitation/create", params }) as never;
  expect(defaultResponses({ one: request(filled) })).toEqual({ one: { action: "accept", content: { a: "x", b: 3 } } });
  expect(defaultResponses({ one: request(filled), two: request(open) })).toBeUndefined();
  expect(defaultResponses({ one: request(form({ a: { type: "nonsense" } })) })).toBeUndefined();
});
