/**
 * A subset of JSONPath (RFC 9535) for reading on in long results: names, indexes, slices, wildcards
 * and descent. Filters are left out; they are a language of their own.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, isRawNumber, type JsonValue } from "../../json.ts";

type Selector =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "index"; readonly index: number }
  | { readonly kind: "slice"; readonly start?: number; readonly end?: number }
  | { readonly kind: "all" };

interface Step {
  readonly selector: Selector;
  /** `..`: at any depth. */
  readonly descends: boolean;
}

export interface Selection {
  readonly values: readonly JsonValue[];
  /** The path leads to one place at most. */
  readonly isSingular: boolean;
}

const mostVisits = 2_000_000;
const longestPath = 500;

/** @throws GatewayError `invalid_arguments` (param `jsonpath`) for a path outside the subset, or one that selects too much */
export function selectJson(document: JsonValue, path: string): Selection {
  const steps = parsePath(path);
  let visits = 0;
  const visit = (): void => {
    visits += 1;
    if (visits > mostVisits) throw invalidPath(path, "selects too much; be more specific");
  };
  let values: JsonValue[] = [document];
  for (const step of steps) {
    const next: JsonValue[] = [];
    for (const value of values) {
      for (const place of step.descends ? descendants(value) : [value]) {
        visit();
        for (const found of select(place, step.selector)) {
          visit();
          next.push(found);
        }
      }
    }
    values = next;
  }
  const isSingular = steps.every(({ descends, selector }) => !descends && ["name", "index"].includes(selector.kind));
  return { values, isSingular };
}

function* descendants(value: JsonValue): Generator<JsonValue> {
  const waiting: JsonValue[] = [value];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    yield next;
    // Reversed, so that they come in document order.
    for (const child of children(next).reverse()) waiting.push(child);
  }
}

function children(value: JsonValue): JsonValue[] {
  if (Array.isArray(value)) return [...value];
  return isJsonObject(value) && !isRawNumber(value) ? Object.values(value) : [];
}

function select(value: JsonValue, selector: Selector): readonly JsonValue[] {
  if (selector.kind === "all") return children(value);
  if (selector.kind === "name") {
    const found =
      isJsonObject(value) && !isRawNumber(value) && Object.hasOwn(value, selector.name)
        ? value[selector.name]
        : undefined;
    return found === undefined ? [] : [found];
  }
  if (!Array.isArray(value)) return [];
  if (selector.kind === "slice") return value.slice(selector.start, selector.end);
  const found = value.at(selector.index);
  return found === undefined ? [] : [found];
}

/** One step: `.name`, `.*`, `['name']`, `[0]`, `[1:3]`, `[*]`, each also after `..`. */
const stepPattern =
  /(\.\.|\.)?(?:([A-Za-z_\u0080-\uffff][\w\u0080-\uffff-]*)|(\*)|\[\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(\*)|(-?\d{1,9})?(:)?(-?\d{1,9})?)\s*\])/y;

function parsePath(path: string): readonly Step[] {
  const text = path.trim();
  if (text.length > longestPath) throw invalidPath(path, `has more than ${longestPath} characters`);
  if (!text.startsWith("$")) throw invalidPath(path, "must begin with '$'");
  const steps: Step[] = [];
  for (let at = 1; at < text.length;) {
    stepPattern.lastIndex = at;
    const match = stepPattern.exec(text);
    const step = match === null ? undefined : readStep(match);
    if (step === undefined)
      throw invalidPath(
        path,
        `is not understood at '${text.slice(at, at + 20)}'; use .name, ['name'], [0], [1:3], [*], .* and ..name`,
      );
    steps.push(step);
    at = stepPattern.lastIndex;
  }
  return steps;
}

function readStep(match: RegExpExecArray): Step | undefined {
  const [, dots, bare, star, single, double, allOf, first, colon, second] = match;
  const isBracket = bare === undefined && star === undefined;
  // `.['name']` is no path, and `name` alone needs its dot.
  if (isBracket ? dots === "." : dots === undefined) return undefined;
  const selector = readSelector({
    name: bare ?? unescape(single ?? double),
    isAll: (star ?? allOf) !== undefined,
    first,
    colon,
    second,
  });
  return selector === undefined ? undefined : { selector, descends: dots === ".." };
}

function readSelector(parts: {
  readonly name: string | undefined;
  readonly isAll: boolean;
  readonly first: string | undefined;
  readonly colon: string | undefined;
  readonly second: string | undefined;
}): Selector | undefined {
  const { name, isAll, first, colon, second } = parts;
  if (isAll) return { kind: "all" };
  if (name !== undefined) return { kind: "name", name };
  if (colon !== undefined) {
    return {
      kind: "slice",
      ...(first === undefined ? {} : { start: Number(first) }),
      ...(second === undefined ? {} : { end: Number(second) }),
    };
  }
  return first === undefined || second !== undefined ? undefined : { kind: "index", index: Number(first) };
}

function unescape(text: string | undefined): string | undefined {
  return text?.replace(/\\(.)/gs, "$1");
}

function invalidPath(path: string, why: string): GatewayError {
  const shown = path.length > 80 ? `${path.slice(0, 80)}…` : path;
  return new GatewayError("invalid_arguments", `The JSONPath '${shown}' ${why}.`, { param: "jsonpath" });
}
