/**
 * Chat with tools: OpenAI's own stream on `/v1`, the chat specification's typed events on `/api`; the
 * same chat behind both (CHAT-1, CHAT-6).
 */
import { ChatCollector } from "@toolyard/core/chat/collect";
import { createChunkEncoder } from "@toolyard/core/chat/encoders/openai-chunks";
import type { StreamEncoder } from "@toolyard/core/chat/encoders/stream-encoder";
import { toolExecutionSchema, typedEventSchema } from "@toolyard/core/chat/encoders/typed-event-schemas";
import { createTypedEventEncoder } from "@toolyard/core/chat/encoders/typed-events";
import type { ChatEvent } from "@toolyard/core/chat/events";
import { openChat, type Opening } from "@toolyard/core/chat/open-chat";
import type { ChatInput } from "@toolyard/core/chat/opened-chat";
import { runChat, type TakeChatEvents } from "@toolyard/core/chat/run-chat";
import { chatRequestSchema, type ChatRequest } from "@toolyard/core/chat/schema";
import { eventsOfBody } from "@toolyard/core/chat/stored-chat";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { describedBy } from "@toolyard/core/described-by";
import type { JsonObject } from "@toolyard/core/json";
import * as z from "zod";
import { headerOf, type AppContext } from "../app-env.ts";
import { setOpeningHeaders, toChatInput, type Asked } from "../asked-of-models.ts";
import { defineRoute, type RouteModule } from "../define-route.ts";
import { toErrorReply } from "../errors.ts";
import type { answerRelayed } from "../relayed.ts";
import { answerThroughSink, eventStreamHeaders, type ResponseSink } from "../sink.ts";

/** Model back ends say more beside it, which is passed on. */
const usageSchema = () =>
  z.looseObject({
    prompt_tokens: z.number().optional(),
    completion_tokens: z.number().optional(),
    total_tokens: z.number().optional(),
  });

const messageSchema = () =>
  z.looseObject({
    role: z.literal("assistant"),
    content: z.string().nullable(),
    tool_calls: z
      .array(
        z.looseObject({
          id: z.string(),
          type: z.string(),
          function: z.looseObject({ name: z.string(), arguments: z.string() }).optional(),
        }),
      )
      .optional()
      .meta({ description: "Calls that the client is to run." }),
  });

const deltaSchema = () =>
  z.looseObject({
    role: z.string().nullish(),
    content: z.string().nullish(),
    tool_calls: z
      .array(
        z.looseObject({
          index: z.number(),
          id: z.string().nullish(),
          type: z.string().nullish(),
          function: z.looseObject({ name: z.string().nullish(), arguments: z.string().nullish() }).nullish(),
        }),
      )
      .nullish(),
  });

const chatCompletionSchema = () =>
  z
    .looseObject({
      id: z.string(),
      object: z.literal("chat.completion"),
      created: z.number(),
      model: z.string(),
      choices: z.array(
        z.looseObject({ index: z.number(), message: messageSchema(), finish_reason: z.string().nullable() }),
      ),
      usage: usageSchema().optional(),
      tool_execution: toolExecutionSchema().optional(),
    })
    .meta({ description: "OpenAI's chat.completion; `tool_execution` where the gateway ran tools." });

/** What some models that make pictures answer with in place of a completion. */
const candidatesSchema = () => z.array(z.unknown());

const chunkSchema = () =>
  z
    .looseObject({
      id: z.string(),
      object: z.literal("chat.completion.chunk"),
      created: z.number(),
      model: z.string(),
      choices: z.array(z.looseObject({ index: z.number(), delta: deltaSchema(), finish_reason: z.string().nullish() })),
      usage: usageSchema().nullish(),
    })
    .meta({ description: "OpenAI's chat.completion.chunk; the stream ends with `[DONE]`." });

type Shape = "v1" | "api";

const encoders: Readonly<Record<Shape, (c: AppContext, request: ChatRequest) => StreamEncoder>> = {
  v1: (c, { includeUsage, tools }) =>
    createChunkEncoder({
      includeUsage,
      hasTools: tools.length > 0,
      toolEvents: headerOf(c, "x-toolyard-events") === "1",
      requestId: c.get("exchange").requestId,
    }),
  api: (c) => createTypedEventEncoder(c.get("exchange").requestId),
};

/** A body with pictures may be large. */
const maxBodyBytes = 33_554_432;

interface ChatRoute {
  readonly path: string;
  readonly shape: Shape;
  readonly summary: string;
  readonly description: string;
  readonly vcp?: ChatInput["vcp"];
}

function chatRoute({ path, shape, summary, description, vcp }: ChatRoute): RouteModule {
  return defineRoute({
    method: "post",
    path,
    summary,
    description,
    tags: ["chat"],
    scope: "chat",
    admission: "own",
    request: {
      // Checked by the core once it is known who asks: what is wrong is told to callers only.
      body: z.unknown().meta(describedBy(() => chatRequestSchema)),
      maxBytes: maxBodyBytes,
      headers: {
        "idempotency-key": "The first answer is given again for 24 hours.",
        "x-toolyard-events": "`1`: tool progress in chunks without choices, on `/v1` streams.",
      },
    },
    responses: () => ({
      200: {
        description: "The answer.",
        schema: shape === "v1" ? z.union([chatCompletionSchema(), candidatesSchema()]) : chatCompletionSchema(),
        content: { "text/event-stream": shape === "v1" ? chunkSchema() : typedEventSchema() },
      },
    }),
    isolation: { kind: "nothing-owned", reason: "sessions of other tenants are refused; see the chat suites" },
    handler: (c, { core, presented, body, bytes }) => answerChat(c, core, { presented, body, bytes, shape, vcp }),
  });
}

