/**
 * `mail://service/profile`: mails over SMTP (tool management specification, "电子邮件"; MAIL-1 to MAIL-5). A
 * service is an account with templates; a tool is a profile of it, which says who writes and to whom. A mail's
 * Message-ID comes from the call, so that whoever gets it twice can see that it is one.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { domainOf } from "../../mail/address.ts";
import { readAttachments } from "../../mail/attachments.ts";
import { mailConfigSchema, portOf, type MailConfig } from "../../mail/config.ts";
import { deliverAll, requireSomeAccepted, viewResults } from "../../mail/deliver.ts";
import { parametersOf, readMailRequest, type MailRequest } from "../../mail/request.ts";
import { parseTemplate, TemplateFault } from "../../mail/template.ts";
import { MailSessions } from "../../mail/sessions.ts";
import type { MailAccount, MailAttachment, MailMessage, MailSigning } from "../../ports/mail-transport.ts";
import type { SecretReference } from "../../services/config-fields.ts";
import type { Held } from "../../services/held-connections.ts";
import { invalidConfig } from "../../services/invalid-config.ts";
import { openSecret } from "../../services/open-secret.ts";
import { profileTool } from "../../services/profile.ts";
import { defineScheme, type OpenService, type SchemeDeps, type ServiceCall } from "../../services/scheme.ts";
import { openPem, openTls } from "../../services/tls.ts";
import type { InvocationContext, ToolReply } from "../tool-call.ts";
import { jsonReply } from "../native/native-tool.ts";

type Service = OpenService<MailConfig>;

export const mailScheme = defineScheme({
  scheme: "mail",
  title: "Mail",
  description: "Mails over an SMTP account, with templates and profiles.",
  icon: "mail",
  config: mailConfigSchema,
  options: {},
  create: (deps) => ({
    check: (service) => check(service, deps),
    tools: ({ config }) =>
      Object.entries(config.profiles).map(([id, profile]) =>
        profileTool(config, id, { profile, parameters: parametersOf(config, profile) }),
      ),
    invoke: (call, context) => send(call, context, deps),
    async probe({ config }, context) {
      const session = await deps.mail.open(await accountOf(config, context, deps), context.signal);
      session.close();
      const { host, security, username } = config;
      const protection = { tls: "encrypted", starttls: "encrypted by STARTTLS", none: "not encrypted" }[security];
      const login = username === undefined ? "no login" : `logged in as '${username}'`;
      return { detail: `${host}:${portOf(config)} answers; ${protection}; ${login}.` };
    },
    reachedBy: () => ["host", "port", "security"],
  }),
});

async function check({ config }: Service, { egress }: SchemeDeps): Promise<void> {
  for (const [name, template] of Object.entries(config.templates)) {
    try {
      await parseTemplate(template);
    } catch (error) {
      if (!(error instanceof TemplateFault)) throw error;
      throw invalidConfig(`templates.${name}.${error.part}`, `is not a Liquid template: ${error.message}`);
    }
  }
  try {
    egress.checkTarget({ host: config.host, port: portOf(config) });
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "config.host" });
  }
}

async function send(
  { record, config, tool, call }: ServiceCall<MailConfig>,
  context: InvocationContext,
  deps: SchemeDeps,
): Promise<ToolReply> {
  const profile = Object.hasOwn(config.profiles, tool.id) ? config.profiles[tool.id] : undefined;
  if (profile === undefined) throw invalidConfig(`profiles.${tool.id}`, "is not there");
  const request = await readMailRequest(config, profile, call.arguments);
  const attachments = await readAttachments(deps, context, {
    given: request.attachments,
    most: config.max_attachment_bytes,
  });
  const signing = await openSigning(config, context, deps);
  const messages = messagesOf(config, request, {
    callId: call.id,
    attachments,
    signing,
    date: new Date(deps.clock.now()),
  });
  const account = await accountOf(config, context, deps);
  const results = await deps.connections.use(
    { service: record, context, open: () => Promise.resolve(holdSessions(deps)) },
    (sessions) =>
      sessions.use(
        context.signal,
        () => deps.mail.open(account, context.signal),
        (session) => {
          context.onSent?.();
          return deliverAll(session, messages);
        },
      ),
  );
  requireSomeAccepted(results);
  return jsonReply(viewResults(results));
}

function holdSessions({ clock }: SchemeDeps): Held<MailSessions> {
  const sessions = new MailSessions(clock);
  return { connection: sessions, close: () => sessions.close(), isAlive: () => true };
}

async function accountOf(config: MailConfig, context: InvocationContext, deps: SchemeDeps): Promise<MailAccount> {
  const { username, password } = config;
  return {
    host: config.host,
    port: portOf(config),
    security: config.security,
    tls: await openTls(config.tls, deps.credentials, context),
    clientName: config.client_name ?? domainOf(config.from.address),
    login:
      username === undefined || password === undefined
        ? undefined
        : {
            username,
            password: await openPassword(password, context, deps),
            credential: password.credential,
          },
  };
}

async function openPassword(
  password: SecretReference,
  context: InvocationContext,
  { credentials }: SchemeDeps,
): Promise<string> {
  const value = await openSecret(password, credentials, context);
  context.redactor.add(value);
  return value;
}

async function openSigning(
  { dkim }: MailConfig,
  context: InvocationContext,
  { credentials }: SchemeDeps,
): Promise<MailSigning | undefined> {
  if (dkim === undefined) return undefined;
  const { domain, selector, private_key: key } = dkim;
  return { domain, selector, privateKey: await openPem(key, credentials, context), credential: key.credential };
}

interface Parts {
  readonly callId: string;
  readonly attachments: readonly MailAttachment[];
  readonly signing: MailSigning | undefined;
  readonly date: Date;
}

/** One for all, or one for each recipient, who then see nothing of each other. */
function messagesOf(config: MailConfig, request: MailRequest, { callId, ...parts }: Parts): readonly MailMessage[] {
  const { from, replyTo, to, cc, bcc, subject, text, html, headers } = request;
  const mails = request.isShared ? [{ to, cc, others: bcc }] : to.map((box) => ({ to: [box], cc: [], others: [] }));
  return mails.map((mail, index) => ({
    messageId: `<${callId}.${index + 1}@${domainOf(from.address)}>`,
    from,
    replyTo,
    to: mail.to,
    cc: mail.cc,
    envelope: {
      from: config.return_path ?? from.address,
      to: [...mail.to, ...mail.cc, ...mail.others].map(({ address }) => address),
    },
    subject,
    text,
    html,
    headers,
    ...parts,
  }));
}
