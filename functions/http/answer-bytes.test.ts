import { hashApiKey } from "@toolyard/core/callers/api-key";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import { answerBytes } from "./answer-bytes.ts";
import { createApp } from "./app.ts";
import { defineRoute } from "./define-route.ts";
import { createBufferedHandler, type ProxyResult } from "./lambda.ts";

const size = 10_000_000;

type Send = (headers: Record<string, string>, method?: string) => Promise<ProxyResult>;

function setup(link: string | undefined): Send {
  const bytes = defineRoute({
    method: "get",
    path: "/bytes",
    summary: "",
    tags: ["test"],
    scope: null,
    admission: "none",
    responses: { 200: { description: "" } },
    handler: (c) =>
      answerBytes(c, {
        bytes: size,
        mediaType: "image/png",
        fileName: "a.png",
        open: async (range) => partsOf((range?.end ?? size) - (range?.start ?? 0)),
        ...(link === undefined ? {} : { link: async () => ({ method: "GET" as const, url: link, headers: {} }) }),
      }),
  });
  const core = createFakeCore();
  const app = createApp({ core, adminKeyHash: hashApiKey("nobody"), version: "0" }, { bytes });
  const handler = createBufferedHandler(app, core.log);
  return (headers, httpMethod = "GET") =>
    handler({ httpMethod, path: "/bytes", headers }, { getRemainingTimeInMillis: () => 10_000 });
}

async function* partsOf(bytes: number): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(bytes);
}

describe(`bytes that are too many for a function's answer ${verifies("CHAT-19")}`, () => {
  test("are where the link leads, with the range that was asked for", async () => {
    const send = setup("https://bucket.example.com/a?signature=1");
    for (const range of [{}, { range: "bytes=0-2999999" }]) {
      const { statusCode, multiValueHeaders, body } = await send(range);
      expect([statusCode, multiValueHeaders["location"], body]).toEqual([
        307,
        ["https://bucket.example.com/a?signature=1"],
        "",
      ]);
      expect(multiValueHeaders["cache-control"]).toEqual(["private, no-store"]);
    }
  });

  test("are answered where they fit", async () => {
    const { statusCode, body } = await setup("https://bucket.example.com/a")({ range: "bytes=0-2899999" });
    expect([statusCode, Buffer.from(body, "base64").byteLength]).toEqual([206, 2_900_000]);
  });

  test("have a head of their own, since the link is for their body", async () => {
    const { statusCode, multiValueHeaders } = await setup("https://bucket.example.com/a")({}, "HEAD");
    expect([statusCode, multiValueHeaders["content-length"]]).toEqual([200, [String(size)]]);
  });

  test("are an error that says so where there is no link", async () => {
    expect(await setup(undefined)({})).toMatchObject({ statusCode: 413 });
  });
});
