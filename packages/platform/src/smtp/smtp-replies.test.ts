import type { MailAccount } from "@toolyard/core/ports/mail-transport";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { toOpenFailure } from "./smtp-replies.ts";

describe(`a mail server that says nothing ${verifies("MAIL-1")}`, () => {
  const said = (security: MailAccount["security"]): string =>
    toOpenFailure({ code: "ETIMEDOUT" }, { host: "mail.example.com", port: 465, security }).message;

  test("may wait for TLS, which is told where it was not offered from the start", () => {
    expect(said("starttls")).toBe(
      "The mail server 'mail.example.com:465' did not open a session: it did not answer in time; where its port is for TLS from the start, 'config.security' has to be 'tls'.",
    );
    expect(said("none")).toContain("'config.security' has to be 'tls'");
    expect(said("tls")).toBe(
      "The mail server 'mail.example.com:465' did not open a session: it did not answer in time.",
    );
  });
});
