import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { JsonValue } from "../json.ts";
import { RpcFault } from "./fault.ts";
import { idOf, readMessage } from "./incoming.ts";

describe("what clients post", () => {
  test("is a request, a notification, or the answer to one of ours", () => {
    expect(readMessage({ jsonrpc: "2.0", id: "a", method: "ping" })).toEqual({
      kind: "request",
      id: "a",
      method: "ping",
      params: {},
    });
    expect(readMessage({ jsonrpc: "2.0", method: "notifications/initialized" }).kind).toBe("notice");
    expect(readMessage({ jsonrpc: "2.0", id: 1, result: {} }).kind).toBe("result");
    expect(readMessage({ jsonrpc: "2.0", id: 1, error: { code: 1, message: "no" } }).kind).toBe("error");
  });

  test("is read or refused, whatever it is", () => {
    const parts = fc.record(
      { jsonrpc: fc.constantFrom("2.0", "1.0", 2), id: fc.jsonValue(), method: fc.jsonValue(), params: fc.jsonValue() },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), parts), (given) => {
        const value = given as JsonValue;
        expect([...kinds, "refused"]).toContain(kindOf(value));
        // What is a request can be answered.
        return kindOf(value) !== "request" || idOf(value) !== null;
      }),
    );
  });
});

const kinds = ["request", "notice", "result", "error"];

function kindOf(value: JsonValue): string {
  try {
    return readMessage(value).kind;
  } catch (error) {
    if (error instanceof RpcFault) return "refused";
    throw error;
  }
}
