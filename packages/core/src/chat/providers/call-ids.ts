/**
 * Ids of calls in a conversation as the models of a family take them. Mistral's want nine letters and digits and
 * refuse the whole request for others, whoever made them: we for a client, or another back end that the
 * conversation began with. An id stands for nothing but its call, so nothing has to be translated back.
 */
import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

const mistrals = /mistral|ministral|mixtral|magistral|codestral|devstral|pixtral|voxtral/i;
const mistralsId = /^[a-zA-Z0-9]{9}$/;

/** @param model the back end's own name of it */
export function withCallIdsFor(model: string, messages: JsonValue | undefined): JsonValue | undefined {
  if (!mistrals.test(model) || !Array.isArray(messages)) return messages;
  return messages.map((message) => (isJsonObject(message) && hasCalls(message) ? withShortIds(message) : message));
}

function hasCalls({ tool_calls: calls, tool_call_id: id }: JsonObject): boolean {
  return calls !== undefined || id !== undefined;
}

function withShortIds(message: JsonObject): JsonObject {
  const { tool_calls: calls, tool_call_id: id } = message;
  const named = shortId(id);
  const called = Array.isArray(calls) ? calls.map((call) => (isJsonObject(call) ? renamed(call) : call)) : undefined;
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
