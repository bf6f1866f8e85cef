/**
 * Event streams as back ends and networks really deliver them: every legal way to write one gives the
 * client the same answer and the tool the same arguments, and a stream that is not whole runs nothing.
 */
import { once } from "node:events";
import { request as send, type ClientRequest, type IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { calls, chunk, done, startLlmStub, text, usageChunk, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
/** How the model's stub answers by itself. */
let scripted: HttpStub["answer"];

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  scripted = llm.http.answer;
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url, { max_attempts: 3 });
  await tenant.addPlugin({
    ...writingTool(backEnd, "remove_dir"),
    parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
  });
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  llm.aborted.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
});

const paths = ["/api/chat/completions", "/v1/chat/completions"] as const;
const body = { model: "stub-1", messages: [{ role: "user", content: "go" }], stream: true };

interface Heard {
  readonly text: string;
  readonly reasons: readonly string[];
  readonly dones: number;
  readonly errors: readonly Json[];
  readonly roles: number;
}

/** What a client makes of a stream, on either route. */
function heardIn(stream: string): Heard {
  const events = sseEvents(stream) as Json[];
  const choices: Json[] = events.flatMap((event) => event.choices ?? []);
  return {
    text:
      events.map((event) => (event.type === "content" ? event.delta.content : "")).join("") +
      choices.map((choice) => choice.delta.content ?? "").join(""),
    reasons: [
      ...events.flatMap((event) => (event.type === "done" ? [event.finish_reason] : [])),
      ...choices.flatMap((choice) => choice.finish_reason ?? []),
    ],
    dones: events.filter((event) => event === "[DONE]").length,
    errors: events.flatMap((event) => event.error ?? []),
    roles: choices.filter((choice) => choice.delta.role !== undefined).length,
  };
}

async function ask(path: string, change: Json = {}): Promise<Heard> {
  const reply = await tenant.client.send("post", path, { ...body, ...change });
  if (reply.status !== 200) throw new Error(`${path} answered ${reply.status}: ${reply.text}`);
  return heardIn(reply.text);
}

/** What the tool was told to remove. */
function removed(): readonly string[] {
  return backEnd.requests.map((request) => JSON.parse(request.body.toString("utf8")).path as string);
}

const good = (content: string): Heard =>
  expect.objectContaining({ text: content, reasons: ["stop"], dones: 1, errors: [] }) as Heard;

const argumentPiece = (piece: string, more: Json = {}): string =>
  chunk({
    tool_calls: [
      { index: 0, ...more, function: { ...(more.id === undefined ? {} : { name: "remove_dir" }), arguments: piece } },
    ],
  });
const opening = argumentPiece('{"path":"/data/tenant-a', { id: "call_1", type: "function" });
const middle = argumentPiece("/tmp/scratch");
const closing = argumentPiece('"}');
const finished = chunk({}, "tool_calls");
const json = (event: string): string => event.slice("data: ".length, -2);

describe(`a piece of the arguments written in another way is not lost ${verifies("CHAT-3", "CHAT-6")}`, () => {
  const half = Math.floor(json(middle).indexOf('"choices"'));
  const spellings: Readonly<Record<string, string>> = {
    "no space after the colon": `data:${json(middle)}\n\n`,
    "two spaces": `data:  ${json(middle)}\n\n`,
    "a tab": `data:\t${json(middle)}\n\n`,
    "an event name before": `event: message\ndata:${json(middle)}\n\n`,
    "an event name after": `data:${json(middle)}\nevent:message\n\n`,
    "an id and a retry": `id: 7\nretry:1000\ndata: ${json(middle)}\n\n`,
    "a comment before": `: ping\n\ndata:${json(middle)}\n\n`,
    "a comment inside": `data:${json(middle)}\n:ping\n\n`,
    "a bare comment and empty lines": `:\n\n\n\ndata: ${json(middle)}\n\n\n\n`,
    "an unknown field": `data: ${json(middle)}\nfoo: bar\nfoo\n\n`,
    "two data lines": `data: ${json(middle).slice(0, half)}\ndata:${json(middle).slice(half)}\n\n`,
    "an empty event before": `data\n\ndata:\n\ndata: ${json(middle)}\n\n`,
    CR: `data:${json(middle)}\r\r`,
    CRLF: `data:${json(middle)}\r\n\r\n`,
    "spaces in the JSON": `data: ${JSON.stringify(JSON.parse(json(middle)), null, 1).replaceAll("\n", "\ndata: ")}\n\n`,
  };

  test.each(Object.entries(spellings))("%s", async (_name, spelling) => {
    for (const path of paths) {
      llm.script({ writes: [opening, spelling, closing, finished, done] }, text("removed"));
      expect(await ask(path)).toEqual(good("removed"));
    }
    expect(removed()).toEqual(["/data/tenant-a/tmp/scratch", "/data/tenant-a/tmp/scratch"]);
  });

  test("at the start of the stream, a byte order mark", async () => {
    llm.script({ writes: [`\uFEFF${opening}`, middle, closing, finished, done] }, text("removed"));
    expect(await ask(paths[0])).toEqual(good("removed"));
    expect(removed()).toEqual(["/data/tenant-a/tmp/scratch"]);
  });

  test("all of it in one write, and each byte in its own", async () => {
    const whole = Buffer.from([opening, `data:${json(middle)}\n\n`, closing, finished, done].join(""));
    for (const writes of [[whole], Array.from(whole, (byte) => Buffer.from([byte]))]) {
      llm.script({ writes, gapMs: 0 }, text("removed"));
      expect(await ask(paths[0])).toEqual(good("removed"));
    }
    expect(removed()).toEqual(["/data/tenant-a/tmp/scratch", "/data/tenant-a/tmp/scratch"]);
  });
});

