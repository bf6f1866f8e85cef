import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { formatToolUri, parseToolUri, encodeAddress } from "./uri.ts";

/** `catalogued`: accepted, or refused by an error that callers may see. */
function outcomeOf(parse: () => unknown): string {
  try {
    parse();
    return "catalogued";
  } catch (error) {
    return error instanceof GatewayError ? "catalogued" : String(error);
  }
}

function refusal(text: string): GatewayError {
  try {
    parseToolUri(text);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error(`'${text}' was accepted`);
}

describe(`tool URIs ${verifies("URI-1", "URI-3", "URI-4")}`, () => {
  test("a full address parses into its four parts", () => {
    expect(parseToolUri("api://crm/customer_list?timeout=5000&max-attempts=3")).toEqual({
      scheme: "api",
      service: "crm",
      tool: "customer_list",
      options: { timeoutMs: 5_000, maxAttempts: 3 },
    });
  });

  test("ids keep their case and non-ASCII letters, whatever the platform's URL parser would do", () => {
    expect(parseToolUri("MCP://Fi%2Fles/读取%20文件")).toMatchObject({
      scheme: "mcp",
      service: "Fi/les",
      tool: "读取 文件",
    });
    expect(parseToolUri("plugin://Search_Company").service).toBe("Search_Company");
    expect(parseToolUri("svc://%E8%AE%A2%E5%8D%95/%E6%9F%A5%E8%AF%A2")).toEqual(parseToolUri("svc://订单/查询"));
  });

  test("half of a surrogate pair has an address all the same, as what other programs make of it", () => {
    expect(formatToolUri("mcp", "maps", "a\ud800/b")).toBe("mcp://maps/a%EF%BF%BD/b");
  });

  test("patterns may be written as people write, with stars that stand for anything and stars that do not", () => {
    expect(encodeAddress("api://订单服务/*")).toBe("api://%E8%AE%A2%E5%8D%95%E6%9C%8D%E5%8A%A1/*");
    expect(encodeAddress("SVC://crm/a%2fb*")).toBe("svc://crm/a%2Fb*");
    expect(encodeAddress("svc://crm/%2a")).toBe("svc://crm/%2A");
  });

  test("paths are not walked: what a platform would take for the tool above is an id like any other", () => {
    expect(parseToolUri("api://crm/../x")).toMatchObject({ service: "crm", tool: "../x" });
    expect(parseToolUri("api://crm/a/b").tool).toBe("a/b");
  });

  test.each([
    ["flow://daily/step", "takes no tool id"],
    ["api://crm", "needs a tool id"],
    ["api:///list", "service id is missing"],
    ["api:crm/list", "is not a tool URI"],
    ["", "is not a tool URI"],
    ["invalid-uri", "is not a tool URI"],
    ["api://user:pw@crm/x", "no user name, password or port"],
    ["api://crm:99999/x", "no user name, password or port"],
    ["api://crm/list#part", "no '#' part"],
    ["api://crm/%zz", "bad percent-encoding"],
    ["api://crm/%00", "control character"],
    [`api://crm/${"x".repeat(2_100)}`, "2,048"],
  ])("refuses %s and says why", (text, reason) => {
    const error = refusal(text);
    expect(error.code).toBe("invalid_uri");
    expect(error.message).toContain(reason);
  });

  test("an unknown type is a tool that is not found, and the type is named", () => {
    const error = refusal("ftp://host/file");
    expect(error.code).toBe("tool_not_found");
    expect(error.message).toContain("'ftp'");
  });

  test.each([
    ["timeout=abc", "timeout"],
    ["timeout=-1", "timeout"],
    ["timeout=1e3", "timeout"],
    ["max-attempts=0", "max-attempts"],
    ["method=TRACE", "method"],
    ["async=yes", "async"],
    ["version=../1", "version"],
    ["version=0", "version"],
    ["version=latest", "version"],
    ["colour=red", "colour"],
    ["timeout=1&timeout=2", "timeout"],
    ["timeout=%zz", "timeout"],
    ["constructor=1", "constructor"],
  ])("refuses the option %s by name", (query, option) => {
    const error = refusal(`api://crm/list?${query}`);
    expect(error.code).toBe("invalid_uri");
    expect(error.details.param).toBe(option);
  });

  test("any text either parses or is refused with a catalogued error", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((tail) => `api://${tail}`),
          fc.webUrl(),
        ),
        (text) => {
          expect(outcomeOf(() => parseToolUri(text))).toBe("catalogued");
        },
      ),
    );
  });

  test("what was formatted parses back to the same ids", () => {
    const id = fc.string({ minLength: 1, maxLength: 40, unit: "grapheme" }).filter((text) => !/\p{Cc}/u.test(text));
    fc.assert(
      fc.property(id, id, (service, tool) => {
        const parsed = parseToolUri(formatToolUri("mcp", service, tool));
        expect([parsed.service, parsed.tool]).toEqual([service, tool]);
      }),
    );
  });
});
