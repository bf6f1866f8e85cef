/**
 * A model back end that plays scripted rounds over a real socket and keeps the requests it got.
 * A round is an array of network writes (each one `write` call), or a JSON answer.
 */
import type { ServerResponse } from "node:http";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { startHttpStub, type HttpStub } from "./http-stub.ts";

export interface StreamRound {
  /** Each item is one write. */
  readonly writes: readonly (string | Buffer)[];
  /** Milliseconds between writes; 0: as soon as the one before has left. */
  readonly gapMs?: number;
  /** Close the socket without ending the response. */
  readonly cut?: boolean;
}
export interface JsonRound {
  readonly json: unknown;
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly delayMs?: number;
}
export type Round = StreamRound | JsonRound;

export interface LlmStub {
  /** Base URL ending in /v1. */
  readonly url: string;
  /** Parsed bodies, in order. */
  readonly requests: Record<string, unknown>[];
  readonly http: HttpStub;
  /** Sockets of answers that the client closed before the end. */
  readonly aborted: number[];
  /** Rounds still to play; the last one is repeated when the script has run out. */
  script(...rounds: readonly Round[]): void;
  /** Answer by looking at the request instead of a script. */
  respond(decide: (body: Record<string, unknown>, index: number) => Round | Promise<Round>): void;
  close(): Promise<void>;
}

export async function startLlmStub(): Promise<LlmStub> {
  const requests: Record<string, unknown>[] = [];
  const aborted: number[] = [];
  let decide: (body: Record<string, unknown>, index: number) => Round | Promise<Round> = () => text("ok");
  const http = await startHttpStub(async (request, response) => {
    if (request.method === "GET")
      return { body: JSON.stringify({ object: "list", data: [{ id: "stub-1", object: "model" }] }) };
    if (request.target.endsWith("/embeddings")) {
      const data = [{ object: "embedding", index: 0, embedding: [0.5] }];
      return {
        body: JSON.stringify({ object: "list", data, model: "stub-1", usage: { prompt_tokens: 1, total_tokens: 1 } }),
      };
    }
    const body = JSON.parse(request.body.toString("utf8")) as Record<string, unknown>;
    const index = requests.push(body) - 1;
    const round = await decide(body, index);
    if ("json" in round) {
      response.on("close", () => {
        if (!response.writableFinished) aborted.push(index);
      });
      if (round.delayMs !== undefined) await pause(round.delayMs, response);
      return { status: round.status ?? 200, headers: round.headers ?? {}, body: JSON.stringify(round.json) };
    }
    if (body["stream"] !== true) return { body: JSON.stringify(collect(round)) };
    await play(round, response, () => aborted.push(index));
    return undefined;
  });
  return {
    url: `${http.url}/v1`,
    requests,
    http,
    aborted,
    script(...rounds) {
      let at = 0;
      decide = () => rounds[Math.min(at++, rounds.length - 1)] ?? text("ok");
    },
    respond(next) {
      decide = next;
    },
    close: () => http.close(),
  };
}

/** Ends early where the client leaves. */
async function pause(ms: number, response: ServerResponse): Promise<void> {
  const left = new AbortController();
  response.once("close", () => left.abort());
  await sleep(ms, undefined, { signal: left.signal }).catch(() => undefined);
}

async function play(round: StreamRound, response: ServerResponse, onAbort: () => void): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  let gone = false;
  response.on("close", () => {
    if (!response.writableFinished && round.cut !== true) {
      gone = true;
      onAbort();
    }
  });
  for (const write of round.writes) {
    if (gone) return;
    response.write(write);
    await (round.gapMs === 0 ? nextTurn() : sleep(round.gapMs ?? 1));
  }
  if (round.cut === true) response.destroy();
  else response.end();
}

const head = { id: "chatcmpl-x1", object: "chat.completion.chunk", created: 1_795_000_000, model: "stub-1" };

/** One SSE event with a delta. */
export function chunk(delta: unknown, finishReason: string | null = null): string {
  return `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason: finishReason }] })}\n\n`;
}

export function usageChunk(prompt: number, completion: number): string {
  const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
  return `data: ${JSON.stringify({ ...head, choices: [], usage })}\n\n`;
}

export const done = "data: [DONE]\n\n";

/** A plain text answer, one delta per word. */
export function text(content: string, usage: readonly [number, number] = [10, 5]): StreamRound {
  const words = content.split(/(?<= )/);
  return {
    writes: [
      chunk({ role: "assistant", content: "" }),
      ...words.map((word) => chunk({ content: word })),
      chunk({}, "stop"),
      usageChunk(...usage),
      done,
    ],
  };
}

/** A turn that calls tools, arguments in two pieces. */
export function calls(
  ...wanted: readonly { readonly id?: string; readonly name: string; readonly arguments: unknown }[]
): StreamRound {
  const writes = [chunk({ role: "assistant", content: null })];
  wanted.forEach((call, index) => {
    const json = typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments);
    const half = Math.ceil(json.length / 2);
    writes.push(
      chunk({
        tool_calls: [
          {
            index,
            id: call.id ?? `call_up_${index}`,
            type: "function",
            function: { name: call.name, arguments: json.slice(0, half) },
          },
        ],
      }),
      chunk({ tool_calls: [{ index, function: { arguments: json.slice(half) } }] }),
    );
  });
  writes.push(chunk({}, "tool_calls"), usageChunk(20, 8), done);
  return { writes };
}

/** The same round as a back end that was not asked to stream would answer it. */
function collect(round: StreamRound): unknown {
  let content: string | null = null;
  let finish = "stop";
  let usage: unknown;
  const toolCalls: { id?: string; type: string; function: { name: string; arguments: string } }[] = [];
  const joined = Buffer.concat(round.writes.map((write) => Buffer.from(write))).toString("utf8");
  for (const line of joined.split(/\r\n|\n|\r/)) {
    if (!line.startsWith("data:")) continue;
    const payload = line.slice(5).trim();
    if (payload === "[DONE]" || payload === "") continue;
    const parsed = JSON.parse(payload) as {
      choices: { delta: Record<string, unknown>; finish_reason: string | null }[];
      usage?: unknown;
    };
    if (parsed.usage) usage = parsed.usage;
    for (const choice of parsed.choices) {
      if (typeof choice.delta["content"] === "string") content = (content ?? "") + choice.delta["content"];
      if (choice.finish_reason !== null) finish = choice.finish_reason;
      const pieces = (choice.delta["tool_calls"] ?? []) as {
        index?: number;
        id?: string;
        function?: { name?: string; arguments?: string };
      }[];
      for (const piece of pieces) {
        const at = piece.index ?? toolCalls.length;
        const call = (toolCalls[at] ??= { type: "function", function: { name: "", arguments: "" } });
        if (piece.id) call.id = piece.id;
        call.function.name ||= piece.function?.name ?? "";
        call.function.arguments += piece.function?.arguments ?? "";
      }
    }
  }
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    choices: [
      {
        index: 0,
        message: { role: "assistant", content, ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}) },
        finish_reason: finish,
      },
    ],
    ...(usage === undefined ? {} : { usage }),
  };
}
