/**
 * `tools/call` through the one dispatcher: the same record, policy, budget, approval and redaction as every other
 * call (design "One address"). What takes long is a worker's from the start, so that no request holds it: clients
 * that know tasks get one, others wait a while and ask again with a tool.
 */
import { invokeTool, type Invoked } from "../calls/invoke.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { ErrorCode } from "../errors/catalog.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { isRpcId, type RpcRequest } from "../mcp/json-rpc.ts";
import { rpcCodes } from "../mcp/revisions.ts";
import { fromHeaderValue, mirroredArguments, valueAt } from "../mcp/mirrored-headers.ts";
import { toOutcomeDetails } from "../tools/outcome.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import type { Tool } from "../tools/tool.ts";
import { admitExchange } from "./admit-exchange.ts";
import { answerLater, continueCall, tellCall, waitForPerson } from "./approve-call.ts";
import { toCallReply } from "./call-reply.ts";
import { ownCall, replyOf } from "./calls.ts";
import type { AdmittedExchange, AskedCall, Exchange, MethodReply } from "./exchange.ts";
import { headerMismatch, invalidParams, RpcFault } from "./fault.ts";
import { readResultArguments, resultToolName } from "./get-call-result.ts";
import { askedSchema, asRefusal, outputSchemaFor } from "./output-schema.ts";
import { metaOf } from "./peer.ts";
import { ProgressReporter } from "./progress.ts";
import { exposedTools, findSwitchedOff, findToolset, findToolsetSoFar, within } from "./toolset.ts";

/** A tool whose attempts may take longer than this says so in its definition, and is not run by the request. */
const slowMs = 60_000;

export async function callTool(exchange: Exchange, { params }: RpcRequest): Promise<MethodReply> {
  const asked = readCall(params);
  if (exchange.peer.era === "stateless" && params["requestState"] !== undefined) {
    const admitted = await admitExchange(exchange);
    return { result: await continueCall(admitted, asked, params), ...admitted.told };
  }
  if (asked.name === resultToolName) {
    const admitted = await admitExchange(exchange);
    if (!exposedTools(exchange.deps.adapters, admitted.context, admitted.tools).has(resultToolName)) {
      return { result: await tellResult(admitted, asked), ...admitted.told };
    }
  }
  const reporter = reporterFor(exchange, params);
  try {
    return await start(exchange, asked, reporter);
  } catch (error) {
    if (!(error instanceof RpcFault) || error.code !== rpcCodes.headerMismatch) throw error;
    // What this instance knows of the tool may be old; then it has learned now what the client knows.
    const known = exchange.deps.configs.peek(exchange.presented.tenant)?.version;
    const { context } = await admitExchange(exchange, { isAgain: true });
    if (context.config.version === known) throw error;
    return await start(exchange, asked, reporter);
  } finally {
    reporter?.stop();
  }
}

function readCall({ name, arguments: args }: JsonObject): AskedCall {
  if (typeof name !== "string" || name === "") throw invalidParams("'params.name' must name a tool.");
  if (args !== undefined && args !== null && !isJsonObject(args)) {
    throw invalidParams("'params.arguments' must be an object.");
  }
  return { name, arguments: args ?? {} };
}

function reporterFor({ send }: Exchange, params: JsonObject): ProgressReporter | undefined {
  const { progressToken } = metaOf(params);
  return isRpcId(progressToken) && send !== undefined ? new ProgressReporter(progressToken, send) : undefined;
}

/** In the era of sessions a client that is gone has not cancelled anything. */
const never = new AbortController().signal;

async function start(
  exchange: Exchange,
  asked: AskedCall,
  reporter: ProgressReporter | undefined,
): Promise<MethodReply> {
  const { deps, peer } = exchange;
  let outputSchema: JsonObject | undefined;
  const told = Promise.withResolvers<Invoked>();
  let invoked: Invoked;
  let settled: Promise<unknown>;
  try {
    const invoking = invokeTool(deps, {
      ...exchange.presented,
      requestId: exchange.requestId,
      traceId: exchange.traceId,
      span: exchange.span,
      target(context) {
        const tool = findTool(exchange, context, asked);
        outputSchema = tool === undefined ? undefined : outputSchemaFor(tool, peer);
        return targetOf(exchange, context, { tool, asked });
      },
      arguments: asked.arguments,
      async: false,
      route: "mcp.tools_call",
      via: peer.client === undefined ? [] : [{ kind: "mcp_client", id: peer.client }],
      narrow: (caller, config) => within(caller, findToolsetSoFar(config, exchange.toolset)),
      queueOverMs: slowMs,
      signal: peer.era === "stateless" ? exchange.signal : never,
      ...(reporter === undefined ? {} : { onProgress: reporter.report }),
      ...(exchange.idempotencyKey === undefined ? {} : { idempotencyKey: exchange.idempotencyKey }),
      onResult: told.resolve,
    });
    settled = invoking;
    invoked = await Promise.race([told.promise, invoking]);
  } catch (error) {
    return { result: asRefusal(await toRefusal(exchange, asked, error), outputSchema) };
  }
  const { context, callId, callerId, rate } = invoked;
  const admitted = { ...exchange, context, tools: findToolset(context.config, exchange.toolset) };
  return { result: await conclude(admitted, asked, invoked), callId, callerId, rate, settled };
}

