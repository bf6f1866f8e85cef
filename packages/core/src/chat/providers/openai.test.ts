import { createServer as createHttpServer } from "node:http";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  calls,
  chunk,
  done,
  startLlmStub,
  text,
  type LlmStub,
  type Round,
} from "../../../../../test/support/llm-stub.ts";
import { startHttpStub } from "../../../../../test/support/http-stub.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createEgress } from "../../blind/egress.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { createOpenAiProvider } from "./openai.ts";
import type { ChatProvider, ProviderEvent, ProviderRecord, ProviderRequest } from "./provider.ts";

const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
let stub: LlmStub;
let provider: ChatProvider;

beforeAll(async () => {
  stub = await startLlmStub();
});
beforeEach(() => {
  stub.requests.length = 0;
  stub.http.requests.length = 0;
  stub.aborted.length = 0;
  provider = createOpenAiProvider({ egress });
});
afterAll(async () => {
  await egress.close();
  await stub.close();
});

function record(change: Partial<ProviderRecord> = {}): ProviderRecord {
  return {
    id: "prv_1",
    name: "acme",
    kind: "openai",
    baseUrl: stub.url,
    credential: "ACME_KEY",
    models: {},
    passthroughModels: true,
    schemaFamily: null,
    priority: 1,
    enabled: true,
    maxAttempts: 1,
    timeoutMs: 10_000,
    ...change,
  };
}

function request(change: Partial<ProviderRequest> = {}): ProviderRequest {
  return {
    body: { model: "stub-1", messages: [{ role: "user", content: "hi" }] },
    stream: true,
    signal: new AbortController().signal,
    apiKey: "secret-key",
    provider: record(),
    ...change,
  };
}

async function collect(batches: AsyncIterable<readonly ProviderEvent[]>): Promise<ProviderEvent[]> {
  const all: ProviderEvent[] = [];
  for await (const batch of batches) all.push(...batch);
  return all;
}

/** Plays one round and gives the events. */
function play(round: Round, change: Partial<ProviderRequest> = {}): Promise<ProviderEvent[]> {
  stub.script(round);
  return collect(provider.stream(request(change)));
}

async function failureOf(events: Promise<unknown> | AsyncIterable<readonly ProviderEvent[]>): Promise<GatewayError> {
  try {
    await (events instanceof Promise ? events : collect(events));
  } catch (thrown) {
    if (thrown instanceof GatewayError) return thrown;
    throw thrown;
  }
  throw new Error("nothing failed");
}

type EventOf<Type extends ProviderEvent["type"]> = Extract<ProviderEvent, { type: Type }>;
function only<Type extends ProviderEvent["type"]>(events: readonly ProviderEvent[], type: Type): EventOf<Type>[] {
  return events.filter((event): event is EventOf<Type> => event.type === type);
}
const textOf = (events: readonly ProviderEvent[]): string =>
  only(events, "text-delta")
    .map((event) => event.text)
    .join("");
const callsOf = (events: readonly ProviderEvent[]): (readonly [string, string])[] =>
  only(events, "message").flatMap((event) => event.toolCalls.map((call) => [call.name, call.arguments] as const));

