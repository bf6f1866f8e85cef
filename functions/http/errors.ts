/**
 * Errors on the wire: one body shape, with the status and the headers that follow from the code
 * (design "Public contract"; OpenAI's SDKs heed `x-should-retry`).
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { listedProblems, schemaProblems } from "@toolyard/core/errors/schema-problems";
import { hasStartedWrite, toOpenAiError } from "@toolyard/core/errors/to-openai";
import type * as z from "zod";
import { setRateLimitHeaders } from "./rate-limit-headers.ts";

export interface ErrorReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Statuses that OpenAI's SDKs send again by themselves. */
function isRetriedBySdks(status: number): boolean {
  return status === 408 || status === 409 || status === 429 || status >= 500;
}

export function toErrorReply(error: GatewayError, requestId: string): ErrorReply {
  const { http: status, retryable } = error.spec;
  const { retryAfterMs, extra } = error.details;
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (status === 401) {
    headers["www-authenticate"] =
      error.code === "invalid_token" ? 'Bearer realm="toolyard", error="invalid_token"' : 'Bearer realm="toolyard"';
  }
  const wait = retryAfterMs ?? (retryable && (status === 429 || status === 503) ? 1_000 : undefined);
  if (wait !== undefined) headers["retry-after"] = String(Math.max(1, Math.ceil(wait / 1_000)));
  if (hasStartedWrite(error) || (!retryable && isRetriedBySdks(status))) headers["x-should-retry"] = "false";
  const limit = extra?.["limit"];
  if (error.code === "rate_limited" && typeof limit === "number") {
    setRateLimitHeaders(headers, { limit, remaining: 0, resetMs: retryAfterMs ?? 0 });
  }
  return { status, headers, body: JSON.stringify(toOpenAiError(error, requestId)) };
}

/** Where in the request a value stands. */
export type Place = "body" | "query" | "path" | "header";

/** A validation failure as an error whose `param` is the dotted path of the first problem. */
export function toInvalidRequest(error: z.ZodError, part: Place): GatewayError {
  const told = schemaProblems(error).map(({ path, says }) => ({ param: path.join("."), message: says }));
  const [first = { param: "", message: "is not valid" }] = told;
  const place = first.param === "" ? `The ${part}` : `${capitalise(part)} field '${first.param}'`;
  return new GatewayError("invalid_request", `${place} ${first.message}.`, {
    ...(first.param === "" ? {} : { param: first.param }),
    ...listedProblems(told),
  });
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
