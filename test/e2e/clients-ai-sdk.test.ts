/** The unmodified `ai` package with its provider for OpenAI-compatible servers, over real sockets. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, jsonSchema, Output, streamText, tool } from "ai";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let proxy: TcpProxy;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  proxy = await startTcpProxy(gateway.url);
  llm.requests.length = 0;
  llm.aborted.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { max_attempts: 1 });
});

afterEach(() => proxy.close());

const prompt = "What is the weather?";

function chatModel() {
  const provider = createOpenAICompatible({
    name: "toolyard",
    baseURL: `${proxy.url}/v1`,
    apiKey: tenant.key,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
  return provider("stub-1");
}

/** The client's own tool, keeping what it was asked for. */
function weatherTools(asked: string[]) {
  return {
    get_weather: tool({
      description: "The weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => {
        asked.push(city);
        return `${city}: sunny`;
      },
    }),
  };
}

function sentMessages(request: number): Json[] {
  return llm.requests[request]?.["messages"] as Json[];
}

async function chatStates(): Promise<readonly string[]> {
  return (await tenant.client.get("/v1/calls?kind=chat&order=asc")).data.map((call: Json) => call.state as string);
}

describe(`answers ${verifies("CHAT-1", "CHAT-2", "CHAT-6")}`, () => {
  test("generateText gives text, reason and usage", async () => {
    llm.script(text("It is 晴 😀.", [12, 4]));
    const { text: answer, finishReason, usage, response } = await generateText({ model: chatModel(), prompt });
    expect([answer, finishReason, response.modelId]).toEqual(["It is 晴 😀.", "stop", "stub-1"]);
    expect(usage).toMatchObject({ inputTokens: 12, outputTokens: 4, totalTokens: 16 });
  });

  test("streamText gives deltas, reason and usage", async () => {
    llm.script(text("one two three", [7, 3]));
    const result = streamText({ model: chatModel(), prompt });
    const seen: string[] = [];
    for await (const part of result.textStream) seen.push(part);
    expect(seen).toEqual(["one ", "two ", "three"]);
    expect(await result.finishReason).toBe("stop");
    expect(await result.usage).toMatchObject({ totalTokens: 10 });
  });

  test("reasoning is told from text", async () => {
    const message = { role: "assistant", reasoning_content: "Let me think.", content: "Sunny." };
    llm.script(
      {
        json: {
          id: "c",
          object: "chat.completion",
          created: 1,
          model: "stub-1",
          choices: [{ index: 0, message, finish_reason: "stop" }],
        },
      },
      {
        writes: [
          chunk({ role: "assistant", reasoning_content: "Let me " }),
          chunk({ reasoning_content: "think." }),
          chunk({ content: "Sunny." }),
          chunk({}, "stop"),
          done,
        ],
      },
    );
    const whole = await generateText({ model: chatModel(), prompt });
    expect([whole.text, whole.reasoningText]).toEqual(["Sunny.", "Let me think."]);
    const stream = streamText({ model: chatModel(), prompt });
    expect([await stream.text, await stream.reasoningText]).toEqual(["Sunny.", "Let me think."]);
  });

  test("structured output follows a schema that reached the back end", async () => {
    llm.script(text('{"city":"北京","celsius":25}'));
    const schema = jsonSchema<{ city: string; celsius: number }>({
      type: "object",
      properties: { city: { type: "string" }, celsius: { type: "number" } },
      required: ["city", "celsius"],
      additionalProperties: false,
    });
    const { output } = await generateText({ model: chatModel(), prompt, output: Output.object({ schema }) });
    expect(output).toEqual({ city: "北京", celsius: 25 });
    expect(llm.requests[0]?.["response_format"]).toMatchObject({ type: "json_schema" });
  });
});

describe(`tools of the client and of the gateway ${verifies("CHAT-3", "CHAT-4", "CHAT-5", "CHAT-6")}`, () => {
  /** The answer and the number of its steps. */
  async function ask(how: "generateText" | "streamText", asked: string[]): Promise<readonly [string, number]> {
    const options = { model: chatModel(), prompt, tools: weatherTools(asked), stopWhen: isStepCount(5) };
    if (how === "generateText") {
      const result = await generateText(options);
      return [result.text, result.steps.length];
    }
    const result = streamText(options);
    await result.consumeStream();
    return [await result.text, (await result.steps).length];
  }

  const ways = ["generateText", "streamText"] as const;

  test.each(ways)("%s runs the client's tools while the gateway runs its own, in one turn", async (how) => {
    await tenant.addPlugin(readingTool(backEnd));
    llm.script(
      calls(
        { id: "up_1", name: "get_weather", arguments: { city: "北京" } },
        { id: "up_2", name: "lookup", arguments: { q: "x" } },
      ),
      text("Both used."),
    );
    const asked: string[] = [];
    expect(await ask(how, asked)).toEqual(["Both used.", 2]);
    expect(asked).toEqual(["北京"]);
    expect(backEnd.requests).toHaveLength(1);
    expect(sentMessages(1).slice(1)).toMatchObject([
      { role: "assistant", tool_calls: [{ id: "up_1" }, { id: "up_2" }] },
      { role: "tool", tool_call_id: "up_1", content: "北京: sunny" },
      { role: "tool", tool_call_id: "up_2", content: '{"ok":true}' },
    ]);
  });

  test.each(ways)("%s goes on over turns of both sides, and nothing is forgotten", async (how) => {
    await tenant.addPlugin(writingTool(backEnd));
    llm.script(
      calls({ id: "up_1", name: "create_order", arguments: { sku: "S1" } }),
      calls(
        { id: "up_2", name: "get_weather", arguments: { city: "北京" } },
        { id: "up_3", name: "get_weather", arguments: { city: "广州" } },
      ),
      calls({ id: "up_4", name: "create_order", arguments: { sku: "S2" } }),
      text("All done."),
    );
    const asked: string[] = [];
    expect(await ask(how, asked)).toEqual(["All done.", 2]);
    expect(asked).toEqual(["北京", "广州"]);
    expect(backEnd.requests).toHaveLength(2);
    expect(
      sentMessages(3).map((sent) => sent.tool_calls?.map((call: Json) => call.id) ?? sent.tool_call_id ?? sent.role),
    ).toEqual(["user", ["up_1"], "up_1", ["up_2", "up_3"], "up_2", "up_3", ["up_4"], "up_4"]);
  });

  test("a call without arguments is a call", async () => {
    llm.script(calls({ name: "list_all", arguments: "" }), text("done"));
    let runs = 0;
    const listAll = tool({ inputSchema: z.object({}), execute: () => String((runs += 1)) });
    const result = streamText({ model: chatModel(), prompt, tools: { list_all: listAll }, stopWhen: isStepCount(3) });
    await result.consumeStream();
    expect([await result.text, runs]).toEqual(["done", 1]);
  });

  test("only the gateway's tools ran: one step, one text", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("Found."));
    const result = streamText({ model: chatModel(), prompt });
    await result.consumeStream();
    expect([await result.text, await result.finishReason, (await result.steps).length]).toEqual(["Found.", "stop", 1]);
  });
});

