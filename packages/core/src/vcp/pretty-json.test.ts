import { describe, expect, test } from "vitest";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { resultOf } from "./dialect/results.ts";
import { outcomeOfStdout } from "./plugins/outcome.ts";
import { toToolReply } from "./plugins/reply.ts";
import { prettyJson } from "./pretty-json.ts";

/** A list within so many others. */
const nested = (levels: number, items: string): string => "[".repeat(levels) + items + "]".repeat(levels);
const ones = (many: number): string => Array(many).fill("1").join(",");

const replyTo = (answer: string): ReturnType<typeof toToolReply> => {
  const exit = { stdout: answer, stderr: "", exitCode: 0, ended: "exit" } as const;
  return toToolReply("Deep", outcomeOfStdout({ name: "Deep", at: new Date(0) }, exit, 1_000));
};
const resultFrom = (text: string): ReturnType<typeof resultOf> =>
  resultOf({
    name: "Host",
    outcome: { kind: "completed", text, mediaType: "application/json" },
    isOfPlugin: false,
    at: new Date(0),
  });

describe(`results that would be mostly blanks ${verifies("VCP-4")}`, () => {
  const deep = `{"a":${nested(900, ones(5_000))}}`;

  test("are written without any: a plugin's, and those of other tools", () => {
    const { body } = replyTo(`{"status":"success","result":${deep}}`);
    expect(String(body).startsWith(deep.slice(0, -1))).toBe(true);
    expect(body.length).toBeLessThan(deep.length + 200);
    const { parts } = resultFrom(deep);
    expect(JSON.stringify(parts).length).toBeLessThan(deep.length + 200);
  });

  test("and so are long lists that lie deep", () => {
    const long = nested(60, ones(50_000));
    expect(prettyJson(JSON.parse(long) as JsonValue).length).toBe(long.length);
  });

  test("are indented otherwise", () => {
    expect(prettyJson({ a: [1, { b: [] }] })).toBe('{\n  "a": [\n    1,\n    {\n      "b": []\n    }\n  ]\n}');
  });
});

describe(`results that are nested too deep to be written ${verifies("VCP-4")}`, () => {
  const deep = `{"a":${nested(200_000, "")}}`;

  test.each([
    `{"status":"success","result":${deep}}`,
    `{"status":"error","error":${deep}}`,
    `{"status":"success","messageForAI":"m","result":{"content":[${deep}]}}`,
    `{"status":"error","code":${deep}}`,
  ])("are failures of the tool: %#", (answer) => {
    const reply = (): unknown => replyTo(answer);
    expect(reply).toThrow(GatewayError);
    expect(reply).toThrow(expect.objectContaining({ code: "tool_failed" }));
  });

  test("are errors that a model reads", () => {
    const result = resultFrom(deep);
    expect(result.end).toBe("failed");
    expect(JSON.stringify(result.value)).toContain("nested deeper");
    expect(JSON.stringify(result.parts)).toContain("nested deeper");
  });
});
