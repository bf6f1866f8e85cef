/**
 * `/mcp`: the tenant's tools for any client of the Model Context Protocol, over Streamable HTTP in both eras
 * (design "MCP"). Here is what belongs to HTTP: origins, bodies, and when an answer becomes a stream.
 */
import type { Presented } from "@toolyard/core/callers/authenticate";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import type { JsonValue } from "@toolyard/core/json";
import { encodeError, withLongIds } from "@toolyard/core/mcp/json-rpc";
import { rpcCodes } from "@toolyard/core/mcp/revisions";
import { invalidRequest, RpcFault } from "@toolyard/core/mcp-server/fault";
import { idOf, readMessage } from "@toolyard/core/mcp-server/incoming";
import { refuseMcp, serveMcp } from "@toolyard/core/mcp-server/serve";
import type { McpReply } from "@toolyard/core/mcp-server/exchange";
import * as z from "zod";
import { headerOf, hostOf, type AppContext, type AppDeps } from "../app-env.ts";
import { parseJsonBody } from "../body.ts";
import { defineRoute, type Isolation, type RouteModule } from "../define-route.ts";
import { readIdempotencyKey } from "../idempotency-key.ts";
import { mcpPath, metadataPath } from "../protected-resource.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { answerThroughSink, eventStreamHeaders, type ResponseSink } from "../sink.ts";

/** Arguments may hold files. */
const maxBodyBytes = 33_554_432;
/** An answer that takes longer becomes a stream, which is kept alive. */
const streamAfterMs = 2_000;
/** Messages of one body, in the one revision that has batches. */
const mostMessages = 20;

const messageSchema = z
  .looseObject({ jsonrpc: z.literal("2.0") })
  .meta({ description: "A JSON-RPC message of the Model Context Protocol." });

const oneOrMore = z.union([messageSchema, z.array(messageSchema).max(mostMessages)]);

/** An error of JSON-RPC, or the gateway's own for who takes no streams (mcp-refusal.ts). */
const refusalSchema = z.looseObject({ error: z.looseObject({ message: z.string() }) });
const refusals = Object.fromEntries(
  [401, 403, 413, 429, 500, 503].map((status) => [
    status,
    { description: "Not read: `error.data`, or `error` itself, has the gateway's `code`.", schema: refusalSchema },
  ]),
);

function mcpRoute(path: string, summary: string, isolation: Isolation): RouteModule {
  return defineRoute({
    method: "post",
    path,
    summary,
    description:
      "Revisions 2026-07-28 and 2025-03-26 to 2025-11-25; each request can be answered by any instance. See docs/mcp-server.md.",
    tags: ["mcp"],
    scope: "tools",
    admission: "own",
    request: {
      stream: {
        mediaTypes: ["application/json"],
        description: "One JSON-RPC message; of revision 2025-03-26 a list of them, too.",
        json: oneOrMore,
      },
      maxBytes: maxBodyBytes,
      headers: {
        "mcp-protocol-version": "The revision that the client speaks.",
        "mcp-session-id": "As `initialize` was answered with, until 2025-11-25.",
        "idempotency-key": "The first outcome of a tool call is given again for 24 hours.",
      },
    },
    responses: {
      200: {
        description: "The answer; to a batch, which revision 2025-03-26 has, a list.",
        schema: oneOrMore,
        content: { "text/event-stream": messageSchema },
      },
      202: { description: "Taken; there is nothing to answer." },
      ...refusals,
      400: { description: "No message of the protocol, or not as its headers say.", schema: refusalSchema },
      404: { description: "No such method, session or toolset.", schema: refusalSchema },
    },
    isolation,
    handler: (c, { app, presented, stream }) => answerMcp(c, app, { presented, body: stream }),
  });
}

export const mcp = mcpRoute(mcpPath, "The tools of the tenant for an MCP client", {
  kind: "nothing-owned",
  reason: "lists and calls tools of the caller's own tenant; see the MCP suites",
});

const listMessage = { jsonrpc: "2.0", id: 1, method: "tools/list" };

export const mcpToolset = mcpRoute(`${mcpPath}/{toolset}`, "A subset of the tools for an MCP client", {
  kind: "object",
  arrange: async (owner) => {
    await owner.send("patch", "/v1/settings", { mcp_toolsets: { isolated: { tools: ["isolated_*"] } } });
    return { params: { toolset: "isolated" }, body: listMessage };
  },
});

interface Posted {
  readonly presented: Presented;
  readonly body: AsyncIterable<Uint8Array>;
}

