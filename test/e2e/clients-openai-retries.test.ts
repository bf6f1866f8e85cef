/** What the `openai` SDK repeats by itself, and what a client repeats with a key: nothing is done twice. */
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import type { ChatCompletionMessageParam } from "openai/resources/chat/completions";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { sseEvents } from "../support/sse.ts";
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
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"order":1}' });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { max_attempts: 1 });
  await tenant.addPlugin(writingTool(backEnd));
});

afterEach(() => proxy.close());

const model = "stub-1";
const messages: ChatCompletionMessageParam[] = [{ role: "user", content: "Order one S1." }];
const order = calls({ name: "create_order", arguments: { sku: "S1", qty: 1 } });
const busy: Round = { json: { error: { message: "overloaded", type: "server_error" } }, status: 503 };

/** The SDK as people use it, over a network that may break. */
function sdk(maxRetries = 2): OpenAI {
  return new OpenAI({ baseURL: `${proxy.url}/v1`, apiKey: tenant.key, maxRetries });
}

/** What a back end was told last. */
function lastMessage(body: Json = llm.requests.at(-1)): Json {
  return body.messages.at(-1);
}

async function chats(): Promise<Json[]> {
  return (await tenant.client.get("/v1/calls?kind=chat&order=asc")).data;
}

async function settled(): Promise<void> {
  await expect.poll(async () => (await chats()).filter((call) => call.state === "running")).toEqual([]);
}

describe(`faults of a back end before its first byte ${verifies("CHAT-1")}`, () => {
  test.each([false, true])("are repeated by the SDK, whose retry gets the answer (stream: %s)", async (stream) => {
    llm.script(busy, text("Here I am."));
    const answer = stream
      ? await sdk().chat.completions.stream({ model, messages }).finalContent()
      : (await sdk().chat.completions.create({ model, messages })).choices[0]?.message.content;
    expect(answer).toBe("Here I am.");
    expect(llm.requests).toHaveLength(2);
    await settled();
    const [first, second] = await chats();
    expect([first.state, first.error.code, second.state]).toEqual(["failed", "provider_unavailable", "completed"]);
    expect(second.root_id).toBe(first.id);
  });

  test("are repeated as often as the SDK is told to, while nothing has been written", async () => {
    llm.script(busy, busy, busy, text("Here I am."));
    const answer = await sdk(3).chat.completions.create({ model, messages });
    expect(answer.choices[0]?.message.content).toBe("Here I am.");
    llm.script(busy);
    const given = sdk().chat.completions.create({ model, messages: [{ role: "user", content: "And now?" }] });
    await expect(given).rejects.toMatchObject({ status: 503, code: "provider_unavailable" });
    await expect(given).rejects.toMatchObject({
      error: expect.not.objectContaining({ write_started: true }) as unknown,
    });
    expect(llm.requests).toHaveLength(4 + 3);
  });

  test("are not repeated once a write has begun", async () => {
    llm.script(order, busy);
    const asked = sdk().chat.completions.create({ model, messages });
    // The first answer says so: it is not that of a repetition.
    await expect(asked).rejects.toMatchObject({
      status: 503,
      code: "provider_unavailable",
      error: expect.not.objectContaining({ replayed: true }) as unknown,
    });
    await expect(asked).rejects.toMatchObject({ error: { write_started: true } });
    expect(llm.requests).toHaveLength(2);
    expect(backEnd.requests).toHaveLength(1);
    // A client that repeats all the same gets the same error and does nothing.
    const stubborn = sdk(0).chat.completions.create(
      { model, messages },
      { headers: { "x-stainless-retry-count": "1" } },
    );
    await expect(stubborn).rejects.toMatchObject({ status: 503, error: { write_started: true, replayed: true } });
    expect(llm.requests).toHaveLength(2);
    expect(backEnd.requests).toHaveLength(1);
  });
});

