/** One TOOL_REQUEST block by hand: VCP's `POST /v1/human/tool`, with upstream's bodies (VCP-10). */
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { readIdempotencyKey } from "../idempotency-key.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { toolCallLimits } from "../silence.ts";
import { answerThroughSink } from "../sink.ts";

const longestBody = 1_048_576;
const anything = z.json().meta({ description: "The tool's result, or its error, as VCP writes them." });

export const humanTool = defineRoute({
  method: "post",
  path: "/v1/human/tool",
  summary: "Call one tool by a TOOL_REQUEST block",
  description:
    "The first block of the text is run: by VCP plugin name, or by name or address of any other tool. A call in MCP's form (`tools/call`) is taken as well.",
  tags: ["tools"],
  scope: "tools",
  admission: "own",
  request: {
    stream: { mediaTypes: ["text/plain"], description: "A TOOL_REQUEST block." },
    maxBytes: longestBody,
    headers: { "idempotency-key": "The first outcome is given again for 24 hours." },
  },
  responses: {
    200: { description: "The bare result.", schema: anything },
    202: { description: "The call waits for a person, or runs on; follow `url`.", schema: anything },
    400: { description: "There is no block, or it names no tool.", schema: anything },
    500: { description: "The tool failed, or there is none of the name.", schema: anything },
  },
  isolation: { kind: "nothing-owned", reason: "runs tools of the caller's own tenant; see the suite of invocations" },
  handler: async (c, { core, presented, stream }) => {
    const exchange = c.get("exchange");
    const idempotencyKey = readIdempotencyKey(c);
    // Few deployments need it, and none at every start.
    const { callByHand } = await import("@toolyard/core/vcp/dialect/human-tool");
    const parts: Uint8Array[] = [];
    for await (const part of stream) parts.push(part);
    return answerThroughSink(c, async (sink) => {
      const stop = new AbortController();
      sink.onClose((why) => stop.abort(why));
      const { status, body, invoked } = await callByHand(core, Buffer.concat(parts).toString("utf8"), {
        ...presented,
        requestId: exchange.requestId,
        traceId: exchange.traceId,
        span: exchange.span,
        ...toolCallLimits(c, core.clock),
        signal: stop.signal,
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      });
      if (invoked !== undefined) {
        setRateLimitHeaders(exchange.headers, invoked.rate);
        exchange.callerId = invoked.callerId;
        exchange.headers["x-toolyard-call-id"] = invoked.callId;
        if (invoked.replayed) exchange.headers["idempotent-replayed"] = "true";
      }
      const bytes = Buffer.from(JSON.stringify(body));
      sink.head(status, { "content-type": "application/json", "content-length": String(bytes.length) });
      sink.end(bytes);
    });
  },
});
