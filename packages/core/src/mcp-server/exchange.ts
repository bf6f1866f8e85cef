/** One message of a client and what is known of it: what the methods of the server are given. */
import type { HeaderReader, Presented } from "../callers/authenticate.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { JsonObject } from "../json.ts";
import type { RpcMessage, RpcRequest } from "../mcp/json-rpc.ts";
import type { AdmitResult } from "../ports/calls.ts";
import type { Span } from "../ports/traces.ts";
import type { Peer } from "./peer.ts";
import type { Toolset } from "./toolset.ts";

/** As the host gives it. */
export interface McpRequest {
  readonly presented: Presented;
  /** `/mcp/{toolset}`. */
  readonly toolset: string | undefined;
  readonly message: RpcMessage;
  readonly header: HeaderReader;
  readonly requestId: string;
  readonly traceId: string;
  readonly span: Span | undefined;
  readonly idempotencyKey: string | undefined;
  /** Aborts when the client has left. */
  readonly signal: AbortSignal;
  /** Sends a message ahead of the answer; undefined: the client takes no stream. */
  readonly send: ((text: string) => void) | undefined;
  /** Milliseconds until the host cuts the request; undefined: it does not. */
  readonly remainingMs: number | undefined;
  /** A process that can hold a stream for as long as it likes, until it is told to stop. */
  readonly resident: { readonly isDraining: () => boolean } | undefined;
  readonly version: string;
}

/** With its sender known, in the protocol and to the gateway. */
export interface Exchange extends Omit<McpRequest, "message"> {
  readonly deps: CoreDeps;
  readonly peer: Peer;
  readonly toolset: string | undefined;
}

/** A request whose caller has been admitted. */
export interface AdmittedExchange extends Exchange {
  readonly context: CallContext;
  readonly tools: Toolset;
}

/** What `tools/call` names. */
export interface AskedCall {
  readonly name: string;
  readonly arguments: JsonObject;
}

export interface McpReply {
  /** Of HTTP. */
  readonly status: number;
  /** Text of the message; undefined: none. */
  readonly body: string | undefined;
  readonly sessionId?: string;
  readonly callerId?: string;
  readonly callId?: string;
  readonly rate?: AdmitResult["rate"];
  /** What the answer does not wait for, but its request does. */
  readonly settled?: Promise<unknown>;
}

export interface MethodReply extends Omit<McpReply, "status" | "body"> {
  readonly result: JsonObject;
}

export type Method = (exchange: Exchange, request: RpcRequest) => Promise<MethodReply>;