describe(`connections that break under the SDK ${verifies("CHAT-1", "CHAT-4")}`, () => {
  test("while a write runs: it is not sent again, and the model is told that its fate is unknown", async () => {
    backEnd.answer = () => {
      proxy.cut();
      return { body: '{"order":1}', delayMs: 500 };
    };
    llm.script(order, order, text("I don't know."));
    const answer = await sdk().chat.completions.create({ model, messages });
    expect(answer.choices[0]?.message.content).toBe("I don't know.");
    expect(backEnd.requests).toHaveLength(1);
    expect(JSON.parse(lastMessage().content).error.code).toBe("outcome_unknown");
    await settled();
    expect((await chats()).map((call) => call.state)).toEqual(["cancelled", "completed"]);
  });

  test("after a write, while the model goes on: its result is found again", async () => {
    llm.respond((body, index) => {
      const last = (body["messages"] as Json[]).at(-1);
      if (last.role !== "tool") return order;
      if (index === 1) proxy.cut();
      return index === 1 ? { json: {}, delayMs: 5_000 } : text("Ordered once.");
    });
    const answer = await sdk().chat.completions.create({ model, messages });
    expect(answer.choices[0]?.message.content).toBe("Ordered once.");
    expect(backEnd.requests).toHaveLength(1);
    expect(lastMessage().content).toBe('{"order":1}');
  });

  test("after a write, with its arguments in another order the next time: it is the same write", async () => {
    llm.respond((body, index) => {
      if (lastMessage(body).role !== "tool") {
        return calls({
          name: "create_order",
          arguments: index === 0 ? '{"sku":"S1","qty":1}' : '{ "qty": 1, "sku": "S1" }',
        });
      }
      if (index === 1) proxy.cut();
      return index === 1 ? { json: {}, delayMs: 5_000 } : text("Ordered once.");
    });
    await sdk().chat.completions.create({ model, messages });
    expect(backEnd.requests).toHaveLength(1);
  });

  test("after everything was done: the same answer comes again", async () => {
    llm.respond((body) => {
      if (lastMessage(body).role !== "tool") return order;
      proxy.loseAnswers();
      return text("Ordered.");
    });
    const asked = sdk().chat.completions.create({ model, messages }).withResponse();
    await expect.poll(async () => (await chats())[0]?.state).toBe("completed");
    proxy.cut();
    const { data, response } = await asked;
    expect(data.choices[0]?.message.content).toBe("Ordered.");
    expect(response.headers.get("idempotent-replayed")).toBe("true");
    expect(llm.requests).toHaveLength(2);
    expect(backEnd.requests).toHaveLength(1);
    expect(await chats()).toHaveLength(1);
  });

  test("while the gateway does not notice: the retry waits for the first attempt and takes its answer", async () => {
    backEnd.answer = () => {
      proxy.cut(false);
      return { body: '{"order":1}', delayMs: 1_500 };
    };
    llm.script(order, text("Ordered."));
    const { data, response } = await sdk().chat.completions.create({ model, messages }).withResponse();
    expect(data.choices[0]?.message.content).toBe("Ordered.");
    expect(response.headers.get("idempotent-replayed")).toBe("true");
    expect(backEnd.requests).toHaveLength(1);
    expect(llm.requests).toHaveLength(2);
  });
});

