/**
 * The server of `/mcp`: a tenant's tools for any client of the Model Context Protocol, in both eras, without
 * anything that is held between requests. Whatever a client refers to later is a row or says itself what
 * it stands for, so every request can be answered by every instance.
 */
import { identify } from "../calls/admit.ts";
import { cancelCall } from "../calls/cancel.ts";
import { endStates } from "../calls/call.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import {
  encodeError,
  encodeResult,
  isRpcId,
  type RpcId,
  type RpcMessage,
  type RpcNotice,
  type RpcRequest,
} from "../mcp/json-rpc.ts";
import { metaKeys, rpcCodes, statelessRevision, tasksExtension } from "../mcp/revisions.ts";
import { admitExchange } from "./admit-exchange.ts";
import { takeAnswer } from "./approve-call.ts";
import { callTool } from "./call-tool.ts";
import type { AdmittedExchange, Exchange, McpReply, McpRequest, Method, MethodReply } from "./exchange.ts";
import { RpcFault } from "./fault.ts";
import { listPage } from "./list-tools.ts";
import { listen } from "./listen.ts";
import { eraOf, newSession, sessionPeer, statelessPeer } from "./peer.ts";
import { readSessionId, requestIdIn, toSessionId, type Session } from "./session-token.ts";
import { cancelTask, getTask, updateTask } from "./tasks.ts";

/** @throws GatewayError what is refused before the protocol comes into it: credentials, limits, an unknown toolset */
export async function serveMcp(deps: CoreDeps, request: McpRequest): Promise<McpReply> {
  const { message, header } = request;
  const isCall = message.kind === "request";
  const id = isCall ? message.id : null;
  try {
    if (isCall && eraOf(message.method, message.params, header) === "stateless") {
      return await serveStateless(deps, request, message);
    }
    return await serveSession(deps, request, message);
  } catch (error) {
    if (!(error instanceof RpcFault)) throw error;
    return refuseMcp(deps, request, error, id);
  }
}

/**
 * The error of the protocol; told to those who may be here, whatever they have posted.
 * @throws GatewayError as `identify`
 */
export async function refuseMcp(
  deps: CoreDeps,
  { presented }: Pick<McpRequest, "presented">,
  { status, code, message, data }: RpcFault,
  id: RpcId | null,
): Promise<McpReply> {
  await identify(deps, presented, ["tools"]);
  return { status, body: encodeError(id, code, message, data) };
}

const statelessMethods: Readonly<Record<string, Method>> = {
  "server/discover": admitted((exchange) => discover(exchange)),
  "subscriptions/listen": listen,
  "tasks/cancel": admitted((exchange, params) => cancelTask(exchange, params)),
  "tasks/get": admitted((exchange, params) => getTask(exchange, params)),
  "tasks/update": admitted((exchange, params) => updateTask(exchange, params)),
  "tools/call": callTool,
  "tools/list": admitted((exchange, params) => listPage(exchange, params)),
};

const sessionMethods: Readonly<Record<string, Method>> = {
  ping: admitted(() => ({})),
  "tools/call": callTool,
  "tools/list": admitted((exchange, params) => listPage(exchange, params)),
};

type Answering = (exchange: AdmittedExchange, params: JsonObject) => JsonObject | Promise<JsonObject>;

function admitted(answer: Answering): Method {
  return async (exchange, { params }) => {
    const { told, ...known } = await admitExchange(exchange);
    return { result: await answer(known, params), ...told };
  };
}

async function serveStateless(deps: CoreDeps, given: McpRequest, request: RpcRequest): Promise<McpReply> {
  const peer = statelessPeer(request, given.header);
  const method = methodOf(statelessMethods, request.method, 404);
  const reply = await method({ ...given, deps, peer }, request);
  const { _meta: meta } = reply.result;
  const serverInfo = { name: "toolyard", version: given.version };
  return toReply(request, reply, {
    resultType: "complete",
    ...reply.result,
    _meta: { ...(isJsonObject(meta) ? meta : {}), [metaKeys.serverInfo]: serverInfo },
  });
}

