/** What texts of callers can do to a mail's headers: nothing (SVCERR-1). */
import { isHeaderText } from "@toolyard/core/mail/address";
import type { MailMessage } from "@toolyard/core/ports/mail-transport";
import fc from "fast-check";
import { simpleParser } from "mailparser";
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { compose } from "./smtp-session.ts";

const own = new Set([
  "message-id",
  "date",
  "from",
  "to",
  "reply-to",
  "subject",
  "mime-version",
  "content-type",
  "content-transfer-encoding",
]);

/** Texts as an attacker would write them, of which only those are sent that a header may hold. */
const nasty = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        "Bcc: ",
        "evil@example.org",
        "<",
        ">",
        ",",
        ";",
        ":",
        '"',
        "\\",
        "(",
        ")",
        "=?utf-8?B?",
        "?=",
        " ",
        "欢迎",
        "\r\n",
        "\u2028",
      ),
      fc.string({ maxLength: 80, unit: "grapheme" }),
    ),
    { minLength: 1, maxLength: 8 },
  )
  .map((parts) => parts.join("").trim())
  .filter((text) => text !== "" && isHeaderText(text));

test(`no subject, name or file name becomes a header or a recipient of its own ${verifies("SVCERR-1")}`, async () => {
  await fc.assert(
    fc.asyncProperty(nasty, nasty, nasty, async (subject, name, fileName) => {
      const message: MailMessage = {
        messageId: "<call_1.1@example.com>",
        date: new Date("2026-11-28T08:00:00Z"),
        from: { address: "shop@example.com", name },
        replyTo: { address: "help@example.com", name },
        to: [{ address: "ann@example.com", name }],
        cc: [],
        envelope: { from: "shop@example.com", to: ["ann@example.com"] },
        subject,
        text: "Hello",
        attachments: [{ name: fileName, content: Buffer.from("x") }],
        headers: {},
      };
      const raw = await compose(message);
      const head = raw.subarray(0, raw.indexOf("\r\n\r\n")).toString("latin1");
      const names = head.split(/\r\n(?![ \t])/).map((line) => line.slice(0, line.indexOf(":")).toLowerCase());
      expect(names.filter((each) => !own.has(each))).toEqual([]);
      expect(new Set(names).size).toBe(names.length);
      const parsed = await simpleParser(raw);
      const addressesOf = (field: typeof parsed.from): readonly (string | undefined)[] =>
        (field?.value ?? []).map(({ address }) => address);
      expect(addressesOf(parsed.from)).toEqual(["shop@example.com"]);
      expect([parsed.to].flat().flatMap((field) => addressesOf(field))).toEqual(["ann@example.com"]);
      expect(addressesOf(parsed.replyTo)).toEqual(["help@example.com"]);
      expect(parsed.attachments).toHaveLength(1);
    }),
  );
});
