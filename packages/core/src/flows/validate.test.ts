import { describe, expect, test } from "vitest";
import type { JsonValue } from "../json.ts";
import { shippedFlows } from "./shipped/index.ts";
import { checkFlow, requireFlow } from "./validate.ts";

const flow = (nodes: JsonValue, rest: Record<string, JsonValue> = {}): JsonValue => ({
  schema_version: 1,
  name: "orders",
  description: "Takes in an order.",
  start: "first",
  nodes,
  ...rest,
});
const problems = async (given: JsonValue): Promise<Record<string, string>> =>
  Object.fromEntries((await checkFlow(given)).problems.map(({ pointer, message }) => [pointer, message]));

describe("definitions of flows", () => {
  test("all faults are told at once, each with its place", async () => {
    const found = await problems(
      flow(
        {
          first: { kind: "tool", uri: "invalid-uri", arguments: { a: [{ $: "1 +" }] }, next: "nowhere" },
          lost: { kind: "transform", expression: "$eval('1')" },
          each: {
            kind: "map",
            items: "no list",
            as: "input",
            body: { start: "gone", nodes: { first: { kind: "end", output: { $: 1 } } } },
          },
        },
        { input: { type: "object", properties: { a: { type: "nonsense" } } }, context: { tenantId: "ten_2" } },
      ),
    );
    expect(Object.keys(found).sort()).toEqual([
      "/context/tenantId",
      "/input",
      "/nodes/each",
      "/nodes/each/as",
      "/nodes/each/body/nodes/first",
      "/nodes/each/body/nodes/first/output/$",
      "/nodes/each/body/start",
      "/nodes/each/items",
      "/nodes/first/arguments/a/0/$",
      "/nodes/first/next",
      "/nodes/first/uri",
      "/nodes/lost",
      "/nodes/lost/expression",
    ]);
    expect(found["/nodes/first/uri"]).toContain("not a tool URI");
    expect(found["/nodes/first/arguments/a/0/$"]).toMatch(/character \d/);
    expect(found["/nodes/lost"]).toContain("never reached");
  });

  test.each<[string, JsonValue | undefined, Record<string, string>]>([
    ["is missing", undefined, { "/nodes/first/prompt": "is required" }],
    [
      "is of another type",
      5,
      { "/nodes/first/prompt": "is not valid: expected string, received number, or expected object, received number" },
    ],
    [
      "is an expression that is none",
      { $: 5 },
      { "/nodes/first/prompt/$": "is not valid: expected string, received number" },
    ],
  ])("a text or expression that %s is told what it has to be", async (_why, prompt, expected) => {
    const node = { kind: "agent", agent: "finder", ...(prompt === undefined ? {} : { prompt }) };
    expect(await problems(flow({ first: node }))).toEqual(expected);
  });

  test.each<[string, JsonValue]>([
    ["if", JSON.parse('{ "kind": "condition", "if": { "$": "true" }, "then": "last" }') as JsonValue],
    ["on", { kind: "switch", on: { $: "input.a" }, cases: {}, default: "last" }],
    ["expression", { kind: "transform", expression: { $: "1" }, next: "last" }],
  ])("says of '%s', which is an expression itself, that it is marked", async (field, first) => {
    expect(await problems(flow({ first, last: { kind: "end" } }))).toMatchObject({
      [`/nodes/first/${field}`]: 'is an expression itself: write its text alone, not in {"$": …}',
    });
  });

  test.each<[string, JsonValue, string]>([
    ["an unknown field", { first: { kind: "end", outputs: 1 } }, "/nodes/first/outputs"],
    ["an unknown kind", { first: { kind: "jump" } }, "/nodes/first/kind"],
    ["both address and name", { first: { kind: "tool", uri: "api://a/b", name: "c" } }, "/nodes/first/uri"],
    ["two ways to wait", { first: { kind: "wait", signal: "s", duration_ms: 1 } }, "/nodes/first/duration_ms"],
    ["no time", { first: { kind: "wait", until: "tomorrow" } }, "/nodes/first/until"],
    ["a day that there is not", { first: { kind: "wait", until: "2026-02-30T09:00:00Z" } }, "/nodes/first/until"],
    [
      "a form that is no object",
      { first: { kind: "approval", message: "?", form: { type: "string" } } },
      "/nodes/first/form/type",
    ],
  ])("%s is a fault", async (_what, nodes, pointer) => {
    expect(Object.keys(await problems(flow(nodes)))).toEqual([pointer]);
  });

  test("a node that cannot be read hides no fault of the others", async () => {
    const found = await problems(
      flow(
        {
          first: { kind: "tol", uri: "api://crm/a" },
          second: { kind: "tool", uri: "crm/b", arguments: { of: { $: "1 +" } }, next: "nowhere", on_error: "first" },
          third: { kind: "transform", expression: "steps.frist.output", next: "second" },
          each: {
            kind: "map",
            items: [1],
            body: { start: "first", nodes: { inner: { kind: "end", output: { $: "steps.first.output" } } } },
          },
        },
        { nmae: "x", context: { tenantId: "ten_2" } },
      ),
    );
    expect(Object.keys(found).sort()).toEqual([
      "/context/tenantId",
      "/nmae",
      "/nodes/each/body/start",
      "/nodes/first/kind",
      "/nodes/second/arguments/of/$",
      "/nodes/second/next",
      "/nodes/second/uri",
      "/nodes/third/expression",
    ]);
    expect(found["/nodes/third/expression"]).toContain("is 'first' meant?");
  });

  test.each<[string, JsonValue]>([
    ["no object", "text"],
    ["no nodes", { start: "a" }],
    ["nodes that are a list", { nodes: [1] }],
    [
      "names that name no node",
      { nodes: { "": { kind: "end" }, __proto__: 1, constructor: { kind: "end" } }, start: 5 },
    ],
  ])("%s: what can be read is looked at, and it is no flow", async (_name, given) => {
    const { definition, problems: found } = await checkFlow(given);
    expect([definition, found.length > 0]).toEqual([undefined, true]);
  });

  test("a way back needs a wait on it", async () => {
    const poll = { kind: "tool", name: "ask", next: "ready" };
    // oxlint-disable-next-line unicorn/no-thenable -- a node, never awaited
    const ready = { kind: "condition", if: "steps.first.output.ready", then: "done", else: "pause" };
    const done = { kind: "end" };
    const pause = { kind: "wait", duration_ms: 1_000, next: "first" };
    expect(await problems(flow({ first: poll, ready, done, pause }))).toEqual({});
    const rush = { kind: "transform", expression: "1", next: "first" };
    expect(Object.keys(await problems(flow({ first: poll, ready, done, pause: rush })))).toEqual(["/nodes/pause/next"]);
  });

  test("a step that there is not is found wherever an expression names it, with the nearest name", async () => {
    const found = await problems(
      flow(
        {
          first: { kind: "tool", name: "find", arguments: { a: { $: "steps.frist.output" } }, next: "each" },
          each: {
            kind: "map",
            items: { $: "$lookup(steps.first.output, 'lines')[steps.nope]" },
            body: {
              start: "book",
              nodes: {
                book: { kind: "transform", expression: "[steps.first.output, steps.book.output, $$.steps.boook]" },
              },
              output: { $: "steps.book.output" },
            },
            next: "last",
          },
          last: { kind: "end", output: { text: { $: "'no ' & steps.book.output & $steps.`what else`.error" } } },
        },
        { context: { early: { $: "steps.first.output" } } },
      ),
    );
    expect(found).toEqual({
      "/nodes/first/arguments/a/$": "names the step 'frist', which there is not; is 'first' meant? (character 11)",
      "/nodes/each/body/nodes/book/expression":
        "names the step 'boook', which there is not; is 'book' meant? (character 54)",
      "/nodes/last/output/text/$":
        "names the step 'what else', which there is not; there are first, each, last (character 46)",
      "/context/early/$": "names the step 'first', which is /nodes/first and cannot be seen from here (character 11)",
    });
  });

  test.each([
    "input.orders.steps.nope",
    "input.orders[steps.nope]",
    "input.orders.{'a': steps.nope}",
    "input.orders{steps.nope: 1}",
    "input.orders^(steps.nope)",
    "steps.*.output",
    "$keys(steps)",
    "($steps := input; $steps.nope)",
    "$map(input.orders, function($steps) { $steps.nope })",
  ])("%s names no step of the flow", async (expression) => {
    expect(await problems(flow({ first: { kind: "transform", expression } }))).toEqual({});
  });

  test("what it refers to is known, in bodies, too", async () => {
    const { refs } = await checkFlow(
      flow({
        first: { kind: "tool", uri: "api://crm/list?timeout=5", next: "each" },
        each: {
          kind: "map",
          items: [1],
          body: { start: "sub", nodes: { sub: { kind: "flow", name: "child" } } },
          next: "ask",
        },
        ask: { kind: "agent", agent: "helper", prompt: "?" },
      }),
    );
    expect(refs).toEqual([
      { field: "nodes.first.uri", value: "api://crm/list?timeout=5" },
      { field: "nodes.each.body.nodes.sub.name", value: "flow://child" },
      { field: "nodes.ask.agent", value: "agent://helper" },
    ]);
  });

  test("defaults are filled in", async () => {
    const { definition } = await checkFlow(flow({ first: { kind: "wait", signal: "go", retry: { max_attempts: 2 } } }));
    expect(definition).toMatchObject({
      max_steps: 1_000,
      effect: "write",
      nodes: { first: { on_error: "fail", retry: { backoff_ms: 1_000, factor: 2 } } },
    });
  });

  test("nesting without end is refused as anything else", async () => {
    let deep: JsonValue = 1;
    for (let level = 0; level < 5_000; level += 1) deep = [deep];
    await expect(requireFlow(deep)).rejects.toMatchObject({ code: "flow_invalid" });
  });

  test("what is said of the first fault is one sentence", async () => {
    const saying = async (nodes: Parameters<typeof flow>[0]): Promise<string> =>
      requireFlow(flow(nodes)).then(String, (thrown: Error) => thrown.message);
    const uri = "no-uri";
    expect(await saying({ first: { kind: "tool", uri } })).toMatch(/^'\/nodes\/first\/uri' .*\?options\.$/);
    expect(await saying({ first: { kind: "tool", uri, next: "second" }, second: { kind: "tool", uri } })).toMatch(
      /\?options and 1 more, see 'problems'\.$/,
    );
  });

  test("no more faults are looked for than are told, and the nearest name only for the first", async () => {
    const names = Array.from({ length: 400 }, (_, at) => `steps.first${at}`).join(", ");
    const found = await checkFlow(
      flow({
        first: { kind: "transform", expression: `[${names}]`, next: "last" },
        last: { kind: "agent", agent: "helper", prompt: { $: "steps.none" } },
      }),
    );
    expect(found.problems).toHaveLength(100);
    expect(found.problems.filter(({ message }) => message.includes("is 'first' meant?"))).toHaveLength(10);
    expect(found.refs).toEqual([{ field: "nodes.last.agent", value: "agent://helper" }]);
  });

  test.each(Object.entries(shippedFlows))("the shipped flow %s has no fault", async (name, given) => {
    expect(await checkFlow(given)).toMatchObject({ problems: [], definition: { name } });
  });
});