async function serveSession(deps: CoreDeps, given: McpRequest, message: RpcMessage): Promise<McpReply> {
  if (message.kind === "request" && message.method === "initialize") return initialize(deps, given, message);
  const session = await sessionOf(deps, given);
  const exchange: Exchange = { ...given, deps, peer: sessionPeer(given.header, session) };
  switch (message.kind) {
    case "request": {
      const method = methodOf(sessionMethods, message.method, 200);
      const requestId = session === undefined ? given.requestId : requestIdIn(session, message.id);
      const reply = await method({ ...exchange, requestId }, message);
      return toReply(message, reply, reply.result);
    }
    case "notice":
      return accepted(await takeNotice(exchange, message));
    case "result":
      return accepted(await takeResult(exchange, message.id, message.result));
    case "error":
    case "too-deep":
      return accepted(await admitExchange(exchange));
    default:
      return message satisfies never;
  }
}

function methodOf(methods: Readonly<Record<string, Method>>, name: string, status: number): Method {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (method === undefined) {
    throw new RpcFault(rpcCodes.methodNotFound, `This server has no method '${name.slice(0, 100)}'.`, { status });
  }
  return method;
}

function toReply({ id }: RpcRequest, { result: _result, ...reply }: MethodReply, result: JsonObject): McpReply {
  return { status: 200, body: encodeResult(id, result), ...reply };
}

function accepted({ told }: Awaited<ReturnType<typeof admitExchange>>): McpReply {
  return { status: 202, body: undefined, ...told };
}

function discover({ resident, tools: { instructions } }: AdmittedExchange): JsonObject {
  return {
    supportedVersions: [statelessRevision],
    capabilities: {
      tools: resident === undefined ? {} : { listChanged: true },
      extensions: { [tasksExtension]: {} },
    },
    ...(instructions === undefined ? {} : { instructions }),
    ttlMs: 300_000,
    cacheScope: "private",
  };
}

async function initialize(deps: CoreDeps, given: McpRequest, { id, params }: RpcRequest): Promise<McpReply> {
  const session = newSession(params);
  const exchange = { ...given, deps, peer: sessionPeer(given.header, session) };
  const { context, tools, told } = await admitExchange(exchange);
  const result = {
    protocolVersion: session.revision,
    capabilities: { tools: {} },
    serverInfo: { name: "toolyard", version: given.version },
    ...(tools.instructions === undefined ? {} : { instructions: tools.instructions }),
  };
  const sessionId = await toSessionId(deps, context, session);
  return { status: 200, body: encodeResult(id, result), sessionId, ...told };
}

/** @throws RpcFault, with the status that makes clients begin a new one, for a session that is none of ours */
async function sessionOf(deps: CoreDeps, { header, presented }: McpRequest): Promise<Session | undefined> {
  const id = header("mcp-session-id");
  if (id === undefined) return undefined;
  const { config } = await identify(deps, presented, ["tools"]);
  const session = await readSessionId(deps, { tenant: presented.tenant, config }, id);
  if (session !== undefined) return session;
  throw new RpcFault(rpcCodes.invalidRequest, "There is no such session; begin one with 'initialize'.", {
    status: 404,
  });
}

type Admitted = Awaited<ReturnType<typeof admitExchange>>;

async function takeNotice(exchange: Exchange, { method, params }: RpcNotice): Promise<Admitted> {
  const known = await admitExchange(exchange);
  const { requestId } = params;
  const { session } = exchange.peer;
  const isCancel = method === "notifications/cancelled" && session !== undefined;
  if (isCancel && isRpcId(requestId)) {
    await cancelRequest(known, requestIdIn(session, requestId));
  }
  return known;
}

/** Whatever instance carries the request's call out. */
async function cancelRequest({ deps, context }: AdmittedExchange, requestId: string): Promise<void> {
  const filter = { requestId, callerId: context.caller.id };
  const { data } = await deps.repos.calls.list(context.tenant, filter, { limit: 10, order: "desc" });
  for (const { id } of data.filter(({ state }) => !endStates.includes(state))) {
    await cancelCall(deps, context, id).catch((error: unknown) => {
      if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
    });
  }
}

async function takeResult(exchange: Exchange, id: RpcId, result: JsonObject): Promise<Admitted> {
  const known = await admitExchange(exchange);
  await takeAnswer(known, id, result);
  return known;
}
