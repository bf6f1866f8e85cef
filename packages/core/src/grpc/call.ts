/**
 * One gRPC call on a connection of the door's (SVC-1): a request message, and one answer or several. Ends
 * with the server's status, whatever the messages were.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Http2Connection } from "../ports/egress.ts";
import { withDelivery } from "../errors/delivery.ts";
import { BadFrame, MessageTooLarge, readFrames, toFrame } from "./frames.ts";
import { statusOf, type GrpcStatus } from "./status.ts";

export type Metadata = readonly (readonly [name: string, value: string])[];

export interface GrpcRequest {
  /** `package.Service/Method`. */
  readonly path: string;
  /** Serialised messages: one, but for streams of requests. */
  readonly messages: readonly Uint8Array[];
  readonly metadata: Metadata;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Of all answers together. */
  readonly maxBytes: number;
  /** The method answers once; what answers again is no gRPC. */
  readonly isUnary?: boolean | undefined;
  /** Answers after which no more are read; absent: all. */
  readonly maxMessages?: number | undefined;
  /** More messages could follow, for all that the server knows. */
  readonly staysOpen?: boolean | undefined;
  readonly onSent?: (() => void) | undefined;
}

export interface GrpcReply {
  readonly messages: readonly Uint8Array[];
  readonly status: GrpcStatus;
  /** Why not all answers were read. */
  readonly cut?: "bytes" | "messages";
}

/** Bytes that a message counts for at least: an empty one takes memory, too. */
const smallestMessage = 64;

/** @throws GatewayError as `Http2Connection.request`; `tool_failed`, answered, for an answer that is no gRPC */
export async function callGrpc(connection: Http2Connection, request: GrpcRequest): Promise<GrpcReply> {
  const { path, metadata, timeoutMs, staysOpen, signal, onSent } = request;
  const response = await connection.request({
    path: `/${path}`,
    headers: [
      ["te", "trailers"],
      ["content-type", "application/grpc"],
      ["grpc-timeout", toTimeout(timeoutMs)],
      ["grpc-accept-encoding", "gzip"],
      ["user-agent", "toolyard"],
      ...metadata,
    ],
    body: Buffer.concat(request.messages.map(toFrame)),
    staysOpen,
    signal,
    ...(onSent === undefined ? {} : { onSent }),
  });
  const isGrpc = response.status === 200 && /^application\/grpc\b/.test(String(response.headers["content-type"]));
  if (!isGrpc) {
    await response.body[Symbol.asyncIterator]().return?.();
    return { messages: [], status: statusOf(response.status, response.headers, {}) };
  }
  const encoding = String(response.headers["grpc-encoding"] ?? "identity");
  const messages: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const message of readFrames(response.body, { maxBytes: request.maxBytes, encoding })) {
      if (request.isUnary === true && messages.length === 1) throw new BadFrame("a second message came");
      size += Math.max(message.byteLength, smallestMessage);
      if (size > request.maxBytes) return { messages, status: cutOff, cut: "bytes" };
      messages.push(message);
      if (messages.length === request.maxMessages) return { messages, status: cutOff, cut: "messages" };
    }
  } catch (error) {
    if (error instanceof MessageTooLarge) return { messages, status: cutOff, cut: "bytes" };
    if (!(error instanceof BadFrame)) throw error;
    throw withDelivery(new GatewayError("tool_failed", `'/${path}' cannot be read: ${error.message}.`), "answered");
  }
  return { messages, status: statusOf(response.status, response.headers, response.trailers()) };
}

/** Nobody waited for the server's. */
const cutOff: GrpcStatus = { code: 0, message: "" };

/** At most eight digits and a unit, rounded up. */
function toTimeout(timeoutMs: number): string {
  const units = [
    ["m", 1],
    ["S", 1_000],
    ["M", 60_000],
  ] as const;
  for (const [unit, size] of units) {
    const count = Math.max(1, Math.ceil(timeoutMs / size));
    if (count < 100_000_000) return `${count}${unit}`;
  }
  return "99999999M";
}
