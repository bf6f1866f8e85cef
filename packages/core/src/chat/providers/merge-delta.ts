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

/** List items with the same `index` and `type` continue each other; others are new. */
function mergeItem(list: JsonValue[], item: JsonValue): void {
  if (isJsonObject(item) && typeof item["index"] === "number") {
    for (const earlier of list) {
      if (isJsonObject(earlier) && earlier["index"] === item["index"] && sameType(earlier, item)) {
        mergeDelta(earlier, item);
        return;
      }
    }
  }
  list.push(copyOf(item));
}

/** What is merged into must not be an object that an event has already carried away. */
function copyOf(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(copyOf);
  if (!isJsonObject(value)) return value;
  const copy: JsonObject = {};
  mergeDelta(copy, value);
  return copy;
}

function sameType(earlier: JsonObject, item: JsonObject): boolean {
  return item["type"] === undefined || earlier["type"] === undefined || earlier["type"] === item["type"];
}
