import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import {
  mostToolCalls,
  ToolCallAssembly,
  TooManyToolCalls,
  type AssembledTurn,
  type ToolCallDelta,
} from "./tool-call-assembly.ts";

interface Assembled {
  readonly calls: readonly (readonly [name: string, text: string])[];
  readonly ids: readonly string[];
  readonly deltas: readonly ToolCallDelta[];
  readonly turn: AssembledTurn;
}

/** Each item is the `tool_calls` of one delta. */
function assemble(...deltas: readonly JsonValue[]): Assembled {
  const assembly = new ToolCallAssembly();
  const early = deltas.flatMap((delta) => assembly.push(delta));
  const turn = assembly.finish();
  const all = [...early, ...turn.deltas];
  expectStrictForm(all, turn);
  return {
    calls: turn.calls.map((call) => [call.name, call.arguments]),
    ids: turn.calls.map((call) => call.id),
    deltas: all,
    turn,
  };
}

/** What leaves is what OpenAI's clients are written for, and adds up to the calls. */
function expectStrictForm(deltas: readonly ToolCallDelta[], { calls, wire }: AssembledTurn): void {
  const heads = deltas.filter((delta) => delta.id !== undefined || delta.name !== undefined);
  expect(heads.map((delta) => delta.index)).toEqual(heads.map((_delta, at) => at));
  const joined = heads.map(({ index, id, name }) => ({
    id,
    name,
    text: deltas.map((delta) => (delta.index === index ? delta.arguments : "")).join(""),
  }));
  expect(joined).toEqual(calls.map(({ id, name, arguments: text }) => ({ id, name, text })));
  // The head comes first, and nothing is said of a call that has none.
  expect(deltas.every((delta) => deltas.find((other) => other.index === delta.index)?.id !== undefined)).toBe(true);
  expect(new Set(calls.map((call) => call.id)).size).toBe(calls.length);
  expect(calls.every((call) => call.id !== "")).toBe(true);
  expect(wire.map((call) => call["id"])).toEqual(calls.map((call) => call.id));
}

/** An entry of `tool_calls`; undefined fields are left out. */
function piece(fields: { index?: number | null; id?: JsonValue; name?: JsonValue; args?: JsonValue }): JsonObject {
  const described: JsonObject = {};
  if (fields.name !== undefined) described["name"] = fields.name;
  if (fields.args !== undefined) described["arguments"] = fields.args;
  return {
    ...(fields.index === undefined ? {} : { index: fields.index }),
    ...(fields.id === undefined ? {} : { id: fields.id, type: "function" }),
    function: described,
  };
}

