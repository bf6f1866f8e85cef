/**
 * A conversation with an SMTP server, and messages put together, by nodemailer, which is part of this module so
 * that both are loaded with the first mail. It resolves nothing, opens no file and fetches no URL.
 */
import { createPrivateKey } from "node:crypto";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { getCACertificates } from "node:tls";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type {
  Mailbox,
  MailAccount,
  MailMessage,
  MailSession,
  MailSigning,
  RecipientReply,
} from "@toolyard/core/ports/mail-transport";
import { withDelivery } from "@toolyard/core/errors/delivery";
import { createTransport } from "nodemailer";
import SmtpConnection, {
  type SMTPConnectionOptions,
  type SMTPConnectionSendInfo,
} from "nodemailer/lib/smtp-connection";
import { describePeer, isPutOff, noLogin, readReply, toOpenFailure, toReplies } from "./smtp-replies.ts";

/** A server that says nothing for so long is gone; the call's own limit usually ends first. */
const silenceMs = 120_000;
const setUpMs = 30_000;

/** Speaks SMTP over a connection that is there: encrypted and logged in when it is given back. */
export async function startSession(socket: Socket, account: MailAccount, signal: AbortSignal): Promise<MailSession> {
  const session = new SmtpSession(new SmtpConnection({ ...optionsOf(account), connection: socket }), account, signal);
  try {
    await session.start();
    return session;
  } catch (error) {
    session.abandon();
    throw error;
  }
}

function optionsOf({ host, port, security, tls, clientName }: MailAccount): SMTPConnectionOptions {
  return {
    host,
    port,
    secure: security === "tls",
    // Without it, a STARTTLS that somebody has cut out of the answer would go unnoticed.
    requireTLS: security === "starttls",
    ignoreTLS: security === "none",
    ...(clientName === undefined ? {} : { name: clientName }),
    connectionTimeout: setUpMs,
    greetingTimeout: setUpMs,
    socketTimeout: silenceMs,
    socketCloseTimeout: 1_000,
    maxResponseSize: 65_536,
    logger: false,
    tls: {
      minVersion: "TLSv1.2",
      rejectUnauthorized: true,
      ...(tls?.serverName === undefined ? {} : { servername: tls.serverName }),
      ...(tls?.ca === undefined ? {} : { ca: [...getCACertificates("default"), ...tls.ca] }),
      ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
      ...(tls?.key === undefined ? {} : { key: tls.key }),
    },
  };
}

class SmtpSession implements MailSession {
  readonly #connection: SmtpConnection;
  readonly #account: MailAccount;
  /** Of the call that has it now. */
  #signal: AbortSignal;
  #failure: Error | undefined;
  /** Given up in the middle of a step: what comes next would answer that one. */
  #isSpent = false;
  /** A mail that was refused has to be put away before the next. */
  #isOpen = false;
  #onFailure: (error: Error) => void = () => undefined;

  constructor(connection: SmtpConnection, account: MailAccount, signal: AbortSignal) {
    this.#connection = connection;
    this.#account = account;
    this.#signal = signal;
    connection.on("error", (error: Error) => {
      this.#failure ??= error;
      this.#onFailure(error);
    });
    connection.on("end", () => {
      this.#failure ??= new Error("the connection was closed");
    });
  }

  /** @throws GatewayError marked `not_sent` */
  async start(): Promise<void> {
    const { login } = this.#account;
    try {
      await this.#step<void>(({ give, fail }) =>
        this.#connection.connect((error) => (error === undefined ? give() : fail(error))),
      );
      if (login === undefined) return;
      if (!this.#connection.allowsAuth) throw noLogin(this.#account);
      const { username: user, password: pass } = login;
      await this.#step<void>(({ give, fail }) =>
        this.#connection.login({ user, pass }, (error) => (error === null ? give() : fail(error))),
      );
    } catch (error) {
      throw withDelivery(toOpenFailure(error, this.#account), "not_sent");
    }
  }

  async send(message: MailMessage): Promise<readonly RecipientReply[]> {
    const bytes = await compose(message);
    const body = new Body(bytes);
    const { from, to } = message.envelope;
    const envelope = { from, to: [...to], size: bytes.byteLength };
    try {
      if (this.#isOpen) await this.#reset();
      this.#isOpen = true;
      const info = await this.#step<SMTPConnectionSendInfo>(({ give, fail }) =>
        this.#connection.send(envelope, body, (error, sent) => (sent === undefined ? fail(error) : give(sent))),
      );
      this.#isOpen = false;
      return toReplies(to, info);
    } catch (error) {
      const replies = refusals(message.envelope, error, body.isBegun);
      if (replies !== undefined) return replies;
      throw this.#lost(error, body.isBegun);
    }
  }

  isAlive(): boolean {
    return this.#failure === undefined && !this.#isSpent;
  }

  async renew(signal: AbortSignal): Promise<boolean> {
    this.#signal = signal;
    try {
      await this.#reset();
      this.#isOpen = false;
      return this.isAlive();
    } catch (error) {
      if (error instanceof GatewayError) throw withDelivery(error, "not_sent");
      return false;
    }
  }

  close(): void {
    if (this.isAlive()) this.#connection.quit();
    // The server may take its time with the goodbye.
    setTimeout(() => this.#connection.close(), 1_000).unref();
  }

  abandon(): void {
    this.#connection.close();
  }

  async #reset(): Promise<void> {
    await this.#step<void>(({ give, fail }) =>
      this.#connection.reset((error) => (error === null ? give() : fail(new Error("no answer", { cause: error })))),
    );
  }

