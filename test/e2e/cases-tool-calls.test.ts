/**
 * Tool calls as back ends really write them. Wherever it could be one call or two, whole or cut, the
 * gateway runs nothing twice and nothing that is not known to be whole.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { chunk, done, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(recording("get_weather", { city: { type: "string" } }, ["city"]));
  await tenant.addPlugin(recording("list_plugins", {}, []));
  await tenant.addPlugin(
    recording("create_order", { sku: { type: "string" }, qty: { type: "integer" } }, ["sku", "qty"]),
  );
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: '{"ok":true}' });
});

/** A write that keeps its arguments, so that a run too many would count. */
function recording(name: string, properties: Json, required: readonly string[]): Json {
  return {
    name,
    parameters: { type: "object", properties, required, additionalProperties: false },
    execution: {
      method: "POST",
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: "body",
    },
  };
}

/** Tools that ran, with their arguments, in order. */
function runs(): readonly (readonly [string, unknown])[] {
  return backEnd.requests.map((request) => [
    request.target.slice(1),
    JSON.parse(request.body.toString("utf8")) as unknown,
  ]);
}

const body = { model: "stub-1", messages: [{ role: "user", content: "go" }] };
const beijing = { city: "北京" };

/** An entry of `tool_calls`, in a stream or whole. */
const entry = (id: string | undefined, name: string | undefined, args: unknown, more: Json = {}): Json => ({
  ...(id === undefined ? {} : { id }),
  type: "function",
  function: { ...(name === undefined ? {} : { name }), ...(args === undefined ? {} : { arguments: args }) },
  ...more,
});

/** A stream of deltas, each a list of entries. */
function streamed(deltas: readonly (readonly Json[])[], finish = "tool_calls"): Round {
  const writes = deltas.map((toolCalls, at) =>
    chunk({ ...(at === 0 ? { role: "assistant" } : {}), tool_calls: toolCalls }),
  );
  return { writes: [...writes, chunk({}, finish), done] };
}

function whole(toolCalls: readonly Json[], finish = "tool_calls"): Round {
  const message = { role: "assistant", content: null, tool_calls: toolCalls };
  return {
    json: {
      id: "c",
      object: "chat.completion",
      created: 1,
      model: "stub-1",
      choices: [{ index: 0, message, finish_reason: finish }],
    },
  };
}

interface Asked {
  readonly status: number;
  /** Events of the stream, or the body alone. */
  readonly events: readonly Json[];
  readonly finish: string | undefined;
  readonly error: Json;
}

async function ask(rounds: readonly Round[], change: Json = {}, path = "/api/chat/completions"): Promise<Asked> {
  llm.requests.length = 0;
  llm.script(...rounds);
  const stream = change.stream ?? "writes" in (rounds[0] ?? {});
  const reply = await tenant.client.send("post", path, { ...body, stream, ...change });
  const events =
    reply.headers.get("content-type") === "text/event-stream" ? (sseEvents(reply.text) as Json[]) : [reply.json];
  return {
    status: reply.status,
    events,
    finish: events.flatMap((event) => event.finish_reason ?? event.choices?.[0]?.finish_reason ?? [])[0],
    error: events.flatMap((event) => event.error ?? [])[0],
  };
}

/** The calls of the assistant message in the second request, and the results beside them. */
function told(request = 1): { readonly calls: Json[]; readonly results: Json[] } {
  const messages = llm.requests[request]?.["messages"] as Json[];
  const at = messages.findLastIndex((message) => message.tool_calls !== undefined);
  return { calls: messages[at].tool_calls, results: messages.slice(at + 1) };
}

/** Index, id and joined arguments of the calls that our own stream told the client of. */
function shown(events: readonly Json[]): readonly Json[] {
  const found: Json[] = [];
  for (const event of events) {
    for (const piece of event.delta?.tool_calls ?? event.choices?.[0]?.delta?.tool_calls ?? []) {
      expect(Number.isInteger(piece.index)).toBe(true);
      const known = (found[piece.index] ??= { index: piece.index, ids: 0, arguments: "" });
      if (piece.id !== undefined) Object.assign(known, { id: piece.id, ids: known.ids + 1, name: piece.function.name });
      known.arguments += piece.function.arguments;
    }
  }
  return found;
}

