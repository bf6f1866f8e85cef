/**
 * JSON-RPC 2.0 messages as MCP servers send them. What comes is somebody else's: read loosely where nothing
 * hangs on it, and refused where it is not clear what it answers.
 */
import { isDeeperThan, isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";

export type RpcId = string | number;

export interface RpcRequest {
  readonly id: RpcId;
  readonly method: string;
  readonly params: JsonObject;
}

export interface RpcNotice {
  readonly method: string;
  readonly params: JsonObject;
}

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data: JsonValue;
  /** Of HTTP, where the error came with a refusal. */
  readonly status?: number;
}

export type RpcResponse =
  | { readonly kind: "result"; readonly id: RpcId; readonly result: JsonObject }
  /** Null: the server could not tell whose error it is. */
  | { readonly kind: "error"; readonly id: RpcId | null; readonly error: RpcError }
  /** The request is answered, with what nobody reads: see `deepestMessage`. */
  | { readonly kind: "too-deep"; readonly id: RpcId | null };

export type RpcMessage =
  | RpcResponse
  | ({ readonly kind: "request" } & RpcRequest)
  | ({ readonly kind: "notice" } & RpcNotice);

export function encodeRequest({ id, method, params }: RpcRequest): string {
  return JSON.stringify({ jsonrpc: "2.0", id, method, params });
}

export function encodeNotice({ method, params }: RpcNotice): string {
  return JSON.stringify({ jsonrpc: "2.0", method, params });
}

export function encodeResult(id: RpcId, result: JsonObject): string {
  return JSON.stringify({ jsonrpc: "2.0", id, result });
}

/** @param id null: it could not be read */
export function encodeError(id: RpcId | null, code: number, message: string, data?: JsonValue): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: { code, message, ...(data === undefined ? {} : { data }) } });
}

/**
 * Levels of nesting in a message. What is in it is compared, checked and written by calls within calls, which would
 * run out of stack.
 */
export const deepestMessage = 1_000;

/** Has at least a bracket and its end for each level. */
export function isTooDeep(text: string, value: JsonValue | undefined): boolean {
  return text.length > 2 * deepestMessage && isDeeperThan(value, deepestMessage);
}

/** All messages of a text, which may hold a batch; what is none is left out. */
export function decodeMessages(text: string): readonly RpcMessage[] {
  const parsed = parseJson(text);
  const values = Array.isArray(parsed) ? parsed : [parsed];
  return values.flatMap((value) => {
    const message = decodeMessage(value);
    if (message === undefined) return [];
    return [isTooDeep(text, value) ? withoutContent(message) : message];
  });
}

/** What hangs on it: a request is answered and an answer has come, whatever is in them. */
function withoutContent(message: RpcMessage): RpcMessage {
  if (message.kind === "request" || message.kind === "notice") return { ...message, params: {} };
  return { kind: "too-deep", id: message.id };
}

/** Undefined: it is no message. */
export function decodeMessage(value: JsonValue | undefined): RpcMessage | undefined {
  if (!isJsonObject(value)) return undefined;
  const { id, method, result, error } = value;
  if (typeof method === "string") {
    const params = isJsonObject(value["params"]) ? value["params"] : {};
    return isRpcId(id) ? { kind: "request", id, method, params } : { kind: "notice", method, params };
  }
  if (isJsonObject(error)) return { kind: "error", id: isRpcId(id) ? id : null, error: toError(error) };
  return isRpcId(id) && isJsonObject(result) ? { kind: "result", id, result } : undefined;
}

function isRpcId(value: unknown): value is RpcId {
  return typeof value === "string" || typeof value === "number";
}

function toError({ code, message, data = null }: JsonObject): RpcError {
  return {
    code: typeof code === "number" ? code : 0,
    message: typeof message === "string" ? message : "",
    data,
  };
}

/** Does it answer this request? */
export function isAnswerTo(message: RpcMessage, id: RpcId): message is RpcResponse {
  return message.kind !== "request" && message.kind !== "notice" && message.id === id;
}
