import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { GatewayError } from "../../errors/gateway-error.ts";
import { failureInAnswer, readFailure, toProviderError, type FailureContext } from "./openai-error.ts";
import type { ProviderRecord } from "./provider.ts";

const provider: ProviderRecord = {
  id: "prv_1",
  name: "acme",
  kind: "openai",
  baseUrl: "https://llm.example.com/v1",
  credential: "ACME_KEY",
  models: {},
  passthroughModels: true,
  schemaFamily: null,
  priority: 1,
  enabled: true,
  maxAttempts: 2,
  timeoutMs: 1_000,
};
const apiKey = "key-of-the-tenant-123456";
const context: FailureContext = { provider, apiKey, model: "m-1", beforeFirstByte: true };

function errorFor(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): GatewayError {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return toProviderError(readFailure(status, headers, text), context);
}

describe(`errors of model back ends ${verifies("CHAT-1")}`, () => {
  const openai = (
    message: string,
    code: string | null,
    type = "invalid_request_error",
    param: string | null = null,
  ): unknown => ({
    error: { message, type, param, code },
  });

  test("are read as far as their text goes where it is nested too deep", () => {
    const { code, message } = errorFor(400, `${"[".repeat(32_000)}"no"${"]".repeat(32_000)}`);
    expect([code, message]).toEqual([
      "provider_rejected",
      expect.stringContaining("refused the request (HTTP 400): [[["),
    ]);
  });

  test.each([
    ["OpenAI", 400, openai("Invalid value", "invalid_value", undefined, "messages"), "Invalid value"],
    ["a bare string", 400, { error: "model is not loaded" }, "model is not loaded"],
    ["FastAPI", 400, { detail: "Model is warming up" }, "Model is warming up"],
    [
      "FastAPI validation",
      422,
      { detail: [{ loc: ["body", "temperature"], msg: "Input should be less than 2", type: "less_than" }] },
      "temperature: Input should be less than 2",
    ],
    ["a list (Gemini)", 400, [{ error: { code: 400, message: "bad field", status: "INVALID_ARGUMENT" } }], "bad field"],
    [
      "vLLM",
      400,
      { object: "error", message: "max_tokens is too large", type: "BadRequestError", param: null, code: 400 },
      "max_tokens is too large",
    ],
    ["Baidu", 400, { error_code: 336_003, error_msg: "the max length is 20000" }, "the max length is 20000"],
    ["a list of errors", 400, { errors: [{ message: "one" }, { message: "two" }] }, "one; two"],
    ["plain text", 413, "Request Entity Too Large", "Request Entity Too Large"],
    ["a page", 400, "<html><head><title>400 Bad Request</title></head><body>x</body></html>", "400 Bad Request"],
  ])("passes on what %s says about a bad request", (_name, status, body, said) => {
    const error = errorFor(status, body);
    expect(error.code).toBe("provider_rejected");
    expect(error.message).toBe(`Provider 'acme' refused the request (HTTP ${status}): ${said}`);
    expect(error.details.extra).toMatchObject({ upstream_status: status, provider: "acme", before_first_byte: true });
  });

  test.each([
    ["OpenAI", 400, openai("Your input exceeds the context window of this model.", "context_length_exceeded")],
    [
      "vLLM",
      400,
      { object: "error", message: "This model's maximum context length is 4096 tokens.", type: "BadRequestError" },
    ],
    ["Anthropic", 400, { error: { message: "prompt is too long: 210000 tokens > 200000 maximum" } }],
    [
      "Gemini",
      400,
      [{ error: { code: 400, message: "The input token count (9) exceeds the maximum number of tokens." } }],
    ],
    ["llama.cpp", 400, { error: { code: 400, message: "too many", type: "exceed_context_size_error" } }],
    ["Moonshot", 400, openai("Invalid request: Your request exceeded model token limit: 8192", null)],
    ["DashScope", 400, openai("Range of input length should be [1, 30720]", "invalid_parameter_error")],
    ["Groq", 413, openai("Please reduce the length of the messages or completion.", null)],
  ])("tells in OpenAI's code that a chat is too long, as %s says it", (_name, status, body) => {
    const { code, message, spec } = errorFor(status, body);
    expect([code, spec.http]).toEqual(["context_length_exceeded", 400]);
    expect(message).toMatch(/^Provider 'acme' refused the request \(HTTP 4\d\d\): ./);
  });

  test.each([
    ["Azure", 400, openai("The response was filtered due to the prompt.", "content_filter", undefined, "prompt")],
    ["OpenAI", 400, openai("Your request was rejected.", "content_policy_violation")],
    ["DashScope", 400, openai("Input data may contain inappropriate content.", "data_inspection_failed")],
    ["DeepSeek", 400, openai("Content Exists Risk", "invalid_request_error")],
    ["Volcengine", 400, openai("The request failed.", "InputTextSensitiveContentDetected", "BadRequest")],
    ["a gateway", 403, openai("No.", "sensitive_words_detected", "one_api_error")],
  ])("tells in OpenAI's code that contents were refused, as %s says it", (_name, status, body) => {
    const { code, message, spec } = errorFor(status, body);
    expect([code, spec.http]).toEqual(["content_filter", 400]);
    expect(message).toContain("refused the request");
  });

  test("takes no limit by the minute for a chat that is too long", () => {
    const said = "Request too large on tokens per minute (TPM). Please reduce the length of the messages.";
    expect(errorFor(413, openai(said, "rate_limit_exceeded", "tokens")).code).toBe("provider_rejected");
    expect(errorFor(429, openai(said, "rate_limit_exceeded", "tokens")).code).toBe("provider_rate_limited");
  });

  test("keeps the back end's param and code for machines", () => {
    const { details } = errorFor(400, openai("too long", "context_length_exceeded", undefined, "messages"));
    expect(details.param).toBe("messages");
    expect(details.extra).toMatchObject({
      upstream_code: "context_length_exceeded",
      upstream_type: "invalid_request_error",
    });
  });

  test.each([
    [429, openai("slow down", "rate_limit_exceeded", "requests"), "provider_rate_limited"],
    [429, "", "provider_rate_limited"],
    [429, openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), "provider_failed"],
    [429, { error: { message: "Insufficient Balance", type: "unknown_error" } }, "provider_failed"],
    [402, { error: { message: "Insufficient Balance" } }, "provider_failed"],
    [401, openai(`Incorrect API key provided: ${apiKey}`, "invalid_api_key"), "provider_failed"],
    [403, openai("no access", null), "provider_failed"],
    [500, openai("oops", null, "server_error"), "provider_unavailable"],
    [503, "<html>busy</html>", "provider_unavailable"],
    [529, { type: "error", error: { type: "overloaded_error", message: "Overloaded" } }, "provider_unavailable"],
    [408, "", "provider_unavailable"],
    [404, "<!doctype html><title>Not Found</title>", "provider_failed"],
    [404, "", "provider_failed"],
    [404, { detail: "Not Found" }, "provider_failed"],
    [404, "404 page not found", "provider_failed"],
    [404, { error: { code: 404, message: "File Not Found", type: "not_found_error" } }, "provider_failed"],
    [405, { detail: "Method Not Allowed" }, "provider_failed"],
    [404, { error: { message: 'model "x" not found, try pulling it first', type: "api_error" } }, "provider_rejected"],
    [405, "", "provider_failed"],
    [302, "", "provider_failed"],
    [404, openai("The model 'x' does not exist", "model_not_found"), "provider_rejected"],
  ])("tells by status %i and %j that it is %s", (status, body, code) => {
    expect(errorFor(status, body).code).toBe(code);
  });

  test("tells an empty account from a rate limit", () => {
    const quota = errorFor(429, openai("You exceeded your current quota", "insufficient_quota"));
    expect(quota.spec.retryable).toBe(false);
    expect(quota.details.extra).toMatchObject({ quota_exhausted: true });
    expect(quota.message).toContain("the credential 'ACME_KEY'");
    expect(errorFor(429, openai("slow down", "rate_limit_exceeded")).spec.retryable).toBe(true);
  });

  test.each([
    [429, { error: { code: "1113", message: "余额不足或无可用资源包,请充值。" } }],
    [429, { error: { code: "1113", message: "您的账户已欠费，请充值后重试。" } }],
    [400, { error: { code: "Arrearage", message: "Access denied, make sure your account is in good standing." } }],
    [
      403,
      { error: { code: "AccountOverdueError", message: "Your account has an overdue balance.", type: "Forbidden" } },
    ],
    [403, { code: 30_011, message: "Your paid balance is insufficient. Please top up and try again.", data: null }],
    [401, { error: { type: "CreditsError", message: "Insufficient balance. Manage your billing here." } }],
  ])("knows an empty account by %i and %j", (status, body) => {
    expect(errorFor(status, body).details.extra).toMatchObject({ quota_exhausted: true });
  });

  test("takes what a request is refused for as that, whatever it speaks of", () => {
    const error = errorFor(400, openai("'messages' speaks of an insufficient balance and is too long", "bad_request"));
    expect(error.code).toBe("provider_rejected");
  });

  test("repeats what a limit is told with: no wait helps a request that is larger than the limit", () => {
    const said =
      "Request too large for m-1 in organization org-1a2b3c4d on tokens per min: Limit 30000, Requested 56000.";
    const { message } = errorFor(429, openai(said, "rate_limit_exceeded", "tokens"), { "retry-after": "2" });
    expect(message).toBe(
      "Provider 'acme' limits requests at the moment (HTTP 429); try again in 2 s. It says: Request too large for m-1 in organization [redacted] on tokens per min: Limit 30000, Requested 56000.",
    );
    expect(errorFor(429, "").message).toBe(
      "Provider 'acme' limits requests at the moment (HTTP 429); try again later.",
    );
  });

  test("names the provider and the credential that was refused, and not what the back end says of it", () => {
    const error = errorFor(401, openai("Incorrect API key provided: abc", "invalid_api_key"));
    expect(error.message).toBe(
      "Provider 'acme' refused the credential 'ACME_KEY' (HTTP 401); check that it is valid and may use the model 'm-1'.",
    );
    const withoutKey = (status: number): string =>
      toProviderError(readFailure(status, {}, "{}"), { ...context, provider: { ...provider, credential: null } })
        .message;
    expect(withoutKey(401)).toBe(
      "Provider 'acme' refused the request, which carries no key (HTTP 401); name one in its 'credential' if it asks for one, or check that it has the model 'm-1' for everybody.",
    );
    expect(withoutKey(402)).toBe(
      "Provider 'acme' has no quota or balance left (HTTP 402); top up its account or configure another provider.",
    );
  });

  test("never repeats the key or account names of the back end", () => {
    const body = openai(
      `bad ${apiKey}, ${Buffer.from(apiKey).toString("base64")}, sk-proj-abcdef0123456789, sk-ab******xyz, org-1a2b3c4d5e6f in Bearer ey.abc.def`,
      apiKey,
      "invalid_request_error",
      apiKey,
    );
    const error = errorFor(400, body);
    const everything = JSON.stringify([
      error.message,
      error.details.param,
      error.details.extra,
      String(error.details.cause),
    ]);
    for (const secret of [
      apiKey,
      Buffer.from(apiKey).toString("base64"),
      "sk-proj",
      "sk-ab",
      "1a2b3c4d5e6f",
      "ey.abc",
    ]) {
      expect(everything).not.toContain(secret);
    }
    expect(error.message).toContain("[redacted]");
    expect(errorFor(400, openai("a risk-averse user-provided task-oriented organization", null)).message).not.toContain(
      "[redacted]",
    );
  });

  test("does not show half of the key where a text is cut", () => {
    const lengths = Array.from({ length: 2_100 }, (_none, length) => length);
    const half = apiKey.slice(0, 6);
    for (const before of lengths.filter((length) => length % 100 > 75)) {
      const text = `${"x".repeat(before)}${apiKey}`;
      for (const error of [errorFor(400, text), errorFor(400, openai(text, text, text, text))]) {
        const { param, extra, cause } = error.details;
        expect(JSON.stringify([error.message, param, extra, String(cause)])).not.toContain(half);
      }
    }
  });

  test("does not pass on endless texts", () => {
    expect(errorFor(400, openai("x".repeat(100_000), "y".repeat(100_000))).message.length).toBeLessThan(1_200);
  });

  test.each([
    [{ "retry-after": "7" }, 7_000],
    [{ "retry-after": "0.5" }, 500],
    [{ "retry-after": "2", "retry-after-ms": "1500" }, 1_500],
    [{ "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }, 0],
    [{ "retry-after": "soon" }, undefined],
    [{ "retry-after": "999999999" }, 86_400_000],
    [{ "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0.5s" }, 360_500],
    [
      {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "3s",
      },
      3_000,
    ],
    [{ "x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s" }, undefined],
    [{ "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": `${"1".repeat(40)}x` }, undefined],
    [{}, undefined],
  ])("reads the advice %j as %s ms", (headers, ms) => {
    expect(errorFor(429, "{}", headers).details.retryAfterMs).toBe(ms);
  });

  test("reads the advice in Gemini's body", () => {
    const body = [
      { error: { code: 429, message: "quota", status: "RESOURCE_EXHAUSTED", details: [{ retryDelay: "17s" }] } },
    ];
    expect(errorFor(429, body).details.retryAfterMs).toBe(17_000);
    expect(errorFor(429, body).code).toBe("provider_rate_limited");
  });

  test("takes Gemini's limit by the minute for a limit, though it speaks of plan and billing", () => {
    const message =
      "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 10 Please retry in 7.4s.";
    const error = { code: 429, message, status: "RESOURCE_EXHAUSTED", details: [{ retryDelay: "7s" }] };
    const limited = errorFor(429, [{ error }]);
    expect(limited.code).toBe("provider_rate_limited");
    expect(limited.spec.retryable).toBe(true);
    expect(limited.details.retryAfterMs).toBe(7_000);
    const inStream = failureInAnswer([{ error }]);
    expect(inStream && toProviderError(inStream, context).code).toBe("provider_rate_limited");
  });

  test.each([
    [{ error: { message: "boom", code: 502 } }, "provider_unavailable"],
    [{ error: { message: "boom", code: "429" } }, "provider_rate_limited"],
    [{ error: { message: "slow down", type: "rate_limit_error" } }, "provider_rate_limited"],
    [
      { error: { message: "gone", code: "server_error" }, choices: [{ index: 0, delta: {}, finish_reason: "error" }] },
      "provider_unavailable",
    ],
    [{ error: { message: "no", type: "invalid_request_error" } }, "provider_rejected"],
    [{ error: { message: "who?", code: "invalid_api_key", type: "invalid_request_error" } }, "provider_failed"],
    [{ error: { message: "empty", code: "insufficient_quota" } }, "provider_failed"],
    [{ error: "something broke" }, "provider_failed"],
    [{ object: "error", message: "bad", type: "BadRequestError", code: 400 }, "provider_rejected"],
    [[{ error: { code: 503, message: "overloaded", status: "UNAVAILABLE" } }], "provider_unavailable"],
    [
      { choices: [{ index: 0, error: { code: 502, message: "lost" }, finish_reason: "error" }] },
      "provider_unavailable",
    ],
  ])("finds the error in an answer that seemed good: %j is %s", (answer, code) => {
    const failure = failureInAnswer(answer);
    expect(failure === undefined ? undefined : toProviderError(failure, context).code).toBe(code);
  });

  test("finds none in a chunk that only has the field", () => {
    for (const chunk of [
      { error: null, choices: [] },
      { error: "", choices: [] },
      { choices: [{ error: null }] },
      {},
      1,
      null,
    ]) {
      expect(failureInAnswer(chunk)).toBeUndefined();
    }
  });

  test("takes anything for an error that its sender calls one", () => {
    for (const said of [{ message: "boom" }, "boom", { detail: "boom" }, { x: 1 }]) {
      const failure = failureInAnswer(said, true);
      expect(failure === undefined ? undefined : toProviderError(failure, context).code).toBe("provider_failed");
    }
  });
});
