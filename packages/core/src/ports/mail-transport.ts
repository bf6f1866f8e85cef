/**
 * Gives messages to an SMTP server (MAIL-1 to MAIL-5). Implementation: platform/src/smtp. Whoever calls it
 * has checked addresses and header texts; it opens no file and no URL, and connects through the guarded door.
 */
import type { EgressTls } from "./egress.ts";

/** `tls`: from the first byte. `starttls`: asked for and insisted on. `none`: in clear. */
export type MailSecurity = "tls" | "starttls" | "none";

export interface MailAccount {
  readonly host: string;
  readonly port: number;
  readonly security: MailSecurity;
  readonly tls?: EgressTls | undefined;
  /** What we call ourselves to the server. */
  readonly clientName?: string | undefined;
  readonly login?: MailLogin | undefined;
}

export interface MailLogin {
  readonly username: string;
  readonly password: string;
  /** Name of the password's credential, for errors. */
  readonly credential: string;
}

export interface Mailbox {
  readonly address: string;
  readonly name?: string | undefined;
}

export interface MailAttachment {
  readonly name: string;
  readonly mediaType?: string | undefined;
  readonly content: Uint8Array;
  /** Referred to by HTML as `cid:…`; such parts are shown in place. */
  readonly contentId?: string | undefined;
}

export interface MailSigning {
  readonly domain: string;
  readonly selector: string;
  /** PEM. */
  readonly privateKey: string;
  /** Name of the key's credential, for errors. */
  readonly credential: string;
}

export interface MailMessage {
  /** With angle brackets. */
  readonly messageId: string;
  readonly date: Date;
  readonly from: Mailbox;
  readonly replyTo?: Mailbox | undefined;
  readonly to: readonly Mailbox[];
  readonly cc: readonly Mailbox[];
  /** Who gets it, whatever its headers say. */
  readonly envelope: { readonly from: string; readonly to: readonly string[] };
  readonly subject: string;
  readonly text?: string | undefined;
  readonly html?: string | undefined;
  readonly attachments: readonly MailAttachment[];
  readonly headers: Readonly<Record<string, string>>;
  readonly signing?: MailSigning | undefined;
}

/** `deferred`: not now; `rejected`: not this one. Neither has it. */
export interface RecipientReply {
  readonly address: string;
  readonly status: "accepted" | "rejected" | "deferred";
  /** Status code of SMTP, where the server said one. */
  readonly code?: number | undefined;
  /** What the server said. */
  readonly reason: string;
}

export interface MailSession {
  /**
   * One message. Refusals are part of the answer, one for each recipient of the envelope.
   * @throws GatewayError `tool_unreachable`, `call_cancelled`: `not_sent` before the message's first byte,
   * `uncertain` after it; `credential_invalid` for a signing key that is none
   */
  send(message: MailMessage): Promise<readonly RecipientReply[]>;
  /** Nothing has broken it so far. */
  isAlive(): boolean;
  /** For the next call: clears what is left of the one before. `false` where the server is there no more. */
  renew(signal: AbortSignal): Promise<boolean>;
  close(): void;
}

export interface MailTransport {
  /**
   * Connected, encrypted and logged in.
   * @throws GatewayError `egress_denied`, `tool_unreachable`, `tool_deferred`, `tool_failed`,
   * `credential_invalid`, `call_cancelled`; all marked `not_sent`
   */
  open(account: MailAccount, signal: AbortSignal): Promise<MailSession>;
}
