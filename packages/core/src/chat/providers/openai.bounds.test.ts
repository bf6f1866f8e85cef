/** A back end that answers without an end is left at the most that is read of anybody. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { chunk } from "../../../../../test/support/llm-stub.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createEgress } from "../../blind/egress.ts";
import { createOpenAiProvider } from "./openai.ts";
import type { ProviderRequest } from "./provider.ts";

const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
const event = chunk({ content: "x".repeat(65_536) });
const server = createServer((incoming, response) => {
  incoming.resume();
  response.writeHead(200, { "content-type": "text/event-stream" });
  Readable.from(Array.from({ length: 1_100 }, () => event)).pipe(response);
});

beforeAll(() => new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready)));
afterAll(async () => {
  await egress.close();
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
});

function request(): ProviderRequest {
  const { port } = server.address() as AddressInfo;
  return {
    body: { model: "stub-1", messages: [{ role: "user", content: "hi" }] },
    stream: true,
    signal: new AbortController().signal,
    apiKey: "secret-key",
    provider: {
      id: "prv_1",
      name: "acme",
      kind: "openai",
      baseUrl: `http://127.0.0.1:${port}/v1`,
      credential: "ACME_KEY",
      models: {},
      passthroughModels: true,
      schemaFamily: null,
      priority: 1,
      enabled: true,
      maxAttempts: 1,
      timeoutMs: 60_000,
    },
  };
}

async function readAll(batches: AsyncIterable<unknown>): Promise<void> {
  for await (const batch of batches) void batch;
}

test.each([
  ["as it is read", {}],
  ["as it is followed", { take: () => undefined }],
])(`an answer that does not come to an end is ended %s ${verifies("CHAT-1")}`, async (_how, change) => {
  const answer = readAll(createOpenAiProvider({ egress }).stream({ ...request(), ...change }));
  await expect(answer).rejects.toMatchObject({
    code: "provider_failed",
    message: "Provider 'acme' answered more than 67108864 bytes.",
    details: { extra: { before_first_byte: false } },
  });
});
