/**
 * What a conversation says to the loop before the first word of the model: the off switch in its system messages,
 * and the summaries in answers that come back as history. And what of it a tool may ask for (`river`).
 */
import { tokensOfPrompt } from "../../budgets/estimate.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { isOfSystem, mapText, textOf } from "../message-text.ts";
import { withoutSummaries } from "./messages.ts";

const offSwitch = "[[VCPToolUse=Forbidden]]";

export interface ReadConversation {
  readonly messages: readonly JsonObject[];
  /** Nothing that the model writes is a request. */
  readonly isForbidden: boolean;
}

/** The off switch counts in the messages of the system, or of developers, that the conversation begins with; elsewhere it is text. */
export function readConversation(given: readonly JsonObject[]): ReadConversation {
  const end = given.findIndex((message) => !isOfSystem(message));
  const leading = end < 0 ? given.length : end;
  let isForbidden = false;
  const messages = given.map((message, at) => {
    if (at < leading) {
      const rest = mapText(message, (text) => text.replaceAll(offSwitch, ""));
      if (rest !== message) isForbidden = true;
      return rest;
    }
    return message["role"] === "assistant" ? mapText(message, withoutSummaries) : message;
  });
  return { messages, isForbidden };
}

const systemsHint = "[系统提示:]";
/** The question, and what it answers. */
const newestKept = 2;

/**
 * The conversation without its oldest messages, as many as bring it down to so many tokens. What the system says, the
 * newest, and calls with their results stay.
 */
export function withinTokens(messages: readonly JsonObject[], most: number): readonly JsonObject[] {
  let tokens = tokensOfPrompt(messages);
  if (tokens <= most) return messages;
  const newest = messages.length - newestKept;
  return messages.filter((message, at) => {
    if (tokens <= most || at >= newest || !mayBeLeftOut(message)) return true;
    tokens -= tokensOfPrompt([message]);
    return false;
  });
}

function mayBeLeftOut(message: JsonObject): boolean {
  const { role, tool_calls: calls } = message;
  if (role === "assistant") return calls === undefined;
  return role === "user" && !textOf(message).startsWith(systemsHint);
}

const someMessages = 10;
const nearestMessages = 5;

/**
 * The messages for a tool that asks for them: `full` as they are, `text` without pictures and the like, `last:N` the
 * last N of these. `semantic:N` is the last N: nothing here says which are near.
 */
export function riverOf(messages: readonly JsonObject[], river: string): JsonValue[] | undefined {
  if (river === "full") return structuredClone(messages) as JsonValue[];
  const [kind, count] = river.split(":");
  const texts = messages.map((message) => ({ role: message["role"] ?? "", content: textOf(message) }));
  if (river === "text") return texts;
  if (kind !== "last" && kind !== "semantic") return undefined;
  const wanted = Number.parseInt(count ?? "", 10);
  const most = wanted > 0 ? wanted : kind === "last" ? someMessages : nearestMessages;
  return texts.slice(-most);
}
