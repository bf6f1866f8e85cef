/** The endpoint that `npm run bench:kb` takes from the environment, as OpenAI-compatible ones differ (KB-3). */
import { describe, expect, test } from "vitest";
import { embedAt, endpointIn } from "../../bench/kb/embedder.ts";
import { startEmbeddingStub } from "../support/embedding-stub.ts";
import { verifies } from "../support/verifies.ts";

/** More than two batches. */
const texts = Array.from({ length: 150 }, (_, at) => `text ${at}`);
const toVector = (text: string): number[] => [Number(text.slice(5)), 0.5];

describe(`the embedding endpoint of the benchmark ${verifies("KB-3")}`, () => {
  test.each(["float", "base64"] as const)("gives every text its own vector, in any order (%s)", async (encoding) => {
    const stub = await startEmbeddingStub({ encoding, toVector });
    stub.limit(2, "0");
    const vectors = await embedAt({ baseUrl: stub.url, model: "embed-1", key: "sk-bench" }, texts);
    expect(vectors.map(([first, second]) => [first, second])).toEqual(texts.map(toVector));
    expect(stub.asked.map(({ length }) => length)).toEqual([64, 64, 64, 64, 22]);
    await stub.close();
  });

  test("is not asked again where that would change nothing, and is quoted", async () => {
    const stub = await startEmbeddingStub();
    stub.fail(401);
    const asking = embedAt({ baseUrl: stub.url, model: "embed-1", key: undefined }, texts);
    await expect(asking).rejects.toThrow(/401: .*not now/);
    expect(stub.asked).toHaveLength(1);
    await stub.close();
  });

  test("is named by address, model and key", () => {
    const named = { EMBEDDING_BASE_URL: "http://127.0.0.1:1/v1/", EMBEDDING_MODEL: "m", EMBEDDING_API_KEY: "sk" };
    expect(endpointIn(named)).toEqual({ baseUrl: "http://127.0.0.1:1/v1", model: "m", key: "sk" });
    expect(endpointIn({})).toBeUndefined();
    expect(() => endpointIn({ EMBEDDING_BASE_URL: "http://127.0.0.1:1" })).toThrow("EMBEDDING_MODEL");
  });
});
