/**
 * The built-in provider `toolyard/scripted`: no language model, and it says so. It calls the tool that
 * the last prompt names, with the JSON given there, and quotes what came back, so that a newcomer sees
 * a real tool call before signing up for anything. The same request always gets the same answer.
 */
import { createHash } from "node:crypto";
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { isOfPictures } from "../pictures.ts";
import type { AssembledToolCall, ChatProvider, ProviderEvent, ProviderRequest } from "./provider.ts";

export const scriptedModel = "toolyard/scripted";

export function createScriptedProvider(): ChatProvider {
  return { stream: answer, listModels: () => Promise.resolve([scriptedModel]) };
}

/** Of a prompt, what is searched for calls; of a result, what is quoted. */
const promptLength = 65_536;
const quoteLength = 4_000;

/** JSON objects looked for in one prompt, and how long one may be. */
const maximumObjects = 200;
const objectLength = 16_384;

async function* answer(request: ProviderRequest): AsyncGenerator<readonly ProviderEvent[], void, void> {
  const { body, signal } = request;
  const messages = Array.isArray(body["messages"]) ? body["messages"].filter(isJsonObject) : [];
  const { text, calls } = decide(messages, toolNames(body["tools"]), body["tool_choice"]);
  yield [
    {
      type: "start",
      id: `chatcmpl-${createHash("sha256").update(canonicalJson(body)).digest("hex").slice(0, 24)}`,
      model: scriptedModel,
      created: Math.floor(Date.now() / 1_000),
    },
  ];
  for (const word of text.match(/\S+\s*|\s+/g) ?? []) {
    // One turn of the event loop a word, as from a socket.
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (signal.aborted) throw cancelled(signal);
    yield [{ type: "text-delta", text: word, choice: 0 }];
  }
  const end: ProviderEvent[] = calls.map((call, index) => {
    return { type: "tool-call-delta", index, id: call.id, name: call.name, arguments: call.arguments, choice: 0 };
  });
  end.push({
    type: "message",
    choice: 0,
    message: {
      role: "assistant",
      content: calls.length > 0 ? null : text,
      ...(calls.length === 0 ? {} : { tool_calls: calls.map(toWire) }),
    },
    toolCalls: calls,
    finishReason: calls.length > 0 ? "tool_calls" : "stop",
  });
  const prompt = tokens(canonicalJson([body["messages"] ?? null, body["tools"] ?? null]));
  const completion = tokens(text + calls.map((call) => call.name + call.arguments).join(""));
  const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
  end.push({ type: "usage", usage });
  yield end;
}

interface Reply {
  readonly text: string;
  readonly calls: readonly AssembledToolCall[];
}

function decide(messages: readonly JsonObject[], tools: readonly string[], choice: JsonValue | undefined): Reply {
  const asked = messages.findLastIndex((message) => message["role"] === "user" && !isOfPictures(message));
  const prompt = textOf(messages[asked]?.["content"]).slice(0, promptLength);
  const words = /\p{Script=Han}/u.test(prompt) ? chinese : english;
  const results = messages.slice(asked + 1).filter((message) => message["role"] === "tool");
  if (results.length > 0) return { text: quoteResults(messages, results, words), calls: [] };
  const wanted = choice === "none" ? [] : callsFor(prompt, tools, choice);
  if (wanted.length > 0) {
    const before = messages.filter((message) => message["role"] === "tool").length;
    return {
      text: "",
      calls: wanted.map((call, at) => ({ ...call, id: `call_scripted_${before + at + 1}`, extra: {} })),
    };
  }
  return { text: `${words.who} ${tools.length === 0 ? words.noTools : words.howTo(tools)}`, calls: [] };
}

interface Words {
  readonly who: string;
  readonly noTools: string;
  readonly howTo: (tools: readonly string[]) => string;
  readonly result: (tool: string) => string;
}

const english: Words = {
  who: "This is Toolyard's scripted provider, not a language model; set OPENAI_BASE_URL or add a provider to get one.",
  noTools: "No tools are available to this request.",
  howTo: (tools) =>
    `Available tools: ${tools.join(", ")}. Write, for example: Call ${tools[0] ?? ""} with {"key": "value"}`,
  result: (tool) => `The tool ${tool} returned:`,
};

const chinese: Words = {
  who: "我是 Toolyard 的脚本应答器(scripted provider),不是语言模型;设置 OPENAI_BASE_URL 或添加 provider 即可接入真实模型。",
  noTools: "本次请求没有可用的工具。",
  howTo: (tools) => `可用工具:${tools.join("、")}。例如:调用 ${tools[0] ?? ""} {"key": "value"}`,
  result: (tool) => `工具 ${tool} 返回:`,
};

function quoteResults(messages: readonly JsonObject[], results: readonly JsonObject[], words: Words): string {
  const names = new Map<JsonValue, string>();
  for (const message of messages) {
    for (const call of Array.isArray(message["tool_calls"]) ? message["tool_calls"] : []) {
      if (!isJsonObject(call) || !isJsonObject(call["function"])) continue;
      const { name } = call["function"];
      if (call["id"] !== undefined && typeof name === "string") names.set(call["id"], name);
    }
  }
  const quotes = results.map((result) => {
    const text = textOf(result["content"]);
    const shown = text.length > quoteLength ? `${text.slice(0, quoteLength)} …` : text;
    return `${words.result(names.get(result["tool_call_id"] ?? null) ?? "?")} ${shown}`;
  });
  return [words.who, ...quotes].join("\n\n");
}

