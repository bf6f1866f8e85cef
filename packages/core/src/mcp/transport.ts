/** What carries JSON-RPC messages to an MCP server and back; one file a transport. */
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { SendOptions } from "./http-peer.ts";
import { deepestMessage, type OwnId, type RpcNotice, type RpcRequest, type RpcResponse } from "./json-rpc.ts";
import { answerRequest } from "./server-requests.ts";

export interface ExchangeOptions extends SendOptions {
  /** The call's row, where the request is one's. */
  readonly call?: { readonly id: string; readonly attempt: number } | undefined;
  /** Bytes that an answer may have. */
  readonly maxBytes: number;
  /** What the server tells while it works on the request. */
  readonly onNotice?: ((notice: RpcNotice) => void) | undefined;
  /** Headers that mirror parts of the request, where the transport has headers. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
}

/** The message that answers a request of the server's own. */
export type RequestAnswerer = (request: RpcRequest) => string;

/** For servers that ask before it is said how they are answered. */
export const refuseRequests: RequestAnswerer = (request) => answerRequest(request, "decline");

export interface McpTransport {
  /**
   * The server's answer, an error of its among them.
   * @throws SessionLost; GatewayError with the fate of the request known to `deliveryOf`
   */
  request(request: RpcRequest<OwnId>, options: ExchangeOptions): Promise<RpcResponse>;
  /** Gives the request to whoever brings the answer to its call by itself. @throws GatewayError, not sent */
  handOver?(request: RpcRequest, options: ExchangeOptions): Promise<void>;
  /** @throws GatewayError where it could not be delivered */
  notify(notice: RpcNotice, options: SendOptions): Promise<void>;
  /** Tells unasked what is new, where a server does; else nobody need listen. */
  readonly tellsNews: boolean;
  /** How the server's own requests are answered; until it is said, they are refused. */
  serve(answer: RequestAnswerer): void;
  /** What comes next begins a session. */
  beginSession(): void;
  /** From now on in this revision. */
  speak(revision: string): void;
  /** Follows what the server tells unasked, until it ends; undefined where that comes by itself. */
  listen?(options: SendOptions, onNotice: (notice: RpcNotice) => void): Promise<void>;
  isAlive(): boolean;
  close(): Promise<void>;
}

/** The server does not know the session any more, and has done nothing. */
export class SessionLost extends Error {
  override readonly name = "SessionLost";

  constructor() {
    super("the server does not know the session");
  }
}

/** The server took the request, and what came back is no answer to it. */
export function toNoAnswer(name: string, problem: string): GatewayError {
  return withDelivery(new GatewayError("tool_failed", `'${name}' ${problem}.`), "uncertain");
}

/** The server has done what it was asked, and nobody reads what it says of it. */
export function toTooDeep(name: string): GatewayError {
  return withDelivery(
    new GatewayError("tool_failed", `'${name}' gave an answer that is nested more than ${deepestMessage} levels deep.`),
    "answered",
  );
}

/** The connection ended before the answer. */
export function toCutOff(name: string): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `'${name}' ended its answer before it was complete.`),
    "uncertain",
  );
}
