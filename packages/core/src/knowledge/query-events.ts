/**
 * The events of a query that is streamed (KB-1): those of workflows (specification of native tools, 4), as flows tell
 * their runs (flows/workflow-events.ts), with what belongs to a search. Every event names the trace that it belongs to.
 */
import * as z from "zod";
import { toGatewayError } from "../errors/gateway-error.ts";
import { toOpenAiError, type OpenAiErrorBody } from "../errors/to-openai.ts";
import type { JsonObject } from "../json.ts";

/** What an event says; further fields are those of whoever emits it. The encoder adds the trace. */
export type QueryEvent =
  | (JsonObject &
      (
        | { readonly type: "tool_thinking"; readonly content: string }
        | { readonly type: "tool_start"; readonly tool: string }
        | { readonly type: "tool_result"; readonly tool: string; readonly success: boolean }
        | { readonly type: "message_chunk"; readonly content: string }
        | { readonly type: "done" }
      ))
  | { readonly type: "error"; readonly error: OpenAiErrorBody["error"] };

const traceId = z.string().describe("Trace that the event belongs to.");

/** The `data:` of every event, for OpenAPI. */
export const queryEventSchema = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("tool_thinking"), trace_id: traceId, content: z.string() }),
  z.looseObject({ type: z.literal("tool_start"), trace_id: traceId, tool: z.string() }),
  z.looseObject({ type: z.literal("tool_result"), trace_id: traceId, tool: z.string(), success: z.boolean() }),
  z.looseObject({ type: z.literal("message_chunk"), trace_id: traceId, content: z.string() }),
  z.looseObject({ type: z.literal("done"), trace_id: traceId }),
  z.looseObject({
    type: z.literal("error"),
    trace_id: traceId,
    error: z.looseObject({ message: z.string(), type: z.string(), code: z.string() }),
  }),
]);

/** One event of a `text/event-stream`. */
export function encodeQueryEvent(event: QueryEvent, trace: string): string {
  return `event: ${event.type}\ndata: ${JSON.stringify({ ...event, trace_id: trace })}\n\n`;
}

/** The last event of a query that failed. */
export function errorEvent(thrown: unknown, requestId: string): QueryEvent {
  const { error } = toOpenAiError(toGatewayError(thrown), requestId);
  return { type: "error", error };
}