async function answerMcp(c: AppContext, app: AppDeps, posted: Posted): Promise<Response> {
  requireOrigin(headerOf(c, "origin"), app);
  const value = await readValue(c, posted.body);
  return answerThroughSink(c, async (sink) => {
    const answer = new McpAnswer(c, sink);
    if (value instanceof RpcFault) await answer.end(await refuseMcp(app.core, posted, value, null));
    else if (Array.isArray(value)) await answerBatch(c, app, { ...posted, values: value, answer });
    else await answerOne(c, app, { ...posted, value, answer });
  });
}

/**
 * A page of somebody else's, which a browser has let near by a name that leads here (DNS rebinding). Programs
 * send no origin.
 */
function requireOrigin(origin: string | undefined, { core, mcpOrigins = [] }: AppDeps): void {
  if (origin === undefined || mcpOrigins.includes("*") || mcpOrigins.includes(origin)) return;
  const url = URL.parse(origin);
  const isOurs = url !== null && (url.origin === new URL(core.publicUrl).origin || isOwnMachine(url));
  if (isOurs) return;
  throw new GatewayError(
    "permission_denied",
    "Web pages of this origin may not use this endpoint; the operator allows them with TOOLYARD_MCP_ORIGINS.",
    { param: "origin" },
  );
}

function isOwnMachine({ protocol, hostname }: URL): boolean {
  return /^https?:$/.test(protocol) && ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
}

async function readValue(c: AppContext, body: AsyncIterable<Uint8Array>): Promise<JsonValue | RpcFault> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  try {
    const bytes = Buffer.concat(parts);
    // What JSON parses to.
    const value = (parseJsonBody(c, bytes, { numbers: "as text" }) ?? null) as JsonValue;
    return withLongIds(value, bytes.toString("utf8"));
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "invalid_json") throw error;
    return new RpcFault(rpcCodes.parseError, error.message, { status: 400 });
  }
}

interface One extends Omit<Posted, "body"> {
  readonly value: JsonValue;
  readonly answer: McpAnswer;
}

function isRequest(value: JsonValue): boolean {
  return typeof value === "object" && value !== null && "method" in value && "id" in value;
}

async function answerOne(c: AppContext, app: AppDeps, one: One): Promise<void> {
  const { value, answer } = one;
  c.get("exchange").rpcId = isRequest(value) ? idOf(value) : null;
  const timer = answer.takesStream ? setTimeout(() => answer.openStream(), streamAfterMs) : undefined;
  const mayTell = isRequest(value) && answer.takesStream;
  let reply: McpReply;
  try {
    reply = await serve(c, app, { ...one, ...(mayTell ? { send: answer.send } : {}) });
  } catch (error) {
    if (!answer.isStream) throw error;
    reply = refusalIn(value, error);
  } finally {
    clearTimeout(timer);
  }
  await answer.end(reply);
}

/** Where the status can say it no more, all that is left is the error of the protocol. */
function refusalIn(value: JsonValue, error: unknown): McpReply {
  const { code, message } = toGatewayError(error);
  const body = encodeError(idOf(value), rpcCodes.internalError, message, { code });
  return { status: 200, body: isRequest(value) ? body : undefined };
}

interface Serving extends One {
  readonly send?: (text: string) => void;
  /** Of the message in its batch. */
  readonly place?: number;
}

async function serve(
  c: AppContext,
  { core, version, isDraining }: AppDeps,
  { value, presented, answer, send, place }: Serving,
): Promise<McpReply> {
  const { requestId, traceId, span } = c.get("exchange");
  const { lambda } = hostOf(c);
  try {
    return await serveMcp(core, {
      presented,
      toolset: c.req.param("toolset"),
      message: readMessage(value),
      header: (name) => headerOf(c, name),
      requestId,
      traceId,
      span,
      idempotencyKey: keyOf(c, place),
      signal: answer.signal,
      send,
      remainingMs: lambda?.remainingMs(),
      resident: lambda === undefined ? { isDraining: isDraining ?? (() => false) } : undefined,
      version,
    });
  } catch (error) {
    if (!(error instanceof RpcFault)) throw error;
    return refuseMcp(core, { presented }, error, idOf(value));
  }
}

/** A request's key is for each of its messages another one, which no request can have: keys have no blanks. */
function keyOf(c: AppContext, place: number | undefined): string | undefined {
  const key = readIdempotencyKey(c);
  return key === undefined || place === undefined ? key : `${key} ${place}`;
}

interface Batch extends Omit<One, "value"> {
  readonly values: readonly JsonValue[];
}