  #lost(error: unknown, isBegun: boolean): GatewayError {
    if (error instanceof GatewayError) return withDelivery(error, isBegun ? "uncertain" : "not_sent");
    // Whatever it says next may be about this mail.
    if (isBegun) this.#isSpent = true;
    const when = isBegun ? "while it was given the mail" : "before it was given the mail";
    const { text, isOwn } = readReply(error);
    const what = isOwn ? "answered the mail with what is no SMTP" : `broke the connection ${when} (${text})`;
    return withDelivery(
      new GatewayError("tool_unreachable", `${describePeer(this.#account)} ${what}.`, { cause: error }),
      isBegun ? "uncertain" : "not_sent",
    );
  }

  /** One step of the conversation, which ends with its answer, with the connection, or when it is given up. */
  #step<T>(begin: (end: StepEnd<T>) => void): Promise<T> {
    const signal = this.#signal;
    return new Promise<T>((resolve, reject) => {
      const giveUp = (): void => {
        this.#isSpent = true;
        reject(new GatewayError("call_cancelled", "The call was given up before the mail server answered."));
        this.#connection.close();
      };
      const ended = (): void => signal.removeEventListener("abort", giveUp);
      const fail = (error: Error | null): void => {
        ended();
        reject(error ?? new Error("no answer"));
      };
      if (signal.aborted) {
        giveUp();
        return;
      }
      signal.addEventListener("abort", giveUp, { once: true });
      this.#onFailure = fail;
      if (this.#failure !== undefined) fail(this.#failure);
      else
        begin({
          give: (result) => {
            ended();
            resolve(result);
          },
          fail,
        });
    });
  }
}

interface StepEnd<T> {
  readonly give: (result: T) => void;
  readonly fail: (error: Error | null) => void;
}

/** The message; knows whether its first byte was asked for, which happens when the server has said 354. */
class Body extends Readable {
  readonly #bytes: Buffer;
  isBegun = false;

  constructor(bytes: Buffer) {
    super();
    this.#bytes = bytes;
  }

  override _read(): void {
    this.isBegun = true;
    this.push(this.#bytes);
    this.push(null);
  }
}

/** An answer of the server that says no, at whatever step; undefined where it said nothing that can be read. */
function refusals(
  { from, to }: MailMessage["envelope"],
  error: unknown,
  isBegun: boolean,
): readonly RecipientReply[] | undefined {
  const { code, text, perRecipient, isOwn, isOfSender } = readReply(error);
  // Of a mail that the server has, nodemailer says the same where the answer is none.
  if (isOwn && !isBegun) return to.map((address): RecipientReply => ({ address, status: "rejected", reason: text }));
  if (code === undefined) return undefined;
  return to.map((address): RecipientReply => {
    const own = perRecipient.get(address) ?? {
      code,
      text: isOfSender ? `${text} (said of the sender, ${from})` : text,
    };
    return { address, status: isPutOff(own.code) ? "deferred" : "rejected", code: own.code, reason: own.text };
  });
}

/** @throws GatewayError `credential_invalid` for a signing key that is none; `not_sent` */
export async function compose(message: MailMessage): Promise<Buffer> {
  const { signing, attachments } = message;
  if (signing !== undefined) requireKey(signing);
  const composer = createTransport({ streamTransport: true, buffer: true, newline: "windows" });
  try {
    const { message: bytes } = await composer.sendMail({
      messageId: message.messageId,
      date: message.date,
      from: toAddress(message.from),
      to: message.to.map(toAddress),
      ...(message.cc.length === 0 ? {} : { cc: message.cc.map(toAddress) }),
      ...(message.replyTo === undefined ? {} : { replyTo: toAddress(message.replyTo) }),
      subject: message.subject,
      ...(message.text === undefined ? {} : { text: message.text }),
      ...(message.html === undefined ? {} : { html: message.html }),
      headers: { ...message.headers },
      attachments: attachments.map(({ name, mediaType, content, contentId }) => ({
        filename: name,
        content: Buffer.from(content),
        ...(mediaType === undefined ? {} : { contentType: mediaType }),
        ...(contentId === undefined ? {} : { cid: contentId }),
      })),
      ...(signing === undefined
        ? {}
        : { dkim: { domainName: signing.domain, keySelector: signing.selector, privateKey: signing.privateKey } }),
      disableFileAccess: true,
      disableUrlAccess: true,
      xMailer: false,
    });
    return Buffer.isBuffer(bytes) ? bytes : Buffer.from("");
  } catch (cause) {
    throw withDelivery(
      new GatewayError("internal_error", "The mail could not be put together.", { cause }),
      "not_sent",
    );
  }
}

/** Nodemailer sends what it cannot sign unsigned. */
function requireKey({ privateKey, credential }: MailSigning): void {
  let kind: string | undefined;
  try {
    kind = createPrivateKey(privateKey).asymmetricKeyType;
  } catch {
    kind = undefined;
  }
  if (kind === "rsa") return;
  throw withDelivery(
    new GatewayError(
      "credential_invalid",
      `The mail cannot be signed: credential '${credential}' is no RSA private key in PEM form.`,
      { param: credential },
    ),
    "not_sent",
  );
}

function toAddress({ address, name }: Mailbox): { readonly address: string; readonly name: string } {
  return { address, name: name ?? "" };
}
