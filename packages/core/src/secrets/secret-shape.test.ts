import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { newId } from "../ids.ts";
import { hasSecretInQuery, isSecretValue, looksLikeSecret, mayBeSecret } from "./secret-shape.ts";

describe(`What looks like a secret itself ${verifies("BLIND-6")}`, () => {
  it.each([
    "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z",
    "sk-ant-api03-Qw3rTy7uIo9pAs2dFg5hJk-8lZxCvBnM1234567890abcdef",
    "sk_live_51H8abcdefghijkl",
    "sk-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnop1234567890",
    "github_pat_11ABCDEFG0aBcDeFgHiJkL",
    "glpat-abcdefghij1234567890",
    "xoxb-1234567890-abcdef1234567890",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "ty_ten01k_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7",
    "d41d8cd98f00b204e9800998ecf8427e",
    "Zm9v1YmFyYmF6cXV4MTIzNDU2Nzg5AbCdEf",
  ])("%s", (text) => {
    expect(looksLikeSecret(text)).toBe(true);
  });

  it.each([
    "CRM_TOKEN",
    "OPENAI_API_KEY_2025_EU",
    "crm.auth_config.token",
    "http:crm.example.com:8443:x-api-key",
    "客户令牌",
    "MyCompanySapErpProductionKeyV2",
    "AzureOpenAiKey1Eastus2Prod3",
    "4f9e2b1c-8a7d-4c3e-9b2a-1d5e6f7a8b9c",
    `SECRET_${newId("request")}`,
    `${newId("toolService")}.auth_config.token.abc123`,
    "sk-ills",
    "sk-anthropic-prod-2",
    "sk_orders",
    "pk_column",
    "github_pat_ci",
    "glpat-ci",
    "xoxb-bot",
    "ty_gateway_production_key",
    "hf_inferenceendpoint",
    "glpat-deploy-bot-of-production",
    "ty_gateway01_key_of_the_branch_in_frankfurt_and_berlin",
  ])("is a name: %s", (text) => {
    expect(looksLikeSecret(text)).toBe(false);
  });

  it("is most of what is random", () => {
    const random = Array.from({ length: 1_000 }, () => randomBytes(64).toString("base64url"));
    expect(random.filter(looksLikeSecret).length).toBeGreaterThan(500);
    expect(Array.from({ length: 1_000 }, () => newId("session")).filter(looksLikeSecret)).toEqual([]);
  });

  it.each([
    ["X-Api-Key", "correcthorsebattery", true],
    ["Ocp-Apim-Subscription-Key", "abcdef", true],
    ["password", "hunter2", true],
    ["X-Custom", "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z", true],
    ["X-Upstream-Authorization", "Bearer sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z", true],
    ["X-Custom", "glpat-a1_b2-c3_d4-e5_f6-g7", true],
    ["X-Custom", '{"token":"sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"}', true],
    ["X-Custom", "Basic dXNlcjpwYXNz", true],
    ["X-Auth-Token", "abc", true],
    ["DD-APPLICATION-KEY", "0123456789abcdef0123456789abcdef01234567", true],
    ["key", "0123456789abcdef0123456789abcdef", true],
    ["appid", "0123456789abcdef0123456789abcdef", true],
    ["sessionToken", "Ab3dEf6hIj9kLm2nOp5q", true],
    ["password", "1234", true],
    ["Cookie", "lang=en; session=ab12cd34ef56ab78", true],
    ["key", "AIzaSyA1234567890abcdefghijklmnopqrstuvw", true],
    ["tavilyApiKey", "tvly", true],
    ["X-Access-Token", "0a1b2c3d4e5f6a7b8c9d", true],
    ["X-Atlassian-Token", "no-check", false],
    ["X-CSRF-Token", "Fetch", false],
    ["X-Signature-Version", "2021-10-01", false],
    ["Cookie", "lang=en", false],
    ["api_key", "{api_key}", false],
    ["page_token", "{page}", false],
    ["token_type", "bearer", false],
    ["signature_version", "2", false],
    ["X-Client", "toolyard-2025", false],
    ["hide_secret", "true", false],
    ["secret_type", "mailchimp_api_key", false],
    ["secret_shares", "5", false],
    ["showPassword", "0", false],
    ["password_policy", "strong", false],
    ["subject_token_type", "urn:ietf:params:oauth:token-type:saml2", false],
    ["X-Signature-Version", "2021-10-01T00:00:00Z", false],
    ["token_address", "0x6b175474e89094c44da98b954eedeac495271d0f", false],
    ["buyToken", "0x6b175474e89094c44da98b954eedeac495271d0f", false],
    ["pageToken", "CAUQAA1234567890abcd", false],
    ["max_tokens", "1000", false],
    ["api_key", "DEMO_KEY", false],
    ["Cookie", "wp-settings-time-1=1700000000", false],
    ["Idempotency-Key", "0123456789abcdef0123456789abcdef", false],
  ])("as a value, %s: %s", (name, value, expected) => {
    expect(isSecretValue(name, value)).toBe(expected);
  });

  it.each([
    ["token", "abc", true],
    ["api_key", "", true],
    ["access_token", "123456", true],
    ["max_tokens", "128000", false],
    ["next_token", "abc", false],
    ["tokenizer", "cl100k_base", false],
    ["passwordless", "true", false],
    ["X-Atlassian-Token", "no-check", false],
    ["X-Master-Key", "$2a$10$Ab3dEf6hIj9kLm2nOp5qRs", true],
    ["X-Mashape-Key", "abc", true],
    ["X-Meili-Master-Key", "$KEY", true],
    ["Server-Key", "AAAAabc:APA91b", true],
    ["encryption_key", "0123", true],
    ["routing_key", "R015", true],
    ["password_confirmation", "Summer2024!", true],
    ["passwordConfirm", "1234567", true],
    ["newPassword_again", "abc", true],
    ["user_pwd", "abc", true],
    ["secretAnswer", "Rex", true],
    ["client_secret_value", "abc8Q~short", true],
    ["token_value", "abc", true],
    ["verification_token", "123456", true],
    ["X-Token-Auth", "abc", true],
    ["X-Session-Id", "abcdef123456", true],
    ["JSESSIONID", "A1B2C3D4", true],
    ["X-Api-Key-V2", "abc", true],
    ["X-Token", "{token}", true],
    ["Cookie", "session=abcdefghijklmnopqrstuvwx", true],
    ["Cookie", "lang=en; JSESSIONID=A1B2C3D4", true],
    ["X-Signature", "s3cr3t", true],
    ["X-CSRF-Token", "Fetch", false],
    ["api_key", "DEMO_KEY", false],
    ["hide_secret", "true", false],
    ["secret_type", "mailchimp_api_key", false],
    ["secret_shares", "5", false],
    ["password_min_length", "12", false],
    ["session_timeout", "3600", false],
    ["password_policy", "strong", false],
    ["signature_version", "2", false],
    ["X-Signature-Version", "2021-10-01T00:00:00Z", false],
    ["subject_token_type", "urn:ietf:params:oauth:token-type:saml2", false],
    ["token_type", "bearer", false],
    ["page_token", "{page}", false],
    ["X-Session-Affinity", "client", false],
    ["buyToken", "0x6b175474e89094c44da98b954eedeac495271d0f", false],
    ["tokenSymbol", "USDC", false],
    ["Cookie", "lang=en; theme=dark", false],
    ["Cookie", "wp-settings-time-1=1700000000", false],
    ["Idempotency-Key", "0123456789abcdef0123456789abcdef", false],
    ["primaryKey", "id", false],
    ["projectKey", "ABC", false],
    ["ExclusiveStartKey", "a", false],
    ["pagination.key", "FPoybu9dHOEnPCaX", false],
    ["pageKey", "a3b1", false],
    ["spaceKey", "DEV", false],
    ["issueIdOrKey", "DEV-7", false],
    ["itemKey", "AB12", false],
    ["Surrogate-Key", "posts", false],
    ["max_tokens", "-1", false],
    ["tokenId", "44", false],
    ["tokenId", "abc", true],
    ["monkey", "abc", false],
  ])("as a value of which nobody knows, %s: %s", (name, value, expected) => {
    expect(mayBeSecret(name, value)).toBe(expected);
  });

  it("as a long value that has the form of a name and password for a while", () => {
    const basic = (text: string): string => `Basic ${Buffer.from(text).toString("base64")}`;
    // Had each colon its own try, this would take an hour.
    expect(isSecretValue("x", basic(`a${":".repeat(2_000_000)}\u0000`))).toBe(false);
    expect(["a:", "a:b:c", ":b", "a"].map((text) => isSecretValue("x", basic(text)))).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });

  it.each([
    ["https://mcp.tavily.com/mcp/?tavilyApiKey=tvly-dev-Ab3dEf6hIj9kLm2nOp5q", true],
    ["https://mcp.amap.com/mcp?key=0123456789abcdef0123456789abcdef", true],
    ["/l?a=1&access_token=abc", true],
    ["https://mcp.supabase.com/mcp?project_ref=abcdefghijklmnopqrst&read_only=true", false],
    ["https://api.github.com/alerts?hide_secret=true&page_token={page}", false],
    ["/l", false],
  ])("as an address, %s", (address, expected) => {
    expect(hasSecretInQuery(address)).toBe(expected);
  });
});
