/** Every payload of both streams, byte for byte, as kept in golden/ (CHAT-6). */
import { ChatCollector } from "@toolyard/core/chat/collect";
import { createChunkEncoder } from "@toolyard/core/chat/encoders/openai-chunks";
import type { StreamEncoder } from "@toolyard/core/chat/encoders/stream-encoder";
import { typedEventSchema } from "@toolyard/core/chat/encoders/typed-event-schemas";
import { createTypedEventEncoder } from "@toolyard/core/chat/encoders/typed-events";
import type { ChatEvent } from "@toolyard/core/chat/events";
import { eventsOfBody } from "@toolyard/core/chat/stored-chat";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";

const usage = { prompt_tokens: 30, completion_tokens: 12, total_tokens: 42 };
const start: ChatEvent = {
  type: "start",
  id: "chatcmpl-1",
  model: "stub-1",
  created: 1_795_000_000,
  systemFingerprint: "fp_1",
};
const execution = {
  executed: true,
  tools_called: ["search_company_basic"],
  session_id: "sess_1",
  workspace_path: "/mcp_workspaces/sess_1",
};
const stop: ChatEvent = { type: "finish", reasons: [{ choice: 0, finishReason: "stop" }], toolExecution: undefined };

function callEvents(owner: "client" | "gateway", index: number): ChatEvent[] {
  const id = `call_${owner}_${index}`;
  return [
    { type: "tool-call-delta", owner, index, id, name: `tool_${index}`, arguments: "", choice: 0 },
    { type: "tool-call-delta", owner, index, arguments: '{"q":', choice: 0 },
    { type: "tool-call-delta", owner, index, arguments: '"北京"}', choice: 0 },
    {
      type: "tool-call",
      owner,
      index,
      call: { id, type: "function", function: { name: `tool_${index}`, arguments: '{"q":"北京"}' } },
      choice: 0,
    },
  ];
}

const text = (value: string, choice = 0): ChatEvent => ({ type: "text-delta", text: value, choice });

const streams: Readonly<Record<string, readonly ChatEvent[]>> = {
  "plain-text": [start, text("你好"), text(", world"), { type: "usage", usage, rounds: [usage] }, stop],
  "two-choices": [
    start,
    text("a", 0),
    text("b", 1),
    {
      type: "finish",
      reasons: [
        { choice: 0, finishReason: "stop" },
        { choice: 1, finishReason: "length" },
      ],
      toolExecution: undefined,
    },
  ],
  "reasoning-and-refusal": [
    start,
    { type: "reasoning-delta", text: "hm", field: "reasoning_content", choice: 0 },
    { type: "other-delta", delta: { annotations: [] }, logprobs: { content: [] }, choice: 0 },
    { type: "refusal-delta", text: "No.", choice: 0 },
    stop,
  ],
  "gateway-call": [
    start,
    ...callEvents("gateway", 0),
    {
      type: "tool-result",
      toolCallId: "call_gateway_0",
      tool: "tool_0",
      outcome: { kind: "completed", text: '{"ok":true}', mediaType: "application/json" },
    },
    text("Done."),
    { type: "usage", usage, rounds: [usage, usage] },
    { type: "finish", reasons: [{ choice: 0, finishReason: "stop" }], toolExecution: execution },
  ],
  "failed-call": [
    start,
    ...callEvents("gateway", 0),
    {
      type: "tool-result",
      toolCallId: "call_gateway_0",
      tool: "tool_0",
      outcome: { kind: "failed", code: "tool_failed", message: "HTTP 500" },
    },
    text("It failed."),
    { type: "finish", reasons: [{ choice: 0, finishReason: "stop" }], toolExecution: execution },
  ],
  "client-calls": [
    start,
    ...callEvents("client", 0),
    ...callEvents("client", 1),
    { type: "finish", reasons: [{ choice: 0, finishReason: "tool_calls" }], toolExecution: undefined },
  ],
  "custom-call": [
    start,
    {
      type: "tool-call-delta",
      owner: "client",
      index: 0,
      id: "call_1",
      name: "sql",
      arguments: "",
      custom: true,
      choice: 0,
    },
    { type: "tool-call-delta", owner: "client", index: 0, arguments: "select 1", choice: 0 },
    {
      type: "tool-call",
      owner: "client",
      index: 0,
      call: { id: "call_1", type: "custom", custom: { name: "sql", input: "select 1" } },
      choice: 0,
    },
    { type: "finish", reasons: [{ choice: 0, finishReason: "tool_calls" }], toolExecution: undefined },
  ],
  "mixed-calls": [
    start,
    ...callEvents("gateway", 0),
    ...callEvents("client", 1),
    {
      type: "tool-result",
      toolCallId: "call_gateway_0",
      tool: "tool_0",
      outcome: { kind: "completed", text: "1", mediaType: "application/json" },
    },
    { type: "finish", reasons: [{ choice: 0, finishReason: "tool_calls" }], toolExecution: execution },
  ],
  pending: [
    start,
    ...callEvents("gateway", 0),
    { type: "tool-pending", toolCallId: "call_gateway_0", tool: "tool_0", callId: "call_1" },
    {
      type: "approval-required",
      toolCallId: "call_gateway_1",
      tool: "tool_1",
      callId: "call_2",
      url: "http://gateway/v1/calls/call_2",
    },
    text("'tool_1' waits for approval (call call_2): http://gateway/v1/calls/call_2"),
    {
      type: "finish",
      reasons: [{ choice: 0, finishReason: "stop" }],
      toolExecution: {
        ...execution,
        pending: [{ call_id: "call_2", tool: "tool_1", reason: "approval", url: "http://gateway/v1/calls/call_2" }],
      },
    },
  ],
  handoff: [
    start,
    text("One moment."),
    ...callEvents("gateway", 0),
    {
      type: "tool-result",
      toolCallId: "call_gateway_0",
      tool: "tool_0",
      outcome: { kind: "completed", text: "1", mediaType: "application/json" },
    },
    { type: "handoff", from: "front", to: "billing", reason: "It is about money." },
    text("Hello from billing."),
    { type: "finish", reasons: [{ choice: 0, finishReason: "stop" }], toolExecution: execution },
  ],
  error: [
    start,
    text("Let me see"),
    { type: "error", error: new GatewayError("rounds_exceeded", "Too many rounds."), toolExecution: execution },
  ],
};

