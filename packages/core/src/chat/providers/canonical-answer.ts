/**
 * Is a whole answer just what we would write ourselves? Then its bytes go to the client as they came
 * (design "original bytes forwarded where nothing changes"). Strict: whatever is unusual is written anew.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

export function isCanonicalAnswer(body: JsonObject): boolean {
  const { id, object, created, model, choices, usage, system_fingerprint: fingerprint } = body;
  return (
    isText(id) &&
    isText(model) &&
    object === "chat.completion" &&
    isCount(created) &&
    created > 0 &&
    Array.isArray(choices) &&
    choices.length > 0 &&
    choices.every(isCanonicalChoice) &&
    (usage === undefined || isCanonicalUsage(usage)) &&
    (fingerprint === undefined || fingerprint === null || typeof fingerprint === "string")
  );
}

/** Calls of tools get ids of our own, so an answer that holds any is never sent as it came. */
const rewritten = ["tool_calls", "function_call"] as const;
const reasonsOfOurs: ReadonlySet<JsonValue> = new Set(["stop", "length", "content_filter"]);

function isCanonicalChoice(choice: JsonValue, position: number): boolean {
  if (!isJsonObject(choice) || choice["index"] !== position) return false;
  const { message, finish_reason: reason } = choice;
  if (reason === undefined || !reasonsOfOurs.has(reason) || !isJsonObject(message)) return false;
  const { role, content } = message;
  return (
    role === "assistant" &&
    (isText(content) || content === null) &&
    !rewritten.some((key) => Object.hasOwn(message, key))
  );
}

function isCanonicalUsage(usage: JsonValue): boolean {
  return (
    isJsonObject(usage) &&
    isCount(usage["prompt_tokens"]) &&
    isCount(usage["completion_tokens"]) &&
    isCount(usage["total_tokens"])
  );
}

function isText(value: JsonValue | undefined): boolean {
  return typeof value === "string" && value !== "";
}

function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}
