/**
 * What a call of a mail tool asks for, read and checked before anything leaves (MAIL-1 to MAIL-5, SVCERR-1).
 * Addresses, subject and names that could change another header are refused, never cleaned.
 */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { Mailbox } from "../ports/mail-transport.ts";
import { withDelivery } from "../errors/delivery.ts";
import { readInput, toParameters } from "../tools/native/native-tool.ts";
import { isAllowedBy, isHeaderText, parseAddress, withoutDuplicates } from "./address.ts";
import type { MailConfig, MailProfile } from "./config.ts";
import { renderTemplate, type RenderedMail } from "./template.ts";

const recipient = z.union([
  z.string().min(1).max(320),
  z.strictObject({ address: z.string().min(1).max(320), name: z.string().max(128).optional() }),
]);
const recipients = z.union([recipient, z.array(recipient).min(1).max(1_000)]);

const attachment = z.strictObject({
  name: z.string().min(1).max(255).describe("File name that the recipient sees."),
  content: z.string().optional().describe("The file, in base64 unless 'encoding' says otherwise."),
  encoding: z.enum(["base64", "utf-8"]).default("base64").describe("Of 'content'."),
  file: z.string().max(1_024).optional().describe("Path of a file of the session's workspace, instead of 'content'."),
  result: z.string().max(64).optional().describe("Call id of an earlier result, instead of 'content'."),
  contentType: z.string().max(127).optional().describe("Media type; absent: by the name."),
  contentId: z.string().max(127).optional().describe('For images in HTML: shown where it says src="cid:…".'),
});
export type AttachmentArgument = z.output<typeof attachment>;

const argumentsSchema = z.strictObject({
  to: recipients.describe("Address of the recipient, or a list of addresses."),
  cc: recipients.optional().describe("Further recipients whom all can see."),
  bcc: recipients.optional().describe("Further recipients whom nobody can see."),
  subject: z.string().min(1).max(998).optional().describe("Needed unless the template has one."),
  body: z.string().min(1).optional().describe("The text; not together with 'template'."),
  contentType: z.enum(["text", "html"]).default("text").describe("What 'body' is."),
  template: z.string().max(64).optional().describe("Name of a template, instead of 'body'."),
  variables: z.record(z.string(), z.json()).optional().describe("Values for the template."),
  attachments: z.array(attachment).max(50).optional(),
  replyTo: recipient.optional().describe("Where answers go, instead of the sender."),
  oneMail: z
    .boolean()
    .optional()
    .describe(
      "One mail to all of 'to', who see each other; else each gets a mail of their own. Always so with 'cc' or 'bcc'.",
    ),
});
type Arguments = z.output<typeof argumentsSchema>;

let common: JsonObject | undefined;

/** What models are told of a profile's arguments: with the templates that there are. */
export function parametersOf(config: MailConfig, profile: MailProfile): JsonObject {
  common ??= toParameters(argumentsSchema);
  const { template, variables, body, contentType, ...others } = propertiesOf(common);
  const names = Object.keys(config.templates);
  const free: JsonObject = profile.free_text ? { body: body ?? {}, contentType: contentType ?? {} } : {};
  const templated: JsonObject =
    names.length === 0
      ? {}
      : {
          template: { ...asObject(template), enum: names, description: describeTemplates(config, profile) },
          variables: variables ?? {},
        };
  return { ...common, properties: { ...others, ...free, ...templated } };
}

function propertiesOf(schema: JsonObject): JsonObject {
  return asObject(schema["properties"]);
}

function asObject(value: JsonValue | undefined): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

function describeTemplates({ templates }: MailConfig, { template: usual }: MailProfile): string {
  const lines = Object.entries(templates).map(([name, { description, variables = {} }]) => {
    const needs = Object.entries(variables).map(
      ([variable, meaning]) => `${variable}${meaning === "" ? "" : ` (${meaning})`}`,
    );
    return `${name}${description === undefined ? "" : `: ${description}`}${needs.length === 0 ? "" : `; variables: ${needs.join(", ")}`}`;
  });
  return `Template, instead of 'body'${usual === undefined ? "" : ` (absent: ${usual})`}. ${lines.join(". ")}`.slice(
    0,
    4_000,
  );
}

export interface MailRequest {
  readonly from: Mailbox;
  readonly replyTo: Mailbox | undefined;
  readonly to: readonly Mailbox[];
  readonly cc: readonly Mailbox[];
  readonly bcc: readonly Mailbox[];
  /** One mail to all, rather than one to each. */
  readonly isShared: boolean;
  readonly subject: string;
  readonly text: string | undefined;
  readonly html: string | undefined;
  readonly attachments: readonly AttachmentArgument[];
  readonly headers: Readonly<Record<string, string>>;
}

