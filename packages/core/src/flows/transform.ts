/**
 * JSONata in flows: what stands in `{"$": "…"}`, conditions and transforms. Expressions come from tenants, so they
 * run on a leash: patterns on RE2, a bound on time, nesting and sizes, no `$eval`, no function and no prototype as a
 * result. The language is read when there is a flow that uses it.
 */
import type { Expression, ExprNode, JsonataError } from "jsonata";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { compilePattern, type Pattern } from "../tools/pattern.ts";
import { registerBuiltIns, requireTime, type BuiltIns, type Frame } from "./built-ins.ts";
import { expressionMark, type FlowValue } from "./definition.ts";
import {
  ExpressionLimit,
  forgetWeight,
  isFunctionOf,
  longestList,
  longestMs,
  outOfTime,
  requireTextLength,
  weigh,
} from "./expression-limit.ts";
import { stepsNamedIn, type NamedStep } from "./step-names.ts";

/** What expressions can name; an item is there under the name that its map gives it, too. */
export interface FlowScope {
  readonly input: JsonValue;
  /** By node id: `{output}` or `{error}`. */
  readonly steps: JsonObject;
  /** With `tenantId` and `buCode`. */
  readonly context: JsonObject;
  readonly [item: string]: JsonValue | undefined;
}

/** For errors. */
export interface ExpressionPlace {
  readonly node?: string;
  /** `nodes.sum.expression` */
  readonly field?: string;
}

const deepestCalls = 200;
/** Of the expression itself, as it is parsed: several levels for one in the text. */
const deepestSyntax = 1_000;
/** Of each value on the way, beside what the expression was given. */
const heaviest = 4_194_304;
/** Characters of a result as JSON. */
const largestResult = 4_194_304;
const deepestResult = 200;
/** Of one search, in steps of `Pattern.cost`. */
const mostPatternSteps = 1_000_000;
/** After so many steps others have their turn. */
const stepsInOneGo = 2_000;

/** Characters of all that are kept; what is made of each takes a hundred times as much. */
const capacity = 500_000;
/** What one takes, however short it is. */
const leastSize = 200;
const compiled = new Map<string, Expression>();
let kept = 0;

export interface ExpressionFault {
  readonly message: string;
  /** Character at which it is, from 1. */
  readonly position?: number;
}

/** What is wrong with an expression, before it is ever run. */
export async function checkExpression(expression: string): Promise<ExpressionFault | undefined> {
  try {
    await compile(expression);
    return undefined;
  } catch (thrown) {
    return faultOf(thrown);
  }
}

/** Steps that it names, of one that has no fault. */
export async function namedSteps(expression: string): Promise<readonly NamedStep[]> {
  return stepsNamedIn((await compile(expression)).ast());
}

/** @throws GatewayError `flow_expression_failed` naming node, field and position; `undefined`: it comes to nothing */
export async function evaluate(
  expression: string,
  scope: FlowScope,
  place: ExpressionPlace = {},
): Promise<JsonValue | undefined> {
  try {
    const program = await compile(expression);
    const document = Object.fromEntries(Object.entries(scope).filter(([, value]) => value !== undefined));
    forgetWeight(scope.steps);
    const limit = heaviest + weigh(document, Number.POSITIVE_INFINITY);
    return plain(await program.evaluate(document, { ...document, [limitName]: limit }));
  } catch (thrown) {
    throw failed(expression, place, faultOf(thrown));
  }
}

/** A value with the expressions in it carried out. What comes to nothing is left out of objects, and null elsewhere. */
export async function resolveValue(
  value: FlowValue,
  scope: FlowScope,
  place: ExpressionPlace = {},
): Promise<JsonValue> {
  return (await resolvePart(value, scope, place)) ?? null;
}

async function resolvePart(value: FlowValue, scope: FlowScope, place: ExpressionPlace): Promise<JsonValue | undefined> {
  if (Array.isArray(value)) {
    const list: JsonValue[] = [];
    for (const [index, part] of (value as readonly JsonValue[]).entries()) {
      list.push((await resolvePart(part, scope, below(place, index))) ?? null);
    }
    return list;
  }
  if (!isJsonObject(value)) return value;
  const expression = expressionIn(value);
  if (expression !== undefined) return evaluate(expression, scope, place);
  const entries: [string, JsonValue][] = [];
  for (const [name, part] of Object.entries(value)) {
    const resolved = await resolvePart(part, scope, below(place, name));
    if (resolved !== undefined) entries.push([name, resolved]);
  }
  return Object.fromEntries(entries);
}

