/** The response stream of a Lambda invocation, as the runtime gives it to a streaming handler. */
import type { Writable } from "node:stream";

/** Status and headers travel ahead of the body (API Gateway REST, `responseTransferMode: STREAM`). */
export interface LambdaResponseHead {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly cookies?: readonly string[];
}

export interface LambdaStream {
  /** Gives the writable for the body once the head is known; called once. */
  readonly open: (head: LambdaResponseHead) => Writable;
  /** The body lacks its end, and nothing more comes. */
  readonly cutOff: () => void;
}
