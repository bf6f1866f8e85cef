/**
 * Turns that end with calls of the client while the model knows more than the client sees: calls of the
 * gateway in the same turn or in rounds before it, or opaque fields. The whole messages and our results
 * are kept sealed under the ids that the client got, so that any instance can continue (design "Mixed
 * turns"); without them the model would do again what has been done.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import type { KeptTurn } from "../ports/calls.ts";
import type { ClientToolCall } from "./events.ts";
import { insertBeforeLastUser } from "./late-results.ts";
import { markKept, toKept, withKeptPictures } from "./pictures.ts";
import type { AssembledToolCall } from "./providers/provider.ts";
import { callIds } from "./schema.ts";

const turnLifetimeMs = 24 * 3_600_000;
/** Ids of turns that cannot be continued without what was kept carry this mark. */
const keptMark = "k";
const ourId = /^call_[0-9a-hjkmnp-tv-z]{26}(k?)$/;

interface TurnContent {
  /** What the model saw of this answer before the turn: late results, and rounds of the gateway's own tools. */
  readonly before: readonly JsonObject[];
  /** So many of them are late results, which the model saw before the last question. */
  readonly late?: number;
  /** The assistant message as the back end wrote it. */
  readonly message: JsonObject;
  /** Client's id → back end's id. */
  readonly ids: Readonly<Record<string, string>>;
  /** Our results, as tool messages for the back end, and a message with their pictures. */
  readonly results: readonly JsonObject[];
  /** The gateway's calls came from an inline `runtime_config`. */
  readonly inline: boolean;
  /** The model has read content from outside by then. */
  readonly readOutside: boolean;
}

/** The id that a client sees for a call. */
export function clientCallId(base: string, kept: boolean): string {
  return kept ? `${base}${keptMark}` : base;
}

export function toClientCall(call: AssembledToolCall, id: string): ClientToolCall {
  const { name, arguments: text, extra } = call;
  return extra["type"] === "custom"
    ? { ...extra, id, type: "custom", custom: { name, input: text } }
    : { ...extra, id, type: "function", function: { name, arguments: text } };
}

export async function keepTurn(deps: CoreDeps, context: CallContext, content: TurnContent): Promise<KeptTurn> {
  const key = Object.keys(content.ids)[0] ?? "";
  return {
    key,
    callerId: context.caller.id,
    sealed: await deps.sealer.seal(
      context.tenant,
      context.config.wrappedKey,
      aadOf(context, key),
      JSON.stringify({ ...content, before: toKept(content.before), results: toKept(content.results) }),
    ),
    expiresAt: deps.clock.now() + turnLifetimeMs,
  };
}

/** Keys of the turns that a conversation may continue, for the admission. */
export function turnKeysOf(messages: readonly JsonObject[]): string[] {
  return messages.flatMap((message) => callIds(message).filter((id) => ourId.test(id)));
}

export interface RestoredConversation {
  readonly messages: JsonObject[];
  /** The kept results hold content from outside. */
  readonly hasReadOutside: boolean;
}

/** Without calls there is nothing to restore. */
export function mayHoldTurns(messages: readonly JsonObject[]): boolean {
  return messages.some(hasCalls);
}

/**
 * The conversation as the back end must see it: kept messages verbatim, ids as the back end wrote
 * them, our results beside the client's.
 * @throws GatewayError `tool_turn_expired`, `tool_turn_incomplete`, `runtime_config_required`
 */
export async function restoreTurns(
  deps: CoreDeps,
  context: CallContext,
  given: {
    readonly messages: readonly JsonObject[];
    readonly turns: readonly KeptTurn[];
    /** Calls whose results came late, and are told in this request. */
    readonly ended: readonly string[];
  },
): Promise<RestoredConversation> {
  const turns = new Map<string, TurnContent>();
  for (const turn of given.turns) {
    const text = await deps.sealer.open(
      context.tenant,
      context.config.wrappedKey,
      aadOf(context, turn.key),
      turn.sealed,
    );
    const content = JSON.parse(text) as TurnContent;
    markKept([...content.before, ...content.results]);
    turns.set(turn.key, content);
  }
  const ended = new Set([...given.ended, ...[...turns.values()].flatMap(toldLateIn)]);
  const exchanges = exchangesOf(given.messages);
  const lastReply = exchanges.findLastIndex(({ head }) => head["role"] === "assistant");
  let messages: JsonObject[] = [];
  let hasForgotten = false;
  for (const [at, { head, answers }] of exchanges.entries()) {
    const turn = turnOf(head, turns);
    if (turn === "expired") {
      if (at >= lastReply) throw turnExpired();
      hasForgotten = true;
      messages.push(withForgottenTold(head), ...answers);
      continue;
    }
    if (turn === undefined) {
      messages.push(head, ...answers);
      continue;
    }
    requireWhole(turn, answers);
    if (turn.inline && context.runtimeConfig === undefined) {
      throw new GatewayError(
        "runtime_config_required",
        "This turn used tools of an inline 'runtime_config', which is never stored; send the same 'runtime_config' again.",
        { param: "runtime_config" },
      );
    }
    const ours = ended.size === 0 ? turn.results : turn.results.map((result) => withEndTold(result, ended));
    const results = [...ours, ...answers.map((answer) => withBackEndId(answer, turn))];
    const late = turn.before.slice(0, turn.late ?? 0);
    if (late.length > 0) messages = insertBeforeLastUser(messages, late);
    messages.push(...turn.before.slice(late.length), turn.message, ...inCallOrder(turn.message, results));
  }
  return {
    messages: await withKeptPictures(deps, context, messages),
    hasReadOutside: hasForgotten || [...turns.values()].some(({ readOutside }) => readOutside),
  };
}

