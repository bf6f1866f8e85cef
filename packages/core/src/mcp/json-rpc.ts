/**
 * JSON-RPC 2.0 messages as MCP servers send them. What comes is somebody else's: read loosely where nothing
 * hangs on it, and refused where it is not clear what it answers.
 */
import {
  isDeeperThan,
  isJsonObject,
  isRawNumber,
  mayLoseDigits,
  parseJson,
  parseJsonExactly,
  toRawNumber,
  type JsonObject,
  type JsonValue,
  type RawNumber,
} from "../json.ts";

/** Given back as it came, also where a double cannot hold it. */
export type RpcId = string | number | RawNumber;

/** Of requests that we make. */
export type OwnId = Exclude<RpcId, RawNumber>;

export interface RpcRequest<Id extends RpcId = RpcId> {
  readonly id: Id;
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
  const read = parsed === undefined ? undefined : withLongIds(parsed, text);
  const values = Array.isArray(read) ? read : [read];
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

export function isRpcId(value: unknown): value is RpcId {
  return typeof value === "string" || typeof value === "number" || isRawNumber(value);
}

/** Where messages name requests, their own or others. */
const idPlaces = [["id"], ["params", "requestId"], ["params", "_meta", "progressToken"]] as const;

/**
 * Messages with the ids in them as they are in the text.
 * @param messages read from the text, with numbers or with texts of their digits
 */
export function withLongIds(messages: JsonValue, text: string): JsonValue {
  // Results are long, and mostly it is they that have such numbers.
  if (!mayLoseDigits(text) || !(Array.isArray(messages) ? messages : [messages]).some(mayHaveLongId)) return messages;
  const [plain, exact] = [parseJson(text), parseJsonExactly(text)];
  if (!Array.isArray(messages)) return withIds(messages, plain, exact);
  const at = (list: JsonValue | undefined, index: number): JsonValue | undefined =>
    Array.isArray(list) ? list[index] : undefined;
  return messages.map((message, index) => withIds(message, at(plain, index), at(exact, index)));
}

function mayHaveLongId(message: JsonValue): boolean {
  return idPlaces.some((place) => {
    const id = memberAt(message, place);
    return typeof id === "string" ? /^-?\d{16,}$/.test(id) : typeof id === "number" && !Number.isSafeInteger(id);
  });
}

function withIds(message: JsonValue, plain: JsonValue | undefined, exact: JsonValue | undefined): JsonValue {
  return idPlaces.reduce((read, place) => {
    const id = memberAt(exact, place);
    const isLong = typeof id === "string" && typeof memberAt(plain, place) === "number";
    return isLong ? withMember(read, place, toRawNumber(id)) : read;
  }, message);
}

function memberAt(value: JsonValue | undefined, place: readonly string[]): JsonValue | undefined {
  return place.reduce((part, name) => (isJsonObject(part) ? part[name] : undefined), value);
}

function withMember(value: JsonValue, [name = "", ...rest]: readonly string[], member: JsonValue): JsonValue {
  if (!isJsonObject(value)) return value;
  return { ...value, [name]: rest.length === 0 ? member : withMember(value[name] ?? null, rest, member) };
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
