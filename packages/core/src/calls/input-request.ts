/**
 * A call whose back end asks a person for something before it goes on (`InputRequired`). Nothing is held
 * meanwhile: the row waits, with what was asked in view and what belongs to it sealed beside the arguments; an
 * answer puts it back on the queue, and whichever worker takes it makes the call once more (MCP 2026-07-28,
 * "Multi round-trip requests").
 */
import * as z from "zod";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { CallFinish } from "../ports/calls.ts";
import type { InputRequired } from "../tools/tool-call.ts";
import { compileArguments } from "../tools/arguments.ts";
import type { PendingOutcome } from "../tools/outcome.ts";
import type { Call } from "./call.ts";
import { inputOf, inputRequestsOf, openInput, sealInput, type CallToRecord } from "./new-call.ts";

/** What a person is asked must be something that can be shown. */
const longestRequests = 32_768;
const mostRequests = 16;
/** Bytes of what a back end gives along with its questions, to be told again with the answers; the row keeps them. */
const largestState = 65_536;

export interface Paused {
  readonly outcome: PendingOutcome;
  readonly finish: CallFinish;
}

/** @throws GatewayError `tool_failed` for more than anybody would read, or than is kept for the back end */
export async function pauseForInput(
  deps: Pick<AdapterDeps, "sealer" | "publicUrl">,
  context: CallContext,
  call: CallToRecord,
  { requests, state }: InputRequired,
): Promise<Paused> {
  if (Object.keys(requests).length > mostRequests || JSON.stringify(requests).length > longestRequests) {
    throw new GatewayError(
      "tool_failed",
      `'${call.tool.name}' asks for more input than can be asked of a person (${mostRequests} requests, ${longestRequests} characters).`,
      { toolName: call.tool.name },
    );
  }
  if (state !== undefined && Buffer.byteLength(state) > largestState) {
    throw new GatewayError(
      "tool_failed",
      `'${call.tool.name}' asks for input and wants ${Buffer.byteLength(state)} bytes of 'requestState' kept for it; ${largestState} are.`,
      { toolName: call.tool.name },
    );
  }
  const asked = { requests, ...(state === undefined ? {} : { state }) };
  const input = await sealInput(deps, context, call.id, { ...inputOf(context, call), asked });
  const shown = context.redactor.redactObject(requests);
  const error = {
    code: "input_required" as const,
    message: `'${call.tool.name}' asks for input before it goes on: ${questionsOf(shown)}`,
    details: { input_requests: shown },
  };
  return {
    outcome: { kind: "pending", reason: "input", callId: call.id, requests: shown },
    finish: { state: "input_required", error, continued: { input } },
  };
}

/** For people, in a line. */
export function questionsOf(requests: JsonObject): string {
  const questions = Object.entries(requests).map(([name, request]) => {
    const { message } = paramsOf(request);
    return typeof message === "string" && message !== "" ? message : name;
  });
  return questions.join("; ").slice(0, 1_000);
}

function paramsOf(request: JsonValue | undefined): JsonObject {
  const params = isJsonObject(request) ? request["params"] : undefined;
  return isJsonObject(params) ? params : {};
}

/** As the Model Context Protocol answers `elicitation/create`. */
export const inputAnswersSchema = z.record(
  z.string().max(256),
  z.strictObject({
    action: z.enum(["accept", "decline", "cancel"]),
    content: z.record(z.string(), z.json()).optional(),
  }),
);
export type GivenAnswers = z.infer<typeof inputAnswersSchema>;

/**
 * The call's input with the answers in it, sealed.
 * @throws GatewayError `invalid_request` naming the request that is not answered, or not as it was asked
 */
export async function withAnswers(
  deps: Pick<AdapterDeps, "sealer">,
  context: CallContext,
  call: Call,
  given: GivenAnswers,
): Promise<string> {
  const input = call.input === null ? undefined : await openInput(deps, context, { id: call.id, input: call.input });
  if (input?.asked === undefined) throw new GatewayError("conflict", `What call '${call.id}' asked is no longer kept.`);
  const { requests } = input.asked;
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(requests, name));
  if (unknown !== undefined) throw refused(unknown, `was not asked for; there are ${Object.keys(requests).join(", ")}`);
  const responses = Object.fromEntries(
    Object.entries(requests).map(([name, request]) => [name, answerTo(name, request, given)]),
  );
  return sealInput(deps, context, call.id, { ...input, asked: { ...input.asked, responses } });
}

function answerTo(name: string, request: JsonValue, given: GivenAnswers): JsonObject {
  const answer = Object.hasOwn(given, name) ? given[name] : undefined;
  if (answer === undefined) throw refused(name, "has to be answered");
  const { action, content } = answer;
  const { requestedSchema: schema } = paramsOf(request);
  if (action !== "accept" || !isJsonObject(schema)) {
    if (content !== undefined) throw refused(`${name}.content`, "has no meaning here; nothing is filled in");
    return { action };
  }
  const checked = compileArguments(schema).validate(content ?? {});
  if (checked.ok) return { action, content: checked.value };
  const list = checked.errors.map(({ pointer, message }) => `${pointer === "" ? "content" : pointer}: ${message}`);
  throw refused(`${name}.content`, `does not fit what was asked for: ${list.join("; ")}`);
}

function refused(name: string, problem: string): GatewayError {
  return new GatewayError("invalid_request", `'input.${name}' ${problem}.`, { param: `input.${name}` });
}

/**
 * Whether a decision says what this call needs of it.
 * @throws GatewayError `invalid_request`
 */
export function requireFittingDecision(call: Call, given: GivenAnswers | undefined): void {
  const requests = inputRequestsOf(call);
  if (requests !== undefined && given === undefined) {
    throw new GatewayError(
      "invalid_request",
      `Call '${call.id}' waits for input, not for approval alone; give 'input' with an answer to ${Object.keys(requests).join(", ")}.`,
      { param: "input" },
    );
  }
  if (requests === undefined && given !== undefined && call.state === "input_required") {
    throw new GatewayError("invalid_request", `Call '${call.id}' waits for approval and has asked for no 'input'.`, {
      param: "input",
    });
  }
}
