/** The unmodified `openai` SDK and its helpers against the gateway, over real sockets. */
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import type { RunnableToolFunctionWithParse } from "openai/lib/RunnableFunction";
import type { ChatCompletionMessageParam } from "openai/resources/chat/completions";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let openai: OpenAI;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  llm.aborted.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  openai = sdk(tenant.key);
});

function sdk(apiKey: string, options: { readonly maxRetries?: number } = {}): OpenAI {
  return new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0, ...options });
}

const model = "stub-1";
const messages: ChatCompletionMessageParam[] = [{ role: "user", content: "What is the weather?" }];

const head = { id: "chatcmpl-x1", object: "chat.completion", created: 1_795_000_000, model };

const cityParameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

type ClientTool = RunnableToolFunctionWithParse<{ city: string }>;

/** A tool that the client runs. */
function clientWeather(run: (city: string) => unknown): ClientTool {
  return {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city.",
      parameters: cityParameters,
      parse: (input) => JSON.parse(input) as { city: string },
      function: ({ city }) => run(city),
    },
  };
}

/** The answer after the SDK's own tool loop. */
function runTools(stream: boolean, tool: ClientTool): Promise<string | null> {
  const body = { model, messages, tools: [tool] };
  if (stream) return openai.chat.completions.runTools({ ...body, stream: true }).finalContent();
  return openai.chat.completions.runTools(body).finalContent();
}

const weather = {
  type: "function",
  function: { name: "get_weather", description: "The weather of a city.", parameters: cityParameters },
} as const;

async function chatStates(): Promise<readonly string[]> {
  return (await tenant.client.get("/v1/calls?kind=chat&order=asc")).data.map((call: Json) => call.state as string);
}

async function toolStates(): Promise<readonly string[]> {
  return (await tenant.client.get("/v1/calls?kind=tool&order=asc")).data.map((call: Json) => call.state as string);
}

function sentMessages(request: number): Json[] {
  return llm.requests[request]?.["messages"] as Json[];
}