describe(`a stream that is not whole runs nothing and is an error ${verifies("CHAT-3", "CHAT-6")}`, () => {
  const ends: Readonly<Record<string, readonly string[]>> = {
    "after complete arguments": [opening, middle, closing],
    "in the middle of arguments": [opening, middle],
    "after a finish_reason that says nothing": [
      opening,
      middle,
      closing,
      chunk({}, ""),
      chunk({}, null),
      chunk({}, "null"),
    ],
    "in the middle of the finishing event": [opening, middle, closing, finished.slice(0, -1)],
    "in the middle of the finishing line": [opening, middle, closing, finished.slice(0, 60)],
    "after usage instead of a reason": [opening, middle, closing, usageChunk(1, 2)],
    "in the middle of [DONE]": [opening, middle, closing, "data: [DON"],
    "after [DONE] that is no event": [opening, middle, closing, "data: [DONE]\n"],
  };

  test.each(Object.entries(ends).flatMap(([name, writes]) => [false, true].map((cut) => [name, cut, writes] as const)))(
    "ending %s (connection cut: %s)",
    async (_name, cut, writes) => {
      for (const path of paths) {
        llm.requests.length = 0;
        llm.script({ writes, cut }, text("never"));
        const heard = await ask(path);
        expect(heard).toMatchObject({ reasons: [], dones: 1, errors: [{ code: "provider_stream_incomplete" }] });
        expect(llm.requests).toHaveLength(1);
      }
      expect(removed()).toEqual([]);
    },
  );

  test("a client's own tool gets no finish_reason either, so that it does not run", async () => {
    const tool = { type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } };
    const call = { index: 0, id: "c", type: "function", function: { name: "mine", arguments: '{"a":1}' } };
    llm.script({ writes: [chunk({ role: "assistant", tool_calls: [call] })] });
    expect(await ask("/v1/chat/completions", { tools: [tool] })).toMatchObject({
      reasons: [],
      errors: [{ code: "provider_stream_incomplete" }],
    });
  });

  test("before anything has come it is asked for again", async () => {
    llm.script({ writes: [": connected\n\n"] }, { writes: [], cut: true }, text("third time"));
    expect(await ask(paths[0])).toEqual(good("third time"));
    expect(llm.requests).toHaveLength(3);
  });

  test.each([
    ["a finish_reason without [DONE]", [opening, middle, closing, finished]],
    ["a finish_reason of stop", [opening, middle, closing, chunk({}, "stop"), done]],
    ["usage after the reason, no [DONE]", [opening, middle, closing, finished, usageChunk(3, 4)]],
    [
      "the reason with the last piece",
      [opening, middle, chunk({ tool_calls: [{ index: 0, function: { arguments: '"}' } }] }, "tool_calls"), done],
    ],
    ["more after [DONE]", [opening, middle, closing, finished, done, opening, "garbage"]],
    ["the reason twice", [opening, middle, closing, finished, finished, done]],
  ])("%s is whole", async (_name, writes) => {
    llm.script({ writes }, text("removed"));
    expect(await ask(paths[0])).toEqual(good("removed"));
    expect(removed()).toEqual(["/data/tenant-a/tmp/scratch"]);
  });

  test.each([
    ["an event that is no JSON", "data: ping\n\n", "provider_failed"],
    ["half an event", `data: ${json(middle).slice(0, 40)}\n\n`, "provider_failed"],
    [
      "an error in a good stream",
      'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n',
      "provider_unavailable",
    ],
    ["an error by its event name", 'event: error\ndata: {"message":"overloaded"}\n\n', "provider_failed"],
  ])("%s ends it with an error, not with an answer", async (_name, event, code) => {
    for (const path of paths) {
      llm.script({ writes: [opening, middle, event, closing, finished, done] }, text("never"));
      expect(await ask(path)).toMatchObject({ reasons: [], dones: 1, errors: [{ code }] });
    }
    expect(removed()).toEqual([]);
  });
});

