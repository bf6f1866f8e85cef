/** Models that are no chat models: pictures and vectors, past preprocessing and the tool loop (VCP-17). */
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

interface Seen {
  readonly url: string;
  readonly authorization: string | undefined;
  readonly bytes: Buffer;
}

interface Answer {
  readonly status?: number;
  readonly type?: string;
  /** Each is one write. */
  readonly writes: readonly string[];
  /** The connection breaks after them. */
  readonly breaks?: boolean;
}

let gateway: Gateway;
let tenant: TestTenant;
let backEnd: Server;
let address: string;
const seen: Seen[] = [];
let answer: Answer;

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

beforeAll(async () => {
  backEnd = createServer((request, response) => {
    void readBody(request).then((bytes) => {
      seen.push({ url: request.url ?? "", authorization: request.headers.authorization, bytes });
      response.writeHead(answer.status ?? 200, { "content-type": answer.type ?? "application/json" });
      for (const write of answer.writes) response.write(write);
      if (answer.breaks === true) setTimeout(() => response.destroy(), 50);
      else response.end();
    });
  });
  await new Promise<void>((done) => backEnd.listen(0, "127.0.0.1", done));
  address = `http://127.0.0.1:${(backEnd.address() as AddressInfo).port}/v1`;
  gateway = await startGateway();
  tenant = await gateway.newTenant({ message_pipeline: "all" });
  await tenant.client.expect("patch", "/v1/settings", {
    WhitelistImageModel: "painter, painter-2",
    WhitelistEmbeddingModel: ["vectors"],
  });
  await tenant.putCredential("MODEL_KEY", "sk-model-secret-1");
  await tenant.addProvider(address, {
    credential: "MODEL_KEY",
    models: { painter: "painter", vectors: "vectors", renamed: "vectors-large", chatty: "chatty" },
  });
  await tenant.addPlugin({
    name: "look_up",
    execution: { method: "GET", base_url: address, content_type: "application/json", param_placement: "query" },
  });
  await tenant.client.expect("put", "/v1/vcp/presets/p", { rules: [{ type: "embed", content: "INJECTED" }] });
});

afterAll(async () => {
  await gateway.close();
  await new Promise((done) => backEnd.close(done));
});

beforeEach(() => {
  seen.length = 0;
});

const messages = [
  { role: "system", content: "Paint. {{VCPTavern::p}}" },
  { role: "user", content: "<<<[ROLE_DIVIDE_USER]>>>a cat<<<[END_ROLE_DIVIDE_USER]>>>" },
];

function lastBody(): Json {
  return JSON.parse(seen.at(-1)?.bytes.toString("utf8") ?? "{}");
}

const callOf = (id: string | null): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);

