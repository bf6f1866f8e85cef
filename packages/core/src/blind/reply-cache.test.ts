import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { EgressResponse } from "../ports/egress.ts";
import type { InvocationContext, ToolCall } from "../tools/tool-call.ts";
import { cacheKey, ReplyCache } from "./reply-cache.ts";

function answered(body: string, etag = '"1"'): Parameters<ReplyCache["keep"]>[2] {
  const response = { status: 200, headers: { etag } } as unknown as EgressResponse;
  return { response, reply: { mediaType: "text/plain", body } };
}

describe(`replies that are kept ${verifies("CHAT-14")}`, () => {
  test("are bounded in number although their bodies are empty, the least recently used go first", () => {
    const cache = new ReplyCache();
    for (let at = 0; at < 40_000; at += 1) {
      cache.keep(`read ${at}`, "ten_1 shop", answered(""));
      if (at % 1_000 === 0) cache.find("read 0");
    }
    expect(cache.find("read 0")).toBeDefined();
    expect(cache.find("read 1")).toBeUndefined();
    expect(cache.find("read 39999")).toBeDefined();
  });

  test("count their validators: a long one takes as much room as a body", () => {
    const cache = new ReplyCache();
    for (let at = 0; at < 2_000; at += 1)
      cache.keep(`read ${at}`, "ten_1 shop", answered("", `"${"e".repeat(16_000)}"`));
    expect(cache.find("read 0")).toBeUndefined();
    expect(cache.find("read 1999")).toBeDefined();
  });

  test("are known by a key that is short however long the arguments are, and tells them apart", () => {
    const keyOf = (q: string): string => {
      const call = { tool: { requiredCredentials: [], hash: "hash" }, arguments: { q } } as unknown as ToolCall;
      return cacheKey(call, callContext() as InvocationContext);
    };
    const [one, other] = [keyOf(`${"x".repeat(100_000)}1`), keyOf(`${"x".repeat(100_000)}2`)];
    expect(one.length).toBeLessThan(100);
    expect(other).not.toBe(one);
  });

  test("are void after a write at their place, and only there", () => {
    const cache = new ReplyCache();
    cache.keep("a", "ten_1 shop", answered("1"));
    cache.keep("b", "ten_1 shop", answered("2"));
    cache.keep("c", "ten_2 shop", answered("3"));
    cache.forget("ten_1 shop");
    expect(["a", "b", "c"].map((key) => cache.find(key)?.reply.body)).toEqual([undefined, undefined, "3"]);
  });
});
