/**
 * What OpenAI-compatible back ends say when they fail, in all the shapes in use, as one `provider_*`
 * error. The caller learns what to change; keys and account names of the back end stay out.
 */
import { GatewayError, type ErrorDetails } from "../../errors/gateway-error.ts";
import type { ErrorCode } from "../../errors/catalog.ts";
import { isJsonObject, isTooDeep, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { EgressResponse } from "../../ports/egress.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { ProviderRecord } from "./provider.ts";

/** An error as the back end put it. */
export interface UpstreamFailure {
  /** Undefined where the error came inside a good answer and names no status. */
  readonly status: number | undefined;
  readonly message: string | undefined;
  readonly type: string | undefined;
  readonly code: string | undefined;
  readonly param: string | undefined;
  /** The body as received. */
  readonly raw: string;
  readonly retryAfterMs: number | undefined;
}

export interface FailureContext {
  readonly provider: ProviderRecord;
  readonly apiKey: string | undefined;
  /** The back end's name of the model. */
  readonly model: string;
  readonly beforeFirstByte: boolean;
}

type Headers = EgressResponse["headers"];

/** Of an error's body no more is read. */
export const maximumErrorBytes = 65_536;

/** Characters of a back end's own words that are passed on, and that are kept for the log. */
const messageLength = 1_000;
const rawLength = 2_000;

/** Characters of the names that a back end gives to its errors. */
const labelLength = 200;

/** A longer wait is no advice for a request at hand. */
const longestRetryAfterMs = 24 * 3_600_000;

/** Reads an answer whose status says that it failed. */
export function readFailure(status: number, headers: Headers, body: string): UpstreamFailure {
  const parsed = parseJson(body);
  const found = parsed === undefined || isTooDeep(parsed, body) ? undefined : failureIn(parsed);
  const advice = retryAfter(headers) ?? found?.retryAfterMs;
  if (found !== undefined) return { ...found, status, raw: body, retryAfterMs: advice };
  return {
    status,
    message: plainMessage(body),
    type: undefined,
    code: undefined,
    param: undefined,
    raw: body,
    retryAfterMs: advice,
  };
}

/**
 * An error inside an answer that seemed good: a chunk, an `event: error`, or a body with status 200.
 * @param isError the sender called it an error, so that any text in it is its message
 */
export function failureInAnswer(parsed: JsonValue, isError = false): UpstreamFailure | undefined {
  const isMarked = isJsonObject(parsed) && (present(parsed["error"]) || parsed["object"] === "error");
  const isList = Array.isArray(parsed) && parsed.length > 0;
  if (!isError && !isMarked && !isList) return choiceFailure(parsed);
  const raw = JSON.stringify(parsed);
  const found = failureIn(parsed);
  if (found !== undefined) return { ...found, status: statusIn(found), raw };
  return {
    status: undefined,
    message: undefined,
    type: undefined,
    code: undefined,
    param: undefined,
    raw,
    retryAfterMs: undefined,
  };
}

/** The error for our callers. */
export function toProviderError(failure: UpstreamFailure, context: FailureContext): GatewayError {
  const { provider } = context;
  const kind = kindOf(failure);
  const said = sayings(failure, context);
  const extra: { [key: string]: JsonValue } = { provider: provider.name, before_first_byte: context.beforeFirstByte };
  if (failure.status !== undefined) extra["upstream_status"] = failure.status;
  // Cut last: half of a key would not be found.
  const labelled = (text: string): string => redactFor(context, text).slice(0, labelLength);
  if (failure.code !== undefined) extra["upstream_code"] = labelled(failure.code);
  if (failure.type !== undefined) extra["upstream_type"] = labelled(failure.type);
  if (kind.isQuota) extra["quota_exhausted"] = true;
  const details: ErrorDetails = {
    ...(failure.param === undefined ? {} : { param: labelled(failure.param) }),
    ...(failure.retryAfterMs === undefined ? {} : { retryAfterMs: failure.retryAfterMs }),
    extra,
    cause: new Error(redactFor(context, failure.raw).slice(0, rawLength)),
  };
  return new GatewayError(kind.code, kind.message(provider, said), details);
}

/** Replaces the key in use, and what looks like a key or an account of the back end. */
export function redactFor({ apiKey }: Pick<FailureContext, "apiKey">, text: string): string {
  const redactor = new Redactor();
  if (apiKey !== undefined) redactor.add(apiKey);
  return redactor.redact(text).replace(accountDetail, "[redacted]");
}

const accountDetail =
  /\b(?:sk|pk|rk|gsk|xai)-[A-Za-z0-9*_-]{6,}|\bAIza[A-Za-z0-9*_-]{10,}|\b(?:org|proj|acct)[-_](?=[a-z]*\d)[A-Za-z0-9]{6,}|\bBearer +[^\s"',;]+/gi;

// Which error is it?

interface Kind {
  readonly code: ErrorCode;
  readonly isQuota?: true;
  readonly message: (provider: ProviderRecord, said: Sayings) => string;
}

/** What the message may tell of the failure. */
interface Sayings {
  /** `: …` with the back end's words, or `. It gave no reason`. */
  readonly reason: string;
  /** ` It says: …` or nothing: a request may be larger than the limit itself. */
  readonly words: string;
  /** ` (HTTP 503)` or nothing. */
  readonly status: string;
  /** Undefined: the provider names none. */
  readonly credential: string | undefined;
  readonly model: string;
  readonly wait: string;
}

function refused(provider: ProviderRecord, said: Sayings): string {
  return `Provider '${provider.name}' refused the request${said.status}${said.reason}`;
}

const kinds = {
  rateLimited: {
    code: "provider_rate_limited",
    message: (provider, said) =>
      `Provider '${provider.name}' limits requests at the moment${said.status}; try again ${said.wait}.${said.words}`,
  },
  quota: {
    code: "provider_failed",
    isQuota: true,
    message: (provider, said) =>
      `Provider '${provider.name}' has no quota or balance left${said.status}; top up ${said.credential === undefined ? "its account" : `the account behind ${said.credential}`} or configure another provider.`,
  },
  unauthorized: {
    code: "provider_failed",
    message: (provider, said) =>
      said.credential === undefined
        ? `Provider '${provider.name}' refused the request, which carries no key${said.status}; name one in its 'credential' if it asks for one, or check that it has the model '${said.model}' for everybody.`
        : `Provider '${provider.name}' refused ${said.credential}${said.status}; check that it is valid and may use the model '${said.model}'.`,
  },
  unavailable: {
    code: "provider_unavailable",
    message: (provider, said) =>
      `Provider '${provider.name}' cannot answer at the moment${said.status}; try again ${said.wait}.`,
  },
  tooLong: {
    code: "context_length_exceeded",
    message: refused,
  },
  filtered: {
    code: "content_filter",
    message: refused,
  },
  rejected: {
    code: "provider_rejected",
    message: refused,
  },
  misdirected: {
    code: "provider_failed",
    message: (provider, said) =>
      `Provider '${provider.name}' did not answer as an OpenAI-compatible API${said.status}; check its base_url, which usually ends in /v1.`,
  },
  failed: {
    code: "provider_failed",
    message: (provider, said) => `Provider '${provider.name}' reported an error${said.status}${said.reason}`,
  },
} as const satisfies Record<string, Kind>;

/** Of vendors in China, too: DashScope, Volcengine, SiliconFlow, Zhipu. The last two say "balance insufficient", "in arrears". */
const quotaWords =
  /insufficient_(?:quota|balance|funds|credits?)|exceeded_current_quota|billing_(?:hard_limit|not_active)|exceeded your current quota|insufficient balance|balance is insufficient|arrearage|account_?overdue|\u4f59\u989d\u4e0d\u8db3|\u6b20\u8d39/i;
/** With these an empty account is told, in words alone; with 400 the label has to say it. */
const quotaStatuses: ReadonlySet<number | undefined> = new Set([undefined, 401, 403, 429]);
const limitWords = /rate.?limit|too.?many.?requests|resource_exhausted|throttl/i;
const overloadWords =
  /overloaded|unavailable|server_error|internal_error|internal server error|timeout|capacity|bad_gateway/i;
const requestWords = /invalid_request|invalid_argument|badrequest|bad_request|not_found/i;
/**
 * Clients shorten a chat where they read OpenAI's code of it. Other vendors say it in words: vLLM, DeepSeek and xAI,
 * OpenAI, Anthropic, Bedrock, Gemini, Groq, llama.cpp, LM Studio, MiniMax, Moonshot, Zhipu, DashScope.
 */
const lengthWords =
  /context_length_exceeded|exceed_context_size|maximum (?:context|prompt) length is|exceeds the context window|(?:prompt|input) is too long|input token count.{0,40}exceeds the maximum|reduce the length of the messages|exceeds the available context size|greater than the context length|context window exceeds limit|exceeded model token limit|prompt exceeds max length|range of input length should be/i;
const lengthStatuses: ReadonlySet<number | undefined> = new Set([undefined, 400, 413, 422]);
/** OpenAI and Azure, Volcengine and One API, DashScope, DeepSeek. Some say it with 403, which is not the key's fault then. */
const filterWords =
  /content_(?:policy|filter)|moderation_blocked|sensitive_?(?:content|words)_?detected|data_?inspection_?failed|content management policy|content exists risk/i;
const filterStatuses: ReadonlySet<number | undefined> = new Set([undefined, 400, 403, 422]);
/** What servers say where they have no such path (FastAPI, Go, llama.cpp); of a model that is missing they say more. */
const pathWords = /^(?:(?:404 )?(?:page |file )?not found|method not allowed)\.?$/i;
const keyWords = /authentication|invalid_api_key|permission_denied|unauthorized|unauthenticated/i;

function kindOf(failure: UpstreamFailure): Kind {
  const { status } = failure;
  const labels = `${failure.code ?? ""} ${failure.type ?? ""}`;
  // Gemini tells of a limit by the minute in the words that OpenAI has for an empty account, and calls it by its name.
  const isLimit = limitWords.test(labels);
  const isLabelled = quotaWords.test(labels);
  const isSaid = quotaStatuses.has(status) && !isLimit && quotaWords.test(failure.message ?? "");
  if (status === 402 || isSaid || (isLabelled && (status === 400 || quotaStatuses.has(status)))) return kinds.quota;
  const about = isLimit ? undefined : kindOfContents(`${labels} ${failure.message ?? ""}`, status);
  if (about !== undefined) return about;
  if (status === undefined) return kindOfLabels(labels);
  if (status === 429) return kinds.rateLimited;
  if (status === 401 || status === 403) return kinds.unauthorized;
  if (status >= 500 || status === 408 || status === 409 || status === 425) return kinds.unavailable;
  const isSilent = failure.code === undefined && failure.type === undefined && failure.message === undefined;
  const isOfPath = isSilent || looksLikePage(failure.raw) || pathWords.test(failure.message ?? "");
  if (status < 400 || ((status === 404 || status === 405) && isOfPath)) return kinds.misdirected;
  return kinds.rejected;
}

/** Refused for what the request holds. */
function kindOfContents(said: string, status: number | undefined): Kind | undefined {
  if (lengthStatuses.has(status) && lengthWords.test(said)) return kinds.tooLong;
  return filterStatuses.has(status) && filterWords.test(said) ? kinds.filtered : undefined;
}

function kindOfLabels(labels: string): Kind {
  if (limitWords.test(labels)) return kinds.rateLimited;
  if (keyWords.test(labels)) return kinds.unauthorized;
  if (requestWords.test(labels)) return kinds.rejected;
  if (overloadWords.test(labels)) return kinds.unavailable;
  return kinds.failed;
}

function sayings(failure: UpstreamFailure, context: FailureContext): Sayings {
  const { provider } = context;
  const message = failure.message === undefined ? "" : redactFor(context, failure.message).trim();
  return {
    reason: message === "" ? ", without a reason." : `: ${message.slice(0, messageLength)}`,
    words: message === "" ? "" : ` It says: ${message.slice(0, messageLength)}`,
    status: failure.status === undefined ? "" : ` (HTTP ${failure.status})`,
    credential: provider.credential === null ? undefined : `the credential '${provider.credential}'`,
    model: context.model,
    wait: failure.retryAfterMs === undefined ? "later" : `in ${Math.ceil(failure.retryAfterMs / 1_000)} s`,
  };
}

// How is it written?

function failureIn(parsed: JsonValue): UpstreamFailure | undefined {
  if (Array.isArray(parsed)) {
    const [first] = parsed;
    return first === undefined ? undefined : failureIn(first);
  }
  if (typeof parsed === "string") return parsed.trim() === "" ? undefined : failureOf({}, parsed);
  if (!isJsonObject(parsed)) return undefined;
  const { error } = parsed;
  if (typeof error === "string") return failureOf(parsed, error);
  if (isJsonObject(error)) return failureOf(error, messageIn(error) ?? messageIn(parsed));
  if (Array.isArray(error)) return failureIn(error);
  const message = messageIn(parsed);
  return message === undefined ? undefined : failureOf(parsed, message);
}

function failureOf(fields: JsonObject, message: string | undefined): UpstreamFailure {
  return {
    status: undefined,
    message,
    type: label(fields["type"]) ?? label(fields["status"]),
    code: label(fields["code"]) ?? label(fields["error_code"]),
    param: label(fields["param"]),
    raw: "",
    retryAfterMs: retryDelay(fields["details"]),
  };
}

function messageIn(fields: JsonObject): string | undefined {
  for (const key of ["message", "detail", "error_msg", "error_message", "msg", "errors"]) {
    const said = sentence(fields[key]);
    if (said !== undefined) return said;
  }
  return undefined;
}

/** A text, or the validation messages of a list. */
function sentence(value: JsonValue | undefined): string | undefined {
  if (typeof value === "string") return value.trim() === "" ? undefined : value;
  if (Array.isArray(value)) {
    const parts = value.map(sentence).filter((part) => part !== undefined);
    return parts.length === 0 ? undefined : parts.join("; ");
  }
  if (!isJsonObject(value)) return undefined;
  const said = sentence(value["msg"]) ?? sentence(value["message"]);
  const place = Array.isArray(value["loc"])
    ? value["loc"]
        .map((part) => label(part))
        .filter((part) => part !== undefined && part !== "body")
        .join(".")
    : "";
  return said === undefined || place === "" ? said : `${place}: ${said}`;
}

function label(value: JsonValue | undefined): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** A choice that ended in an error of its own. */
function choiceFailure(parsed: JsonValue): UpstreamFailure | undefined {
  if (!isJsonObject(parsed) || !Array.isArray(parsed["choices"])) return undefined;
  for (const choice of parsed["choices"]) {
    const error = isJsonObject(choice) ? choice["error"] : undefined;
    if (error !== undefined && present(error)) return failureInAnswer({ error });
  }
  return undefined;
}

/** Some put the status into the code. */
function statusIn({ code, type }: UpstreamFailure): number | undefined {
  for (const text of [code, type]) if (text !== undefined && /^[45]\d\d$/.test(text)) return Number(text);
  return undefined;
}

function present(value: JsonValue | undefined): boolean {
  return value !== undefined && value !== null && value !== false && value !== "";
}

function looksLikePage(body: string): boolean {
  return /^\s*</.test(body);
}

/** The words of an answer that is no JSON: the title of a page, or the text. */
function plainMessage(body: string): string | undefined {
  if (!looksLikePage(body)) return body.trim() === "" ? undefined : body.trim();
  const start = body.search(/<title[\s>]/i);
  if (start === -1) return undefined;
  const title = body.slice(body.indexOf(">", start) + 1).split("<", 1)[0];
  return title === undefined || title.trim() === "" ? undefined : title.trim();
}

// When to come back?

function retryAfter(headers: Headers): number | undefined {
  const exact = Number(header(headers, "retry-after-ms") ?? Number.NaN);
  if (Number.isFinite(exact) && exact >= 0) return Math.min(exact, longestRetryAfterMs);
  const general = header(headers, "retry-after");
  if (general !== undefined) {
    const ms = /^\s*\d+(?:\.\d+)?\s*$/.test(general) ? Number(general) * 1_000 : Date.parse(general) - Date.now();
    if (Number.isFinite(ms)) return Math.min(Math.max(ms, 0), longestRetryAfterMs);
  }
  return exhaustedReset(headers);
}

/** The later of the windows that are used up. */
function exhaustedReset(headers: Headers): number | undefined {
  let latest: number | undefined;
  for (const unit of ["requests", "tokens"]) {
    const reset = duration(header(headers, `x-ratelimit-reset-${unit}`));
    if (header(headers, `x-ratelimit-remaining-${unit}`)?.trim() !== "0" || reset === undefined) continue;
    latest = Math.max(latest ?? 0, reset);
  }
  return latest;
}

/** `google.rpc.RetryInfo`, as Gemini sends it. */
function retryDelay(details: JsonValue | undefined): number | undefined {
  if (!Array.isArray(details)) return undefined;
  for (const detail of details) {
    if (isJsonObject(detail) && typeof detail["retryDelay"] === "string") return duration(detail["retryDelay"]);
  }
  return undefined;
}

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** `1s`, `6m0s`, `120ms`; a bare number is seconds. */
function duration(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d+(?:\.\d+)?$/.test(text)) return Math.min(Number(text) * 1_000, longestRetryAfterMs);
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit = "s"] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) {
    total += Number(amount) * (unitMs[unit] ?? 1_000);
  }
  return Math.min(total, longestRetryAfterMs);
}

function header(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value : value?.[0];
}