describe(`requests to an OpenAI-compatible back end ${verifies("CHAT-1")}`, () => {
  test("pass unknown fields through and carry the key as bearer", async () => {
    const body: JsonObject = {
      model: "stub-1",
      messages: [{ role: "user", content: "hi", cache: { prompt_cache_breakpoint: true } }],
      temperature: 0,
      chat_template_kwargs: { enable_thinking: false },
    };
    await play(text("ok"), { body });
    expect(stub.requests).toEqual([{ ...body, stream: true, stream_options: { include_usage: true } }]);
    const [sent] = stub.http.requests;
    expect(sent?.target).toBe("/v1/chat/completions");
    expect(sent?.headers).toMatchObject({ authorization: "Bearer secret-key", "content-type": "application/json" });
  });

  test("send no key where there is none", async () => {
    await play(text("ok"), { apiKey: undefined });
    expect(stub.http.requests[0]?.headers).not.toHaveProperty("authorization");
  });

  test("ask for usage beside the client's own stream options", async () => {
    const body: JsonObject = { model: "stub-1", messages: [], stream_options: { include_obfuscation: false } };
    await play(text("ok"), { body });
    expect(stub.requests[0]?.["stream_options"]).toEqual({ include_obfuscation: false, include_usage: true });
  });

  test("leave stream and its options out where no stream is wanted", async () => {
    const body: JsonObject = { model: "stub-1", messages: [], stream: true, stream_options: { include_usage: true } };
    await play(text("ok"), { body, stream: false });
    expect(stub.requests).toEqual([{ model: "stub-1", messages: [] }]);
  });

  test.each([
    ["/v1/", "/v1/chat/completions"],
    ["/v1/chat/completions", "/v1/chat/completions"],
    ["/openai/deployments/x?api-version=1", "/openai/deployments/x/chat/completions?api-version=1"],
    ["", "/chat/completions"],
  ])("take the base URL ending in '%s'", async (end, target) => {
    await play(text("ok"), { provider: record({ baseUrl: stub.http.url + end }) });
    expect(stub.http.requests[0]?.target).toBe(target);
  });

  test.each([
    ["/v1", "secret-key", undefined],
    ["/openai/deployments/x?api-version=1", "secret-key", "secret-key"],
    ["/openai/deployments/x?api-version=1", "eyJh.eyJz.c2ln", undefined],
  ])("to '%s' prove themselves with %s as Azure wants it", async (end, apiKey, ofAzure) => {
    await play(text("ok"), { provider: record({ baseUrl: stub.http.url + end }), apiKey });
    const { headers } = stub.http.requests[0] ?? {};
    expect(headers?.authorization).toBe(`Bearer ${apiKey}`);
    expect(headers?.["api-key"]).toBe(ofAzure);
  });

  test("are repeated once without stream_options where the back end refuses them, and never again with them", async () => {
    stub.respond((body) =>
      "stream_options" in body
        ? {
            json: { detail: [{ loc: ["body", "stream_options"], msg: "Extra inputs are not permitted" }] },
            status: 422,
          }
        : text("ok"),
    );
    for (let at = 0; at < 2; at += 1) expect(textOf(await collect(provider.stream(request())))).toBe("ok");
    expect(stub.requests.map((body) => "stream_options" in body)).toEqual([true, false, false]);
  });

  test.each([
    ["reasoning", { error: { message: "'messages.1' : property 'reasoning' is unsupported, did you mean 'role'?" } }],
    [
      "reasoning_content",
      { detail: [{ type: "extra_forbidden", loc: ["body", "messages", 1, "assistant", "reasoning_content"] }] },
    ],
    ["reasoning_details", { error: { message: "Unknown field messages[1].reasoning_details" } }],
  ])(
    "are repeated without what was thought where its %s is refused, and sent to that model without it from then on",
    async (field, json) => {
      stub.respond((body) =>
        JSON.stringify(body["messages"]).includes(`"${field}"`) ? { json, status: 400 } : text("ok"),
      );
      const messages = [
        { role: "user", content: "a" },
        { role: "assistant", content: "b", reasoning: "r", reasoning_content: "r", reasoning_details: [] },
      ];
      const asked = (model: string): ProviderRequest => request({ body: { model, messages } });
      for (let at = 0; at < 2; at += 1) expect(textOf(await collect(provider.stream(asked("stub-1"))))).toBe("ok");
      expect(stub.requests).toHaveLength(3);
      expect(stub.requests[2]?.["messages"]).toEqual([messages[0], { role: "assistant", content: "b" }]);
      expect(textOf(await collect(provider.stream(asked("stub-2"))))).toBe("ok");
      expect(stub.requests).toHaveLength(5);
    },
  );

  test.each([
    "messages.1: reasoning_content must be passed back to the API",
    "'reasoning_effort' is not supported with messages of this kind",
  ])("are not repeated without what was thought where the complaint is %s", async (message) => {
    stub.script({ json: { error: { message } }, status: 400 });
    const messages = [{ role: "assistant", content: "b", reasoning_content: "r" }];
    const failure = await failureOf(provider.stream(request({ body: { model: "stub-1", messages } })));
    expect([failure.code, stub.requests.length]).toEqual(["provider_rejected", 1]);
  });

  test("say again what was thought where a complaint was about something else", async () => {
    const message = "messages with pictures are not supported by a reasoning model";
    stub.respond((body) =>
      JSON.stringify(body["messages"]).includes("image_url")
        ? { json: { error: { message } }, status: 400 }
        : text("ok"),
    );
    const thought = { role: "assistant", content: "b", reasoning_content: "r" };
    const picture = { role: "user", content: [{ type: "image_url", image_url: { url: "https://x.test/a.png" } }] };
    const asked = (...messages: JsonObject[]): ProviderRequest => request({ body: { model: "stub-1", messages } });
    expect((await failureOf(provider.stream(asked(thought, picture)))).code).toBe("provider_rejected");
    expect(textOf(await collect(provider.stream(asked(thought))))).toBe("ok");
    expect(stub.requests.at(-1)?.["messages"]).toEqual([thought]);
  });

  test("are not repeated for another complaint", async () => {
    stub.script({ json: { error: { message: "temperature is too high" } }, status: 400 });
    expect((await failureOf(provider.stream(request()))).code).toBe("provider_rejected");
    expect(stub.requests).toHaveLength(1);
  });

  test("are refused before they are sent where the key cannot be a header", async () => {
    for (const apiKey of ["a\r\nx-evil: 1", "ключ", ""]) {
      const error = await failureOf(provider.stream(request({ apiKey })));
      expect(error.code).toBe("credential_invalid");
      expect(error.message).toContain("'ACME_KEY'");
    }
    expect(stub.http.requests).toHaveLength(0);
  });
});

