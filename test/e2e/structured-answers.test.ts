/** Answers that are to be JSON, with tools of the gateway on the way: the official client parses what it gets. */
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub, type StreamRound } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin({
    schema_version: "v1",
    name: "lookup",
    description: "Looks things up.",
    parameters: { type: "object", properties: { q: { type: "string" } } },
    execution: { method: "GET", base_url: `${backEnd.url}/lookup`, param_placement: "query" },
  });
});

const format = {
  type: "json_schema",
  json_schema: {
    name: "answer",
    strict: true,
    schema: {
      type: "object",
      properties: { answer: { type: "integer" } },
      required: ["answer"],
      additionalProperties: false,
    },
  },
} as const;
const body = { model: "stub-1", messages: [{ role: "user" as const, content: "go" }], response_format: format };

/** A turn that says something before it calls. */
function saying(words: string, round: StreamRound): StreamRound {
  const [first = "", ...rest] = round.writes;
  const said = words.split(/(?<= )/).map((word) => chunk({ content: word }));
  return { writes: [first, ...said, ...rest] };
}

const looking = (): StreamRound => saying("Let me look that up.", calls({ name: "lookup", arguments: { q: "x" } }));

function contentOf(stream: string): string {
  return (sseEvents(stream) as Json[])
    .map((event) => event.choices?.[0]?.delta?.content ?? (event.type === "content" ? event.delta.content : ""))
    .join("");
}

describe(`answers in a response_format ${verifies("CHAT-2", "CHAT-4", "CHAT-6")}`, () => {
  test("are what the last turn says, so that the client can parse them", async () => {
    llm.script(looking(), text('{"answer": 42}'));
    const sdk = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: tenant.key, maxRetries: 0 });
    const parsed = await sdk.chat.completions.parse(body);
    expect(parsed.choices[0]?.message.parsed).toEqual({ answer: 42 });
    expect(parsed.usage?.total_tokens).toBe(43);
    // The model sees what it said.
    expect(llm.requests[1]).toMatchObject({ messages: [{}, { content: "Let me look that up." }, { role: "tool" }] });
  });

  test.each(["/v1/chat/completions", "/api/chat/completions"])("streamed on %s as well", async (path) => {
    llm.script(looking(), text(' {"answer": 42}'));
    const { text: stream } = await tenant.client.send("post", path, { ...body, stream: true });
    expect(contentOf(stream)).toBe(' {"answer": 42}');
  });

  test.each([
    ['{"answer": 42}', ['{"answer": ', "42}"]],
    ["``` {} ```", ["``` ", "{} ", "```"]],
    [' \n {"answer": 42}', [" ", "\n ", '{"answer": ', "42}"]],
  ])("come as they are written: %s", async (said, expected) => {
    llm.script(text(said));
    const { text: stream } = await tenant.client.send("post", "/v1/chat/completions", { ...body, stream: true });
    const pieces = (sseEvents(stream) as Json[]).map((event) => event.choices?.[0]?.delta.content ?? "");
    expect(pieces.filter((piece) => piece !== "")).toEqual(expected);
  });

  test("may begin in the middle of a fence", async () => {
    const pieces = ["`", "``json\n", "{}"].map((content) => chunk({ content }));
    llm.script({ writes: [chunk({ role: "assistant", content: "" }), ...pieces, chunk({}, "stop"), done] });
    const { text: stream } = await tenant.client.send("post", "/v1/chat/completions", { ...body, stream: true });
    expect(contentOf(stream)).toBe("```json\n{}");
  });

  test("may be words that are no JSON, where those are the last", async () => {
    llm.script(looking(), text("I cannot say."));
    expect((await tenant.client.post("/v1/chat/completions", body)).choices[0].message.content).toBe("I cannot say.");
    llm.script(saying("Over to you.", calls({ name: "mine", arguments: {} })));
    const mine = { type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } };
    const { text: stream } = await tenant.client.send("post", "/v1/chat/completions", {
      ...body,
      tools: [mine],
      stream: true,
    });
    expect(contentOf(stream)).toBe("Over to you.");
    expect(stream).toContain('"finish_reason":"tool_calls"');
  });

  test("of any other form have all that was said", async () => {
    llm.script(looking(), text("It is 42."));
    const plain = { ...body, response_format: { type: "text" } };
    const answer = await tenant.client.post("/v1/chat/completions", plain);
    expect(answer.choices[0].message.content).toBe("Let me look that up.\n\nIt is 42.");
  });
});
