/** Who may be written to, whatever letters a domain has (MAIL-1). */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { schemaProblems } from "../errors/schema-problems.ts";
import { isAllowedBy, parseAddress } from "./address.ts";
import { mailConfigSchema } from "./config.ts";

function allowedBy(pattern: string): readonly string[] {
  const config = mailConfigSchema.parse({
    host: "smtp.example.com",
    from: "shop@example.com",
    profiles: { notify: { allowed_recipients: [pattern] } },
  });
  return config.profiles["notify"]?.allowed_recipients ?? [];
}

test(`a sender with a name is told the form that takes one ${verifies("MAIL-1")}`, () => {
  const refused = mailConfigSchema.safeParse({
    host: "smtp.example.com",
    from: "The Shop <shop@example.com>",
    profiles: { notify: {} },
  });
  expect(schemaProblems(refused.error ?? { issues: [] })).toMatchObject([
    { path: ["from"], says: expect.stringContaining('{"address": "ann@example.com", "name": "Ann"}') },
  ]);
});

test.each([
  ["@münchen.de", "bob@münchen.de", true],
  ["@münchen.de", "bob@MÜNCHEN.de", true],
  ["@xn--mnchen-3ya.de", "bob@münchen.de", true],
  ["@münchen.de", "bob@munchen.de", false],
  ["ann@bücher.example", "ann@bücher.example", true],
  ["ann@bücher.example", "bob@bücher.example", false],
])(`%s lets %s be written to: %j ${verifies("MAIL-1")}`, (pattern, recipient, expected) => {
  expect(isAllowedBy(allowedBy(pattern), parseAddress(recipient) ?? "")).toBe(expected);
});

test.each([
  ["smtp.example.com", true],
  ["127.0.0.1", true],
  ["::1", true],
  ["fe80::1", true],
  ["127.0.0.1:8025", false],
  ["fade:25", false],
  ["smtp.example.com:587", false],
  ["smtp://smtp.example.com", false],
])(`the host '%s' is one: %j; a port stands beside it ${verifies("MAIL-1")}`, (host, expected) => {
  const parsed = mailConfigSchema.safeParse({ host, from: "shop@example.com", profiles: { notify: {} } });
  expect(parsed.success).toBe(expected);
});
