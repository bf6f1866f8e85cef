import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import type { ProviderEvent } from "./provider.ts";
import { createScriptedProvider, scriptedModel } from "./scripted.ts";

const provider = createScriptedProvider();

function tool(name: string): JsonObject {
  return { type: "function", function: { name, description: "", parameters: { type: "object", properties: {} } } };
}

async function ask(body: JsonObject, signal: AbortSignal = new AbortController().signal): Promise<ProviderEvent[]> {
  const events: ProviderEvent[] = [];
  const record = {
    id: "scripted",
    name: "toolyard",
    kind: "scripted",
    baseUrl: "",
    credential: null,
    models: {},
    passthroughModels: true,
    schemaFamily: null,
    priority: 0,
    enabled: true,
    maxAttempts: 1,
    timeoutMs: 1_000,
  };
  for await (const batch of provider.stream({ body, stream: true, signal, apiKey: undefined, provider: record }))
    events.push(...batch);
  return events;
}

function messageOf(events: readonly ProviderEvent[]): Extract<ProviderEvent, { type: "message" }> {
  const message = events.find((event) => event.type === "message");
  if (message?.type !== "message") throw new Error("no message");
  return message;
}

/** What a prompt makes the provider call. */
async function callsFor(
  prompt: unknown,
  tools: readonly string[],
  more: JsonObject = {},
): Promise<(readonly [string, string])[]> {
  const content = prompt as string;
  const events = await ask({ messages: [{ role: "user", content }], tools: tools.map(tool), ...more });
  return messageOf(events).toolCalls.map((call) => [call.name, call.arguments] as const);
}

describe(`the scripted provider ${verifies("CHAT-1", "CHAT-3")}`, () => {
  test.each([
    [
      'Call search_company_basic with {"keyword":"x"}',
      ["search_company_basic"],
      [["search_company_basic", '{"keyword":"x"}']],
    ],
    [
      '请调用search_company_basic,参数{"keyword":"腾讯"}。',
      ["search_company_basic"],
      [["search_company_basic", '{"keyword":"腾讯"}']],
    ],
    ['用 {"a":1} 调用 add', ["add"], [["add", '{"a":1}']]],
    [
      'Call add with {"a":1}\nthen add with {"a":2}\nand mul {"b":{"c":"}"}}',
      ["add", "mul"],
      [
        ["add", '{"a":1}'],
        ["add", '{"a":2}'],
        ["mul", '{"b":{"c":"}"}}'],
      ],
    ],
    ["Please call list_files", ["list_files"], [["list_files", "{}"]]],
    ["Call `fetch` now", ["fetch"], [["fetch", "{}"]]],
    ["使用工具:fetch", ["fetch"], [["fetch", "{}"]]],
    ["Please fetch the news", ["fetch"], []],
    ["search_company is not search_company_basic_2", ["search_company_basic"], []],
    ['Use add {"a":1}. The tool add is good.', ["add"], [["add", '{"a":1}']]],
    [
      'Call write with {"text":"then call read with {\\"x\\":1}"}',
      ["write", "read"],
      [["write", '{"text":"then call read with {\\"x\\":1}"}']],
    ],
    ['Call add with\n{\n  "a": 1\n}', ["add"], [["add", '{\n  "a": 1\n}']]],
    ["Call add with {not json}", ["add"], [["add", "{}"]]],
    ["Hello", ["add"], []],
    [[{ type: "text", text: 'Call add {"a":1}' }], ["add"], [["add", '{"a":1}']]],
  ])("calls what the prompt %j names", async (prompt, tools, expected) => {
    expect(await callsFor(prompt, tools)).toEqual(expected);
  });

  test("follows tool_choice", async () => {
    expect(await callsFor("Call list_files", ["list_files"], { tool_choice: "none" })).toEqual([]);
    expect(await callsFor("Hello", ["add", "mul"], { tool_choice: "required" })).toEqual([["add", "{}"]]);
    const named = { tool_choice: { type: "function", function: { name: "mul" } } };
    expect(await callsFor('With {"b":1}, please', ["add", "mul"], named)).toEqual([["mul", '{"b":1}']]);
  });

  test("says that it is no language model and what it can call, in the language of the prompt", async () => {
    const english = messageOf(
      await ask({ messages: [{ role: "user", content: "Hi" }], tools: [tool("add"), tool("mul")] }),
    );
    expect(english.message["content"]).toMatch(/not a language model.*Available tools: add, mul\./);
    const chinese = messageOf(await ask({ messages: [{ role: "user", content: "你好" }] }));
    expect(chinese.message["content"]).toMatch(/不是语言模型.*没有可用的工具/);
    expect(english.finishReason).toBe("stop");
  });

  test("quotes what the tools returned, with their names", async () => {
    const conversation: JsonObject[] = [
      { role: "user", content: 'Call add with {"a":1}' },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "c1", content: '{"sum":42}' },
    ];
    const events = await ask({ messages: conversation, tools: [tool("add")] });
    const { message, toolCalls } = messageOf(events);
    expect(message["content"]).toContain('The tool add returned: {"sum":42}');
    expect(message["content"]).toContain("not a language model");
    expect(toolCalls).toEqual([]);
    const next = await ask({
      messages: [...conversation, { role: "assistant", content: "ok" }, { role: "user", content: "Call add {}" }],
      tools: [tool("add")],
    });
    expect(messageOf(next).toolCalls.map((call) => call.id)).toEqual(["call_scripted_2"]);
  });

  test("streams word by word and adds up", async () => {
    const events = await ask({ messages: [{ role: "user", content: "Hi" }] });
    const words = events.flatMap((event) => (event.type === "text-delta" ? [event.text] : []));
    expect(words.length).toBeGreaterThan(10);
    expect(words.join("")).toBe(messageOf(events).message["content"]);
    expect(events[0]).toMatchObject({ type: "start", model: scriptedModel });
  });

  test("answers the same request in the same way, usage included", async () => {
    const body: JsonObject = {
      model: "toolyard/scripted",
      messages: [{ role: "user", content: 'Call add {"a":1}' }],
      tools: [tool("add")],
    };
    const strip = (events: readonly ProviderEvent[]): unknown[] => events.map((event) => ({ ...event, created: 0 }));
    const first = await ask(body);
    expect(strip(await ask(structuredClone(body)))).toEqual(strip(first));
    const usage = first.find((event) => event.type === "usage");
    expect(usage).toMatchObject({ usage: { completion_tokens: Math.ceil('add{"a":1}'.length / 4) } });
  });

  test("stops when the client leaves", async () => {
    const controller = new AbortController();
    controller.abort();
    await expect(ask({ messages: [{ role: "user", content: "Hi" }] }, controller.signal)).rejects.toMatchObject({
      code: "request_cancelled",
    });
  });

  test("takes hostile prompts in reasonable time", async () => {
    const dashed = `a${"-".repeat(1_000_000)}b`;
    for (const prompt of [
      "{".repeat(60_000),
      '{"a":'.repeat(12_000),
      "-".repeat(60_000),
      dashed,
      "add ".repeat(15_000),
    ]) {
      expect(await callsFor(prompt, ["add"])).toEqual([]);
    }
  });
});
