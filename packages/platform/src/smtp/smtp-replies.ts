/** What an SMTP server said, or did not, in our words. Its own words are cut short and made one line. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { MailAccount, RecipientReply } from "@toolyard/core/ports/mail-transport";

interface Reply {
  /** 400 to 599, where the server said no. */
  readonly code: number | undefined;
  readonly text: string;
}

interface ReadReply extends Reply {
  /** Nodemailer said no by itself: before the mail was sent, that it cannot be; after, that the answer is none. */
  readonly isOwn: boolean;
  /** It was said to the sender's address, before any recipient's. */
  readonly isOfSender: boolean;
  readonly perRecipient: ReadonlyMap<string, { readonly code: number; readonly text: string }>;
}

/** The parts of nodemailer's errors and results that are used. */
interface Failure {
  readonly code?: unknown;
  readonly originalCode?: unknown;
  readonly responseCode?: unknown;
  readonly response?: unknown;
  readonly command?: unknown;
  readonly recipient?: unknown;
  readonly rejectedErrors?: unknown;
}

interface Sent {
  readonly accepted: readonly string[];
  readonly response: string;
  readonly rejectedErrors?: readonly unknown[] | undefined;
}

export function describePeer({ host, port }: Pick<MailAccount, "host" | "port">): string {
  return `The mail server '${host}:${port}'`;
}

/** 4xx: another time. */
export function isPutOff(code: number): boolean {
  return code < 500;
}

export function readReply(error: unknown): ReadReply {
  const failure = toFailure(error);
  const perRecipient = new Map<string, { readonly code: number; readonly text: string }>();
  for (const each of Array.isArray(failure.rejectedErrors) ? failure.rejectedErrors : []) {
    const { recipient } = toFailure(each);
    const { code, text } = replyOf(toFailure(each));
    if (typeof recipient === "string" && code !== undefined) perRecipient.set(recipient, { code, text });
  }
  const reply = replyOf(failure);
  const isOwn = reply.code === undefined && (failure.code === "EMESSAGE" || failure.code === "EENVELOPE");
  return { ...reply, isOwn, isOfSender: failure.command === "MAIL FROM", perRecipient };
}

/** What became of each recipient of a mail that the server has taken. */
export function toReplies(to: readonly string[], sent: Sent): readonly RecipientReply[] {
  const accepted = new Set(sent.accepted);
  const { perRecipient } = readReply({ rejectedErrors: sent.rejectedErrors });
  return to.map((address): RecipientReply => {
    if (accepted.has(address)) return { address, status: "accepted", reason: oneLine(sent.response) };
    const { code, text } = perRecipient.get(address) ?? { code: undefined, text: "refused" };
    return { address, status: code !== undefined && isPutOff(code) ? "deferred" : "rejected", code, reason: text };
  });
}

/** Why there is no session, as an error that says what to change. */
export function toOpenFailure(error: unknown, account: MailAccount): GatewayError {
  if (error instanceof GatewayError) return error;
  const peer = describePeer(account);
  const { code, text } = readReply(error);
  const failure = toFailure(error);
  if (failure.code === "EAUTH") return authenticationFailed({ peer, account, code, text, cause: error });
  if (failure.code === "ETLS" || isTlsError(failure)) return encryptionFailed(peer, account, error);
  if (code === undefined) {
    // A port for TLS from the start waits for us to begin, as we do for it.
    const hint =
      failure.code === "ETIMEDOUT" && account.security !== "tls"
        ? "; where its port is for TLS from the start, 'config.security' has to be 'tls'"
        : "";
    return new GatewayError("tool_unreachable", `${peer} did not open a session: ${text}${hint}.`, { cause: error });
  }
  return isPutOff(code)
    ? new GatewayError("tool_deferred", `${peer} puts us off: ${text}.`, { extra: { smtp_code: code }, cause: error })
    : new GatewayError("tool_failed", `${peer} does not serve us: ${text}.`, {
        extra: { smtp_code: code },
        cause: error,
      });
}

/** Of a server that names no way to log in; asked all the same it would say no to whatever name and password. */
export function noLogin(account: MailAccount): GatewayError {
  const wayOut = "leave out 'config.username' and 'config.password'";
  const advice =
    account.security === "none" ? `in clear; set 'config.security' to 'starttls', or ${wayOut}` : `there; ${wayOut}`;
  return new GatewayError("tool_failed", `${describePeer(account)} offers no login ${advice}.`, {
    param: "config.username",
  });
}

interface LoginFailure extends Reply {
  readonly peer: string;
  readonly account: MailAccount;
  readonly cause: unknown;
}

function authenticationFailed({ peer, account, code, text, cause }: LoginFailure): GatewayError {
  if (code !== undefined && isPutOff(code)) {
    return new GatewayError("tool_deferred", `${peer} cannot log us in now: ${text}.`, {
      extra: { smtp_code: code },
      cause,
    });
  }
  const name = account.login?.credential ?? "";
  return new GatewayError(
    "credential_invalid",
    `${peer} refused the login of '${account.login?.username ?? ""}': ${text}. Check 'username' and the credential '${name}'.`,
    { param: name, ...(code === undefined ? {} : { extra: { smtp_code: code } }), cause },
  );
}

function encryptionFailed(peer: string, { security, host }: MailAccount, cause: unknown): GatewayError {
  const { text } = readReply(cause);
  const hint =
    security === "tls"
      ? `Is its port for TLS from the start, and its certificate for '${host}' by an authority that is trusted ('tls.ca')?`
      : `Does it offer STARTTLS, and is its certificate for '${host}' by an authority that is trusted ('tls.ca')?`;
  return new GatewayError("tool_unreachable", `${peer} could not be talked to encrypted (${text}). ${hint}`, { cause });
}

function isTlsError({ originalCode }: Failure): boolean {
  return typeof originalCode === "string" && /CERT|TLS|SSL|ISSUER|SIGNATURE|EPROTO/.test(originalCode);
}

function replyOf({ responseCode, response, originalCode, code }: Failure): Reply {
  if (typeof responseCode === "number" && responseCode >= 400 && typeof response === "string")
    return { code: responseCode, text: oneLine(response) };
  const reason = [originalCode, code].find((each) => typeof each === "string");
  return { code: undefined, text: typeof reason === "string" ? (reasons[reason] ?? reason) : "no answer" };
}

const reasons: Readonly<Record<string, string>> = {
  ECONNECTION: "the connection was closed",
  ECONNRESET: "the connection was reset",
  ESOCKET: "the connection failed",
  ETIMEDOUT: "it did not answer in time",
  ETLS: "no encryption",
  EPROTOCOL: "it does not speak SMTP",
  EMESSAGE: "it is larger than the server takes",
  EENVELOPE: "an address of the envelope cannot be sent to this server",
};

function oneLine(text: string): string {
  return text
    .replaceAll(/[\p{Cc}\s]+/gu, " ")
    .trim()
    .slice(0, 300);
}

function toFailure(error: unknown): Failure {
  return typeof error === "object" && error !== null ? error : {};
}
