/** What clients post: one message of JSON-RPC, or in revision 2025-03-26 a batch of them. Strict, since anybody may post. */
import { isJsonObject, isRawNumber, type JsonValue } from "../json.ts";
import { decodeMessage, type RpcId, type RpcMessage } from "../mcp/json-rpc.ts";
import { invalidRequest } from "./fault.ts";

const longestId = 256;

/** @throws RpcFault */
export function readMessage(value: JsonValue): RpcMessage {
  if (!isJsonObject(value)) throw invalidRequest("The body must be one JSON-RPC message.");
  if (value["jsonrpc"] !== "2.0") throw invalidRequest("'jsonrpc' must be \"2.0\".");
  const { id, method, params } = value;
  if (method !== undefined && id !== undefined && idOf(value) === null) {
    throw invalidRequest("'id' must be a text or a whole number.");
  }
  if (params !== undefined && !isJsonObject(params)) throw invalidRequest("'params' must be an object.");
  const message = decodeMessage(value);
  if (message === undefined) throw invalidRequest("The body is no request, notification or response of JSON-RPC.");
  return message;
}

/** For errors about a message that may not be one. */
export function idOf(value: JsonValue): RpcId | null {
  const id = isJsonObject(value) ? value["id"] : undefined;
  if (typeof id === "string" && id.length <= longestId) return id;
  return isRawNumber(id) || (typeof id === "number" && Number.isInteger(id)) ? id : null;
}