const answer = text("done");

describe(`calls without a sound index ${verifies("CHAT-3", "CHAT-4", "CHAT-6")}`, () => {
  const guangzhou = { city: "广州" };
  const two: Readonly<Record<string, readonly (readonly Json[])[]>> = {
    "none at all, both calls in one delta": [
      [entry("a", "get_weather", JSON.stringify(beijing)), entry("b", "get_weather", JSON.stringify(guangzhou))],
    ],
    "none at all, in two deltas": [
      [entry("a", "get_weather", JSON.stringify(beijing))],
      [entry("b", "get_weather", JSON.stringify(guangzhou))],
    ],
    null: [
      [entry("a", "get_weather", '{"city":', { index: null })],
      [entry(undefined, undefined, '"北京"}', { index: null })],
      [entry("b", "get_weather", '{"city":"广州"}', { index: null })],
    ],
    "0 for both": [
      [entry("a", "get_weather", JSON.stringify(beijing), { index: 0 })],
      [entry("b", "get_weather", JSON.stringify(guangzhou), { index: 0 })],
    ],
    "as text": [
      [entry("a", "get_weather", JSON.stringify(beijing), { index: "0" })],
      [entry("b", "get_weather", JSON.stringify(guangzhou), { index: "1" })],
    ],
    "from 1": [
      [entry("a", "get_weather", '{"city":', { index: 1 })],
      [entry(undefined, undefined, '"北京"}', { index: 1 })],
      [entry("b", "get_weather", JSON.stringify(guangzhou), { index: 2 })],
    ],
    "far apart, and interleaved": [
      [entry("a", "get_weather", '{"city":', { index: 7 })],
      [entry("b", "get_weather", '{"city":', { index: 40 })],
      [entry(undefined, undefined, '"北京"}', { index: 7 }), entry(undefined, undefined, '"广州"}', { index: 40 })],
    ],
    "negative, and a fraction": [
      [entry("a", "get_weather", JSON.stringify(beijing), { index: -1 })],
      [entry("b", "get_weather", JSON.stringify(guangzhou), { index: 0.5 })],
    ],
    "neither index nor id": [
      [entry(undefined, "get_weather", JSON.stringify(beijing))],
      [entry(undefined, "get_weather", JSON.stringify(guangzhou))],
    ],
    "empty ids": [
      [entry("", "get_weather", JSON.stringify(beijing), { index: 0 })],
      [entry("", "get_weather", JSON.stringify(guangzhou), { index: 1 })],
    ],
    "the id with every piece": [
      [entry("a", "get_weather", '{"city":')],
      [entry("a", "get_weather", '"北京"}')],
      [entry("b", "get_weather", '{"city":"广州"}')],
    ],
    "ids that are numbers": [
      [entry(1 as unknown as string, "get_weather", JSON.stringify(beijing))],
      [entry(2 as unknown as string, "get_weather", JSON.stringify(guangzhou))],
    ],
  };

  test.each(Object.entries(two))(
    "%s: both run in order, and our own stream counts them 0 and 1",
    async (_name, deltas) => {
      const { events, finish } = await ask([streamed(deltas), answer]);
      expect(finish).toBe("stop");
      expect(runs()).toEqual([
        ["get_weather", beijing],
        ["get_weather", guangzhou],
      ]);
      expect(shown(events)).toMatchObject([
        { index: 0, ids: 1, name: "get_weather", arguments: '{"city":"北京"}' },
        { index: 1, ids: 1, name: "get_weather", arguments: '{"city":"广州"}' },
      ]);
      const { calls: sent, results } = told();
      expect(new Set(sent.map((call) => call.id)).size).toBe(2);
      expect(sent.every((call) => typeof call.id === "string" && call.id !== "")).toBe(true);
      expect(results.map((result) => result.tool_call_id)).toEqual(sent.map((call) => call.id));
    },
  );

  test.each(Object.entries(two))(
    "%s: the client's own tools reach it with whole indexes and ids",
    async (_name, deltas) => {
      const mine = deltas.map((list) =>
        list.map((one) => ({
          ...one,
          function: { ...one.function, ...(one.function.name === undefined ? {} : { name: "mine" }) },
        })),
      );
      const tools = [{ type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } }];
      const { events, finish } = await ask([streamed(mine)], { tools }, "/v1/chat/completions");
      expect(finish).toBe("tool_calls");
      expect(shown(events)).toMatchObject([
        { index: 0, ids: 1, name: "mine", arguments: '{"city":"北京"}' },
        { index: 1, ids: 1, name: "mine", arguments: '{"city":"广州"}' },
      ]);
      expect(new Set(shown(events).map((call) => call.id)).size).toBe(2);
      expect(runs()).toEqual([]);
    },
  );

  test("one call in pieces with a null index runs once", async () => {
    const pieces = [
      [entry("call_1", "get_weather", '{"city":', { index: null })],
      [entry(undefined, undefined, '"北京"}', { index: null })],
    ];
    const { events } = await ask([streamed(pieces), answer]);
    expect(runs()).toEqual([["get_weather", beijing]]);
    expect(shown(events)).toMatchObject([{ index: 0, arguments: '{"city":"北京"}' }]);
  });

  test("calls of several rounds are counted on", async () => {
    const round = (city: string): Round =>
      streamed([[entry("call_0", "get_weather", JSON.stringify({ city }), { index: 0 })]]);
    const { events } = await ask([round("北京"), round("广州"), answer]);
    expect(shown(events).map((call) => call.index)).toEqual([0, 1]);
    expect(new Set(shown(events).map((call) => call.id)).size).toBe(2);
  });
});