describe(`errors and repetitions ${verifies("CHAT-1", "CHAT-7")}`, () => {
  test("an error has its status, code and advice", async () => {
    const stranger = createOpenAICompatible({ name: "toolyard", baseURL: `${gateway.url}/v1`, apiKey: "sk-wrong" });
    const error = await generateText({ model: stranger("stub-1"), prompt }).catch((thrown: unknown) => thrown);
    expect(APICallError.isInstance(error) && [error.statusCode, error.isRetryable]).toEqual([401, false]);
    expect(APICallError.isInstance(error) && error.data).toMatchObject({ error: { code: "invalid_api_key" } });
  });

  test("a passing fault of the back end is repeated", async () => {
    llm.script({ json: { error: { message: "overloaded" } }, status: 503 }, text("Here I am."));
    expect((await generateText({ model: chatModel(), prompt })).text).toBe("Here I am.");
    expect(llm.requests).toHaveLength(2);
  });

  test("an error in the middle of a stream is told as one", async () => {
    llm.script({ writes: [chunk({ role: "assistant", content: "half" })], cut: true });
    const errors: unknown[] = [];
    const result = streamText({ model: chatModel(), prompt, onError: ({ error }) => void errors.push(error) });
    let seen = "";
    for await (const part of result.textStream) seen += part;
    expect(seen).toBe("half");
    expect(errors).toMatchObject([{ code: "provider_stream_incomplete", isRetryable: false }]);
  });

  // This SDK repeats every 5xx and every broken connection without a word about it.
  const order = calls({ name: "create_order", arguments: { sku: "S1", qty: 1 } });
  const busy: Round = { json: { error: { message: "overloaded" } }, status: 503 };

  test("a write that was done before the back end failed is not done again by the repetition", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    llm.script(order, busy, order, text("Ordered once."));
    expect((await generateText({ model: chatModel(), prompt })).text).toBe("Ordered once.");
    expect(backEnd.requests).toHaveLength(1);
    expect(sentMessages(3).at(-1)).toMatchObject({ role: "tool", content: '{"ok":true}' });
  });

  test("a write that was done before the connection broke is not done again by the repetition", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    llm.respond((body, index) => {
      if ((body["messages"] as Json[]).at(-1).role !== "tool") return order;
      if (index === 1) proxy.cut();
      return index === 1 ? { json: {}, delayMs: 5_000 } : text("Ordered once.");
    });
    expect((await generateText({ model: chatModel(), prompt })).text).toBe("Ordered once.");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("the same question once more, after an answer, is another question", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    llm.script(order, busy, order, text("Ordered."), order, text("Ordered again."));
    await generateText({ model: chatModel(), prompt });
    expect((await generateText({ model: chatModel(), prompt })).text).toBe("Ordered again.");
    expect(backEnd.requests).toHaveLength(2);
  });
});

describe(`a client that leaves ${verifies("CHAT-6")}`, () => {
  test("closes the connection to the back end; nothing is repeated, no tool starts", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    const deltas = Array.from({ length: 200 }, (_none, at) => chunk({ content: `${at} ` }));
    llm.script(
      { writes: [...deltas, ...calls({ name: "create_order", arguments: { sku: "S1" } }).writes], gapMs: 50 },
      text("never"),
    );
    const leaving = new AbortController();
    const result = streamText({ model: chatModel(), prompt, abortSignal: leaving.signal });
    for await (const part of result.textStream) if (part !== "") leaving.abort();
    await expect.poll(() => llm.aborted, { timeout: 2_000 }).toEqual([0]);
    await expect.poll(chatStates, { timeout: 2_000 }).toEqual(["cancelled"]);
    expect(llm.requests).toHaveLength(1);
    expect(backEnd.requests).toHaveLength(0);
  });

  test("before the answer has begun", async () => {
    llm.script({ json: {}, delayMs: 60_000 });
    const leaving = new AbortController();
    const asked = generateText({ model: chatModel(), prompt, abortSignal: leaving.signal });
    const ended = asked.then(
      () => "answered",
      () => "aborted",
    );
    await expect.poll(() => llm.requests.length).toBe(1);
    leaving.abort();
    expect(await ended).toBe("aborted");
    await expect.poll(() => llm.aborted, { timeout: 2_000 }).toEqual([0]);
    await expect.poll(chatStates, { timeout: 2_000 }).toEqual(["cancelled"]);
  });
});