describe(`streamed answers ${verifies("CHAT-2", "CHAT-6")}`, () => {
  test("come as start, deltas, message and usage", async () => {
    const events = await play(text("Hello big world", [7, 3]));
    expect(events.map((event) => event.type)).toEqual([
      "start",
      "text-delta",
      "text-delta",
      "text-delta",
      "message",
      "usage",
    ]);
    expect(events[0]).toEqual({ type: "start", id: "chatcmpl-x1", model: "stub-1", created: 1_795_000_000 });
    expect(textOf(events)).toBe("Hello big world");
    expect(only(events, "message")).toEqual([
      {
        type: "message",
        choice: 0,
        message: { role: "assistant", content: "Hello big world" },
        toolCalls: [],
        finishReason: "stop",
      },
    ]);
    expect(only(events, "usage")).toEqual([
      { type: "usage", usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } },
    ]);
  });

  test("give every plain delta with its bytes, so that these can be sent on", async () => {
    const events = await play(text("a b"));
    expect(only(events, "text-delta").map((event) => Buffer.from(event.frame ?? []).toString())).toEqual([
      chunk({ content: "a " }),
      chunk({ content: "b" }),
    ]);
  });

  test("have the same text whatever the line ends and the spaces", async () => {
    const plain = (content: string): string => chunk({ content }).trimEnd();
    const events = await play({
      writes: [
        `${plain("A")}\n\r\n`,
        `${plain("B")}\r\r`,
        `${plain("C")}\r`,
        "\n\r",
        "\n",
        `: keep-alive\n\n`,
        `${plain("D").replace("data: ", "data:")}\n\n`,
        `event: message\nid: 1\n${plain("E")}\n\n`,
        `${chunk({}, "stop").trimEnd()}\r\n\r\n`,
        "data: [DONE]\r\n\r\n",
      ],
    });
    expect(textOf(events)).toBe("ABCDE");
    expect(only(events, "message")[0]?.finishReason).toBe("stop");
  });

  test("end with [DONE], whatever stands behind it", async () => {
    const events = await play({ writes: [chunk({ content: "x" }), chunk({}, "stop"), "data: [DONE] \n\n"] });
    expect(textOf(events)).toBe("x");
  });

  test("end without waiting where the last byte is a lone CR", async () => {
    const lines = chunk({ content: "x" }, "stop").trimEnd();
    const events = await play({ writes: [`${lines}\r\r`, "data: [DONE]\r\r"] });
    expect(textOf(events)).toBe("x");
  });

  test("keep characters that are split between reads, in text and in arguments", async () => {
    const bytes = Buffer.from(
      chunk({ content: "你好😀" }) +
        chunk(
          { tool_calls: [{ index: 0, id: "a", function: { name: "say", arguments: '{"t":"你好😀"}' } }] },
          "tool_calls",
        ) +
        done,
    );
    const writes: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += 3) writes.push(bytes.subarray(at, at + 3));
    const events = await play({ writes, gapMs: 0 });
    expect(textOf(events)).toBe("你好😀");
    expect(callsOf(events)).toEqual([["say", '{"t":"你好😀"}']]);
  });

  test("count as complete with a finish_reason and no [DONE], and with [DONE] and no finish_reason", async () => {
    const noDone = await play({ writes: [chunk({ content: "x" }), chunk({}, "stop")] });
    expect(only(noDone, "message")[0]?.finishReason).toBe("stop");
    const noReason = await play({ writes: [chunk({ content: "x" }), done] });
    expect(only(noReason, "message")[0]?.finishReason).toBe("stop");
    const cutAfterFinish = await play({ writes: [chunk({ content: "x" }), chunk({}, "stop"), "data: {"], cut: true });
    expect(textOf(cutAfterFinish)).toBe("x");
  });

  test.each([
    ["ends", false],
    ["breaks", true],
  ])("are incomplete where the stream %s before either, and no call is complete", async (_how, cut) => {
    stub.script({
      writes: [
        chunk({
          tool_calls: [{ index: 0, id: "a", function: { name: "remove_dir", arguments: '{"path":"/data/tenant-a' } }],
        }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: '/tmp/scratch"}' } }] }).replace("data: ", "data:"),
      ],
      cut,
      gapMs: 10,
    });
    const seen: ProviderEvent[] = [];
    const error = await failureOf(
      (async () => {
        for await (const batch of provider.stream(request())) seen.push(...batch);
      })(),
    );
    expect(error.code).toBe("provider_stream_incomplete");
    expect(error.details.extra).toMatchObject({ before_first_byte: false });
    expect(only(seen, "message")).toEqual([]);
    expect(only(seen, "tool-call-delta").map((event) => event.arguments)).toEqual([
      '{"path":"/data/tenant-a',
      '/tmp/scratch"}',
    ]);
  });

  test("are incomplete where one of two choices has not finished", async () => {
    const both = {
      id: "x",
      choices: [
        { index: 0, delta: { content: "a" }, finish_reason: "stop" },
        { index: 1, delta: { content: "b" } },
      ],
    };
    const body: JsonObject = { model: "stub-1", messages: [], n: 2 };
    const error = await failureOf(play({ writes: [`data: ${JSON.stringify(both)}\n\n`] }, { body }));
    expect(error.code).toBe("provider_stream_incomplete");
  });

  test("are not finished by a finish_reason that says nothing", async () => {
    for (const nothing of ["", "null"]) {
      const error = await failureOf(play({ writes: [chunk({ content: "x" }, nothing)] }));
      expect(error.code).toBe("provider_stream_incomplete");
    }
  });

  test("discard an event that the end of the stream cuts off", async () => {
    const error = await failureOf(play({ writes: [chunk({ content: "x" }), chunk({}, "stop").trimEnd()] }));
    expect(error.code).toBe("provider_stream_incomplete");
  });

  test("may be repeated where nothing had come yet", async () => {
    for (const writes of [[], [": waiting\n\n"], [done]]) {
      const error = await failureOf(play({ writes }));
      expect([error.code, error.details.extra?.["before_first_byte"]]).toEqual(["provider_stream_incomplete", true]);
    }
  });

  test("have of a usage two levels, however deep a back end nests", async () => {
    const usage = JSON.parse(
      `{"prompt_tokens":7,"completion_tokens":3,"cost":"low","details":{"cached":2,"a":{"b":1},"c":[1]},"x":${"[".repeat(3_000)}${"]".repeat(3_000)}}`,
    ) as JsonObject;
    const last = `data: ${JSON.stringify({ id: "x", choices: [], usage })}\n\n`;
    const events = await play({ writes: [chunk({ content: "a" }), chunk({}, "stop"), last, done] });
    expect(only(events, "usage").map((event) => event.usage)).toEqual([
      { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10, cost: "low", details: { cached: 2 } },
    ]);
  });

  test("take the last usage where a back end counts along", async () => {
    const counted = (content: string, n: number): string =>
      chunk({ content }).replace('"choices"', `"usage":{"prompt_tokens":5,"completion_tokens":${n}},"choices"`);
    const events = await play({ writes: [counted("a", 1), counted("b", 2), chunk({}, "stop"), done] });
    expect(only(events, "usage")).toEqual([
      { type: "usage", usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 } },
    ]);
    expect(only(events, "text-delta").every((event) => event.frame === undefined)).toBe(true);
  });

  test("keep details of usage and tolerate its absence", async () => {
    const usage = {
      prompt_tokens: 5,
      completion_tokens: 2,
      total_tokens: 7,
      prompt_tokens_details: { cached_tokens: 3 },
    };
    const events = await play({
      writes: [chunk({ content: "a" }, "stop"), `data: ${JSON.stringify({ choices: [], usage })}\n\n`, done],
    });
    expect(only(events, "usage")[0]?.usage).toEqual(usage);
    expect(only(await play({ writes: [chunk({ content: "a" }, "stop"), done] }), "usage")).toEqual([]);
  });

  test("skip chunks without choices and events without content", async () => {
    const filter = { id: "", model: "", created: 0, object: "", choices: [], prompt_filter_results: [{ x: 1 }] };
    const events = await play({
      writes: [
        `data: ${JSON.stringify(filter)}\n\n`,
        "data:\n\n",
        "data: \n\n",
        chunk({ content: "a" }, "stop"),
        "data: null\n\n",
        done,
      ],
    });
    expect(events[0]).toMatchObject({ type: "start", id: "chatcmpl-x1" });
    expect(only(events, "response")).toEqual([{ type: "response", body: { prompt_filter_results: [{ x: 1 }] } }]);
  });

  test("name themselves where the back end does not", async () => {
    const events = await play({
      writes: ['data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n', done],
    });
    expect(events[0]).toMatchObject({ type: "start", model: "stub-1" });
    expect((events[0] as EventOf<"start">).id).toMatch(/^chatcmpl-./);
    expect((events[0] as EventOf<"start">).created).toBeGreaterThan(1_700_000_000);
  });

  test("read reasoning under both names and show it once", async () => {
    const events = await play({
      writes: [
        chunk({ role: "assistant", content: null, reasoning_content: "a" }),
        chunk({ reasoning_content: "b", content: null }),
        chunk({ content: "x" }, "stop"),
        done,
      ],
    });
    expect(only(events, "reasoning-delta").map(({ text: part, field }) => [part, field])).toEqual([
      ["a", "reasoning_content"],
      ["b", "reasoning_content"],
    ]);
    expect(only(events, "message")[0]?.message).toEqual({ role: "assistant", content: "x", reasoning_content: "ab" });
    const newer = await play({
      writes: [chunk({ reasoning: "a" }), chunk({ reasoning: "b", reasoning_content: "b" }), chunk({}, "stop"), done],
    });
    expect(only(newer, "reasoning-delta").map(({ text: part }) => part)).toEqual(["a", "b"]);
    expect(only(newer, "message")[0]?.message).toMatchObject({ reasoning: "ab", reasoning_content: "b" });
  });

  test("keep what the gateway does not know for the next turn", async () => {
    const events = await play({
      writes: [
        chunk({
          role: "assistant",
          content: "",
          reasoning_details: [{ index: 0, type: "reasoning.text", text: "th", format: "v1" }],
        }),
        chunk({
          reasoning_details: [{ index: 0, type: "reasoning.text", text: "ink", format: "v1", signature: "s1" }],
        }),
        chunk({ extra_content: { google: { thought_signature: "sig" } } }),
        chunk({ annotations: [{ type: "url_citation", url_citation: { url: "u1" } }] }),
        chunk({ annotations: [{ type: "url_citation", url_citation: { url: "u2" } }] }),
        chunk({ audio: { id: "au1", data: "AA", transcript: "he" } }),
        chunk({ audio: { id: "au1", data: "BB", transcript: "llo", expires_at: 9 } }),
        chunk({ refusal: "no" }),
        chunk({}, "stop"),
        done,
      ],
    });
    expect(only(events, "message")[0]?.message).toEqual({
      role: "assistant",
      content: "",
      refusal: "no",
      reasoning_details: [{ index: 0, type: "reasoning.text", text: "think", format: "v1", signature: "s1" }],
      extra_content: { google: { thought_signature: "sig" } },
      annotations: [
        { type: "url_citation", url_citation: { url: "u1" } },
        { type: "url_citation", url_citation: { url: "u2" } },
      ],
      audio: { id: "au1", data: "AABB", transcript: "hello", expires_at: 9 },
    });
    const others = only(events, "other-delta");
    expect(others).toHaveLength(7);
    expect(others[1]?.delta).toEqual({
      reasoning_details: [{ index: 0, type: "reasoning.text", text: "ink", format: "v1", signature: "s1" }],
    });
    expect(others[0]?.frame).toBeUndefined();
    expect(others[1]?.frame).toBeDefined();
    expect(only(events, "refusal-delta").map(({ text: part }) => part)).toEqual(["no"]);
  });

  test("pass log probabilities on", async () => {
    const logprobs = { content: [{ token: "a", logprob: -0.1 }] };
    const one = JSON.parse(chunk({ content: "a" }).slice(6)) as { choices: JsonObject[] };
    const withLogprobs = { ...one, choices: [{ ...one.choices[0], logprobs }] };
    const events = await play({ writes: [`data: ${JSON.stringify(withLogprobs)}\n\n`, chunk({}, "stop"), done] });
    expect(only(events, "text-delta")).toEqual([{ type: "text-delta", text: "a", choice: 0 }]);
    expect(only(events, "other-delta")).toEqual([{ type: "other-delta", delta: {}, choice: 0, logprobs }]);
  });

  test("read content that comes as parts, and tell it as clients know it", async () => {
    const thought = (text: string): JsonObject => ({ type: "thinking", thinking: [{ type: "text", text }] });
    const events = await play({
      writes: [
        chunk({ content: [thought("hm")] }),
        chunk({ content: [{ type: "thinking", thinking: ", so" }] }),
        chunk({
          content: [
            { type: "text", text: "He" },
            { type: "reference", reference_ids: [1] },
          ],
        }),
        chunk({ content: "llo" }, "stop"),
        done,
      ],
    });
    expect(textOf(events)).toBe("Hello");
    expect(only(events, "reasoning-delta")).toEqual([
      { type: "reasoning-delta", text: "hm", field: "reasoning_content", choice: 0 },
      { type: "reasoning-delta", text: ", so", field: "reasoning_content", choice: 0 },
    ]);
    expect(only(events, "text-delta")).toEqual([
      { type: "text-delta", text: "He", choice: 0 },
      { type: "text-delta", text: "llo", choice: 0 },
    ]);
    expect(only(events, "other-delta")).toEqual([]);
    expect(only(events, "message")[0]?.message).toEqual({
      role: "assistant",
      content: [
        thought("hm"),
        { type: "thinking", thinking: ", so" },
        { type: "reference", reference_ids: [1] },
        { type: "text", text: "Hello" },
      ],
    });
  });

  test("give bytes only where nothing has to be written anew", async () => {
    const other = (change: object, delta: object = { content: "x" }): string =>
      `data: ${JSON.stringify({ ...(JSON.parse(chunk(delta).slice(6)) as object), ...change })}\n\n`;
    const events = await play({
      writes: [
        chunk({ content: "plain" }),
        chunk({ role: "assistant", content: "role" }),
        other({ id: "other" }),
        other({ model: "other" }),
        other({ created: 1 }),
        other({ object: "x" }),
        other({}).replace("data: ", "data:"),
        other({ usage: { prompt_tokens: 1, completion_tokens: 1 } }),
        chunk({ content: "a", reasoning: "b" }),
        other({}, { content: "crlf" }).replaceAll("\n", "\r\n"),
        other({ obfuscation: "xyz", usage: null }, { content: "padded" }),
        chunk({ content: "last" }, "stop"),
        done,
      ],
    });
    const withFrame = only(events, "text-delta").filter((event) => event.frame !== undefined);
    expect(withFrame.map((event) => event.text)).toEqual(["plain", "padded"]);
    expect(only(events, "text-delta")).toHaveLength(12);
  });

  test("have no more choices than were asked for", async () => {
    const of = (index: number, content: string): string =>
      `data: ${JSON.stringify({ id: "x", choices: [{ index, delta: { content } }] })}\n\n`;
    const body: JsonObject = { model: "stub-1", messages: [], n: 2 };
    const writes = [of(0, "a"), of(1, "b"), of(2, "c"), of(0, "a"), of(1_000_000, "d"), chunk({}, "stop"), done];
    for (const [more, heard] of [
      [{ body }, "aba"],
      [{}, "aa"],
    ] as const) {
      expect(textOf(await play({ writes }, more))).toBe(heard);
    }
  });

  test("hold every choice apart", async () => {
    const of = (index: number, delta: object, reason: string | null = null): string =>
      `data: ${JSON.stringify({ id: "x", choices: [{ index, delta, finish_reason: reason }] })}\n\n`;
    const tool = (id: string, name: string): object => ({
      tool_calls: [{ index: 0, id, function: { name, arguments: "{}" } }],
    });
    const writes = [
      of(1, { content: "b" }),
      of(0, { content: "a" }),
      of(1, tool("t", "g")),
      of(0, tool("t", "f")),
      of(0, {}, "tool_calls"),
      of(1, {}, "length"),
      done,
    ];
    const events = await play({ writes }, { body: { model: "stub-1", messages: [], n: 2 } });
    expect(
      only(events, "message").map((event) => [event.choice, event.message["content"], event.finishReason]),
    ).toEqual([
      [0, "a", "tool_calls"],
      [1, "b", "length"],
    ]);
    expect(callsOf(events)).toEqual([
      ["f", "{}"],
      ["g", "{}"],
    ]);
  });
});

