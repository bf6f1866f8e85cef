/**
 * What Lambda's runtime calls a function with, and what it gives to one that streams its answer. Hosts without its
 * `awslambda` global can import this.
 */
import type { Writable } from "node:stream";

export interface LambdaContext {
  readonly getRemainingTimeInMillis: () => number;
  /** Whose environment this is, where the function has tenant isolation. */
  readonly tenantId?: string | undefined;
}

export type StreamingHandler = (event: unknown, stream: Writable, context: LambdaContext) => Promise<void>;

/** What Node's managed runtime puts on `globalThis`. */
interface LambdaRuntime {
  streamifyResponse(handler: StreamingHandler): StreamingHandler;
  /** Of answers of API Gateway: sends the head ahead of what is written. */
  readonly HttpResponseStream: { from(stream: Writable, head: object): Writable };
}

/** Undefined: not under the managed runtime. */
export function lambdaRuntime(): LambdaRuntime | undefined {
  // There is no module to import its type from. Clients of AWS put an object of that name there as well, for their
  // own ends and wherever they run.
  const { awslambda: given } = globalThis as { readonly awslambda?: Partial<LambdaRuntime> };
  const { streamifyResponse, HttpResponseStream } = given ?? {};
  return streamifyResponse === undefined || HttpResponseStream === undefined
    ? undefined
    : { streamifyResponse, HttpResponseStream };
}

/** Marked for streaming where the runtime is there to do it; elsewhere the bare handler. */
export function streamed(handler: StreamingHandler): StreamingHandler {
  return lambdaRuntime()?.streamifyResponse(handler) ?? handler;
}

/** What a function does before it may be frozen: metrics and spans in memory would be lost. Never throws. */
export type AfterInvocation = () => void | Promise<void>;
export const nothingAfter: AfterInvocation = () => undefined;
