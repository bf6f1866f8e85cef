/**
 * Results that came after their answer: the session's next request tells the model of them (CHAT-11). A back end may
 * refuse a request for what one of them says (its filter, its context), and would refuse every later one of the session
 * for the same reason. Then the model is told only that the calls have ended, and reads on by their handles.
 */
import type { Call } from "../calls/call.ts";
import { outcomeOf } from "../calls/new-call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { parseJson, type JsonObject } from "../json.ts";
import { aliasOf } from "../tools/alias.ts";
import { textForModel } from "../tools/outcome.ts";
import { isOfPictures, picturesMessage, type PicturedResult, type PictureDeps } from "./pictures.ts";

export interface LateResults {
  /** The calls, by id. */
  readonly ids: readonly string[];
  /** In words; behind them may be one with their pictures. */
  readonly messages: readonly JsonObject[];
  /** As many messages in words, without what the calls were given and came to. */
  readonly withoutContent: () => readonly JsonObject[];
}

/** As the tool messages that they are. */
export function lateResults(due: readonly Call[]): LateResults {
  return {
    ids: due.map(({ id }) => id),
    messages: toMessages(
      due,
      ({ inputView }) => inputView,
      (call) => textForModel(outcomeOf(call)),
    ),
    withoutContent: () => toMessages(due, () => "{}", withoutContent),
  };
}

/**
 * With the pictures that are among them, for models that see. They are the first that goes where a request is refused,
 * so what the words say is still there then.
 */
export async function withPictures(
  deps: PictureDeps,
  context: CallContext,
  { late, due }: { readonly late: LateResults; readonly due: readonly Call[] },
): Promise<LateResults> {
  if (!context.config.settings.show_result_pictures) return late;
  const message = await picturesMessage(deps, context, due.map(toResult));
  return message === undefined ? late : { ...late, messages: [...late.messages, message] };
}

/** Of calls that have ended while their chat went on, as they are on record. */
export async function resultsOf(
  deps: Pick<CoreDeps, "repos">,
  tenant: string,
  ids: readonly string[],
): Promise<readonly PicturedResult[]> {
  const found = await Promise.all(ids.map((id) => deps.repos.calls.get(tenant, id)));
  return found.flatMap((call) => (call === undefined ? [] : [toResult(call)]));
}

function toResult(call: Call): PicturedResult {
  return { tool: aliasOf(call.tool), outcome: outcomeOf(call) };
}

function toMessages(
  due: readonly Call[],
  argumentsOf: (call: Call) => string,
  contentOf: (call: Call) => string,
): readonly JsonObject[] {
  if (due.length === 0) return [];
  const calls = due.map((call) => {
    const given = argumentsOf(call);
    const text = parseJson(given) === undefined ? "{}" : given;
    // As the model knows it: back ends refuse other names.
    return { id: call.id, type: "function", function: { name: aliasOf(call.tool), arguments: text } };
  });
  const results = due.map((call) => ({ role: "tool", tool_call_id: call.id, content: contentOf(call) }));
  return [{ role: "assistant", content: null, tool_calls: calls }, ...results];
}

/** What the model is told of a call in the place of its result. */
export function withoutContent({ id, state }: Pick<Call, "id" | "state">): string {
  return `[call ${id} has ended: ${state}; its result is left out, since the model's back end refused the request with it; the user finds it at GET /v1/calls/${id}/result, and read_result {"call_id":"${id}"} reads it in pieces where it was too long]`;
}

export function insertBeforeLastUser(messages: readonly JsonObject[], late: readonly JsonObject[]): JsonObject[] {
  if (late.length === 0) return [...messages];
  const lastUser = messages.findLastIndex((message) => message["role"] === "user" && !isOfPictures(message));
  const at = lastUser < 0 ? messages.length : lastUser;
  return [...messages.slice(0, at), ...late, ...messages.slice(at)];
}

/**
 * Where a request is refused that tells of late results in full: says in `messages`, in place, less of them.
 * @returns what they are told by now; undefined: nothing could be left out
 */
export function leaveOut(messages: JsonObject[], late: LateResults): LateResults | undefined {
  if (!late.messages.some((message) => messages.includes(message))) return undefined;
  const shorter = late.withoutContent();
  const instead = new Map(late.messages.map((message, at) => [message, shorter[at] ?? message]));
  for (const [at, message] of messages.entries()) messages[at] = instead.get(message) ?? message;
  return { ...late, messages: shorter };
}