describe(`streamed tool calls ${verifies("CHAT-3")}`, () => {
  test("are assembled and kept with their unknown fields", async () => {
    const events = await play(
      calls({ name: "get_weather", arguments: { city: "北京" } }, { name: "get_time", arguments: {} }),
    );
    expect(callsOf(events)).toEqual([
      ["get_weather", '{"city":"北京"}'],
      ["get_time", "{}"],
    ]);
    const [message] = only(events, "message");
    expect(message?.finishReason).toBe("tool_calls");
    expect(message?.message).toMatchObject({ role: "assistant", content: null });
    expect(message?.message["tool_calls"]).toEqual(
      message?.toolCalls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      })),
    );
    expect(only(events, "tool-call-delta").every((event) => Number.isInteger(event.index))).toBe(true);
  });

  test("say that they were cut where the answer ran out of tokens", async () => {
    const cutOff = {
      index: 1,
      id: "b",
      function: { name: "write_file", arguments: '{"path":"report.md","content":"# Ti' },
    };
    const events = await play({
      writes: [
        chunk({
          tool_calls: [
            { index: 0, id: "a", function: { name: "write_file", arguments: '{"path":"a","content":"b"}' } },
          ],
        }),
        chunk({ tool_calls: [cutOff] }),
        chunk({}, "length"),
        done,
      ],
    });
    const [message] = only(events, "message");
    expect(message?.finishReason).toBe("length");
    expect(message?.toolCalls.map((call) => call.arguments)).toEqual([
      '{"path":"a","content":"b"}',
      cutOff.function.arguments,
    ]);
  });

  test("come out of the deprecated form as well", async () => {
    const events = await play({
      writes: [
        chunk({ role: "assistant", content: null, function_call: { name: "f", arguments: "" } }),
        chunk({ function_call: { arguments: '{"x":1}' } }),
        chunk({}, "function_call"),
        done,
      ],
    });
    const [message] = only(events, "message");
    expect(message?.toolCalls).toMatchObject([{ name: "f", arguments: '{"x":1}' }]);
    expect(message?.finishReason).toBe("tool_calls");
    expect(message?.message).not.toHaveProperty("function_call");
  });

  test("count whatever finish_reason says", async () => {
    const events = await play({
      writes: [chunk({ tool_calls: [{ id: "a", function: { name: "f", arguments: {} } }] }), chunk({}, "stop"), done],
    });
    expect(callsOf(events)).toEqual([["f", "{}"]]);
  });
});

