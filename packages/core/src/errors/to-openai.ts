/** The one error body of the public contract: OpenAI's shape with our additions. */
import type { JsonValue } from "../json.ts";
import type { GatewayError } from "./gateway-error.ts";

export interface OpenAiErrorBody {
  error: {
    message: string;
    type: string;
    param: string | null;
    code: string;
    tool_name?: string;
    request_id?: string;
    retryable?: boolean;
    retry_after_ms?: number;
    [extra: string]: JsonValue | undefined;
  };
}

/** Sending the request again could then do it twice. */
export function hasStartedWrite({ details }: GatewayError): boolean {
  return details.extra?.["write_started"] === true;
}

export function toOpenAiError(error: GatewayError, requestId?: string): OpenAiErrorBody {
  const { param, toolName, retryAfterMs, extra } = error.details;
  const said = {
    message: error.message,
    type: error.spec.type,
    param: param ?? null,
    code: error.code,
    ...(toolName === undefined ? {} : { tool_name: toolName }),
    ...(requestId === undefined ? {} : { request_id: requestId }),
    ...(error.spec.retryable && !hasStartedWrite(error) ? { retryable: true } : {}),
    ...(retryAfterMs === undefined ? {} : { retry_after_ms: Math.ceil(retryAfterMs) }),
  };
  // First for people, to whom some clients show the beginning of the body as it is; last, so that nothing stands in its place.
  return { error: { ...said, ...extra, ...said } };
}
