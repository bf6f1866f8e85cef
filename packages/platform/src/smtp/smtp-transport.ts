/**
 * Mails over SMTP (port: core/ports/mail-transport.ts). The connection comes from the guarded door; what speaks
 * SMTP over it is loaded by the first mail.
 */
import type { Egress } from "@toolyard/core/ports/egress";
import type { MailTransport } from "@toolyard/core/ports/mail-transport";

interface SmtpDeps {
  readonly egress: Pick<Egress, "connect">;
}

export function createSmtpTransport({ egress }: SmtpDeps): MailTransport {
  return {
    async open(account, signal) {
      const { startSession } = await import("./smtp-session.ts");
      const socket = await egress.connect({ host: account.host, port: account.port, signal });
      return startSession(socket, account, signal);
    },
  };
}