describe(`whole answers ${verifies("CHAT-2")}`, () => {
  const message = {
    role: "assistant",
    content: "Hello",
    refusal: null,
    annotations: [],
    reasoning_content: "hm",
    custom: { a: 1 },
  };
  const body = {
    id: "c1",
    object: "chat.completion",
    created: 5,
    model: "m",
    system_fingerprint: "fp",
    service_tier: "default",
    choices: [{ index: 0, message, logprobs: null, finish_reason: "stop" }],
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  };

  test.each([true, false])("come as the same events, asked for as a stream or not (%s)", async (stream) => {
    const events = await play({ json: body }, { stream });
    // The stub writes JSON for JSON rounds whatever was asked for.
    expect(events).toEqual([
      { type: "start", id: "c1", model: "m", created: 5, systemFingerprint: "fp" },
      { type: "reasoning-delta", text: "hm", field: "reasoning_content", choice: 0 },
      { type: "text-delta", text: "Hello", choice: 0 },
      { type: "other-delta", delta: { custom: { a: 1 } }, choice: 0 },
      { type: "message", choice: 0, message, toolCalls: [], finishReason: "stop" },
      { type: "usage", usage: body.usage },
      { type: "response", body, bytes: expect.any(Uint8Array) },
    ]);
    expect(only(events, "response").map(({ bytes }) => Buffer.from(bytes ?? []).toString())).toEqual([
      JSON.stringify(body),
    ]);
  });

  test.each([
    ["are no UTF-8", Buffer.from(JSON.stringify(body).replace("Hello", "Hell\u00f6"), "latin1")],
    ["begin with a byte order mark", Buffer.from(`\ufeff${JSON.stringify(body)}`)],
  ])("are written anew where their bytes %s", async (_what, bytes) => {
    await withAnswer({ "content-type": "application/json" }, [bytes], async (url) => {
      const events = await collect(provider.stream(request({ stream: false, provider: record({ baseUrl: url }) })));
      expect(only(events, "response").map((event) => event.bytes)).toEqual([undefined]);
    });
  });

  test("have their calls brought into the strict form", async () => {
    const call = (id: string, text_: unknown): object => ({
      id,
      type: "function",
      function: { name: "f", arguments: text_ },
      sig: "s",
    });
    const events = await play(
      {
        json: {
          choices: [
            {
              message: {
                content: null,
                tool_calls: [call("a", { x: 1 }), call("a", '{"x":1}'), call("", ""), call("a", "{}")],
              },
            },
          ],
        },
      },
      { stream: false },
    );
    const [got] = only(events, "message");
    expect(got?.toolCalls.map((one) => one.arguments)).toEqual(['{"x":1}', "{}"]);
    expect(new Set(got?.toolCalls.map((one) => one.id)).size).toBe(2);
    expect(got?.finishReason).toBe("tool_calls");
    expect(got?.message["tool_calls"]).toMatchObject([{ id: "a", sig: "s" }, { sig: "s" }]);
  });

  test("fail where they ask for more calls than a turn may have, streamed or not", async () => {
    const asks = Array.from({ length: 257 }, (_none, index) => ({
      index,
      id: `a${index}`,
      type: "function",
      function: { name: "f", arguments: `{"at":${index}}` },
    }));
    const choices = [{ index: 0, message: { role: "assistant", tool_calls: asks }, finish_reason: "tool_calls" }];
    const streamed = asks.map((ask) => chunk({ tool_calls: [ask] }));
    for (const round of [{ json: { choices } }, { writes: [...streamed, chunk({}, "tool_calls"), done], gapMs: 0 }]) {
      const failure = await failureOf(play(round, { stream: "writes" in round }));
      expect(failure.code).toBe("provider_failed");
      expect(failure.message).toBe("Provider 'acme' asked for more than 256 tool calls in one turn.");
    }
  });

  test("may begin with blank lines that keep the connection alive", async () => {
    await withAnswer({}, ["\n", "\n \n", JSON.stringify(body)], async (url) => {
      const events = await collect(provider.stream(request({ stream: false, provider: record({ baseUrl: url }) })));
      expect(textOf(events)).toBe("Hello");
    });
  });

  test("may have a byte order mark before blank lines, as may streams", async () => {
    for (const answer of [JSON.stringify(body), chunk({ content: "Hello" }, "stop") + done]) {
      await withAnswer({}, ["\ufeff", "\n", answer], async (url) => {
        expect(textOf(await collect(provider.stream(request({ provider: record({ baseUrl: url }) }))))).toBe("Hello");
      });
    }
  });

  test("may be a stream although none was asked for", async () => {
    await withAnswer(
      { "content-type": "application/json" },
      [chunk({ content: "Hel" }), chunk({ content: "lo" }, "stop"), done],
      async (url) => {
        const events = await collect(provider.stream(request({ stream: false, provider: record({ baseUrl: url }) })));
        expect(textOf(events)).toBe("Hello");
      },
    );
  });

  test.each([
    ["cut JSON", '{"choices":[{"mess', "provider_stream_incomplete"],
    ["a page", "<!doctype html><title>Welcome</title>", "provider_failed"],
    ["something else", '{"hello":1}', "provider_failed"],
    ["an error", '{"error":{"message":"overloaded","type":"server_error"}}', "provider_unavailable"],
    [
      "an error of the choice",
      '{"choices":[{"error":{"code":502,"message":"x"},"message":{"content":""}}]}',
      "provider_unavailable",
    ],
    ["no choice", '{"choices":[]}', "provider_stream_incomplete"],
    ["nothing", "", "provider_stream_incomplete"],
  ])("are refused where status 200 brings %s", async (_name, answer, code) => {
    await withAnswer({}, [answer], async (url) => {
      const error = await failureOf(provider.stream(request({ stream: false, provider: record({ baseUrl: url }) })));
      expect([error.code, error.details.extra?.["before_first_byte"]]).toEqual([code, true]);
    });
  });
});