export const chatCompletions = chatRoute({
  path: "/v1/chat/completions",
  shape: "v1",
  summary: "Answer a conversation, running the tenant's tools, as OpenAI does",
  description: "OpenAI's request and stream, exactly; unmodified SDKs work.",
});
export const typedChatCompletions = chatRoute({
  path: "/api/chat/completions",
  shape: "api",
  summary: "The same, streamed as typed events that show each tool call",
  description: "The same request; the stream is one of typed events.",
});
export const vcpChatCompletions = chatRoute({
  path: "/v1/chatvcp/completions",
  shape: "v1",
  summary: "The same in VCP's protocol",
  description: "The same with `tool_protocol` `vcp`: the model asks in its text, and the answer shows the results.",
  vcp: { showsResults: true },
});

async function answerChat(c: AppContext, core: CoreDeps, asked: Asked & { readonly shape: Shape }): Promise<Response> {
  // By itself: what answers for minutes must not hold the request.
  const { shape } = asked;
  const { requestId } = c.get("exchange");
  const stop = new AbortController();
  const opening = await openChat(core, toChatInput(c, asked, stop));
  setOpeningHeaders(c, opening);
  return answerThroughSink(c, (sink) => {
    const told: Told = { isWhole: false };
    // Who leaves once everything is said has not left: what still runs beside it comes to its end.
    sink.onClose((why) => {
      if (!told.isWhole || why !== undefined) stop.abort(why);
    });
    const { request } = opening;
    if (opening.kind === "run" && opening.chat.isRelayed && shape === "v1")
      return relay(sink, core, { chat: opening.chat, exchange: "chat", requestId });
    if (request.stream) return answerStream(sink, core, { opening, told, encode: encoders[shape](c, request) });
    return answerJson(sink, eventsOf(core, opening), { told, requestId });
  });
}

async function relay(...given: Parameters<typeof answerRelayed>): Promise<void> {
  const relayed = await import("../relayed.ts");
  await relayed.answerRelayed(...given);
}

/** Of the answer, all that there is to tell. */
interface Told {
  isWhole: boolean;
}

type Events = AsyncGenerator<readonly ChatEvent[], void, void>;

function eventsOf(core: CoreDeps, opening: Opening, take?: TakeChatEvents): Events {
  return opening.kind === "run" ? runChat(core, opening.chat, take) : replayed(opening.body);
}

async function* replayed(body: JsonObject): Events {
  yield [...eventsOfBody(body)];
}

/**
 * An error before the first byte has a status of its own, where it comes soon. The settlement follows the last byte: the
 * events are read to their end after `finish`.
 */
async function answerStream(
  sink: ResponseSink,
  core: CoreDeps,
  { opening, encode, told }: { readonly opening: Opening; readonly encode: StreamEncoder; readonly told: Told },
): Promise<void> {
  const write = (batch: readonly ChatEvent[]): Promise<void> | undefined => {
    let room: Promise<void> | undefined;
    for (const event of batch) {
      const bytes = encode(event);
      if (bytes === undefined) continue;
      if (!sink.headSent) sink.head(200, eventStreamHeaders);
      room = sink.write(bytes) ?? room;
      if (event.type === "error") told.isWhole = true;
    }
    return room;
  };
  sink.beginWhenQuiet();
  const events = eventsOf(core, opening, write);
  for await (const batch of events) {
    if (sink.closed) return;
    const failure = sink.headSent ? undefined : batch.find((event) => event.type === "error");
    if (failure !== undefined) {
      await events.next();
      throw failure.error;
    }
    const room = write(batch);
    if (room !== undefined) await room;
  }
}

async function answerJson(
  sink: ResponseSink,
  events: Events,
  { requestId, told }: { readonly requestId: string; readonly told: Told },
): Promise<void> {
  let collector: ChatCollector | undefined;
  for await (const batch of events) {
    if (sink.closed) return;
    const last = batch.at(-1);
    if (last?.type === "finish" && last.bytes !== undefined) {
      sendJson(sink, 200, { bytes: last.bytes, headers: costHeader(last.micros) });
      continue;
    }
    collector ??= new ChatCollector();
    for (const event of batch) {
      collector.add(event);
      if (event.type === "finish") {
        sendJson(sink, 200, { bytes: toBytes(collector.body()), headers: costHeader(event.micros) });
      }
      if (event.type === "error") {
        const { status, headers } = toErrorReply(event.error, requestId);
        sendJson(sink, status, { bytes: toBytes(collector.errorBody(event, requestId)), headers });
        told.isWhole = true;
      }
    }
  }
}

function toBytes(body: JsonObject): Uint8Array {
  return Buffer.from(JSON.stringify(body));
}

/** A stream's head is sent before anybody knows; its cost is at GET /v1/calls/{x-toolyard-call-id}. */
function costHeader(micros: number | undefined): Readonly<Record<string, string>> {
  return micros === undefined ? {} : { "x-toolyard-cost-micros": String(micros) };
}

function sendJson(
  sink: ResponseSink,
  status: number,
  { bytes, headers }: { readonly bytes: Uint8Array; readonly headers: Readonly<Record<string, string>> },
): void {
  // The length lets the client go on while the call is settled.
  sink.head(status, { ...headers, "content-type": "application/json", "content-length": String(bytes.length) });
  void sink.write(bytes);
}
