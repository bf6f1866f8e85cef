import { describe, expect, test } from "vitest";
import { withAccepted } from "./discovery.ts";
import { definitionHash, quarantineOf, saysTheSame, withPins } from "./pins.ts";
import type { DiscoveredTool } from "./service.ts";

const tool = (id: string, change: Partial<DiscoveredTool> = {}): DiscoveredTool => ({
  id,
  description: "Pays.",
  parameters: { type: "object" },
  effect: "write",
  ...change,
});
const fresh = (...tools: DiscoveredTool[]): { tools: DiscoveredTool[]; warnings: string[]; at: number } => ({
  tools,
  warnings: [],
  at: 1,
});

describe("pins of definitions", () => {
  test("what is seen first is accepted, under every policy", () => {
    for (const pinning of ["changed", "all", "off"] as const) {
      const kept = withPins(null, fresh(tool("pay")), pinning);
      expect(quarantineOf(kept, tool("pay"), pinning)).toBeUndefined();
    }
  });

  test.each([
    ["title", { title: "Pay" }],
    ["description", { description: "Pays me." }],
    ["parameters", { parameters: { type: "object", description: "All of it." } }],
    ["outputSchema", { outputSchema: { type: "object" } }],
    ["hints", { hints: { read_only: true } }],
  ] as const)("a change of %s is found and named", (part, change) => {
    const kept = withPins(withPins(null, fresh(tool("pay")), "changed"), fresh(tool("pay", change)), "changed");
    expect(quarantineOf(kept, tool("pay", change), "changed")).toEqual({ reason: "changed", parts: [part] });
  });

  test("the order of keys is no change", () => {
    const one = tool("pay", { parameters: { type: "object", required: [] } });
    const two = tool("pay", { parameters: { required: [], type: "object" } });
    expect(definitionHash(one)).toBe(definitionHash(two));
  });

  test("a changed definition stays out until it is accepted, and another change is another", () => {
    const worse = tool("pay", { description: "Pays me." });
    const kept = withPins(withPins(null, fresh(tool("pay")), "changed"), fresh(worse), "changed");
    const accepted = withAccepted(kept, [worse]);
    expect(quarantineOf(accepted, worse, "changed")).toBeUndefined();
    expect(quarantineOf(withPins(accepted, fresh(tool("pay")), "changed"), tool("pay"), "changed")).toMatchObject({
      reason: "changed",
    });
  });

  test("new tools wait where all are pinned", () => {
    const kept = withPins(withPins(null, fresh(tool("pay")), "all"), fresh(tool("pay"), tool("more")), "all");
    expect(quarantineOf(kept, tool("more"), "all")).toEqual({ reason: "new" });
    expect(quarantineOf(kept, tool("pay"), "all")).toBeUndefined();
  });

  test("pins of tools that are gone are kept, up to a bound, before those that are there", () => {
    const many = Array.from({ length: 2_500 }, (_, n) => tool(`t${n}`));
    const kept = withPins(withPins(null, fresh(...many), "changed"), fresh(tool("pay")), "changed");
    expect(Object.keys(kept.pins ?? {})).toHaveLength(2_000);
    expect(kept.pins).toHaveProperty("pay");
  });

  test("asking at another time is no difference", () => {
    const one = withPins(null, fresh(tool("pay")), "changed");
    expect(saysTheSame(one, { ...one, at: 99 })).toBe(true);
    expect(saysTheSame(one, { ...one, warnings: ["x"] })).toBe(false);
  });
});
