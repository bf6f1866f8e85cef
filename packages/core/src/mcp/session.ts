/**
 * A client's side of one MCP server: which era and revision it speaks, its session where there is one, and
 * the two things that are asked of it, its tools and their calls (MCP-2 to MCP-4). A session that the server
 * has forgotten is begun again, once; what it refused for that was not carried out, so it is sent again.
 */
import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import type { Redactor } from "../secrets/redactor.ts";
import { InputRequired, type InputAnswers } from "../tools/tool-call.ts";
import type { SendOptions } from "./http-peer.ts";
import type { RpcError, RpcNotice } from "./json-rpc.ts";
import { toHeaderValue } from "./mirrored-headers.ts";
import {
  clientInfo,
  isSessionRevision,
  isStatelessError,
  knownRevisions,
  metaKeys,
  newestSessionRevision,
  rpcCodes,
  statelessMeta,
  statelessRevision,
  type Era,
} from "./revisions.ts";
import {
  answerRequest,
  defaultResponses,
  elicitationMethod,
  sessionCapabilities,
  statelessCapabilities,
  type Elicitation,
} from "./server-requests.ts";
import { SessionLost, toTooDeep, type ExchangeOptions, type McpTransport } from "./transport.ts";

/** What a server says of itself; for people, nothing is decided by it. */
export interface ServerAbout {
  readonly name: string;
  readonly version: string;
  readonly revision: string;
  /** Tells when its tools change. */
  readonly tellsChanges: boolean;
}

export interface SessionOptions {
  /** `mcp://maps`: what errors call it. */
  readonly name: string;
  /** Undefined: it is to be found out. */
  readonly era: Era | undefined;
  /** What becomes of questions that the server has for people. */
  readonly elicitation: Elicitation;
  readonly onToolsChanged: () => void;
}

export interface ListedTools {
  /** As the server describes them. */
  readonly tools: readonly JsonValue[];
  /** Why they may not be all. */
  readonly warnings: readonly string[];
}

export interface ToolCallRequest {
  readonly name: string;
  readonly arguments: JsonObject;
  /** Names the call to the server; told back with each progress. */
  readonly token: string;
  readonly onProgress?: (progress: JsonObject) => void;
  /** To what the server has asked before. */
  readonly answers?: InputAnswers | undefined;
  /** Arguments that are mirrored in headers. */
  readonly mirrored?: readonly (readonly [name: string, value: string])[];
}

/** Pages of a list that are read, tools that are taken, and characters of these and of cursors, held until the list ends. */
const mostPages = 100;
const mostTools = 1_000;
const longestList = 16_777_216;
const tooLong = `Its list has more than ${longestList} characters`;
/** A server that asks for nothing but to be asked again is asked so often. */
const mostRounds = 5;
/** Milliseconds that an unknown method may take to be refused, before a server counts as one of the other era. */
const probeMs = 5_000;
const cancelMs = 2_000;
export class McpSession {
  readonly transport: McpTransport;
  readonly #options: SessionOptions;
  #era: Era = "session";
  #about: ServerAbout = { name: "", version: "", revision: "", tellsChanges: false };
  #nextId = 1;
  /** The server no longer speaks what was found out. */
  #isStale = false;
  #renewing: Promise<void> | undefined;
  /** Counts sessions: whoever finds a lost one may be late. */
  #generation = 0;

  private constructor(transport: McpTransport, options: SessionOptions) {
    this.transport = transport;
    this.#options = options;
    transport.serve((request) => answerRequest(request, options.elicitation));
  }

