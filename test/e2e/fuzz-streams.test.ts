/**
 * Streams cut at every byte give the client the same events, and back ends that talk nonsense, as models
 * or as tools, are answered for in the gateway's own words.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { isErrorCode } from "@toolyard/core/errors/catalog";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { isLong } from "../support/long.ts";
import { createRawClient, oddValue, requireKnown, requireUnshaken, type RawClient } from "../support/raw-client.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let raw: RawClient;
/** How the model's stub answers by itself. */
let scripted: HttpStub["answer"];

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  raw = createRawClient(gateway.url, () => tenant.key);
  scripted = llm.http.answer;
});

afterAll(async () => {
  raw.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
  llm.http.answer = scripted;
  llm.script(text("ok"));
  tenant = await gateway.newTenant({ requests_per_minute: 1_000_000, identical_calls: 100 });
  await tenant.addProvider(llm.url, { max_attempts: 1 });
  await tenant.addPlugin(readingTool(backEnd));
});

afterEach(() => requireUnshaken(gateway));

const body = { messages: [{ role: "user", content: "go" }] };

describe(`a recorded stream, cut at every byte ${verifies("CHAT-3", "CHAT-6")}`, () => {
  /** As short as an event can be: each byte is a run. */
  const event = (delta: Json, finish: string | null = null): string =>
    `data: ${JSON.stringify({ id: "c", choices: [{ delta, finish_reason: finish }] })}\n\n`;
  const call = (piece: string, more: Json = {}): string =>
    event({
      tool_calls: [{ index: 0, ...more, function: { ...(more.id ? { name: "lookup" } : {}), arguments: piece } }],
    });
  const recorded = Buffer.from(
    [
      "\ufeff:hi\n\n",
      event({ role: "assistant", content: "你好" }).replace("data: ", "data:"),
      event({ content: "😀\n" }).replaceAll("\n\n", "\r\n\r\n"),
      event({ reasoning: "嗯" }).replaceAll("\n\n", "\r\r"),
      `event: message\nid: 1\n${call("{}", { id: "up" })}`,
      call('{"q":"北'),
      call('京"}'),
      event({}, "tool_calls"),
      done,
    ].join(""),
  );

  /** Events of the client without what differs from one run to the next. */
  function comparable(stream: string): string {
    return stream
      .replaceAll(/call_[0-9a-z]+/g, "CALL")
      .replaceAll(/sess_[0-9a-z]+/g, "SESSION")
      .replaceAll(/"created":\d+/g, '"created":0');
  }

  /** Which cut a request is for stands in its question. */
  const cuts = new Map<string, readonly Buffer[]>();

  beforeEach(() => {
    llm.respond((asked) => {
      const messages = asked["messages"] as Json[];
      if (messages.at(-1).role === "tool") return text("Done.");
      return { writes: cuts.get(messages[0].content) ?? [recorded], gapMs: 0 };
    });
  });

  async function eventsFor(path: string, writes: readonly Buffer[]): Promise<string> {
    const question = `cut ${cuts.size}`;
    cuts.set(question, writes);
    const asked = {
      messages: [{ role: "user", content: question }],
      stream: true,
      stream_options: { include_usage: true },
    };
    const answer = await raw.post(path, asked);
    return comparable(answer.text);
  }

  function cutAt(places: readonly number[]): readonly Buffer[] {
    const sorted = [0, ...[...new Set(places)].sort((a, b) => a - b), recorded.length];
    return sorted
      .slice(1)
      .map((to, at) => recorded.subarray(sorted[at], to))
      .filter((part) => part.length > 0);
  }

  test.each(["/api/chat/completions", "/v1/chat/completions"])("gives the same events on %s", async (path) => {
    const whole = await eventsFor(path, [recorded]);
    expect(sseEvents(whole).at(-1)).toBe("[DONE]");
    expect(whole).toContain("Done.");
    expect(backEnd.requests.at(-1)?.target).toBe(`/lookup?q=${encodeURIComponent("北京")}`);
    const all = Array.from({ length: recorded.length - 1 }, (_none, at) => at + 1);
    // Of five bytes one at a time; runs differ in which.
    const [step, first] = isLong ? [1, 0] : [5, Math.floor(Math.random() * 5)];
    const places = all.filter((at) => at % step === first);
    const different: number[] = [];
    const next = places.values();
    const worker = async (): Promise<void> => {
      for (const place of next) if ((await eventsFor(path, cutAt([place]))) !== whole) different.push(place);
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    expect(different).toEqual([]);
  });

  test("gives the same events for any set of cuts, down to single bytes", async () => {
    const path = "/api/chat/completions";
    const whole = await eventsFor(path, [recorded]);
    expect(await eventsFor(path, cutAt(Array.from(recorded, (_byte, at) => at)))).toBe(whole);
    const places = fc.array(fc.integer({ min: 1, max: recorded.length - 1 }), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(places, async (at) => (await eventsFor(path, cutAt(at))) === whole),
      { numRuns: isLong ? 60 : 20 },
    );
  });
});

describe(`back ends that talk nonsense ${verifies("CHAT-1", "CHAT-6", "BLIND-8")}`, () => {
  const delta = fc.oneof(
    fc.record(
      {
        role: oddValue,
        content: oddValue,
        tool_calls: oddValue,
        reasoning_content: oddValue,
        refusal: oddValue,
        function_call: oddValue,
      },
      { requiredKeys: [] },
    ),
    fc.record({
      tool_calls: fc.array(
        fc.record(
          {
            index: fc.oneof(fc.integer({ min: -1, max: 3 }), oddValue),
            id: oddValue,
            type: oddValue,
            function: fc.oneof(
              fc.record(
                {
                  name: fc.oneof(fc.constant("lookup"), oddValue),
                  arguments: fc.oneof(fc.constantFrom("{", '{"q":', '"x"}', "}", "{}", "null"), oddValue),
                },
                { requiredKeys: [] },
              ),
              oddValue,
            ),
          },
          { requiredKeys: [] },
        ),
        { maxLength: 3 },
      ),
    }),
  );
  const event = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record(
        {
          choices: fc.array(
            fc.oneof(
              fc.record(
                {
                  index: fc.oneof(fc.constantFrom(0, 1), oddValue),
                  delta,
                  finish_reason: fc.oneof(
                    fc.constantFrom(null, "stop", "length", "tool_calls", "content_filter", "error"),
                    oddValue,
                  ),
                  logprobs: oddValue,
                  message: oddValue,
                },
                { requiredKeys: ["delta"] },
              ),
              oddValue,
            ),
            { maxLength: 2 },
          ),
          usage: oddValue,
          id: oddValue,
          model: oddValue,
          created: oddValue,
          error: fc.option(oddValue, { nil: undefined, freq: 8 }),
        },
        { requiredKeys: ["choices"] },
      ),
    },
    { weight: 1, arbitrary: oddValue },
  );
  const written = fc.oneof(
    { weight: 6, arbitrary: event.map((one) => `data: ${JSON.stringify(one)}\n\n`) },
    { weight: 1, arbitrary: fc.constantFrom(done, ": x\n\n", "event: error\n", "data\n\n", "\r\r", "data: {\n\n") },
    { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 20 }) },
  );

  test.each([
    ["/api/chat/completions", true],
    ["/v1/chat/completions", true],
    ["/v1/chat/completions", false],
  ] as const)("in a stream: %s (stream: %s) ends in our own words", async (target, stream) => {
    let round = 0;
    let writes: readonly string[] = [];
    llm.http.answer = async (_request, response) => {
      round += 1;
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const write of round > 3 ? [chunk({ content: "enough" }, "stop"), done] : writes) {
        response.write(write);
        await nextTurn();
      }
      response.end();
      return undefined;
    };
    await fc.assert(
      fc.asyncProperty(fc.array(written, { maxLength: 8 }), async (said) => {
        round = 0;
        writes = said;
        const answer = await raw.ask({
          method: "POST",
          target,
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ...body, stream }),
        });
        if (answer.headers["content-type"] !== "text/event-stream")
          return requireKnown({ method: "post", target }, answer);
        const events = sseEvents(answer.text) as Json[];
        expect(events.filter((one) => one === "[DONE]")).toHaveLength(1);
        expect(events.at(-1)).toBe("[DONE]");
        for (const { error } of events.filter((one) => one?.error !== undefined)) {
          expect(isErrorCode(error.code) && error.code !== "internal_error").toBe(true);
        }
      }),
      { numRuns: isLong ? 150 : 50 },
    );
  });

  test("in a whole answer or an error: the status and the code are ours", async () => {
    const said = fc.oneof(
      event.map((one) => JSON.stringify(one)),
      fc.string({ unit: "binary", maxLength: 40 }),
      fc.constantFrom(
        "",
        "null",
        "[]",
        "<html>",
        '{"error":"x"}',
        '{"error":{"message":7}}',
        '{"choices":[]}',
        '{"choices":[{}]}',
        '{"choices":[null]}',
        '{"choices":[{"message":{"tool_calls":[null,7,{}]}}]}',
        "[".repeat(50_000),
      ),
    );
    let reply: { readonly status: number; readonly body: string } = { status: 200, body: "" };
    llm.http.answer = () => ({ ...reply, headers: { "content-type": "application/json", "retry-after": "x" } });
    await fc.assert(
      fc.asyncProperty(
        said,
        fc.constantFrom(200, 200, 200, 201, 204, 302, 400, 401, 404, 408, 418, 422, 429, 500, 503, 599),
        async (content, status) => {
          reply = { status, body: status === 204 ? "" : content };
          const answer = await raw.post("/v1/chat/completions", body);
          requireKnown({ method: "post", target: "/v1/chat/completions" }, answer);
        },
      ),
      { numRuns: isLong ? 200 : 60 },
    );
  });

  test("as tools: the model is told, whatever they send", async () => {
    const contentType = fc.constantFrom(
      "application/json",
      "text/plain; charset=gbk",
      "text/html",
      "image/png",
      "",
      "x",
      'application/json; charset="',
      "application/octet-stream",
      "multipart/mixed; boundary=x",
      "text/event-stream",
    );
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 200 }),
        contentType,
        fc.constantFrom(200, 201, 204, 206, 301, 304, 400, 404, 429, 500, 503),
        async (bytes, type, status) => {
          backEnd.answer = () => ({
            status,
            headers: { "content-type": type },
            body: status === 204 || status === 304 ? "" : Buffer.from(bytes),
          });
          llm.script(calls({ name: "lookup", arguments: { q: "x" } }), text("done"));
          const asked = await raw.post("/v1/chat/completions", body);
          expect(JSON.parse(asked.text).choices[0].message.content).toBe("done");
          const invoked = await raw.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
          requireKnown({ method: "post", target: "/v1/tools/invoke" }, invoked);
        },
      ),
      { numRuns: isLong ? 100 : 35 },
    );
  });
});
