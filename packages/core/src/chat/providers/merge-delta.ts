/**
 * Puts fields that arrive in pieces together, for what the gateway does not know by name: the next
 * turn has to carry everything that the back end wrote (reasoning details, thought signatures,
 * annotations, audio).
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

/** Fields that are said again rather than continued. */
const constantField = /(?:^|_)(?:id|type|format|role|index|object|name|model|status|url|title|signature|opaque)$/;

/**
 * Merges the fields of one delta into what has come so far. Null says nothing.
 * @param strings whether a text continues the one before or is the same said again
 */
export function mergeDelta(target: JsonObject, delta: JsonObject, strings: "continue" | "repeat" = "continue"): void {
  for (const [key, value] of Object.entries(delta)) {
    // A plain assignment of this name would change what the object inherits.
    if (value === null || key === "__proto__") continue;
    const isConstant = strings === "repeat" || constantField.test(key);
    target[key] = merged(
      Object.hasOwn(target, key) ? target[key] : undefined,
      value,
      isConstant ? "repeat" : "continue",
    );
  }
}

function merged(before: JsonValue | undefined, value: JsonValue, strings: "continue" | "repeat"): JsonValue {
  if (typeof before === "string" && typeof value === "string") {
    return strings === "repeat" ? value || before : before + value;
  }
  if (Array.isArray(before) && Array.isArray(value)) {
    for (const item of value) mergeItem(before, item);
    return before;
  }
  if (isJsonObject(before) && isJsonObject(value)) {
    mergeDelta(before, value, strings);
    return before;
  }
  return copyOf(value);
}

/** Of a list, the items at one index. */
interface Place {
  readonly first: JsonObject;
  /** The first of each type; undefined: of those that have none. */
  readonly byType: Map<JsonValue | undefined, JsonObject>;
}

/** Of lists that were merged into: each new item would have to be looked for among all that came. */
const knownPlaces = new WeakMap<JsonValue[], Map<number, Place>>();

/** List items with the same `index` and `type` continue each other; others are new. */
function mergeItem(list: JsonValue[], item: JsonValue): void {
  const index = isJsonObject(item) ? item["index"] : undefined;
  if (!isJsonObject(item) || typeof index !== "number") {
    list.push(copyOf(item));
    return;
  }
  const places = placesOf(list);
  const place = places.get(index);
  const type = item["type"];
  const same = type === undefined ? place?.first : (place?.byType.get(type) ?? place?.byType.get(undefined));
  if (same === undefined) {
    const added = copyOf(item);
    list.push(added);
    if (isJsonObject(added)) addPlace(places, index, added);
    return;
  }
  const before = same["type"];
  mergeDelta(same, item);
  // One that had no type has this one's now.
  if (before === undefined && place !== undefined && same["type"] !== undefined) {
    place.byType.delete(undefined);
    place.byType.set(same["type"], same);
  }
}

function placesOf(list: JsonValue[]): Map<number, Place> {
  let places = knownPlaces.get(list);
  if (places === undefined) {
    knownPlaces.set(list, (places = new Map<number, Place>()));
    for (const item of list) {
      if (isJsonObject(item) && typeof item["index"] === "number") addPlace(places, item["index"], item);
    }
  }
  return places;
}

function addPlace(places: Map<number, Place>, index: number, item: JsonObject): void {
  const place = places.get(index) ?? { first: item, byType: new Map<JsonValue | undefined, JsonObject>() };
  places.set(index, place);
  if (!place.byType.has(item["type"])) place.byType.set(item["type"], item);
}

/** What is merged into must not be an object that an event has already carried away. */
function copyOf(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(copyOf);
  if (!isJsonObject(value)) return value;
  const copy: JsonObject = {};
  mergeDelta(copy, value);
  return copy;
}
