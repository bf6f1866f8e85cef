/**
 * A client for both streams of Toolyard in one file, without dependencies: Node 20+, Deno, Bun and
 * browsers. Copy it. (An unmodified OpenAI SDK works for `/v1` as well.)
 */

/** One event of `POST /api/chat/completions` with `stream: true`. */
export type TypedEvent =
  | { type: "content"; delta: { content: string } }
  | { type: "reasoning"; delta: Record<string, string> }
  | { type: "tool_call"; delta: { tool_calls: ToolCallPiece[] } }
  | { type: "tool_result"; tool_call_id: string; result: { success: boolean; content: string } }
  | { type: "tool_pending"; tool_call_id: string; tool: string; call_id: string }
  | {
      type: "approval_required";
      tool_call_id: string;
      tool: string;
      call_id: string;
      url: string;
      /** Where an MCP server asks something, and not for approval. */
      input_requests?: Record<string, unknown>;
    }
  | { type: "agent.handoff"; from: string; to: string; reason: string }
  | { type: "done"; finish_reason: string; usage?: Record<string, number>; tool_execution?: ToolExecution };

export interface ToolCallPiece {
  index: number;
  /** With the first piece of a call only. */
  id?: string;
  function: { name?: string; arguments: string };
}

export interface ToolExecution {
  executed: boolean;
  tools_called: string[];
  session_id: string;
  workspace_path: string;
  /** Calls that have not ended: their results come with the session's next request. */
  pending?: { call_id: string; tool: string; reason: "approval" | "async" | "input"; url?: string }[];
  /** Of chats in VCP's protocol. */
  stopped_by?: "rounds" | "repeated_call";
}

export class ToolyardError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;

  constructor(status: number, body: { message?: string; code?: string; request_id?: string } | undefined) {
    super(body?.message ?? `HTTP ${status}`);
    this.status = status;
    this.code = body?.code ?? "unknown";
    this.requestId = body?.request_id;
  }
}

export interface Connection {
  baseUrl: string;
  key: string;
  signal?: AbortSignal;
}

/** Typed events as they come; throws what the stream reports as an error. */
export async function* streamEvents(connection: Connection, request: object): AsyncGenerator<TypedEvent> {
  for await (const data of streamData(connection, "/api/chat/completions", request)) {
    const event = JSON.parse(data);
    if (event.type === "error") throw new ToolyardError(200, event.error);
    yield event;
  }
}

/** The text of `POST /v1/chat/completions` with `stream: true`, piece by piece. */
export async function* streamText(connection: Connection, request: object): AsyncGenerator<string> {
  for await (const data of streamData(connection, "/v1/chat/completions", request)) {
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ToolyardError(200, chunk.error);
    // The usage chunk has no choices.
    const text = chunk.choices?.[0]?.delta?.content;
    if (text) yield text;
  }
}

/** A whole answer. */
export async function complete(connection: Connection, request: object): Promise<any> {
  const response = await send(connection, "/v1/chat/completions", request);
  return response.json();
}

async function* streamData(connection: Connection, path: string, request: object): AsyncGenerator<string> {
  const response = await send(connection, path, { ...request, stream: true });
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let buffer = "";
  // Reads end anywhere: in the middle of a line, and of a character.
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
    buffer += decoder.decode(part, { stream: true });
    const frames = buffer.split("\n\n");
    buffer = frames.pop() ?? "";
    for (const frame of frames) {
      // Lines that begin with a colon are comments that keep the connection alive.
      const data = frame.split("\n").filter((line) => line.startsWith("data:"));
      const text = data.map((line) => line.slice(5).trimStart()).join("\n");
      if (text === "[DONE]") return;
      if (text !== "") yield text;
    }
  }
  throw new ToolyardError(200, { message: "The stream ended before it was complete.", code: "stream_incomplete" });
}

async function send({ baseUrl, key, signal }: Connection, path: string, body: object): Promise<Response> {
  const response = await fetch(baseUrl + path, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  if (response.ok) return response;
  const answer: any = await response.json().catch(() => undefined);
  throw new ToolyardError(response.status, answer?.error);
}
