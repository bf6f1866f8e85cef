/**
 * The stream of typed events for `/api` (chat specification, "流式响应事件类型"; CHAT-6). After `error`
 * comes `[DONE]` and no `done`.
 */
import * as z from "zod";
import { toOpenAiError } from "../../errors/to-openai.ts";
import type { ChatEvent } from "../events.ts";
import { ToolCallDeltas, type StreamEncoder } from "./stream-encoder.ts";
import { textForModel } from "../../tools/outcome.ts";

const choiceIndex = z
  .int()
  .min(1)
  .optional()
  .describe("Choice, where more than one was asked for and it is not the first.");
const toolCallDelta = z.object({
  index: z.int().min(0),
  id: z.string().optional(),
  type: z.enum(["function", "custom"]).optional(),
  function: z.object({ name: z.string().optional(), arguments: z.string() }).optional(),
  custom: z.object({ name: z.string().optional(), input: z.string() }).optional().describe("Input of a custom tool."),
});
const usageSchema = z.looseObject({
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  total_tokens: z.number(),
});

export const toolExecutionSchema = z.object({
  executed: z.boolean(),
  tools_called: z.array(z.string()),
  session_id: z.string(),
  workspace_path: z.string(),
  stopped_by: z.enum(["rounds", "repeated_call"]).optional(),
  pending: z
    .array(
      z.object({
        call_id: z.string(),
        tool: z.string(),
        reason: z.enum(["approval", "async", "input"]),
        url: z.string().optional(),
      }),
    )
    .optional(),
});

/** What the gateway says beside OpenAI's fields. */
const sourcesSchema = z.object({
  sources: z
    .array(
      z.object({
        cite: z.string(),
        knowledge_base: z.string(),
        document_id: z.string(),
        document_name: z.string(),
        chunk_id: z.string(),
        start: z.int(),
        end: z.int(),
        heading: z.string(),
        score: z.number(),
        source_url: z.string().nullable(),
      }),
    )
    .describe("Passages of knowledge bases that the model was given."),
});

/** Every payload of the stream, for OpenAPI and the golden files. */
export const typedEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("content"), delta: z.object({ content: z.string() }), index: choiceIndex }),
  z.object({ type: z.literal("reasoning"), delta: z.looseObject({}), index: choiceIndex }),
  z.object({
    type: z.literal("tool_call"),
    delta: z.object({ tool_calls: z.array(toolCallDelta) }),
    index: choiceIndex,
  }),
  z.object({
    type: z.literal("tool_result"),
    tool_call_id: z.string(),
    result: z.object({ success: z.boolean(), content: z.string() }),
  }),
  z.object({ type: z.literal("tool_pending"), tool_call_id: z.string(), tool: z.string(), call_id: z.string() }),
  z.object({
    type: z.literal("approval_required"),
    tool_call_id: z.string(),
    tool: z.string(),
    call_id: z.string(),
    url: z.string(),
    input_requests: z.record(z.string(), z.json()).optional(),
  }),
  z
    .object({ type: z.literal("agent.handoff"), from: z.string(), to: z.string(), reason: z.string() })
    .meta({ description: "Another agent goes on with the conversation." }),
  z.object({
    type: z.literal("done"),
    finish_reason: z.string(),
    usage: usageSchema.optional(),
    tool_execution: toolExecutionSchema.optional(),
    toolyard: sourcesSchema.optional(),
    id: z.string(),
    model: z.string(),
  }),
  z.object({
    type: z.literal("error"),
    error: z.looseObject({ message: z.string(), type: z.string(), param: z.string().nullable(), code: z.string() }),
  }),
]);

export function createTypedEventEncoder(requestId: string): StreamEncoder {
  let start = { id: "", model: "" };
  let usage: unknown;
  const deltas = new ToolCallDeltas();
  const frame = (payload: Record<string, unknown>): string => `data: ${JSON.stringify(payload)}\n\n`;
  const at = (choice: number): { readonly index?: number } => (choice === 0 ? {} : { index: choice });

  return (event: ChatEvent) => {
    switch (event.type) {
      case "start":
        start = { id: event.id, model: event.model };
        return undefined;
      case "text-delta":
        return event.text === ""
          ? undefined
          : frame({ type: "content", delta: { content: event.text }, ...at(event.choice) });
      case "reasoning-delta":
        return frame({ type: "reasoning", delta: { [event.field]: event.text }, ...at(event.choice) });
      case "refusal-delta":
        return frame({ type: "content", delta: { content: event.text }, ...at(event.choice) });
      case "tool-call-delta":
        return frame({
          type: "tool_call",
          delta: { tool_calls: [deltas.encode(event, event.index)] },
          ...at(event.choice),
        });
      case "tool-result":
        return frame(toToolResult(event));
      case "tool-pending":
        return frame(toToolPending(event));
      case "approval-required":
        return frame(toApprovalRequired(event));
      case "handoff":
        return frame(toHandoff(event));
      case "usage":
        usage = event.usage;
        return undefined;
      case "finish": {
        const [first] = event.reasons;
        const done = frame({
          type: "done",
          finish_reason: first?.finishReason ?? "stop",
          ...(usage === undefined ? {} : { usage }),
          ...(event.toolExecution === undefined ? {} : { tool_execution: event.toolExecution }),
          ...(event.sources === undefined ? {} : { toolyard: { sources: event.sources } }),
          ...start,
        });
        return `${done}data: [DONE]\n\n`;
      }
      case "error":
        return `${frame({ type: "error", ...toOpenAiError(event.error, requestId) })}data: [DONE]\n\n`;
      case "other-delta":
      case "tool-call":
        return undefined;
      default:
        return event satisfies never;
    }
  };
}

export function toToolResult(event: Extract<ChatEvent, { type: "tool-result" }>): Record<string, unknown> {
  const { outcome } = event;
  return {
    type: "tool_result",
    tool_call_id: event.toolCallId,
    result: { success: outcome.kind === "completed", content: textForModel(outcome) },
  };
}

export function toToolPending(event: Extract<ChatEvent, { type: "tool-pending" }>): Record<string, unknown> {
  return { type: "tool_pending", tool_call_id: event.toolCallId, tool: event.tool, call_id: event.callId };
}

export function toHandoff({ from, to, reason }: Extract<ChatEvent, { type: "handoff" }>): Record<string, unknown> {
  return { type: "agent.handoff", from, to, reason };
}

export function toApprovalRequired(event: Extract<ChatEvent, { type: "approval-required" }>): Record<string, unknown> {
  return {
    type: "approval_required",
    tool_call_id: event.toolCallId,
    tool: event.tool,
    call_id: event.callId,
    url: event.url,
    ...(event.requests === undefined ? {} : { input_requests: event.requests }),
  };
}
