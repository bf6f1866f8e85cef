/** Results of modules as plain JSON. Bound before any module can change what these names mean. */
import type { JsonValue } from "@toolyard/core/json";

const { parse, stringify } = JSON;

/** Undefined: it is nothing that JSON can say, or larger than allowed. */
export function toJson(value: unknown, maxBytes: number): JsonValue | undefined {
  const text: unknown = stringify(value);
  if (typeof text !== "string" || Buffer.byteLength(text) > maxBytes) return undefined;
  return parseText(text);
}

export function toText(value: unknown): string {
  const text: unknown = stringify(value);
  return typeof text === "string" ? text : "null";
}

/** @throws SyntaxError */
export function parseText(text: string): JsonValue {
  return parse(text) as JsonValue;
}
