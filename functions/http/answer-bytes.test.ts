import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createFakeCore } from "../../test/support/fake-core.ts";
import { FakeResponseStream, installRuntime } from "../../test/support/response-stream.ts";
import { verifies } from "../../test/support/verifies.ts";
import { answerBytes, type StoredBytes } from "./answer-bytes.ts";
import { createApp } from "./app.ts";
import { defineRoute } from "./define-route.ts";
import { createStreamingHandler } from "./lambda.ts";

const size = 100_000_000;

type Send = (headers: Record<string, string>, method?: string) => Promise<FakeResponseStream>;

function appWith(core: CoreDeps, stored: Pick<StoredBytes, "bytes" | "open" | "link">): ReturnType<typeof createApp> {
  const bytes = defineRoute({
    method: "get",
    path: "/bytes",
    summary: "",
    tags: ["test"],
    scope: null,
    admission: "none",
    responses: { 200: { description: "" } },
    handler: (c) => answerBytes(c, { mediaType: "image/png", fileName: "a.png", ...stored }),
  });
  return createApp({ core, adminKeyHash: hashApiKey("nobody"), version: "0" }, { bytes });
}

function setup(link: string | undefined): Send {
  const core = createFakeCore();
  const app = appWith(core, {
    bytes: size,
    open: async (range) => partsOf((range?.end ?? size) - (range?.start ?? 0)),
    ...(link === undefined ? {} : { link: async () => ({ method: "GET" as const, url: link, headers: {} }) }),
  });
  const handler = createStreamingHandler(app, core.log);
  return async (headers, httpMethod = "GET") => {
    const answer = new FakeResponseStream();
    await handler({ httpMethod, path: "/bytes", headers }, answer, { getRemainingTimeInMillis: () => 10_000 });
    return answer;
  };
}

async function* partsOf(bytes: number): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(bytes);
}

let removeRuntime: () => void;
beforeAll(() => (removeRuntime = installRuntime()));
afterAll(() => removeRuntime());

describe(`bytes that are too many for a function's answer ${verifies("CHAT-19")}`, () => {
  test("are where the link leads, with the range that was asked for", async () => {
    const send = setup("https://bucket.example.com/a?signature=1");
    for (const range of [{}, { range: "bytes=0-59999999" }]) {
      const { head, text } = await send(range);
      expect([head?.statusCode, text]).toEqual([307, ""]);
      expect(head?.headers).toMatchObject({
        location: "https://bucket.example.com/a?signature=1",
        "cache-control": "private, no-store",
      });
    }
  });

  test("are answered where they fit", async () => {
    const { head, parts } = await setup("https://bucket.example.com/a")({ range: "bytes=0-7999999" });
    expect(head?.statusCode).toBe(206);
    expect(Buffer.concat(parts).byteLength).toBe(8_000_000);
  });

  test("have a head of their own, since the link is for their body", async () => {
    const { head } = await setup("https://bucket.example.com/a")({}, "HEAD");
    expect([head?.statusCode, head?.headers["content-length"]]).toEqual([200, String(size)]);
  });

  test("are streamed for as long as there is time where there is no link", async () => {
    const { head } = await setup(undefined)({ range: "bytes=0-59999999" });
    expect(head?.statusCode).toBe(206);
  });
});

test(`stored bytes that are fewer than their record says are cut off there ${verifies("CHAT-19")}`, async () => {
  const app = appWith(createFakeCore(), { bytes: 20, open: async () => partsOf(10) });
  const answer = await app.request("/bytes");
  expect(answer.headers.get("content-length")).toBe("20");
  await expect(answer.arrayBuffer()).rejects.toThrow("the answer was cut off");
});
