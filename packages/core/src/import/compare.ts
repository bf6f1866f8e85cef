/** What differs between two definitions, by the names of fields, as somebody who reviews a change wants to know it. */
import { canonicalJson, isJsonObject, type JsonValue } from "../json.ts";

const deepest = 4;
const mostFields = 40;

/** Dotted paths, in order; the last one is `…` where there are more. */
export function changedFields(before: JsonValue, after: JsonValue): readonly string[] {
  const found: string[] = [];
  collect(before, after, { path: [], found });
  return found.length > mostFields ? [...found.slice(0, mostFields), "…"] : found;
}

interface Place {
  readonly path: readonly string[];
  readonly found: string[];
}

function collect(before: JsonValue | undefined, after: JsonValue | undefined, { path, found }: Place): void {
  if (canonicalJson(before ?? null) === canonicalJson(after ?? null)) return;
  if (path.length === deepest || !isJsonObject(before) || !isJsonObject(after)) {
    found.push(path.join("."));
    return;
  }
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [ours, theirs] = [before, after].map((owner) => (Object.hasOwn(owner, key) ? owner[key] : undefined));
    collect(ours, theirs, { path: [...path, key], found });
  }
}
