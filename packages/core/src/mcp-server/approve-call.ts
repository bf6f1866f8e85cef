/** Calls that wait for a person's approval: asked for through the client where that can be, else told of. */
import { endStates, type Call } from "../calls/call.ts";
import { outcomeOf } from "../calls/new-call.ts";
import { canonicalJson, isJsonObject, type JsonObject } from "../json.ts";
import { encodeRequest } from "../mcp/json-rpc.ts";
import {
  answerApproval,
  approvalKey,
  approvalParams,
  approvalRequest,
  mayAsk,
  readRequestState,
  toRequestState,
} from "./approvals.ts";
import { ownCall, replyOf } from "./calls.ts";
import type { AdmittedExchange, AskedCall } from "./exchange.ts";
import { invalidParams } from "./fault.ts";
import { resultToolName } from "./get-call-result.ts";
import { answerLater, readCall, waitWhile } from "./later.ts";
import { askedSchema, asRefusal } from "./output-schema.ts";
import { newTask } from "./tasks.ts";

/** How long a request of the older era is held for its user's answer. */
const heldMs = 120_000;
/** Since this revision a user may be asked. */
const firstWithForms = "2025-06-18";

export async function waitForApproval(
  exchange: AdmittedExchange,
  asked: AskedCall,
  callId: string,
): Promise<JsonObject> {
  const call = await readCall(exchange, callId);
  const { peer, send } = exchange;
  if (mayAsk(exchange)) {
    if (peer.era === "stateless") return askAgain(exchange, asked, call);
    if (send !== undefined && peer.revision >= firstWithForms) {
      send(encodeRequest({ id: questionId(callId), method: "elicitation/create", params: paramsOf(call) }));
      const moved = await waitWhile(exchange, call, { waitMs: heldMs, isOpen: isWaiting });
      return isWaiting(moved) ? stillWaiting(exchange, asked, moved) : decided(exchange, asked, moved);
    }
  }
  return peer.takesTasks ? newTask(exchange, call) : stillWaiting(exchange, asked, call);
}

/** The client comes again with its user's answer. */
export async function continueCall(
  exchange: AdmittedExchange,
  asked: AskedCall,
  { requestState, inputResponses }: JsonObject,
): Promise<JsonObject> {
  const callId =
    typeof requestState === "string" ? await readRequestState(exchange, requestState, identityOf(asked)) : undefined;
  const call = callId === undefined ? undefined : await ownCall(exchange, callId);
  if (call === undefined) {
    throw invalidParams(
      "'params.requestState' does not belong to this request, or is too old; ask for the call again.",
    );
  }
  if (!isWaiting(call)) return decided(exchange, asked, call);
  if (!mayAsk(exchange)) return stillWaiting(exchange, asked, call);
  const answer = isJsonObject(inputResponses) ? inputResponses[approvalKey] : undefined;
  const decision = await answerApproval(exchange, call, answer);
  if (decision !== "open") return decided(exchange, asked, await readCall(exchange, call.id));
  const isDismissed = isJsonObject(answer) && answer["action"] === "cancel";
  return isDismissed ? stillWaiting(exchange, asked, call) : askAgain(exchange, asked, call);
}

const questionPrefix = "approve_";

/** Names the call, so that whichever instance gets the answer knows what it is about. */
function questionId(callId: string): string {
  return `${questionPrefix}${callId}`;
}

/** The answer to a question on a stream; one that answers nothing of ours is nothing. */
export async function takeAnswer(exchange: AdmittedExchange, id: string | number, result: JsonObject): Promise<void> {
  if (typeof id !== "string" || !id.startsWith(questionPrefix)) return;
  const call = await ownCall(exchange, id.slice(questionPrefix.length));
  if (call === undefined || !isWaiting(call) || !mayAsk(exchange)) return;
  await answerApproval(exchange, call, result);
}

async function askAgain(exchange: AdmittedExchange, asked: AskedCall, call: Call): Promise<JsonObject> {
  return {
    resultType: "input_required",
    inputRequests: { [approvalKey]: approvalRequest(call.tool, call.inputView) },
    requestState: await toRequestState(exchange, call.id, identityOf(asked)),
  };
}

function paramsOf({ tool, inputView }: Call): JsonObject {
  return approvalParams(tool, inputView);
}

function identityOf({ name, arguments: args }: AskedCall): string {
  return canonicalJson({ name, arguments: args });
}

function isWaiting({ state }: Call): boolean {
  return state === "input_required";
}

function decided(exchange: AdmittedExchange, asked: AskedCall, call: Call): Promise<JsonObject> {
  const outputSchema = askedSchema(exchange, asked);
  return endStates.includes(call.state)
    ? replyOf(exchange, call.id, { outcome: outcomeOf(call), call, outputSchema })
    : answerLater(exchange, call.id, outputSchema);
}

/** An error, since nothing was done; with all that is needed to go on later. */
function stillWaiting(exchange: AdmittedExchange, asked: AskedCall, { id, tool }: Call): JsonObject {
  const url = `${exchange.deps.publicUrl}/v1/calls/${id}`;
  const error = {
    code: "approval_required",
    message: `'${tool}' waits for a person's approval: POST ${url}/approve, with a key that has the scope 'approve'. Then call '${resultToolName}' with call_id '${id}'.`,
    call_id: id,
    url,
  };
  const content = [{ type: "text", text: JSON.stringify({ error }) }];
  return asRefusal({ content, structuredContent: { error }, isError: true }, askedSchema(exchange, asked));
}