describe(`an Idempotency-Key ${verifies("CHAT-1", "CHAT-4", "CHAT-6")}`, () => {
  const key = { "Idempotency-Key": "order-1" };

  test("gives the first answer again, tools and all, and nothing is asked or done again", async () => {
    llm.script(order, text("Ordered."));
    const first = await sdk().chat.completions.create({ model, messages }, { headers: key }).withResponse();
    const again = await sdk().chat.completions.create({ model, messages }, { headers: key }).withResponse();
    expect(first.response.headers.get("idempotent-replayed")).toBeNull();
    expect(again.response.headers.get("idempotent-replayed")).toBe("true");
    expect(again.data).toEqual(first.data);
    expect(llm.requests).toHaveLength(2);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("gives a stream again as a stream, on both routes", async () => {
    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      llm.requests.length = 0;
      llm.script(order, text("Ordered in two words.", [9, 4]));
      const body = { model, messages, stream: true, stream_options: { include_usage: true } };
      const first = await tenant.client.send("post", path, body, { headers: key });
      const again = await tenant.client.send("post", path, body, { headers: key });
      expect(again.headers.get("idempotent-replayed")).toBe("true");
      expect(again.headers.get("content-type")).toBe("text/event-stream");
      const [before, after] = [first, again].map((reply) => sseEvents(reply.text) as Json[]);
      const textOf = (events: Json[]): string =>
        events.map((event) => event.choices?.[0]?.delta.content ?? event.delta?.content ?? "").join("");
      expect(textOf(after ?? [])).toBe("Ordered in two words.");
      expect(textOf(before ?? [])).toBe("Ordered in two words.");
      expect(after?.slice(-2)).toEqual(before?.slice(-2));
      expect(llm.requests).toHaveLength(2);
    }
    // The routes do not share their keys.
    expect(backEnd.requests).toHaveLength(2);
  });

  test("gives a stream again with all that the back end has said in pieces, joined", async () => {
    const told = (delta: Json, tokens: readonly string[] = []): string => {
      const logprobs = tokens.length === 0 ? {} : { logprobs: { content: tokens.map((token) => ({ token })) } };
      const choices = [{ index: 0, delta, ...logprobs, finish_reason: null }];
      return `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices })}\n\n`;
    };
    const pieces = [
      told({ role: "assistant", content: "" }),
      told({ content: "a" }, ["a"]),
      told({ content: "b" }, ["b"]),
      told({ audio: { id: "audio_1", transcript: "hel" } }),
      told({ audio: { transcript: "lo", data: "QUJD" } }),
      told({ audio: { data: "REVG", expires_at: 5 } }),
      told({ annotations: [{ type: "url_citation", url_citation: { url: "https://a.example" } }] }),
      told({ annotations: [{ type: "url_citation", url_citation: { url: "https://b.example" } }] }),
    ];
    llm.script({ writes: [...pieces, chunk({}, "stop"), done] });
    const body = { model, messages, stream: true, logprobs: true };
    const first = await tenant.client.send("post", "/v1/chat/completions", body, { headers: key });
    const again = await tenant.client.send("post", "/v1/chat/completions", body, { headers: key });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    const saidIn = ({ text: stream }: { readonly text: string }): Json => {
      const choices = (sseEvents(stream) as Json[]).flatMap((event) => event.choices ?? []);
      const audio = choices.flatMap(({ delta }) => delta.audio ?? []);
      const joined = (field: string): string => audio.map((piece) => piece[field] ?? "").join("");
      return {
        text: choices.map(({ delta }) => delta.content ?? "").join(""),
        audio: ["id", "transcript", "data", "expires_at"].map(joined),
        annotations: choices.flatMap(({ delta }) => delta.annotations ?? []),
        tokens: choices.flatMap(({ logprobs }) => logprobs?.content ?? []),
      };
    };
    expect(saidIn(first)).toMatchObject({ text: "ab", audio: ["audio_1", "hello", "QUJDREVG", "5"] });
    expect(saidIn(again)).toEqual(saidIn(first));
  });

  test("gives calls for the client again, with the ids under which the turn goes on", async () => {
    const weather = {
      type: "function",
      function: { name: "get_weather", parameters: { type: "object", properties: {} } },
    } as const;
    llm.script(
      calls({ name: "create_order", arguments: { sku: "S1" } }, { name: "get_weather", arguments: {} }),
      text("Both."),
    );
    const body = { model, messages, tools: [weather] };
    const first = await sdk().chat.completions.create(body, { headers: key });
    const again = await sdk().chat.completions.create(body, { headers: key });
    expect(again).toEqual(first);
    const message = again.choices[0]?.message;
    if (message === undefined) throw new Error("no choice");
    const result = { role: "tool", tool_call_id: message.tool_calls?.[0]?.id ?? "", content: "sunny" } as const;
    llm.script(text("Both."));
    const second = await sdk().chat.completions.create({ ...body, messages: [...messages, message, result] });
    expect(second.choices[0]?.message.content).toBe("Both.");
  });

  test("with another body is refused; of another caller, or another key, it is another request", async () => {
    llm.script(text("one"));
    await sdk().chat.completions.create({ model, messages }, { headers: key });
    for (const body of [
      { model, messages, temperature: 0 },
      { model, messages, stream: true as const },
    ]) {
      const refused = sdk().chat.completions.create(body, { headers: key });
      await expect(refused).rejects.toMatchObject({
        status: 422,
        code: "idempotency_key_reused",
        param: "Idempotency-Key",
      });
    }
    expect(llm.requests).toHaveLength(1);
    const colleague = await tenant.newKey();
    llm.script(text("two"));
    const theirs = await colleague.client.send("post", "/v1/chat/completions", { model, messages }, { headers: key });
    expect([theirs.json.choices[0].message.content, theirs.headers.get("idempotent-replayed")]).toEqual(["two", null]);
  });

  test("of a request that still runs is a conflict that says when to come back, and the SDK does", async () => {
    let goOn: (value?: unknown) => void = () => undefined;
    backEnd.answer = async () => {
      await new Promise((resume) => (goOn = resume));
      return { body: '{"order":1}' };
    };
    llm.script(order, text("Ordered."));
    const first = sdk().chat.completions.create({ model, messages }, { headers: key });
    await expect.poll(() => backEnd.requests.length).toBe(1);
    const meanwhile = await tenant.client.send("post", "/v1/chat/completions", { model, messages }, { headers: key });
    expect([meanwhile.status, meanwhile.json.error.code]).toEqual([409, "idempotency_in_progress"]);
    expect(Number(meanwhile.headers.get("retry-after"))).toBeGreaterThan(0);
    const second = sdk().chat.completions.create({ model, messages }, { headers: key });
    await sleep(100);
    goOn();
    expect(await second).toEqual(await first);
    expect(backEnd.requests).toHaveLength(1);
  });

  test("of a request that was refused stays free", async () => {
    const refused = sdk().chat.completions.create({ model, messages: [] }, { headers: key });
    await expect(refused).rejects.toMatchObject({ status: 400 });
    llm.script(text("ok"));
    const answer = await sdk().chat.completions.create({ model, messages }, { headers: key });
    expect(answer.choices[0]?.message.content).toBe("ok");
  });

  test("of a request that failed for good gives the failure again, of one that may pass tries again", async () => {
    llm.script({ json: { error: { message: "no such model", type: "invalid_request_error" } }, status: 400 });
    for (let time = 0; time < 2; time += 1) {
      const failed = sdk(0).chat.completions.create({ model, messages }, { headers: key });
      await expect(failed).rejects.toMatchObject({ status: 400, code: "provider_rejected" });
    }
    expect(llm.requests).toHaveLength(1);
    llm.script(busy, text("ok"));
    const other = { "Idempotency-Key": "order-2" };
    await expect(sdk(0).chat.completions.create({ model, messages }, { headers: other })).rejects.toMatchObject({
      status: 503,
    });
    expect(
      (await sdk(0).chat.completions.create({ model, messages }, { headers: other })).choices[0]?.message.content,
    ).toBe("ok");
  });

  test("lets a stream that broke go on without doing its write again", async () => {
    llm.respond((body, index) => {
      if (lastMessage(body).role !== "tool") return order;
      if (index > 1) return text("Ordered once.");
      return {
        writes: [chunk({ role: "assistant", content: "Ord" }), chunk({ content: "ered" }), chunk({}, "stop"), done],
        gapMs: 300,
      };
    });
    let seen = "";
    const broken = (async () => {
      const stream = await sdk().chat.completions.create({ model, messages, stream: true }, { headers: key });
      for await (const part of stream) {
        seen += part.choices[0]?.delta.content ?? "";
        if (seen !== "") proxy.cut();
      }
    })();
    await expect(broken).rejects.toThrow(/terminated|connection|socket/i);
    await settled();
    const again = sdk().chat.completions.stream({ model, messages }, { headers: key });
    expect(await again.finalContent()).toBe("Ordered once.");
    expect(backEnd.requests).toHaveLength(1);
  });

  test.each(["", " ", "x".repeat(256), "a b", "ключ"])("that is none (%j) is refused", async (bad) => {
    llm.script(text("ok"));
    for (const path of ["/v1/chat/completions", "/v1/tools/invoke"]) {
      const body = path.endsWith("invoke") ? { name: "create_order", arguments: { sku: "S1" } } : { messages };
      const headers = { "idempotency-key": Buffer.from(bad).toString("latin1") };
      const reply = await tenant.client.send("post", path, body, { headers });
      expect([reply.status, reply.json.error.param]).toEqual([400, "Idempotency-Key"]);
    }
    expect(backEnd.requests).toHaveLength(0);
    expect(llm.requests).toHaveLength(0);
  });
});