function encode(encoder: StreamEncoder, events: readonly ChatEvent[]): string {
  return events.map((event) => encoder(event) ?? "").join("");
}

function payloads(stream: string): unknown[] {
  return stream
    .split("\n\n")
    .filter((frame) => frame !== "")
    .map((frame) => {
      expect(frame.startsWith("data: ")).toBe(true);
      const data = frame.slice("data: ".length);
      return data === "[DONE]" ? data : (JSON.parse(data) as unknown);
    });
}

describe(`streams on the wire ${verifies("CHAT-6")}`, () => {
  test.each(Object.keys(streams))("%s as OpenAI writes it", async (name) => {
    const encoder = createChunkEncoder({ includeUsage: true, hasTools: true, toolEvents: false, requestId: "req_1" });
    const stream = encode(encoder, streams[name] ?? []);
    await expect(stream).toMatchFileSnapshot(`golden/v1-${name}.sse`);
    const chunks = payloads(stream);
    expect(chunks.at(-1)).toBe("[DONE]");
    expect(chunks.filter((chunk) => chunk === "[DONE]")).toHaveLength(1);
  });

  test.each(Object.keys(streams))("%s as typed events", async (name) => {
    const stream = encode(createTypedEventEncoder("req_1"), streams[name] ?? []);
    await expect(stream).toMatchFileSnapshot(`golden/api-${name}.sse`);
    const events = payloads(stream);
    expect(events.at(-1)).toBe("[DONE]");
    for (const event of events.slice(0, -1)) expect(typedEventSchema().parse(event)).toEqual(event);
  });

  test("fields of back ends beside a call are told of as typed events, too, as their schema says", () => {
    const extra = { extra_content: { google: { thought_signature: "sig==" } } };
    const call = {
      type: "tool-call-delta",
      owner: "client",
      index: 0,
      id: "call_1",
      name: "f",
      arguments: "{}",
    } as const;
    const [event] = payloads(encode(createTypedEventEncoder("req_1"), [{ ...call, choice: 0, extra }]));
    expect(event).toMatchObject({ delta: { tool_calls: [extra] } });
    expect(typedEventSchema().parse(event)).toEqual(event);
  });

  test("tool progress on /v1 comes only on request, in chunks without choices", async () => {
    const encoder = createChunkEncoder({ includeUsage: false, hasTools: true, toolEvents: true, requestId: "req_1" });
    await expect(encode(encoder, streams["gateway-call"] ?? [])).toMatchFileSnapshot("golden/v1-tool-events.sse");
  });

  test("the role is said once, whoever wrote the bytes of the text", () => {
    const frame = Buffer.from(
      'data: {"id":"up","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n',
    );
    const encoder = createChunkEncoder({ includeUsage: false, hasTools: true, toolEvents: false, requestId: "req_1" });
    const first = encoder(start);
    expect(String(first)).toContain('"role":"assistant"');
    expect(encoder({ type: "text-delta", text: "x", choice: 0, frame })).toBe(frame);
  });
});

describe(`JSON is the stream collected ${verifies("CHAT-2", "CHAT-6")}`, () => {
  test.each(Object.keys(streams).filter((name) => name !== "error"))("%s", async (name) => {
    const collector = new ChatCollector();
    for (const event of streams[name] ?? []) collector.add(event);
    await expect(`${JSON.stringify(collector.body(), null, 2)}\n`).toMatchFileSnapshot(`golden/json-${name}.json`);
  });

  test("a stored answer gives the same body again", () => {
    for (const [name, events] of Object.entries(streams)) {
      if (name === "error") continue;
      const first = new ChatCollector();
      for (const event of events) first.add(event);
      const again = new ChatCollector();
      for (const event of eventsOfBody(first.body())) again.add(event);
      expect(again.body()).toEqual(first.body());
    }
  });

  test("an error carries the work done so far", () => {
    const collector = new ChatCollector();
    const events = streams["error"] ?? [];
    for (const event of events) collector.add(event);
    const last = events.at(-1);
    if (last?.type !== "error") throw new Error("the stream must end with an error");
    expect(collector.errorBody(last, "req_1")).toMatchObject({
      error: { code: "rounds_exceeded", type: "tool_execution_error", request_id: "req_1" },
      partial: { choices: [{ message: { content: "Let me see" } }], tool_execution: execution },
    });
  });
});