// What does the prompt ask for?

type Wanted = Pick<AssembledToolCall, "name" | "arguments">;

/** In a prompt, in order: a tool's name, or a JSON object. */
type Found =
  | { readonly kind: "name"; readonly name: string; readonly line: number; readonly isOrder: boolean }
  | { readonly kind: "json"; readonly json: string; readonly line: number };

function callsFor(prompt: string, tools: readonly string[], choice: JsonValue | undefined): Wanted[] {
  const found = search(prompt, tools);
  const wanted = pairUp(found);
  if (wanted.length > 0) return wanted;
  const forced = isJsonObject(choice) && isJsonObject(choice["function"]) ? choice["function"]["name"] : undefined;
  const name = typeof forced === "string" ? forced : choice === "required" ? tools[0] : undefined;
  if (name === undefined) return [];
  const json = found.find((part) => part.kind === "json");
  return [{ name, arguments: json?.json ?? "{}" }];
}

/** Each name takes the object after it, or the one before it on its line; without one it has to be an order. */
function pairUp(found: readonly Found[]): Wanted[] {
  const wanted: Wanted[] = [];
  const bare: { readonly name: string; readonly at: number }[] = [];
  let spare: Found | undefined;
  for (const [at, part] of found.entries()) {
    if (part.kind === "json") {
      if (found[at - 1]?.kind !== "name") spare = part;
      continue;
    }
    const next = found[at + 1];
    if (next?.kind === "json") wanted.push({ name: part.name, arguments: next.json });
    else if (spare?.kind === "json" && spare.line === part.line) {
      wanted.push({ name: part.name, arguments: spare.json });
      spare = undefined;
    } else if (part.isOrder) bare.push({ name: part.name, at: wanted.length });
  }
  for (const { name, at } of bare.toReversed()) {
    if (!wanted.some((call) => call.name === name)) wanted.splice(at, 0, { name, arguments: "{}" });
  }
  return wanted;
}

function search(prompt: string, tools: readonly string[]): Found[] {
  const names = new Set(tools);
  const found: Found[] = [];
  let objects = 0;
  let line = 0;
  let at = 0;
  while (at < prompt.length) {
    const character = prompt.charAt(at);
    if (character === "\n") line += 1;
    if (character === "{" && objects < maximumObjects) {
      objects += 1;
      const json = objectAt(prompt, at);
      if (json !== undefined) {
        found.push({ kind: "json", json, line });
        at += json.length;
        line += json.split("\n").length - 1;
        continue;
      }
    }
    const word = wordAt(prompt, at);
    const name = trimmedName(word, names);
    if (name !== undefined)
      found.push({ kind: "name", name, line, isOrder: isOrder(prompt.slice(Math.max(0, at - 40), at), name) });
    at += Math.max(word.length, 1);
  }
  return found;
}

const nameCharacters = /[A-Za-z0-9_-]+/y;

function wordAt(text: string, at: number): string {
  nameCharacters.lastIndex = at;
  return nameCharacters.exec(text)?.[0] ?? "";
}

/** Dashes at the end belong to the sentence, unless they are the name's. */
function trimmedName(word: string, names: ReadonlySet<string>): string | undefined {
  if (names.has(word)) return word;
  const trimmed = word.replace(/^-+|(?<!-)-+$/g, "");
  return names.has(trimmed) ? trimmed : undefined;
}

/** 调用, 使用, 运行, 执行 and 工具 mean the same as the English ones. */
const verbs = "call|use|using|run|invoke|execute|the tool|调用|使用|运行|执行|工具";
const order = new RegExp(`(?:${verbs})[\\s:：\`'"“「]*$`, "i");

/** An ordinary word that is also a tool's name has to follow a verb; a name with marks in it stands for the tool. */
function isOrder(before: string, name: string): boolean {
  return /[_\-0-9]/.test(name) || order.test(before);
}

/** The JSON object that begins here. */
function objectAt(text: string, start: number): string | undefined {
  let depth = 0;
  let inString = false;
  const limit = Math.min(text.length, start + objectLength);
  for (let at = start; at < limit; at += 1) {
    const character = text.charAt(at);
    if (inString) {
      if (character === "\\") at += 1;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === "{") depth += 1;
    else if (character === "}") depth -= 1;
    if (depth > 0) continue;
    const json = text.slice(start, at + 1);
    return isJsonObject(parseJson(json)) ? json : undefined;
  }
  return undefined;
}

function toolNames(tools: JsonValue | undefined): string[] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool) => {
    const described = isJsonObject(tool) ? tool["function"] : undefined;
    const name = isJsonObject(described) ? described["name"] : undefined;
    return typeof name === "string" ? [name] : [];
  });
}

function textOf(content: JsonValue | undefined): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  const texts = content.map((part) => (isJsonObject(part) && typeof part["text"] === "string" ? part["text"] : ""));
  return texts.filter((text) => text !== "").join("\n");
}

function toWire(call: AssembledToolCall): JsonObject {
  return { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } };
}

/** A round figure that depends on nothing but the text. */
function tokens(text: string): number {
  return Math.ceil(text.length / 4);
}

function cancelled(signal: AbortSignal): GatewayError {
  if (signal.reason instanceof GatewayError) return signal.reason;
  return new GatewayError("request_cancelled", "The request was cancelled.");
}
