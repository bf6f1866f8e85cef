import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { plainSecretsIn } from "./plain-secrets.ts";

test.each([
  ["an address of many parts", `https://x.example${"/a".repeat(50_000)}`],
  ["an address of as many as are looked at", `https://x.example${"/hook".repeat(1_600)}`],
  ["blanks for parts", `https://x.example${"/".repeat(99_000)}`],
])(`secrets in a document are looked for once in %s ${verifies("BLIND-5")}`, (_what, text) => {
  for (let times = 0; times < 20; times += 1) expect(plainSecretsIn("agents[0]", { instructions: text })).toEqual([]);
});

test("an address behind a hook is told of", () => {
  const url = "https://hooks.slack.com/services/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";
  expect(plainSecretsIn("webhooks[0]", { url })).toMatchObject([{ path: "webhooks[0].url" }]);
});

describe(`an address that opens something ${verifies("BLIND-5")}`, () => {
  const isTold = (url: string): boolean => plainSecretsIn("webhooks[0]", { url }).length > 0;

  test.each([
    "https://in.example.com/alerts?token=s3cr3t",
    "https://in.example.com/alerts?room=ops&token=swordfish",
    "https://in.example.com/alerts?key=a8f3k2m9",
    "https://in.example.com/alerts?access_token=abc",
    "https://in.example.com/alerts?sig=9f8e7d",
    "https://in.example.com/alerts?auth=ops:1234",
    "https://in.example.com/alerts?secret=x1",
    "https://in.example.com/alerts?pwd=ab12#top",
    "https://in.example.com/alerts?app_key=4f9a2b7c",
    "https://in.example.com/alerts?license-key=AB12-CD34-EF56",
    "https://ghp_abcdefghijklmnop1234567890@in.example.com/alerts",
    "https://a8f3k2m9q1w2e3r4t5@in.example.com/alerts",
    "redis://:hunter2@cache.example.com",
    "/alerts?token=s3cr3t",
  ])("is told of: %s", (url) => {
    expect(isTold(url)).toBe(true);
  });

  test.each([
    "https://in.example.com/alerts?room=ops&lang=en",
    "https://in.example.com/alerts?key=orders",
    "https://in.example.com/alerts?key=orders2026",
    "https://in.example.com/alerts?sort_key=a8f3k2m9",
    "https://in.example.com/alerts?primary_key=a8f3k2m9",
    "https://in.example.com/alerts?page_token=a8f3k2m9",
    "https://in.example.com/alerts?max_tokens=4096",
    "https://in.example.com/alerts?token={token}",
    "https://in.example.com/alerts?token=",
    "https://in.example.com/alerts?token=YOUR_TOKEN",
    "https://in.example.com/alerts?auth=none",
    "https://in.example.com/alerts?key=DEMO_KEY",
    "https://in.example.com/alerts?token_type=bearer",
    "https://in.example.com/alerts?app_id=orders",
    "https://chain.example.com/?token=0x52908400098527886E0F7030069857D2E4169EE7",
    "https://ops@in.example.com/alerts",
    "/alerts?key=orders",
    "/alerts and what is asked: ?token=s3cr3t",
  ])("is none: %s", (url) => {
    expect(isTold(url)).toBe(false);
  });

  test("is looked for in a second, in a thousand long ones too", () => {
    const url = `https://in.example.com/alerts?key=${"1".repeat(8_000)}`;
    expect(Array.from({ length: 1_000 }, () => isTold(url))).not.toContain(true);
  });
});
