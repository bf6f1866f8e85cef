import { describe, expect, test } from "vitest";
import type { Tool } from "./tool.ts";
import { rankTools, unwrapCall } from "./tool-search.ts";

function tool(name: string, description: string, title?: string): Tool {
  return {
    uri: `plugin://${name}`,
    name,
    ...(title === undefined ? {} : { title }),
    description,
    parameters: { type: "object" },
    kind: "HTTP",
    enabled: true,
    roles: [],
    effect: "read",
    repeat: "natural",
    sensitive: false,
    service: name,
    requiredCredentials: [],
    outputTrust: "outside",
    hash: name,
  };
}

const tools = [
  tool("create_invoice", "Writes an invoice for a customer."),
  tool("searchCompanies", "Looks a company up in the register."),
  tool("company_news", "News of the day."),
  tool("weather", "Weather for a place, for a company's picnic or anything else."),
  tool("qcc", "根据关键词查询企业的基础工商信息。", "企业查询"),
  tool("tianqi", "查询天气预报。"),
];

const found = (query: string): string[] => rankTools(tools, query).map(({ name }) => name);

describe("the search for tools", () => {
  test("weighs names over descriptions, and reads words joined by case or underscores", () => {
    expect(found("company")).toEqual(["searchCompanies", "company_news", "weather"]);
    expect(found("INVOICES")).toEqual(["create_invoice"]);
  });

  test("prefers what has the rarer words", () => {
    expect(found("company weather")[0]).toBe("weather");
  });

  test("reads Chinese by pairs of characters", () => {
    expect(found("企业信息")).toEqual(["qcc"]);
    expect(found("查询天气")).toEqual(["tianqi", "qcc"]);
    expect(found("用API查询企业")[0]).toBe("qcc");
  });

  test("finds nothing for words that no tool has, and for none", () => {
    expect(found("zebra")).toEqual([]);
    expect(found("")).toEqual([]);
    expect(found("?!")).toEqual([]);
    expect(rankTools([], "company")).toEqual([]);
  });

  test("gives the same order whatever order the tools come in", () => {
    const query = "company weather 查询";
    expect(rankTools(tools.toReversed(), query)).toEqual(rankTools(tools, query));
    const twins = [tool("b", "the same words"), tool("a", "the same words")];
    expect(rankTools(twins, "words").map(({ name }) => name)).toEqual(["a", "b"]);
  });
});

describe("the call inside a call_tool", () => {
  test("is read, without arguments too", () => {
    expect(unwrapCall('{"name":"qcc","arguments":{"keyword":"x"}}')).toEqual({
      name: "qcc",
      arguments: { keyword: "x" },
    });
    expect(unwrapCall('{"name":"qcc"}')).toEqual({ name: "qcc", arguments: {} });
  });

  test.each(["", "{", "[]", "{}", '{"name":""}', '{"name":{}}', '{"name":"a","arguments":[1]}'])(
    "is none in %s",
    (given) => {
      expect(unwrapCall(given)).toBeUndefined();
    },
  );
});