describe(`arguments that stand for nothing ${verifies("CHAT-3", "CHAT-4")}`, () => {
  const placeholders: Readonly<Record<string, readonly unknown[]>> = {
    "{} before the real ones": ["{}", '{"city":', '"北京"}'],
    "{} with spaces": [" { } ", '{"city":"北京"}'],
    "{} in two pieces": ["{", "}", '{"city":"北京"}'],
    "{} twice": ["{}", "{}", '{"city":"北京"}'],
    "an empty text": ["", '{"city":"北京"}', ""],
    null: [null, '{"city":"北京"}', null],
    "the word null": ["null", '{"city":"北京"}'],
    "an object": [{}, '{"city":"北京"}'],
    nothing: [undefined, '{"city":"北京"}'],
    "the whole as an object": [{ city: "北京" }],
    "spaces and line ends around": ["\n ", '{"city":"北京"}', " \n"],
    "{} in the same piece": ['{}{"city":"北京"}'],
  };

  test.each(Object.entries(placeholders))("%s: the call runs once with what is meant", async (_name, pieces) => {
    const deltas = pieces.map((piece, at) => [
      at === 0 ? entry("call_1", "get_weather", piece, { index: 0 }) : entry(undefined, undefined, piece, { index: 0 }),
    ]);
    const { events, finish } = await ask([streamed(deltas), answer]);
    expect(finish).toBe("stop");
    expect(runs()).toEqual([["get_weather", beijing]]);
    expect(JSON.parse(told().calls[0].function.arguments)).toEqual(beijing);
    expect(JSON.parse(shown(events)[0].arguments)).toEqual(beijing);
  });

  test.each([
    ["an empty text", ""],
    ["spaces", " \n"],
    ["{}", "{}"],
    ["{ }", "{ }"],
    ["null", null],
    ["the word null", "null"],
    ["an object", {}],
    ["none", undefined],
  ])("%s is the empty object, in a stream and whole", async (_name, given) => {
    for (const round of [
      streamed([[entry("call_2", "list_plugins", given, { index: 0 })]]),
      whole([entry("call_2", "list_plugins", given)]),
    ]) {
      backEnd.requests.length = 0;
      const { finish } = await ask([round, answer]);
      expect(finish).toBe("stop");
      expect(runs()).toEqual([["list_plugins", {}]]);
      expect(JSON.parse(told().calls[0].function.arguments)).toEqual({});
      expect(told().results[0].content).toBe('{"ok":true}');
    }
  });

  test("a tool that needs arguments is not run without them, and the model is told which", async () => {
    await ask([streamed([[entry("c", "get_weather", "", { index: 0 })]]), answer]);
    expect(runs()).toEqual([]);
    expect(JSON.parse(told().results[0].content).error).toMatchObject({ code: "invalid_arguments" });
    expect(told().results[0].content).toContain("city");
  });
});

