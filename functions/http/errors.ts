/**
 * Errors on the wire: one body shape, with the status and the headers that follow from the code
 * (design "Public contract"; OpenAI's SDKs heed `x-should-retry`).
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { toOpenAiError } from "@toolyard/core/errors/to-openai";
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
  // Once a write has begun, sending the request again could do it twice.
  if (extra?.["write_started"] === true || (!retryable && isRetriedBySdks(status))) headers["x-should-retry"] = "false";
  const limit = extra?.["limit"];
  if (error.code === "rate_limited" && typeof limit === "number") {
    setRateLimitHeaders(headers, { limit, remaining: 0, resetMs: retryAfterMs ?? 0 });
  }
  return { status, headers, body: JSON.stringify(toOpenAiError(error, requestId)) };
}

/** Where in the request a value stands. */
export type RequestPart = "body" | "query" | "path" | "header";

/** Problems listed in the error body beside the first one. */
const mostIssues = 10;

/** Of a union, told in one message. */
const mostAlternatives = 3;

/** A validation failure as an error whose `param` is the dotted path of the first problem. */
export function toInvalidRequest(error: z.ZodError, part: RequestPart): GatewayError {
  const problems = error.issues.flatMap(flatten).slice(0, mostIssues);
  const first = problems[0] ?? { param: "", message: "invalid" };
  const place = first.param === "" ? `The ${part}` : `${capitalise(part)} field '${first.param}'`;
  return new GatewayError("invalid_request", `${place}: ${first.message}.`, {
    ...(first.param === "" ? {} : { param: first.param }),
    ...(problems.length > 1 ? { extra: { problems: problems.map((problem) => ({ ...problem })) } } : {}),
  });
}

interface Problem {
  readonly param: string;
  readonly message: string;
}

type Issue = z.core.$ZodIssue;

function flatten(issue: Issue): Problem[] {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({ param: [...path, key].join("."), message: "this field is not known" }));
  }
  if (issue.code === "invalid_union") {
    const closest = closestBranch(issue.errors);
    if (closest !== undefined) {
      return closest.flatMap((inner) => flatten({ ...inner, path: [...issue.path, ...inner.path] }));
    }
    const said = wholeIn(issue.errors);
    if (said !== undefined) return [{ param: path.join("."), message: said }];
  }
  return [{ param: path.join("."), message: uncapitalise(issue.message.replace(/\.$/, "")) }];
}

/** The branch of a union that the value came furthest in says best what is wrong; a tie says nothing. */
function closestBranch(branches: readonly (readonly Issue[])[]): readonly Issue[] | undefined {
  const depth = (issues: readonly Issue[]): number => Math.max(0, ...issues.map((issue) => issue.path.length));
  const sorted = branches.filter((issues) => issues.length > 0).sort((a, b) => depth(b) - depth(a));
  const [first, second] = sorted;
  if (first === undefined || (second !== undefined && depth(first) === depth(second) && depth(first) === 0))
    return undefined;
  return first;
}

/** What branches say of the value as a whole, where that can be read in a line. */
function wholeIn(branches: readonly (readonly Issue[])[]): string | undefined {
  const messages = branches.flatMap((issues) => issues.filter(({ path }) => path.length === 0));
  const said = [...new Set(messages.map(({ message }) => uncapitalise(message.replace(/\.$/, ""))))];
  return said.length === 0 || said.length > mostAlternatives ? undefined : said.join(", or ");
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function uncapitalise(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