/** Of `{"$": "…"}`. */
export function expressionIn(value: FlowValue): string | undefined {
  if (!isJsonObject(value) || !Object.hasOwn(value, expressionMark)) return undefined;
  const { [expressionMark]: expression } = value;
  return typeof expression === "string" ? expression : undefined;
}

function below(place: ExpressionPlace, name: string | number): ExpressionPlace {
  return place.field === undefined ? place : { ...place, field: `${place.field}.${name}` };
}

async function compile(expression: string): Promise<Expression> {
  const known = compiled.get(expression);
  if (known !== undefined) return known;
  const { default: jsonata } = await import("jsonata");
  const program = jsonata(expression, {
    // Only `new` and `exec` are asked of it.
    RegexEngine: PatternEngine as unknown as RegExpConstructor,
    timeout: longestMs,
    stack: deepestCalls,
    sequence: longestList,
  });
  checkNode(program.ast(), 0);
  program.assign("eval", undefined);
  registerBuiltIns(program, await builtInsOf(jsonata));
  // A text of the library's, which types know as `string` only.
  program.assign(exitHook, leash());
  program.assign(frameHook, requireTime);
  keep(expression, program);
  return program;
}

function keep(expression: string, program: Expression): void {
  // Another call may have been as fast.
  if (!compiled.has(expression)) kept += sizeOf(expression);
  compiled.set(expression, program);
  for (const oldest of compiled.keys()) {
    if (kept <= capacity) return;
    compiled.delete(oldest);
    kept -= sizeOf(oldest);
  }
}

function sizeOf(expression: string): number {
  return leastSize + expression.length;
}

let library: Promise<BuiltIns> | undefined;

/** The library gives its functions to expressions only. */
function builtInsOf(jsonata: (expression: string) => Expression): Promise<BuiltIns> {
  library ??= (async () => {
    const names = [
      "append",
      "replace",
      "fromMillis",
      "toMillis",
      "formatNumber",
      "formatInteger",
      "parseInteger",
    ] as const;
    const found = await Promise.all(
      names.map(async (name) => {
        const { implementation } = (await jsonata(`$${name}`).evaluate(null)) as { readonly implementation: unknown };
        return [name, implementation] as const;
      }),
    );
    return Object.fromEntries(found) as unknown as BuiltIns;
  })();
  return library;
}

/** Called by the library with each result on the way. */
const exitHook = Symbol.for("jsonata.__evaluate_exit") as unknown as string;
/** Called by it for each call of what is not built in, and of what is with some arguments given before. */
const frameHook = Symbol.for("jsonata.__createFrame_push") as unknown as string;
/** A variable that no expression can name. */
const limitName = " limit";

type ExitHook = (node: ExprNode, input: unknown, frame: Frame, result: unknown) => Promise<void> | undefined;

function leash(): ExitHook {
  let steps = 0;
  let changing = 0;
  return (node, _input, frame, result) => {
    if (typeof result === "string") requireTextLength(result.length);
    if (Array.isArray(result) && result.length > longestList) {
      throw new ExpressionLimit(`makes a list of more than ${longestList} items`);
    }
    if (typeof result === "object" && result !== null && !("tupleStream" in result)) {
      weigh(result, frame.lookup(limitName) as number, changing === 0);
    }
    if ((node.type as string) === "transform") {
      // It changes parts of a copy that were results on the way.
      const changer = result as { implementation: (value: unknown) => Promise<unknown> };
      const change = changer.implementation;
      changer.implementation = async (value) => {
        changing += 1;
        try {
          return await change(value);
        } finally {
          changing -= 1;
        }
      };
    }
    steps += 1;
    return steps % stepsInOneGo === 0 ? new Promise<void>((done) => setImmediate(done)) : undefined;
  };
}

