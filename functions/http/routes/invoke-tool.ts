/** One tool call by its address, outside a chat (design "Public contract"; CHAT-5, CHAT-7). */
import { invokeTool, type Invoked } from "@toolyard/core/calls/invoke";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { toErrorDetails } from "@toolyard/core/tools/outcome";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { readIdempotencyKey } from "../idempotency-key.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { toolCallLimits } from "../silence.ts";
import { answerThroughSink } from "../sink.ts";
import { namedToolFields, namesOneTool } from "./named-tool.ts";

const invokeBody = namesOneTool(
  z.strictObject({
    ...namedToolFields,
    async: z.boolean().default(false).meta({ description: "Answer 202 at once; the call runs on a worker." }),
  }),
);

const invokedSchema = z
  .object({
    id: z.string(),
    object: z.literal("call"),
    tool: z.string(),
    status: z.enum(["completed", "queued", "running", "input_required"]),
    content: z.string().optional().meta({
      description:
        "What a model would read: JSON text stays byte for byte. Of a running call, what its tool has answered first.",
    }),
    media_type: z.string().optional(),
    handle: z.object({ call_id: z.string(), bytes: z.number(), media_type: z.string() }).optional(),
    url: z.string().optional().meta({ description: "Where the call can be followed." }),
    input_requests: z.record(z.string(), z.json()).optional().meta({
      description: "What the tool asks a person for, by name; answer with POST /v1/calls/{id}/approve.",
    }),
  })
  .meta({ id: "InvokedCall" });

export const invoke = defineRoute({
  method: "post",
  path: "/v1/tools/invoke",
  summary: "Call one tool",
  description:
    "Runs while the caller waits, or answers 202 where it is asked to, would take too long, or needs approval.",
  tags: ["tools"],
  scope: "tools",
  admission: "own",
  request: {
    body: invokeBody,
    toolArguments: ["arguments"],
    headers: { "idempotency-key": "The first outcome is given again for 24 hours." },
  },
  responses: {
    200: { description: "The outcome.", schema: invokedSchema },
    202: { description: "The call goes on; follow `url`.", schema: invokedSchema },
  },
  isolation: {
    kind: "object",
    arrange: async (owner) => {
      await owner.send("post", "/v1/plugins", {
        schema_version: "v1",
        name: "isolated_tool",
        description: "A tool of one tenant.",
        parameters: { type: "object", properties: {} },
        execution: {
          method: "GET",
          base_url: "https://api.example.com/isolated",
          content_type: "application/json",
          param_placement: "query",
        },
      });
      return { params: {}, body: { uri: "plugin://isolated_tool" } };
    },
  },
  handler: (c, { core, presented, body }) => {
    const exchange = c.get("exchange");
    const idempotencyKey = readIdempotencyKey(c);
    return answerThroughSink(c, async (sink) => {
      const stop = new AbortController();
      sink.onClose((why) => stop.abort(why));
      const tell = (invoked: Invoked): void => {
        if (sink.headSent) return;
        setRateLimitHeaders(exchange.headers, invoked.rate);
        exchange.callerId = invoked.callerId;
        exchange.headers["x-toolyard-call-id"] = invoked.callId;
        if (invoked.replayed) exchange.headers["idempotent-replayed"] = "true";
        const { status, body: answer } = toAnswer(invoked, core.publicUrl);
        const bytes = Buffer.from(JSON.stringify(answer));
        // The length lets the client go on while the call is settled.
        sink.head(status, { "content-type": "application/json", "content-length": String(bytes.length) });
        void sink.write(bytes);
      };
      const invoked = await invokeTool(core, {
        ...presented,
        requestId: exchange.requestId,
        traceId: exchange.traceId,
        span: exchange.span,
        target: body.uri ?? body.name ?? "",
        isUri: body.uri !== undefined,
        arguments: body.arguments,
        async: body.async,
        ...toolCallLimits(c, core.clock),
        signal: stop.signal,
        onResult: tell,
        ...(body.session_id === undefined ? {} : { sessionId: body.session_id }),
        ...((body.runtime_config ?? null) === null ? {} : { runtimeConfig: body.runtime_config }),
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      });
      tell(invoked);
    });
  },
});

interface InvokeAnswer {
  readonly status: 200 | 202;
  readonly body: z.output<typeof invokedSchema>;
}

/** @throws GatewayError what a call came to that did not complete */
function toAnswer({ callId, tool, outcome }: Invoked, publicUrl: string): InvokeAnswer {
  const head = { id: callId, object: "call" as const, tool };
  switch (outcome.kind) {
    case "completed": {
      const { text, mediaType, handle } = outcome;
      const rest =
        handle === undefined
          ? {}
          : { handle: { call_id: handle.callId, bytes: handle.bytes, media_type: handle.mediaType } };
      return { status: 200, body: { ...head, status: "completed", content: text, media_type: mediaType, ...rest } };
    }
    case "pending": {
      const { first } = outcome;
      const status = outcome.reason !== "async" ? "input_required" : first === undefined ? "queued" : "running";
      const said = first === undefined ? {} : { content: first.text, media_type: first.mediaType };
      const asked = outcome.requests === undefined ? {} : { input_requests: { ...outcome.requests } };
      return { status: 202, body: { ...head, status, url: `${publicUrl}/v1/calls/${callId}`, ...said, ...asked } };
    }
    case "failed":
    case "rejected": {
      const { extra, ...details } = toErrorDetails(outcome.details);
      throw new GatewayError(outcome.code, outcome.message, {
        toolName: tool,
        ...details,
        extra: { ...extra, call_id: callId },
      });
    }
    default:
      return outcome satisfies never;
  }
}