describe(`a call that is sent twice ${verifies("CHAT-3", "CHAT-4", "CHAT-10")}`, () => {
  const order = '{"sku":"S1","qty":1}';
  const once: Readonly<Record<string, Round>> = {
    "under a second index": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", order, { index: 1 })],
    ]),
    "in the same delta": streamed([
      [entry("call_7", "create_order", order, { index: 0 }), entry("call_7", "create_order", order, { index: 1 })],
    ]),
    "under the same index": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", order, { index: 0 })],
    ]),
    "without an index": streamed([[entry("call_7", "create_order", order)], [entry("call_7", "create_order", order)]]),
    "three times": streamed([0, 1, 2].map((index) => [entry("call_7", "create_order", order, { index })])),
    "with other spaces": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", '{ "sku": "S1", "qty": 1 }', { index: 1 })],
    ]),
    "with its keys in another order": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", '{"qty":1,"sku":"S1"}', { index: 1 })],
    ]),
    "in pieces the second time": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", "", { index: 1 })],
      [entry(undefined, undefined, '{"sku":"S1",', { index: 1 })],
      [entry(undefined, undefined, '"qty":1}', { index: 1 })],
    ]),
    "first in pieces, then whole": streamed([
      [entry("call_7", "create_order", '{"sku":"S1",', { index: 0 })],
      [entry(undefined, undefined, '"qty":1}', { index: 0 })],
      [entry("call_7", "create_order", order, { index: 0 })],
    ]),
    "as an object the second time": streamed([
      [entry("call_7", "create_order", order, { index: 0 })],
      [entry("call_7", "create_order", { sku: "S1", qty: 1 }, { index: 1 })],
    ]),
    "in a whole answer": whole([entry("call_7", "create_order", order), entry("call_7", "create_order", order)]),
    "with the finish": {
      writes: [
        chunk({ role: "assistant", tool_calls: [entry("call_7", "create_order", order, { index: 0 })] }),
        chunk({ tool_calls: [entry("call_7", "create_order", order, { index: 0 })] }, "tool_calls"),
        done,
      ],
    },
    "after the finish": {
      writes: [
        chunk({ role: "assistant", tool_calls: [entry("call_7", "create_order", order, { index: 0 })] }),
        chunk({}, "tool_calls"),
        chunk({ tool_calls: [entry("call_7", "create_order", order, { index: 1 })] }, "tool_calls"),
        done,
      ],
    },
    "in the deprecated form as well": {
      writes: [
        chunk({
          role: "assistant",
          tool_calls: [entry("call_7", "create_order", order, { index: 0 })],
          function_call: { name: "create_order", arguments: order },
        }),
        chunk({}, "tool_calls"),
        done,
      ],
    },
  };

  test.each(Object.entries(once))("%s runs once and has one result", async (_name, round) => {
    const { finish, events } = await ask([round, answer]);
    expect(finish).toBe("stop");
    expect(runs()).toEqual([["create_order", { sku: "S1", qty: 1 }]]);
    expect(told().calls.map((call) => call.id)).toEqual(["call_7"]);
    expect(told().results.map((result) => result.tool_call_id)).toEqual(["call_7"]);
    expect(events.length > 1 ? shown(events) : told().calls).toHaveLength(1);
  });

  const twice: Readonly<Record<string, Round>> = {
    "two ids, equal arguments": streamed([
      [entry("a", "create_order", order, { index: 0 })],
      [entry("b", "create_order", order, { index: 1 })],
    ]),
    "two ids, equal arguments, whole": whole([entry("a", "create_order", order), entry("b", "create_order", order)]),
    "one id, other arguments": streamed([
      [entry("a", "create_order", order, { index: 0 })],
      [entry("a", "create_order", '{"sku":"S1","qty":2}', { index: 1 })],
    ]),
    "one id, other arguments, whole": whole([
      entry("a", "create_order", order),
      entry("a", "create_order", '{"sku":"S1","qty":2}'),
    ]),
    "one id, other arguments, no index": streamed([
      [entry("a", "create_order", order)],
      [entry("a", "create_order", '{"sku":"S1","qty":2}')],
    ]),
    "one id, another tool": streamed([
      [entry("a", "create_order", order, { index: 0 })],
      [entry("a", "list_plugins", "{}", { index: 1 })],
    ]),
    "one id, another tool, whole": whole([entry("a", "create_order", order), entry("a", "list_plugins", "{}")]),
  };

  test.each(Object.entries(twice))(
    "%s are two calls, each with an id and a result of its own",
    async (_name, round) => {
      await ask([round, answer]);
      expect(runs()).toHaveLength(2);
      const { calls: sent, results } = told();
      expect(new Set(sent.map((call) => call.id)).size).toBe(2);
      expect(results.map((result) => result.tool_call_id)).toEqual(sent.map((call) => call.id));
    },
  );

  test("too deep to be written again, it is one that does not run", async () => {
    const deep = `{"sku":${"[".repeat(20_000)}${"]".repeat(20_000)}}`;
    await ask([streamed([0, 1].map((index) => [entry("call_7", "create_order", deep, { index })])), answer]);
    expect(runs()).toEqual([]);
    expect(told().results.map(({ content }) => JSON.parse(content).error.code)).toEqual(["invalid_arguments"]);
  });

  test("the same id in the next round is another call", async () => {
    const round = streamed([[entry("call_0", "create_order", order, { index: 0 })]]);
    const { finish } = await ask([round, round, answer]);
    expect(finish).toBe("stop");
    expect(runs()).toHaveLength(2);
    expect(told(2).results).toHaveLength(1);
  });

  test("the client's own call sent twice reaches it once", async () => {
    const tools = [{ type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } }];
    for (const round of [
      streamed([[entry("c", "mine", order, { index: 0 })], [entry("c", "mine", order, { index: 1 })]]),
      whole([entry("c", "mine", order), entry("c", "mine", order)]),
    ]) {
      const { events } = await ask([round], { tools }, "/v1/chat/completions");
      const got = events.length > 1 ? shown(events) : events[0].choices[0].message.tool_calls;
      expect(got).toHaveLength(1);
    }
  });
});

