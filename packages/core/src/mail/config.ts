/** What a mail service is: an SMTP account, templates, and profiles, which are its tools (MAIL-1, MAIL-4). */
import * as z from "zod";
import { pluginDefinitionSchema } from "../blind/definition.ts";
import { accountFaults, policyFields, secretField, unencryptedField } from "../services/config-fields.ts";
import { tlsField } from "../services/tls.ts";
import { isHeaderText, parseAddress } from "./address.ts";

/** @param named how one with a name is written, where it may have one */
const addressOr = (named: string): z.ZodType<string, string> =>
  z
    .string()
    .max(320)
    .transform((text, check): string => {
      const address = parseAddress(text);
      if (address !== undefined) return address;
      check.addIssue({
        code: "custom",
        message: `must be a mail address such as ann@example.com, without a name${named}`,
      });
      return z.NEVER;
    });
const addressField = addressOr("");

const headerText = (most: number): z.ZodString =>
  z.string().min(1).max(most).refine(isHeaderText, "must not have line breaks or other control characters");

const mailboxField = z
  .union([
    addressOr('; with one: {"address": "ann@example.com", "name": "Ann"}').transform((address) => ({ address })),
    z.strictObject({ address: addressField, name: headerText(128).optional() }),
  ])
  .meta({ description: 'An address, or {"address", "name"}.' });

/** In the form that addresses have, which it is compared with. */
const pattern = z.string().transform((text, check): string => {
  const isDomain = text.startsWith("@");
  const address = parseAddress(isDomain ? `x${text}` : text);
  if (address !== undefined) return isDomain ? address.slice(1) : address;
  check.addIssue({ code: "custom", message: "must be an address, or '@' and a domain" });
  return z.NEVER;
});

const nameSchema = z
  .string()
  .regex(
    /^[\p{L}\p{N}_][\p{L}\p{N}._-]{0,63}$/u,
    "must be a name: letters, digits, '.', '_' and '-', at most 64 characters",
  );

const templateText = (description: string): z.ZodOptional<z.ZodString> =>
  z.string().min(1).max(262_144).optional().meta({ description });

const templateSchema = z
  .strictObject({
    description: z.string().max(1_024).optional().meta({ description: "What it is for, for models." }),
    subject: templateText("Liquid; absent: the call says the subject."),
    text: templateText("Liquid; the plain text."),
    html: templateText("Liquid; HTML, into which variables are put escaped."),
    variables: z
      .record(z.string().min(1).max(128), z.string().max(1_024))
      .optional()
      .meta({ description: "Variables that it needs, each with what it means, for models." }),
  })
  .refine(({ text, html }) => text !== undefined || html !== undefined, {
    error: "needs 'text' or 'html'",
    path: ["text"],
  });

const ownHeader = /^(?:X-[\w-]{1,60}|List-[A-Za-z-]{1,30}|Feedback-ID|Auto-Submitted|Precedence|Importance)$/i;

const profileSchema = z.strictObject({
  title: pluginDefinitionSchema.shape.title,
  description: z.string().min(1).max(1_024).default("Sends a mail."),
  from: mailboxField.optional().meta({ description: "Sender, instead of the service's." }),
  reply_to: mailboxField.optional(),
  template: nameSchema.optional().meta({ description: "Used where a call gives neither `template` nor `body`." }),
  free_text: z
    .boolean()
    .default(true)
    .meta({ description: "Calls may bring a `body` of their own; else they use templates only." }),
  allowed_recipients: z
    .array(pattern)
    .max(1_000)
    .optional()
    .meta({ description: "Addresses, or '@example.com' for everybody there; absent: everybody." }),
  headers: z
    .record(
      z.string().regex(ownHeader, "must be X-…, List-…, Feedback-ID, Auto-Submitted, Precedence or Importance"),
      headerText(900),
    )
    .optional()
    .meta({ description: "Further headers of every mail, for example `List-Unsubscribe`." }),
  sensitive: pluginDefinitionSchema.shape.sensitive,
  roles: pluginDefinitionSchema.shape.roles,
});

/** Ports by the encryption. */
const usualPorts = { tls: 465, starttls: 587, none: 25 } as const;

export const mailConfigSchema = z
  .strictObject({
    host: z
      .string()
      .max(253)
      .regex(
        /^(?:[\p{L}\p{N}._-]+|(?=.*:.*:)[0-9a-f:.]+)$/iu,
        "must be a host name or an address, without port and scheme",
      )
      .meta({ description: "SMTP server.", example: "smtp.example.com" }),
    port: z
      .int()
      .min(1)
      .max(65_535)
      .optional()
      .meta({ description: "Absent: 465 for `tls`, 587 for `starttls`, 25 for `none`." }),
    security: z.enum(["tls", "starttls", "none"]).default("starttls").meta({
      description:
        "`tls`: encrypted from the start. `starttls`: turned on before anything else, or nothing is sent. `none`: in clear.",
    }),
    allow_unencrypted: unencryptedField("mails"),
    tls: tlsField.optional(),
    username: z.string().min(1).max(320).optional().meta({ description: "Absent: no login." }),
    password: secretField("Password of `username`.").optional(),
    client_name: z
      .string()
      .regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/, "must be a host name")
      .optional()
      .meta({ description: "What we call ourselves to the server (EHLO); absent: the sender's domain." }),
    from: mailboxField.meta({ description: "Sender, where a profile says nothing.", example: "shop@example.com" }),
    reply_to: mailboxField.optional(),
    return_path: addressField
      .optional()
      .meta({ description: "Where the world's refusals go (envelope sender); absent: the sender." }),
    dkim: z
      .strictObject({
        domain: z
          .string()
          .max(253)
          .refine((domain) => parseAddress(`x@${domain}`) !== undefined, "must be a domain"),
        selector: z.string().regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62})$/, "must be a DKIM selector"),
        private_key: secretField("The private key, in PEM form."),
      })
      .optional()
      .meta({ description: "Signs mails where the server does not." }),
    templates: z.record(nameSchema, templateSchema).default({}).meta({ description: "Templates by name." }),
    profiles: z
      .record(nameSchema, profileSchema)
      .default({})
      .meta({ description: "Tools: sender, template, who may be written to." }),
    max_recipients: z.int().min(1).max(1_000).default(50).meta({ description: "Recipients of one call." }),
    max_attachment_bytes: z
      .int()
      .min(0)
      .max(52_428_800)
      .default(10_485_760)
      .meta({ description: "Bytes of all attachments of one call." }),
    ...policyFields({
      timeout: "For one attempt; absent: as the tenant has it.",
      attempts: "Sends in all. Only what the server has put off before it had the mail is sent again.",
    }),
  })
  .superRefine((config, check) => {
    const say = (path: readonly string[], message: string): void =>
      check.addIssue({ code: "custom", message, path: [...path] });
    for (const { field, message } of accountFaults(config, { what: "mails" })) say([field], message);
    for (const [name, { template, free_text: isFree }] of Object.entries(config.profiles)) {
      if (template !== undefined && !Object.hasOwn(config.templates, template))
        say(["profiles", name, "template"], "is not the name of one of 'templates'");
      if (!isFree && Object.keys(config.templates).length === 0)
        say(["profiles", name, "free_text"], "leaves nothing to send: there are no 'templates'");
    }
  });
export type MailConfig = z.output<typeof mailConfigSchema>;
export type MailProfile = MailConfig["profiles"][string];

export function portOf({ port, security }: MailConfig): number {
  return port ?? usualPorts[security];
}
