/** What differs between two things of a configuration: which of them belong together, and in which fields. Pure. */
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

export interface FieldChange {
  /** `config.base_url` */
  readonly field: string;
  /** Null: it was not there. */
  readonly before: JsonValue;
  /** Null: it is there no more. */
  readonly after: JsonValue;
}

const deepest = 6;
const mostFields = 100;
/** Characters of a value that are told. */
const longestValue = 2_000;

/** JSON alike, whatever the order of its fields. */
export function isSame(one: JsonValue, other: JsonValue): boolean {
  return canonicalJson(one) === canonicalJson(other);
}

/** As it is sent and comes back: what is undefined is not there. */
export function toPlain(value: unknown): JsonValue {
  return JSON.parse(JSON.stringify(value) ?? "null") as JsonValue;
}

/** In order of their fields; lists are compared as wholes. */
export function fieldChanges(before: JsonValue, after: JsonValue): readonly FieldChange[] {
  const found: FieldChange[] = [];
  const collect = (ours: JsonValue | undefined, theirs: JsonValue | undefined, path: readonly string[]): void => {
    if (found.length === mostFields || isSame(ours ?? null, theirs ?? null)) return;
    if (path.length === deepest || !isJsonObject(ours) || !isJsonObject(theirs)) {
      found.push({ field: path.join("."), before: told(ours), after: told(theirs) });
      return;
    }
    for (const key of [...new Set([...Object.keys(ours), ...Object.keys(theirs)])].sort()) {
      collect(own(ours, key), own(theirs, key), [...path, key]);
    }
  };
  collect(before, after, []);
  return found;
}

/** Fields of `after` that are new or other than before. */
export function changedIn(before: JsonValue, after: JsonValue): JsonObject {
  if (!isJsonObject(after)) return {};
  const was = isJsonObject(before) ? before : {};
  const differs = ([key, value]: readonly [string, JsonValue]): boolean =>
    !Object.hasOwn(was, key) || !isSame(own(was, key) ?? null, value);
  return Object.fromEntries(Object.entries(after).filter(differs));
}

function own(value: JsonObject, key: string): JsonValue | undefined {
  return Object.hasOwn(value, key) ? value[key] : undefined;
}

function told(value: JsonValue | undefined): JsonValue {
  const text = canonicalJson(value ?? null);
  if (text.length <= longestValue) return value ?? null;
  return `${text.slice(0, longestValue)}… (${text.length} characters)`;
}

export interface Pair<One, Other> {
  readonly one: One | undefined;
  readonly other: Other | undefined;
}

interface Known {
  readonly name: string;
  readonly item: JsonValue;
}

/** Those of one name; where several have it, equal ones first and the rest in their order. */
export function pairUp<One extends Known, Other extends Known>(
  ones: readonly One[],
  others: readonly Other[],
): readonly Pair<One, Other>[] {
  const left = new Set(others);
  const takenFrom = (among: Iterator<Other> | undefined): Other | undefined => {
    let next = among?.next();
    while (next?.done === false && !left.delete(next.value)) next = among?.next();
    return next?.done === false ? next.value : undefined;
  };
  const equals = groupsBy(others, ({ name, item }) => canonicalJson([name, item]));
  const equal = new Map(ones.map((one) => [one, takenFrom(equals.get(canonicalJson([one.name, one.item])))]));
  const named = groupsBy(others, ({ name }) => name);
  return [
    ...ones.map((one) => ({ one, other: equal.get(one) ?? takenFrom(named.get(one.name)) })),
    ...[...left].map((other) => ({ one: undefined, other })),
  ];
}

function groupsBy<Item>(items: readonly Item[], keyOf: (item: Item) => string): ReadonlyMap<string, Iterator<Item>> {
  return new Map([...Map.groupBy(items, keyOf)].map(([key, all]) => [key, all.values()]));
}