describe(`tool calls out of deltas ${verifies("CHAT-3")}`, () => {
  test("joins the pieces of two calls that come in the strict form", () => {
    const { calls, ids, deltas } = assemble(
      [piece({ index: 0, id: "a", name: "get_weather", args: "" })],
      [piece({ index: 0, args: '{"city":' })],
      [piece({ index: 0, args: '"北京"}' })],
      [piece({ index: 1, id: "b", name: "get_time", args: '{"zone"' })],
      [piece({ index: 1, args: ':"UTC"}' })],
    );
    expect(calls).toEqual([
      ["get_weather", '{"city":"北京"}'],
      ["get_time", '{"zone":"UTC"}'],
    ]);
    expect(ids).toEqual(["a", "b"]);
    expect(deltas.map((delta) => delta.arguments)).toEqual(['{"city":', '"北京"}', '{"zone"', ':"UTC"}']);
  });

  test("shows a call's name before its arguments are complete", () => {
    const assembly = new ToolCallAssembly();
    expect(assembly.push([piece({ index: 0, id: "a", name: "f", args: '{"x":' })])).toEqual([
      { index: 0, id: "a", name: "f", arguments: '{"x":' },
    ]);
    expect(assembly.push([piece({ index: 0, args: "1}" })])).toEqual([{ index: 0, arguments: "1}" }]);
  });

  test("joins pieces of calls that come interleaved", () => {
    const { calls } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"x"' }), piece({ index: 1, id: "b", name: "g", args: '{"y"' })],
      [piece({ index: 1, args: ":2}" }), piece({ index: 0, args: ":1}" })],
    );
    expect(calls).toEqual([
      ["f", '{"x":1}'],
      ["g", '{"y":2}'],
    ]);
  });

  test("tells calls apart without an index", () => {
    const { calls } = assemble([
      piece({ id: "call_1", name: "get_weather", args: '{"city":"北京"}' }),
      piece({ id: "call_2", name: "get_weather", args: '{"city":"广州"}' }),
    ]);
    expect(calls).toEqual([
      ["get_weather", '{"city":"北京"}'],
      ["get_weather", '{"city":"广州"}'],
    ]);
  });

  test("goes on with the current call where the index is null", () => {
    const { calls } = assemble(
      [piece({ index: null, id: "call_1", name: "get_weather", args: '{"city":' })],
      [piece({ index: null, args: '"北京"}' })],
    );
    expect(calls).toEqual([["get_weather", '{"city":"北京"}']]);
  });

  test("tells calls apart without index and id, in one delta and in several", () => {
    const equal = [piece({ name: "f", args: '{"x":1}' }), piece({ name: "f", args: '{"x":1}' })];
    expect(assemble(equal).calls).toHaveLength(2);
    expect(assemble([equal[0] ?? null], [equal[1] ?? null]).calls).toHaveLength(2);
    expect(assemble([piece({ id: "", name: "f", args: "" }), piece({ id: "", name: "f", args: "" })]).calls).toEqual([
      ["f", "{}"],
      ["f", "{}"],
    ]);
  });

  test("tells calls apart that all have index 0", () => {
    const withIds = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"x":1}' })],
      [piece({ index: 0, id: "b", name: "f", args: '{"x":2}' })],
      [piece({ index: 0, id: "c", name: "g", args: "{}" })],
    );
    expect(withIds.calls).toEqual([
      ["f", '{"x":1}'],
      ["f", '{"x":2}'],
      ["g", "{}"],
    ]);
    const withoutIds = assemble(
      [piece({ index: 0, name: "f", args: { x: 1 } })],
      [piece({ index: 0, name: "f", args: {} })],
      [piece({ index: 0, name: "f", args: { x: 2 } })],
      [piece({ index: 0, name: "g", args: { y: 3 } })],
    );
    expect(withoutIds.calls).toEqual([
      ["f", '{"x":1}'],
      ["f", "{}"],
      ["f", '{"x":2}'],
      ["g", '{"y":3}'],
    ]);
  });

  test("follows a call whose head and tail have different indexes but one id", () => {
    const { calls } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"x":1}' })],
      [piece({ index: 0, id: "b", name: "g", args: '{"y":' })],
      [piece({ index: 1, id: "b", args: "2" })],
      [piece({ index: 1, args: "}" })],
    );
    expect(calls).toEqual([
      ["f", '{"x":1}'],
      ["g", '{"y":2}'],
    ]);
  });

  test("takes ids and names that are repeated with every piece for one call", () => {
    const { calls, deltas } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: "" })],
      [piece({ index: 0, id: "a", name: "f", args: '{"x":' })],
      [piece({ index: 0, id: "a", name: "f", args: "1}" })],
      [piece({ index: 0, id: "a", name: "f", args: "" })],
    );
    expect(calls).toEqual([["f", '{"x":1}']]);
    expect(deltas.filter((delta) => delta.id !== undefined)).toHaveLength(1);
  });

  test("takes names that are repeated with every piece for one call without an id too", () => {
    expect(
      assemble(
        [piece({ index: 0, name: "f", args: '{"x":' })],
        [piece({ index: 0, name: "f", args: "1}" })],
        [piece({ index: 0, name: "f", args: "" })],
      ).calls,
    ).toEqual([["f", '{"x":1}']]);
    const twoCalls = assemble(
      [piece({ index: 0, name: "f", args: '{"x":1}' })],
      [piece({ index: 0, name: "f", args: "" })],
      [piece({ index: 0, args: '{"x":' })],
      [piece({ index: 0, args: "2}" })],
    );
    expect(twoCalls.calls).toEqual([
      ["f", '{"x":1}'],
      ["f", '{"x":2}'],
    ]);
  });

  test("takes empty ids and names, and null arguments, for absent ones", () => {
    const { calls, ids } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: null })],
      [piece({ index: 0, id: "", name: "", args: '{"x":1}' })],
      [piece({ index: 0, id: null, name: null, args: null })],
    );
    expect(calls).toEqual([["f", '{"x":1}']]);
    expect(ids).toEqual(["a"]);
  });

  test("follows a call whose id changes with every piece", () => {
    const { calls, ids } = assemble(
      [piece({ index: 0, id: "r1", name: "f" })],
      [piece({ index: 0, id: "r2", args: '{"x":' })],
      [piece({ index: 0, id: "r3", args: "" })],
      [piece({ index: 0, id: "r4", args: "1}" })],
      [piece({ index: 1, id: "r5", name: "g", args: "{}" })],
    );
    expect(calls).toEqual([
      ["f", '{"x":1}'],
      ["g", "{}"],
    ]);
    expect(ids).toEqual(["r1", "r5"]);
  });

  test("waits for a late name, a late id, and both", () => {
    expect(
      assemble(
        [piece({ index: 0, id: "a", args: "" })],
        [piece({ index: 0, args: '{"x":1}' })],
        [piece({ index: 0, name: "f" })],
      ).calls,
    ).toEqual([["f", '{"x":1}']]);
    const lateHead = assemble(
      [piece({ index: 0, args: '{"x":1}' })],
      [piece({ index: 0, id: "late", name: "f", args: "" })],
    );
    expect([lateHead.calls, lateHead.ids]).toEqual([[["f", '{"x":1}']], ["late"]]);
    const lateId = assemble([piece({ index: 0, name: "f" })], [piece({ index: 0, id: "late", args: '{"x":1}' })]);
    expect([lateId.calls, lateId.ids]).toEqual([[["f", '{"x":1}']], ["late"]]);
  });

  test("keeps the order of first appearance when a later call is ready first", () => {
    const { calls } = assemble(
      [piece({ index: 0, id: "a", args: '{"x":1}' })],
      [piece({ index: 1, id: "b", name: "g", args: '{"y":2}' })],
      [piece({ index: 0, name: "f" })],
    );
    expect(calls).toEqual([
      ["f", '{"x":1}'],
      ["g", '{"y":2}'],
    ]);
  });

  test("joins a name that comes in pieces or longer each time", () => {
    expect(
      assemble([piece({ index: 0, id: "a", name: "get_" })], [piece({ index: 0, name: "weather", args: "{}" })]).calls,
    ).toEqual([["get_weather", "{}"]]);
    expect(
      assemble([piece({ index: 0, id: "a", name: "get" })], [piece({ index: 0, id: "a", name: "get_weather" })]).calls,
    ).toEqual([["get_weather", "{}"]]);
  });

  test("drops a finished call that is sent again under a second index", () => {
    const text = '{"sku":"S1","qty":1}';
    const first = piece({ index: 0, id: "call_7", name: "create_order", args: text });
    const once = [["create_order", text]];
    for (const again of [
      [[piece({ index: 1, id: "call_7", name: "create_order", args: text })]],
      [[piece({ index: 0, id: "call_7", name: "create_order", args: text })]],
      [[piece({ id: "call_7", name: "create_order", args: { qty: 1, sku: "S1" } })]],
      [[piece({ index: 1, id: "call_7", name: "create_order", args: "" })], [piece({ index: 1, args: text })]],
      [
        [piece({ index: 1, id: "call_7", name: "create_order", args: text.slice(0, 8) })],
        [piece({ index: 1, args: text.slice(8) })],
      ],
      // Cut off in the middle of the repetition.
      [[piece({ index: 1, id: "call_7", name: "create_order", args: text.slice(0, 8) })]],
      [[piece({ index: 1, id: "call_7", name: "create_order", args: "{}" })]],
      // Converters that end a call by saying its arguments once more.
      [[piece({ index: 0, args: text })]],
      [[piece({ args: text })], [piece({ args: text })]],
    ]) {
      expect([again, assemble([first], ...again).calls]).toEqual([again, once]);
    }
    expect(assemble([first, piece({ index: 1, id: "call_7", name: "create_order", args: text })]).calls).toEqual(once);
  });

  test("goes on with further calls after a repetition", () => {
    const { calls, ids } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"x":1}' })],
      [piece({ index: 1, id: "a", name: "f", args: '{"x":1}' })],
      [piece({ index: 2, id: "b", name: "f", args: '{"x":1}' })],
    );
    expect(calls).toHaveLength(2);
    expect(ids).toEqual(["a", "b"]);
  });

  test("runs two calls with equal arguments where their ids differ", () => {
    const { ids } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"x":1}' })],
      [piece({ index: 1, id: "b", name: "f", args: '{"x":1}' })],
    );
    expect(ids).toEqual(["a", "b"]);
  });

  test("gives a new id to another call under an id that is taken", () => {
    for (const second of [
      piece({ index: 1, id: "same", name: "g", args: '{"x":1}' }),
      piece({ index: 1, id: "same", name: "f", args: '{"x":2}' }),
    ]) {
      const { calls, ids } = assemble([piece({ index: 0, id: "same", name: "f", args: '{"x":1}' })], [second]);
      expect(calls).toHaveLength(2);
      expect(ids[0]).toBe("same");
      expect(ids[1]).toMatch(/^call_[0-9a-f]{24}$/);
    }
  });

  test("never lets a call pass for good that has more after its arguments", () => {
    const { calls } = assemble(
      [piece({ index: 0, id: "a", name: "f", args: '{"path":"/data"}' })],
      [piece({ index: 0, args: '{"path":"/tmp"}' })],
    );
    expect(calls).toEqual([["f", '{"path":"/data"}{"path":"/tmp"}']]);
  });

  test("takes a leading {} for a placeholder only if more follows", () => {
    for (const placeholder of ["{}", " { } ", "{}\n", "null"]) {
      const { calls, deltas } = assemble(
        [piece({ index: 0, id: "a", name: "f", args: placeholder })],
        [piece({ index: 0, args: '{"city":' })],
        [piece({ index: 0, args: '"北京"}' })],
      );
      expect(calls).toEqual([["f", '{"city":"北京"}']]);
      expect(deltas.map((delta) => delta.arguments).join("")).toBe('{"city":"北京"}');
    }
    expect(assemble([piece({ index: 0, id: "a", name: "f", args: '{}{"city":1}' })]).calls).toEqual([
      ["f", '{"city":1}'],
    ]);
    expect(
      assemble(
        [piece({ index: 0, id: "a", name: "f", args: {} })],
        [piece({ index: 0, id: "a", name: "f", args: { x: 1 } })],
      ).calls,
    ).toEqual([["f", '{"x":1}']]);
    expect(assemble([piece({ index: 0, id: "a", name: "f", args: "{}" })]).calls).toEqual([["f", "{}"]]);
    expect(
      assemble([piece({ index: 0, id: "a", name: "f", args: "{}" })], [piece({ index: 0, args: "{}" })]).calls,
    ).toEqual([["f", "{}"]]);
  });

  test("takes blank and null arguments for none", () => {
    for (const none of ["", "  ", "\n", null, "null", " null "]) {
      expect(assemble([piece({ index: 0, id: "a", name: "f", args: none })]).calls).toEqual([["f", "{}"]]);
    }
    expect(assemble([piece({ index: 0, id: "a", name: "f" })]).calls).toEqual([["f", "{}"]]);
  });

  test("leaves arguments that do not parse as the model wrote them", () => {
    for (const text of ['{"path":"report.md","content":"# Ti', "{", '{"a":1}}', "[1", "nu", '{"a":"\\', "rm -rf"]) {
      expect(assemble([piece({ index: 0, id: "a", name: "f", args: text })]).calls).toEqual([["f", text]]);
    }
  });

  test("does not take a bracket in a string for the end of the arguments", () => {
    const text = '{"code":"if (x) { y(\\"}\\") }","n":[1,{"a":{}}]}';
    const { calls } = assemble(
      [piece({ index: 0, name: "f", args: text.slice(0, 25) })],
      [piece({ index: 0, name: "f", args: text.slice(25) })],
    );
    expect(calls).toEqual([["f", text]]);
  });

  test("writes arguments that come as an object as text", () => {
    expect(assemble([piece({ index: 0, id: "a", name: "f", args: { city: "北京", n: [1] } })]).calls).toEqual([
      ["f", '{"city":"北京","n":[1]}'],
    ]);
  });

  test("leaves out what never got a name", () => {
    expect(
      assemble([piece({ index: 0, id: "a", args: "{}" })], [piece({ index: 1, id: "b", name: "f" })]).calls,
    ).toEqual([["f", "{}"]]);
  });

  test("keeps unknown fields of a call and of its function for the next turn", () => {
    const { turn } = assemble(
      [
        {
          index: 0,
          id: "a",
          type: "function",
          function: { name: "f", arguments: "{}", hint: "h" },
          extra_content: { google: { thought_signature: "sig==" } },
        },
      ],
      [{ index: 0, function: { arguments: "" }, extra_content: { google: { thought_signature: "sig==", more: 1 } } }],
    );
    const extra = { extra_content: { google: { thought_signature: "sig==", more: 1 } } };
    expect(turn.calls).toEqual([{ id: "a", name: "f", arguments: "{}", extra }]);
    expect(turn.wire).toEqual([
      { id: "a", type: "function", function: { hint: "h", name: "f", arguments: "{}" }, ...extra },
    ]);
  });

  test.each(['{"q": "x', "[1]", "7", '"q"', "{'q': 1}", '{"q":1} and more'])(
    "arguments that are no JSON object go back inside of one: %s",
    (text) => {
      const { turn } = assemble([{ index: 0, id: "a", function: { name: "f", arguments: text } }]);
      expect(turn.calls).toMatchObject([{ arguments: text }]);
      expect(turn.wire).toEqual([
        { id: "a", type: "function", function: { name: "f", arguments: JSON.stringify({ invalid_arguments: text }) } },
      ]);
    },
  );

  test("sends unknown fields of a call on once, with the piece that has them", () => {
    const extra_content = { google: { thought_signature: "sig==" } };
    const { deltas } = assemble(
      [{ index: 0, id: "a", function: { name: "f", arguments: '{"x":' }, extra_content }],
      [{ index: 0, function: { arguments: "1}" }, extra_content, late: "l" }],
      [{ index: 1, id: "b", function: { name: "g", arguments: "{}" } }],
    );
    expect(deltas.flatMap(({ index, extra }) => (extra === undefined ? [] : [[index, extra]]))).toEqual([
      [0, { extra_content }],
      [0, { late: "l" }],
    ]);
  });

  test("is not misled by fields named like parts of objects", () => {
    const source = JSON.parse(
      '{"index":0,"id":"a","__proto__":{"x":1},"constructor":1,"function":{"name":"f","arguments":"{}","__proto__":{}}}',
    ) as JsonObject;
    const { turn } = assemble([source]);
    expect(Object.getPrototypeOf(turn.calls[0]?.extra)).toBe(Object.prototype);
    expect(turn.calls[0]?.extra).toEqual({ constructor: 1 });
  });

  test("maps the deprecated function_call to one call", () => {
    const assembly = new ToolCallAssembly();
    const early = [
      ...assembly.pushLegacy({ name: "get_weather", arguments: "" }),
      ...assembly.pushLegacy({ arguments: '{"city":' }),
      ...assembly.pushLegacy({ name: "get_weather", arguments: '"x"}' }),
      ...assembly.push([piece({ index: 0, id: "a", name: "get_weather", args: '{"city":"x"}' })]),
    ];
    const turn = assembly.finish();
    expectStrictForm([...early, ...turn.deltas], turn);
    expect(turn.calls.map((call) => [call.name, call.arguments])).toEqual([["get_weather", '{"city":"x"}']]);
  });

  test("does not take an empty function_call beside tool_calls for a call", () => {
    const assembly = new ToolCallAssembly();
    for (const empty of [{}, { name: "", arguments: "" }, null, "x"]) expect(assembly.pushLegacy(empty)).toEqual([]);
    assembly.push([piece({ index: 0, id: "a", name: "f", args: "{}" })]);
    expect(assembly.finish().calls.map((call) => call.id)).toEqual(["a"]);
  });

  test("passes the input of custom tools on as text that is no JSON", () => {
    const { turn } = assemble(
      [{ index: 0, id: "a", type: "custom", custom: { name: "sql", input: "{}" } }],
      [{ index: 0, custom: { input: " select 1" } }],
    );
    expect(turn.calls).toEqual([{ id: "a", name: "sql", arguments: "{} select 1", extra: { type: "custom" } }]);
    expect(turn.wire).toEqual([{ id: "a", type: "custom", custom: { name: "sql", input: "{} select 1" } }]);
  });

  test("survives entries that are no calls", () => {
    expect(assemble(null, "x", 1, [], {}, [null, 1, "x", [], {}], [{ function: null, index: "0" }]).calls).toEqual([]);
  });

  test("takes ten thousand small pieces in reasonable time and memory", () => {
    const assembly = new ToolCallAssembly();
    assembly.push([piece({ index: 0, id: "a", name: "f", args: '{"t":"' })]);
    let sent = 0;
    for (let at = 0; at < 10_000; at += 1) sent += assembly.push([piece({ index: 0, args: "ab } {" })]).length;
    assembly.push([piece({ index: 0, args: '"}' })]);
    expect(sent).toBe(10_000);
    expect(assembly.finish().calls[0]?.arguments).toHaveLength(60_000 + 8);
  });
});

