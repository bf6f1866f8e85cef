import { expect, test } from "vitest";
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
