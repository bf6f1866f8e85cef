/**
 * Vectors of texts, from whichever provider of the tenant serves the model. Each request is a call of its own:
 * admitted, limited, billed and recorded like those of clients, tried again and passed on like all requests to
 * models (chat/providers/route.ts).
 */
import { openChat } from "../chat/open-chat.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonValue } from "../json.ts";
import { relay } from "../models/relay.ts";
import { mostDimensions, type KnowledgeConfig } from "./config.ts";
import { readWithin } from "../read-body.ts";

export interface EmbedOptions {
  /** The call that needs the vectors. */
  readonly within?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Of a number in decimal digits: the longest has 24 of them, and what is between two. */
const bytesOfNumber = 32;
/** Around the vectors: the model, its usage. */
const bytesAround = 65_536;

/**
 * A vector for each text, in their order.
 * @throws GatewayError `embedding_missing` where the base has no model; `embedding_invalid` for an answer that does
 * not fit what was asked; whatever refuses or ends a request to a model
 */
export async function embedTexts(
  core: CoreDeps,
  context: CallContext,
  { config: { embedding }, within, signal }: EmbedOptions & { readonly config: Pick<KnowledgeConfig, "embedding"> },
  texts: readonly string[],
): Promise<readonly Float32Array[]> {
  const { model, batch, dimensions } = embedding;
  if (model === null) {
    throw new GatewayError(
      "embedding_missing",
      "The knowledge base has no embedding model; set 'embedding.model' with POST /v1/knowledge/update_config.",
      { param: "embedding.model" },
    );
  }
  const vectors: Float32Array[] = [];
  for (let at = 0; at < texts.length; at += batch) {
    const input = texts.slice(at, at + batch);
    vectors.push(...(await embedBatch(core, context, { within, signal, model, dimensions, input })));
  }
  const expected = dimensions ?? vectors[0]?.length;
  for (const { length } of vectors) {
    if (length === expected) continue;
    throw invalid(
      model,
      `gave a vector of ${length} dimensions where ${expected} were expected (embedding.dimensions)`,
    );
  }
  return vectors;
}

interface Batch extends EmbedOptions {
  readonly model: string;
  readonly dimensions: number | null;
  readonly input: readonly string[];
}

async function embedBatch(
  core: CoreDeps,
  { tenant, caller, requestId, traceId, span }: CallContext,
  { model, dimensions, input, within, signal }: Batch,
): Promise<readonly Float32Array[]> {
  const body = { model, input, ...(dimensions === null ? {} : { dimensions }) };
  const stop = new AbortController();
  const end = (): void => stop.abort(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", end, { once: true });
  try {
    const opening = await openChat(core, {
      tenant,
      principal: { kind: "known", caller },
      requestId,
      traceId,
      span,
      route: "knowledge",
      within,
      exchange: "embeddings",
      isNeeded: true,
      body,
      rawBody: Buffer.from(JSON.stringify(body)),
      isSdkRetry: false,
      stop,
    });
    if (opening.kind === "replay") throw new Error("what is relayed is not kept");
    const { body: answer } = await relay(core, opening.chat, "embeddings");
    return readVectors(model, await readAll(model, answer, input.length), input.length);
  } finally {
    signal?.removeEventListener("abort", end);
  }
}

/** @param count of vectors that it may hold */
async function readAll(model: string, pieces: AsyncIterable<Uint8Array>, count: number): Promise<string> {
  const largestAnswer = count * mostDimensions * bytesOfNumber + bytesAround;
  const tooLarge = (): GatewayError =>
    invalid(
      model,
      `answered more than ${largestAnswer} bytes, and ${count} vectors of ${mostDimensions} dimensions have less`,
    );
  return (await readWithin(pieces, largestAnswer, tooLarge)).toString("utf8");
}

/**
 * The vectors of an answer in the order of what was asked: back ends may give them in any, and say it by `index`.
 * @throws GatewayError `embedding_invalid`
 */
export function readVectors(model: string, answer: string, count: number): readonly Float32Array[] {
  const parsed = parseJson(answer);
  const data = isJsonObject(parsed) ? parsed["data"] : undefined;
  if (!Array.isArray(data)) throw invalid(model, "did not answer with a list of vectors ('data')");
  if (data.length !== count) throw invalid(model, `gave ${data.length} vectors for ${count} texts`);
  const vectors = new Map<number, Float32Array>();
  for (const [at, entry] of data.entries()) {
    const { index = at, embedding } = isJsonObject(entry) ? entry : {};
    if (typeof index !== "number" || !Number.isInteger(index) || index < 0 || index >= count || vectors.has(index)) {
      const given = typeof index === "number" ? String(index) : `of the type ${typeof index}`;
      throw invalid(model, `gave an 'index' ${given}, which is no place of ${count} texts or was given twice`);
    }
    vectors.set(index, toVector(model, embedding));
  }
  return [...vectors].sort(([index], [other]) => index - other).map(([, vector]) => vector);
}

function toVector(model: string, embedding: JsonValue | undefined): Float32Array {
  const vector = typeof embedding === "string" ? fromBase64(model, embedding) : fromList(model, embedding);
  if (vector === undefined || vector.length === 0 || !vector.every(Number.isFinite)) {
    throw invalid(model, "gave something that is no list of numbers for a vector");
  }
  return vector;
}

function fromList(model: string, embedding: JsonValue | undefined): Float32Array | undefined {
  if (!Array.isArray(embedding)) return undefined;
  refuseTooMany(model, embedding.length);
  // A document has millions of these numbers: nothing is made in between, not even an entry.
  const vector = new Float32Array(embedding.length);
  for (let at = 0; at < vector.length; at += 1) {
    const value = embedding[at];
    if (typeof value !== "number") return undefined;
    vector[at] = value;
  }
  return vector;
}

/** 32 bit floats, little endian, as `encoding_format: "base64"` has them; some back ends give nothing else. */
function fromBase64(model: string, text: string): Float32Array | undefined {
  const bytes = Buffer.from(text, "base64");
  if (bytes.byteLength % 4 !== 0) return undefined;
  refuseTooMany(model, bytes.byteLength / 4);
  const vector = new Float32Array(bytes.byteLength / 4);
  for (let at = 0; at < vector.length; at += 1) vector[at] = bytes.readFloatLE(at * 4);
  return vector;
}

/** Each is stored with every piece and compared with every query. */
function refuseTooMany(model: string, dimensions: number): void {
  if (dimensions <= mostDimensions) return;
  throw invalid(model, `gave a vector of ${dimensions} dimensions, and ${mostDimensions} at most are stored`);
}

function invalid(model: string, what: string): GatewayError {
  return new GatewayError(
    "embedding_invalid",
    `The embedding model '${model}' ${what}; check that the provider serves it at /embeddings.`,
    { param: "embedding" },
  );
}