describe(`plain answers ${verifies("CHAT-1", "CHAT-6")}`, () => {
  test("create gives the completion, and the request id of the answer", async () => {
    llm.script(text("It is sunny.", [12, 4]));
    const {
      data,
      response,
      request_id: requestId,
    } = await openai.chat.completions.create({ model, messages }).withResponse();
    expect(data.choices[0]).toMatchObject({
      message: { role: "assistant", content: "It is sunny." },
      finish_reason: "stop",
    });
    expect(data.usage).toMatchObject({ prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 });
    expect(requestId).toBe(response.headers.get("x-request-id"));
    expect(requestId).toMatch(/^req_/);
  });

  test("create with stream gives OpenAI's chunks, usage in the last one where it was asked for", async () => {
    llm.script(text("It is 晴 😀.", [12, 4]));
    const chunks = [];
    const stream = await openai.chat.completions.create({
      model,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const part of stream) chunks.push(part);
    expect(chunks.map((part) => part.choices[0]?.delta.content ?? "").join("")).toBe("It is 晴 😀.");
    expect(chunks.filter((part) => part.choices[0]?.delta.role !== undefined)).toHaveLength(1);
    expect(chunks.flatMap((part) => part.choices[0]?.finish_reason ?? [])).toEqual(["stop"]);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 16 } });
    expect(chunks.slice(0, -1).every((part) => !part.usage)).toBe(true);
  });

  test("what the back end says of its answer as a whole is in a stream's last chunks, and in the final completion", async () => {
    const said = { service_tier: "flex", citations: ["https://example.com"] };
    llm.script({
      writes: text("one two").writes.map((write) =>
        String(write).replace('"object"', `${JSON.stringify(said).slice(1, -1)},"object"`),
      ),
    });
    const body = { model, messages, stream_options: { include_usage: true } };
    const chunks: unknown[] = [];
    for await (const part of await openai.chat.completions.create({ ...body, stream: true })) chunks.push(part);
    expect(chunks.slice(-2)).toMatchObject([
      { ...said, choices: [{ finish_reason: "stop" }] },
      { ...said, choices: [], usage: { total_tokens: 15 } },
    ]);
    expect(await openai.chat.completions.stream(body).finalChatCompletion()).toMatchObject(said);
  });

  test("an answer without a word has an empty text, as the back end wrote it", async () => {
    const message = { role: "assistant", content: "" };
    const json = { ...head, choices: [{ index: 0, message, finish_reason: "stop" }] };
    llm.script({ json });
    const { choices } = await openai.chat.completions.create({ model, messages });
    expect(choices[0]?.message.content).toBe("");
  });

  test("create with stream and without usage gives none", async () => {
    llm.script(text("ok"));
    const stream = await openai.chat.completions.create({ model, messages, stream: true });
    for await (const part of stream) expect(part).not.toHaveProperty("usage");
    expect(llm.requests[0]?.["stream_options"]).toEqual({ include_usage: true });
  });

  test("the stream helper gives deltas, the final completion and the usage", async () => {
    llm.script(text("one two three", [7, 3]));
    const seen: string[] = [];
    const runner = openai.chat.completions
      .stream({ model, messages, stream_options: { include_usage: true } })
      .on("content.delta", ({ delta }) => seen.push(delta));
    const final = await runner.finalChatCompletion();
    expect(seen.join("")).toBe("one two three");
    expect(final.choices[0]).toMatchObject({
      message: { role: "assistant", content: "one two three" },
      finish_reason: "stop",
    });
    expect(final.model).toBe(model);
    expect(await runner.totalUsage()).toMatchObject({ total_tokens: 10 });
    expect(await runner.finalContent()).toBe("one two three");
  });

  test("several choices stay apart", async () => {
    const of = (index: number, delta: unknown, finish: string | null = null): string =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices: [{ index, delta, finish_reason: finish }] })}\n\n`;
    llm.script({
      writes: [
        of(0, { role: "assistant", content: "a" }),
        of(1, { role: "assistant", content: "x" }),
        of(1, { content: "y" }),
        of(0, { content: "b" }),
        of(0, {}, "stop"),
        of(1, {}, "length"),
        done,
      ],
    });
    const final = await openai.chat.completions.stream({ model, messages, n: 2 }).finalChatCompletion();
    expect(final.choices.map((choice) => [choice.message.content, choice.finish_reason])).toEqual([
      ["ab", "stop"],
      ["xy", "length"],
    ]);
  });
});

describe(`several choices with the client's tools ${verifies("CHAT-1", "CHAT-3", "CHAT-6")}`, () => {
  const ask = (city: string, index: number) => ({
    index,
    id: "call_1",
    type: "function",
    function: { name: "get_weather", arguments: JSON.stringify({ city }) },
  });
  const cities = [["北京", "广州"], ["上海"]];
  const body = { model, messages, n: 2, tools: [weather] };
  const underKey = { headers: { "Idempotency-Key": "choices-1" } };

  function expectCalls(completion: OpenAI.ChatCompletion): void {
    const asked = completion.choices.map(({ message, finish_reason: reason }) => [
      reason,
      ...(message.tool_calls ?? []).map((call) => ("function" in call ? call.function.arguments : "")),
    ]);
    expect(asked).toEqual(cities.map((each) => ["tool_calls", ...each.map((city) => JSON.stringify({ city }))]));
    const ids = completion.choices.flatMap(({ message }) => (message.tool_calls ?? []).map(({ id }) => id));
    expect(new Set(ids).size).toBe(3);
  }

  test("each has its calls in the completion, and in that given again under its key", async () => {
    const choices = cities.map((each, index) => ({
      index,
      message: { role: "assistant", content: null, tool_calls: each.map(ask) },
      finish_reason: "tool_calls",
    }));
    llm.script({ json: { id: "c", object: "chat.completion", created: 1, model, choices } });
    const completion = await openai.chat.completions.create(body, underKey);
    expectCalls(completion);
    expect(await openai.chat.completions.create(body, underKey)).toEqual(completion);
    expect(llm.requests).toHaveLength(1);
  });

  test("each has its calls in the stream, counted for itself, and in that given again under its key", async () => {
    const of = (index: number, delta: unknown, finish: string | null = null): string =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices: [{ index, delta, finish_reason: finish }] })}\n\n`;
    const [first = [], second = []] = cities;
    llm.script({
      writes: [
        of(1, { role: "assistant", tool_calls: [ask(second[0] ?? "", 0)] }),
        of(0, { role: "assistant", tool_calls: [ask(first[0] ?? "", 0)] }),
        of(0, { tool_calls: [{ ...ask(first[1] ?? "", 1), id: "call_2" }] }),
        of(0, {}, "tool_calls"),
        of(1, {}, "tool_calls"),
        done,
      ],
    });
    for (const _once of [1, 2]) {
      const stream = openai.chat.completions.stream(body, underKey);
      expectCalls(await stream.finalChatCompletion());
    }
    expect(llm.requests).toHaveLength(1);
  });
});

describe(`structured answers ${verifies("CHAT-1", "CHAT-6")}`, () => {
  const report = z.object({ city: z.string(), celsius: z.number() });

  test("parse reads the answer by a zod schema, which the back end got as it is", async () => {
    llm.script(text('{"city":"北京","celsius":25}'));
    const format = zodResponseFormat(report, "report");
    const answer = await openai.chat.completions.parse({ model, messages, response_format: format });
    expect(answer.choices[0]?.message.parsed).toEqual({ city: "北京", celsius: 25 });
    expect(llm.requests[0]?.["response_format"]).toEqual(JSON.parse(JSON.stringify(format)));
  });

  test("the stream helper parses, too", async () => {
    llm.script(text('{"city":"北京", "celsius": 25}'));
    const runner = openai.chat.completions.stream({
      model,
      messages,
      response_format: zodResponseFormat(report, "report"),
    });
    expect((await runner.finalChatCompletion()).choices[0]?.message.parsed).toEqual({ city: "北京", celsius: 25 });
  });

  test("parse reads the arguments of a strict client tool", async () => {
    llm.script(calls({ name: "get_weather", arguments: { city: "广州" } }));
    const tool = zodFunction({ name: "get_weather", parameters: z.object({ city: z.string() }) });
    const answer = await openai.chat.completions.parse({ model, messages, tools: [tool] });
    expect(answer.choices[0]?.message.tool_calls).toMatchObject([{ function: { parsed_arguments: { city: "广州" } } }]);
    expect(llm.requests[0]?.["tools"]).toMatchObject([{ function: { strict: true } }]);
  });

  test("a refusal is a refusal", async () => {
    llm.script({
      writes: [
        chunk({ role: "assistant", content: null, refusal: "" }),
        chunk({ refusal: "I can't " }),
        chunk({ refusal: "do that." }),
        chunk({}, "stop"),
        done,
      ],
    });
    const runner = openai.chat.completions.stream({
      model,
      messages,
      response_format: zodResponseFormat(report, "report"),
    });
    expect((await runner.finalChatCompletion()).choices[0]?.message.refusal).toBe("I can't do that.");
  });
});

describe(`tools of the client and of the gateway ${verifies("CHAT-3", "CHAT-4", "CHAT-5", "CHAT-6")}`, () => {
  test("the stream helper collects calls in pieces, several in one answer, with indexes from 0", async () => {
    llm.script(
      calls({ name: "get_weather", arguments: { city: "北京" } }, { name: "get_weather", arguments: { city: "广州" } }),
    );
    const finished: [number, string][] = [];
    const runner = openai.chat.completions
      .stream({ model, messages, tools: [weather] })
      .on("tool_calls.function.arguments.done", ({ index, arguments: text_ }) => finished.push([index, text_]));
    const final = await runner.finalChatCompletion();
    expect(finished).toEqual([
      [0, '{"city":"北京"}'],
      [1, '{"city":"广州"}'],
    ]);
    expect(final.choices[0]?.finish_reason).toBe("tool_calls");
    expect(new Set(final.choices[0]?.message.tool_calls?.map((call) => call.id)).size).toBe(2);
  });

  test("the stream helper has of calls what the back end wrote beside them, as a whole answer has, and again", async () => {
    const extra_content = { google: { thought_signature: "sig==" } };
    const [first = "", ...rest] = calls({ id: "up", name: "get_weather", arguments: "{}" }).writes.map(String);
    const signed = rest.map((write) =>
      write.replace('"id":"up"', `"extra_content":${JSON.stringify(extra_content)},$&`),
    );
    llm.script({ writes: [first, ...signed] });
    const body = { model, messages, tools: [weather] };
    const headers = { "idempotency-key": "signed" };
    for (const options of [{ headers }, { headers }, {}]) {
      const { choices } = await openai.chat.completions.stream(body, options).finalChatCompletion();
      expect(choices[0]?.message).toMatchObject({ tool_calls: [{ function: { name: "get_weather" }, extra_content }] });
    }
    expect(llm.requests).toHaveLength(2);
  });

  test("a stream begins without text where the back end's does and the client has tools", async () => {
    llm.script(calls({ name: "get_weather", arguments: "{}" }));
    const begins = async (tools: Pick<OpenAI.ChatCompletionCreateParams, "tools">): Promise<unknown> => {
      const stream = await openai.chat.completions.create({ model, messages, stream: true, ...tools });
      const texts: unknown[] = [];
      for await (const part of stream) texts.push(part.choices[0]?.delta.content);
      return texts[0];
    };
    expect(await begins({ tools: [weather] })).toBeNull();
    await tenant.addPlugin(readingTool(backEnd));
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("Found."));
    // Nobody who asks for text alone looks for anything else.
    expect(await begins({})).toBe("");
  });

  test("a stream in which only the gateway's tools ran is one clean message to the helper", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    for (const headers of [{}, { "x-toolyard-events": "1" }]) {
      llm.script(
        {
          writes: [
            chunk({ role: "assistant", content: "Let me see." }),
            ...calls({ name: "lookup", arguments: { q: "x" } }).writes.slice(1),
          ],
        },
        text("Found."),
      );
      const final = await openai.chat.completions.stream({ model, messages }, { headers }).finalChatCompletion();
      expect(final.choices).toHaveLength(1);
      expect(final.choices[0]).toMatchObject({ message: { content: "Let me see.\n\nFound." }, finish_reason: "stop" });
      expect(final.choices[0]?.message.tool_calls).toBeUndefined();
    }
  });

  test.each([false, true])(
    "runTools runs the client's tools while the gateway runs its own, in one turn (stream: %s)",
    async (stream) => {
      await tenant.addPlugin(readingTool(backEnd));
      llm.script(
        calls(
          { id: "up_1", name: "lookup", arguments: { q: "x" } },
          { id: "up_2", name: "get_weather", arguments: { city: "北京" } },
        ),
        text("Both used."),
      );
      const asked: string[] = [];
      const answer = await runTools(
        stream,
        clientWeather((city) => {
          asked.push(city);
          return `${city}: sunny`;
        }),
      );
      expect(answer).toBe("Both used.");
      expect(asked).toEqual(["北京"]);
      expect(backEnd.requests).toHaveLength(1);
      expect(sentMessages(1).slice(1)).toMatchObject([
        { role: "assistant", tool_calls: [{ id: "up_1" }, { id: "up_2" }] },
        { role: "tool", tool_call_id: "up_1", content: '{"ok":true}' },
        { role: "tool", tool_call_id: "up_2", content: "北京: sunny" },
      ]);
    },
  );

  test.each([false, true])(
    "what the gateway did before the client's turn is still known after it (stream: %s)",
    async (stream) => {
      await tenant.addPlugin(writingTool(backEnd));
      llm.script(
        calls({ id: "up_1", name: "create_order", arguments: { sku: "S1" } }),
        calls({ id: "up_2", name: "get_weather", arguments: { city: "北京" } }),
        calls({ id: "up_3", name: "get_weather", arguments: { city: "广州" } }),
        text("Ordered, sunny."),
      );
      const answer = await runTools(
        stream,
        clientWeather(() => "sunny"),
      );
      expect(answer).toBe("Ordered, sunny.");
      expect(backEnd.requests).toHaveLength(1);
      // A model that does not see its order would place it again.
      expect(
        sentMessages(3).map((message) => message.tool_calls?.[0].id ?? message.tool_call_id ?? message.role),
      ).toEqual(["user", "up_1", "up_1", "up_2", "up_2", "up_3", "up_3"]);
      expect(sentMessages(3)[2]).toMatchObject({ role: "tool", content: '{"ok":true}' });
    },
  );

  test.each([false, true])(
    "runTools goes on with models that want ids of their own kind, whoever made those of the conversation (stream: %s)",
    async (stream) => {
      await tenant.addProvider(llm.url, { models: { theirs: "mistral-large-latest", ours: "gpt-5" } });
      const idsIn = (body: Json): string[] =>
        body.messages.flatMap((each: Json) => each.tool_call_id ?? each.tool_calls?.map(({ id }: Json) => id) ?? []);
      llm.respond((body) => {
        const refused = idsIn(body).find((id) => body["model"] !== "gpt-5" && !/^[a-zA-Z0-9]{9}$/.test(id));
        const message = `Tool call id was ${refused} but must be a-z, A-Z, 0-9, with a length of 9.`;
        if (refused !== undefined) return { status: 400, json: { object: "error", message, code: "3280" } };
        const { length } = body["messages"] as Json[];
        return length < 5
          ? calls({ id: "D681PevKs", name: "get_weather", arguments: { city: "北京" } })
          : text("Sunny.");
      });
      const before = { id: "call_PTLP8xhu3uwZk4l3nlnrrJha", name: "get_weather", arguments: '{"city":"广州"}' };
      const { id, ...called } = before;
      const history: ChatCompletionMessageParam[] = [
        ...messages,
        { role: "assistant", tool_calls: [{ id, type: "function", function: called }] },
        { role: "tool", tool_call_id: id, content: "rain" },
      ];
      for (const name of ["theirs", "ours"]) {
        const body = { model: name, messages: history, tools: [clientWeather(() => "sunny")] };
        const runner = stream
          ? openai.chat.completions.runTools({ ...body, stream: true })
          : openai.chat.completions.runTools(body);
        expect(await runner.finalContent()).toBe("Sunny.");
        const ids = idsIn(llm.requests.at(-1));
        expect([ids[0] === ids[1], ids[2] === ids[3], new Set(ids).size]).toEqual([true, true, 2]);
        expect(ids[0] === id).toBe(name === "ours");
      }
    },
  );

  test("a result that came late is still known after the client's turn", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd, "wire_money"), sensitive: true });
    const session = { session_id: "late-1" };
    llm.script(calls({ name: "wire_money", arguments: { sku: "S1" } }));
    const waiting: Json = await openai.chat.completions.create({ model, messages, ...session });
    await tenant.client.post(`/v1/calls/${waiting.tool_execution.pending[0].call_id}/approve`);
    await expect.poll(toolStates, { timeout: 10_000 }).toEqual(["completed"]);
    llm.script(calls({ name: "get_weather", arguments: { city: "北京" } }), text("Paid."));
    const continued = await openai.chat.completions.create({ model, messages, tools: [weather], ...session });
    const { message } = continued.choices[0] ?? {};
    const result = { role: "tool", tool_call_id: message?.tool_calls?.[0]?.id ?? "", content: "sunny" } as const;
    if (message === undefined) throw new Error("no choice");
    await openai.chat.completions.create({
      model,
      messages: [...messages, message, result],
      tools: [weather],
      ...session,
    });
    expect(sentMessages(1).map((sent) => sent.role)).toEqual(["assistant", "tool", "user"]);
    // Where the model has seen it.
    expect(sentMessages(2).map((sent) => sent.role)).toEqual(["assistant", "tool", "user", "assistant", "tool"]);
    expect(sentMessages(2)[1].content).toBe('{"ok":true}');
  });

  test("what came of an inline configuration goes on only with that configuration", async () => {
    const definition = { schema_version: "v1", description: "Looks up.", ...readingTool(backEnd) };
    const config = { runtime_config: { plugins: [definition], credentials: {} } };
    llm.script(
      calls({ name: "lookup", arguments: { q: "x" } }),
      calls({ name: "get_weather", arguments: {} }),
      text("ok"),
    );
    const first = await openai.chat.completions.create({ model, messages, tools: [weather], ...config });
    const { message } = first.choices[0] ?? {};
    if (message === undefined) throw new Error("no choice");
    const result = { role: "tool", tool_call_id: message.tool_calls?.[0]?.id ?? "", content: "sunny" } as const;
    const body = { model, messages: [...messages, message, result], tools: [weather] };
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({ code: "runtime_config_required" });
    await openai.chat.completions.create({ ...body, ...config });
    expect(sentMessages(2).map((sent) => sent.role)).toEqual(["user", "assistant", "tool", "assistant", "tool"]);
  });

  test("a failed tool of the client is told to the model like any result", async () => {
    llm.script(calls({ name: "get_weather", arguments: { city: "北京" } }), text("No weather today."));
    const answer = await runTools(
      false,
      clientWeather(() => ({ error: "offline" })),
    );
    expect(answer).toBe("No weather today.");
    expect(sentMessages(1).at(-1)).toMatchObject({ role: "tool", content: '{"error":"offline"}' });
  });
});

describe(`models ${verifies("CHAT-16")}`, () => {
  test("models.list pages through what the tenant may use, retrieve gives one", async () => {
    await tenant.addProvider(llm.url, { models: { "org/model:1": "stub-1" } });
    const ids = [];
    for await (const one of openai.models.list()) ids.push(one.id);
    expect(ids).toEqual([model, "org/model:1"]);
    expect(await openai.models.retrieve("org/model:1")).toMatchObject({ id: "org/model:1", object: "model" });
    await expect(openai.models.retrieve("none")).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });
});

describe(`errors ${verifies("CHAT-1", "CHAT-7", "CHAT-12", "CHAT-20")}`, () => {
  const thrownBy = async (work: Promise<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> => {
    const thrown: unknown = await work.then(
      () => undefined,
      (error: unknown) => error,
    );
    if (!(thrown instanceof OpenAI.APIError)) throw new Error(`no APIError but ${String(thrown)}`);
    return thrown;
  };

  test.each([false, true])("have the SDK's own classes, codes and params (stream: %s)", async (stream) => {
    const create = (client: OpenAI, change: object = {}): Promise<unknown> =>
      client.chat.completions.create({ model, messages, stream, ...change });
    const unknownKey = await thrownBy(create(sdk("sk-wrong")));
    expect(unknownKey).toBeInstanceOf(OpenAI.AuthenticationError);
    expect(unknownKey).toMatchObject({ status: 401, code: "invalid_api_key", type: "authentication_error" });
    const unknownModel = await thrownBy(create(openai, { model: "gpt-none" }));
    expect(unknownModel).toBeInstanceOf(OpenAI.NotFoundError);
    expect(unknownModel).toMatchObject({ code: "model_not_found", param: "model" });
    const empty = await thrownBy(create(openai, { messages: [] }));
    expect(empty).toBeInstanceOf(OpenAI.BadRequestError);
    expect(empty).toMatchObject({ code: "invalid_request", param: "messages", type: "invalid_request_error" });
    expect(empty.requestID).toMatch(/^req_/);
    const noScope = await tenant.newKey({ scopes: ["tools"] });
    expect(await thrownBy(create(sdk(noScope.key)))).toBeInstanceOf(OpenAI.PermissionDeniedError);
    expect(llm.requests).toHaveLength(0);
  });

  test("a spent limit is a RateLimitError that says when to come back", async () => {
    const limited = await gateway.newTenant({ requests_per_minute: 2 });
    await limited.addProvider(llm.url);
    llm.script(text("ok"));
    const client = sdk(limited.key);
    let error: InstanceType<typeof OpenAI.APIError> | undefined;
    for (let at = 0; at < 4 && error === undefined; at += 1) {
      error = await client.chat.completions.create({ model, messages }).then(
        () => undefined,
        (thrown: InstanceType<typeof OpenAI.APIError>) => thrown,
      );
    }
    expect(error).toBeInstanceOf(OpenAI.RateLimitError);
    expect(error?.code).toBe("rate_limited");
    expect(Number(error?.headers?.get("retry-after"))).toBeGreaterThan(0);
    expect(error?.headers?.get("x-ratelimit-limit-requests")).toBe("2");
    expect(error?.headers?.get("x-ratelimit-remaining-requests")).toBe("0");
  });

  test("a failing tool with on_tool_error is a server error that names it, and is not sent again", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    backEnd.answer = () => ({ status: 500, body: "down" });
    llm.script(calls({ name: "create_order", arguments: { sku: "S1" } }), text("never"));
    const body = { model, messages, on_tool_error: "fail" } as const;
    const error = await thrownBy(sdk(tenant.key, { maxRetries: 2 }).chat.completions.create(body));
    expect(error).toBeInstanceOf(OpenAI.InternalServerError);
    expect(error).toMatchObject({
      status: 502,
      code: "tool_failed",
      type: "tool_execution_error",
      error: { tool_name: "create_order" },
    });
    expect(error.headers?.get("x-should-retry")).toBe("false");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("an error in the middle of a stream is thrown out of the iteration, with its code", async () => {
    llm.script({ writes: [chunk({ role: "assistant", content: "half" })], cut: true });
    let seen = "";
    const error = await thrownBy(
      (async () => {
        const stream = await openai.chat.completions.create({ model, messages, stream: true });
        for await (const part of stream) seen += part.choices[0]?.delta.content ?? "";
      })(),
    );
    expect(seen).toBe("half");
    expect(error).toMatchObject({ code: "provider_stream_incomplete", type: "api_error" });
    await expect(openai.chat.completions.stream({ model, messages }).finalChatCompletion()).rejects.toMatchObject({
      code: "provider_stream_incomplete",
    });
  });

  test("the gateway's deadline comes before the client's own, so that the client learns why", async () => {
    llm.script({ json: {}, delayMs: 10_000 });
    const error = await thrownBy(
      openai.chat.completions.create({ model, messages }, { timeout: 2_500, maxRetries: 2 }),
    );
    expect(error.code).toBe("wall_clock_exceeded");
    expect(llm.requests).toHaveLength(1);
  });
});

describe(`what clients act on by OpenAI's code ${verifies("CHAT-12", "CHAT-20")}`, () => {
  test.each([
    ["context_length_exceeded", "This model's maximum context length is 8192 tokens."],
    ["content_filter", "The prompt was filtered."],
  ])("%s is the code of an answer, and in a stream that has begun", async (code, said) => {
    const error = { message: said, type: "invalid_request_error", param: "messages", code };
    const told = { code, type: "invalid_request_error", param: "messages", message: expect.stringContaining(said) };
    llm.script({ json: { error }, status: 400 });
    for (const stream of [false, true]) {
      const asked = openai.chat.completions.create({ model, messages, stream });
      await expect(asked).rejects.toMatchObject({ ...told, status: 400 });
    }
    llm.script({ writes: [chunk({ role: "assistant", content: "It" }), `data: ${JSON.stringify({ error })}\n\n`] });
    const begun = await openai.chat.completions.create({ model, messages, stream: true });
    await expect(begun.toReadableStream().pipeTo(new WritableStream())).rejects.toMatchObject({ error: told });
  });
});

