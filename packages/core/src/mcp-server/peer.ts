/**
 * Who speaks to us, and how: read from every request by itself, so that any instance can answer it. Since
 * 2026-07-28 a request says everything in `_meta` and repeats some of it in headers, which must agree: what is
 * decided on is the body, and a header that says otherwise is refused.
 */
import { randomBytes } from "node:crypto";
import type { HeaderReader } from "../callers/authenticate.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { RpcRequest } from "../mcp/json-rpc.ts";
import { fromHeaderValue } from "../mcp/mirrored-headers.ts";
import {
  isSessionRevision,
  metaKeys,
  newestSessionRevision,
  rpcCodes,
  statelessRevision,
  tasksExtension,
  type Era,
} from "../mcp/revisions.ts";
import { headerMismatch, RpcFault } from "./fault.ts";
import type { Session } from "./session-token.ts";

export interface Peer {
  readonly era: Era;
  readonly revision: string;
  /** Its user can be asked with a form. */
  readonly takesForms: boolean;
  /** It can ask about a task later. */
  readonly takesTasks: boolean;
  /** Name and version, as it says itself. */
  readonly client: string | undefined;
  /** Of the older revisions, where it has begun one. */
  readonly session: Session | undefined;
}

/** What a client that names no revision speaks. */
const unnamedRevision = "2025-03-26";

/** Of which era the message is; `initialize` belongs to the older one whatever headers say. */
export function eraOf(method: string, params: JsonObject, header: HeaderReader): Era {
  if (Object.hasOwn(metaOf(params), metaKeys.version)) return "stateless";
  const named = header("mcp-protocol-version");
  return method === "initialize" || named === undefined || isSessionRevision(named) ? "session" : "stateless";
}

export function metaOf(params: JsonObject): JsonObject {
  return isJsonObject(params["_meta"]) ? params["_meta"] : {};
}

/** @throws RpcFault where the request does not say what it must, or headers say otherwise */
export function statelessPeer(request: RpcRequest, header: HeaderReader): Peer {
  const meta = metaOf(request.params);
  const { [metaKeys.version]: revision, [metaKeys.clientCapabilities]: capabilities } = meta;
  const named = header("mcp-protocol-version");
  if (revision === undefined && named !== undefined && named !== statelessRevision) throw unsupported(named);
  if (typeof revision !== "string") throw missingMeta(metaKeys.version, "a text");
  if (!isJsonObject(capabilities)) throw missingMeta(metaKeys.clientCapabilities, "an object");
  requireHeader("MCP-Protocol-Version", named, revision);
  if (revision !== statelessRevision) throw unsupported(revision);
  requireHeader("Mcp-Method", header("mcp-method"), request.method);
  requireName(request, header);
  return {
    era: "stateless",
    revision,
    takesForms: takesForms(capabilities),
    takesTasks: isJsonObject(capabilities["extensions"]) && isJsonObject(capabilities["extensions"][tasksExtension]),
    client: describeClient(meta[metaKeys.clientInfo]),
    session: undefined,
  };
}

/** What `initialize` agrees on. */
export function newSession(params: JsonObject): Session {
  const { protocolVersion, capabilities, clientInfo } = params;
  const isKnown = typeof protocolVersion === "string" && isSessionRevision(protocolVersion);
  return {
    nonce: randomBytes(12).toString("base64url"),
    revision: isKnown ? protocolVersion : newestSessionRevision,
    takesForms: isJsonObject(capabilities) && takesForms(capabilities),
    client: describeClient(clientInfo),
  };
}

export function sessionPeer(header: HeaderReader, session: Session | undefined): Peer {
  return {
    era: "session",
    revision: header("mcp-protocol-version") ?? session?.revision ?? unnamedRevision,
    takesForms: session?.takesForms ?? false,
    takesTasks: false,
    client: session?.client,
    session,
  };
}

/** An empty object stands for forms alone. */
export function takesForms(capabilities: JsonObject): boolean {
  const { elicitation } = capabilities;
  if (!isJsonObject(elicitation)) return false;
  return isJsonObject(elicitation["form"]) || !Object.hasOwn(elicitation, "url");
}

const longestClient = 120;

/** For the audit, so in plain characters. */
export function describeClient(info: JsonValue | undefined): string | undefined {
  if (!isJsonObject(info)) return undefined;
  const parts = [info["name"], info["version"]].filter((part) => typeof part === "string");
  const text = parts.join("/").replaceAll(/[^\x21-\x7e]+/g, "_");
  return text === "" ? undefined : text.slice(0, longestClient);
}

/** Which parameter `Mcp-Name` mirrors. */
const namedBy: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

function requireName({ method, params }: RpcRequest, header: HeaderReader): void {
  const parameter = Object.hasOwn(namedBy, method) ? namedBy[method] : undefined;
  if (parameter === undefined) return;
  const name = params[parameter];
  if (typeof name !== "string") {
    throw new RpcFault(rpcCodes.invalidParams, `'params.${parameter}' must be a text.`);
  }
  requireHeader("Mcp-Name", header("mcp-name"), name);
}

function requireHeader(name: string, given: string | undefined, wanted: string): void {
  if (given === undefined) throw headerMismatch(`${name} is missing.`);
  const value = name === "Mcp-Name" ? fromHeaderValue(given) : given.trim();
  if (value === undefined) throw headerMismatch(`${name} holds what cannot be read.`);
  if (value !== wanted) throw headerMismatch(`${name} does not match the body.`);
}

function missingMeta(key: string, what: string): RpcFault {
  return new RpcFault(rpcCodes.invalidParams, `'params._meta["${key}"]' must be ${what}.`, { status: 400 });
}

function unsupported(requested: string): RpcFault {
  return new RpcFault(rpcCodes.unsupportedVersion, "Unsupported protocol version.", {
    status: 400,
    data: { supported: [statelessRevision], requested: requested.slice(0, 100) },
  });
}
