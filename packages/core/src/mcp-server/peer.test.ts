import { describe, expect, test } from "vitest";
import type { JsonObject } from "../json.ts";
import { describeClient, eraOf, newSession, sessionPeer, statelessPeer, takesForms } from "./peer.ts";

const version = "io.modelcontextprotocol/protocolVersion";
const capabilities = "io.modelcontextprotocol/clientCapabilities";
const headersOf =
  (headers: Readonly<Record<string, string>>) =>
  (name: string): string | undefined =>
    headers[name];

describe("the era of a message", () => {
  test.each<[string, JsonObject, Readonly<Record<string, string>>, string]>([
    ["tools/list", {}, {}, "session"],
    ["tools/list", {}, { "mcp-protocol-version": "2025-06-18" }, "session"],
    ["tools/list", {}, { "mcp-protocol-version": "2026-07-28" }, "stateless"],
    ["tools/list", {}, { "mcp-protocol-version": "2099-01-01" }, "stateless"],
    ["tools/list", { _meta: { [version]: "2026-07-28" } }, { "mcp-protocol-version": "2025-06-18" }, "stateless"],
    ["initialize", {}, { "mcp-protocol-version": "2099-01-01" }, "session"],
    ["initialize", { _meta: { [version]: "2026-07-28" } }, {}, "stateless"],
  ])("of %s with %j and %j is %s", (method, params, headers, era) => {
    expect(eraOf(method, params, headersOf(headers))).toBe(era);
  });
});

describe("a client of 2026-07-28", () => {
  const read = (name: string, header: string): unknown =>
    statelessPeer(
      { id: 1, method: "tools/call", params: { name, _meta: { [version]: "2026-07-28", [capabilities]: {} } } },
      headersOf({ "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": header }),
    );

  test("may encode a name that no header can hold", () => {
    expect(read("查询", "=?base64?5p+l6K+i?=")).toMatchObject({ era: "stateless", takesTasks: false });
    expect(read("plain", "  plain\t")).toBeDefined();
  });

  test.each([
    ["查询", "5p+l6K+i"],
    ["查询", "=?base64?5p+l6K+?="],
    ["plain", "PLAIN"],
    ["plain", "plain, plain"],
    ["=?base64?eA==?=", "=?base64?eA==?="],
  ])("is refused where the name %j is mirrored as %j", (name, header) => {
    expect(() => read(name, header)).toThrow(expect.objectContaining({ code: -32_020, status: 400 }));
  });
});

test("the newest revision is agreed on where the one that a client asks for is unknown", () => {
  expect(newSession({ protocolVersion: "2025-06-18" }).revision).toBe("2025-06-18");
  expect(newSession({ protocolVersion: "2099-01-01" }).revision).toBe("2025-11-25");
  expect(newSession({}).revision).toBe("2025-11-25");
});

describe("what a client says of itself", () => {
  test("is kept for the audit in plain characters", () => {
    expect(describeClient({ name: "Claude Desktop", version: "1.0" })).toBe("Claude_Desktop/1.0");
    expect(describeClient({ name: "x\r\ny\u202e" })).toBe("x_y_");
    expect(describeClient({ name: "x".repeat(500) })).toHaveLength(120);
    expect(describeClient("x")).toBeUndefined();
    expect(describeClient({ name: 7 })).toBeUndefined();
  });

  test("that it can be asked with forms, which an empty object says as well", () => {
    expect([{ elicitation: {} }, { elicitation: { form: {}, url: {} } }].map(takesForms)).toEqual([true, true]);
    expect([{}, { elicitation: { url: {} } }, { elicitation: true }].map(takesForms)).toEqual([false, false, false]);
  });

  test("of its revision counts for the request, else that of its session, else the oldest", () => {
    const session = { nonce: "n", revision: "2025-06-18", takesForms: true, client: undefined };
    expect(sessionPeer(headersOf({ "mcp-protocol-version": "2025-11-25" }), session).revision).toBe("2025-11-25");
    expect(sessionPeer(headersOf({}), session)).toMatchObject({ revision: "2025-06-18", takesForms: true });
    expect(sessionPeer(headersOf({}), undefined)).toMatchObject({ revision: "2025-03-26", takesForms: false });
  });
});
