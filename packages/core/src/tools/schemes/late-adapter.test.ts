import { describe, expect, test } from "vitest";
import { callContext } from "../../../../../test/support/call-context.ts";
import type { ToolAdapter } from "../adapter.ts";
import { parseToolUri } from "../uri.ts";
import { LateAdapter } from "./late-adapter.ts";

const uri = parseToolUri("api://crm/list");
const context = callContext();

describe("the adapter of a scheme that has not been read", () => {
  test("has nothing, and says so to who asks for it", async () => {
    const late = new LateAdapter("api", () => Promise.reject(new Error("not asked for")));
    expect(late.list(context)).toEqual([]);
    expect([late.find("x", context), late.resolve(uri, context), late.options, late.services]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(late.whyMissing(uri, context)).toMatch(/no api service 'crm'.*POST \/v1\/tool-services/);
  });

  test("is read once for all who ask at the same time, and passes on what the adapter says", async () => {
    let made = 0;
    const adapter: ToolAdapter = {
      options: {},
      resolve: () => undefined,
      list: () => [],
      find: () => undefined,
      whyMissing: () => "made",
      invoke: () => Promise.reject(new Error("invoked")),
    };
    const late = new LateAdapter("api", () => {
      made += 1;
      return Promise.resolve(adapter);
    });
    await Promise.all([late.load(), late.load()]);
    expect(made).toBe(1);
    expect(late.options).toBe(adapter.options);
    expect(late.whyMissing(uri, context)).toBe("made");
  });
});
