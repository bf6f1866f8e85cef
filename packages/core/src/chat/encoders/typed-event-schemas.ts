/**
 * The payloads of the stream of typed events, for documents and golden files (CHAT-6). Made when they are asked for:
 * no chat needs them.
 */
import * as z from "zod";
import { once } from "../../once.ts";

const choiceIndex = () =>
  z.int().min(1).optional().describe("Choice, where more than one was asked for and it is not the first.");
const toolCallDelta = () =>
  z.looseObject({
    index: z.int().min(0),
    id: z.string().optional(),
    type: z.enum(["function", "custom"]).optional(),
    function: z.object({ name: z.string().optional(), arguments: z.string() }).optional(),
    custom: z.object({ name: z.string().optional(), input: z.string() }).optional().describe("Input of a custom tool."),
  });
const usageSchema = () =>
  z.looseObject({
    prompt_tokens: z.number(),
    completion_tokens: z.number(),
    total_tokens: z.number(),
  });

export const toolExecutionSchema = once(() =>
  z.object({
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
  }),
);

/** What the gateway says beside OpenAI's fields. */
const sourcesSchema = () =>
  z.object({
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
export const typedEventSchema = once(() =>
  z.discriminatedUnion("type", [
    z.object({ type: z.literal("content"), delta: z.object({ content: z.string() }), index: choiceIndex() }),
    z.object({ type: z.literal("reasoning"), delta: z.looseObject({}), index: choiceIndex() }),
    z.object({
      type: z.literal("tool_call"),
      delta: z.object({ tool_calls: z.array(toolCallDelta()) }),
      index: choiceIndex(),
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
      usage: usageSchema().optional(),
      tool_execution: toolExecutionSchema().optional(),
      toolyard: sourcesSchema().optional(),
      id: z.string(),
      model: z.string(),
    }),
    z.object({
      type: z.literal("error"),
      error: z.looseObject({ message: z.string(), type: z.string(), param: z.string().nullable(), code: z.string() }),
    }),
  ]),
);