/** What can be said of an expression without running it. */
function checkNode(node: unknown, depth: number): void {
  if (depth > deepestSyntax) throw new ExpressionLimit("is nested too deep");
  if (Array.isArray(node)) {
    for (const part of node) checkNode(part, depth + 1);
    return;
  }
  if (typeof node !== "object" || node === null) return;
  if (node instanceof RegExp) {
    new PatternEngine(node);
    return;
  }
  const { type, value, position = 0, focus, index } = node as Readonly<Record<string, unknown>>;
  // `$clone` is what `| … |` copies with before it changes anything.
  const name = [type === "variable" ? value : undefined, focus, index].find(
    (each) => each === "eval" || each === "clone",
  );
  if (name !== undefined) {
    throw Object.assign(new ExpressionLimit(`uses $${String(name)}, which is not available here`), { position });
  }
  for (const part of Object.values(node)) checkNode(part, depth + 1);
}

/** The part of RegExp that the library uses, on RE2. */
class PatternEngine {
  lastIndex = 0;
  readonly #pattern: Pattern;
  /** Made anew in each evaluation; many matches of one text are one step of it. */
  readonly #until = performance.now() + longestMs;

  constructor({ source, flags }: RegExp) {
    const compiledPattern = compilePattern(source, {
      ignoreCase: flags.includes("i"),
      multiline: flags.includes("m"),
    });
    if ("reason" in compiledPattern) throw new ExpressionLimit(`has a pattern that ${compiledPattern.reason}`);
    this.#pattern = compiledPattern;
  }

  exec(text: string): (RegExpExecArray | (string | undefined)[]) | null {
    if (performance.now() > this.#until) throw outOfTime();
    if (this.#pattern.cost(text.length - this.lastIndex) > mostPatternSteps) {
      throw new ExpressionLimit("has a pattern that takes too long on a text of this length");
    }
    const match = this.#pattern.match(text, this.lastIndex);
    if (match === undefined) {
      this.lastIndex = 0;
      return null;
    }
    this.lastIndex = match.end;
    return Object.assign([...match.groups], { index: match.start });
  }
}

/** Plain JSON of what the library gives: it marks lists, and knows functions and values that are nothing. */
function plain(result: unknown): JsonValue | undefined {
  let room = largestResult;
  const spend = (characters: number): void => {
    room -= characters;
    if (room < 0) throw new ExpressionLimit(`comes to more than ${largestResult} characters of JSON`);
  };
  const copy = (value: unknown, depth: number): JsonValue | undefined => {
    if (depth > deepestResult)
      throw new ExpressionLimit(`comes to something nested deeper than ${deepestResult} levels`);
    if (value === undefined) return undefined;
    if (value === null || typeof value === "boolean") {
      spend(5);
      return value;
    }
    if (typeof value === "string") {
      spend(value.length + 3);
      return value;
    }
    if (typeof value === "number") {
      spend(8);
      if (Number.isFinite(value)) return value;
      throw new ExpressionLimit("comes to a number that JSON does not have");
    }
    if (Array.isArray(value)) {
      spend(2);
      return value.map((item: unknown) => copy(item, depth + 1) ?? null);
    }
    if (typeof value !== "object" || isFunctionOf(value)) throw new ExpressionLimit("comes to a function");
    spend(2);
    return Object.fromEntries(
      Object.entries(value).flatMap(([name, part]): [string, JsonValue][] => {
        const copied = copy(part, depth + 1);
        if (copied === undefined) return [];
        spend(name.length + 4);
        return [[name, copied]];
      }),
    );
  };
  return copy(result, 0);
}

function faultOf(thrown: unknown): ExpressionFault {
  if (thrown instanceof ExpressionLimit) {
    const { position } = thrown as { readonly position?: number };
    return { message: thrown.message, ...(position === undefined ? {} : { position }) };
  }
  if (thrown instanceof RangeError) return { message: "goes too deep, or makes a text that is too long" };
  if (typeof thrown !== "object" || thrown === null) return { message: "cannot be carried out" };
  const { message, position } = thrown as Partial<JsonataError>;
  const text = typeof message === "string" && message !== "" ? message : "cannot be carried out";
  return { message: text.slice(0, 500), ...(typeof position === "number" ? { position } : {}) };
}

function failed(expression: string, { node, field }: ExpressionPlace, fault: ExpressionFault): GatewayError {
  const { message, position } = fault;
  const at = position === undefined ? "" : ` (character ${position})`;
  const where = field ?? (node === undefined ? "expression" : `nodes.${node}`);
  return new GatewayError("flow_expression_failed", `'${where}'${at}: ${message}: ${shorten(expression)}`, {
    param: where,
    extra: {
      ...(node === undefined ? {} : { node }),
      ...(position === undefined ? {} : { position }),
    },
  });
}

function shorten(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
