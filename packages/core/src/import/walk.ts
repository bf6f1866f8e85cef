/** Walks through JSON without recursion: foreign documents may be nested as deeply as they like. */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

/** Every object and array of a value, itself included; those of members that `skip` names are left out. */
export function* eachContainer(
  root: JsonValue,
  skip: (key: string) => boolean = () => false,
): Generator<JsonObject | readonly JsonValue[]> {
  const waiting: JsonValue[] = [root];
  while (waiting.length > 0) {
    const next = waiting.pop();
    if (typeof next !== "object" || next === null) continue;
    yield next;
    for (const [key, member] of Object.entries(next)) {
      if (typeof member === "object" && member !== null && !skip(key)) waiting.push(member);
    }
  }
}

/** Members of large objects: to count them again takes as long as to go through them. */
const memberCounts = new WeakMap<JsonObject, number>();
const largeObject = 64;

function countMembers(value: JsonObject): number {
  const known = memberCounts.get(value);
  if (known !== undefined) return known;
  const count = Object.keys(value).length;
  if (count > largeObject) memberCounts.set(value, count);
  return count;
}

/** JSON text of a value where it has no more than so many characters; longer ones are not written out. */
export function shortJson(value: JsonValue, most: number): string | undefined {
  let length = 0;
  const waiting: JsonValue[] = [value];
  while (waiting.length > 0) {
    const next = waiting.pop() ?? null;
    length += typeof next === "string" ? next.length + 2 : 4;
    if (length > 2 * most) return undefined;
    if (typeof next !== "object" || next === null) continue;
    // Every member takes more than one character.
    if ((isJsonObject(next) ? countMembers(next) : next.length) > most) return undefined;
    for (const [key, member] of Object.entries(next)) {
      length += key.length;
      if (length > 2 * most) return undefined;
      waiting.push(member);
    }
  }
  const text = JSON.stringify(value);
  return text.length <= most ? text : undefined;
}
