/**
 * The stream as OpenAI writes it, for `/v1` (CHAT-6): one role chunk, one `finish_reason`, one usage
 * chunk where asked for, one `[DONE]`. Calls that the gateway runs do not show, except, on request,
 * in chunks without choices that OpenAI's clients pass over.
 */
import { toOpenAiError } from "../../errors/to-openai.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import type { ChatEvent } from "../events.ts";
import { ToolCallDeltas, type StreamEncoder } from "./stream-encoder.ts";
import { toApprovalRequired, toHandoff, toToolPending, toToolResult } from "./typed-events.ts";

export interface ChunkOptions {
  readonly includeUsage: boolean;
  /** The client knows answers without text: it has tools of its own. */
  readonly hasTools: boolean;
  /** Header `x-toolyard-events: 1`: tool progress in a `toolyard` field. */
  readonly toolEvents: boolean;
  readonly requestId: string;
}

/** What a back end says of its answer as a whole beside what every answer has (`service_tier`, `citations`). */
function saidOfAll(body: JsonObject | undefined): JsonObject {
  return Object.fromEntries(Object.entries(body ?? {}).filter(([field]) => !ownFields.has(field)));
}

const ownFields: ReadonlySet<string> = new Set([
  "id",
  "object",
  "created",
  "model",
  "system_fingerprint",
  "choices",
  "usage",
  "error",
  "tool_execution",
  "toolyard",
]);

export function createChunkEncoder(options: ChunkOptions): StreamEncoder {
  let head = { id: "", object: "chat.completion.chunk", created: 0, model: "" };
  let usage: JsonValue | undefined;
  const roleSent = new Set<number>();
  /** By choice, which counts its calls by itself. */
  const clientIndexes = new Map<number, Map<number, number>>();
  const deltas = new ToolCallDeltas();

  const frame = (fields: Record<string, unknown>): string => `data: ${JSON.stringify({ ...head, ...fields })}\n\n`;
  const delta = (choice: number, part: Record<string, unknown>, more: Record<string, unknown> = {}): string => {
    const first = !roleSent.has(choice);
    roleSent.add(choice);
    return frame({
      choices: [{ index: choice, delta: first ? { role: "assistant", ...part } : part, ...more, finish_reason: null }],
      ...(options.includeUsage ? { usage: null } : {}),
    });
  };
  /** The back end's own bytes, where they say just this and the role has been said. */
  const forward = (
    event: { readonly choice: number; readonly frame?: Uint8Array },
    part: Record<string, unknown>,
  ): string | Uint8Array =>
    event.frame !== undefined && roleSent.has(event.choice) ? event.frame : delta(event.choice, part);
  const progress = (body: Record<string, unknown>): string | undefined =>
    options.toolEvents ? frame({ choices: [], toolyard: body }) : undefined;
  const clientIndex = ({ choice, index }: { readonly choice: number; readonly index: number }): number => {
    let indexes = clientIndexes.get(choice);
    if (indexes === undefined) clientIndexes.set(choice, (indexes = new Map<number, number>()));
    const known = indexes.get(index) ?? indexes.size;
    indexes.set(index, known);
    return known;
  };

  return (event: ChatEvent) => {
    switch (event.type) {
      case "start":
        head = {
          ...head,
          id: event.id,
          created: event.created,
          model: event.model,
          ...(event.systemFingerprint === undefined ? {} : { system_fingerprint: event.systemFingerprint }),
        };
        return delta(0, { content: options.hasTools && event.content === null ? null : "" });
      case "text-delta":
        return event.text === "" && event.frame === undefined ? undefined : forward(event, { content: event.text });
      case "reasoning-delta":
        return forward(event, { [event.field]: event.text });
      case "refusal-delta":
        return forward(event, { refusal: event.text });
      case "other-delta":
        return event.frame !== undefined && roleSent.has(event.choice)
          ? event.frame
          : delta(event.choice, event.delta, event.logprobs === undefined ? {} : { logprobs: event.logprobs });
      case "tool-call-delta": {
        if (event.owner === "gateway") return undefined;
        return delta(event.choice, { tool_calls: [deltas.encode(event, clientIndex(event))] });
      }
      case "tool-call":
        return event.owner === "gateway" ? progress({ type: "tool_call", tool_call: event.call }) : undefined;
      case "tool-result":
        return progress(toToolResult(event));
      case "tool-pending":
        return progress(toToolPending(event));
      case "approval-required":
        return progress(toApprovalRequired(event));
      case "handoff":
        return progress(toHandoff(event));
      case "usage":
        usage = event.usage;
        return undefined;
      case "finish": {
        const said = saidOfAll(event.body);
        const more = {
          ...said,
          ...(event.toolExecution === undefined ? {} : { tool_execution: event.toolExecution }),
          ...(event.sources === undefined ? {} : { toolyard: { sources: event.sources } }),
        };
        const last = event.reasons.map(({ choice, finishReason }) =>
          frame({
            choices: [{ index: choice, delta: {}, finish_reason: finishReason }],
            ...(options.includeUsage ? { usage: null } : {}),
            ...more,
          }),
        );
        if (options.includeUsage && usage !== undefined) last.push(frame({ ...said, choices: [], usage }));
        return `${last.join("")}data: [DONE]\n\n`;
      }
      case "error":
        return `data: ${JSON.stringify(toOpenAiError(event.error, options.requestId))}\n\ndata: [DONE]\n\n`;
      default:
        return event satisfies never;
    }
  };
}
