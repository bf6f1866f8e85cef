/** Vectors for the benchmark: of a real model where the environment names one, else of pieces of words. */
import { setTimeout as sleep } from "node:timers/promises";
import { parseRetryAfter } from "@toolyard/core/blind/reply";
import { readVectors } from "@toolyard/core/knowledge/embed";
import { request } from "undici";
import { hashedVector } from "../../test/support/hashed-vectors.ts";

export const hashedDimensions = 512;
const batch = 64;
const mostTries = 6;
const firstWaitMs = 500;

export interface EmbeddingEndpoint {
  /** Of an OpenAI-compatible API, without `/embeddings`. */
  readonly baseUrl: string;
  readonly model: string;
  readonly key: string | undefined;
}

/** @throws Error where an address comes without a model */
export function endpointIn(environment: NodeJS.ProcessEnv): EmbeddingEndpoint | undefined {
  const { EMBEDDING_BASE_URL: baseUrl, EMBEDDING_MODEL: model, EMBEDDING_API_KEY: key } = environment;
  if (baseUrl === undefined) return undefined;
  if (model === undefined) throw new Error("EMBEDDING_BASE_URL is set and EMBEDDING_MODEL is not: name the model.");
  return { baseUrl: baseUrl.replace(/\/+$/, ""), model, key };
}

export const endpoint = endpointIn(process.env);
export const embedderName = endpoint === undefined ? "vectors of pieces of words" : `vectors of ${endpoint.model}`;

export async function embedAll(texts: readonly string[]): Promise<readonly Float32Array[]> {
  if (endpoint === undefined) return texts.map((text) => hashedVector(text, hashedDimensions));
  return embedAt(endpoint, texts);
}

/** Asked in batches, read as the product reads them. @throws Error with what the endpoint answered at last */
export async function embedAt(
  { baseUrl, model, key }: EmbeddingEndpoint,
  texts: readonly string[],
): Promise<readonly Float32Array[]> {
  const headers = {
    "content-type": "application/json",
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
  };
  const vectors: Float32Array[] = [];
  for (let at = 0; at < texts.length; at += batch) {
    const input = texts.slice(at, at + batch);
    const answer = await ask(`${baseUrl}/embeddings`, headers, JSON.stringify({ model, input }));
    vectors.push(...readVectors(model, answer, input.length));
  }
  return vectors;
}

/** What may work in a moment is tried again, not before the endpoint wants it. */
async function ask(url: string, headers: Readonly<Record<string, string>>, body: string): Promise<string> {
  for (let tried = 1; ; tried += 1) {
    const { statusCode, headers: told, body: answer } = await request(url, { method: "POST", headers, body });
    const text = await answer.text();
    if (statusCode === 200) return text;
    const isPassing = statusCode === 429 || statusCode >= 500;
    if (!isPassing || tried === mostTries) throw new Error(`The embedding endpoint answered ${statusCode}: ${text}`);
    const after = told["retry-after"];
    await sleep(parseRetryAfter(typeof after === "string" ? after : undefined) ?? firstWaitMs * 2 ** (tried - 1));
  }
}
