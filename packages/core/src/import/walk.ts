/** Walks through JSON without recursion: foreign documents may be nested as deeply as they like. */
import type { JsonObject, JsonValue } from "../json.ts";

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
