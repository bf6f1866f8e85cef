/**
 * Refusals of `/mcp` that are none of the protocol's own (MCP-3), for its clients: those that take its streams. Of
 * a refusal such a client reads an error of JSON-RPC or nothing at all, so the gateway's own error stands in its `data`.
 * Some read it with the id of their request alone.
 */
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import { toOpenAiError } from "@toolyard/core/errors/to-openai";
import { encodeError, type RpcId } from "@toolyard/core/mcp/json-rpc";
import { rpcCodes } from "@toolyard/core/mcp/revisions";
import { isMcpPath } from "./protected-resource.ts";

interface Refused {
  readonly method: string;
  readonly path: string;
  readonly accept: string | undefined;
  readonly requestId: string;
  /** Null: no message has been read. */
  readonly rpcId: RpcId | null;
}

/** Undefined where the gateway's own body is read. */
export function toMcpRefusal(
  error: GatewayError,
  { method, path, accept, requestId, rpcId }: Refused,
): string | undefined {
  if (method !== "POST" || !isMcpPath(path) || accept?.includes("text/event-stream") !== true) return undefined;
  const code = error.spec.http < 500 ? rpcCodes.invalidRequest : rpcCodes.internalError;
  const { error: own } = toOpenAiError(error, requestId);
  const said = Object.entries(own).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
  return encodeError(rpcId, code, error.message, Object.fromEntries(said));
}