// Properties

const argumentsJson = fc.oneof(
  fc.constant("{}"),
  fc
    .dictionary(
      fc.constantFrom("a", "b", "city", "}{"),
      fc.oneof(fc.string({ maxLength: 8 }), fc.integer(), fc.constant({ z: [] })),
      {
        minKeys: 1,
      },
    )
    .map((value) => JSON.stringify(value)),
);
const wantedCalls = fc.array(
  fc.record({ name: fc.constantFrom("f", "get_weather", "write_file"), text: argumentsJson }),
  {
    minLength: 1,
    maxLength: 4,
  },
);

/** How a back end writes a call: its head, and each further piece of the arguments. */
interface Style {
  readonly head: (at: number, name: string) => Parameters<typeof piece>[0];
  readonly tail: (at: number, name: string) => Parameters<typeof piece>[0];
  /** The arguments come in one piece. */
  readonly isWhole?: boolean;
  readonly isInterleavable?: boolean;
  readonly before?: string;
}
const id = (at: number): string => `call_${at}`;
const styles: Readonly<Record<string, Style>> = {
  strict: {
    head: (index, name) => ({ index, id: id(index), name }),
    tail: (index) => ({ index }),
    isInterleavable: true,
  },
  repeating: {
    head: (index, name) => ({ index, id: id(index), name }),
    tail: (index, name) => ({ index, id: id(index), name }),
    isInterleavable: true,
  },
  emptying: {
    head: (index, name) => ({ index, id: id(index), name }),
    tail: (index) => ({ index, id: "", name: "" }),
    isInterleavable: true,
  },
  "without index": { head: (at, name) => ({ id: id(at), name }), tail: () => ({}) },
  "null index": { head: (at, name) => ({ index: null, id: id(at), name }), tail: () => ({ index: null }) },
  "index 0": { head: (at, name) => ({ index: 0, id: id(at), name }), tail: () => ({ index: 0 }) },
  "without id": { head: (index, name) => ({ index, name }), tail: (index) => ({ index }), isInterleavable: true },
  "index 0 without id": { head: (_at, name) => ({ index: 0, name }), tail: () => ({ index: 0 }), isWhole: true },
  bare: { head: (_at, name) => ({ name }), tail: () => ({}), isWhole: true },
  placeholder: {
    head: (index, name) => ({ index, id: id(index), name }),
    tail: (index) => ({ index }),
    isInterleavable: true,
    before: "{}",
  },
};

