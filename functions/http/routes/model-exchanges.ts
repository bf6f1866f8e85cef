/**
 * What is asked of models besides chats: vectors and pictures (VCP-17). Bodies go to the back end and back as
 * they are; who asks, limits, budgets, prices and the record are those of chats.
 */
import { openChat } from "@toolyard/core/chat/open-chat";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { describedBy } from "@toolyard/core/described-by";
import type { ModelExchange } from "@toolyard/core/models/special";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import { setOpeningHeaders, toChatInput, type Asked } from "../asked-of-models.ts";
import { defineRoute, type RouteModule } from "../define-route.ts";
import { answerPieces, answerRelayed } from "../relayed.ts";
import { answerThroughSink } from "../sink.ts";

const maxBodyBytes = 33_554_432;

const requestSchemas = {
  embeddings: z.looseObject({
    model: z.string().min(1).nullish(),
    input: z.union([z.string(), z.array(z.unknown())]).meta({ description: "A text, or a list of texts or tokens." }),
  }),
  images: z.looseObject({ model: z.string().min(1).nullish(), prompt: z.string() }),
} satisfies Record<ModelExchange, z.ZodType>;

function exchangeRoute(
  exchange: ModelExchange,
  words: { readonly path: string; readonly summary: string; readonly answer: z.ZodType; readonly streams: boolean },
): RouteModule {
  return defineRoute({
    method: "post",
    path: words.path,
    summary: words.summary,
    description:
      "The back end gets the body as it is, with its own name of the model; its answer comes back byte by byte, save the key of the provider where it echoes that.",
    tags: ["models"],
    scope: "chat",
    admission: "own",
    request: {
      // Checked by the core once it is known who asks.
      body: z.unknown().meta(describedBy(() => requestSchemas[exchange])),
      maxBytes: maxBodyBytes,
      headers: { "idempotency-key": "The first answer is given again for 24 hours, and the back end is not asked." },
    },
    responses: {
      200: {
        description: "The back end's answer.",
        schema: words.answer,
        ...(words.streams ? { content: { "text/event-stream": z.looseObject({}) } } : {}),
      },
    },
    isolation: { kind: "nothing-owned", reason: "Names a model of the caller's own tenant." },
    handler: (c, { core, presented, body, bytes }) => answerExchange(c, core, { presented, body, bytes, exchange }),
  });
}

async function answerExchange(
  c: AppContext,
  core: CoreDeps,
  asked: Asked & { readonly exchange: ModelExchange },
): Promise<Response> {
  // By itself: what answers for minutes must not hold the request.
  const { exchange } = asked;
  const { requestId } = c.get("exchange");
  const stop = new AbortController();
  const opening = await openChat(core, toChatInput(c, asked, stop));
  setOpeningHeaders(c, opening);
  return answerThroughSink(c, async (sink) => {
    sink.onClose((why) => stop.abort(why));
    if (opening.kind === "replay") {
      if (opening.kept === undefined) throw new Error("an answer that is no chat's is kept as it was");
      await answerPieces(sink, { ...opening.kept, requestId });
      return;
    }
    await answerRelayed(sink, core, { chat: opening.chat, exchange, requestId });
  });
}

export const createEmbedding = exchangeRoute("embeddings", {
  path: "/v1/embeddings",
  summary: "Vectors of texts",
  answer: z.looseObject({
    data: z.array(
      z.looseObject({
        index: z.number().optional(),
        embedding: z
          .union([z.array(z.number()), z.string()])
          .optional()
          .meta({ description: "A text where `encoding_format` is `base64`." }),
      }),
    ),
  }),
  streams: false,
});

export const createImage = exchangeRoute("images", {
  path: "/v1/images/generations",
  summary: "Pictures from a text",
  answer: z.looseObject({
    data: z.array(z.looseObject({ url: z.string().optional(), b64_json: z.string().optional() })).optional(),
  }),
  streams: true,
});