describe(`line ends ${verifies("CHAT-6")}`, () => {
  const delta = (content: string): string => `data: ${json(chunk({ content }))}`;
  const end = `data: ${json(chunk({}, "stop"))}`;

  test.each([
    [
      "a mixture, CRLF split between writes",
      [
        `${delta("A")}\n\r\n`,
        `${delta("B")}\r\r`,
        `${delta("C")}\r`,
        "\n\r",
        "\n",
        `${end}\r\n\r\n`,
        "data: [DONE]\r\n\r\n",
      ],
    ],
    ["LF then CR", [`${delta("A")}\n\r`, `${delta("B")}\r\n\r`, `${delta("C")}\n\n`, `${end}\n\r`, "data: [DONE]\n\r"]],
    [
      "lone CR to the end",
      [`${delta("A")}\r\r`, `${delta("B")}\r`, "\r", `${delta("C")}\r\r`, `${end}\r\r`, "data: [DONE]\r\r"],
    ],
    [
      "many empty lines",
      [`${delta("A")}\n\n\n\n`, `\r\n\r\n${delta("B")}\r\n\r\n`, `\r\r\r${delta("C")}\r\r\r\n\n`, `${end}\n\n`, done],
    ],
    [
      "comments between with other ends",
      [
        `:a\r${delta("A")}\r\r:b\n\n`,
        `:c\r\n${delta("B")}\n:d\r\n\r\n`,
        `${delta("C")}\r\n:e\r\r\n`,
        `${end}\n\n`,
        done,
      ],
    ],
  ])("%s", async (_name, writes) => {
    for (const path of paths) {
      llm.script({ writes });
      expect(await ask(path)).toEqual(good("ABC"));
      llm.script({ writes: Array.from(Buffer.from(writes.join("")), (byte) => Buffer.from([byte])), gapMs: 0 });
      expect(await ask(path)).toEqual(good("ABC"));
    }
  });

  test("an event that ends in a lone CR is passed on at once", async () => {
    const gate = Promise.withResolvers<void>();
    llm.http.answer = playHeld([`${delta("A")}\r\r`], gate.promise, [`${end}\r\r`, "data: [DONE]\r\r"]);
    for (const path of paths) {
      const response = await fetch(gateway.url + path, {
        method: "POST",
        headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      let seen = "";
      while (!seen.includes('"A"')) seen += (await reader?.read())?.value ?? "";
      expect(seen).not.toContain("[DONE]");
      await reader?.cancel();
    }
    gate.resolve();
    llm.http.answer = scripted;
  });
});

function playHeld(first: readonly string[], gate: Promise<void>, rest: readonly string[]): HttpStub["answer"] {
  return async (_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const write of first) response.write(write);
    await gate;
    for (const write of rest) response.write(write);
    response.end();
    return undefined;
  };
}

describe(`characters ${verifies("CHAT-3", "CHAT-6")}`, () => {
  const greeting = "你好😀";

  /** Every set of two cuts would be many; each byte alone, and each single cut, covers what can go wrong. */
  function cutEverywhere(stream: string, within: string): readonly (readonly Buffer[])[] {
    const bytes = Buffer.from(stream);
    const from = bytes.indexOf(Buffer.from(within));
    const cuts = Array.from({ length: Buffer.byteLength(within) - 1 }, (_none, at) => from + at + 1);
    return [
      Array.from(bytes, (byte) => Buffer.from([byte])),
      ...cuts.map((at) => [bytes.subarray(0, at), bytes.subarray(at)]),
    ];
  }

  test("split between writes they are whole in the text", async () => {
    const stream = [chunk({ role: "assistant", content: greeting }), chunk({}, "stop"), done].join("");
    for (const writes of cutEverywhere(stream, greeting)) {
      llm.script({ writes, gapMs: 1 });
      expect(await ask(paths[0])).toEqual(good(greeting));
    }
    for (const writes of cutEverywhere(stream, greeting).slice(0, 4)) {
      llm.script({ writes, gapMs: 1 });
      expect(await ask(paths[1])).toEqual(good(greeting));
    }
  });

  test("split between writes they are whole in the arguments", async () => {
    const { writes } = calls({ name: "remove_dir", arguments: { path: greeting } });
    const played = cutEverywhere(writes.join(""), greeting);
    for (const round of played) {
      llm.script({ writes: round, gapMs: 0 }, text("ok"));
      await ask(paths[0]);
    }
    expect(removed()).toEqual(played.map(() => greeting));
  });

  test("split between two deltas, one half each, they come together again", async () => {
    const [high, low] = ["\\ud83d", "\\ude00"];
    const halves = [chunk({ content: "HALF" }).replace("HALF", high), chunk({ content: "HALF" }).replace("HALF", low)];
    for (const path of paths) {
      llm.script({ writes: [...halves, chunk({}, "stop"), done] });
      const { text: heard } = await ask(path);
      expect(heard).toBe("😀");
    }
    const pieces = ['{\\"path\\":\\"', high, low, '\\"}'].map((piece) =>
      argumentPiece("HALF", { id: "c" }).replace("HALF", piece),
    );
    llm.script({ writes: [...pieces, finished, done] }, text("ok"));
    await ask(paths[0]);
    expect(removed()).toEqual(["😀"]);
  });

  test("that other readers take for line ends, marks or ends of text stay in the text", async () => {
    const odd = "a\u2028b\u2029c\u0085d\u000be\u000cf\u0000g\ufeffh\u001ei\u00a0";
    for (const path of paths) {
      llm.script({
        writes: [chunk({ role: "assistant", content: odd }), chunk({ content: odd }), chunk({}, "stop"), done],
      });
      expect(await ask(path)).toEqual(good(odd + odd));
    }
    llm.script(calls({ name: "remove_dir", arguments: { path: odd } }), text("ok"));
    await ask(paths[0]);
    expect(removed()).toEqual([odd]);
  });

  test("that belong to the wire format stay in the text", async () => {
    const odd = 'data: [DONE]\n\nevent: error\ndata: {"error":{}}\n\n\r\r: x';
    for (const path of paths) {
      llm.script(calls({ name: "remove_dir", arguments: { path: odd } }), {
        writes: [chunk({ role: "assistant", content: odd }), chunk({ content: "" }), chunk({}, "stop"), done],
      });
      expect(await ask(path)).toEqual(good(odd));
    }
    expect(removed()).toEqual([odd, odd]);
  });

  test("of a very long delta, and of very many short ones", async () => {
    const long = "北".repeat(700_000);
    llm.script({ writes: [chunk({ content: long }), chunk({}, "stop"), done] });
    expect((await ask(paths[0])).text === long).toBe(true);
    const many = Array.from({ length: 2_000 }, (_none, at) => chunk({ content: `${at} ` }));
    llm.script({ writes: [many.join(""), chunk({}, "stop"), done] });
    expect((await ask(paths[1])).text.split(" ")).toHaveLength(2_001);
  });
});

describe(`habits of back ends ${verifies("CHAT-2", "CHAT-6")}`, () => {
  test("a role in every delta, changing ids and models, chunks without choices: one clean message", async () => {
    const odd = (delta: Json, more: Json = {}, finish: string | null = null): string =>
      `data: ${JSON.stringify({ id: `c-${Math.random()}`, object: "x", model: "other", choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`;
    const writes = [
      'data: {"id":"","object":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}\n\n',
      odd({ role: "assistant", content: null }),
      odd({ role: "assistant", content: "A" }),
      odd({ role: "assistant", content: "B" }, { usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }),
      'data: {"object":"chat.completion.chunk"}\n\n',
      odd({ role: "assistant", content: "C" }, { usage: { prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 } }),
      odd({ role: "assistant", content: "" }, {}, "stop"),
      done,
    ];
    llm.script({ writes });
    expect(await ask(paths[0])).toEqual(good("ABC"));
    const reply = await tenant.client.send("post", paths[1], { ...body, stream_options: { include_usage: true } });
    expect(heardIn(reply.text)).toEqual(good("ABC"));
    expect(heardIn(reply.text).roles).toBe(1);
    const chunks = (sseEvents(reply.text) as Json[]).filter((event) => event !== "[DONE]");
    expect(new Set(chunks.map((event) => event.id)).size).toBe(1);
    expect(chunks.every((event) => event.object === "chat.completion.chunk")).toBe(true);
    expect(chunks.filter((event) => event.usage).map((event) => event.usage.total_tokens)).toEqual([4]);
  });

  test("a compressed stream", async () => {
    llm.http.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" });
      response.end(gzipSync([chunk({ role: "assistant", content: "packed" }), chunk({}, "stop"), done].join("")));
      return undefined;
    };
    expect(await ask(paths[0])).toEqual(good("packed"));
    llm.http.answer = scripted;
  });

  test("a whole answer where a stream was asked for, and a stream where a whole answer was", async () => {
    const message = { role: "assistant", content: "whole" };
    llm.script({
      json: {
        id: "c",
        object: "chat.completion",
        created: 1,
        model: "stub-1",
        choices: [{ index: 0, message, finish_reason: "stop" }],
      },
    });
    for (const path of paths) expect(await ask(path)).toEqual(good("whole"));
    llm.http.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "text/plain" });
      response.end([chunk({ role: "assistant", content: "streamed" }), chunk({}, "stop"), done].join(""));
      return undefined;
    };
    const reply = await tenant.client.send("post", paths[1], { ...body, stream: false });
    expect(reply.json.choices[0]).toMatchObject({ message: { content: "streamed" }, finish_reason: "stop" });
    llm.http.answer = scripted;
  });
});