/** Of revision 2025-03-26 alone; one after the other, and answered together. */
async function answerBatch(c: AppContext, app: AppDeps, { values, presented, answer }: Batch): Promise<void> {
  const revision = headerOf(c, "mcp-protocol-version") ?? "2025-03-26";
  if (revision !== "2025-03-26" || values.length === 0 || values.length > mostMessages) {
    const problem = `The body must be one message; batches of up to ${mostMessages} are of revision 2025-03-26 alone.`;
    await answer.end(await refuseMcp(app.core, { presented }, invalidRequest(problem), null));
    return;
  }
  const replies: McpReply[] = [];
  for (const [place, value] of values.entries()) {
    // Its slot and what it reserves are the next one's.
    await replies.at(-1)?.settled;
    try {
      replies.push(await serve(c, app, { value, presented, answer, place }));
    } catch (error) {
      // What was done before is told.
      if (place === 0) throw error;
      replies.push(refusalIn(value, error));
    }
  }
  const bodies = replies.flatMap(({ body }) => (body === undefined ? [] : [body]));
  const settled = replies.at(-1)?.settled ?? Promise.resolve();
  const whole = bodies.length === 0 ? { status: 202, body: undefined } : { status: 200, body: `[${bodies.join(",")}]` };
  await answer.end({ ...whole, settled });
}

/** The answer to one request: JSON where it comes soon, a stream of events where something comes before it. */
class McpAnswer {
  readonly #c: AppContext;
  readonly #sink: ResponseSink;
  readonly #left = new AbortController();
  readonly takesStream: boolean;
  #isStream = false;

  constructor(c: AppContext, sink: ResponseSink) {
    this.#c = c;
    this.#sink = sink;
    this.takesStream = headerOf(c, "accept")?.includes("text/event-stream") === true;
    sink.onClose((why) => this.#left.abort(why));
  }

  /** Aborts when the client has left. */
  get signal(): AbortSignal {
    return this.#left.signal;
  }

  get isStream(): boolean {
    return this.#isStream;
  }

  openStream(): void {
    if (this.#isStream || this.#sink.closed) return;
    this.#isStream = true;
    this.#sink.head(200, eventStreamHeaders);
  }

  readonly send = (text: string): void => {
    this.openStream();
    void this.#sink.write(toEvent(text));
  };

  async end(reply: McpReply): Promise<void> {
    const { status, body, settled } = reply;
    this.#tell(reply);
    if (!this.#isStream) this.#sink.head(status, body === undefined ? {} : headersOf(body));
    // The whole message is there, by its end or its length: the client goes on while the call is settled.
    if (body !== undefined) void this.#sink.write(this.#isStream ? toEvent(body) : body);
    await settled;
    this.#sink.end();
  }

  #tell({ callerId, callId, rate, sessionId }: McpReply): void {
    const exchange = this.#c.get("exchange");
    if (callerId !== undefined) exchange.callerId = callerId;
    if (callId !== undefined) exchange.headers["x-toolyard-call-id"] = callId;
    if (sessionId !== undefined) exchange.headers["mcp-session-id"] = sessionId;
    if (rate !== undefined) setRateLimitHeaders(exchange.headers, rate);
  }
}

function headersOf(body: string): Readonly<Record<string, string>> {
  return { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) };
}

/** JSON has no line ends of its own. */
function toEvent(text: string): string {
  return `event: message\ndata: ${text}\n\n`;
}

const metadataSchema = z.strictObject({
  resource: z.url(),
  resource_name: z.string(),
  authorization_servers: z.array(z.url()).optional(),
  scopes_supported: z.array(z.string()),
  bearer_methods_supported: z.array(z.literal("header")),
  resource_documentation: z.url(),
});

function metadataRoute(path: string, resource: string): RouteModule {
  return defineRoute({
    method: "get",
    path,
    summary: "How clients of /mcp get in (RFC 9728)",
    description:
      "Without 'authorization_servers' keys are the way. With 'tenant' those that this tenant names in its setting 'mcp_authorization_servers'.",
    tags: ["mcp"],
    scope: null,
    admission: "none",
    request: { query: z.object({ tenant: z.string().min(1).max(64).optional() }) },
    responses: { 200: { description: "The metadata of the resource", schema: metadataSchema } },
    async handler(c, { app: { core, defaultTenant }, query }) {
      const tenant = query.tenant ?? defaultTenant;
      const row = tenant === undefined ? undefined : await core.repos.tenants.get(tenant);
      const servers = row?.settings.mcp_authorization_servers ?? [];
      return c.json({
        resource: `${core.publicUrl}${resource}`,
        resource_name: "Toolyard",
        ...(servers.length === 0 ? {} : { authorization_servers: servers }),
        scopes_supported: ["tools", "approve"],
        bearer_methods_supported: ["header"],
        resource_documentation: `${core.publicUrl}/docs`,
      });
    },
  });
}

export const mcpMetadata = metadataRoute(`${metadataPath}${mcpPath}`, mcpPath);
export const mcpToolsetMetadata = metadataRoute(`${metadataPath}${mcpPath}/{toolset}`, mcpPath);
export const resourceMetadata = metadataRoute(metadataPath, mcpPath);