describe(`tool calls in any pieces ${verifies("CHAT-3")}`, () => {
  test.each(Object.keys(styles))("are the same calls however they are cut (%s)", (styleName) => {
    const style = styles[styleName];
    if (style === undefined) throw new Error("no such style");
    fc.assert(
      fc.property(
        wantedCalls,
        fc.array(fc.nat(60), { maxLength: 8 }),
        fc.infiniteStream(fc.nat(3)),
        (wanted, cuts, choices) => {
          const queues = wanted.map(({ name, text }, at) => {
            const parts = style.isWhole === true ? [text] : cut((style.before ?? "") + text, cuts);
            return parts.map((args, position) =>
              position === 0 ? piece({ ...style.head(at, name), args }) : piece({ ...style.tail(at, name), args }),
            );
          });
          const entries = style.isInterleavable === true ? interleave(queues, choices) : queues.flat();
          const { calls } = assemble(...group(entries, choices, style.isWhole === true));
          expect(calls).toEqual(wanted.map(({ name, text }) => [name, text]));
        },
      ),
    );
  });

  test("are not run twice however the repetition of one is cut", () => {
    fc.assert(
      fc.property(
        argumentsJson,
        fc.array(fc.nat(60)),
        fc.array(fc.nat(60)),
        fc.boolean(),
        (text, cuts, cutsAgain, repeatsHead) => {
          const write = (index: number, at: readonly number[]): JsonObject[] =>
            cut(text, at).map((args, position) =>
              piece(position === 0 || repeatsHead ? { index, id: "a", name: "f", args } : { index, args }),
            );
          const { calls } = assemble(...[...write(0, cuts), ...write(1, cutsAgain)].map((entry) => [entry]));
          expect(calls).toEqual([["f", text]]);
        },
      ),
    );
  });

  test("are never lost in an exception, whatever comes", () => {
    const anyPiece = fc.record(
      {
        index: fc.constantFrom(0, 1, 2, null, "0", -1, 1.5),
        id: fc.constantFrom("a", "b", "", null, 7, {}),
        type: fc.constantFrom("function", "custom", "", null),
        function: fc.record(
          {
            name: fc.constantFrom("f", "g", "", null, 3),
            arguments: fc.constantFrom("{}", '{"a"', ":1}", "", null, "x", [], { b: 1 }),
          },
          { requiredKeys: [] },
        ),
        custom: fc.constantFrom({ name: "c", input: "i" }, null),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.array(fc.array(anyPiece, { maxLength: 3 }), { maxLength: 12 }), (deltas) => {
        const { calls } = assemble(...(deltas as JsonValue[]));
        for (const [name] of calls) expect(name).not.toBe("");
      }),
    );
  });
});

