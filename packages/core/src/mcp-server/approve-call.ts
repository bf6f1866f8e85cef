/**
 * Calls that wait for a person's approval, or for answers to what their back end asks: asked for through the client
 * where that can be, else told of.
 */
import { endStates, type Call } from "../calls/call.ts";
import { questionsOf } from "../calls/input-request.ts";
import { inputRequestsOf, outcomeOf, usedInlineConfig } from "../calls/new-call.ts";
import { canonicalJson, isJsonObject, type JsonObject } from "../json.ts";
import { encodeRequest, type RpcId } from "../mcp/json-rpc.ts";
import {
  answerCall,
  approvalKey,
  mayAsk,
  readRequestState,
  requestsOf,
  toRequestState,
  type Asked,
} from "./approvals.ts";
import { ownCall, replyOf } from "./calls.ts";
import type { AdmittedExchange, AskedCall } from "./exchange.ts";
import { invalidParams } from "./fault.ts";
import { resultToolName } from "./get-call-result.ts";
import { leaveRunning, patienceMs, readCall, waitWhile } from "./later.ts";
import { askedSchema, asRefusal } from "./output-schema.ts";
import { newTask } from "./tasks.ts";

/** How long a request of the older era is held for its user's answer. */
const heldMs = 120_000;
/** Since this revision a user may be asked. */
const firstWithForms = "2025-06-18";

export async function waitForPerson(exchange: AdmittedExchange, asked: AskedCall, callId: string): Promise<JsonObject> {
  return ask(exchange, asked, await readCall(exchange, callId));
}

/** A call that a worker carries out; it may ask on its way. */
export async function answerLater(exchange: AdmittedExchange, asked: AskedCall, callId: string): Promise<JsonObject> {
  const call = await readCall(exchange, callId);
  if (exchange.peer.takesTasks && !hasMoved(call)) return newTask(exchange, call);
  // What answers first and works on has said its first words, which are not to wait for its end.
  const isOpen = (now: Call): boolean => !hasMoved(now) && now.outcome === null;
  const moved = await waitWhile(exchange, call, { waitMs: patienceMs, isOpen });
  return hasMoved(moved)
    ? decided(exchange, asked, moved)
    : leaveRunning(exchange, moved, askedSchema(exchange, asked));
}

/** A call that somebody asks about: what it came to, or what it asks by now, of which nobody may have been told. */
export async function tellCall(
  exchange: AdmittedExchange,
  asked: AskedCall,
  { seen, waitMs }: { readonly seen: Call; readonly waitMs: number },
): Promise<JsonObject> {
  // For answers that do not come through this client it is waited as for the end.
  const isToTell = (now: Call): boolean =>
    asksQuestions(now) && (canAsk(exchange, now) || !isWaiting(seen) || !asksTheSame(now, seen));
  const isOpen = (now: Call): boolean => !endStates.includes(now.state) && !isToTell(now);
  const call = await waitWhile(exchange, seen, { waitMs, isOpen });
  if (!asksQuestions(call)) {
    return replyOf(exchange, call.id, { outcome: outcomeOf(call), call, outputSchema: undefined });
  }
  return canAsk(exchange, call) ? ask(exchange, asked, call) : stillWaiting(exchange, asked, call);
}

/** Approvals have been asked for when the call was answered. */
function asksQuestions(call: Call): boolean {
  return inputRequestsOf(call) !== undefined;
}

function hasMoved(call: Call): boolean {
  return isWaiting(call) || endStates.includes(call.state);
}

async function ask(exchange: AdmittedExchange, asked: AskedCall, call: Call): Promise<JsonObject> {
  const { peer, send } = exchange;
  if (canAsk(exchange, call)) {
    if (peer.era === "stateless") return askAgain(exchange, asked, call);
    const question = questionOf(call);
    if (send !== undefined && question !== undefined) {
      send(encodeRequest({ id: questionId(call), ...question }));
      const moved = await waitWhile(exchange, call, { waitMs: heldMs, isOpen: (now) => asksTheSame(now, call) });
      return asksTheSame(moved, call) ? stillWaiting(exchange, asked, moved) : decided(exchange, asked, moved);
    }
  }
  return peer.takesTasks ? newTask(exchange, call) : stillWaiting(exchange, asked, call);
}

/** Before 2026-07-28 a question needs the request's own stream, which takes one at a time. */
function canAsk(exchange: AdmittedExchange, call: Call): boolean {
  const { peer, send } = exchange;
  if (!mayAsk(exchange, call)) return false;
  if (peer.era === "stateless") return true;
  return send !== undefined && peer.revision >= firstWithForms && questionOf(call) !== undefined;
}

