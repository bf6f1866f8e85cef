import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { newId } from "../ids.ts";
import { isSecretValue, looksLikeSecret } from "./secret-shape.ts";

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
  ])("as a value, %s: %s", (name, value, expected) => {
    expect(isSecretValue(name, value)).toBe(expected);
  });
});
