/** Gives a model's answer to the client as it comes; an error before its first byte has a status of its own. */
import type { OpenedChat } from "@toolyard/core/chat/open-chat";
import type { CoreDeps } from "@toolyard/core/deps";
import { relay } from "@toolyard/core/models/relay";
import type { ModelExchange } from "@toolyard/core/models/special";
import type { ResponseSink } from "./sink.ts";

export async function answerRelayed(
  sink: ResponseSink,
  core: CoreDeps,
  { chat, exchange }: { readonly chat: OpenedChat; readonly exchange: ModelExchange | "chat" },
): Promise<void> {
  await answerPieces(sink, await relay(core, chat, exchange));
}

/** An answer as it comes, or as it came before. */
export async function answerPieces(
  sink: ResponseSink,
  { contentType, body }: { readonly contentType: string; readonly body: AsyncIterable<Uint8Array> },
): Promise<void> {
  const headers = {
    "content-type": contentType,
    ...(contentType.startsWith("text/event-stream") ? { "x-accel-buffering": "no" } : {}),
  };
  for await (const piece of body) {
    if (sink.closed) return;
    if (!sink.headSent) sink.head(200, headers);
    await sink.write(piece);
  }
  if (!sink.headSent) sink.head(200, headers);
  sink.end();
}