function cut(text: string, positions: readonly number[]): string[] {
  const cuts = [...new Set(positions)].filter((at) => at > 0 && at < text.length).sort((a, b) => a - b);
  return [0, ...cuts].map((from, at) => text.slice(from, cuts[at] ?? text.length));
}

/** Pieces of several calls in turn, the order within each call and of their heads kept. */
function interleave(queues: readonly JsonObject[][], choices: fc.Stream<number>): JsonObject[] {
  const heads = queues.flatMap((queue) => queue.slice(0, 1));
  const rests = queues.map((queue) => queue.slice(1)).filter((queue) => queue.length > 0);
  const entries = [...heads];
  while (rests.length > 0) {
    const at = (choices.next().value ?? 0) % rests.length;
    const [next] = rests[at]?.splice(0, 1) ?? [];
    if (next !== undefined) entries.push(next);
    if (rests[at]?.length === 0) rests.splice(at, 1);
  }
  return entries;
}

/** Entries as the lists of deltas, one or several in each. */
function group(entries: readonly JsonObject[], choices: fc.Stream<number>, isWhole: boolean): JsonValue[] {
  const deltas: JsonValue[] = [];
  let current: JsonValue[] = [];
  for (const entry of entries) {
    current.push(entry);
    // Several pieces of one call in one list are not written by anybody.
    if (!isWhole || (choices.next().value ?? 0) > 0) {
      deltas.push(current);
      current = [];
    }
  }
  if (current.length > 0) deltas.push(current);
  expect(deltas.flat().every(isJsonObject)).toBe(true);
  return deltas;
}

