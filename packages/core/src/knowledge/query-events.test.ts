import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { GatewayError } from "../errors/gateway-error.ts";
import { encodeQueryEvent, errorEvent, queryEventSchema } from "./query-events.ts";

describe("events of a streamed query", () => {
  it("names the event, and the trace in its data", () => {
    const text = encodeQueryEvent({ type: "tool_start", tool: "knowledge_search", top_k: 3 }, "abc");
    expect(text).toBe(
      'event: tool_start\ndata: {"type":"tool_start","tool":"knowledge_search","top_k":3,"trace_id":"abc"}\n\n',
    );
  });

  it("lets no field of an event stand for the trace", () => {
    expect(encodeQueryEvent({ type: "done", trace_id: "forged" }, "abc")).toContain('"trace_id":"abc"');
  });

  it("keeps any text on one line of its event", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (content) => {
        const text = encodeQueryEvent({ type: "message_chunk", content }, "abc");
        const lines = text.split(/\r\n|[\n\r]/);
        expect(lines).toHaveLength(4);
        const data: unknown = JSON.parse((lines[1] ?? "").slice("data: ".length));
        expect(queryEventSchema.parse(data)).toMatchObject({ content, trace_id: "abc" });
      }),
    );
  });

  it("says of faults of ours that there was one, and nothing else", () => {
    const foreign = errorEvent(new Error("secret path /var/x"), "req_1");
    expect(JSON.stringify(foreign)).not.toContain("secret");
    const known = errorEvent(new GatewayError("not_found", "There is no knowledge base 'x'."), "req_1");
    expect(known).toMatchObject({ type: "error", error: { code: "not_found", request_id: "req_1" } });
  });
});