describe(`failures of a back end ${verifies("CHAT-1")}`, () => {
  test("inside a good stream end it with the back end's words", async () => {
    for (const write of [
      'data: {"error":{"message":"The model crashed","type":"server_error"}}\n\n',
      'event: error\ndata: {"message":"The model crashed","code":500}\n\n',
      "event: error\ndata: The model crashed\n\n",
    ]) {
      const error = await failureOf(play({ writes: [chunk({ content: "x" }), write, done] }));
      expect(["provider_unavailable", "provider_failed"]).toContain(error.code);
      expect(error.details.extra).toMatchObject({ before_first_byte: false });
    }
  });

  test("may be repeated where the error is the first thing in the stream", async () => {
    const error = await failureOf(play({ writes: ['data: {"error":{"message":"busy","code":503}}\n\n'] }));
    expect([error.code, error.details.extra?.["before_first_byte"]]).toEqual(["provider_unavailable", true]);
  });

  test("that are no JSON in a stream are named", async () => {
    const error = await failureOf(play({ writes: [chunk({ content: "x" }), "data: oops secret-key\n\n", done] }));
    expect(error.code).toBe("provider_failed");
    expect(error.message).toContain("oops [redacted]");
  });

  test("to say what went wrong, since it is nested too deep, are failures of theirs", async () => {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    for (const body of [deep, `{"error":${deep}}`, `{"error":{"message":"busy","details":${deep}}}`]) {
      await withAnswer({ "content-type": "application/json" }, [body], async (url) => {
        const error = await failureOf(provider.stream(request({ provider: record({ baseUrl: url }) })));
        expect([error.code, error.details.extra?.["before_first_byte"]]).toEqual(["provider_failed", true]);
      });
    }
    const inStream = [chunk({ content: "x" }), `data: {"error":${deep}}\n\n`, done];
    expect((await failureOf(play({ writes: inStream }))).code).toBe("provider_failed");
  });

  test("with a status keep it, the advice and the words, and not the key", async () => {
    stub.script({ json: { error: { message: "no secret-key", code: "x", param: "tools" } }, status: 400 });
    const rejected = await failureOf(provider.stream(request()));
    expect(rejected.message).toBe("Provider 'acme' refused the request (HTTP 400): no [redacted]");
    expect(rejected.details).toMatchObject({ param: "tools", extra: { upstream_code: "x", before_first_byte: true } });
    stub.script({ json: {}, status: 429, headers: { "retry-after": "3" } });
    const limited = await failureOf(provider.stream(request()));
    expect([limited.code, limited.details.retryAfterMs]).toEqual(["provider_rate_limited", 3_000]);
  });

  test("to connect are unavailable, and blocked addresses are not", async () => {
    const closed = await failureOf(
      provider.stream(request({ provider: record({ baseUrl: "http://127.0.0.1:1/v1" }) })),
    );
    expect([closed.code, closed.details.extra?.["before_first_byte"]]).toEqual(["provider_unavailable", true]);
    const denied = await failureOf(
      provider.stream(request({ provider: record({ baseUrl: "http://169.254.169.254/v1" }) })),
    );
    expect(denied.code).toBe("provider_failed");
    const broken = await failureOf(provider.stream(request({ provider: record({ baseUrl: "no url" }) })));
    expect(broken.code).toBe("provider_failed");
  });

  test("to answer in time name the knob", async () => {
    stub.script({ json: {}, delayMs: 2_000 });
    const error = await failureOf(provider.stream(request({ provider: record({ timeoutMs: 60 }) })));
    expect(error.code).toBe("provider_unavailable");
    expect(error.message).toContain("timeout_ms of 60");
    expect(error.details.extra).toMatchObject({ timed_out: true, before_first_byte: true });
  });
});