describe(`turns of unusual extent ${verifies("CHAT-3", "CHAT-12")}`, () => {
  const calls = (count: number): JsonObject[] =>
    Array.from({ length: count }, (_none, at) => piece({ index: at, id: `a${at}`, name: "f", args: `{"at":${at}}` }));

  test.each([
    ["in one delta", (all: readonly JsonObject[]) => [[...all]]],
    ["in a delta each", (all: readonly JsonObject[]) => all.map((one) => [one])],
  ])("have so many calls at most, %s; the same calls sent again are no more", (_name, deltasOf) => {
    const most = calls(mostToolCalls);
    const deltas = deltasOf([...most, ...most, ...most.map((one, at) => ({ ...one, index: mostToolCalls + at }))]);
    expect(assemble(...deltas).ids).toEqual(most.map(({ id }) => id));
    expect(() => assemble(...deltasOf(calls(mostToolCalls + 1)))).toThrow(TooManyToolCalls);
  });

  test("a finished call that is sent again and again, under ever other indexes, stays one call", () => {
    const again = Array.from({ length: 80_000 }, (_none, index) =>
      piece({ index, id: "a", name: "f", args: '{"x":1}' }),
    );
    expect(assemble(again).calls).toEqual([["f", '{"x":1}']]);
  });

  test("text after long arguments is compared with them once, and leaves the call garbled", () => {
    const long = JSON.stringify({ text: "x".repeat(2_000_000), list: Array.from({ length: 200_000 }, () => 0) });
    const rest = Array.from({ length: 2_000 }, () => piece({ index: 0, args: '{"x":1}' }));
    const [call] = assemble([piece({ index: 0, id: "a", name: "f", args: long })], rest).calls;
    expect(call?.[1]).toBe(long + '{"x":1}'.repeat(2_000));
  });

  test("a call sent again in another spelling is compared with what was read of the first", () => {
    const spelled = `{${" ".repeat(4_000_000)}"x":1}`;
    const again = Array.from({ length: 20_000 }, () => piece({ index: 0, id: "a", name: "f", args: '{"x": 1}' }));
    expect(assemble([piece({ index: 0, id: "a", name: "f", args: spelled })], again).calls).toHaveLength(1);
  });
});