describe(`a client that leaves ${verifies("CHAT-6")}`, () => {
  const withinMs = { timeout: 2_000, interval: 20 };

  const body = { model, messages };
  const ways: Readonly<Record<string, (client: OpenAI) => Promise<unknown>>> = {
    "aborts the stream": async (client) => {
      const stream = await client.chat.completions.create({ ...body, stream: true });
      for await (const part of stream) if (part.choices[0]?.delta.content) stream.controller.abort();
    },
    "stops reading": async (client) => {
      for await (const part of await client.chat.completions.create({ ...body, stream: true })) {
        if (part.choices[0]?.delta.content) break;
      }
    },
    "aborts the helper": async (client) => {
      const runner = client.chat.completions.stream(body);
      runner.on("content.delta", () => runner.abort());
      await runner.done().catch(() => undefined);
    },
  };

  test.each(Object.entries(ways))(
    "and %s: the back end's connection closes, nothing is sent again, no tool starts",
    async (_way, leave) => {
      await tenant.addPlugin(writingTool(backEnd));
      const deltas = Array.from({ length: 200 }, (_none, at) => chunk({ content: `${at} ` }));
      const order = calls({ name: "create_order", arguments: { sku: "S1" } });
      llm.script({ writes: [...deltas, ...order.writes], gapMs: 50 }, text("never"));
      await leave(sdk(tenant.key, { maxRetries: 2 }));
      await expect.poll(() => llm.aborted, withinMs).toEqual([0]);
      await expect.poll(chatStates, withinMs).toEqual(["cancelled"]);
      expect(llm.requests).toHaveLength(1);
      expect(backEnd.requests).toHaveLength(0);
    },
  );

  test.each([false, true])("and does so before the answer has begun (stream: %s)", async (stream) => {
    llm.script({ json: {}, delayMs: 60_000 });
    const leaving = new AbortController();
    const client = sdk(tenant.key, { maxRetries: 2 });
    const asked = client.chat.completions.create({ model, messages, stream }, { signal: leaving.signal });
    await expect.poll(() => llm.requests.length).toBe(1);
    leaving.abort();
    await expect(asked).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
    await expect.poll(() => llm.aborted, withinMs).toEqual([0]);
    await expect.poll(chatStates, withinMs).toEqual(["cancelled"]);
    expect(llm.requests).toHaveLength(1);
  });

  test("while a tool runs: its request is cut, and its result starts no further round", async () => {
    await tenant.addPlugin(readingTool(backEnd));
    let cut = false;
    backEnd.answer = (_request, response) => {
      response.on("close", () => (cut = !response.writableFinished));
      return undefined;
    };
    llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("never"));
    const stream = await sdk(tenant.key).chat.completions.create({ model, messages, stream: true });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    stream.controller.abort();
    await expect.poll(() => cut, withinMs).toBe(true);
    await expect.poll(chatStates, withinMs).toEqual(["cancelled"]);
    expect(await toolStates()).toEqual(["cancelled"]);
    expect(llm.requests).toHaveLength(1);
  });

  test("while a write runs: whether it took effect is not known, and the record says so", async () => {
    await tenant.addPlugin(writingTool(backEnd));
    backEnd.answer = () => ({ body: "{}", delayMs: 60_000 });
    llm.script(
      calls({ name: "create_order", arguments: { sku: "S1" } }, { name: "create_order", arguments: { sku: "S2" } }),
      text("never"),
    );
    const stream = await sdk(tenant.key).chat.completions.create({ model, messages, stream: true });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    stream.controller.abort();
    await expect.poll(chatStates, withinMs).toEqual(["cancelled"]);
    // The second write waited in line for the first one and is not started any more.
    expect(await toolStates()).toEqual(["unknown", "cancelled"]);
    expect(backEnd.requests).toHaveLength(1);
    expect(llm.requests).toHaveLength(1);
  });
});