  /**
   * Finds out what the server speaks, and begins.
   * @throws GatewayError as the transport does, not sent
   */
  static async open(transport: McpTransport, options: SessionOptions, exchange: ExchangeOptions): Promise<McpSession> {
    const session = new McpSession(transport, options);
    try {
      if (options.era === "session" || !(await session.#discover(exchange))) await session.#initialize(exchange);
      return session;
    } catch (error) {
      throw notBegun(options.name, error);
    }
  }

  get era(): Era {
    return this.#era;
  }

  get about(): ServerAbout {
    return this.#about;
  }

  async listTools(exchange: ExchangeOptions): Promise<ListedTools> {
    const tools: JsonValue[] = [];
    const seen = new Set<string>();
    let size = 0;
    let cursor: string | undefined;
    for (let page = 1; ; page += 1) {
      const result = await this.#listPage(cursor, exchange);
      const given = Array.isArray(result["tools"]) ? result["tools"] : [];
      // An empty cursor is one like any other, and some mean the end by it: then the list begins anew.
      if (cursor === "" && isDeepStrictEqual(given, tools.slice(0, given.length))) return { tools, warnings: [] };
      for (const tool of given) {
        if (tools.length === mostTools) return cut(tools, `It has more than ${mostTools} tools`);
        size += JSON.stringify(tool).length;
        if (size > longestList) return cut(tools, tooLong);
        tools.push(tool);
      }
      const { nextCursor } = result;
      if (typeof nextCursor !== "string") return { tools, warnings: [] };
      size += nextCursor.length;
      if (size > longestList) return cut(tools, tooLong);
      if (seen.has(nextCursor)) {
        return cut(tools, `It gives one cursor again and again after ${page} pages of its list`);
      }
      if (page === mostPages) return cut(tools, `Its list has more than ${mostPages} pages`);
      seen.add(nextCursor);
      cursor = nextCursor;
    }
  }

  /**
   * The result of `tools/call` as it came.
   * @throws InputRequired; GatewayError
   */
  async callTool(call: ToolCallRequest, exchange: ExchangeOptions): Promise<JsonObject> {
    const onNotice = (notice: RpcNotice): void => {
      const isOurs = notice.method === "notifications/progress" && notice.params["progressToken"] === call.token;
      if (isOurs) call.onProgress?.(notice.params);
    };
    let round: JsonObject = call.answers === undefined ? {} : toRound(call.answers);
    for (let asked = 1; asked <= mostRounds; asked += 1) {
      const params = { ...toParams(call), ...round };
      const headers = [["mcp-name", toHeaderValue(call.name)] as const, ...(call.mirrored ?? [])];
      const result = await this.#request("tools/call", params, { ...exchange, onNotice, headers });
      const next = nextRound(result, this.#options);
      if (next === undefined) return result;
      round = next;
    }
    throw new GatewayError("tool_failed", `'${this.#options.name}' asks to be asked again, without an end.`);
  }

  /**
   * Gives the call to whoever brings its result by itself; false where there is nobody, or its answer may be none yet.
   * @throws GatewayError, not sent
   */
  async handOver(call: ToolCallRequest, exchange: ExchangeOptions): Promise<boolean> {
    // Since 2026-07-28 a server may answer with questions, or ask to be asked again.
    if (this.transport.handOver === undefined || this.#era === "stateless") return false;
    await this.transport.handOver({ id: this.#takeId(), method: "tools/call", params: toParams(call) }, exchange);
    return true;
  }

  /** Follows the server's news until it ends them; comes back at once where there are none. */
  async listen(options: SendOptions): Promise<void> {
    if (!this.transport.tellsNews) return;
    // In sessions, questions come on that stream as well.
    const isServed = this.#era === "session" && this.#options.elicitation === "defaults";
    if (!this.#about.tellsChanges && !isServed) return;
    const onNotice = (notice: RpcNotice): void => this.#hear(notice);
    if (this.#era === "session") {
      await this.transport.listen?.(options, onNotice);
      return;
    }
    const params = { notifications: { toolsListChanged: true } };
    await this.#request("subscriptions/listen", params, { ...options, maxBytes: 1_048_576, onNotice });
  }

  /** Neither gone nor another than it was. */
  isAlive(): boolean {
    return !this.#isStale && this.transport.isAlive();
  }

  close(): Promise<void> {
    return this.transport.close();
  }

  #hear({ method }: RpcNotice): void {
    if (method === "notifications/tools/list_changed") this.#options.onToolsChanged();
  }

  async #listPage(cursor: string | undefined, exchange: ExchangeOptions): Promise<JsonObject> {
    try {
      return await this.#request("tools/list", cursor === undefined ? {} : { cursor }, exchange);
    } catch (error) {
      // A server of prompts and resources alone.
      if (cursor === undefined && rpcCodeOf(error) === rpcCodes.methodNotFound) return { tools: [] };
      throw error;
    }
  }

  /** @throws GatewayError; what was not carried out because the session was lost is sent again */
  async #request(method: string, params: JsonObject, exchange: ExchangeOptions): Promise<JsonObject> {
    for (let attempt = 1; ; attempt += 1) {
      if (this.#renewing !== undefined) await this.#renewing;
      const generation = this.#generation;
      try {
        return await this.#send(method, params, exchange);
      } catch (error) {
        if (!(error instanceof SessionLost)) throw error;
        if (attempt > 1) throw lostAgain(this.#options.name);
        if (generation === this.#generation) await this.#renew(exchange);
      }
    }
  }

  async #send(method: string, params: JsonObject, exchange: ExchangeOptions): Promise<JsonObject> {
    const id = this.#takeId();
    let isSent = false;
    const onNotice = (notice: RpcNotice): void => {
      this.#hear(notice);
      exchange.onNotice?.(notice);
    };
    const onSent = (): void => {
      isSent = true;
      exchange.onSent?.();
    };
    try {
      const answer = await this.transport.request(
        { id, method, params: this.#era === "session" ? params : this.#withMeta(params) },
        { ...exchange, onNotice, onSent, headers: this.#mirror(method, exchange.headers) },
      );
      if (answer.kind === "result") return answer.result;
      if (answer.kind === "too-deep") throw toTooDeep(this.#options.name);
      throw toFailure(this.#options.name, answer.error, exchange.context.redactor);
    } catch (error) {
      if (isAboutEra(error, this.#era)) this.#isStale = true;
      if (isSent && exchange.signal.aborted) this.#cancel(id, exchange);
      throw error;
    }
  }

  #mirror(method: string, more: ExchangeOptions["headers"] = []): NonNullable<ExchangeOptions["headers"]> {
    return this.#era === "session" ? [] : [["mcp-method", method], ...more];
  }

  /** Best effort: in the stateless era the end of the request's stream says it. */
  #cancel(requestId: number, { context }: SendOptions): void {
    if (this.#era === "stateless") return;
    const params = { requestId, reason: "The caller gave up." };
    const options = { context, signal: AbortSignal.timeout(cancelMs), timeoutMs: cancelMs };
    void this.transport.notify({ method: "notifications/cancelled", params }, options).catch(() => undefined);
  }

  #withMeta(params: JsonObject): JsonObject {
    const meta = isJsonObject(params["_meta"]) ? params["_meta"] : {};
    const own = statelessMeta(statelessCapabilities(this.#options.elicitation));
    return { ...params, _meta: { ...meta, ...own } };
  }

  #takeId(): number {
    const id = this.#nextId;
    this.#nextId += 1;
    return id;
  }

  /** One at a time; others wait for it. What has forgotten a session may be another server, with other tools. */
  async #renew(exchange: ExchangeOptions): Promise<void> {
    this.#renewing ??= this.#initialize({ ...exchange, onNotice: undefined, onSent: undefined })
      .then(() => this.#options.onToolsChanged())
      .catch((error: unknown) => {
        // It may speak otherwise now, which the next session finds out.
        this.#isStale = true;
        throw notBegun(this.#options.name, error);
      })
      .finally(() => {
        this.#renewing = undefined;
      });
    await this.#renewing;
  }

  /** Is it of the stateless era? Anything but a clear yes is a no, as the revision says. */
  async #discover(exchange: ExchangeOptions): Promise<boolean> {
    this.#era = "stateless";
    this.transport.speak(statelessRevision);
    const isAsked = this.#options.era === undefined;
    const timeoutMs = isAsked ? Math.min(probeMs, exchange.timeoutMs) : exchange.timeoutMs;
    try {
      const result = await this.#askWhatItSpeaks({ ...exchange, timeoutMs });
      const versions = result["supportedVersions"];
      if (!Array.isArray(versions) || versions.includes(statelessRevision)) {
        this.#learn(statelessRevision, result);
        return true;
      }
      if (!isAsked) throw wrongRevision(this.#options.name, versions.map(String).join(", "));
    } catch (error) {
      if (!isAsked || !meansOtherEra(error)) throw error;
    }
    this.#era = "session";
    return false;
  }

  /** A server may refuse a revision that it names as one of its own, as some do that have just been changed. */
  async #askWhatItSpeaks(exchange: ExchangeOptions): Promise<JsonObject> {
    try {
      return await this.#send("server/discover", {}, exchange);
    } catch (error) {
      if (!namesOurRevision(error)) throw error;
      return this.#send("server/discover", {}, exchange);
    }
  }

  async #initialize(exchange: ExchangeOptions): Promise<void> {
    const { transport } = this;
    this.#era = "session";
    this.#generation += 1;
    transport.beginSession();
    const capabilities = sessionCapabilities(this.#options.elicitation);
    const params = { protocolVersion: newestSessionRevision, capabilities, clientInfo };
    const result = await this.#send("initialize", params, exchange);
    const revision = textOf(result["protocolVersion"]);
    if (!isSessionRevision(revision)) throw wrongRevision(this.#options.name, revision);
    transport.speak(revision);
    this.#learn(revision, result);
    await transport.notify({ method: "notifications/initialized", params: {} }, exchange);
  }

  #learn(revision: string, result: JsonObject): void {
    this.#isStale = false;
    const meta = isJsonObject(result["_meta"]) ? result["_meta"] : {};
    const info = result["serverInfo"] ?? meta[metaKeys.serverInfo];
    const { name, version } = isJsonObject(info) ? info : {};
    const capabilities = isJsonObject(result["capabilities"]) ? result["capabilities"] : {};
    const tools = isJsonObject(capabilities["tools"]) ? capabilities["tools"] : {};
    this.#about = {
      name: typeof name === "string" ? name : "",
      version: typeof version === "string" ? version : "",
      revision,
      tellsChanges: tools["listChanged"] === true,
    };
  }
}

function cut(tools: readonly JsonValue[], reason: string): ListedTools {
  return { tools, warnings: [`${reason}; the rest is left out.`] };
}

/**
 * What a result that is none yet is answered with; undefined: it is one.
 * @throws InputRequired, GatewayError `tool_failed`
 */
function nextRound(result: JsonObject, { name, elicitation }: SessionOptions): JsonObject | undefined {
  const { resultType = "complete", inputRequests, requestState } = result;
  if (resultType === "complete") return undefined;
  const state = typeof requestState === "string" ? requestState : undefined;
  const requests = isJsonObject(inputRequests) ? inputRequests : {};
  const isAsked = Object.keys(requests).length > 0;
  if (resultType !== "input_required" || (!isAsked && state === undefined)) {
    throw new GatewayError(
      "tool_failed",
      `'${name}' gave a result of the type '${textOf(resultType)}', which is none.`,
    );
  }
  if (!isAsked) return toRound({ responses: undefined, state });
  requirePeople(name, requests, elicitation);
  const responses = elicitation === "defaults" ? defaultResponses(requests) : undefined;
  if (responses !== undefined) return toRound({ responses, state });
  throw new InputRequired(requests, state);
}

function toParams({ name, arguments: args, token }: ToolCallRequest): JsonObject {
  return { name, arguments: args, _meta: { progressToken: token } };
}

function toRound({
  responses,
  state,
}: {
  readonly responses: JsonObject | undefined;
  readonly state: string | undefined;
}): JsonObject {
  return {
    ...(responses === undefined ? {} : { inputResponses: responses }),
    ...(state === undefined ? {} : { requestState: state }),
  };
}

/** Only what people can be asked is passed on. */
function requirePeople(name: string, requests: JsonObject, elicitation: Elicitation): void {
  const methods = Object.values(requests).map((request) =>
    textOf(isJsonObject(request) ? request["method"] : undefined),
  );
  const other = methods.find((method) => elicitation === "decline" || method !== elicitationMethod);
  if (other === undefined) return;
  throw new GatewayError(
    "tool_failed",
    `'${name}' asks for '${other.slice(0, 100)}', which this client has not offered it.`,
    { extra: { input_required: true } },
  );
}

function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

function toFailure(name: string, { code, message, status, data }: RpcError, redactor: Redactor): GatewayError {
  const text = message === "" ? `error ${code}` : `${message} (error ${code})`;
  const supported = code === rpcCodes.unsupportedVersion && isJsonObject(data) ? data["supported"] : undefined;
  return withDelivery(
    new GatewayError("tool_failed", `'${name}' refused: ${redactor.redact(text).slice(0, 2_000)}`, {
      extra: {
        rpc_code: code,
        ...(status === undefined ? {} : { status }),
        ...(Array.isArray(supported) ? { supported: supported.slice(0, 16) } : {}),
      },
    }),
    "answered",
  );
}

function namesOurRevision(error: unknown): boolean {
  const supported = error instanceof GatewayError ? error.details.extra?.["supported"] : undefined;
  return Array.isArray(supported) && supported.includes(statelessRevision);
}

/** The code of the error that the server gave, where it gave one. */
function rpcCodeOf(error: unknown): number | undefined {
  const code = error instanceof GatewayError ? error.details.extra?.["rpc_code"] : undefined;
  return typeof code === "number" ? code : undefined;
}

/** Refusals of credentials, limits and connections say nothing of the era. */
function meansOtherEra(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return error instanceof SessionLost;
  const code = rpcCodeOf(error);
  if (code !== undefined) return !isStatelessError(code) || code === rpcCodes.unsupportedVersion;
  const status = error.details.extra?.["status"];
  if (typeof status === "number") return ![401, 403, 429].includes(status) && status < 502;
  // Silence, or an answer that is none; a server that is not there will not be there for `initialize` either.
  return deliveryOf(error) === "uncertain";
}

/** Refusals that a server of the era would not give to what it has spoken before. */
function isAboutEra(error: unknown, era: Era): boolean {
  if (rpcCodeOf(error) === rpcCodes.unsupportedVersion) return true;
  if (era === "session") return false;
  const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
  return status === 400 || status === 404 || status === 405;
}

function wrongRevision(name: string, version: string): GatewayError {
  return new GatewayError(
    "tool_failed",
    `'${name}' speaks revision ${version.slice(0, 100)} of MCP; this gateway speaks ${knownRevisions.join(", ")}.`,
  );
}

/** Nothing of a call has been sent. */
function notBegun(name: string, error: unknown): unknown {
  if (error instanceof SessionLost) return lostAgain(name);
  return error instanceof Error ? withDelivery(error, "not_sent") : error;
}

function lostAgain(name: string): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `'${name}' began a session and did not know it with the next request.`),
    "not_sent",
  );
}
