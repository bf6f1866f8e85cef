import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Adapters } from "../tools/catalog.ts";
import { aliasOf } from "../tools/alias.ts";
import type { Tool } from "../tools/tool.ts";
import { choiceFor, dispatchItemOf, isOurs, makeOffer, type Offer } from "./offer.ts";
import { parseChatRequest } from "./schema.ts";

const named = (name: string): Tool => ({
  uri: `mcp://crm/${encodeURIComponent(name)}`,
  name,
  description: "Finds a customer.",
  parameters: { type: "object" },
  kind: "MCP",
  enabled: true,
  roles: [],
  effect: "read",
  repeat: "natural",
  sensitive: false,
  service: "crm",
  requiredCredentials: [],
  outputTrust: "outside",
  hash: "h",
});

function offerOf(names: readonly string[], settings: Readonly<Record<string, unknown>> = {}): Offer {
  const tools = names.map(named);
  const adapters: Adapters = {
    mcp: {
      resolve: () => undefined,
      list: () => tools,
      invoke: () => Promise.reject(new Error("nothing is run here")),
    },
  };
  const request = parseChatRequest({ model: "m", messages: [{ role: "user", content: "go" }] });
  return makeOffer(adapters, callContext({ settings }), request);
}

describe(`tools with names that no back end takes ${verifies("CHAT-4")}`, () => {
  const name = "crm.find customer";
  const alias = aliasOf(name);

  test("are offered under an alias, which leads back to their address", () => {
    const offer = offerOf([name]);
    expect(JSON.stringify(offer.tools)).toContain(`"name":"${alias}"`);
    expect(isOurs(offer, alias)).toBe(true);
    expect(isOurs(offer, name)).toBe(false);
    expect(dispatchItemOf(offer, { name: alias, arguments: "{}" })).toEqual({
      target: "mcp://crm/crm.find%20customer",
      arguments: "{}",
      isOffered: true,
    });
  });

  test("are called by it through call_tool as well", () => {
    const offer = offerOf([name, "other"], { tools_offered_max: 1 });
    const given = JSON.stringify({ name: alias, arguments: { a: 1 } });
    expect(dispatchItemOf(offer, { name: "call_tool", arguments: given })).toEqual({
      target: "mcp://crm/crm.find%20customer",
      arguments: { a: 1 },
      isOffered: true,
    });
  });
});

describe(`offers ${verifies("CHAT-4")}`, () => {
  test("are of equal bytes whatever order the tools come in", () => {
    const names = ["b", "a", "c.d", "c_d"];
    expect(JSON.stringify(offerOf(names.toReversed()).tools)).toBe(JSON.stringify(offerOf(names).tools));
  });

  test("know search_tools and call_tool only where there is something to search", () => {
    expect(isOurs(offerOf(["a"]), "search_tools")).toBe(false);
    expect(dispatchItemOf(offerOf(["a"]), { name: "call_tool", arguments: "{}" }).isOffered).toBe(false);
    expect(isOurs(offerOf(["a", "b"], { tools_offered_max: 1 }), "search_tools")).toBe(true);
  });
});

describe(`a choice among tools ${verifies("CHAT-1")}`, () => {
  test("is the one that came where no tool has another name for models: a request's own bytes say it", () => {
    const tools = [{ type: "function", function: { name: "lookup" } }];
    const choice = { type: "allowed_tools", allowed_tools: { mode: "auto", tools } };
    expect(choiceFor(offerOf(["other"]), choice)).toBe(choice);
  });
});
