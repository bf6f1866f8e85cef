/** Vectors for the benchmark: of a real model where one is named, else of pieces of words. */
import { request } from "undici";
import * as z from "zod";
import { hashedVector } from "../../test/support/hashed-vectors.ts";

export const hashedDimensions = 512;
const { EMBEDDING_BASE_URL: address, EMBEDDING_API_KEY: key, EMBEDDING_MODEL: model = "" } = process.env;
const batch = 64;

export const embedderName = address === undefined ? "vectors of pieces of words" : `vectors of ${model}`;

const answerSchema = z.object({ data: z.array(z.object({ index: z.int(), embedding: z.array(z.number()) })) });

export async function embedAll(texts: readonly string[]): Promise<readonly Float32Array[]> {
  if (address === undefined) return texts.map((text) => hashedVector(text, hashedDimensions));
  const vectors: Float32Array[] = [];
  for (let at = 0; at < texts.length; at += batch) vectors.push(...(await ask(address, texts.slice(at, at + batch))));
  return vectors;
}

async function ask(base: string, input: readonly string[]): Promise<readonly Float32Array[]> {
  const { statusCode, body } = await request(`${base}/embeddings`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ model, input }),
  });
  if (statusCode !== 200) throw new Error(`The embedding model answered ${statusCode}: ${await body.text()}`);
  const { data } = answerSchema.parse(await body.json());
  return data.toSorted((one, other) => one.index - other.index).map(({ embedding }) => Float32Array.from(embedding));
}
