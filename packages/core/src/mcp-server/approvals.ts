/**
 * A person's yes or no to a call that waits for it, asked for through the client that made the call (design
 * "Approval never holds an invocation"): in the stateless era the result asks and the client comes again with
 * the answer, before that the request's own stream asks and the answer is posted, to any instance. Only where
 * the caller may approve calls; others are told where the call waits.
 */
import type { Call } from "../calls/call.ts";
import { decideCall } from "../calls/decide.ts";
import { hasScope } from "../callers/caller.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { readSignedText, signText } from "./signed-text.ts";

/** Under which name a person's decision is asked for. */
export const approvalKey = "approval";
/** Characters of arguments that the question shows. */
const longestShown = 1_000;
/** How long the answer may take. */
const askedForMs = 3_600_000;

export function mayAsk({ peer, context }: Pick<AdmittedExchange, "peer" | "context">): boolean {
  return peer.takesForms && hasScope(context.caller, "approve");
}

export function approvalParams(tool: string, shownArguments: string): JsonObject {
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

export function approvalRequest(tool: string, shownArguments: string): JsonObject {
  return { method: "elicitation/create", params: { mode: "form", ...approvalParams(tool, shownArguments) } };
}

export type Decision = "approved" | "rejected" | "open";

/**
 * Decides about the call as the client's user has.
 * @returns `open` where the user has not decided, or the answer is none
 */
export async function answerApproval(
  { deps, context }: AdmittedExchange,
  call: Pick<Call, "id">,
  answer: JsonValue | undefined,
): Promise<Decision> {
  const decision = readDecision(answer);
  if (decision === "open") return decision;
  try {
    await decideCall(deps, context, { callId: call.id, decision, reason: "Decided in the MCP client." });
  } catch (error) {
    // Somebody else was faster; what they decided counts.
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
  }
  return decision;
}

function readDecision(answer: JsonValue | undefined): Decision {
  if (!isJsonObject(answer)) return "open";
  const { action, content } = answer;
  if (action === "decline") return "rejected";
  if (action !== "accept" || !isJsonObject(content) || typeof content["approve"] !== "boolean") return "open";
  return content["approve"] ? "approved" : "rejected";
}

/** Goes out with the question and comes back with the answer: which call it is about, for whom and what request. */
export function toRequestState({ deps, context }: AdmittedExchange, callId: string, request: string): Promise<string> {
  const until = deps.clock.now() + askedForMs;
  return signText(deps, context, boundTo(context.caller.id, request), [callId, until]);
}

/** The call's id; undefined: the state was not made here, for this caller and this request, or is too old. */
export async function readRequestState(
  { deps, context }: AdmittedExchange,
  state: string,
  request: string,
): Promise<string | undefined> {
  const payload = await readSignedText(deps, context, boundTo(context.caller.id, request), state);
  if (!Array.isArray(payload)) return undefined;
  const [callId, until] = payload;
  if (typeof callId !== "string" || typeof until !== "number" || until < deps.clock.now()) return undefined;
  return callId;
}

function boundTo(callerId: string, request: string): readonly string[] {
  return ["approval", callerId, request];
}
