/**
 * A request that the protocol refuses: an error of JSON-RPC with the status of HTTP that goes with it. What a
 * tool or the gateway refuses is a result or a `GatewayError`.
 */
import type { JsonObject, JsonValue } from "../json.ts";
import { rpcCodes } from "../mcp/revisions.ts";

export interface FaultOptions {
  /** Of HTTP; absent: 200, the error is the answer. */
  readonly status?: number;
  readonly data?: JsonValue;
}

export class RpcFault extends Error {
  override readonly name = "RpcFault";
  readonly code: number;
  readonly status: number;
  readonly data: JsonValue | undefined;

  constructor(code: number, message: string, { status = 200, data }: FaultOptions = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.data = data;
  }
}

export function invalidRequest(message: string): RpcFault {
  return new RpcFault(rpcCodes.invalidRequest, message, { status: 400 });
}

export function invalidParams(message: string): RpcFault {
  return new RpcFault(rpcCodes.invalidParams, message);
}

export function headerMismatch(message: string): RpcFault {
  return new RpcFault(rpcCodes.headerMismatch, `Header mismatch: ${message}`, { status: 400 });
}

/** @param capabilities as the client would have to declare them */
export function missingCapability(capabilities: JsonObject): RpcFault {
  return new RpcFault(rpcCodes.missingCapability, "This needs a capability that the request does not declare.", {
    status: 400,
    data: { requiredCapabilities: capabilities },
  });
}
