import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { newId } from "../ids.ts";
import { looksLikeSecret } from "./secret-shape.ts";

describe(`What looks like a secret itself ${verifies("BLIND-6")}`, () => {
  it.each([
    "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z",
    "sk-live-0123456789",
    "sk-abcdefghijklmnop",
    "ghp_abcdefghijklmnop1234567890",
    "github_pat_11ABCDEFG",
    "glpat-abcdefghij",
    "xoxb-1234-5678-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "ty_operator_bench-bench-bench",
    "d41d8cd98f00b204e9800998ecf8427e",
    "Zm9v1YmFyYmF6cXV4MTIzNDU2Nzg5",
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
    "4f9e2b1c-8a7d-4c3e-9b2a-1d5e6f7a8b9c",
    `SECRET_${newId("request")}`,
    `${newId("toolService")}.auth_config.token.abc123`,
    "sk-ills",
    "pk_column",
  ])("is a name: %s", (text) => {
    expect(looksLikeSecret(text)).toBe(false);
  });

  it("is most of what is random", () => {
    const random = Array.from({ length: 1_000 }, () => randomBytes(32).toString("base64url"));
    expect(random.filter(looksLikeSecret).length).toBeGreaterThan(500);
    expect(Array.from({ length: 1_000 }, () => newId("session")).filter(looksLikeSecret)).toEqual([]);
  });
});
