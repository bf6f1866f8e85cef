/** Gives a model's answer to the client as it comes; an error before its first byte has a status of its own. */
import type { OpenedChat } from "@toolyard/core/chat/opened-chat";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import { toOpenAiError } from "@toolyard/core/errors/to-openai";
import { relay } from "@toolyard/core/models/relay";
import type { ModelExchange } from "@toolyard/core/models/special";
import type { ResponseSink } from "./sink.ts";

export async function answerRelayed(
  sink: ResponseSink,
  core: CoreDeps,
  asked: { readonly chat: OpenedChat; readonly exchange: ModelExchange | "chat"; readonly requestId: string },
): Promise<void> {
  const { chat, exchange, requestId } = asked;
  await answerPieces(sink, { ...(await relay(core, chat, exchange)), requestId });
}

interface Pieces {
  readonly contentType: string;
  readonly body: AsyncIterable<Uint8Array>;
  readonly requestId: string;
}

/** An answer as it comes, or as it came before. A stream of events that breaks off ends as those of chats do. */
export async function answerPieces(sink: ResponseSink, { contentType, body, requestId }: Pieces): Promise<void> {
  const isEvents = contentType.startsWith("text/event-stream");
  const headers = { "content-type": contentType, ...(isEvents ? { "x-accel-buffering": "no" } : {}) };
  try {
    for await (const piece of body) {
      if (sink.closed) return;
      if (!sink.headSent) sink.head(200, headers);
      await sink.write(piece);
    }
  } catch (thrown) {
    if (isEvents && sink.headSent) {
      const error = JSON.stringify(toOpenAiError(toGatewayError(thrown), requestId));
      // The last piece may have ended within an event.
      sink.end(`\n\ndata: ${error}\n\ndata: [DONE]\n\n`);
    }
    throw thrown;
  }
  if (!sink.headSent) sink.head(200, headers);
  sink.end();
}