function findTool(exchange: Exchange, context: CallContext, { name }: AskedCall): Tool | undefined {
  const toolset = findToolsetSoFar(context.config, exchange.toolset);
  return exposedTools(exchange.deps.adapters, context, toolset).get(name);
}

/** @throws RpcFault where headers do not mirror the arguments */
function targetOf(
  exchange: Exchange,
  context: CallContext,
  { tool, asked }: { readonly tool: Tool | undefined; readonly asked: AskedCall },
): Pick<DispatchItem, "target" | "isUri" | "isOffered"> {
  // Only what is listed, or was, has a name here; the refusal is on record as any other.
  if (tool === undefined) {
    const toolset = findToolsetSoFar(context.config, exchange.toolset);
    const off = findSwitchedOff(exchange.deps.adapters, context, toolset, asked.name);
    return off === undefined ? { target: asked.name, isOffered: false } : { target: off.uri, isUri: true };
  }
  if (exchange.peer.era === "stateless") requireMirrors(exchange, tool, asked.arguments);
  return { target: tool.uri, isUri: true };
}

function requireMirrors({ header }: Exchange, { parameters }: Tool, args: JsonObject): void {
  const mirrored = mirroredArguments(parameters);
  if (typeof mirrored === "string") return;
  for (const { path, header: name } of mirrored) {
    const wanted = valueAt(path, args);
    const given = header(name.toLowerCase());
    if (wanted === undefined && given === undefined) continue;
    const value = given === undefined ? undefined : fromHeaderValue(given);
    const isSame =
      typeof wanted === "number" && value !== undefined && value.trim() !== ""
        ? Number(value) === wanted
        : value === (wanted === undefined ? undefined : String(wanted));
    if (!isSame || value === undefined) {
      throw headerMismatch(`${name} does not mirror the argument '${path.join(".")}'.`);
    }
  }
}

/** Refusals of the request itself, with statuses that clients of HTTP know. */
const refusalsOfRequest: ReadonlySet<ErrorCode> = new Set([
  "database_unavailable",
  "internal_error",
  "invalid_api_key",
  "invalid_token",
  "not_found",
  "permission_denied",
  "rate_limited",
  "tenant_suspended",
]);

/** @throws RpcFault, GatewayError what is no result of a tool */
async function toRefusal(exchange: Exchange, { name }: AskedCall, error: unknown): Promise<JsonObject> {
  if (!(error instanceof GatewayError)) throw error;
  if (error.code === "tool_not_found") {
    const config = exchange.deps.configs.peek(exchange.presented.tenant);
    if (config !== undefined) findToolset(config, exchange.toolset);
    throw invalidParams(`Unknown tool: ${name.slice(0, 200)}`);
  }
  const callId = error.details.extra?.["call_id"];
  if (callId === undefined && refusalsOfRequest.has(error.code)) throw error;
  const { code, message } = error;
  const { call_id: _callId, ...details } = toOutcomeDetails(error) ?? {};
  return toCallReply(
    { kind: "rejected", code, message, ...(Object.keys(details).length === 0 ? {} : { details }) },
    {
      callId: typeof callId === "string" ? callId : "",
      peer: exchange.peer,
      publicUrl: exchange.deps.publicUrl,
      mostText: 0,
      open: () => Promise.resolve(undefined),
    },
  );
}

function conclude(exchange: AdmittedExchange, asked: AskedCall, { callId, outcome }: Invoked): Promise<JsonObject> {
  if (outcome.kind !== "pending")
    return replyOf(exchange, callId, { outcome, outputSchema: askedSchema(exchange, asked) });
  return outcome.reason === "async" ? answerLater(exchange, asked, callId) : waitForPerson(exchange, asked, callId);
}

async function tellResult(exchange: AdmittedExchange, asked: AskedCall): Promise<JsonObject> {
  try {
    const { callId, waitMs } = readResultArguments(asked.arguments);
    const seen = await ownCall(exchange, callId);
    if (seen === undefined) {
      throw new GatewayError("not_found", `There is no call '${callId}' of yours.`, { param: "call_id" });
    }
    return await tellCall(exchange, asked, { seen, waitMs });
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code === "database_unavailable") throw error;
    const extra: JsonValue = error.details.extra ?? {};
    return toRefusal(
      exchange,
      asked,
      new GatewayError(error.code, error.message, { extra: { ...extra, call_id: "" } }),
    );
  }
}
