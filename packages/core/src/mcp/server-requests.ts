/**
 * What servers ask of this client. A gateway has no model of its own to lend and no directories to show, so
 * `sampling/createMessage` and `roots/list` are methods that it does not have. People can be asked where nothing is
 * held meanwhile, which the stateless era allows (`InputRequired`); a server that asks on an open stream is told no,
 * or given the defaults of its form where the service's configuration says so.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { compileArguments } from "../tools/arguments.ts";
import { encodeError, encodeResult, type RpcRequest } from "./json-rpc.ts";
import { rpcCodes } from "./revisions.ts";

/**
 * What becomes of questions: `ask` people, where that can be waited for; answer with the `defaults` of a form that
 * has them all; `decline`.
 */
export type Elicitation = "ask" | "defaults" | "decline";

export const elicitationMethod = "elicitation/create";

/** Characters of a form that is looked at: what people are asked for fits into it, and compiling more takes the thread. */
const longestForm = 32_768;

/** Declared where every request stands alone and an answer can wait. */
export function statelessCapabilities(elicitation: Elicitation): JsonObject {
  return elicitation === "decline" ? {} : { elicitation: { form: {}, url: {} } };
}

/** Declared for a session, whose open stream no answer of a person can be waited for on. */
export function sessionCapabilities(elicitation: Elicitation): JsonObject {
  return elicitation === "defaults" ? { elicitation: { form: { applyDefaults: true } } } : {};
}

/** The answer to a request of a server, as it goes back. */
export function answerRequest({ id, method, params }: RpcRequest, elicitation: Elicitation): string {
  if (method === "ping") return encodeResult(id, {});
  if (method !== elicitationMethod) {
    return encodeError(id, rpcCodes.methodNotFound, `This client does not offer '${method.slice(0, 100)}'.`);
  }
  const defaults = elicitation === "defaults" ? defaultsOf(params) : undefined;
  return encodeResult(id, defaults === undefined ? { action: "decline" } : { action: "accept", content: defaults });
}

/** What a form is filled in with by itself; undefined: somebody would have to be asked, or nobody could be. */
function defaultsOf({ requestedSchema: schema }: JsonObject): JsonObject | undefined {
  if (!isJsonObject(schema) || JSON.stringify(schema).length > longestForm) return undefined;
  try {
    const checked = compileArguments(schema).validate({});
    return checked.ok ? checked.value : undefined;
  } catch (error) {
    // A form that is no schema, or multiplies without an end, has no defaults.
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

/** The defaults of all that is asked for; undefined: not all of it has them. */
export function defaultResponses(requests: JsonObject): JsonObject | undefined {
  const responses = Object.entries(requests).map(([name, request]) => {
    const params = isJsonObject(request) && isJsonObject(request["params"]) ? request["params"] : {};
    return [name, defaultsOf(params)] as const;
  });
  if (responses.some(([, content]) => content === undefined)) return undefined;
  return Object.fromEntries(responses.map(([name, content]) => [name, { action: "accept", content: content ?? {} }]));
}
