/** A back end that makes vectors of texts: of their characters, or all the same. */
import { startHttpStub } from "./http-stub.ts";

export interface EmbeddingStub {
  /** Base URL ending in /v1. */
  readonly url: string;
  /** Texts of each request, in order. */
  readonly asked: string[][];
  /** Answers from now on with this status instead; undefined: with vectors again. */
  fail(status: number | undefined): void;
  /** Answers from now on with this body instead; undefined: with vectors again. */
  say(body: string | undefined): void;
  /** Answers the next requests with 429 first, and says when to come again. */
  limit(times: number, retryAfter: string): void;
  /** Requests wait until the returned function is called. */
  hold(): () => void;
  close(): Promise<void>;
}

const dimensions = 16;

export async function startEmbeddingStub({
  allSame = false,
  encoding = "float",
  toVector = vectorOf,
}: {
  readonly allSame?: boolean;
  /** How vectors are written, whatever was asked for. */
  readonly encoding?: "float" | "base64";
  readonly toVector?: (text: string) => number[];
} = {}): Promise<EmbeddingStub> {
  const asked: string[][] = [];
  let failure: number | undefined;
  let said: string | undefined;
  let limited = { times: 0, retryAfter: "" };
  let held = Promise.resolve();
  const encode = (vector: number[]): number[] | string =>
    encoding === "float" ? vector : Buffer.from(Float32Array.from(vector).buffer).toString("base64");
  const stub = await startHttpStub(async (request) => {
    if (request.method === "GET") return { body: JSON.stringify({ object: "list", data: [{ id: "embed-1" }] }) };
    const { input } = JSON.parse(request.body.toString("utf8")) as { input: string[] };
    asked.push(input);
    await held;
    if (failure !== undefined) return { status: failure, body: JSON.stringify({ error: { message: "not now" } }) };
    if (limited.times > 0) {
      limited = { ...limited, times: limited.times - 1 };
      const body = JSON.stringify({ error: { message: "slower", type: "rate_limit_error" } });
      return { status: 429, headers: { "retry-after": limited.retryAfter }, body };
    }
    if (said !== undefined) return { body: said };
    const data = input.map((text, index) => {
      return { object: "embedding", index, embedding: encode(toVector(allSame ? "" : text)) };
    });
    const usage = { prompt_tokens: input.length, total_tokens: input.length };
    return { body: JSON.stringify({ object: "list", data: shuffled(data), model: "embed-1", usage }) };
  });
  return {
    url: `${stub.url}/v1`,
    asked,
    fail: (status) => void (failure = status),
    say: (body) => void (said = body),
    limit: (times, retryAfter) => void (limited = { times, retryAfter }),
    hold() {
      let release = (): void => undefined;
      held = new Promise((done) => (release = done));
      return () => {
        held = Promise.resolve();
        release();
      };
    },
    close: () => stub.close(),
  };
}

/** No order that a client could have guessed: odd places backwards, then the even ones. */
function shuffled<T>(list: readonly T[]): T[] {
  return [...list.filter((_, at) => at % 2 === 1).reverse(), ...list.filter((_, at) => at % 2 === 0)];
}

function vectorOf(text: string): number[] {
  const vector = Array.from({ length: dimensions }, () => 0.01);
  for (const character of text) {
    const at = (character.codePointAt(0) ?? 0) % dimensions;
    vector[at] = (vector[at] ?? 0) + 1;
  }
  return vector;
}
