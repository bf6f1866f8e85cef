import { describe, expect, test } from "vitest";
import { partsMediaType } from "../mcp/call-result.ts";
import type { CompletedOutcome } from "../tools/outcome.ts";
import { protocolFault, toCallReply, type ReplyOptions } from "./call-reply.ts";

const options = (body: string | Uint8Array, change: Partial<ReplyOptions> = {}): ReplyOptions => ({
  callId: "call_1",
  peer: { era: "stateless", revision: "2026-07-28" },
  publicUrl: "https://gateway.example",
  mostText: 1_000,
  open: () =>
    Promise.resolve({
      mediaType: "",
      bytes: body.length,
      body: (async function* () {
        yield Buffer.from(body);
      })(),
    }),
  ...change,
});
const whole = (mediaType: string, bytes: number): CompletedOutcome => ({
  kind: "completed",
  text: "[head]",
  mediaType,
  handle: { callId: "call_1", bytes, mediaType },
});
const old = { peer: { era: "session", revision: "2025-03-26" } } as const;

describe("a result for a client", () => {
  test("is JSON as text and as a value, which before 2026-07-28 must be an object", async () => {
    const outcome = { kind: "completed", text: "[1]", mediaType: "application/problem+json" } as const;
    expect(await toCallReply(outcome, options(""))).toMatchObject({ structuredContent: [1] });
    expect(await toCallReply(outcome, options("", old))).toEqual({ content: [{ type: "text", text: "[1]" }] });
    const broken = { kind: "completed", text: "{", mediaType: "application/json" } as const;
    expect(await toCallReply(broken, options(""))).toEqual({ content: [{ type: "text", text: "{" }] });
  });

  test("is a picture or a sound as it is, up to a size", async () => {
    const picture = await toCallReply(whole("image/png", 3), options(Buffer.from([1, 2, 3]), old));
    expect(picture).toEqual({ content: [{ type: "image", data: "AQID", mimeType: "image/png" }] });
    const large = await toCallReply(whole("image/png", 5_000_000), options(""));
    expect(large).toMatchObject({
      content: [{ type: "text" }, { type: "resource_link", uri: "https://gateway.example/v1/calls/call_1/result" }],
    });
  });

  test("of another server keeps the parts that the client knows", async () => {
    const content = [
      { type: "text", text: "a" },
      { type: "resource_link", uri: "x://y", name: "y" },
      { type: "hologram" },
      { type: "image", data: 7 },
      null,
    ];
    const body = JSON.stringify({ content, structuredContent: { n: 1 } });
    const outcome = whole(partsMediaType, body.length);
    const reply = await toCallReply(outcome, options(body));
    expect(reply["content"]).toEqual([
      ...content.slice(0, 2),
      { type: "text", text: '{"type":"hologram"}' },
      { type: "text", text: '{"type":"image","data":7}' },
      { type: "text", text: "null" },
    ]);
    expect((await toCallReply(outcome, options(body, old)))["content"]).toContainEqual({
      type: "text",
      text: '{"type":"resource_link","uri":"x://y","name":"y"}',
    });
    const cut = await toCallReply(outcome, options(body, { mostText: 0 }));
    expect(cut["content"]).toMatchObject([{ text: "[head]" }, { type: "resource_link", mimeType: "application/json" }]);
  });

  test("that was described has a structured part that fits, whole even where its text is cut", async () => {
    const outputSchema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const described = { outputSchema };
    const completed = (text: string, mediaType = "application/json"): CompletedOutcome => ({
      kind: "completed",
      text,
      mediaType,
    });
    const long = '{"n":12345678901234567890}';
    const told = await toCallReply(whole("application/json", long.length), options(long, described));
    expect(JSON.stringify(told)).toContain('"structuredContent":{"n":12345678901234567890}');
    expect(told).toMatchObject({ content: [{ text: "[head]" }, { type: "resource_link" }] });
    expect(await toCallReply(completed('{"n":1}', "text/plain"), options("", described))).toEqual({
      content: [{ type: "text", text: '{"n":1}' }],
      structuredContent: { n: 1 },
    });
    const parts = JSON.stringify({ content: [{ type: "text", text: "x".repeat(2_000) }], structuredContent: { n: 2 } });
    expect(await toCallReply(whole(partsMediaType, parts.length), options(parts, described))).toMatchObject({
      content: [{ text: "[head]" }, { type: "resource_link" }],
      structuredContent: { n: 2 },
    });
    const misfits = [
      [completed('{"n":"***"}'), "/n: "],
      [completed("[1]"), "the result: "],
      [completed("two", "text/plain"), "no structured part"],
      [whole("application/json", 5_000_000), "no structured part"],
    ] as const;
    for (const [outcome, problem] of misfits) {
      const reply = await toCallReply(outcome, options("", described));
      expect(reply["isError"]).toBe(true);
      expect(JSON.stringify(reply["content"])).toContain(problem);
      expect(reply["content"]).toContainEqual({ type: "text", text: outcome.text });
      expect(reply).not.toHaveProperty("structuredContent");
    }
  });

  test("that is gone is told of by its head", async () => {
    const gone = options("", { open: () => Promise.resolve(undefined) });
    for (const type of ["image/png", partsMediaType]) {
      expect((await toCallReply(whole(type, 3), gone))["content"]).toMatchObject([{ type: "text", text: "[head]" }]);
    }
  });
});

describe("a failure", () => {
  test("is a result with its code, unless it is one of the protocol", async () => {
    const failed = { kind: "failed", code: "tool_failed", message: "no", details: { status: 500 } } as const;
    expect(await toCallReply(failed, options(""))).toMatchObject({
      isError: true,
      structuredContent: { error: { code: "tool_failed", message: "no", call_id: "call_1", details: { status: 500 } } },
    });
    const broken = { kind: "failed", code: "internal_error", message: "ours" } as const;
    await expect(toCallReply(broken, options(""))).rejects.toMatchObject({ code: -32_603 });
  });

  test("of another server keeps its code where that means the same here", () => {
    const fault = (code: number): number | undefined =>
      protocolFault({ code: "tool_failed", message: "", details: { rpc_code: code } })?.code;
    expect([fault(-32_603), fault(-32_602), fault(-32_022), fault(-32_001), fault(42)]).toEqual([
      -32_603,
      undefined,
      -32_603,
      -32_603,
      42,
    ]);
  });
});