/** @throws GatewayError `invalid_arguments` naming the argument, `permission_denied`; all `not_sent` */
export async function readMailRequest(
  config: MailConfig,
  profile: MailProfile,
  args: JsonObject,
): Promise<MailRequest> {
  const asked = readInput(argumentsSchema, args);
  const seen = new Set<string>();
  const boxes = (field: "to" | "cc" | "bcc"): readonly Mailbox[] =>
    withoutDuplicates(readRecipients(field, asked[field]), seen);
  const [to, cc, bcc] = [boxes("to"), boxes("cc"), boxes("bcc")];
  requireRecipients(config, profile, { to, cc, bcc });
  const content = await readContent(config, profile, asked);
  return {
    from: profile.from ?? config.from,
    replyTo:
      asked.replyTo === undefined ? (profile.reply_to ?? config.reply_to) : readMailbox("replyTo", asked.replyTo),
    to,
    cc,
    bcc,
    isShared: asked.oneMail === true || cc.length + bcc.length > 0,
    ...content,
    attachments: asked.attachments ?? [],
    headers: profile.headers ?? {},
  };
}

function readRecipients(field: string, given: Arguments["cc"]): readonly Mailbox[] {
  if (given === undefined) return [];
  if (!Array.isArray(given)) return [readMailbox(field, given)];
  return given.map((each, index) => readMailbox(`${field}.${index}`, each));
}

function readMailbox(field: string, given: z.output<typeof recipient>): Mailbox {
  const { address: text, name } = typeof given === "string" ? { address: given, name: undefined } : given;
  const address = parseAddress(text);
  if (address === undefined) {
    const hint = /[<>,;]/.test(text)
      ? ' Names stand beside the address, as {"name": "Ann", "address": "ann@example.com"}, and several addresses in a list.'
      : "";
    throw invalid(field, `'${field}' must be a mail address such as ann@example.com; got ${quote(text)}.${hint}`);
  }
  if (name !== undefined && !isHeaderText(name))
    throw invalid(field, `The name in '${field}' must not have line breaks or other control characters.`);
  return { address, ...(name === undefined || name === "" ? {} : { name }) };
}

function requireRecipients(
  config: MailConfig,
  profile: MailProfile,
  asked: Readonly<Record<"to" | "cc" | "bcc", readonly Mailbox[]>>,
): void {
  const count = asked.to.length + asked.cc.length + asked.bcc.length;
  if (count > config.max_recipients) {
    throw invalid(
      "to",
      `A call of this service may have ${config.max_recipients} recipients ('max_recipients'); this one has ${count}.`,
    );
  }
  const patterns = profile.allowed_recipients;
  if (patterns === undefined) return;
  for (const [param, boxes] of Object.entries(asked)) {
    const stranger = boxes.find(({ address }) => !isAllowedBy(patterns, address));
    if (stranger === undefined) continue;
    throw withDelivery(
      new GatewayError(
        "permission_denied",
        `This profile may not write to '${stranger.address}'; an administrator can add the address or its domain to 'allowed_recipients'.`,
        { param },
      ),
      "not_sent",
    );
  }
}

async function readContent(
  config: MailConfig,
  profile: MailProfile,
  asked: Arguments,
): Promise<Pick<MailRequest, "subject" | "text" | "html">> {
  const { body, template: named } = asked;
  if (body !== undefined && named !== undefined)
    throw invalid("template", "'template' and 'body' cannot be given together; choose one.");
  if (body !== undefined && !profile.free_text)
    throw invalid("body", `This profile sends templates only; choose 'template' from ${namesOf(config)}.`);
  const name = body === undefined ? (named ?? profile.template) : undefined;
  if (name === undefined) {
    if (asked.variables !== undefined)
      throw invalid("variables", "'variables' are for a 'template', which is not given.");
    if (body === undefined) throw invalid("body", "The mail has no content: give 'body' or 'template'.");
    return {
      subject: readSubject(asked.subject),
      ...(asked.contentType === "html" ? { html: body, text: undefined } : { text: body, html: undefined }),
    };
  }
  const template = Object.hasOwn(config.templates, name) ? config.templates[name] : undefined;
  if (template === undefined)
    throw invalid("template", `There is no template ${quote(name)}; there are ${namesOf(config)}.`);
  const rendered: RenderedMail = await renderTemplate(name, template, asked.variables ?? {});
  return { subject: readSubject(asked.subject ?? rendered.subject?.trim()), text: rendered.text, html: rendered.html };
}

function readSubject(subject: string | undefined): string {
  if (subject === undefined || subject === "") throw invalid("subject", "'subject' is missing.");
  if (!isHeaderText(subject))
    throw invalid(
      "subject",
      "The subject must not have line breaks or other control characters, in variables neither.",
    );
  if (subject.length > 998) throw invalid("subject", "The subject may have 998 characters.");
  return subject;
}

function namesOf({ templates }: MailConfig): string {
  const names = Object.keys(templates);
  return names.length === 0 ? "none" : names.map((name) => `'${name}'`).join(", ");
}

function quote(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text);
}

/** Nothing has left. */
export function invalid(param: string, message: string): GatewayError {
  return withDelivery(new GatewayError("invalid_arguments", message, { param }), "not_sent");
}