describe(`back ends that fail under a good status ${verifies("CHAT-1", "CHAT-6")}`, () => {
  test.each([
    ["an error instead of a stream", { error: { message: "overloaded", code: 503 } }, 503],
    ["an error as a list", [{ error: { code: 400, message: "bad", status: "INVALID_ARGUMENT" } }], 400],
    ["no answer", { detail: "Not Found" }, 502],
    ["an answer without choices", { id: "c", object: "chat.completion", choices: [] }, 502],
  ])("%s is an error with a status, streamed or not", async (_name, json, status) => {
    for (const path of paths) {
      for (const stream of [true, false]) {
        llm.script({ json });
        const reply = await tenant.client.send("post", path, { ...body, stream });
        expect([reply.status, reply.json.error.code.startsWith("provider_")]).toEqual([status, true]);
      }
    }
  });

  test.each([
    [
      "text",
      (deep: unknown) => ({ choices: [{ index: 0, delta: { content: "A", odd: deep }, finish_reason: "stop" }] }),
    ],
    [
      "log probabilities",
      (deep: unknown) => ({
        choices: [{ index: 0, delta: { content: "A" }, logprobs: { content: deep }, finish_reason: "stop" }],
      }),
    ],
    [
      "a call",
      (deep: unknown) => ({
        choices: [
          {
            index: 0,
            delta: { tool_calls: [{ index: 0, id: "a", function: { name: "remove_dir", arguments: { path: deep } } }] },
            finish_reason: "tool_calls",
          },
        ],
      }),
    ],
    ["an error", (deep: unknown) => ({ error: { message: "no", details: deep } })],
    ["a list of errors", (deep: unknown) => deep],
  ])("what nobody could write again, beside %s, is told as the back end's", async (_name, chunkOf) => {
    const mark = "deep";
    const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
    const event = JSON.stringify(chunkOf(mark)).replace(`"${mark}"`, deep);
    const answer = llm.http.answer;
    onTestFinished(() => void (llm.http.answer = answer));
    for (const path of paths) {
      for (const stream of [true, false]) {
        llm.http.answer = () => ({
          headers: { "content-type": stream ? "text/event-stream" : "application/json" },
          body: stream ? `data: ${event}\n\n${done}` : event.replace('"delta"', '"message"'),
        });
        const reply = await tenant.client.send("post", path, { ...body, stream });
        expect([reply.status, reply.json.error.code]).toEqual([502, "provider_failed"]);
        llm.http.answer = () => ({ status: 400, body: event });
        expect((await tenant.client.send("post", path, { ...body, stream })).json.error.code).toBe("provider_rejected");
      }
    }
    expect(removed()).toEqual([]);
  });

  test("text and usage beside the finish_reason are not lost", async () => {
    const last = {
      id: "c",
      object: "chat.completion.chunk",
      created: 1,
      model: "stub-1",
      usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
      choices: [{ index: 0, delta: { content: "B" }, finish_reason: "stop" }],
    };
    for (const path of paths) {
      llm.script({ writes: [chunk({ role: "assistant", content: "A" }), `data: ${JSON.stringify(last)}\n\n`, done] });
      expect(await ask(path)).toEqual(good("AB"));
    }
  });
});