describe(`a client that leaves ${verifies("CHAT-2")}`, () => {
  const endless = { writes: Array.from({ length: 1_000 }, (_, at) => chunk({ content: `${at} ` })), gapMs: 5 };

  test("closes the connection to the back end when its signal aborts", async () => {
    stub.script(endless);
    const controller = new AbortController();
    const error = await failureOf(
      (async () => {
        for await (const batch of provider.stream(request({ signal: controller.signal }))) {
          if (textOf(batch) !== "") controller.abort();
        }
      })(),
    );
    expect(error.code).toBe("request_cancelled");
    await expectSoon(() => stub.aborted.length === 1);
    expect(stub.requests).toHaveLength(1);
  });

  test("closes the connection when it stops reading events", async () => {
    stub.script(endless);
    for await (const batch of provider.stream(request())) if (textOf(batch) !== "") break;
    await expectSoon(() => stub.aborted.length === 1);
  });

  test("gets the reason for which it was stopped", async () => {
    stub.script({ json: {}, delayMs: 2_000 });
    const controller = new AbortController();
    const reason = new GatewayError("wall_clock_exceeded", "time is up");
    setTimeout(() => controller.abort(reason), 20);
    expect(await failureOf(provider.stream(request({ signal: controller.signal })))).toBe(reason);
  });
});

