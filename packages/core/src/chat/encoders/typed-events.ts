/**
 * The stream of typed events for `/api` (chat specification, "流式响应事件类型"; CHAT-6). After `error`
 * comes `[DONE]` and no `done`.
 */
import { toOpenAiError } from "../../errors/to-openai.ts";
import type { ChatEvent } from "../events.ts";
import { ToolCallDeltas, type StreamEncoder } from "./stream-encoder.ts";
import { textForModel } from "../../tools/outcome.ts";

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
