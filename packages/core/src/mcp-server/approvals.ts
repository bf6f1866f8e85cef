/**
 * A person's yes or no to a call that waits for it, or their answers to what its back end asks, asked for through
 * the client that made the call (design "Approval never holds an invocation"): in the stateless era the result asks
 * and the client comes again with the answer, before that the request's own stream asks and the answer is posted, to
 * any instance. A yes is asked for only where the caller may approve calls; others are told where the call waits.
 */
import type { Call } from "../calls/call.ts";
import { decideCall } from "../calls/decide.ts";
import { inputAnswersSchema } from "../calls/input-request.ts";
import { inputRequestsOf, usedInlineConfig } from "../calls/new-call.ts";
import { hasScope } from "../callers/caller.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { elicitationMethod } from "../mcp/server-requests.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { readSignedText, signText } from "./signed-text.ts";

/** Under which name a person's decision is asked for. */
export const approvalKey = "approval";
/** Characters of arguments that the question shows. */
const longestShown = 1_000;
/** How long the answer may take. */
const askedForMs = 3_600_000;

/**
 * What their own call asks, callers answer themselves, as far as it is asked with forms. Where the call came with a
 * `runtime_config`, which no answer here can bring, it is not asked.
 */
export function mayAsk({ peer, context }: Pick<AdmittedExchange, "peer" | "context">, call: Call): boolean {
  if (!peer.takesForms || usedInlineConfig(call)) return false;
  const requests = inputRequestsOf(call);
  return requests === undefined ? hasScope(context.caller, "approve") : Object.values(requests).every(isForm);
}

/** Not, say, a page that somebody is to open, which this client may not know how to show. */
function isForm(request: JsonValue): boolean {
  if (!isJsonObject(request) || request["method"] !== elicitationMethod) return false;
  const { params } = request;
  return isJsonObject(params) && (params["mode"] ?? "form") === "form";
}

/** What is asked for, by name. */
export function requestsOf(call: Call): JsonObject {
  return inputRequestsOf(call) ?? { [approvalKey]: approvalRequest(call.tool, call.inputView) };
}

function approvalParams(tool: string, shownArguments: string): JsonObject {
  const shown = shownArguments.length > longestShown ? `${shownArguments.slice(0, longestShown)}…` : shownArguments;
  return {
    message: `The tool '${tool}' waits for your approval to run with these arguments: ${shown}`,
    requestedSchema: {
      type: "object",
      properties: { approve: { type: "boolean", title: "Approve", description: "Run the tool with these arguments." } },
      required: ["approve"],
    },
  };
}

function approvalRequest(tool: string, shownArguments: string): JsonObject {
  return { method: elicitationMethod, params: { mode: "form", ...approvalParams(tool, shownArguments) } };
}

/** `open`: the user has not decided, or the answer is none. */
export type Decision = "approved" | "rejected" | "open";

/** Decides about the call as the client's user has. */
export async function answerCall(
  exchange: AdmittedExchange,
  call: Call,
  responses: JsonValue | undefined,
): Promise<Decision> {
  const given = isJsonObject(responses) ? responses : {};
  const requests = inputRequestsOf(call);
  if (requests !== undefined) return giveAnswers(exchange, call, { requests, given });
  const decision = readDecision(given[approvalKey]);
  if (decision !== "open") await decide(exchange, { callId: call.id, decision, reason: "Decided in the MCP client." });
  return decision;
}

/** Answers that were not asked for are left alone, and one that does not fit is none. */
async function giveAnswers(
  exchange: AdmittedExchange,
  { id }: Call,
  { requests, given }: { readonly requests: JsonObject; readonly given: JsonObject },
): Promise<Decision> {
  const answers = Object.entries(given).flatMap(([name, answer]) =>
    Object.hasOwn(requests, name) && isJsonObject(answer) ? [[name, asGiven(answer)] as const] : [],
  );
  const input = inputAnswersSchema.safeParse(Object.fromEntries(answers));
  if (!input.success) return "open";
  try {
    await decide(exchange, { callId: id, decision: "approved", input: input.data });
    return "approved";
  } catch (error) {
    if (error instanceof GatewayError && error.code === "invalid_request") return "open";
    throw error;
  }
}

/** Of a result of `elicitation/create`, what belongs to the answer. */
function asGiven({ action, content }: JsonObject): JsonObject {
  return action === "accept" && isJsonObject(content) ? { action, content } : { action: action ?? null };
}

async function decide({ deps, context }: AdmittedExchange, request: Parameters<typeof decideCall>[2]): Promise<void> {
  try {
    await decideCall(deps, context, request);
  } catch (error) {
    // Somebody else was faster; what they decided counts.
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
  }
}

function readDecision(answer: JsonValue | undefined): Decision {
  if (!isJsonObject(answer)) return "open";
  const { action, content } = answer;
  if (action === "decline") return "rejected";
  if (action !== "accept" || !isJsonObject(content) || typeof content["approve"] !== "boolean") return "open";
  return content["approve"] ? "approved" : "rejected";
}

/** Which question: a call may ask several, one after the other. */
export type Asked = Pick<Call, "id" | "attempt">;

/** Goes out with the question and comes back with the answer: which one it is, for whom and what request. */
export async function toRequestState(
  { deps, context }: AdmittedExchange,
  { id, attempt }: Asked,
  request: string,
): Promise<string> {
  const until = deps.clock.now() + askedForMs;
  return signText(deps, context, boundTo(context.caller.id, request), [id, until, attempt]);
}

/** Undefined: the state was not made here, for this caller and this request, or is too old. */
export async function readRequestState(
  { deps, context }: AdmittedExchange,
  state: string,
  request: string,
): Promise<Asked | undefined> {
  const payload = await readSignedText(deps, context, boundTo(context.caller.id, request), state);
  if (!Array.isArray(payload)) return undefined;
  // Releases before this one asked for approvals alone, which come before any attempt.
  const [id, until, attempt = 0] = payload;
  if (typeof id !== "string" || typeof until !== "number" || until < deps.clock.now()) return undefined;
  return typeof attempt === "number" ? { id, attempt } : undefined;
}

function boundTo(callerId: string, request: string): readonly string[] {
  return ["approval", callerId, request];
}