/** The client comes again with its user's answer. */
export async function continueCall(
  exchange: AdmittedExchange,
  asked: AskedCall,
  { requestState, inputResponses }: JsonObject,
): Promise<JsonObject> {
  const question =
    typeof requestState === "string" ? await readRequestState(exchange, requestState, identityOf(asked)) : undefined;
  const call = question === undefined ? undefined : await ownCall(exchange, question.id);
  if (call === undefined) {
    throw invalidParams(
      "'params.requestState' does not belong to this request, or is too old; ask for the call again.",
    );
  }
  if (!isWaiting(call)) return decided(exchange, asked, call);
  if (!mayAsk(exchange, call)) return stillWaiting(exchange, asked, call);
  // What was answered is not what it asks by now.
  if (question?.attempt !== call.attempt) return askAgain(exchange, asked, call);
  const decision = await answerCall(exchange, call, inputResponses);
  if (decision !== "open") return decided(exchange, asked, await readCall(exchange, call.id));
  const answer = isJsonObject(inputResponses) ? inputResponses[approvalKey] : undefined;
  const isDismissed = isJsonObject(answer) && answer["action"] === "cancel";
  return isDismissed ? stillWaiting(exchange, asked, call) : askAgain(exchange, asked, call);
}

const questionPrefix = "approve_";

/** Names the call and which of its questions, so that whichever instance gets the answer knows what it is about. */
function questionId({ id, attempt }: Asked): string {
  // Approvals, which come before any attempt, are asked for as other releases do: answers may go to their instances.
  return attempt === 0 ? `${questionPrefix}${id}` : `${questionPrefix}${id}.${attempt}`;
}

interface Question {
  readonly method: string;
  readonly params: JsonObject;
}

/** Undefined: it asks several things at once, and a stream would have to hold the answers until all are there. */
function questionOf(call: Call): Question | undefined {
  const [request, ...others] = Object.values(requestsOf(call));
  if (others.length > 0 || !isJsonObject(request)) return undefined;
  const { method, params } = request;
  return typeof method === "string" && isJsonObject(params) ? { method, params } : undefined;
}

/** The answer to a question on a stream; one that answers nothing of ours is nothing. */
export async function takeAnswer(exchange: AdmittedExchange, id: RpcId, result: JsonObject): Promise<void> {
  if (typeof id !== "string" || !id.startsWith(questionPrefix)) return;
  const [callId = ""] = id.slice(questionPrefix.length).split(".", 1);
  const call = await ownCall(exchange, callId);
  if (call === undefined || !isWaiting(call) || !mayAsk(exchange, call) || id !== questionId(call)) return;
  const [name = ""] = Object.keys(requestsOf(call));
  await answerCall(exchange, call, { [name]: result });
}

async function askAgain(exchange: AdmittedExchange, asked: AskedCall, call: Call): Promise<JsonObject> {
  return {
    resultType: "input_required",
    inputRequests: requestsOf(call),
    requestState: await toRequestState(exchange, call, identityOf(asked)),
  };
}

function identityOf({ name, arguments: args }: AskedCall): string {
  return canonicalJson({ name, arguments: args });
}

function isWaiting({ state }: Call): boolean {
  return state === "input_required";
}

function asksTheSame(now: Call, before: Call): boolean {
  return isWaiting(now) && now.attempt === before.attempt;
}

function decided(exchange: AdmittedExchange, asked: AskedCall, call: Call): Promise<JsonObject> {
  if (isWaiting(call)) return ask(exchange, asked, call);
  if (!endStates.includes(call.state)) return answerLater(exchange, asked, call.id);
  return replyOf(exchange, call.id, { outcome: outcomeOf(call), call, outputSchema: askedSchema(exchange, asked) });
}

/** An error, since nothing was done; with all that is needed to go on later. */
function stillWaiting(exchange: AdmittedExchange, asked: AskedCall, call: Call): JsonObject {
  const { id, tool } = call;
  const url = `${exchange.deps.publicUrl}/v1/calls/${id}`;
  const requests = inputRequestsOf(call);
  const config = usedInlineConfig(call) ? ["runtime_config"] : [];
  const waits =
    requests === undefined
      ? `'${tool}' waits for a person's approval: POST ${url}/approve${bodyOf(config)}, with a key that has the scope 'approve'.`
      : `'${tool}' asks for input before it goes on (${questionsOf(requests)}): answer ${Object.keys(requests).join(", ")} with POST ${url}/approve${bodyOf(["input", ...config])}.`;
  const error = {
    code: requests === undefined ? "approval_required" : "input_required",
    message: `${waits} Then call '${resultToolName}' with call_id '${id}'.`,
    call_id: id,
    url,
    ...(requests === undefined ? {} : { input_requests: requests }),
  };
  const content = [{ type: "text", text: JSON.stringify({ error }) }];
  return asRefusal({ content, structuredContent: { error }, isError: true }, askedSchema(exchange, asked));
}

function bodyOf(fields: readonly string[]): string {
  return fields.length === 0 ? "" : ` {${fields.map((field) => `"${field}": …`).join(", ")}}`;
}
