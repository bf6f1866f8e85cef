import { expect, test } from "vitest";
import * as z from "zod";
import { schemaProblem, schemaProblems } from "./schema-problems.ts";

const host = z.string().regex(/^[a-z.]+$/, "must be a host name");
const schema = z.strictObject({
  name: z.string().min(2).default("me"),
  host: z.union([host, z.strictObject({ host, port: z.int().optional() })]).default("a"),
  mode: z.union([z.enum(["auto", "off"]), z.object({ tool: z.string() })]).default("auto"),
  kind: z
    .discriminatedUnion("type", [z.object({ type: z.literal("a") }), z.object({ type: z.literal("b") })])
    .optional(),
  labels: z.record(host, z.number()).default({}),
  many: z.union([z.string(), z.number(), z.array(z.string()), z.object({ a: z.string() })]).default("x"),
});
const all = z.object({ name: z.string(), host: z.union([z.string(), z.object({ host })]) });

function said(value: unknown, of: z.ZodType = schema): Record<string, string> {
  const { error } = of.safeParse(value);
  if (error === undefined) throw new Error("nothing is wrong");
  return Object.fromEntries(schemaProblems(error).map(({ path, says }) => [path.join("."), says]));
}

test.each<[string, unknown, Record<string, string>]>([
  ["a wrong type", { name: 7 }, { name: "is not valid: expected string, received number" }],
  ["a limit", { name: "m" }, { name: "is not valid: too small: expected string to have >=2 characters" }],
  ["our own words", { host: "A b" }, { host: "must be a host name" }],
  [
    "unknown fields, each for itself",
    { hots: 1, nmae: 2 },
    { hots: "is not a known field; 'host' may be meant", nmae: "is not a known field; 'name' may be meant" },
  ],
  [
    "an unknown field that resembles none, with those that there are",
    { host: { host: "a", "transport-layer": 1 } },
    { "host.transport-layer": "is not a known field; known: host, port" },
  ],
  ["the form of a union that was meant", { host: { host: "A" } }, { "host.host": "must be a host name" }],
  ["within that form", { host: { host: "a", prot: 1 } }, { "host.prot": "is not a known field; 'port' may be meant" }],
  ["the form that has the type", { mode: "of" }, { mode: 'is not valid: expected one of "auto"|"off"' }],
  [
    "no form at all",
    { host: 7 },
    { host: "is not valid: expected string, received number, or expected object, received number" },
  ],
  ["more forms than a line holds", { many: true }, { many: "has none of the forms that it may have" }],
  ["what tells forms apart", { kind: { type: "c" } }, { "kind.type": 'is not valid: expected one of "a"|"b"' }],
  ["a key of a record", { labels: { "A b": 1 } }, { "labels.A b": "must be a host name" }],
  ["names that are free", { labels: ["a"] }, { labels: "is not valid: expected object, received array" }],
  ["the whole", [1], { "": "is not valid: expected object, received array" }],
])("%s is told with its place", (_title, value, problems) => {
  expect(said(value)).toEqual(problems);
});

test("what is missing is required, a union as well", () => {
  expect(said({}, all)).toEqual({ name: "is required", host: "is required" });
});

test("the first problem is the one for which there is room in one line", () => {
  expect(schemaProblem({ issues: all.safeParse({ name: 1 }).error?.issues ?? [] }).path).toEqual(["name"]);
  expect(schemaProblem({ issues: [] }).says).toBe("is not valid");
});

test("a misspelt name comes before what is missing for it", () => {
  const { error } = z.strictObject({ method: z.enum(["GET"]) }).safeParse({ mehtod: "GET" });
  expect(schemaProblem({ issues: error?.issues ?? [] })).toMatchObject({ path: ["mehtod"], kind: "unknown" });
});

test("of many unknown fields the first have a hint", () => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_none, at) => [`na${at}`, at]));
  const { error } = z.strictObject({ nam: z.string().optional() }).safeParse(many);
  const said = schemaProblems({ issues: error?.issues ?? [] }).map(({ says }) => says);
  expect(said).toHaveLength(30);
  expect(said.filter((says) => says.includes("'nam'"))).toHaveLength(10);
});

test("of many fields that there are some are told", () => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_none, at) => [`f${at}`, z.string().optional()]));
  const { error } = z.strictObject(many).safeParse({ "something else": 1 });
  expect(schemaProblem({ issues: error?.issues ?? [] }).says).toMatch(/known: f0, .*, f19 and 10 more$/);
});

test("a name is told by its beginning where it is long, however many problems stand below it", () => {
  const long = "n".repeat(10_000);
  const named = z.record(z.string(), z.strictObject({ a: z.string() }));
  const told = said({ [long]: { b: 1 } }, named);
  expect(Object.keys(told)).toEqual([`${long.slice(0, 200)}….b`, `${long.slice(0, 200)}….a`]);
  expect(Object.keys(said({ [long]: 1 }))).toEqual([`${long.slice(0, 200)}…`]);
});

test("fields of several forms at once are told as that, and none as unknown", () => {
  const task = z.union([
    z.strictObject({ uri: z.string(), arguments: z.object({}).optional() }),
    z.strictObject({ request: z.string() }),
    z.strictObject({ call: z.strictObject({ name: z.string() }) }),
  ]);
  const of = z.strictObject({ task });
  expect(said({ task: { uri: "a", request: "b" } }, of)).toEqual({
    "task.request": "does not go with 'uri', 'arguments'",
  });
  expect(said({ task: { uri: "a", url: "b" } }, of)).toEqual({
    "task.url": "is not a known field; 'uri' may be meant",
  });
});

test("looks at a bounded part of what is wrong, of which callers choose how much there is", () => {
  const names = Object.fromEntries(Array.from({ length: 150_000 }, (_, index) => [`n${index}`, 1]));
  const items = z.union([z.string(), z.array(z.string())]);
  for (const [of, value] of [
    [schema, names],
    [z.array(z.string()), Object.values(names)],
    [items, Object.values(names)],
  ] as const) {
    const { error } = of.safeParse(value);
    if (error === undefined) throw new Error("nothing is wrong");
    expect(schemaProblems(error)).toHaveLength(1_000);
  }
});
