import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { parseJsonExactly } from "../../json.ts";
import { FirstAnswer } from "./first-answer.ts";

const answer = { status: "success", result: { a: [1, { b: '}"{' }], 键: "值\n" }, requestId: "t1" };
const compact = JSON.stringify(answer);
const pretty = JSON.stringify(answer, null, 2);

const found = (...parts: readonly string[]): unknown => {
  const first = new FirstAnswer();
  for (const part of parts) first.add(part);
  return first.found;
};

describe(`the first answer on stdout ${verifies("VCP-5")}`, () => {
  test.for([
    ["alone", compact],
    ["without a line break at its end, and more after it", `${compact} working…`],
    ["over several lines", `${pretty}\nworking\n`],
    ["after a line with an open brace", `Loading { of settings\n${compact}\n`],
    ["after what looks like JSON to its end of line", `{"progress":\n${compact}\n`],
    ["after log text that begins an object", `Request: {"a": [1, \n${compact}\n`],
    ["after a text that is not closed", `got {"prompt": "a long\n${compact}`],
    ["after other objects", `{"level":"info","status":"ok"}\n{}\n[{}]\n{"a":{"b":1}}${compact}`],
    ["after an object in the way of JavaScript", `[debug] { id: 1, name: 'x' }\n${pretty}`],
    ["in the middle of a line", `started ${compact}`],
    ["after a quotation mark and a brace", `he said {" ${compact}`],
  ])("is found %s", ([, text]) => {
    expect(found(text ?? "")).toEqual(answer);
  });

  test("is found as soon as its last character is there, however it is cut", () => {
    const log = 'a { b " {"x": \n';
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }), fc.boolean(), (sizes, isPretty) => {
        const text = `${log}${isPretty ? pretty : compact}`;
        const first = new FirstAnswer();
        for (let at = 0, turn = 0; at < text.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1;
          expect(first.found).toBeUndefined();
          first.add(text.slice(at, at + size));
          at += size;
        }
        expect(first.found).toEqual(answer);
      }),
    );
  });

  test("is the first one; what is said later changes nothing", () => {
    const first = new FirstAnswer();
    expect(first.add(`${compact}\n`)).toEqual(answer);
    expect(first.add('{"status":"error","error":"late"}')).toEqual(answer);
  });

  test.for([
    ['{"status":"ok"}'],
    ['{"result":1}'],
    ['["status","success"]'],
    ['{"status":"success"'],
    ["{'status':'success'}"],
    ['{"status":"success",}'],
    ['{"status":"success"]'],
    ['{"status" "success"}'],
    ["plain"],
    [""],
  ])("is not %j", ([text]) => {
    expect(found(text ?? "")).toBeUndefined();
  });

  test("needs no status where it names its task or speaks to the model", () => {
    expect(found('{"requestId":"t1"}')).toEqual({ requestId: "t1" });
    expect(found('{"messageForAI":"submitted"}')).toEqual({ messageForAI: "submitted" });
    expect(found('{"requestId":""}')).toBeUndefined();
  });

  test("of any JSON before and after it is found by any reader of JSON, too", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (before, result) => {
        const said = { status: "success", result };
        const noise = JSON.stringify({ before }, null, 1);
        const text = JSON.stringify(said, null, 2);
        expect(found(`${noise}\n${text}\n`)).toEqual(parseJsonExactly(text));
      }),
    );
  });

  test("is found in time that grows with the text alone", () => {
    const hostile = [
      '{"a":'.repeat(50_000),
      "{".repeat(200_000),
      '{"{":",",":":",",'.repeat(15_000),
      `{"${"x{".repeat(80_000)}`,
      `${'{"a":1'.repeat(40_000)}`,
      "{\n".repeat(100_000),
    ];
    for (const text of hostile) {
      const steps = countSteps(() => expect(found(`${text}\n${compact}\n`)).toEqual(answer));
      expect(steps).toBeLessThan(300 * (text.length + compact.length));
    }
  });
});

/** Looks at characters, which do not depend on how busy the machine is. */
function countSteps(work: () => void): number {
  const original = String.prototype.charAt;
  let steps = 0;
  String.prototype.charAt = function charAt(this: string, at: number): string {
    steps += 1;
    return original.call(this, at);
  };
  try {
    work();
  } finally {
    String.prototype.charAt = original;
  }
  return steps;
}