describe(`a client that is gone ${verifies("CHAT-6")}`, () => {
  const withinMs = { timeout: 2_000, interval: 20 };

  async function open(
    path: string,
    change: Json = {},
  ): Promise<{ readonly request: ClientRequest; readonly response: IncomingMessage }> {
    const request = send(gateway.url + path, {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
    });
    request.on("error", () => undefined);
    request.end(JSON.stringify({ ...body, ...change }));
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.on("error", () => undefined);
    return { request, response };
  }

  async function newestChat(): Promise<Json> {
    return (await tenant.client.get("/v1/calls?kind=chat&limit=1")).data[0];
  }

  test.each(paths)("on %s: the back end's connection closes, nothing is asked again, no tool starts", async (path) => {
    const slow = Array.from({ length: 120 }, (_none, at) => chunk({ content: `${at}` }));
    const { writes } = calls({ name: "remove_dir", arguments: { path: "/" } });
    llm.script({ writes: [...slow, ...writes], gapMs: 100 }, text("never"));
    const { request, response } = await open(path);
    await once(response, "data");
    request.destroy();
    await expect.poll(() => llm.aborted, withinMs).toEqual([0]);
    await expect.poll(async () => (await newestChat()).state, withinMs).toBe("cancelled");
    await sleep(200);
    expect(llm.requests).toHaveLength(1);
    expect(removed()).toEqual([]);
  });

  test("while the first answer is still awaited: the back end's retries stop, too", async () => {
    llm.script({ json: { error: { message: "busy" } }, status: 503, headers: { "retry-after": "1" } });
    const request = send(gateway.url + paths[0], {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
    });
    request.on("error", () => undefined);
    request.end(JSON.stringify(body));
    await expect.poll(() => llm.requests.length).toBe(1);
    request.destroy();
    await expect.poll(async () => (await newestChat()).state, withinMs).toBe("cancelled");
    await sleep(1_200);
    expect(llm.requests).toHaveLength(1);
  });

  test("while a tool runs: its result starts no further round", async () => {
    const started = Promise.withResolvers<void>();
    backEnd.answer = () => {
      started.resolve();
      return { body: '{"ok":true}', delayMs: 300 };
    };
    llm.script(calls({ name: "remove_dir", arguments: { path: "/tmp" } }), text("never"));
    const { request } = await open(paths[0]);
    await started.promise;
    request.destroy();
    await expect.poll(async () => (await newestChat()).state, withinMs).toBe("cancelled");
    await sleep(400);
    expect(llm.requests).toHaveLength(1);
    expect(removed()).toEqual(["/tmp"]);
  });

  test("that had stopped reading before: the back end is left as well", async () => {
    const large = chunk({ content: "x".repeat(200_000) });
    llm.script({ writes: Array.from({ length: 400 }, () => large), gapMs: 1 });
    const { request, response } = await open(paths[0]);
    response.pause();
    await sleep(300);
    request.destroy();
    await expect.poll(() => llm.aborted, withinMs).toEqual([0]);
    await expect.poll(async () => (await newestChat()).state, withinMs).toBe("cancelled");
  });

  test("that waited for a whole answer", async () => {
    llm.script({ json: {}, delayMs: 30_000 });
    const request = send(gateway.url + paths[1], {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
    });
    request.on("error", () => undefined);
    request.end(JSON.stringify({ ...body, stream: false }));
    await expect.poll(() => llm.requests.length).toBe(1);
    request.destroy();
    await expect.poll(() => llm.aborted, withinMs).toEqual([0]);
    expect(llm.requests).toHaveLength(1);
  });
});