describe("connections to a back end", () => {
  test("are used again after a streamed answer", async () => {
    const sockets = new Set<Socket>();
    await withAnswer(
      { "content-type": "text/event-stream" },
      [chunk({ content: "x" }, "stop"), done],
      async (url) => {
        for (let at = 0; at < 6; at += 1)
          await collect(provider.stream(request({ provider: record({ baseUrl: url }) })));
        // A request may begin while the connection of the one before is being put back.
        expect(sockets.size).toBeLessThan(3);
      },
      sockets,
    );
  });

  test.each([
    ["[DONE]", chunk({ content: "x" }, "stop") + done],
    ["a finish_reason", chunk({ content: "x" }, "stop")],
  ])("are given up where a back end says %s and does not end", async (_what, answer) => {
    const sockets = new Set<Socket>();
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
      socket.once("data", () => socket.write(head + answer));
    });
    await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
    const { port } = server.address() as AddressInfo;
    const baseUrl = `http://127.0.0.1:${port}/v1`;
    const impatient = createOpenAiProvider({ egress, afterFinishMs: 50 });
    const events = await collect(impatient.stream(request({ provider: record({ baseUrl }) })));
    expect(only(events, "message")).toMatchObject([{ message: { content: "x" }, finishReason: "stop" }]);
    await expectSoon(() => sockets.size === 0);
    server.close();
  });
});

describe(`lists of models ${verifies("CHAT-16")}`, () => {
  test("come from the back end", async () => {
    const { signal } = new AbortController();
    expect(await provider.listModels?.({ provider: record(), apiKey: "k", signal })).toEqual(["stub-1"]);
    expect(stub.http.requests[0]).toMatchObject({ method: "GET", target: "/v1/models" });
  });

  test("come as a bare list, too", async () => {
    const http = await startHttpStub(() => ({ body: '[{"id":"org/m-1","object":"model"},{"id":7},"x"]' }));
    const { signal } = new AbortController();
    const provided = record({ baseUrl: http.url });
    expect(await provider.listModels?.({ provider: provided, apiKey: undefined, signal })).toEqual(["org/m-1"]);
    await http.close();
  });

  test("fail as requests do", async () => {
    const http = await startHttpStub(() => ({ status: 401, body: "{}" }));
    const { signal } = new AbortController();
    const list = (baseUrl: string): Promise<unknown> =>
      provider.listModels?.({ provider: record({ baseUrl }), apiKey: undefined, signal }) ?? Promise.resolve();
    expect((await failureOf(list(http.url))).code).toBe("provider_failed");
    expect((await failureOf(list("http://127.0.0.1:1"))).code).toBe("tool_unreachable");
    await http.close();
  });
});

/** A server that gives one fixed answer in the given writes. */
async function withAnswer(
  headers: Readonly<Record<string, string>>,
  writes: readonly (string | Buffer)[],
  use: (url: string) => Promise<void>,
  sockets: Set<Socket> = new Set(),
): Promise<void> {
  const server = createHttpServer((incoming, response) => {
    incoming.resume();
    response.writeHead(200, headers);
    for (const write of writes) response.write(write);
    response.end();
  });
  server.on("connection", (socket) => sockets.add(socket));
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address() as AddressInfo;
  try {
    await use(`http://127.0.0.1:${port}/v1`);
  } finally {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  }
}

async function expectSoon(isTrue: () => boolean): Promise<void> {
  for (let at = 0; at < 400 && !isTrue(); at += 1) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(isTrue()).toBe(true);
}