/** Calls that the turn was told of before its last question. */
function toldLateIn({ before, late = 0 }: TurnContent): readonly string[] {
  return before.slice(0, late).flatMap(({ tool_call_id: id }) => (typeof id === "string" ? [id] : []));
}

/** What waited as the turn ended must not be said to wait behind its result, which stands before the last question. */
function withEndTold(result: JsonObject, ended: ReadonlySet<string>): JsonObject {
  const said = typeof result["content"] === "string" ? parseJson(result["content"]) : undefined;
  if (!isJsonObject(said) || said["status"] !== "pending") return result;
  const { call_id: id } = said;
  if (typeof id !== "string" || !ended.has(id)) return result;
  const told = {
    status: "ended",
    call_id: id,
    message: `It has ended since; its result is told before, as that of ${id}.`,
  };
  return { ...result, content: JSON.stringify(told) };
}

function hasCalls(message: JsonObject): boolean {
  return message["tool_calls"] !== undefined;
}

interface Exchange {
  readonly head: JsonObject;
  /** The tool messages that follow it. */
  readonly answers: JsonObject[];
}

function exchangesOf(messages: readonly JsonObject[]): Exchange[] {
  const exchanges: Exchange[] = [];
  for (const message of messages) {
    const last = exchanges.at(-1);
    if (message["role"] === "tool" && last !== undefined) last.answers.push(message);
    else exchanges.push({ head: message, answers: [] });
  }
  return exchanges;
}

/** Some back ends match results with calls by their place. */
function inCallOrder(message: JsonObject, results: readonly JsonObject[]): JsonObject[] {
  const order = new Map(callIds(message).map((id, at) => [id, at]));
  const placeOf = ({ tool_call_id: id }: JsonObject): number =>
    (typeof id === "string" ? order.get(id) : undefined) ?? order.size;
  return results.toSorted((left, right) => placeOf(left) - placeOf(right));
}

function turnOf(message: JsonObject, turns: ReadonlyMap<string, TurnContent>): TurnContent | "expired" | undefined {
  const ids = callIds(message);
  const kept = ids.flatMap((id) => turns.get(id) ?? [])[0];
  return kept === undefined && ids.some((id) => ourId.exec(id)?.[1] === keptMark) ? "expired" : kept;
}

function turnExpired(): GatewayError {
  return new GatewayError(
    "tool_turn_expired",
    "The gateway's own results of this turn are kept for 24 hours, for the caller that got it and under the first of its calls, which has to be there; ask again from the last user message.",
    { param: "messages" },
  );
}

const forgotten = "(Whatever tools of the gateway came to in this turn is no longer kept.)";

/** A turn that has been answered goes on as the client has it, and the model is told that there may have been more. */
function withForgottenTold(message: JsonObject): JsonObject {
  const { content } = message;
  if (Array.isArray(content)) return { ...message, content: [...content, { type: "text", text: forgotten }] };
  const text = typeof content === "string" && content !== "" ? `${content}\n\n${forgotten}` : forgotten;
  return { ...message, content: text };
}

/** The back end is told of all calls that it made, so it has to have all their results. */
function requireWhole({ ids }: TurnContent, answers: readonly JsonObject[]): void {
  const answered = new Set(answers.map((answer) => answer["tool_call_id"]));
  const missing = Object.keys(ids).filter((id) => !answered.has(id));
  if (missing.length === 0) return;
  throw new GatewayError(
    "tool_turn_incomplete",
    `Of a turn of ${Object.keys(ids).length} calls ${missing.length} came back neither as calls nor with results ('${missing[0]}'); send all of its calls, each with a message of role 'tool'.`,
    { param: "messages", extra: { missing_tool_call_ids: missing } },
  );
}

function withBackEndId(message: JsonObject, turn: TurnContent): JsonObject {
  const id = message["tool_call_id"];
  const backEndId = typeof id === "string" ? turn.ids[id] : undefined;
  return backEndId === undefined ? message : { ...message, tool_call_id: backEndId };
}

/** Has the message fields that a client would not send back? */
export function hasOpaqueFields(message: JsonObject): boolean {
  const known = new Set(["role", "content", "tool_calls", "refusal"]);
  const callFields = new Set(["id", "type", "function", "index"]);
  if (Object.entries(message).some(([key, value]) => !known.has(key) && value !== null && value !== "")) return true;
  const calls = Array.isArray(message["tool_calls"]) ? message["tool_calls"] : [];
  return calls.some((call) => isJsonObject(call) && Object.keys(call).some((key) => !callFields.has(key)));
}

function aadOf(context: CallContext, key: string): readonly string[] {
  return ["turn", context.caller.id, key];
}
