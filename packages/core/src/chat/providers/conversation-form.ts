/**
 * Conversations as the models of some families take them; the others take them as they are. Calls in a conversation
 * come from elsewhere, too: from another back end, with which it began, or from us, who tell of late results. What
 * does not stand in the one order of a family makes its servers refuse the whole request, and each one after it.
 * Nothing has to be translated back.
 */
import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { SchemaFamily } from "../../tools/schema-projection.ts";

const mistrals = /mistral|ministral|mixtral|magistral|codestral|devstral|pixtral|voxtral/i;

/** @param model the back end's own name of it */
export function conversationFor(
  { model, family }: { readonly model: string; readonly family: SchemaFamily },
  messages: JsonValue | undefined,
): JsonValue | undefined {
  if (!Array.isArray(messages)) return messages;
  if (mistrals.test(model)) return withReplies(messages.map(withShortIds));
  return family === "gemini" ? withCallsInReplies(messages) : messages;
}

/** The very same where no message says what was thought. */
export function leaveOutReasoning(messages: JsonValue | undefined): JsonValue | undefined {
  if (!Array.isArray(messages) || !messages.some(isThoughtful)) return messages;
  return messages.map((message) => {
    if (!isThoughtful(message)) return message;
    const { reasoning_content: _content, reasoning: _reasoning, reasoning_details: _details, ...rest } = message;
    return rest;
  });
}

function isThoughtful(message: JsonValue): message is JsonObject {
  if (!isJsonObject(message) || message["role"] !== "assistant") return false;
  return ["reasoning_content", "reasoning", "reasoning_details"].some((field) => Object.hasOwn(message, field));
}

/** Mistral's want a word of the assistant between results and whoever speaks next. */
function withReplies(messages: readonly JsonValue[]): JsonValue[] {
  return messages.flatMap((message, at) => {
    const role = roleOf(message);
    const isNext = roleOf(messages[at - 1]) === "tool" && role !== "tool" && role !== "assistant";
    return isNext ? [{ role: "assistant", content: "OK." }, message] : [message];
  });
}

/** Gemini's want calls right behind what they answer: text before them stands with them. */
function withCallsInReplies(messages: readonly JsonValue[]): JsonValue[] {
  const form: JsonValue[] = [];
  for (const message of messages) {
    const before = form.at(-1);
    if (isJsonObject(message) && isJsonObject(before) && saysNothingBut(message) && isText(before))
      form.splice(-1, 1, { ...before, ...message, content: before["content"] ?? null });
    else form.push(message);
  }
  return form;
}

function saysNothingBut({ role, content = null, tool_calls: calls }: JsonObject): boolean {
  return role === "assistant" && calls !== undefined && (content === null || content === "");
}

function isText({ role, tool_calls: calls }: JsonObject): boolean {
  return role === "assistant" && calls === undefined;
}

function roleOf(message: JsonValue | undefined): JsonValue | undefined {
  return isJsonObject(message) ? message["role"] : undefined;
}

/** Of Mistral's an id has nine letters and digits; it stands for nothing but its call. */
const mistralsId = /^[a-zA-Z0-9]{9}$/;

function withShortIds(message: JsonValue): JsonValue {
  if (!isJsonObject(message)) return message;
  const { tool_calls: calls, tool_call_id: id } = message;
  const named = shortId(id);
  const called = Array.isArray(calls) ? calls.map((call) => (isJsonObject(call) ? renamed(call) : call)) : undefined;
  if (named === undefined && called === undefined) return message;
  return {
    ...message,
    ...(called === undefined ? {} : { tool_calls: called }),
    ...(named === undefined ? {} : { tool_call_id: named }),
  };
}

function renamed(call: JsonObject): JsonObject {
  const id = shortId(call["id"]);
  return id === undefined ? call : { ...call, id };
}

/** The same for the same id, so that calls and results stay together and prompts are found in a cache. */
function shortId(id: JsonValue | undefined): string | undefined {
  if (typeof id !== "string" || mistralsId.test(id)) return undefined;
  return BigInt(`0x${createHash("sha256").update(id).digest("hex")}`)
    .toString(36)
    .slice(0, 9);
}