describe(`calls that are not whole ${verifies("CHAT-3", "CHAT-9", "CHAT-18")}`, () => {
  const report = '{"path":"report.md","content":"# Title\\nfirst line\\nsecond li';
  const session = { session_id: "report-1" };

  async function reportText(): Promise<string> {
    return (await tenant.client.send("get", "/v1/sessions/report-1/files/report.md")).text;
  }

  beforeEach(async () => {
    await tenant.client.expect("put", "/v1/sessions/report-1/files/report.md", undefined, {
      raw: "complete old text",
      headers: { "content-type": "text/plain" },
    });
  });

  const cutRounds: Readonly<Record<string, Round>> = {
    "in the middle of the arguments": streamed([[entry("call_1", "write_file", report, { index: 0 })]], "length"),
    "in the middle of the arguments, whole": whole([entry("call_1", "write_file", report)], "length"),
    "after complete arguments": streamed([[entry("call_1", "write_file", `${report}"}`, { index: 0 })]], "length"),
    "after complete arguments, whole": whole([entry("call_1", "write_file", `${report}"}`)], "length"),
    "in a second call": streamed(
      [
        [entry("call_1", "write_file", `${report}"}`, { index: 0 })],
        [entry("call_2", "create_order", '{"sku":"S', { index: 1 })],
      ],
      "length",
    ),
    "in a second call, whole": whole(
      [entry("call_1", "write_file", `${report}"}`), entry("call_2", "create_order", '{"sku":"S')],
      "length",
    ),
    "before the arguments": streamed([[entry("call_1", "list_plugins", "", { index: 0 })]], "length"),
    "in a name": streamed([[entry("call_1", "list_plug", "", { index: 0 })]], "length"),
  };

  test.each(Object.entries(cutRounds))(
    "%s, the token limit cuts: nothing runs, and the client is told so",
    async (_name, round) => {
      for (const path of ["/api/chat/completions", "/v1/chat/completions"]) {
        const { finish, status } = await ask([round, text("never")], session, path);
        expect([status, finish]).toEqual([200, "length"]);
        expect(llm.requests).toHaveLength(1);
      }
      expect(runs()).toEqual([]);
      expect(await reportText()).toBe("complete old text");
    },
  );

  test.each([
    ["max_tokens", "length"],
    ["MAX_TOKENS", "length"],
    ["model_length", "length"],
    ["content_filter", "content_filter"],
    ["sensitive", "content_filter"],
  ])("a back end that says %s means that it was cut", async (reason, finish) => {
    const call = [entry("call_1", "write_file", `${report}"}`, { index: 0 })];
    for (const round of [streamed([call], reason), whole(call, reason)]) {
      expect((await ask([round, text("never")], session)).finish).toBe(finish);
      expect(llm.requests).toHaveLength(1);
    }
    expect(await reportText()).toBe("complete old text");
  });

  test.each(["network_error", "insufficient_system_resource", "error"])(
    "a back end that says %s has failed: a stream ends with an error, a whole answer is asked for again",
    async (reason) => {
      const call = [entry("call_1", "write_file", `${report}"}`, { index: 0 })];
      const { error, finish } = await ask([streamed([call], reason), text("never")], session);
      expect([error?.code, finish]).toEqual(["provider_stream_incomplete", undefined]);
      const again = await ask([whole(call, reason), text("better")], session);
      expect(again.events[0].choices[0].message.content).toBe("better");
      expect(await reportText()).toBe("complete old text");
    },
  );

  const unreadable: Readonly<Record<string, string>> = {
    cut: report,
    "a brace missing": `${report}"`,
    "a brace too many": `${report}"}}`,
    "a comma at the end": '{"path":"report.md","content":"x",}',
    "single quotes": "{'path':'report.md','content':'x'}",
    "a comment": '{"path":"report.md",/* new */"content":"x"}',
    "names without quotes": '{path:"report.md",content:"x"}',
    "a line end inside a text": '{"path":"report.md","content":"a\nb"}',
    "a code fence": '```json\n{"path":"report.md","content":"x"}\n```',
    "a list": '["report.md","x"]',
    "a text": '"report.md"',
    "a number": "7",
    true: "true",
    "text after": `${report}"} and that is it`,
    "two objects": `${report}"}{"path":"report.md","content":"y"}`,
    NaN: '{"path":"report.md","content":NaN}',
    "more depth than can be written again": `{"path":"report.md","content":${"[".repeat(20_000)}${"]".repeat(20_000)}}`,
  };

  test.each(Object.entries(unreadable))(
    "arguments with %s do not run whatever the finish_reason; the model is told",
    async (_name, args) => {
      for (const reason of ["tool_calls", "stop"]) {
        const call = [entry("call_1", "write_file", args, { index: 0 })];
        for (const round of [streamed([call], reason), whole(call, reason)]) {
          expect((await ask([round, answer], session)).finish).toBe("stop");
          expect(JSON.parse(told().results[0].content).error.code).toBe("invalid_arguments");
        }
      }
      expect(await reportText()).toBe("complete old text");
    },
  );

  test("a number of more digits than a double holds runs with all of them", async () => {
    const args = '{"sku":"S1","qty":12345678901234567891}';
    await ask([streamed([[entry("c", "create_order", args, { index: 0 })]]), answer]);
    expect(backEnd.requests.map(({ body }) => body.toString())).toEqual([args]);
  });

  test("a good call beside a bad one runs, and each has its result", async () => {
    await ask([
      streamed([
        [entry("a", "create_order", '{"sku":"S', { index: 0 })],
        [entry("b", "create_order", '{"sku":"S2","qty":1}', { index: 1 })],
      ]),
      answer,
    ]);
    expect(runs()).toEqual([["create_order", { sku: "S2", qty: 1 }]]);
    expect(told().results.map((result) => result.tool_call_id)).toEqual(["a", "b"]);
    expect(JSON.parse(told().results[0].content).error.code).toBe("invalid_arguments");
  });

  test.each([
    "no_such_tool",
    "create_order ",
    "create-order",
    "Create_Order",
    "functions.create_order",
    "__proto__",
    "constructor",
    "../create_order",
    "plugin://create_order",
    "native://write_file",
    "write_file",
    "fetch",
    "x".repeat(5_000),
  ])("the name %s, which the model was not told of, runs nothing", async (name) => {
    for (const round of [
      streamed([[entry("a", name, '{"sku":"S","qty":1}', { index: 0 })]]),
      whole([entry("a", name, '{"sku":"S","qty":1}')]),
    ]) {
      const { finish, events } = await ask([round, answer]);
      expect([finish, JSON.parse(told().results[0].content).error.code]).toEqual(["stop", "tool_not_found"]);
      expect(events.find((event) => event.tool_execution !== undefined)).toBeUndefined();
    }
    expect(runs()).toEqual([]);
  });

  test("where the client brings a tool of its own by that name, the gateway's cannot be reached by its address", async () => {
    const tools = [
      { type: "function", function: { name: "create_order", parameters: { type: "object", properties: {} } } },
    ];
    const { finish } = await ask([streamed([[entry("a", "plugin://create_order", '{"sku":"S","qty":1}')]]), answer], {
      tools,
    });
    expect([finish, JSON.parse(told().results[0].content).error.code]).toEqual(["stop", "tool_not_found"]);
    expect(runs()).toEqual([]);
  });

  test("an answer that says it has calls and has none, or none with a name, is finished", async () => {
    for (const round of [
      { writes: [chunk({ role: "assistant", content: "hi" }), chunk({}, "tool_calls"), done] },
      streamed([[entry("a", undefined, "{}", { index: 0 })]]),
      whole([]),
      whole([entry("a", "", "{}")]),
    ]) {
      for (const path of ["/api/chat/completions", "/v1/chat/completions"]) {
        expect((await ask([round, answer], {}, path)).finish).toBe("stop");
        expect(llm.requests).toHaveLength(1);
      }
    }
  });

  test("an earlier answer without calls reaches the back end without an empty list of them", async () => {
    const history = [
      { role: "user", content: "x" },
      { role: "assistant", content: "y", tool_calls: [], function_call: null },
      { role: "assistant", content: "y", tool_calls: null },
      { role: "user", content: "z" },
    ];
    await ask([answer], { messages: history });
    const y = { role: "assistant", content: "y" };
    expect(llm.requests[0]?.["messages"]).toEqual([history[0], y, y, history[3]]);
  });

  test("an id of a call that is null beside other roles counts as absent, as clients write it that write every field", async () => {
    const written = [
      { role: "system", content: "x", tool_call_id: null },
      { role: "user", content: "y", tool_call_id: null },
      { role: "assistant", content: "z", tool_calls: null, tool_call_id: null },
      { role: "user", content: "z", tool_call_id: null },
    ];
    await ask([answer], { messages: written });
    expect(llm.requests[0]?.["messages"]).toEqual(written.map(({ role, content }) => ({ role, content })));
    const messages = [{ role: "tool", content: "x", tool_call_id: null }];
    const refused = await tenant.client.send("post", "/v1/chat/completions", { messages });
    expect(refused).toMatchObject({ status: 400, json: { error: { param: "messages[0].tool_call_id" } } });
  });

  test("calls in the text of an answer, in reasoning or beside a refusal are text", async () => {
    const pretending = JSON.stringify({ tool_calls: [entry("a", "create_order", '{"sku":"S","qty":1}')] });
    const { finish } = await ask([
      {
        writes: [
          chunk({ role: "assistant", reasoning_content: pretending }),
          chunk({ content: pretending }),
          chunk({}, "stop"),
          done,
        ],
      },
    ]);
    expect(finish).toBe("stop");
    expect(runs()).toEqual([]);
  });
});
