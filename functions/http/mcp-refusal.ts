/**
 * Refusals of `/mcp` before any message is read (MCP-3), for clients of the protocol: those that take its streams. Of
 * a refusal such a client reads an error of JSON-RPC or nothing at all, so the gateway's own error stands in its `data`.
 */
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import { toOpenAiError } from "@toolyard/core/errors/to-openai";
import { encodeError } from "@toolyard/core/mcp/json-rpc";
import { rpcCodes } from "@toolyard/core/mcp/revisions";
import { isMcpPath } from "./protected-resource.ts";

interface Refused {
  readonly method: string;
  readonly path: string;
  readonly accept: string | undefined;
  readonly requestId: string;
}

/** Undefined where the gateway's own body is read. */
export function toMcpRefusal(error: GatewayError, { method, path, accept, requestId }: Refused): string | undefined {
  if (method !== "POST" || !isMcpPath(path) || accept?.includes("text/event-stream") !== true) return undefined;
  const code = error.spec.http < 500 ? rpcCodes.invalidRequest : rpcCodes.internalError;
  const { error: own } = toOpenAiError(error, requestId);
  const said = Object.entries(own).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
  return encodeError(null, code, error.message, Object.fromEntries(said));
}
