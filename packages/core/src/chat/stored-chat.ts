/**
 * The answer of a chat as kept for whoever sends the same request again, and the events made from it
 * again: a repetition gets the first answer, streamed or not (design "Idempotency").
 */
import type { Call, StoredOutcome } from "../calls/call.ts";
import type { Usage } from "../calls/usage.ts";
import { readAnswer, storeAnswer } from "../calls/kept-answer.ts";
import type { CoreDeps } from "../core-deps.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { readAll } from "../ports/blob-store.ts";
import type { ChatEvent, ClientToolCall, ToolExecution } from "./events.ts";
import type { OpenedChat } from "./opened-chat.ts";

export function storeChatOutcome(
  deps: CoreDeps,
  { context: { tenant }, callId }: OpenedChat,
  body: JsonObject,
): Promise<StoredOutcome> {
  const answer = { contentType: "application/json", body: Buffer.from(JSON.stringify(body)) };
  return storeAnswer(deps, { tenant, callId }, answer);
}

/** The stored answer, or undefined where none was kept. */
export async function readChatOutcome(deps: CoreDeps, call: Call): Promise<JsonObject | undefined> {
  const kept = await readAnswer(deps, call);
  if (kept === undefined) return undefined;
  const text = Buffer.from(await readAll(kept.body)).toString("utf8");
  const body: unknown = text === "" ? undefined : JSON.parse(text);
  return isJsonObject(body) ? body : undefined;
}

/** Events that collect to `body`. */
export function* eventsOfBody(body: JsonObject): Generator<ChatEvent, void, void> {
  yield {
    type: "start",
    id: textOf(body["id"]),
    model: textOf(body["model"]),
    created: typeof body["created"] === "number" ? body["created"] : 0,
    ...(typeof body["system_fingerprint"] === "string" ? { systemFingerprint: body["system_fingerprint"] } : {}),
  };
  const choices = (Array.isArray(body["choices"]) ? body["choices"] : []).filter(isJsonObject);
  for (const choice of choices) yield* eventsOfChoice(choice);
  if (isJsonObject(body["usage"])) yield { type: "usage", usage: body["usage"] as unknown as Usage, rounds: [] };
  yield {
    type: "finish",
    reasons: choices.map((choice) => ({
      choice: indexOf(choice),
      finishReason: textOf(choice["finish_reason"]) || "stop",
    })),
    toolExecution: body["tool_execution"] as unknown as ToolExecution | undefined,
    body,
  };
}

function* eventsOfChoice(choice: JsonObject): Generator<ChatEvent, void, void> {
  const index = indexOf(choice);
  const message = isJsonObject(choice["message"]) ? choice["message"] : {};
  const { role: _role, content, refusal, tool_calls: called, ...others } = message;
  for (const field of ["reasoning_content", "reasoning"] as const) {
    const text = message[field];
    if (typeof text !== "string") continue;
    delete others[field];
    yield { type: "reasoning-delta", field, text, choice: index };
  }
  if (typeof content === "string") yield { type: "text-delta", text: content, choice: index };
  if (typeof refusal === "string") yield { type: "refusal-delta", text: refusal, choice: index };
  const logprobs = isJsonObject(choice["logprobs"]) ? { logprobs: choice["logprobs"] } : {};
  if (Object.keys(others).length > 0 || Object.keys(logprobs).length > 0) {
    yield { type: "other-delta", delta: others, ...logprobs, choice: index };
  }
  const calls = (Array.isArray(called) ? called : []) as unknown as ClientToolCall[];
  for (const [at, call] of calls.entries()) {
    const said =
      call.type === "custom"
        ? { name: call.custom.name, arguments: call.custom.input, custom: true as const }
        : { name: call.function.name, arguments: call.function.arguments };
    const extra = fieldsBeyond(call);
    yield { type: "tool-call-delta", owner: "client", index: at, id: call.id, ...said, choice: index, ...extra };
    yield { type: "tool-call", owner: "client", index: at, call, choice: index };
  }
}

/** As `toClientCall` has put them there. */
function fieldsBeyond(call: JsonObject): { readonly extra?: JsonObject } {
  const { id: _id, type: _type, function: _function, custom: _custom, ...extra } = call;
  return Object.keys(extra).length === 0 ? {} : { extra };
}

function indexOf(choice: JsonObject): number {
  return typeof choice["index"] === "number" ? choice["index"] : 0;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