describe(`an image model ${verifies("VCP-17")}`, () => {
  test("is asked past preprocessing and tools, with what makes it answer with pictures", async () => {
    const body = {
      id: "x",
      object: "chat.completion",
      created: 1,
      model: "painter",
      choices: [{ index: 0, message: { role: "assistant", content: "![](data:…)" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
    };
    answer = { writes: [JSON.stringify(body)] };
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      model: "painter",
      messages,
      generationConfig: { temperature: 0.1 },
    });
    expect(reply.json).toEqual(body);
    expect(lastBody()).toEqual({
      model: "painter",
      messages,
      generationConfig: { temperature: 0.1, responseModalities: ["TEXT", "IMAGE"], responseMimeType: "text/plain" },
    });
    expect(seen.at(-1)).toMatchObject({ url: "/v1/chat/completions", authorization: "Bearer sk-model-secret-1" });
    const call = await callOf(reply.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({ state: "completed", tool: "painter", usage: { total_tokens: 10 } });
  });

  test("gives its candidates alone, where it has some", async () => {
    const candidates = [{ content: { parts: [{ inlineData: { mimeType: "image/png", data: "AAAA" } }] } }];
    answer = { writes: [JSON.stringify({ candidates, modelVersion: "painter" })] };
    const reply = await tenant.client.send("post", "/v1/chat/completions", { model: "painter", messages });
    expect(JSON.parse(reply.text)).toEqual(candidates);
  });

  test("streams as it comes, with its usage on the bill", async () => {
    const writes = [
      'data: {"choices":[{"index":0,"delta":{"images":[{"image_url":{"url":"data:image/png;base64,AA',
      'AA"}}]}}]}\n\n',
      'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":6,"total_tokens":10}}\n\ndata: [DONE]\n\n',
    ];
    answer = { type: "text/event-stream", writes };
    const reply = await tenant.client.send("post", "/v1/chat/completions", {
      model: "painter",
      messages,
      stream: true,
    });
    expect(reply.headers.get("content-type")).toContain("text/event-stream");
    expect(reply.text).toBe(writes.join(""));
    expect(lastBody()).toMatchObject({ stream: true, messages });
    const call = await callOf(reply.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({ state: "completed", usage: { prompt_tokens: 4, completion_tokens: 6 } });
  });

  test.each([
    ["/v1/chat/completions", { messages }],
    ["/v1/images/generations", { prompt: "a cat" }],
  ] as const)("%s: a stream that breaks off ends with the error", async (path, asked) => {
    const begun = 'data: {"half":1}\n\ndata: {"ha';
    answer = { type: "text/event-stream", writes: [begun], breaks: true };
    const reply = await tenant.client.send("post", path, { model: "painter", stream: true, ...asked });
    const [, said = ""] = /^data: (\{"error".*\})\n\ndata: \[DONE\]\n\n$/m.exec(reply.text) ?? [];
    expect(reply.text.startsWith(`${begun}\n\ndata: {"error"`)).toBe(true);
    expect(JSON.parse(said)).toMatchObject({
      error: { code: "provider_stream_incomplete", request_id: reply.headers.get("x-request-id") },
    });
    const call = await callOf(reply.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({ state: "failed", error: { code: "provider_stream_incomplete" } });
  });

  test("streams each event when it is there, without the key that its back end echoes", async () => {
    const events = ['data: {"echo":"Bearer sk-model-', 'secret-1"}\n\n', "data: [DONE]\n\n"];
    answer = { type: "text/event-stream", writes: events };
    const reply = await tenant.client.send("post", "/v1/images/generations", {
      model: "painter",
      prompt: "a cat",
      stream: true,
    });
    expect(reply.text).toBe('data: {"echo":"[redacted]"}\n\ndata: [DONE]\n\n');
  });

  test("an answer that is no stream and breaks off is cut off", async () => {
    answer = { writes: ['{"created":1,"data":['], breaks: true };
    await expect(
      tenant.client.send("post", "/v1/images/generations", { model: "painter", prompt: "a cat" }),
    ).rejects.toThrow("terminated");
  });

  test("makes pictures on its own route", async () => {
    const text =
      '{"created":1,"data":[{"b64_json":"AAAA"}],"usage":{"input_tokens":5,"output_tokens":20,"total_tokens":25}}';
    answer = { writes: [text] };
    const raw = '{"model":"painter","prompt":"a cat","size":"1024x1024"}';
    const reply = await tenant.client.send("post", "/v1/images/generations", undefined, {
      raw,
      headers: { "content-type": "application/json" },
    });
    expect(reply.text).toBe(text);
    expect(seen.at(-1)?.url).toBe("/v1/images/generations");
    expect(seen.at(-1)?.bytes.toString("utf8")).toBe(raw);
    const call = await callOf(reply.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({
      uri: "images",
      state: "completed",
      usage: { prompt_tokens: 5, completion_tokens: 20 },
    });
  });
});

describe(`an embedding model ${verifies("VCP-17")}`, () => {
  const raw =
    '{ "input": ["caf\\u00e9", "二"],\n  "model": "vectors", "encoding_format":"float", "input_type" : null }';
  const vectors =
    '{"object":"list","data":[{"embedding":[0.1,-2.5e-9],"index":0}], "usage":{"prompt_tokens":4,"total_tokens":4}}\n';

  const embed = (text: string, client = tenant.client): ReturnType<typeof client.send> =>
    client.send("post", "/v1/embeddings", undefined, { raw: text, headers: { "content-type": "application/json" } });

  test("gets and gives the very same bytes", async () => {
    answer = { writes: [vectors.slice(0, 30), vectors.slice(30)] };
    const reply = await embed(raw);
    expect(reply.status).toBe(200);
    expect(seen.at(-1)).toMatchObject({ url: "/v1/embeddings", authorization: "Bearer sk-model-secret-1" });
    expect(seen.at(-1)?.bytes.toString("utf8")).toBe(raw);
    expect(reply.text).toBe(vectors);
    const call = await callOf(reply.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({ uri: "embeddings", tool: "vectors", state: "completed", usage: { prompt_tokens: 4 } });
  });

  test("gives the same answer for the same key, and asks its back end once", async () => {
    const other = await startGateway({ sharedWith: gateway, requestsOnly: true });
    try {
      const send = (
        key: string,
        text = raw,
        path = "/v1/embeddings",
        client = tenant.client,
      ): ReturnType<typeof embed> =>
        client.send("post", path, undefined, {
          raw: text,
          headers: { "content-type": "application/json", "idempotency-key": key },
        });
      answer = { writes: [vectors] };
      const first = await send("k1");
      answer = { writes: ['{"data":[{"index":1}]}'] };
      const again = await send("k1", raw, "/v1/embeddings", other.client(tenant.key));
      expect([again.status, again.text, again.headers.get("content-type")]).toEqual([200, vectors, "application/json"]);
      expect(again.headers.get("idempotent-replayed")).toBe("true");
      expect(first.headers.get("idempotent-replayed")).toBeNull();
      expect(again.headers.get("x-toolyard-call-id")).toBe(first.headers.get("x-toolyard-call-id"));
      expect(seen).toHaveLength(1);
      expect((await send("k1", '{"model":"vectors","input":"x"}')).json.error.code).toBe("idempotency_key_reused");
      expect((await send("k2")).text).toBe('{"data":[{"index":1}]}');

      const picture = `{"data":[{"b64_json":"${"A".repeat(200_000)}"}]}`;
      answer = { writes: [picture.slice(0, 70_000), picture.slice(70_000)] };
      const paint = '{"model":"painter","prompt":"a cat"}';
      const pictures = [
        await send("k1", paint, "/v1/images/generations"),
        await send("k1", paint, "/v1/images/generations"),
      ];
      expect(pictures.map(({ text }) => text)).toEqual([picture, picture]);
      expect(seen).toHaveLength(3);

      answer = { status: 503, writes: ['{"error":{"message":"busy"}}'] };
      expect((await send("k3")).status).toBeGreaterThanOrEqual(500);
      answer = { writes: [vectors] };
      expect((await send("k3")).text, "what failed is tried again").toBe(vectors);
    } finally {
      await other.close();
    }
  });

  test("is named as its back end knows it", async () => {
    answer = { writes: [vectors] };
    await embed('{"model":"renamed","input":"x"}');
    expect(lastBody()).toEqual({ model: "vectors-large", input: "x" });
  });

  test("is refused on chats, and says where it is asked", async () => {
    const reply = await tenant.client.send("post", "/v1/chat/completions", { model: "vectors", messages });
    expect(reply.status).toBe(400);
    expect(reply.json.error).toMatchObject({ code: "invalid_request", param: "model" });
    expect(reply.json.error.message).toContain("POST /v1/embeddings");
    expect(seen).toEqual([]);
  });

  test("needs a key, a body, and a model that there is", async () => {
    expect((await embed(raw, gateway.nobody)).status).toBe(401);
    expect((await embed('{"model":"vectors"}')).json.error).toMatchObject({ code: "invalid_request", param: "input" });
    expect((await embed('{"model":"nothing","input":"x"}')).json.error.code).toBe("model_not_found");
    expect((await embed("[]")).json.error.code).toBe("invalid_request");
    expect(seen).toEqual([]);
  });

  test("reports what its back end refuses, and that it cannot be reached, without the key", async () => {
    answer = { status: 400, writes: ['{"error":{"message":"too long for sk-model-secret-1"}}'] };
    const refused = await embed(raw);
    expect(refused.status).toBe(400);
    expect(refused.json.error.code).toBe("provider_rejected");
    expect(refused.text).not.toContain("sk-model-secret-1");
    const call = await callOf(refused.headers.get("x-toolyard-call-id"));
    expect(call).toMatchObject({ state: "failed", error: { code: "provider_rejected" } });
    await tenant.addProvider("http://127.0.0.1:9/v1", { models: { far: "far" }, max_attempts: 1 });
    expect((await embed('{"model":"far","input":"x"}')).json.error.code).toBe("provider_unavailable");
  });

  test.each([
    ["in one piece", ['{"data":[],"headers":{"authorization":"Bearer sk-model-secret-1"}}']],
    ["cut in two", ['{"data":[],"headers":{"authorization":"Bearer sk-model-', 'secret-1"}}']],
    ["without its scheme", ['{"data":[],"headers":{"authorization":"', "sk-model-secret-1", '"}}']],
  ])("never gives the key that its back end echoes, %s, nor when it is asked again", async (how, writes) => {
    answer = { writes };
    const headers = { "content-type": "application/json", "idempotency-key": how.replaceAll(" ", "-") };
    const ask = (): ReturnType<typeof embed> =>
      tenant.client.send("post", "/v1/embeddings", undefined, { raw, headers });
    for (const reply of [await ask(), await ask()]) {
      expect(reply.status).toBe(200);
      expect(reply.json).toEqual({ data: [], headers: { authorization: "[redacted]" } });
    }
  });

  test("leaves an answer alone that only looks like a short key", async () => {
    await tenant.putCredential("SHORT_KEY", "none");
    await tenant.addProvider(address, { credential: "SHORT_KEY", models: { local: "local" } });
    const text = '{"data":[{"embedding":"nOneAAAA"}],"note":"none","authorization":"Bearer none"}';
    answer = { writes: [text] };
    expect((await embed('{"model":"local","input":"x"}')).text).toBe(
      '{"data":[{"embedding":"nOneAAAA"}],"note":"none","authorization":"[redacted]"}',
    );
  });

  test("counts against budgets, and is refused beyond them", async () => {
    const bounded = await gateway.newTenant({ reserve_tokens: 1 });
    await bounded.addProvider(address, { models: { vectors: "vectors" } });
    await bounded.client.post("/v1/budgets", { name: "all", scope: "tenant", period: "total", limit_tokens: 30 });
    answer = { writes: ['{"data":[],"usage":{"prompt_tokens":29,"total_tokens":29}}'] };
    const body = '{"model":"vectors","input":"a few words"}';
    expect((await embed(body, bounded.client)).status).toBe(200);
    const refused = await embed(body, bounded.client);
    expect(refused.status).toBe(429);
    expect(refused.json.error.code).toBe("budget_exceeded");
  });
});

describe(`the key of a chat's back end that echoes what it was asked ${verifies("BLIND-6")}`, () => {
  const echo = '"request":{"authorization":"Bearer sk-model-secret-1"}';

  test("is in no answer", async () => {
    const choice = '{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}';
    answer = { writes: [`{"id":"1","object":"chat.completion","choices":[${choice}],${echo}}`] };
    const reply = await tenant.client.send("post", "/v1/chat/completions", { model: "chatty", messages });
    expect(reply.json.choices[0].message.content).toBe("ok");
    expect(reply.text).not.toContain("sk-model-secret-1");
  });

  test.each(["anything", "lm-studio", "sk-no-key-required"])("is no key where it is a word: %s", async (word) => {
    await tenant.putCredential("WORD", word);
    await tenant.addProvider(address, { credential: "WORD", models: { [`of-${word}`]: "local" } });
    const message = JSON.stringify({ role: "assistant", content: `Write ${word} there.` });
    answer = {
      writes: [
        `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":${message},"finish_reason":"stop"}]}`,
      ],
    };
    const { json } = await tenant.client.send("post", "/v1/chat/completions", { model: `of-${word}`, messages });
    expect(json.choices[0].message.content).toBe(`Write ${word} there.`);
  });

  test("is in no event of a stream, like the one before or not", async () => {
    const chunk = (text: string, finish = "null"): string =>
      `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"${text}"},"finish_reason":${finish}}],${echo}}\n\n`;
    answer = {
      type: "text/event-stream",
      writes: [chunk("one "), chunk("two "), chunk("sk-model-secret-1 "), chunk("", '"stop"'), "data: [DONE]\n\n"],
    };
    const reply = await tenant.client.send("post", "/v1/chat/completions", { model: "chatty", messages, stream: true });
    expect(reply.text).toContain("two ");
    expect(reply.text).toContain("[DONE]");
    expect(reply.text).not.toContain("sk-model-secret-1");
  });
});

test("other models keep the whole pipeline", async () => {
  answer = {
    writes: ['{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}'],
  };
  await tenant.client.post("/v1/chat/completions", { model: "chatty", messages });
  expect(lastBody().messages).toEqual([
    { role: "system", content: "Paint.\n\nINJECTED" },
    { role: "user", content: "a cat" },
  ]);
  expect(lastBody().tools.length).toBeGreaterThan(0);
});
